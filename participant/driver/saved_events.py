"""What a run saves before it acts, and the events it replays after a restart.

Every event for which the session asks it is saved before its actions are carried out. Replaying the saved events puts
a new session into the state of the old one, so that a restarted site answers with the same bytes.
"""

from __future__ import annotations

import time
from dataclasses import replace

from dcfpca.errors import BadMessage
from dcfpca.v1 import rounds_pb2 as pb
from participant import wire_codec
from participant.session import Consent, Session, events
from participant.state.store import LocalStep, RunRow, Store


def save_event(
    store: Store, session: Session, event: events.Event, source: pb.Assignment | None, before: Consent | None
) -> None:
    """Save what the session, whose consent was `before`, made of the event; durable when this returns.

    `source` is the assignment that the event was decoded from, if it came from the aggregator.
    """
    run_id = session.run_id
    if session.consent is not None and session.consent is not before:
        store.save_consent(run_id, session.consent, _now_ms())
        return
    match event:
        case events.Proposed():
            store.save_waiting(run_id, event.spec, event.digest, session.site.policy.private, _now_ms())
        case events.Opened():
            # A plain attempt has no secrets and only one possible answer, so there is nothing to keep unchanged.
            if session.consent is not None and session.consent.spec.aggregation == "secure":
                store.open_attempt(event.ref, event.seed, _without_consensus(source), event.opened_before)
        case events.Ended() | events.TurnedDown():
            store.end(run_id, "ended", event.reason)
        case events.ResultsWritten():
            store.end(run_id, "finished", event.outcome)
        case _:
            store.save_inbox(run_id, source.SerializeToString() if source else b"")


def saved_events(store: Store, row: RunRow, step: LocalStep | None) -> list[events.Event]:
    """The events of a run that its session replays after a restart; `step` is its last saved local step."""
    past: list[events.Event] = []
    if row.status == "waiting":
        past.append(events.Proposed(row.spec, row.digest))
    if step is not None:
        past.append(events.Computed(step.round, step.consensus, step.vector))
    seed, opened_before = store.seed(row.run_id)
    return past + [_with_seed(_decoded(body), seed, opened_before) for body in store.inbox(row.run_id)]


def _without_consensus(source: pb.Assignment | None) -> bytes:
    """The assignment that opened the attempt, without the tensor, which is fetched again when it is needed again."""
    if source is None:
        return b""
    kept = pb.Assignment()
    kept.CopyFrom(source)
    kept.round_opened.inline_consensus = b""
    return kept.SerializeToString()


def _decoded(body: bytes) -> events.Assigned:
    return wire_codec.decode(pb.Assignment.FromString(body))


def _with_seed(event: events.Assigned, seed: bytes, opened_before: tuple[str, ...]) -> events.Event:
    if isinstance(event, events.Opened):
        if not seed:
            raise BadMessage("the seed of the open attempt is gone")
        return replace(event, seed=seed, opened_before=opened_before)
    return event


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
