"""Data that changes between runs: sorted, or one column more. What is about the same persons stays the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dcfpca.rpca.method import FloatArray
from participant.policy import ABOUT_DATA
from tests.support.hostile.attacked_sites import NAMES, OTHERS, VICTIM, Watch, attacked_sites, begun
from tests.support.hostile.lying_aggregator import LyingAggregator, run_of
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.services.federation import Federation

FEWEST = 5


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[LyingAggregator]:
    """Sites that take part with five columns of their own or more."""
    with attacked_sites(tmp_path, min_columns=FEWEST, max_epsilon=1.2) as made:
        yield made


def reordered(data: FloatArray) -> FloatArray:
    return data[:, ::-1].copy()


def with_one_more(data: FloatArray) -> FloatArray:
    return np.concatenate([reordered(data), data[:, :1] + 1.0], axis=1)


def change(liar: LyingAggregator, names: Iterable[str], how: Callable[[FloatArray], FloatArray]) -> None:
    """Stop these sites, change their files, and start them again."""
    for name in names:
        liar.federation.processes[name].stop()
        path = liar.federation.root / "sites" / name / "data.npy"
        np.save(path, how(np.load(path)))
    liar.federation.start_sites(names)


def finished(liar: LyingAggregator, **spec: object) -> str:
    run = begun(liar, played=2, **spec)
    watch = Watch(run)
    run.finish()
    for name in NAMES:
        watch.said(name, lambda line: line["action"] == "results_written")
    return run.run_id


def asked(liar: LyingAggregator, run: FixedCohortPlay, name: str) -> str:
    """What the person at this site is told; nothing was said to the aggregator."""
    reason = liar.federation.processes[name].await_action("approval_awaited", run=run.run_id)["reason"]
    assert not [one for one in liar.heard if (one.site, run_of(one.request)) == (name, run.run_id)]
    return str(reason)


@pytest.mark.parametrize("how", [reordered, with_one_more])
def test_a_second_run_without_one_site_needs_a_person_though_the_files_of_the_others_have_changed(
    liar: LyingAggregator, how: Callable[[FloatArray], FloatArray]
) -> None:
    first = finished(liar)
    change(liar, OTHERS, how)
    second = FixedCohortPlay(liar, OTHERS)
    second.propose()
    for name in OTHERS:
        reason = asked(liar, second, name)
        assert first in reason
        assert f"sums over {VICTIM} alone" in reason


def test_a_run_after_one_column_was_added_needs_a_person_there_who_is_told_which(liar: LyingAggregator) -> None:
    first, before = finished(liar), liar.federation.data[VICTIM].shape[1]
    change(liar, [VICTIM], with_one_more)
    second = FixedCohortPlay(liar, NAMES)
    second.propose()
    reason = asked(liar, second, VICTIM)
    assert first in reason
    assert f"it would reveal sums of 1 of the present columns ({before}) alone" in reason
    assert f"wait until {FEWEST} or more differ, or propose the run with [privacy]" in reason
    for name in OTHERS:
        assert liar.await_call("Respond", name, second.run_id).request.accept


def test_a_second_run_over_other_features_needs_a_person_where_few_have_entries_in_one_of_the_two_alone(
    tmp_path: Path,
) -> None:
    names, draw = ("age", "chol", "pulse", "hiv"), np.random.default_rng(2)
    (tmp_path / "names.txt").write_text("\n".join(names))
    table = {"data": {"feature_names": str(tmp_path / "names.txt"), "missing": "allow"}}
    with Federation(tmp_path) as federation, LyingAggregator(federation) as liar:
        for name in OTHERS:
            data = draw.normal(size=(4, 12))
            data[:3, 7] = np.nan if name == "ann" else 1.0  # of the eighth at ann, the last measurement alone is known
            federation.add_site(name, data, tables=table, min_columns=FEWEST)
        federation.start_sites(OTHERS)
        first, second = (
            FixedCohortPlay(liar, OTHERS, rank=1, features=chosen, rows=len(chosen)) for chosen in (names, names[:3])
        )
        first.enrol()
        first.set_up()
        first.play_round()
        first.finish("aborted")
        second.propose()
        assert "it would reveal sums of none of the present columns and 1 that it leaves out alone" in asked(
            liar, second, "ann"
        )
        for name in OTHERS[1:]:
            assert liar.await_call("Respond", name, second.run_id).request.accept


def test_an_open_cohort_is_left_without_a_word_about_the_columns_that_it_would_expose(liar: LyingAggregator) -> None:
    finished(liar)
    change(liar, [VICTIM], with_one_more)
    second = FixedCohortPlay(liar, NAMES, participants=())
    assert all(answer.accept for answer in second.enrol().values())
    watch, after = Watch(second), len(liar.heard)
    with pytest.raises(AssertionError, match="the call never came"):
        second.collect_adverts()
    (answer,) = [one.request for one in liar.heard[after:] if (one.site, one.call) == (VICTIM, "Respond")]
    assert (answer.accept, list(answer.reasons)) == (False, [ABOUT_DATA])
    assert "1 of the present columns" in watch.refusal(VICTIM, "AboutData")["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [reordered, with_one_more])
def test_a_file_that_was_sorted_or_has_one_column_more_gets_no_fresh_privacy_budget(
    liar: LyingAggregator, how: Callable[[FloatArray], FloatArray]
) -> None:
    privacy = {"epsilon": 1.0, "max_error": 1.0}
    run = begun(liar, played=0, rounds=3, privacy=privacy)
    opened = run.announcement()
    run.answers(opened, run.open(opened))  # so few columns tell no clip, and no round follows: the answers are spent
    run.finish("aborted")
    change(liar, NAMES, how)
    for answer in FixedCohortPlay(liar, NAMES, rounds=3, privacy=privacy).enrol().values():
        assert not answer.accept
        assert "ε = 1 has been spent on this data" in answer.reasons[0]
