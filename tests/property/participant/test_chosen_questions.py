"""A lying aggregator that asks: by warm starts, tunables, features, changed files between runs, and in every stage.

The sites are whole daemons without their sockets, and no person is there to approve anything. Whatever the liar does:

- numbers: an update that leaves is what the honest protocol computes in that round, from the site's own columns;
- start: the first round of a run is answered only if it begins at nothing, or at the result of the run that the spec
  names, which this site has verified;
- columns: no sums of up to three runs, added and subtracted, are about fewer than `min_columns` columns of a site;
- members: nor, over columns that those runs share, about fewer than `min_cohort` members;
- tunables: no site enrols in a run with a tunable beyond its range, nor with other `min_entries` or `min_cell`;
- words: a refusal is one line a reason; it says of the data only that it does not allow the run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage
from dcfpca.rpca.stage import Site
from dcfpca.v1 import rounds_pb2 as pb
from participant import review as reviewing
from participant.driver import round_answer
from participant.policy import ABOUT_DATA, Reasons, Refuse, SiteFacts, SitePolicy
from participant.review import TUNABLES, review
from participant.session.secure_run import SecureRun
from tests.support.hostile.lying_aggregator import Heard, run_of
from tests.support.hostile.lying_scripts import STAGES, lying_announcement, memory_digest, play
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.hostile.sites_in_memory import SITES, NothingCame, SitesInMemory

POLICY = SitePolicy(min_columns=5, min_entries=3, max_data_refusals=1000)
FEATURES = ("age", "chol", "pulse", "hiv")
MANY = 40
ROUND_CALLS = ("SubmitUpdate", "ReportMisfit")
COHORTS = (SITES[:3], SITES[:3], SITES[:3], SITES, (*SITES[:2], SITES[3]))
Question = tuple[str, Any]
"""What is odd about a proposal."""

chosen = st.tuples(st.just("features"), st.sampled_from([FEATURES, FEATURES[:3], FEATURES[:2], FEATURES[2:]]))
questions = st.one_of(
    st.tuples(st.just("warm start"), st.sampled_from(["verified", "aborted", "invented"])),
    st.tuples(
        st.just("tunable"),
        st.sampled_from(
            [
                *(("noise_factor", 1e-9), ("opening_factor", 1e-9), ("block_bytes", 1), ("floor", 0.5)),
                *(("noise_factor", 2.0), ("a", 1e3), ("b", 3.0), ("narrow_gap", 1e9), ("passes", 10**6)),
            ]
        ),
    ),
    chosen,
    st.sampled_from([("missing", False), ("min_entries", 1), ("min_entries", 9), ("min_cell", 1), ("min_cell", 9)]),
)
lies = st.sampled_from(["tensor", "scalar", "later", "previous_sum", "exponents", "round", "cohort", "spec", "stage"])
forgets = st.sampled_from(["", "", *STAGES])
rounds = st.integers(0, 3)
changes = st.sampled_from(["order", "one more", "one less", "one value", "one entry", "many more"])


class Answered(NamedTuple):
    """What left a site in one run: over which columns, each by its values, and which members."""

    run: str
    columns: frozenset[bytes]
    cohort: frozenset[str]


class Asked(FixedCohortPlay):
    """A run of the liar, with what every site would answer to the truth, round by round."""

    def __init__(self, liar: SitesInMemory, names: tuple[str, ...], **spec: Any) -> None:
        super().__init__(liar, names, **spec)  # type: ignore[arg-type]
        self.sites = liar
        self._true: dict[str, Site] = {}
        self.truth: dict[tuple[str, int], FloatArray] = {}

    @property
    def shape(self) -> tuple[object, ...]:
        """Runs that agree in this have broadcasts of the same form."""
        return self.spec.rows, self.spec.width, self.spec.scaling, self.spec.closing_rounds

    def truly(self, name: str) -> FloatArray:
        """What the site computes in the round that is due, on its own columns."""
        own = self.sites.daemons[name]._site
        if name not in self._true:
            whole = np.column_stack([own.matrix.columns.read(0, own.matrix.columns.shape[1])])
            chosen = whole[[FEATURES.index(one) for one in self.spec.features or FEATURES]]
            kept = chosen[:, ~np.isnan(chosen).all(axis=0)]
            self._true[name] = self.method.keyed(own.key).site(ArrayColumns(kept))
        due = (name, self.consensus.round)
        if due not in self.truth:
            self.truth[due] = self._true[name].answer(self.consensus).flat()
        return self.truth[due]


class Questioner(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.liar = SitesInMemory(FEATURES, **POLICY.model_dump())
        self.pool = {name: _persons(place) for place, name in enumerate(SITES)}
        self.held = {name: list(range(14)) for name in SITES}
        self.next = dict.fromkeys(SITES, 14)
        for name in SITES:
            self._write(name)
            self.liar.start(name)
        self.answered: dict[str, list[Answered]] = {name: [] for name in SITES}
        self.verified: dict[str, FloatArray] = {}
        self.aborted = ["run-that-nobody-knows"]
        self.later: dict[tuple[object, ...], Consensus] = {}

    def _write(self, name: str) -> None:
        self.liar.write(name, self.pool[name][:, self.held[name]])

    @rule(place=st.integers(0, 2), how=changes)
    def change_a_file(self, place: int, how: str) -> None:
        """Between runs; a person of the site's does it, and the liar may know."""
        name, pool, held = SITES[place], self.pool[SITES[place]], self.held[SITES[place]]
        match how:
            case "order":
                held.reverse()
            case "one less":
                held.remove(min(held))
            case "one value":
                pool[0, held[-1]] += 1.0
            case "one entry":
                pool[:3, held[0]] = np.nan
            case _:
                more = 1 if how == "one more" else 6
                held += range(self.next[name], self.next[name] + more)
                self.next[name] = self.next[name] + more if self.next[name] + more < MANY - 6 else 14
                held[:] = dict.fromkeys(held)
        self._write(name)
        met["changed"] += 1

    @rule(place=st.integers(0, 3))
    def restart(self, place: int) -> None:
        self.liar.stop(SITES[place])
        self.liar.start(SITES[place])

    @rule(
        question=questions,
        cohort=st.sampled_from(COHORTS),
        named=st.booleans(),
        rounds=rounds,
        lie=lies | st.just("memory"),
    )
    def ask(self, question: Question, cohort: tuple[str, ...], named: bool, rounds: int, lie: str) -> None:
        """A run of the fit alone, with a lie after some rounds."""
        run = self._proposed(question, cohort, named, closing_rounds=False, rounds=4)
        if run is not None and all(self._round(run) for _ in range(rounds)):
            met["lie refused"] += self._lie(run, lie, 0)
        self._end(run, "aborted")

    @rule(
        how=st.none() | changes,
        place=st.integers(0, 2),
        first=chosen,
        second=chosen,
        cohort=st.sampled_from(COHORTS),
    )
    def ask_again(
        self, how: str | None, place: int, first: Question, second: Question, cohort: tuple[str, ...]
    ) -> None:
        """A second run about what has changed since, about other features, or with another cohort."""
        self.ask(first, SITES[:3], True, 1, "memory")
        if how is not None:
            self.change_a_file(place, how)
        self.ask(second, cohort, True, 1, "memory")

    @rule(lie=lies | st.just("memory"))
    def begin_at_a_verified_result(self, lie: str) -> None:
        if self.verified:
            self.ask(("warm start", "verified"), SITES[:3], True, 0, lie)
            self.ask(("warm start", "verified"), SITES[:3], True, 1, lie)

    @rule(digits=st.integers(0, 500).map(float), number=st.integers(0, 3))
    def ask_for_a_window(self, digits: float, number: int) -> None:
        """How many entries lie where the liar chooses, in the first round of a run that finds units."""
        run = self._proposed(("nothing", None), SITES[:3], True, scaling="robust", closing_rounds=False)
        if run is not None:
            told = run.consensus.broadcast.tensor.copy()
            told[:, 0] = digits
            asked = replace(run.consensus, broadcast=TensorMessage(told, np.array([float(number)])))
            self._opened(run, run.announcement(asked))
        self._end(run, "aborted")

    @precondition(lambda self: not self.verified)  # a whole run takes as long as all else together
    @rule(told=st.lists(lies, min_size=len(STAGES), max_size=len(STAGES)), place=st.integers(0, 99), forgets=forgets)
    def lie_in_every_stage(self, told: list[str], place: int, forgets: str) -> None:
        """A run that is honest but for a lie where each stage begins, to its end as if nothing had been. What is said
        of the memory in one of them shows in the round after."""
        # The rank is given: by which entries sites hide, one that is found may be 0, and then no run can begin at it.
        run = self._proposed(("nothing", None), SITES[:3], True, scaling="robust", rounds=2)
        waiting = dict(zip(STAGES, told, strict=True)) | ({forgets: "memory"} if forgets else {})
        while run is not None and run.consensus.outcome is None:
            if lie := waiting.pop(run.consensus.stage, ""):
                met[f"lie in {run.consensus.stage}"] += self._lie(run, lie, place)
            if not self._round(run):
                break
        self._end(run, "finished")

    # What the rules are made of.

    def _proposed(self, question: Question, cohort: tuple[str, ...], named: bool, **spec: Any) -> Asked | None:
        """A run in which every site has enrolled and that is set up; None where one of them does not go along."""
        kind, value = question
        keys: dict[str, Any] = {"rank": 1, "min_entries": 3, "rows": 4, "closing_rounds": True} | spec
        keys |= {} if named else {"participants": ()}
        if kind == "tunable":
            keys["subspace"] = dict([value])
        elif kind == "features":
            keys |= {"features": value, "rows": len(value), "max_rank": None, "rank": 1}
        elif kind == "warm start":
            known = {"verified": list(self.verified), "aborted": self.aborted, "invented": ["run-invented"]}[value]
            keys["warm_start"] = (known or ["run-invented"])[-1]
        elif kind != "nothing":
            keys[kind] = value
        run = Asked(self.liar, cohort, **keys)
        if (U := self.verified.get(run.spec.warm_start)) is not None and U.shape == (4, 1):
            run.consensus = replace(run.consensus, memory={"warm": U})
        run.propose()
        said = [one for one in self.liar.heard if one.call == "Respond" and run_of(one.request) == run.run_id]
        for one in said:
            self._check_words(run, one)
        met[f"{kind}: {'joined' if sum(one.request.accept for one in said) == len(cohort) else 'not joined'}"] += 1
        with suppress(NothingCame):  # somebody refused, asks a person, or withdraws
            run.set_up()
            return run
        self._end(run, "aborted")
        return None

    def _check_words(self, run: Asked, answer: Heard) -> None:
        """A twin with other data says the same, unless the answer is the one sentence about data."""
        reasons = list(answer.request.reasons)
        if answer.request.accept:
            _check_tunables(run)
            assert not reasons
            return
        twin = review(run.spec, SiteFacts(answer.site, 4, 10**6, False, True, POLICY, FEATURES))
        public = list(twin.why.public) if isinstance(twin, Refuse) else []
        assert reasons in ([ABOUT_DATA], public), reasons
        assert reasons
        assert all(reason.isprintable() for reason in reasons)

    def _round(self, run: Asked) -> bool:
        """An honest round; whether everybody has answered."""
        opened = run.announcement(attempt=1 + self._attempts(run))
        if run.consensus.stage == "fit":
            self.later[run.shape] = run.consensus
        with suppress(NothingCame):
            answers = run.answers(opened, self._opened(run, opened))
            if all(one.call == "SubmitUpdate" for one in answers.values()):
                run.close(opened, run.total(opened, answers.values()))
                return True
        return False

    def _attempts(self, run: Asked) -> int:
        return self._tried if getattr(self, "_last", None) == (run.run_id, run.consensus.round) else 0

    def _opened(self, run: Asked, opened: pb.RoundOpened) -> int:
        """Announce a round, and check whatever leaves."""
        self._last, self._tried = (run.run_id, run.consensus.round), opened.ref.attempt
        after = run.open(opened)
        for one in self.liar.heard[after:]:
            if one.call == "Complain":
                assert one.request.sentence.isprintable()
            elif one.call in ROUND_CALLS:
                self._check_answer(run, opened, one.site)
        return after

    def _check_answer(self, run: Asked, opened: pb.RoundOpened, name: str) -> None:
        daemon, round = self.liar.daemons[name], opened.ref.round
        step = daemon._drivers[run.run_id].session.step
        assert step is not None
        assert round == run.consensus.round, "a round was answered out of turn"
        assert opened.stage == run.consensus.stage, "a stage was answered out of turn"
        assert np.allclose(step.vector, run.truly(name), rtol=1e-9, atol=1e-9), "not what the truth gives"
        if round == 0:
            begins = memory_digest(run.method.begin().memory)
            if run.spec.warm_start:
                begins = memory_digest({"warm": self.verified[run.spec.warm_start]})
                met["warm start answered"] += 1
            assert opened.memory_sha256 == begins, "a run begins at a subspace of the liar's choice"
        own = daemon._site.matrix.columns
        whole = own.read(0, own.shape[1])
        chosen = whole[[FEATURES.index(one) for one in run.spec.features or FEATURES]]
        used = whole[:, ~np.isnan(chosen).all(axis=0)]
        columns = frozenset(column.tobytes() for column in used.T.copy())
        now = Answered(run.run_id, columns, frozenset(run.names))
        if now not in self.answered[name]:
            self.answered[name].append(now)
            _check_differences(name, self.answered[name])
        met["answered"] += 1

    def _lie(self, run: Asked, lie: str, place: int) -> bool:
        """Whether every site refuses what is announced."""
        attempt, later = 1 + self._attempts(run), self.later.get(run.shape)
        if lie == "later" and later is not None and run.consensus.round == 0:
            told = run.announcement(replace(later, round=0, memory=run.consensus.memory), attempt)
        else:
            told = lying_announcement(run, lie, place, attempt)
        after = self._opened(run, told)
        return not [one for one in self.liar.heard[after:] if one.call in ROUND_CALLS]

    def _end(self, run: Asked | None, status: str) -> None:
        if run is None:
            return
        outcome = run.consensus.outcome
        status = status if outcome is not None else "aborted"
        run.finish(status, reason=outcome.value if outcome else "as the liar says")
        if status == "aborted":
            self.aborted.append(run.run_id)
        elif all(self.liar.daemons[name]._store.result_digest(run.run_id) for name in run.names):
            self.verified[run.run_id] = run.method.model(run.consensus)["U"]
            met["verified"] += 1

    def teardown(self) -> None:
        self.liar.close()


