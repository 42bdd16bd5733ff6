"""The figures as PNG and SVG. Needs matplotlib, an optional dependency that is checked before any measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.paper import convergence as convergence_figure
from benchmarks.paper import local_iterations as ablation
from benchmarks.paper import phase_diagram as phase_figure
from benchmarks.paper import spectra
from benchmarks.paper import theorems as theory
from dcfpca.errors import BadInput

Picture = Any  # a matplotlib Figure, which this module must not need in order to be imported

# The palette of Okabe and Ito: distinguishable with colour blindness and in print.
COLOURS = {
    "gradient": "#D55E00", "subspace": "#0072B2", "subspace, bound 2r": "#56B4E9",
    "CF-PCA": "#E69F00", "APGM": "#999999", "ALM": "#009E73",
}  # fmt: skip
SEQUENCE = ("#0072B2", "#E69F00", "#009E73", "#D55E00")
LOWEST = 1e-32  # err below rounding is drawn here


def require_matplotlib() -> None:
    """Raise BadInput with the installation command if matplotlib is missing."""
    try:
        import matplotlib as _  # noqa: F401, PLC0415 — an extra, asked for only here
    except ImportError as error:
        raise BadInput(
            "The figures are drawn with matplotlib, which is not installed.", "pip install 'dcfpca[bench]'"
        ) from error


def save(picture: Picture, stem: Path) -> None:
    """STEM.png and STEM.svg; the same data gives the same SVG."""
    import matplotlib  # noqa: PLC0415

    with matplotlib.rc_context({"svg.hashsalt": "dcfpca"}):
        picture.savefig(stem.with_suffix(".png"), dpi=110, metadata={"Software": None})
        picture.savefig(stem.with_suffix(".svg"), metadata={"Date": None, "Creator": None})


def convergence(cases: Sequence[convergence_figure.Case]) -> Picture:
    """Above the paper's err, below the error of L, one column per size; crosses are the published floors."""
    picture, grid = sheet(2, len(cases), 3.6, 3.0)
    for column, case in enumerate(cases):
        for track in case.tracks:
            style = {"color": COLOURS[track.solver], "label": track.solver, "lw": 1.6}
            numbers = np.arange(1, len(track.errors) + 1)
            grid[0, column].semilogy(numbers, np.maximum(track.errors, LOWEST), **style)
            grid[1, column].semilogy(numbers, np.maximum(track.errors_L, LOWEST), **style)
        for level in case.published:
            grid[0, column].plot(level.rounds, level.error, "x", color=COLOURS[level.solver], ms=8, mew=2)
        grid[0, column].set_title(f"n = {case.size}, {case.outliers} outliers (× published)", fontsize=9)
        grid[1, column].set_xlabel("round or iteration")
    grid[0, 0].set_ylabel("err of the paper")
    grid[1, 0].set_ylabel("‖L−L₀‖/‖L₀‖")
    grid[0, 0].legend(fontsize=7)
    return picture


def phase(cells: Sequence[phase_figure.Cell]) -> Picture:
    """Four maps of r/n by s: published, and what each method reached."""
    shares = sorted({cell.rank_share for cell in cells})
    sparsities = sorted({cell.sparsity for cell in cells})
    at = {(cell.rank_share, cell.sparsity): cell for cell in cells}
    pick: dict[str, Callable[[phase_figure.Cell], float]] = {
        "published": lambda cell: cell.published or math.nan,
        "gradient, K = 2": lambda cell: cell.gradient.error,
        "subspace, rank given": lambda cell: cell.subspace.error,
        "subspace, bound 2r": lambda cell: cell.subspace_bound.error,
    }
    picture, grid = sheet(1, len(pick), 3.4, 2.8)
    for place, (name, value) in zip(grid[0], pick.items(), strict=True):
        table = np.array([[value(at[share, s]) for s in sparsities] for share in shares])
        _map(place, name, np.log10(np.maximum(table, 1e-16)), shares, sparsities)
    return picture


def singular(cases: Sequence[spectra.Case]) -> Picture:
    """The singular values of the truth and of what was found."""
    picture, grid = sheet(1, len(cases), 6.0, 3.6)
    for place, case in zip(grid[0], cases, strict=True):
        place.semilogy(range(1, case.rank + 1), case.truth, "ko", mfc="none", ms=9, label="L₀")
        for spectrum, colour, mark in zip(case.spectra, SEQUENCE, "+.x", strict=False):
            values = np.maximum(spectrum.values, 1e-3)
            place.semilogy(range(1, values.size + 1), values, mark, color=colour, label=spectrum.solver)
        place.axvline(case.rank + 0.5, color="0.7", lw=1)
        place.set_title(f"n = {case.size}, r = {case.rank}, bound p = {case.bound}", fontsize=9)
        place.set_xlabel("i")
        place.set_ylabel("σ_i")
        place.legend(fontsize=7)
    return picture


