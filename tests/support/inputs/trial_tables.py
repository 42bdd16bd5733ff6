"""Tables like those of a trial of HIV treatments (ACTG175) at three sites, and errors as clerks make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from dcfpca.rpca.method import FloatArray

FEATURES = ("age", "wtkg", "karnof", "cd40", "cd420", "cd496", "cd80", "cd820", "hgb", "temp")
SITES = {"boston": 260, "denver": 220, "miami": 240}
_LEVELS = np.array([35.0, 75.0, 95.0, 350.0, 370.0, 330.0, 980.0, 940.0, 14.1, 36.8])
_SPREADS = np.array([8.0, 12.0, 5.0, 115.0, 140.0, 150.0, 450.0, 420.0, 1.4, 0.3])
_DECIMALS = (0, 1, 0, 0, 0, 0, 0, 0, 1, 1)
_LOADINGS = np.array(
    [[0.1, 0.6, -0.5], [0.2, 0.9, 0.1], [0.5, 0.1, 0.6], [0.95, 0.0, 0.1], [0.97, 0.0, 0.0], [0.93, 0.0, 0.1],
     [0.1, 0.2, 0.95], [0.1, 0.15, 0.96], [0.4, 0.7, 0.2], [-0.5, 0.2, -0.6]]
)  # fmt: skip
"""Of immune status, build and activation."""

ERRORS: dict[tuple[int, str], tuple[Callable[[Mapping[str, float]], float], str]] = {
    (12, "wtkg"): (lambda row: row["wtkg"] * 10, "ten times too large"),
    (31, "age"): (lambda row: row["age"] * 10, "ten times too large"),
    (47, "hgb"): (lambda row: row["hgb"] * 100, "a hundred times too large"),
    (63, "cd820"): (lambda row: 9999.0, "stands for missing"),
    (78, "temp"): (lambda row: round(row["temp"] * 1.8 + 32, 1), "in °F instead of °C"),
    (95, "temp"): (lambda row: round(row["temp"] * 1.8 + 32, 1), "in °F instead of °C"),
    (110, "cd420"): (lambda row: -row["cd420"], "the sign"),
    (128, "karnof"): (lambda row: row["hgb"], "swapped with hgb"),
    (141, "hgb"): (lambda row: -1.0, "stands for missing"),
    (166, "temp"): (lambda row: row["temp"] / 10, "ten times too small"),
}
"""By patient and feature: the value that was written, from the true ones, and what may be said of it."""


def patients(site: str) -> FloatArray:
    """The true values of a site, a row for each patient."""
    rng = np.random.default_rng(list(SITES).index(site))
    count = SITES[site]
    shared = rng.standard_normal((count, 3)) @ _LOADINGS.T
    own = 0.35 * rng.standard_normal((count, len(FEATURES)))
    z = (shared + own) / np.sqrt(np.sum(_LOADINGS**2, axis=1) + 0.35**2)
    values = _LEVELS + _SPREADS * z
    values[:, 3:8] = np.maximum(values[:, 3:8], 10.0)
    return np.column_stack([np.round(values[:, k], _DECIMALS[k]) for k in range(len(FEATURES))])


def wrong(values: FloatArray) -> FloatArray:
    """The same with ERRORS; those who swap write both values."""
    found = values.copy()
    for (patient, feature), (change, said) in ERRORS.items():
        row = dict(zip(FEATURES, values[patient], strict=True))
        found[patient, FEATURES.index(feature)] = round(change(row), 4)
        if said.startswith("swapped"):
            found[patient, FEATURES.index(said.split()[-1])] = row[feature]
    return found


def write_table(path: Path, site: str, values: FloatArray, first: int = 0) -> None:
    """As a site has it: ids, and an outcome that is no measurement."""
    lines = [
        f"{site[0].upper()}{first + number:04},{','.join(f'{value:.10g}' for value in row)},{number % 2}"
        for number, row in enumerate(values)
    ]
    path.write_text("\n".join([f"pidnum,{','.join(FEATURES)},cens", *lines]) + "\n")