def _persons(seed: int) -> FloatArray:
    """Persons of whom a few have a value of the last feature alone."""
    draw = np.random.default_rng(seed)
    found = draw.normal(size=(4, 1)) @ draw.normal(size=(1, MANY)) + 0.1 * draw.normal(size=(4, MANY))
    found[:3, :2] = np.nan
    return found


def _check_tunables(run: Asked) -> None:
    table = run.spec.subspace
    for name, (least, most) in TUNABLES["subspace"].items():
        value = getattr(table, name)
        assert value is None or least <= value <= most, f"{name} = {value}"
    assert table.local_passes <= POLICY.max_local_passes
    assert (run.spec.min_entries, run.spec.min_cell) == (POLICY.min_entries, POLICY.min_cell)


def _check_differences(name: str, runs: list[Answered]) -> None:
    """Of every sum or difference with the last run, over how few columns and members it is."""
    *earlier, last = runs
    for count in (1, 2):
        for others in combinations(earlier, count):
            for signs in product((-1, 1), repeat=count):
                weighed = [*zip(others, signs, strict=True), (last, 1)]
                alone = _left([(one.columns, sign) for one, sign in weighed])
                assert not 0 < alone < POLICY.min_columns, f"{alone} columns of {name} alone"
                if all(one.columns & other.columns for one, other in combinations([*others, last], 2)):
                    alone = _left([(one.cohort, sign) for one, sign in weighed])
                    assert not 0 < alone < POLICY.min_cohort, f"{alone} members alone"


