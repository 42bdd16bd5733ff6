"""From an operator's proposal to a new run: the spec completed and checked, and the consensus it begins with."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from aggregator.participant_directory import ParticipantDirectory
from aggregator.run.state import Run, Status
from aggregator.runner import Runner
from aggregator.store.run_rows import StoredRun
from dcfpca.errors import BadInput
from dcfpca.methods import load_accountant
from dcfpca.rpca.method import Consensus
from dcfpca.spec import RunSpec, parse_spec, spec_digest
from dcfpca.terms import Terms


@dataclass(frozen=True, slots=True)
class Proposal:
    """The terms of a complete spec, who proposed it, and the id that makes a repetition return the same run."""

    terms: Terms
    operator: str
    request_id: str


async def complete_terms(spec: RunSpec, directory: ParticipantDirectory, max_update_mib: int) -> Terms:
    """The terms of the spec, with the rows and feature digest of the connected participants where it states none.

    Raises BadInput when the participants disagree or say nothing, or when an update would be larger than the limit.
    """
    rows = spec.rows or await directory.rows_of_connected(spec.enrol_seconds)
    features = spec.features_sha256 or directory.features_of_connected(rows)
    if (rows, features) != (spec.rows, spec.features_sha256):
        spec = parse_spec(spec.model_dump() | {"rows": rows, "features_sha256": features})
    await asyncio.to_thread(load_accountant, spec)
    terms = Terms.of(spec)
    _check_update_size(terms, max_update_mib)
    return terms


def _check_update_size(terms: Terms, max_update_mib: int) -> None:
    spec, size = terms.spec, max(stage.up.size for stage in terms.method.stages) * 8
    if size > max_update_mib << 20:
        raise BadInput(
            f"updates of {spec.rows} features and rank {spec.width} take {size >> 20} MiB, "
            f"more than the {max_update_mib} MiB that this aggregator accepts",
            "lower the rank, or raise [limits] max_update_mib",
        )


def new_run(proposal: Proposal, earlier: Runner | None, now: float) -> StoredRun:
    """The run that a proposal begins; raises BadInput when its warm start does not fit."""
    spec_bytes = proposal.terms.canonical
    run = Run(
        run_id=_new_run_id(),
        created_at=now,
        spec_sha256=spec_digest(spec_bytes),
        operator=proposal.operator,
        seal=secrets.token_bytes(32),
    )
    return StoredRun(proposal.terms, spec_bytes, run, 0, opening_consensus(proposal.terms, earlier))


def opening_consensus(terms: Terms, earlier: Runner | None) -> Consensus:
    """The consensus of round 0; a warm start puts the subspace of the earlier run into the method's memory."""
    spec, begin = terms.spec, terms.method.begin()
    if not spec.warm_start:
        return begin
    if earlier is None or earlier.run.status is not Status.FINISHED:
        hint = "`dcfpca run list` shows the runs; a warm start needs one that is finished"
        raise BadInput(f"there is no finished run {spec.warm_start!r} to start from", hint)
    check_warm_start(spec, earlier.spec)
    # With every direction, as the sites have it: they begin at nothing else. What is published may lack some.
    U = earlier.terms.method.model(replace(earlier.round_sum.consensus, memory={}))["U"]
    return replace(begin, memory={**begin.memory, "warm": U})


def check_warm_start(spec: RunSpec, earlier: RunSpec) -> None:
    """Raise BadInput unless the earlier run has the same rows, features and scaling."""
    if earlier.rows != spec.rows:
        difference = f"run {spec.warm_start} has {earlier.rows} features and this one {spec.rows}"
        raise BadInput(f"the warm start does not fit: {difference}", "start from a run about the same features")
    if "" not in (names := {earlier.features_sha256, spec.features_sha256}) and len(names) > 1:
        hint = "start from a run about the same features, in the same order"
        raise BadInput(f"the warm start does not fit: run {spec.warm_start} is about other features", hint)
    if earlier.scaling != spec.scaling:
        difference = f'run {spec.warm_start} has scaling = "{earlier.scaling}"'
        raise BadInput(f"the warm start does not fit: {difference}", "use the same scaling, or another run")


def _new_run_id() -> str:
    """Short enough to type, sortable by day, and not guessable."""
    return f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
