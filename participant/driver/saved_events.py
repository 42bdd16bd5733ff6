"""What a run saves before it acts, and the events it replays after a restart.

Every event for which the session asks it is saved before its actions are carried out. Replaying the saved events puts
a new session into the state of the old one, so that a restarted site answers with the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from dcfpca.privacy.noise_stream import KEY_BYTES
from participant import wire_codec
from participant.driver.site_services import SiteServices
from participant.session import Consent, Session, events
from participant.session.events import LocalStep
from participant.session.secure_run import SecureRun
from participant.state.store import RunRow, Store


def save_event(
    services: SiteServices,
    session: Session,
    event: events.Event,
    source: Callable[[], bytes],
    before: Consent | None,
) -> None:
    """Save what the session, whose consent was `before`, made of the event; a killed process loses nothing of it.

    What a secure run pins survives a power cut as well, see `Store`. `source` gives the encoded assignment that the
    event was decoded from, if it came from the aggregator; decoding took the tensors out, which are fetched again.
    """
    store, run_id = services.store, session.run_id
    secure = session.secure
    if secure is not None:
        _save_secure(services, secure, event, source)
    if session.consent is not None and session.consent is not before:
        _save_consent(services, run_id, session.consent)
        return
    match event:
        case events.Proposed():
            why, private = session.enrolment.asked_because, session.site.policy.private
            store.save_waiting(run_id, event.spec, event.digest, private, _now_ms(), why)
        case events.Opened() | events.Answered() | events.KeyWanted() | events.RosterClosed() | events.SharesRelayed():
            pass  # only a secure run saves these: a plain attempt has no secrets and only one possible answer
        case events.FeaturesDiffer():
            store.hold(run_id, " ".join(event.notes))
        case events.Approved():
            store.release(run_id)
        case events.Ended(status="finished") if session.consent is not None and session.consent.accept:
            store.forget_opening(run_id)  # the run is over at this site once its results are written
        case events.Ended() | events.TurnedDown():
            store.end(run_id, "ended", event.reason)
            store.privacy.settle(run_id, _now_ms())
        case events.ResultsWritten():
            store.end(run_id, "finished", event.outcome)
        case _:
            raise AssertionError(f"nothing is saved of {type(event).__name__}")


def _save_consent(services: SiteServices, run_id: str, consent: Consent) -> None:
    """Save the site's answer. Joining a run is charged to the privacy budget; withdrawing may give that back."""
    store, now_ms = services.store, _now_ms()
    if consent.accept:
        site = services.site
        if consent.spec.privacy is not None:
            store.pin_data(run_id, site.pinned_digest)  # the data that is charged is the data that answers
        store.save_joining(run_id, consent, site.columns_of(consent.spec), site.unit, now_ms)
        return
    store.save_consent(run_id, consent, now_ms)
    store.privacy.settle(run_id, now_ms)


def _save_secure(services: SiteServices, run: SecureRun, event: events.Event, source: Callable[[], bytes]) -> None:
    """Save the announcement of a round, or the key record with what must be on the disk before it."""
    store = services.store
    if isinstance(event, events.Opened):
        store.save_opening(run.run_id, source())
        return
    if not (record := run.record):
        return  # the set-up has not begun
    if isinstance(event, events.Answered) and run.run_id not in store.exposed:
        store.save_exposure(services.site.columns_of(run.spec).digest, run.run_id, run.cohort)
    if isinstance(event, events.KeyWanted):
        store.pin_data(run.run_id, services.site.pinned_digest)
        if run.spec.privacy is not None:
            store.make_noise_key(run.run_id, os.urandom(KEY_BYTES))
    store.save_keys(run.run_id, run.cohort, record)


def saved_events(store: Store, row: RunRow, step: LocalStep | None) -> list[events.Event]:
    """The events of a run that its session replays after a restart; `step` is its last saved local step."""
    past: list[events.Event] = []
    if row.status == "waiting":
        past.append(events.Proposed(row.spec, row.digest))
    if step is not None:
        past.append(replace(step, snapshot={}))
    return past + [wire_codec.decode_saved(body) for body in store.inbox(row.run_id)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
