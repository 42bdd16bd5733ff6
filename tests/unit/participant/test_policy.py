"""The site's policy: default deny, every reason at once, numbers in the sentences."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

import pytest

from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.secagg.differencing_check import PastRun
from dcfpca.secagg.messages import members_in_turn, unforeseen_draw
from dcfpca.spec import RunSpec
from dcfpca.wire.constants import SMALL_SUM
from participant.policy import (
    ABOUT_DATA,
    Accept,
    Refuse,
    SiteFacts,
    SitePolicy,
    review_export,
)
from participant.review import TUNABLES, check_cohort, review
from participant.session.verification import SAMPLED, wants_verification
from tests.support.runs.columns import column_set
from tests.support.runs.secure_relay import Relay, terms_of


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
    assert "does not state how many features" in reasons(review(spec(rows=0), site()))


def test_a_rank_above_the_rows_is_refused() -> None:
    assert "larger than the 4 features" in reasons(review(spec(rows=0, rank=5), site(rows=4)))


@pytest.mark.parametrize(
    ("changes", "policy", "words"),
    [
        ({"aggregation": "plain"}, {}, "plain aggregation"),
        ({"method": "gradient"}, {"methods": ("subspace",)}, "method gradient"),
        ({"rank": 9}, {"max_rank": 8}, "rank 9 is above the 8"),
        ({"max_rank": 9, "rank": None}, {"max_rank": 8}, "rank 9 is above the 8"),
        ({"rank": 3}, {"max_rank": 8}, "the covariance of all 50 features is summed, and the site allows 8 directions"),
        ({"rounds": 11}, {"max_rounds": 10}, "11 rounds are more than the 10"),
        ({"participants": ("a", "b")}, {}, "2 participants and the site demands at least 3"),
        ({"participants": ("b", "c", "d")}, {}, "a is not in it"),
        ({}, {"min_columns": 21}, "fewer columns than the 21"),
    ],
)
def test_each_rule_of_the_policy_refuses_by_itself(changes: dict[str, Any], policy: dict[str, Any], words: str) -> None:
    assert words in reasons(review(spec(**changes), site(policy)))


def test_a_site_that_allows_few_directions_takes_part_without_the_covariance() -> None:
    assert review(spec(rank=3, covariance=False), site({"max_rank": 8})) == Accept()
    assert review(spec(rank=3, closing_rounds=False), site({"max_rank": 8})) == Accept()


@pytest.mark.parametrize(
    ("keys", "needed"), [({"rank": 1}, 20), ({"rank": 9}, 27), ({"rank": None, "max_rank": 16}, 48)]
)
def test_by_default_a_site_needs_twenty_columns_and_three_times_the_rank(keys: dict[str, Any], needed: int) -> None:
    assert isinstance(review(spec(**keys), site(columns=needed)), Accept)
    said = reasons(review(spec(**keys), site(columns=needed - 1)))
    assert f"fewer than the {needed} columns" in said
    assert "an update reveals the data" in said
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


def test_a_spec_that_asks_for_more_entries_than_the_site_is_refused_whatever_the_data() -> None:
    for entries in ((), (60,) * 50, (1,) * 50):
        gappy = site(has_missing=True, allows_missing=True, entries=entries)
        verdict = review(spec(min_entries=6), gappy)
        assert isinstance(verdict, Refuse)
        assert verdict.why.leaving == verdict.why.public
        assert "lower min_entries to 5" in verdict.why.public[0]


def test_what_follows_from_the_data_leaves_the_site_as_one_sentence_and_not_beside_public_reasons() -> None:
    bad = site(has_missing=True, columns=3)
    verdict = review(spec(missing=False), bad)
    assert isinstance(verdict, Refuse)
    assert len(verdict.reasons) == 3
    assert verdict.why.leaving == (ABOUT_DATA,)
    public = review(spec(missing=False, rows=60), bad)
    assert isinstance(public, Refuse)
    assert len(public.reasons) == 4
    assert public.why.leaving == public.why.public


def test_the_columns_that_count_are_those_with_an_entry_in_the_features_of_the_spec() -> None:
    names = tuple(f"f{place}" for place in range(50))
    counted: list[tuple[str, ...]] = []

    def used(asked: RunSpec) -> int:
        counted.append(asked.features)
        return 25 if "f2" in asked.features else 7

    gappy = site(
        has_missing=True,
        allows_missing=True,
        features=names,
        entries=(7, 18, 19, *(60,) * 47),
        columns=60,
        used_columns=used,
    )
    assert "fewer than the 20 columns" in reasons(review(spec(rows=1, rank=1, features=("f0",)), gappy))
    assert isinstance(review(spec(rows=2, rank=1, features=("f1", "f2")), gappy), Accept)
    assert counted == [("f0",), ("f1", "f2")]
    assert isinstance(review(spec(rows=2, rank=1, features=("f0", "f9")), gappy), Accept)
    assert len(counted) == 2, "one feature alone has enough"


@pytest.mark.parametrize("method", TUNABLES)
def test_every_tunable_is_bounded_and_in_the_digest_that_sites_sign(method: str) -> None:
    table = {"subspace": SubspaceSettings, "gradient": GradientSettings}[method]
    by_passes = {"passes", "local_iterations", "inner_steps", "decay", "weights"}
    assert {one.name for one in fields(table)} - by_passes == set(TUNABLES[method])
    assert isinstance(review(spec(method=method), site()), Accept)
    refused_by_the_spec_itself = {"block_bytes", "inner_tolerance"}
    for name in TUNABLES[method].keys() - refused_by_the_spec_itself:
        changed = spec(method=method, **{method: {name: int(2 * TUNABLES[method][name][1] + 2)}})
        assert f"{method}.{name} is outside" in reasons(review(changed, site()))
        assert changed.digest() != spec(method=method).digest()
    assert "block_bytes is outside" in reasons(review(spec(subspace={"block_bytes": 1}), site()))


def test_a_warm_start_from_what_the_site_has_not_verified_needs_a_person() -> None:
    verdict = review(spec(warm_start="run-0"), site(), knows_start=False)
    assert isinstance(verdict, Accept)
    assert verdict.needs_approval
    assert "begins at the subspace of run-0" in str(verdict.why)
    assert review(spec(warm_start="run-0"), site()) == Accept()
    assert review(spec(), site(), knows_start=False) == Accept()


def test_all_reasons_are_given_at_once() -> None:
    verdict = review(spec(rows=60, aggregation="plain", rank=20, rounds=5000), site({"max_rank": 5, "min_columns": 1}))
    assert isinstance(verdict, Refuse)
    assert len(verdict.reasons) == 5


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
    assert "run-1" in str(verdict.why)
    assert "e alone" in str(verdict.why)


@pytest.mark.parametrize("cohort", ["abcde", "afghi"])
def test_the_same_cohort_again_or_one_that_differs_by_enough_needs_no_approval(cohort: str) -> None:
    assert review(spec(participants=tuple(cohort)), site(), PAST) == Accept()


def after_change(*, noisy: bool = False, cohort: str = "abc") -> list[PastRun]:
    """A run of these over the columns 0 … 39."""
    return [PastRun("run-1", frozenset(cohort), column_set(40), noisy)]


def now(first: int) -> SiteFacts:
    """The site when it has the columns `first` … `first + 39`."""
    return site(columns=40, columns_of=lambda _: column_set(40, first), id_at=lambda _, place: f"id-{first + place}")


def test_a_run_after_few_columns_changed_waits_for_a_person_who_is_told_whom_it_exposes_and_the_ways_out() -> None:
    verdict = review(spec(participants=("a", "b", "c")), now(1), after_change())
    assert isinstance(verdict, Accept)
    assert verdict.needs_approval
    (said,) = verdict.why.about_data
    assert "with run-1 it would reveal sums of 1 of the present columns (id-40) and 1 that it leaves out" in said
    assert "wait until 20 or more differ, or propose the run with [privacy]" in said
    assert verdict.why.leaving == (ABOUT_DATA,)


def test_enough_changed_columns_noise_or_a_cohort_of_strangers_need_nobody() -> None:
    cohort = {"participants": ("a", "b", "c")}
    assert review(spec(**cohort), now(10), after_change()) == Accept()
    assert review(spec(**cohort), now(1), after_change(noisy=True)) == Accept()
    assert review(spec(privacy={"epsilon": 1.0}, **cohort), now(1), after_change()) == Accept()
    assert review(spec(participants=("a", *"uvwxyz")), now(1), after_change(cohort="abcdefg")) == Accept()


def test_plain_updates_are_compared_whatever_the_cohort() -> None:
    past, plain = after_change(cohort=""), spec(aggregation="plain")
    assert isinstance(verdict := review(plain, replace(now(1), policy=SitePolicy(allow_plain=True)), past), Accept)
    assert verdict.needs_approval


def test_a_cohort_is_compared_with_those_of_runs_that_had_any_of_the_columns() -> None:
    cohort, shares = spec(participants=("a", "b", "c", "d")), PastRun("run-1", frozenset("abcde"), column_set(40))
    assert review(cohort, now(39), [shares]).needs_approval  # type: ignore[union-attr]
    assert review(cohort, now(40), [shares]) == Accept()


def test_small_sums_are_always_verified_and_large_ones_in_turn_or_at_random_unless_the_policy_says_otherwise() -> None:
    relay, rounds = Relay(terms_of(9)).set_up(), set(range(1024))
    side = relay.sides[relay.terms.cohort[0]]

    def checked(verify: Literal["always", "sampled", "never"], size: int) -> set[int]:
        return {round for round in rounds if wants_verification(SitePolicy(verify=verify), size, side, round)}

    turns = {round for round in rounds if side.name in members_in_turn(side.terms.cohort, round)}
    drawn = {round for round in rounds if unforeseen_draw(side.state.roots, round) % SAMPLED == 0}
    assert drawn - turns
    assert checked("sampled", SMALL_SUM + 1) == turns | drawn < rounds
    assert checked("sampled", SMALL_SUM) == checked("always", SMALL_SUM + 1) == rounds
    assert checked("never", 8) == set()


def test_counts_are_merged_as_the_site_says_neither_more_nor_less() -> None:
    for asked in (1, 4, 6):
        assert "set min_cell = 5" in reasons(review(spec(min_cell=asked), site()))
    assert isinstance(review(spec(min_cell=10), site({"min_cell": 10})), Accept)
