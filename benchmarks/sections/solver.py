"""`subspace` by itself: rounds, kinds of outliers, splits, speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, lines, paragraphs, power, table

LEVELS = ("1e-6", "1e-10", "1e-20")
WIDTHS = {1: "rank given", 2: "bound 2r"}
EXACT, WITHIN = 1e-8, 1.1  # the error of L of a right answer, or how many times what is allowed
SHARE_ASKED = 0.65  # of the products' own speed


def easy(results: Path) -> Section | None:
    """Rounds to each level."""
    rows = lines(results / "solver-easy.jsonl")
    if not rows:
        return None
    worst = max(row["relative_error_L"] for row in rows)
    exact = sum(row["rank"] == row["true_rank"] for row in rows)
    former = {
        (row["size"], row["kind"], row["bound"]): row["rounds"] for row in lines(results / "former/solver-easy.jsonl")
    }
    before = [former[key] for row in rows if (key := (row["size"], row["kind"], row["bound"])) in former]
    values = lines(results / "solver-values.jsonl")
    return Section(
        "The solver: rounds",
        ("python -m benchmarks.solver easy", "python -m benchmarks.solver values"),
        paragraphs(
            "Rounds of `subspace` to ‖L−L₀‖²/‖L₀‖² of 1e-6 / 1e-10 / 1e-20; r = .05 n, s = .05, ten sites. The "
            "error of a "
            "round is that of the result the sites would form if it were the last.",
            table(["n", "outliers", "told", "rounds", "at the end", "CPU s a round"], [_easy(row) for row in rows]),
            f"The rank is exact in {exact} of {len(rows)}; the worst ‖L−L₀‖/‖L₀‖ is {power(worst)}. Runs end after "
            f"{_range([row['rounds'] for row in rows])} rounds; before runs ended at their tolerance, they took "
            f"{_range(before)}. Singular values, bound 2r, n = {', '.join(str(row['size']) for row in values)}: the "
            f"largest error is {power(max((row['singular_value_error'] for row in values), default=0.0))} of σ_r.",
        ),
    )


def _range(rounds: list[int]) -> str:
    return f"{min(rounds)} to {max(rounds)}" if rounds else "–"


def _easy(row: dict[str, Any]) -> list[str]:
    reached = " / ".join(str(row["rounds_to"][level] or "–") for level in LEVELS)
    end = f"{power(row['relative_error_L'])} ({row['rounds']})"
    return [str(row["size"]), row["kind"], WIDTHS[row["bound"]], reached, end, power(row["seconds_per_round"])]


def cells(results: Path) -> Section | None:
    """The paper's 24 cells under bounds of several widths."""
    rows = lines(results / "solver-cells.jsonl")
    if not rows:
        return None
    widths = list(dict.fromkeys(row["bound"] for row in rows))
    body = [_cells(width, [row for row in rows if row["bound"] == width]) for width in widths]
    return Section(
        "The solver: the paper's 24 cells",
        ("python -m benchmarks.solver cells",),
        paragraphs(
            "n = 500, ten sites, r/n from .05 to .2, s from .05 to .3; squared error of L.",
            table(["told", "solved to 1e-8", "worst", "most rounds", "rank exact"], body),
        ),
    )


def _cells(width: float, rows: list[dict[str, Any]]) -> list[str]:
    solved = sum(row["squared_error_L"] <= 1e-8 for row in rows)
    exact = sum(row["rank"] == row["true_rank"] for row in rows)
    worst, most = max(row["squared_error_L"] for row in rows), max(row["rounds"] for row in rows)
    told = "the rank" if width == 1 else f"bound {width:g} r"
    return [told, f"{solved} of {len(rows)}", power(worst), str(most), str(exact)]


