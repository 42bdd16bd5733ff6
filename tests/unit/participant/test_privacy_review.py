"""A site's privacy budget: what it refuses, in which words, and that it never charges too little."""

from __future__ import annotations

from typing import Any

import pytest
from dp_accounting import dp_event, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.privacy import zcdp
from dcfpca.privacy.zcdp import epsilon_of, rho_of
from dcfpca.spec import RunSpec
from participant.policy import Accept, Refuse, SiteFacts, SitePolicy, review_export
from participant.privacy_review import Spending, composed, epsilon_left, rounded_down
from participant.review import check_cohort, review

DELTA = 1e-6
RHOS = st.lists(st.floats(1e-6, 2.0), min_size=1, max_size=6)


def spec(epsilon: float | None = 1.0, **changes: Any) -> RunSpec:
    terms = {key: changes.pop(key) for key in ("delta", "conspirators") if key in changes}
    privacy = {} if epsilon is None else {"privacy": {"epsilon": epsilon} | terms}
    return RunSpec.model_validate({"rows": 50, "rank": 3} | privacy | changes)


def site(**policy: Any) -> SiteFacts:
    return SiteFacts("a", 50, 20, False, False, SitePolicy(**policy))


def reasons(verdict: Accept | Refuse) -> str:
    assert isinstance(verdict, Refuse)
    return "; ".join(verdict.reasons)


def test_by_default_runs_with_and_without_privacy_are_joined() -> None:
    assert review(spec(), site()) == Accept()
    assert review(spec(None), site()) == Accept()


def test_a_site_that_requires_privacy_refuses_a_run_without_and_joins_one_with_it() -> None:
    assert "require_privacy" in reasons(review(spec(None), site(require_privacy=True)))
    assert review(spec(), site(require_privacy=True)) == Accept()


def test_the_refusal_says_what_is_asked_what_was_spent_and_what_is_left() -> None:
    spent = Spending(rho_of(2.0, DELTA), rho_of(2.0, DELTA))
    said = reasons(review(spec(1.0), site(max_epsilon=2.1), spent=spent))
    left = rounded_down(epsilon_left(2.1, spent.data, DELTA))
    assert "the run asks for ε = 1 at δ = 1e-06" in said
    assert "ε = 2 has been spent on this data" in said
    assert "limit of 2.1 ([policy] max_epsilon)" in said
    assert f"at most ε = {left:g} is left for one run" in said
    assert said.count("\n") == 0


def test_what_is_said_to_be_left_is_accepted_and_a_hundredth_more_is_not() -> None:
    spent = Spending(rho_of(2.0, DELTA), 0.0)
    left = rounded_down(epsilon_left(2.5, spent.data, DELTA))
    assert review(spec(left), site(max_epsilon=2.5), spent=spent) == Accept()
    assert isinstance(review(spec(1.01 * left), site(max_epsilon=2.5), spent=spent), Refuse)


def test_a_spent_budget_has_nothing_left() -> None:
    spent = Spending(rho_of(2.0, DELTA), 0.0)
    assert "nothing is left" in reasons(review(spec(0.01), site(max_epsilon=2.0), spent=spent))


def test_a_whole_budget_can_be_spent_in_one_run() -> None:
    assert review(spec(1.0), site(max_epsilon=1.0)) == Accept()


def test_the_limit_of_a_year_counts_runs_over_other_data() -> None:
    spent = Spending(0.0, rho_of(1.0, DELTA))
    assert "in the last 365 days" in reasons(review(spec(1.0), site(max_epsilon_year=1.1), spent=spent))
    assert review(spec(1.0), site(max_epsilon=1.1), spent=spent) == Accept()


def test_a_refusal_for_the_year_says_that_charges_are_dated_later_than_now() -> None:
    spent = Spending(0.0, rho_of(1.0, DELTA), later=2)
    said = reasons(review(spec(1.0), site(max_epsilon_year=1.1), spent=spent))
    assert "2 charges are dated later than now" in said
    assert "dated later" not in reasons(review(spec(1.0), site(max_epsilon=0.5), spent=spent))


def test_a_loose_delta_is_refused_so_that_it_cannot_stretch_the_budget() -> None:
    assert "max_delta" in reasons(review(spec(1.0, delta=1e-3), site()))
    assert epsilon_of(rho_of(1.0, 1e-3), 1e-6) > 1.4  # what such a run would really have spent


def test_a_site_demands_how_many_conspirators_the_noise_withstands() -> None:
    assert "min_conspirators" in reasons(review(spec(conspirators=0), site()))
    assert review(spec(conspirators=0), site(min_conspirators=0)) == Accept()


def test_a_cohort_of_conspirators_alone_is_refused() -> None:
    cohort = ("a", "b", "c")
    assert "more than its 3 conspirators" in "; ".join(check_cohort(spec(conspirators=3), site(), cohort))
    assert check_cohort(spec(conspirators=2), site(), cohort) == ()


def test_reconstructions_of_a_private_run_leave_only_by_a_key_of_their_own() -> None:
    wanted = spec(export=True)
    assert "allow_export_with_privacy" in review_export(wanted, SitePolicy(allow_export=True))
    assert review_export(wanted, SitePolicy(allow_export=True, allow_export_with_privacy=True)) == ""
    assert review_export(wanted, SitePolicy(allow_export_with_privacy=True)) != ""
    assert review_export(spec(None, export=True), SitePolicy(allow_export=True)) == ""


def test_without_the_accountant_a_private_run_is_refused_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("participant.privacy_review.accountant_is_installed", lambda: False)
    assert "accountant" in reasons(review(spec(), site()))
    assert review(spec(None), site()) == Accept()


@given(RHOS, st.randoms())
def test_the_order_of_runs_does_not_matter(rhos: list[float], order: Any) -> None:
    shuffled = list(rhos)
    order.shuffle(shuffled)
    assert composed(shuffled) == composed(rhos)


@settings(max_examples=25, deadline=None)
@given(RHOS, st.sampled_from([1e-9, 1e-6, 1e-5]))
def test_runs_together_are_never_charged_less_than_the_accountant_says_of_their_releases(
    rhos: list[float], delta: float
) -> None:
    accountant = rdp.RdpAccountant(zcdp.ORDERS)
    for rho in rhos:
        accountant.compose(dp_event.GaussianDpEvent((2.0 * rho) ** -0.5))
    assert epsilon_of(composed(rhos), delta) >= accountant.get_epsilon(delta) * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 2.0), st.sampled_from([1e-9, 1e-7, 1e-5])), min_size=1, max_size=6))
def test_whatever_their_deltas_the_runs_joined_stay_below_the_limit_at_the_largest_delta(
    asked: list[tuple[float, float]],
) -> None:
    limit, joined = 2.0, list[float]()
    for epsilon, delta in asked:
        spent = Spending(composed(joined), composed(joined))
        if isinstance(review(spec(epsilon, delta=delta), site(max_epsilon=limit), spent=spent), Accept):
            joined.append(rho_of(epsilon, delta))
    assert epsilon_of(composed(joined), 1e-5) <= limit
