"""What `dcfpca run restart` proposes: a run like an earlier one, from the consensus it reached, maybe with fewer sites.

A secure run never goes on without a member. To do so is a new run, that is, a new decision of every other site.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dcfpca.errors import BadInput, Refused, did_you_mean, listed
from dcfpca.operator.client import Operator
from dcfpca.secagg import PastRun, exposure
from dcfpca.spec import RunSpec, parse_kept_spec, parse_spec
from dcfpca.v1 import admin_pb2 as pb

LEAST_SECURE = 3
"""With two, the sum minus one's own update is the other's. It is also the default of a site's `[policy] min_cohort`."""

APPROVAL_SECONDS = 86400.0
"""How long enrolment stays open at least where people have to approve; it closes as soon as everybody has answered."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A run to be proposed. `asked` are the sites where a person has to approve it, because of `exposed`: their sums
    would be the difference between the two runs."""

    spec: RunSpec
    asked: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()

    def sentences(self, run_id: str, earlier: str) -> list[str]:
        """What an operator is told once the run is proposed under this id."""
        start = f"starts from the subspace of run {earlier}" if self.spec.warm_start == earlier else "starts anew"
        told = [f"run {run_id} is like run {earlier} and {start}"]
        if self.asked:
            told += [
                f"the cohort shrank: the sums of both runs together would tell about {listed(self.exposed)} alone,"
                f" so a person at each of {listed(self.asked)} is asked to approve it",
                f"there: `dcfpca-participant approve {run_id} --by NAME`; enrolment waits for them",
            ]
        return told


def restart_of(view: pb.RunView, without: Collection[str]) -> Restart:
    """The run that follows this one, which need not be over yet, without these sites.

    Raises Refused for a run that is still going on, and BadInput where no run can be made of what is left.
    """
    if view.status in ("enrolling", "running"):
        hint = f"`dcfpca run finish {view.run_id}` keeps its consensus, `dcfpca run abort {view.run_id}` does not"
        raise Refused(f"run {view.run_id} is {view.status}; end it first", hint)
    spec = parse_kept_spec(view.spec)
    members = tuple(one.participant for one in view.enrolled)
    changes: dict[str, object] = {"warm_start": view.run_id if _leaves_result(view, spec) else spec.warm_start}
    asked: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    if without:
        invited = _invited(view, spec.participants or members, without, spec.aggregation)
        exposed = _exposed(view, members, invited, spec.aggregation)
        asked = invited if exposed else ()
        changes["participants"] = invited
        if asked:
            changes["enrol_seconds"] = max(spec.enrol_seconds, APPROVAL_SECONDS)
    return Restart(parse_spec(spec.model_dump(mode="json") | changes), asked, exposed)


def end_paused(operator: Operator, view: pb.RunView) -> str:
    """End a paused run, with its consensus if it has one; returns what was done, or nothing for one that is over."""
    if view.status != "paused":
        return ""
    if _leaves_result(view, parse_kept_spec(view.spec)):
        operator.finish(view.run_id, "restarted")
        return f"run {view.run_id} is finished with the consensus it has; its sites form their results from it"
    operator.abort(view.run_id, "restarted")
    return f"run {view.run_id} is aborted: it had no consensus yet"


def _leaves_result(view: pb.RunView, spec: RunSpec) -> bool:
    """Whether the run has, or a paused one will have, a result to start from."""
    if view.status == "paused":
        return spec.privacy is None and view.round > spec.rounds_before_fit + 1
    # What a run without noise found may tell of its columns, so that no private one starts from another.
    return spec.privacy is None and view.status == "finished"


def _invited(view: pb.RunView, named: tuple[str, ...], without: Collection[str], aggregation: str) -> tuple[str, ...]:
    """Who is left of the named sites."""
    for name in without:
        if name not in named:
            hint = did_you_mean(name, named) or f"its sites are {listed(named)}"
            raise BadInput(f"{name} is not one of the sites of run {view.run_id}", hint)
    left = tuple(name for name in named if name not in without)
    least = LEAST_SECURE if aggregation == "secure" else 1
    if len(left) < least:
        are = "sites are" if least > 1 else "site is"
        raise BadInput(f"{least} {are} needed, and {listed(left) or 'nobody'} would be left", "leave out fewer")
    return left


def _exposed(view: pb.RunView, members: tuple[str, ...], invited: tuple[str, ...], aggregation: str) -> tuple[str, ...]:
    """The members whom sums over the invited sites would single out, together with those of the earlier run.

    Sites decide by all runs that they know, and by their own policy; this is what the smaller cohort alone leads to.
    """
    if aggregation == "plain" or not view.rounds:
        return ()
    found = exposure([PastRun(view.run_id, frozenset(members))], frozenset(invited), LEAST_SECURE)
    return found.members if found is not None else ()