def _left(weighed: Iterable[tuple[frozenset[Any], int]]) -> int:
    weights: Counter[Any] = Counter()
    for members, sign in weighed:
        for each in members:
            weights[each] += sign
    return sum(weight != 0 for weight in weights.values())


met: Counter[str] = Counter()
"""What the scripts came to: those in which nobody was asked anything would prove nothing."""


def tour() -> None:
    """One script with every kind of question and lie, whatever else is drawn."""
    met.clear()
    machine = Questioner()
    machine.start()
    try:
        for value in (("noise_factor", 1e-9), ("b", 3.0)):
            machine.ask(("tunable", value), SITES[:3], True, 0, "memory")
        machine.ask(("min_cell", 5), SITES[:3], True, 3, "tensor")
        machine.ask(("min_cell", 5), SITES[:3], True, 0, "later")
        machine.ask_for_a_window(5.0, 1)
        machine.ask(("missing", False), SITES[:3], True, 0, "memory")
        machine.ask(("warm start", "invented"), SITES[:3], True, 0, "memory")
        machine.lie_in_every_stage(["tensor"] * len(STAGES), 0, "")
        machine.begin_at_a_verified_result("memory")
        machine.ask_again("order", 0, ("features", FEATURES), ("features", FEATURES[:3]), SITES[:3])
        machine.ask_again(None, 0, ("features", FEATURES), ("features", FEATURES), SITES)
        machine.ask_again("one more", 1, ("features", FEATURES), ("features", FEATURES), SITES[:3])
        machine.restart(0)
    finally:
        machine.teardown()


