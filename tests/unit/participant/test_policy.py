"""The site's policy: default deny, every reason at once, numbers in the sentences."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from dcfpca.secagg.fixed_cohort import PastRun
from dcfpca.spec import RunSpec
from dcfpca.wire_constants import SMALL_SUM
from participant.policy import (
    SAMPLED,
    Accept,
    Refuse,
    SiteFacts,
    SitePolicy,
    check_cohort,
    check_roster,
    review,
    review_export,
    wants_verification,
)


def spec(**changes: Any) -> RunSpec:
    return RunSpec.model_validate({"rows": 50, "rank": 3} | changes)


def site(policy: dict[str, Any] | None = None, **changes: Any) -> SiteFacts:
    facts: dict[str, Any] = {"name": "a", "rows": 50, "columns": 20, "has_missing": False, "allows_missing": False}
    return SiteFacts(**(facts | changes), policy=SitePolicy(**(policy or {})))


def reasons(verdict: Accept | Refuse) -> str:
    assert isinstance(verdict, Refuse)
    return "; ".join(verdict.reasons)


def test_a_secure_run_that_fits_is_accepted_by_the_default_policy() -> None:
    assert review(spec(), site()) == Accept(needs_approval=False)


def test_wrong_rows_are_refused_with_both_numbers() -> None:
    said = reasons(review(spec(rows=60), site()))
    assert "60" in said
    assert "50" in said


def test_a_spec_without_rows_is_refused() -> None:
    assert "does not state the number of rows" in reasons(review(spec(rows=0), site()))


def test_a_rank_above_the_rows_is_refused() -> None:
    assert "larger than the 4 rows" in reasons(review(spec(rows=0, rank=5), site(rows=4)))


@pytest.mark.parametrize(
    ("changes", "policy", "words"),
    [
        ({"aggregation": "plain"}, {}, "plain aggregation"),
        ({"dropouts": "go-on"}, {}, "allow_dropouts"),
        (
            {"dropouts": "go-on", "threshold": 0.6},
            {"allow_dropouts": True, "min_threshold": 0.75},
            "the threshold 0.6 is below the 0.75",
        ),
        ({"method": "gradient"}, {"methods": ("subspace",)}, "method gradient"),
        ({"rank": 9}, {"max_rank": 8}, "rank 9 is above the 8"),
        ({"max_rank": 9, "rank": None}, {"max_rank": 8}, "rank 9 is above the 8"),
        ({"rounds": 11}, {"max_rounds": 10}, "11 rounds are more than the 10"),
        ({"participants": ("a", "b")}, {}, "2 participants and the site demands at least 3"),
        ({"participants": ("b", "c", "d")}, {}, "a is not in it"),
        ({}, {"min_columns": 21}, "fewer columns than the 21"),
    ],
)
def test_each_rule_of_the_policy_refuses_by_itself(changes: dict[str, Any], policy: dict[str, Any], words: str) -> None:
    assert words in reasons(review(spec(**changes), site(policy)))


@pytest.mark.parametrize(
    ("keys", "needed"), [({"rank": 1}, 20), ({"rank": 9}, 27), ({"rank": None, "max_rank": 16}, 48)]
)
def test_by_default_a_site_needs_twenty_columns_and_three_times_the_rank(keys: dict[str, Any], needed: int) -> None:
    assert isinstance(review(spec(**keys), site(columns=needed)), Accept)
    said = reasons(review(spec(**keys), site(columns=needed - 1)))
    assert f"fewer than the {needed} columns" in said
    assert "an update gives the data away" in said
    assert "min_columns" in said
    assert str(needed - 1) not in said


def test_a_site_may_set_its_own_least_number_of_columns() -> None:
    assert isinstance(review(spec(rank=5), site({"min_columns": 2}, columns=2)), Accept)
    assert "fewer columns than the 40" in reasons(review(spec(rank=5), site({"min_columns": 40}, columns=39)))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"subspace": {"passes": 10**12}}, "subspace.passes"),
        ({"method": "gradient", "gradient": {"local_iterations": 10**12}}, "gradient.local_iterations"),
        ({"method": "gradient", "gradient": {"inner_steps": 10**12}}, "gradient.inner_steps"),
        ({"method": "gradient", "gradient": {"inner_steps": 0}}, "inner_steps = 0 counts as the most"),
        ({"method": "gradient", "gradient": {"local_iterations": 11, "inner_steps": 10}}, "max_local_passes"),
        # The product has more digits than Python converts to text.
        ({"method": "gradient", "gradient": {"local_iterations": 10**3000, "inner_steps": 10**3000}}, "than the 100"),
    ],
    ids=["passes", "iterations", "inner", "solved", "product", "digits"],
)
def test_local_work_beyond_the_limit_is_refused_with_the_key_and_the_limit(changes: dict[str, Any], key: str) -> None:
    said = reasons(review(spec(**changes), site()))
    assert key in said
    assert "100 that the site allows" in said
    assert isinstance(review(spec(**changes), site({"max_local_passes": 10**7000})), Accept)


def test_plain_is_accepted_only_where_the_site_allows_it() -> None:
    assert isinstance(review(spec(aggregation="plain"), site({"allow_plain": True})), Accept)


def test_missing_values_need_the_consent_of_spec_and_site() -> None:
    gappy = site(has_missing=True, allows_missing=True)
    assert isinstance(review(spec(missing=True), gappy), Accept)
    assert "spec does not allow" in reasons(review(spec(missing=False), gappy))
    assert 'missing = "refuse"' in reasons(review(spec(), site(has_missing=True)))


def test_a_feature_that_a_site_hardly_observes_is_refused_without_saying_which_or_how_often() -> None:
    names = ("ph", "rare lab", "pulse")
    gappy: dict[str, Any] = {"has_missing": True, "allows_missing": True, "rows": 3, "features": names}
    few = site(**gappy, entries=(60, 4, 33))
    told = reasons(review(spec(rows=3, rank=1), few))
    assert "fewer than the 5 entries" in told
    assert "rare" not in told
    assert "4" not in told
    assert isinstance(review(spec(rows=3, rank=1), site(**gappy, entries=(60, 5, 33))), Accept)
    without = spec(rows=2, rank=1, features=("pulse", "ph"))
    assert isinstance(review(without, few), Accept)


def test_a_site_demands_of_every_other_site_the_entries_that_it_demands_of_itself() -> None:
    assert "min_entries" in reasons(review(spec(min_entries=4), site()))
    assert isinstance(review(spec(min_entries=4), site({"min_entries": 4})), Accept)
    assert isinstance(review(spec(min_entries=1, missing=False), site()), Accept)


def test_all_reasons_are_given_at_once() -> None:
    verdict = review(spec(rows=60, aggregation="plain", rank=20, rounds=5000), site({"max_rank": 5, "min_columns": 1}))
    assert isinstance(verdict, Refuse)
    assert len(verdict.reasons) == 4


def test_manual_approval_is_asked_for_only_when_nothing_else_stands_against_the_run() -> None:
    careful = site({"manual_approval": True})
    assert review(spec(), careful) == Accept(needs_approval=True)
    assert isinstance(review(spec(rows=60), careful), Refuse)


def test_a_cohort_below_the_minimum_or_with_strangers_is_refused() -> None:
    fixed = spec(participants=("a", "b", "c"))
    assert check_cohort(fixed, site(), ("a", "b", "c")) == ()
    assert "2 participants" in check_cohort(fixed, site(), ("a", "b"))[0]
    assert "mallory" in check_cohort(fixed, site(), ("a", "b", "c", "mallory"))[0]
    assert "does not include a" in check_cohort(spec(), site(), ("b", "c", "d"))[0]
    assert "twice" in check_cohort(spec(), site(), ("a", "b", "b"))[0]


def test_a_roster_must_be_of_the_cohort_and_large_enough() -> None:
    cohort = ("a", "b", "c", "d")
    assert check_roster(site(), ("a", "b", "c"), ("a", "b"), cohort) == ""
    assert "mallory" in check_roster(site(), ("a", "b", "mallory"), (), cohort)
    assert "at least 3" in check_roster(site(), ("a", "b"), (), cohort)
    assert "not in the roster" in check_roster(site(), ("a", "b", "c"), ("d",), cohort)


@pytest.mark.parametrize("spec_allows", [True, False])
@pytest.mark.parametrize("policy_allows", [True, False])
def test_private_never_exports_whatever_else_is_allowed(spec_allows: bool, policy_allows: bool) -> None:
    policy = SitePolicy(private=True, allow_export=policy_allows)
    assert "private" in review_export(spec(export=spec_allows), policy)


def test_export_needs_the_sites_policy_and_the_signed_spec() -> None:
    assert review_export(spec(export=True), SitePolicy(allow_export=True)) == ""
    assert "allow_export" in review_export(spec(export=True), SitePolicy())
    assert "did not announce" in review_export(spec(export=False), SitePolicy(allow_export=True))


PAST = [PastRun("run-1", frozenset("abcde"))]


def test_a_cohort_that_differs_by_too_few_from_an_earlier_one_waits_for_a_person() -> None:
    verdict = review(spec(participants=("a", "b", "c", "d")), site(), PAST)
    assert isinstance(verdict, Accept)
    assert verdict.needs_approval
    assert "run-1" in verdict.why
    assert "e alone" in verdict.why


@pytest.mark.parametrize("cohort", ["abcde", "afghi"])
def test_the_same_cohort_again_or_one_that_differs_by_enough_needs_no_approval(cohort: str) -> None:
    assert review(spec(participants=tuple(cohort)), site(), PAST) == Accept()


def test_small_sums_are_always_verified_and_large_ones_in_turn_or_at_random_unless_the_policy_says_otherwise() -> None:
    def drawn(verify: Literal["always", "sampled", "never"], size: int, *, turn: bool = False) -> int:
        return sum(wants_verification(SitePolicy(verify=verify), size, draw, turn=turn) for draw in range(256))

    assert drawn("sampled", SMALL_SUM) == 256
    assert drawn("sampled", SMALL_SUM + 1, turn=True) == 256
    assert drawn("sampled", SMALL_SUM + 1) == 256 // SAMPLED
    assert drawn("always", SMALL_SUM + 1) == 256
    assert drawn("never", 8, turn=True) == 0
