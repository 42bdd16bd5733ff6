"""The two theorems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.sections import Section, document, paragraphs, picture, power, table


def theorems(results: Path) -> Section | None:
    """Theorem 1 along a run, Theorem 2 on both sides of its line."""
    data = document(results / "paper-theorems.json")
    if data is None:
        return None
    runs = [case for case in data.cases if case.kind == "theorem 1"]
    lines = [case for case in data.cases if case.kind == "theorem 2"]
    return Section(
        "The paper: its two theorems",
        ("python -m benchmarks.paper --figure theorems",),
        paragraphs(
            picture("paper-theorems", "mean squared gradient under its bound; error of L by ρ"),
            *_first(runs),
            *_second(lines),
        ),
        () if _held(runs) else ("Theorem 1's bound did not hold on a run.",),
    )


def _held(runs: list[Any]) -> bool:
    return all(mean <= bound for run in runs for mean, bound in zip(run.means, run.bounds, strict=True))


def _first(runs: list[Any]) -> list[str]:
    allowed = runs[0]
    headings = ["η", "η < 1/L", "T", "mean ‖∇g‖²", "bound", "largest ‖∇g_i‖", "Lemma 4 as printed", "with 1/ρ"]
    return [
        "**Theorem 1**, the mean of ‖∇g‖² over the first T rounds against its bound, with C_U, C_V, C_S and C_M "
        "measured on the run, and g* replaced by the lowest g seen, which makes the bound stricter. Local solves are "
        "exact, so the steps descend g_i.",
        table(headings, [_run(run) for run in runs]),
        f"The bound {'holds in every round' if _held(runs) else 'is **broken**'}. It is far from tight: the L of "
        f"Lemma 3 is {power(allowed.smoothness)} here, so the largest step that the theorem allows is "
        f"{power(allowed.learning_rate)}, at which U hardly moves, "
        f"and the bound is {power(allowed.bounds[-1] / allowed.means[-1])} times what is "
        "measured. The steps used in the paper violate its premise. The proof of Lemma 4 loses a factor 1/ρ "
        "(ΛV is ΛΛᵀU/ρ); the last column has it.",
    ]


def _run(run: Any) -> list[str]:
    measured = [power(run.means[-1]), power(run.bounds[-1]), power(run.largest_site_gradient)]
    lemma = [power(run.printed_site_bound), power(run.derived_site_bound)]
    return [power(run.learning_rate), "yes" if run.allowed else "no", str(len(run.means)), *measured, *lemma]


def _second(lines: list[Any]) -> list[str]:
    exact = lines[0].zero_from * lines[0].fraction / lines[0].rho
    return [
        "**Theorem 2**: the best U for each ρ, by L-BFGS on g from a random start. Where ρ² > λ²mn only U = 0 is left, "
        "and `gradient` refuses such penalties with that reason.",
        table(["ρ/(λ√(mn))", "‖L‖/‖L₀‖", "‖L−L₀‖/‖L₀‖", "refused"], [_side(line) for line in lines]),
        "The condition is necessary, not sharp: L = 0 is optimal from ρ = ‖clip(M, ±λ)‖₂ on already, which is "
        f"{exact:.2f} λ√(mn) here.",
    ]


def _side(line: Any) -> list[str]:
    return [f"{line.fraction:g}", power(line.size_L), power(line.relative_error_L), "yes" if line.refused else ""]