def test_whatever_is_asked_sites_answer_the_honest_protocol_or_refuse() -> None:
    tour()
    assert {"changed", "verified", "warm start answered", "lie refused", "warm start: not joined"} <= set(met), met
    assert {f"{kind}: {how}" for kind in ("tunable", "features") for how in ("joined", "not joined")} <= set(met), met
    assert all(met[f"lie in {stage}"] for stage in STAGES), met
    play(Questioner, 30, steps=8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_scripts_of_questions_get_no_other_answer() -> None:
    play(Questioner, 3000 if os.environ.get("DCFPCA_LONG") else 50, steps=8)


@pytest.mark.parametrize(
    ("found", "where", "name", "careless"),
    [
        ("not what the truth gives", round_answer, "check_announced", lambda *_: None),
        ("at a subspace of the liar's choice", SecureRun, "_check_start", lambda *_: None),
        ("columns of .* alone", reviewing, "column_exposure", lambda *_: None),
        ("members alone", reviewing, "exposure", lambda *_: None),
        ("factor|block_bytes|floor|sampled_rows|narrow_gap|a = ", reviewing, "_tunable_reasons", lambda *_: []),
        ("missing values", Reasons, "leaving", property(lambda self: (*self.public, *self.about_data))),
    ],
)
def test_the_invariants_fail_without(
    found: str, where: Any, name: str, careless: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, careless)
    with pytest.raises(AssertionError, match=found):
        tour()