def kinds(results: Path) -> Section | None:
    """Kinds of outliers, strengths, gaps, noise."""
    rows = lines(results / "solver-kinds.jsonl")
    if not rows:
        return None
    clean, noisy = ([row for row in rows if ("oracle" in row) == noise] for noise in (False, True))
    worst = max(clean, key=lambda row: row["relative_error_L"])
    slowest = max(clean, key=lambda row: row["rounds"])
    ratio = max(row["relative_error_L"] / row["oracle"] for row in noisy)
    named = ", ".join(dict.fromkeys(row["case"] for row in clean))
    return Section(
        "The solver: kinds of outliers, strengths, gaps, noise",
        ("python -m benchmarks.solver kinds",),
        paragraphs(
            f"n = 300, r = 15, ten sites, s = .05 and .15, rank given and bound 2r: {named}. The worst of the "
            f"{len(clean)} "
            f"runs ends at ‖L−L₀‖/‖L₀‖ = {power(worst['relative_error_L'])} ({worst['case']}); the slowest takes "
            f"{slowest['rounds']} rounds ({slowest['case']}); {sum(row['rank'] == 15 for row in clean)} end with "
            "the exact "
            f"rank. With 1 % dense noise the error is at most {ratio:.2f} times that of least squares with "
            f"known outliers, and the rank is exact in {sum(row['rank'] == 15 for row in noisy)} of {len(noisy)}.",
        ),
        tuple(
            f"{row['case']}, s = {row['s']}, {WIDTHS[row['bound']]}: ‖L−L₀‖/‖L₀‖ ends at "
            f"{power(row['relative_error_L'])}, "
            f"rank {row['rank']} of 15."
            for row in clean
            if row["relative_error_L"] > 1e-8 or row["rank"] != 15
        ),
    )


def known_failures(results: Path) -> Section | None:
    """Small problems that failed before."""
    rows = lines(results / "solver-known-failures.jsonl")
    if not rows:
        return None
    groups = list(dict.fromkeys((row["case"], row["told"]) for row in rows))
    body = [_known(*key, [row for row in rows if (row["case"], row["told"]) == key]) for key in groups]
    return Section(
        "The solver: small problems that failed before",
        ("python -m benchmarks.solver known-failures",),
        paragraphs(
            "Whole runs, six seeds each, two or three sites. *Allowed* is the error of the best approximation of the "
            "true rank where there is noise and no outlier. The strong level: 19 rows, one direction ten times as "
            "strong as two others, 1 % noise.",
            table(["case", "told", "rank exact", "worst error of L", "allowed", "most rounds", "wrong flags"], body),
        ),
        tuple(_still_wrong(rows)),
    )


