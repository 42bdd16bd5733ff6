"""A proposal is compared with what this site took part in before."""

from __future__ import annotations

from typing import Any

from dcfpca.spec import RunSpec
from participant.console.proposal_text import compared
from participant.state.store import RunRow


def proposed(run: str, at: int, cohort: tuple[str, ...] = (), **keys: Any) -> RunRow:
    spec = RunSpec(rows=len(keys.get("features", "ab")), **keys)
    return RunRow(run, spec.canonical(), spec.digest(), "waiting", (), False, False, at, "", cohort)


def test_a_first_run_is_compared_with_nothing() -> None:
    ((_, said),) = compared(proposed("one", 1), [proposed("one", 1), proposed("refused", 0)])
    assert said == "this site has taken part in none"


def test_sites_features_and_settings_that_differ_are_named_with_whom_that_exposes() -> None:
    four = ("a", "b", "c", "d")
    spring = proposed("spring", 1, four, features=("age", "cd4"), participants=four, max_rank=2)
    autumn = proposed("autumn", 2, features=("age", "hgb"), participants=four[:3], max_rank=1)
    (heading, said), (_, exposed) = compared(autumn, [spring, autumn])
    assert heading == "compared with run spring"
    for words in ("without d", "more features: hgb", "fewer features: cd4", "max_rank 1 instead of 2"):
        assert words in said
    assert exposed == "sums of d alone, by the differences of this run and spring"


def test_a_run_like_the_last_one_says_so_and_exposes_nobody() -> None:
    three = ("a", "b", "c")
    before, now = (proposed(run, at, three, participants=three, label=run) for at, run in enumerate(("may", "june")))
    assert [said for _, said in compared(now, [before, now])] == [
        "the same sites, features and settings",
        "nobody: no difference of their sums is about fewer than 3 sites",
    ]


def test_a_plain_run_is_said_to_expose_every_site_to_the_aggregator() -> None:
    three = ("a", "b", "c")
    before = proposed("may", 0, three, participants=three)
    now = proposed("june", 1, participants=three, aggregation="plain")
    _, (_, exposed) = compared(now, [before, now])
    assert exposed == "every site, to the aggregator, which reads each update as it is"
