"""The open round of a run that waits for every member, in the types of `dcfpca.secagg.fixed_cohort`."""

from __future__ import annotations

from functools import lru_cache

from aggregator.run.records import FixedCohort
from aggregator.run.state import Run
from dcfpca.methods import method_of
from dcfpca.secagg import fixed_cohort as secure
from dcfpca.secagg.fixed_cohort import context as contexts
from dcfpca.secagg.fixed_cohort.exponents import first_exponents
from dcfpca.secagg.fixed_cohort.roster import roster_digest
from dcfpca.spec import RunSpec
from dcfpca.update_blocks import block_layout


def begin(spec: RunSpec) -> FixedCohort:
    """The state in which the set-up of a run begins."""
    return FixedCohort(exponents=first_exponents(layout_of(spec, 0)))


def terms_of(spec: RunSpec, run: Run) -> secure.RunTerms:
    """What every member of the run's cohort agreed to."""
    return _terms(run.run_id, run.spec_sha256, run.cohort, spec.last_round, spec.precision)


@lru_cache(maxsize=64)
def _terms(run: str, spec: bytes, cohort: tuple[str, ...], last_round: int, precision: int) -> secure.RunTerms:
    return secure.RunTerms(run, spec, cohort, last_round, precision)


def layout_of(spec: RunSpec, round: int) -> secure.BlockLayout:
    """The blocks of this round's updates."""
    return block_layout(method_of(spec).update_layout(round), spec.precision)


def roster_of(spec: RunSpec, run: Run, fixed: FixedCohort) -> bytes:
    """The digest of the adverts of the whole cohort; each was checked when it was accepted."""
    return roster_digest(terms_of(spec, run), full_roster(fixed))


def full_roster(fixed: FixedCohort) -> secure.Roster:
    """The adverts in the order of names."""
    return secure.Roster(tuple(fixed.adverts[name] for name in sorted(fixed.adverts)))


def opening_of(spec: RunSpec, run: Run, told: bytes) -> secure.Opening:
    """The opening of the open round; `told` is the digest of the consensus as it is announced."""
    assert run.fixed_cohort is not None
    assert run.attempt is not None
    fixed, round = run.fixed_cohort, run.attempt.ref.round
    layout = layout_of(spec, round)
    return secure.Opening(round, told, fixed.previous_sum, layout, fixed.exponents, fixed.misfits)


def context_of(spec: RunSpec, run: Run, told: bytes) -> bytes:
    """What every update of the open attempt is masked for."""
    assert run.fixed_cohort is not None
    opening = opening_of(spec, run, told)
    return contexts.context_of(terms_of(spec, run), run.fixed_cohort.roster, opening, len(opening.misfits))
