"""What an operator proposes: a spec from a file and flags, or a run like an earlier one, maybe with fewer sites.

A secure run never continues without one of its members. `dcfpca run restart --without SITE` proposes a new run instead,
so that every other site decides again.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcfpca.errors import BadInput, Refused, did_you_mean, listed
from dcfpca.methods import schedule_of
from dcfpca.operator.client import Operator
from dcfpca.rpca.private.schedule import expectation_text, predicted_error, prediction_text
from dcfpca.run_size import size_notes
from dcfpca.secagg.differencing_check import PastRun, exposure
from dcfpca.spec import RunSpec, parse_kept_spec, parse_spec, read_spec_file
from dcfpca.v1 import admin_pb2 as pb

_RANKS = ("rank", "max_rank")
WHY_THREE = (
    "In a sum over two sites, each could subtract its own part and read the other's. Add a third table; or let the "
    "aggregator"
    " read both: allow_plain = true and min_cohort = 2 in [policy] at both sites, then"
    " `dcfpca run start --aggregation plain`"
)
"""What to do with two tables."""


def spec_from_flags(path: Path | None, flags: Mapping[str, Any], settings: Sequence[str]) -> RunSpec:
    """The validated spec. A flag that was not given is None; `settings` have the form key=value. Features are scaled
    where they need it, unless the proposal says otherwise: a stored spec without the key is that of an older run."""
    if all(flags.get(key) is not None for key in _RANKS):
        raise BadInput("--rank and --max-rank contradict each other", "give one of them, or neither: the rank is found")
    keys = read_spec_file(path) if path else {}
    for key, value in flags.items():
        if value is not None:
            _put(keys, key, value)
    for setting in settings:
        _put(keys, *_split(setting))
    if "privacy" not in keys:
        keys.setdefault("scaling", "auto")
    return parse_spec(keys)


def _split(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {setting} is not of the form key=value", "write --set round_seconds=120")
    return key.strip(), _value(text.strip())


def _value(text: str) -> Any:
    """A TOML value; anything else is taken as a string, so that no quotes are needed in the shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(keys: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a key, also inside a table such as subspace.passes; rank and max_rank replace each other."""
    if dotted in _RANKS:
        for other in _RANKS:
            keys.pop(other, None)
    *tables, last = dotted.split(".")
    inner = keys
    for name in tables:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise BadInput(
                f"{dotted}: {name} is not a table", "the tables of a spec are subspace, gradient and privacy"
            )
    inner[last] = value


def expected_error(spec: RunSpec, columns: float | None, known: Sequence[pb.ParticipantView]) -> str:
    """The error to expect of a private run with about this many columns in all, as a sentence; empty for other runs.

    Raises Refused if it is above `max_error`. Sites do not report how many columns they have: where the operator does
    not know even the order of magnitude, the noisy count at the start of the run decides.
    """
    privacy, rows = spec.privacy, spec.rows or _reported_rows(known)
    if privacy is None:
        return ""
    if columns is None or not rows:
        what = "--columns" if columns is None else "--rows"
        return (
            f"at ε = {privacy.epsilon:g} the error depends on how many columns the sites have: give {what}"
            " to see it first; else the run ends after its opening if its noisy count predicts sin θ above"
            f" {privacy.max_error:g} (privacy.max_error)"
        )
    spec = spec if spec.rows else spec.model_copy(update={"rows": rows})
    schedule, surplus = schedule_of(privacy), _surplus(spec, privacy.conspirators, known)
    if (error := predicted_error(rows, spec.width, columns, schedule, surplus)) > privacy.max_error:
        hint = "raise epsilon, lower the rank, or raise max_error in [privacy] if such a result is of use"
        expected = expectation_text(privacy.epsilon, columns, error)
        raise Refused(f"{expected}, above the {privacy.max_error:g} that the spec allows (privacy.max_error)", hint)
    return prediction_text(privacy.epsilon, columns, error, spec.width)


def expected_size(spec: RunSpec, known: Sequence[pb.ParticipantView]) -> list[str]:
    """What to expect of a run that is large by its features or its sites, in sentences; none for others."""
    rows = spec.rows or _reported_rows(known)
    if not rows or spec.width > rows:  # the aggregator will say so
        return []
    sites = len(spec.participants) or sum(one.state == "connected" for one in known)
    return size_notes(spec if spec.rows else spec.model_copy(update={"rows": rows}), sites)


def _reported_rows(known: Sequence[pb.ParticipantView]) -> int:
    """The number of rows that most connected participants have; 0 if none says."""
    counted = Counter(one.rows for one in known if one.state == "connected" and one.rows)
    return counted.most_common(1)[0][0] if counted else 0


def _surplus(spec: RunSpec, conspirators: int, known: Sequence[pb.ParticipantView]) -> float:
    """The variance of all sites' noise over that of the honest ones."""
    sites = len(spec.participants) or sum(one.state == "connected" for one in known)
    return sites / max(sites - conspirators, 1) if sites else 1.0


def cohort_note(spec: RunSpec, runs: Iterable[pb.RunView], known: Sequence[pb.ParticipantView]) -> str:
    """What the cohort of the last run, of the newest first, means for this one; empty where nothing stands in the way.

    Sites decide by all runs that they know, and by their own policy; this is what the last run alone leads to.
    """
    last = next((view for view in runs if view.round and _sums_compare(spec, view)), None)
    if last is None:
        return ""
    states = {one.name: one.state for one in known}
    members = frozenset(one.participant for one in last.enrolled)
    invited = frozenset(spec.participants or (name for name in states if states[name] == "connected"))
    found = exposure([PastRun(last.run_id, members)], invited, spec.least_cohort)
    if found is None:
        return ""
    away = sorted(name for name in members - invited if states.get(name) == "away")
    if (
        not spec.participants
        and away
        and exposure([PastRun(last.run_id, members)], invited | {*away}, spec.least_cohort) is None
    ):
        why = f"the others would refuse to sum without the members of run {last.run_id}"
        return f"waiting for {listed(away)}, for at most {spec.enrol_seconds:g} s: {why}"
    exposed = f"the sums of this run and of run {last.run_id} together would single out {listed(found.members)}"
    if spec.participants:
        whom = listed(sorted(invited))
        return f"{exposed}, so a person at each of {whom} is asked to approve it: `dcfpca-participant approve`"
    return f"{exposed}, so the sites will refuse; name who takes part (--participants), and a person at each is asked"


def _sums_compare(spec: RunSpec, view: pb.RunView) -> bool:
    """True if both are secure, and about the same features as far as is known."""
    if not view.spec or spec.aggregation == "plain":
        return False
    earlier = parse_kept_spec(view.spec)
    return earlier.aggregation == "secure" and spec.rows in (0, earlier.rows)


def presence_note(spec: RunSpec, known: Sequence[pb.ParticipantView]) -> str:
    """That too few sites are connected for this run, why it needs more, and what to do; empty where enough are."""
    here = [one.name for one in known if one.state == "connected" and one.name in (spec.participants or [one.name])]
    if not here:
        way = "start the sites (`dcfpca up DIR`, or `dcfpca-participant serve` at each)"
        return f"no participant is connected: {way}; enrolment waits for them for {spec.enrol_seconds:g} s"
    away = [one.name for one in known if one.state == "away" and one.name in (spec.participants or [one.name])]
    if len(here) < spec.least_cohort <= len(here) + len(away):
        return f"not connected: {listed(away)}; enrolment waits for {spec.enrol_seconds:g} s"
    if len(here) < spec.least_cohort:
        connected = f"{listed(here)} {'is' if len(here) == 1 else 'are'} connected, and a secure run needs"
        return f"{connected} {spec.least_cohort} sites. {WHY_THREE}"
    return ""


APPROVAL_SECONDS = 86400.0
"""How long enrolment stays open at least where people have to approve; it closes as soon as everybody has answered."""


def with_time_for_people(spec: RunSpec, known: Sequence[pb.ParticipantView], *, asked: bool) -> tuple[RunSpec, str]:
    """The spec with a day for enrolment where a person is asked (`asked`: at every site) and it states no time; and a
    sentence that says so."""
    asking = [one.name for one in known if one.asks and (not spec.participants or one.name in spec.participants)]
    if "enrol_seconds" in spec.model_fields_set or not (asked or asking):
        return spec, ""
    whom = "people at the sites are" if asked else f"a person at {listed(asking)} is"
    said = f"{whom} asked, so that enrolment stays open for up to a day; it closes once everybody has answered"
    return parse_spec(spec.model_dump() | {"enrol_seconds": APPROVAL_SECONDS}), said


@dataclass(frozen=True, slots=True)
class Restart:
    """A run to propose. Where the sums of both runs together would single out the sites in `exposed`, a person has to
    approve the run at each of the sites in `asked`."""

    spec: RunSpec
    asked: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()

    def sentences(self, run_id: str, earlier: str) -> list[str]:
        """What to say to the operator once the run is proposed under this id."""
        start = (
            f"starts from the subspace of run {earlier}"
            if self.spec.warm_start == earlier
            else "starts from the beginning"
        )
        lines = [f"run {run_id} is like run {earlier} and {start}"]
        if self.asked:
            lines += [
                f"the cohort shrank: the sums of both runs together would single out {listed(self.exposed)},"
                f" so a person at each of {listed(self.asked)} is asked to approve it",
                f"there: `dcfpca-participant approve {run_id} --by NAME`; enrolment waits for them",
            ]
        return lines


def restart_of(view: pb.RunView, without: Collection[str], settings: Sequence[str] = ()) -> Restart:
    """A run like this one, which is over or paused, without these sites and with these settings, as key=value.

    Raises Refused for a run that is still running, and BadInput if too few sites are left.
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
        invited = _invited(view, spec, spec.participants or members, without)
        exposed = _exposed(view, spec, members, invited)
        asked = invited if exposed else ()
        changes["participants"] = invited
        if asked:
            changes["enrol_seconds"] = max(spec.enrol_seconds, APPROVAL_SECONDS)
    keys = spec.model_dump(mode="json") | changes
    for setting in settings:
        key, value = _split(setting)
        if key == "features" and isinstance(value, list):  # which say the rest, and to which no earlier subspace fits
            keys |= {"rows": len(value), "features_sha256": "", "warm_start": ""}
        _put(keys, key, value)
    return Restart(parse_spec(keys), asked, exposed)


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
    # A private run never starts from another: the subspace of a run without noise may reveal its columns.
    return spec.privacy is None and view.status == "finished"


def _invited(view: pb.RunView, spec: RunSpec, named: tuple[str, ...], without: Collection[str]) -> tuple[str, ...]:
    """Who is left of the named sites."""
    for name in without:
        if name not in named:
            hint = did_you_mean(name, named) or f"its sites are {listed(named)}"
            raise BadInput(f"{name} is not one of the sites of run {view.run_id}", hint)
    left = tuple(name for name in named if name not in without)
    if len(left) < (least := spec.least_cohort):
        are = "sites are" if least > 1 else "site is"
        raise BadInput(f"{least} {are} needed, and {listed(left) or 'nobody'} would be left", "leave out fewer")
    return left


def _exposed(view: pb.RunView, spec: RunSpec, members: tuple[str, ...], invited: tuple[str, ...]) -> tuple[str, ...]:
    """The members whom sums over the invited sites would single out, together with those of the earlier run.

    Sites decide by all runs that they know, and by their own policy; this is what the smaller cohort alone leads to.
    """
    if not view.rounds:
        return ()
    found = exposure([PastRun(view.run_id, frozenset(members))], frozenset(invited), spec.least_cohort)
    return found.members if found is not None else ()
