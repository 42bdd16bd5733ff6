"""Takes the picture of the README: four made-up hospitals, a real run, and one site's report in a real browser.

usage: python docs/figures/take.py WORK       needs the extra `data` and Chromium; a minute
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SITES = {"north": 240, "south": 180, "east": 210, "west": 160}
FEATURES = {  # median, spread
    "age": (58, 14), "weight_kg": (78, 13), "height_cm": (171, 9), "waist_cm": (93, 12), "systolic": (132, 15),
    "diastolic": (80, 9), "pulse": (73, 10), "glucose": (5.6, 1.1), "hba1c": (5.8, 0.7), "cholesterol": (5.2, 0.9),
    "ldl": (3.1, 0.8), "hdl": (1.4, 0.3), "triglycerides": (1.5, 0.6), "creatinine": (82, 15), "urea": (5.6, 1.4),
    "sodium": (140, 2.4), "potassium": (4.2, 0.35),
}  # fmt: skip
BODY, HEART, SUGAR, LIPIDS, KIDNEY = range(5)
LOADINGS = {
    "weight_kg": {BODY: 0.9}, "height_cm": {BODY: 0.5}, "waist_cm": {BODY: 0.8, SUGAR: 0.3}, "systolic": {HEART: 0.9},
    "diastolic": {HEART: 0.85}, "pulse": {HEART: 0.3}, "glucose": {SUGAR: 0.92}, "hba1c": {SUGAR: 0.9},
    "cholesterol": {LIPIDS: 0.95}, "ldl": {LIPIDS: 0.93}, "hdl": {LIPIDS: 0.3, BODY: -0.5},
    "triglycerides": {LIPIDS: 0.6},
    "creatinine": {KIDNEY: 0.93}, "urea": {KIDNEY: 0.9}, "sodium": {KIDNEY: -0.2}, "potassium": {KIDNEY: 0.6},
    "age": {HEART: 0.4, KIDNEY: 0.4},
}  # fmt: skip


def write_tables(work: Path) -> list[Path]:
    """Tables of four hospitals; at `north` a few entries are wrong in the ways that entries are."""
    draw = np.random.default_rng(20261118)
    weights = np.array([[LOADINGS[name].get(j, 0.0) for j in range(5)] for name in FEATURES])
    noise = np.sqrt(1 - (weights**2).sum(axis=1))
    middle, spread = np.array(list(FEATURES.values())).T
    paths = []
    for site, count in SITES.items():
        scores = draw.normal(size=(count, 5)) @ weights.T + draw.normal(size=(count, len(FEATURES))) * noise
        values = middle + spread * scores
        if site == "north":
            spoil(values)
        lines = [",".join(f"{value:.1f}" for value in row) for row in values]
        paths.append(work / f"{site}.csv")
        body = "".join(f"{site[0].upper()}-{k:04d},{line}\n" for k, line in enumerate(lines, start=1001))
        paths[-1].write_text(f"patient,{','.join(FEATURES)}\n{body}")
    return paths


def spoil(values: np.ndarray) -> None:
    """A slip of the decimal point, mg/dL for mmol/L, pounds for kilograms, two columns swapped, a code for unknown."""
    place = {name: k for k, name in enumerate(FEATURES)}
    values[17, place["creatinine"]] *= 10
    values[41, place["glucose"]] *= 18.0
    values[88, place["weight_kg"]] /= 0.4536
    values[120, [place["systolic"], place["diastolic"]]] = values[120, [place["diastolic"], place["systolic"]]]
    values[163, place["potassium"]] = 99.0
    values[199, place["ldl"]] += 5.5


def run(*command: str) -> str:
    """What a command prints; CalledProcessError if it fails."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  (our own commands)


def main(work: Path) -> None:
    """Set up, run, take, stop."""
    work.mkdir(parents=True, exist_ok=True)
    clinic = work / "clinic"
    run("dcfpca", "init", "local", str(clinic), *map(str, write_tables(work)), "--id-column", "patient")
    run("dcfpca", "up", str(clinic))
    try:
        operator = ("--config", str(clinic / "operator/operator.toml"))
        run("dcfpca", "run", "start", "--max-rank", "8", "--label", "laboratory", "--watch", *operator)
        take(clinic / "sites/north/participant.toml", work)
    finally:
        run("dcfpca", "down", str(clinic))


def take(config: Path, work: Path) -> None:
    """The beginning of the site's report, light and dark."""
    report = work / "north.html"
    run("dcfpca-participant", "results", "--config", str(config), "--run", "latest", "--report", str(report))
    for shade, setting in (("light", 1), ("dark", 0)):
        run(
            "chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,900",
            f"--blink-settings=preferredColorScheme={setting}",
            f"--screenshot={HERE / f'findings-{shade}.png'}", report.resolve().as_uri(),
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
