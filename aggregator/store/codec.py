"""Runs, events and consensus as bytes and back. JSON and npz only; never pickle.

The JSON stays the same while classes and fields are renamed. An attempt is stored as `round` and `attempt` without its
run; the row tells the rest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter

from aggregator.run.events import Event
from aggregator.run.state import Run
from dcfpca.errors import UnusableState
from dcfpca.rpca.method import Consensus, Outcome, Progress, TensorMessage

HEAD_CHARACTERS = 256
"""More than the head of a stored consensus has."""

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_RUN: TypeAdapter[Run] = TypeAdapter(Run)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise UnusableState in place of any error that a library raises on damaged bytes."""
    try:
        yield
    except Exception as error:
        hint = "restore the store from a backup (deploy/RUNBOOK.md); it has not been changed"
        raise UnusableState(f"the store holds {what} that is damaged", hint) from error


def dump_event(event: Event) -> bytes:
    """An event as JSON."""
    return _json(_without_ref(_EVENT.dump_python(event, mode="json")))


def load_event(body: bytes, run_id: str) -> Event:
    """The event of this run in this JSON; raises UnusableState when it is damaged."""
    with _reading("an event"):
        stored = json.loads(body)
        return _EVENT.validate_json(_json(_with_ref(stored, run_id) if "attempt" in stored else stored))


def dump_run(run: Run) -> bytes:
    """A run's state as JSON, without the digest of its spec, which is stored by itself."""
    fields = _RUN.dump_python(run, mode="json", exclude={"spec_sha256"})
    attempt, fields["fixed_cohort"] = fields.pop("attempt"), fields.pop("secure")
    return _json(fields | {"round": _without_ref(attempt) if attempt else None})


def load_run(body: bytes, spec_sha256: bytes) -> Run:
    """The state in this JSON of a run whose spec has this digest; raises UnusableState when it is damaged."""
    with _reading("a run"):
        fields = json.loads(body)
        attempt, fields["secure"] = fields.pop("round", None), fields.pop("fixed_cohort", None)
        fields["attempt"] = _with_ref(attempt, fields["run_id"]) if attempt else None
        return replace(_RUN.validate_json(_json(fields)), spec_sha256=spec_sha256)


def _json(fields: Fields) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def dump_consensus(consensus: Consensus) -> bytes:
    """A consensus, with the method's memory, as npz."""
    progress = consensus.progress
    head = {
        "round": consensus.round,
        "outcome": consensus.outcome.name if consensus.outcome else "",
        "rank": progress.rank,
        "change": progress.change,
        "noise": progress.noise,
        "threshold": progress.threshold,
        "stage": consensus.stage,
    }
    buffer = io.BytesIO()
    arrays = {f"memory.{name}": value for name, value in consensus.memory.items()}
    arrays |= {"tensor": consensus.broadcast.tensor, "scalars": consensus.broadcast.scalars}
    arrays |= {"singular_values": progress.singular_values}
    # Of one length from round to round: SQLite then writes into the same pages, in a fraction of the time of new ones.
    text = json.dumps(head).ljust(HEAD_CHARACTERS).encode()
    np.savez(buffer, allow_pickle=False, head=np.frombuffer(text, np.uint8), **arrays)
    return buffer.getvalue()


def load_consensus(body: bytes) -> Consensus:
    """The consensus in this npz."""
    with _reading("a consensus"):
        with np.load(io.BytesIO(body), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _consensus(arrays)


def _consensus(arrays: dict[str, np.ndarray[Any, Any]]) -> Consensus:
    head = json.loads(arrays.pop("head").tobytes())
    progress = Progress(
        change=head["change"],
        rank=head["rank"],
        noise=head["noise"],
        threshold=head["threshold"],
        singular_values=arrays["singular_values"],
    )
    return Consensus(
        round=head["round"],
        stage=str(head.get("stage", "")),  # stores of 0.1 have none
        broadcast=TensorMessage(arrays["tensor"], arrays["scalars"]),
        memory={name.removeprefix("memory."): value for name, value in arrays.items() if name.startswith("memory.")},
        progress=progress,
        outcome=Outcome[head["outcome"]] if head["outcome"] else None,
    )


Fields = dict[str, Any]


def is_without_secure_sum(state: bytes) -> bool:
    """Whether this is the stored state of an open run that has rounds, and not the set-up that secure ones have now."""
    stored = json.loads(state)
    is_open = stored["status"] in ("running", "paused")
    return is_open and bool(stored.get("round")) and not stored.get("fixed_cohort")


def _without_ref(fields: Fields) -> Fields:
    fields = dict(fields)
    ref = fields.pop("ref", None)
    return fields | {"round": ref["round"], "attempt": ref["attempt"]} if ref else fields


def _with_ref(stored: Fields, run_id: str) -> Fields:
    fields = dict(stored)
    return fields | {"ref": {"run_id": run_id, "round": fields.pop("round"), "attempt": fields.pop("attempt")}}
