"""Proposals as questions: a first subspace of the liar's choice, odd tunables, and features that few have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcfpca.method_memory import encode_memory
from dcfpca.methods import method_of
from dcfpca.rpca.method import TensorMessage
from participant.policy import ABOUT_DATA
from tests.support.hostile.attacked_sites import NAMES, SOON, Watch, await_results, begun, refused
from tests.support.hostile.lying_aggregator import LyingAggregator, run_of
from tests.support.hostile.played_run import PlayedRun, changed
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.services.federation import Federation
from tests.support.services.processes import Line


def verified(liar: LyingAggregator) -> FixedCohortPlay:
    """A run that ended with a consensus that every site has found to follow."""
    run = begun(liar, played=3)
    watch = Watch(run)
    run.finish()
    await_results(run, watch, checked=True)
    return run


def set_up(liar: LyingAggregator, **spec: object) -> FixedCohortPlay:
    run = FixedCohortPlay(liar, NAMES, **spec)
    assert all(answer.accept for answer in run.enrol().values())
    run.set_up()
    return run


def warm(run: FixedCohortPlay, U: np.ndarray) -> FixedCohortPlay:
    run.consensus = replace(run.consensus, memory={"warm": U})
    return run


def test_a_warm_start_is_the_verified_result_of_the_run_that_it_names_and_nothing_else(liar: LyingAggregator) -> None:
    first = verified(liar)
    U = method_of(first.spec).model(first.consensus)["U"]
    person = liar.federation.data["ann"][:, :1]
    run = set_up(liar, warm_start=first.run_id)
    question = warm(run, person / np.linalg.norm(person)).announcement()
    watch, after = Watch(run), run.open(question)
    for name in NAMES:
        assert "another memory than the result of" in watch.refusal(name, "WrongConsensus")["reason"]
    assert refused(question, liar, after) == list(NAMES)
    honest = warm(set_up(liar, warm_start=first.run_id), U)
    for _ in range(2):
        honest.play_round()


def test_a_run_that_begins_at_nothing_is_not_opened_with_a_subspace_in_its_memory(liar: LyingAggregator) -> None:
    run = set_up(liar)
    cold = run.announcement()
    digest = hashlib.sha256(encode_memory({"warm": np.eye(run.spec.rows, 1)})).digest()
    question = changed(cold, lambda told: setattr(told, "memory_sha256", digest))
    watch, after = Watch(run), run.open(question)
    for name in NAMES:
        assert "another memory than nothing" in watch.refusal(name, "WrongConsensus")["reason"]
    assert refused(question, liar, after) == list(NAMES)


def test_the_first_round_is_not_opened_with_a_window_of_the_liars_choice(liar: LyingAggregator) -> None:
    run = set_up(liar, scaling="robust")
    told = run.consensus.broadcast
    chosen = TensorMessage(np.column_stack([np.full(run.spec.rows, 3.0), told.tensor[:, 1]]), np.array([1.0]))
    question = run.announcement(replace(run.consensus, broadcast=chosen))
    watch, after = Watch(run), run.open(question)
    for name in NAMES:
        assert "another consensus than the one at which its spec begins" in watch.refusal(name)["reason"]
    assert refused(question, liar, after) == list(NAMES)


def test_a_warm_start_from_what_no_site_has_verified_needs_a_person(liar: LyingAggregator) -> None:
    run = FixedCohortPlay(liar, NAMES, warm_start="run-of-my-own")
    run.propose()
    for name in NAMES:
        asked = liar.federation.processes[name].await_action("approval_awaited", run=run.run_id)
        assert "begins at the subspace of run-of-my-own" in asked["reason"]
    assert not [one for one in liar.heard if run_of(one.request) == run.run_id]


@pytest.mark.parametrize("tunable", [{"noise_factor": 1e-9}, {"opening_factor": 1e-9}, {"block_bytes": 1}])
def test_tunables_of_the_liars_choice_are_refused(liar: LyingAggregator, tunable: dict[str, float]) -> None:
    run = PlayedRun(liar, ["ann"], participants=NAMES, subspace=tunable)
    (answer,) = run.enrol().values()
    assert not answer.accept
    assert f"subspace.{next(iter(tunable))} is outside" in answer.reasons[0]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[LyingAggregator]:
    """One site of 300 patients, of whom 7 have a value of `hiv`."""
    data = np.random.default_rng(1).normal(size=(4, 300))
    data[3, 7:] = np.nan
    with Federation(tmp_path) as federation, LyingAggregator(federation) as made:
        names = tmp_path / "names.txt"
        names.write_text("age\nchol\npulse\nhiv\n")
        table = {"data": {"feature_names": str(names)}}
        federation.add_site("ann", data, tables=table, min_columns=20, min_entries=3, max_data_refusals=3)
        federation.start_sites(["ann"])
        yield made


def question(liar: LyingAggregator, **spec: object) -> PlayedRun:
    keys: dict[str, object] = {"participants": NAMES, "rank": 1, "min_entries": 3, "rows": 0}
    return PlayedRun(liar, ["ann"], **(keys | spec))


def answer(liar: LyingAggregator, **spec: object) -> tuple[bool, list[str]]:
    (answer,) = question(liar, **spec).enrol().values()
    return answer.accept, list(answer.reasons)


def test_refusals_neither_count_entries_nor_say_what_about_the_data_is_wrong_nor_go_on_for_long(
    asked: LyingAggregator,
) -> None:
    hiv, all_four = {"features": ("hiv",)}, {"features": ("age", "chol", "pulse", "hiv")}
    assert answer(asked, **all_four) == (True, [])
    # A number of entries of the proposer's choice is refused whatever the data.
    told = {k: answer(asked, min_entries=k, **features) for k in (6, 8) for features in (hiv, all_four)}
    assert all("lower min_entries to 3" in reasons[0] for _, reasons in told.values())
    # 7 columns would be used where 20 are demanded; and gaps where the spec allows none: the same sentence.
    assert answer(asked, **hiv) == (False, [ABOUT_DATA])
    assert answer(asked, missing=False, **all_four) == (False, [ABOUT_DATA])
    site = asked.federation.processes["ann"]
    for reason in ("fewer columns than the 20", "missing values"):
        site.await_line(_says(reason), SOON)
    assert answer(asked, **hiv) == (False, [ABOUT_DATA])
    # From now on a person decides, also on runs that the site would join.
    for features in (hiv, all_four):
        run = question(asked, **features)
        run.propose()
        asked.federation.processes["ann"].await_action("approval_awaited", run=run.run_id)
        assert not [one for one in asked.heard if run_of(one.request) == run.run_id]


def _says(reason: str) -> Callable[[Line], bool]:
    return lambda line: line.get("kind") == "AboutData" and reason in line["reason"]
