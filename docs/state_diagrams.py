"""The state diagrams of architecture.md: the rules are run on small runs, and what they did is drawn.

Runs and sessions are made by the helpers of the rules' own tests, so a diagram shows what the tested code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from aggregator.run import events as happened
from aggregator.run import waiting
from aggregator.run.state import Phase, Run, Status
from participant.session import Session
from participant.session import events as heard
from tests.support.runs import rules, secure_rules, sessions

Arrow = tuple[str, str, str]
Act = Callable[[rules.Machine], object]
FORMING = "forming results"


def run_status() -> str:
    """Every way from one status of a run to another."""
    seen: set[tuple[object, ...]] = set()
    arrows: list[Arrow] = [("[*]", Status.ENROLLING.value, "ProposeRun")]
    frontier = [rules.Machine(rules.spec_of(max_attempts=2))]
    while frontier:
        machine = frontier.pop(0)
        for label, act in _acts(machine.run).items():
            after = _copy(machine)
            act(after)
            arrows.append((machine.run.status.value, after.run.status.value, label))
            if (key := _key(after.run)) not in seen:
                seen.add(key)
                frontier.append(after)
    ends = [(status.value, "[*]", "") for status in Status if status.over]
    return _drawn([arrow for arrow in arrows if arrow[0] != arrow[1]] + ends)


def secure_phases() -> str:
    """How a secure run is set up once and then goes from round to round."""
    acts: dict[str, Callable[[secure_rules.WaitingRun], object]] = {
        "RunKeyAdvertised": lambda run: run.advertise(),
        "GroupSecretShared": lambda run: run.share(),
        "UpdateReceived": lambda run: run.update(),
        "ConsensusReached: next round": lambda run: run.summed(),
    }
    run = secure_rules.WaitingRun()
    arrows: list[Arrow] = [("[*]", run.run.phase, "the cohort is enrolled")]
    for label, act in acts.items():
        before = run.run.phase
        if before != Phase.SUMMING:
            late = _copy(run)
            while (due := waiting.deadline(late.spec, late.run)) is not None:
                late.at = due
                late.overdue()
            arrows += [(before, late.run.status.value, "DeadlinePassed, patience ended")]
            arrows += [(late.run.status.value, late.tell(happened.Resumed).run.phase, "Resumed")]
        act(run)
        arrows.append((before, run.run.phase, label))
    return _drawn([*arrows, (Phase.SUMMING.value, "[*]", "ConsensusReached with an outcome")])


def plain_phases() -> str:
    """How an attempt of a plain run moves through its phases, and what opens the next round or attempt."""
    open_ = rules.Machine().enrol(*rules.NAMES)
    summing = _copy(open_).upload()
    arrows: list[Arrow] = [
        ("[*]", open_.run.phase, "the cohort is enrolled"),
        (open_.run.phase, summing.run.phase, "UpdateReceived, of everybody or of a quorum at the deadline"),
        (open_.run.phase, _copy(open_).overdue().run.phase, "DeadlinePassed, too few: next attempt"),
        (summing.run.phase, _copy(summing).reach().run.phase, "ConsensusReached: next round"),
        (summing.run.phase, _sum_failed(_copy(summing)).run.phase, "SumFailed: next attempt"),
    ]
    return _drawn([*arrows, (Phase.SUMMING.value, "[*]", "ConsensusReached with an outcome")])


def site_session() -> str:
    """What a run is to a site, and what each event makes of it; after the slash, what the site does about it."""
    arrows = [("[*]", "unknown", "")]
    for make in _sessions():
        before = _situation(make())
        for label, event in _heard().items():
            session = make()
            reaction = session.handle(event)
            done = ", ".join(type(action).__name__ for action in reaction.actions)
            after = FORMING if "Finish" in done else _situation(session)
            if after != before:
                arrows.append((before, after, f"{label} / {done}" if done else label))
    session = sessions.enrolled()
    session.handle(heard.ResultsWritten("converged"))
    return _drawn([*arrows, (FORMING, _situation(session), "ResultsWritten"), ("over", "[*]", "")])


def _acts(run: Run) -> Mapping[str, Act]:
    """What may happen to a plain run with everybody answering alike."""
    acts: dict[str, Act] = {
        "Responded, all accept": lambda machine: machine.enrol(*rules.NAMES),
        "Responded, too many refuse": _all_refuse,
        "EnrolmentClosed, too few": lambda machine: machine.tell(happened.EnrolmentClosed),
        "Aborted": lambda machine: machine.tell(happened.Aborted, reason="stop"),
        "Resumed": lambda machine: machine.tell(happened.Resumed),
    }
    if run.phase not in list(Phase):
        return acts
    return acts | {
        "ConsensusReached with an outcome": lambda machine: machine.reach("converged"),
        "SumFailed, fatal": lambda machine: _sum_failed(machine, fatal=True),
        "DeadlinePassed or SumFailed, max_attempts used": lambda machine: machine.overdue(),
        "UpdateReceived": _all_upload,
    }


def _all_refuse(machine: rules.Machine) -> None:
    for name in rules.NAMES:
        machine.say(happened.Responded, name, accept=False, reasons=("no",))


def _all_upload(machine: rules.Machine) -> None:
    for name in rules.NAMES:
        if machine.run.phase == Phase.UPLOADING:
            machine.say(happened.UpdateReceived, name, sha256=b"d" * 32, size=8)


def _sum_failed(machine: rules.Machine, fatal: bool = False) -> rules.Machine:
    here = machine.run.attempt
    assert here is not None
    return machine.tell(happened.SumFailed, reason="no", fatal=fatal, ref=here.ref)


def _copy(machine: rules.Machine) -> rules.Machine:
    made = rules.Machine(machine.spec)
    made.run = machine.run
    return made


def _key(run: Run) -> tuple[object, ...]:
    """What decides about what may follow; the reason tells a first attempt from one that was reopened."""
    return run.status, run.phase, run.reason


def _heard() -> dict[str, heard.Event]:
    spec = sessions.spec_of()
    ended = heard.Ended("finished", "", 3, spec.digest(), sessions.CONSENSUS)
    return {
        "Proposed": heard.Proposed(spec.canonical(), spec.digest()),
        "Approved": heard.Approved(),
        "Opened": sessions.opened(spec),
        "Opened, cohort below policy": sessions.opened(spec, cohort=("a", "b")),
        "Ended, finished": ended,
        "Ended otherwise": heard.Ended("aborted", "stop", 3, spec.digest(), sessions.CONSENSUS),
        "TurnedDown": heard.TurnedDown("too late"),
    }


def _sessions() -> Iterable[Callable[[], Session]]:
    """A site in every situation, made anew at each call; policies differ in how they take the proposal."""

    def after(*labels: str, **policy: Any) -> Session:
        session = sessions.session_of(**policy)
        for label in labels:
            session.handle(_heard()[label])
        return session

    for policy in ({}, {"manual_approval": True}, {"max_rank": 1}):
        yield partial(after, **policy)
        yield partial(after, "Proposed", **policy)
    yield partial(after, "Proposed", "Opened")
    yield partial(after, "Proposed", "Opened", "Ended otherwise")


def _situation(session: Session) -> str:
    if session.finished:
        return "over"
    if session.consent is not None:
        return "refused" if not session.consent.accept else "in a round" if session.opened else "enrolled"
    return "waiting" if session.handle(heard.Approved()).actions else "unknown"


def _drawn(arrows: Iterable[Arrow]) -> str:
    """Mermaid text; arrows between the same two states are one, with a line of its label each."""
    merged: dict[tuple[str, str], list[str]] = {}
    for start, end, label in arrows:
        labels = merged.setdefault((_id(start), _id(end)), [])
        if label and label not in labels:
            labels.append(label)
    lines = [
        f"    {start} --> {end}" + (f": {'<br/>'.join(labels)}" if labels else "")
        for (start, end), labels in merged.items()
    ]
    return "```mermaid\nstateDiagram-v2\n" + "\n".join(lines) + "\n```\n"


def _id(state: str) -> str:
    return state.replace(" ", "_")