def _still_wrong(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["relative_error_L"] > max(EXACT, WITHIN * row["allowed"]):
            error = f"an error of L of {power(row['relative_error_L'])}"
            yield f"{row['case']}, {row['told']}, seed {row['seed']}: {error}."


def _known(case: str, told: str, rows: list[dict[str, Any]]) -> list[str]:
    exact = sum(row["rank"] == row["true_rank"] for row in rows)
    worst = max(rows, key=lambda row: row["relative_error_L"])
    allowed = power(worst["allowed"]) if worst["allowed"] else "rounding"
    wrong, most = sum(row["wrong_flags"] for row in rows), max(row["rounds"] for row in rows)
    return [case, told, f"{exact} of {len(rows)}", power(worst["relative_error_L"]), allowed, str(most), str(wrong)]


def split(results: Path) -> Section | None:
    """The split does not matter."""
    rows = lines(results / "solver-split.jsonl")
    if not rows:
        return None
    worst = max(row["difference"] for row in rows)
    return Section(
        "The solver: the split does not matter",
        ("python -m benchmarks.solver split",),
        paragraphs(
            "The same 300 × 400 matrix as 1, 10, 50 or unequal sites, with and without 1 % noise, rank given and "
            f"bound 2r: L differs by at most {power(worst)}, relatively. Every figure that the thresholds depend on "
            "is a sum of counts over sites, never a mean of medians. So the whole path is independent of the "
            "split.",
        ),
    )


def step(results: Path) -> Section | None:
    """The local step against the machine."""
    rows = lines(results / "solver-step.jsonl")
    if not rows:
        return None
    return Section(
        "The solver: the local step",
        ("python -m benchmarks.solver step",),
        paragraphs(
            "Two sites share the matrix; share of the speed of the same matrix products alone, time of a pass over one "
            "read of M, and memory over that of M.",
            table(["m × n", "rank", "share of GEMM", "pass / read", "memory / M"], [_step(row) for row in rows]),
        ),
        tuple(_step_short(rows)),
    )


def roofline(results: Path) -> Section | None:
    """A solve of few directions against the machine's limits."""
    rows = {row["what"]: row for row in lines(results / "solver-roofline.jsonl")}
    if not rows:
        return None
    machine, race, one = rows.pop("machine"), rows.pop("race"), rows["round"]
    timed = [
        [name, f"{row['seconds'] * 1e3:.3g} ms", f"{row['limit'] * 1e3:.3g} ms", f"{row['seconds'] / row['limit']:.1f}"]
        for name, row in rows.items()
    ]
    return Section(
        "The solver: what the machine allows at rank 5",
        ("python -m benchmarks.solver roofline",),
        paragraphs(
            f"n = 3000, one core, which reads {machine['read_bytes_s'] / 1e9:.0f} GB/s and multiplies matrices at "
            f"{machine['single_flops'] / 1e9:.0f} (single) and {machine['double_flops'] / 1e9:.0f} GFlop/s (double). A "
            f"round reads M once ({one['read'] * 1e3:.1f} ms) and does two passes of 26 operations an entry "
            f"({one['arithmetic'] * 1e3:.1f} ms); the limit is the larger, as if both overlapped without loss.",
            table(["", "CPU", "limit", "times"], timed),
            "A pass on data that fits a cache runs at the speed of matrix products, so nothing can be gained "
            "there. Reading and computing hardly overlap, sums and sampled medians add to them, and other block "
            "sizes were no faster. In the race, which keeps L in new memory, ours takes {race['seconds'] * 1e3:.0f} "
            f"ms and IRCUR, which reads a sample of rows and columns until its result, {race['ircur'] * 1e3:.0f} ms.",
        ),
    )


def _step_short(rows: list[dict[str, Any]]) -> Iterator[str]:
    thin, *wide = rows
    if thin["passes_over_read"] > 2:
        yield f"A pass at rank {thin['rank']} takes {thin['passes_over_read']:.1f} times one read of M (goal: 2)."
    for row in wide:
        if row["gemm_fraction"] < SHARE_ASKED:
            share = f"{row['gemm_fraction']:.2f} of the products' speed"
            yield f"At rank {row['rank']} the step has {share} (goal: {SHARE_ASKED})."


def _step(row: dict[str, Any]) -> list[str]:
    shape = f"{row['rows']} × {row['columns']}"
    shares = (row["gemm_fraction"], row["passes_over_read"], row["memory_over_matrix"])
    return [shape, str(row["rank"]), *(f"{value:.2f}" for value in shares)]


def closing(results: Path) -> Section | None:
    """Whole runs on the paper's cells, and what was measured before closing rounds."""
    rows, kinds_now = lines(results / "solver-closing.jsonl"), lines(results / "solver-kinds.jsonl")
    kinds_then, split_then = (lines(results / "former" / f"solver-{name}.jsonl") for name in ("kinds", "split"))
    if not (rows and kinds_now and kinds_then and split_then):
        return None
    body = [_cells(width, [row for row in rows if row["bound"] == width]) for width in (1, 2)]
    exact, wrong = sum(row["ending"] == "exact" for row in rows), sum(row["wrong_flags"] for row in rows)
    rounds = [sum(row["rounds"] for row in some) for some in (kinds_then, kinds_now)]
    worst = [max(row["relative_error_L"] for row in some if "oracle" not in row) for some in (kinds_then, kinds_now)]
    return Section(
        "The solver: whole runs on exact data",
        ("python -m benchmarks.solver closing", "python -m benchmarks.solver kinds"),
        paragraphs(
            "The same 24 cells by whole runs, hidden entries and closing rounds included, tolerance 1e-9 as in a spec:",
            table(["told", "solved to 1e-8", "worst", "most rounds", "rank exact"], body),
            f"{exact} of {len(rows)} runs end as exact, and their flags are wrong in {wrong} entries. Since a "
            f"tolerance that is met ends a run, the 40 runs of the kinds below take {rounds[1]} rounds in all where "
            f"they took {rounds[0]} before; the worst error is {power(worst[1])}, before {power(worst[0])}, because "
            "runs continued until rounding stopped them. Between splits L differed by at most "
            f"{power(max(row['difference'] for row in split_then))} before.",
        ),
    )