def rank(cases: Sequence[spectra.Case]) -> Picture:
    """The paper's measure of the singular values' error by size."""
    picture, grid = sheet(1, 1, 6.0, 3.6)
    place = grid[0, 0]
    place.loglog(
        [case.size for case in cases],
        [case.published or math.nan for case in cases],
        "kx",
        ms=9,
        mew=2,
        label="published",
    )
    for solver, colour in zip([spectrum.solver for spectrum in cases[0].spectra], SEQUENCE, strict=False):
        found = [(case.size, one.error) for case in cases for one in case.spectra if one.solver == solver]
        place.loglog(*zip(*found, strict=True), "o-", color=colour, label=solver)
    place.set_xlabel("n")
    place.set_ylabel("max|σ_i − σ_i(L₀)|/σ_r(L₀)")
    place.legend(fontsize=7)
    return picture


def local_iterations(cases: Sequence[ablation.Case]) -> Picture:
    """err by round for each K."""
    picture, grid = sheet(1, 1, 6.0, 3.6)
    for case, colour in zip(cases, SEQUENCE, strict=False):
        errors = case.track.errors
        grid[0, 0].semilogy(range(1, len(errors) + 1), errors, color=colour, label=f"K = {case.local_iterations}")
    tuning = cases[0].tuning
    grid[0, 0].set_title(f"n = {cases[0].size}, E = {tuning.sites}, η = {tuning.learning_rate:g}", fontsize=9)
    grid[0, 0].set_xlabel("round")
    grid[0, 0].set_ylabel("err of the paper")
    grid[0, 0].legend(fontsize=7)
    return picture


def theorems(cases: Sequence[theory.BoundCheck | theory.Line]) -> Picture:
    """Left the mean squared gradient under its bound, right the error of the best L by ρ."""
    picture, grid = sheet(1, 2, 5.2, 3.6)
    bounds = [cast(theory.BoundCheck, case) for case in cases if case.kind == "theorem 1"]
    for bound, colour in zip(bounds, SEQUENCE, strict=False):
        word = f"η = {bound.learning_rate:.2g}" + ("" if bound.allowed else " (not allowed)")
        grid[0, 0].semilogy(bound.means, color=colour, label=f"measured, {word}")
        grid[0, 0].semilogy(bound.bounds, "--", color=colour, label=f"bound, {word}")
    grid[0, 0].set_xlabel("rounds T")
    grid[0, 0].set_ylabel("mean of ‖∇g‖²")
    grid[0, 0].legend(fontsize=7)
    lines = [cast(theory.Line, case) for case in cases if case.kind == "theorem 2"]
    grid[0, 1].semilogx([line.fraction for line in lines], [line.relative_error_L for line in lines], "o-")
    grid[0, 1].axvline(1.0, color="k", lw=1, label="ρ² = λ²mn")
    if lines:
        exact = lines[0].zero_from * lines[0].fraction / lines[0].rho
        grid[0, 1].axvline(exact, color="0.5", ls=":", label="ρ = ‖clip(M, ±λ)‖₂")
    grid[0, 1].set_xlabel("ρ/(λ√(mn))")
    grid[0, 1].set_ylabel("‖L−L₀‖/‖L₀‖")
    grid[0, 1].legend(fontsize=7)
    return picture


def sheet(rows: int, columns: int, width: float, height: float) -> tuple[Picture, Any]:
    """An empty picture of rows × columns charts, each this wide and high in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    picture = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(picture)
    grid = picture.subplots(rows, columns, squeeze=False)
    for place in grid.ravel():
        place.grid(visible=True, color="0.9")
    return picture, grid


def _map(place: Any, name: str, table: Any, shares: Sequence[float], sparsities: Sequence[float]) -> None:
    image = place.imshow(table, vmin=-16, vmax=0, cmap="viridis", origin="lower", aspect="auto")
    place.grid(visible=False)
    place.set_title(name, fontsize=9)
    place.set_xticks(range(len(sparsities)), [f"{s:g}" for s in sparsities])
    place.set_yticks(range(len(shares)), [f"{share:g}" for share in shares])
    place.set_xlabel("s")
    place.set_ylabel("r/n")
    place.figure.colorbar(image, ax=place, label="log₁₀ err (≤ −16 is dark)")
