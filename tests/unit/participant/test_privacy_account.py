"""What a run has cost is said in figures and in one paragraph that names what voids it."""

from __future__ import annotations

from dcfpca.privacy.settings import PrivacySettings
from dcfpca.privacy.zcdp import epsilon_of, rho_of
from dcfpca.report.page import paragraph
from participant.privacy_account import PrivacyAccount, without_privacy

PRIVACY = PrivacySettings(epsilon=1.0)
RHO = rho_of(1.0, 1e-6)


def account(runs: int = 1, limit: float | None = None, without: tuple[str, ...] = ()) -> PrivacyAccount:
    return PrivacyAccount(PRIVACY, "person", runs, runs * RHO, runs * RHO, without, limit)


def test_the_paragraph_says_what_was_spent_and_what_it_means() -> None:
    said = account().paragraph()
    assert "ε = 1 and δ = 1e-06" in said
    assert "without the data of any one person" in said
    assert "e^ε = 2.72" in said
    assert "one other site tells" in said
    assert "void" not in said
    assert "\n" not in said
    assert said in paragraph(said).replace("&#x27;", "'")


def test_it_says_what_all_runs_over_the_data_come_to_and_what_is_left() -> None:
    said = account(runs=3, limit=3.0).paragraph()
    assert f"All 3 such runs over this data together have ε = {epsilon_of(3 * RHO, 1e-6):.3g}" in said
    assert "The site allows ε = 3 in all, of which one more run may spend ε = " in said


def test_a_run_without_privacy_over_the_same_data_voids_the_promise_by_name() -> None:
    assert "BUT: One run without privacy was held over the same data (run-7)" in account(without=("run-7",)).paragraph()
    many = without_privacy(tuple(f"run-{k}" for k in range(9)))
    assert "9 runs without privacy" in many
    assert "run-4 and 4 more" in many
    assert "void" in many


def test_the_figures_of_a_manifest_are_those_of_the_ledger() -> None:
    told = account(runs=2, without=("run-7",)).document()
    assert (told["epsilon"], told["delta"], told["conspirators"], told["unit"]) == (1.0, 1e-6, 1, "person")
    assert told["rho"] == RHO
    assert told["rho_over_this_data"] == 2 * RHO
    assert told["epsilon_over_this_data"] == epsilon_of(2 * RHO, 1e-6)
    assert told["runs_without_privacy"] == ["run-7"]
