"""Runs, events and consensus as bytes and back. JSON and npz only; never pickle."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter

from aggregator.run.events import Event
from aggregator.run.state import Run
from dcfpca.errors import BadInput
from dcfpca.rpca.method import Consensus, Outcome, Progress, TensorMessage

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_RUN: TypeAdapter[Run] = TypeAdapter(Run)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever the libraries say of damaged bytes (there is no end to their errors), as our sentence."""
    try:
        yield
    except Exception as error:
        hint = "restore the store from a backup (deploy/RUNBOOK.md); it has not been changed"
        raise BadInput(f"the store holds {what} that is damaged", hint) from error


def dump_event(event: Event) -> bytes:
    """An event as JSON."""
    return _EVENT.dump_json(event)


def load_event(body: bytes) -> Event:
    """The event in this JSON."""
    with _reading("an event"):
        return _EVENT.validate_json(body)


def dump_run(run: Run) -> bytes:
    """A run's state as JSON."""
    return _RUN.dump_json(run)


def load_run(body: bytes) -> Run:
    """The run in this JSON."""
    with _reading("a run"):
        return _RUN.validate_json(body)


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
    }
    buffer = io.BytesIO()
    arrays = {f"memory.{name}": value for name, value in consensus.memory.items()}
    arrays |= {"tensor": consensus.broadcast.tensor, "scalars": consensus.broadcast.scalars}
    arrays |= {"singular_values": progress.singular_values}
    np.savez(buffer, allow_pickle=False, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)
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
        broadcast=TensorMessage(arrays["tensor"], arrays["scalars"]),
        memory={name.removeprefix("memory."): value for name, value in arrays.items() if name.startswith("memory.")},
        progress=progress,
        outcome=Outcome[head["outcome"]] if head["outcome"] else None,
    )
