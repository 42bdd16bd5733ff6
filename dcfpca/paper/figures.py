"""The figures by name: what each measures, how it is drawn, and how its data is written."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from threadpoolctl import threadpool_limits

from dcfpca.paper import convergence, local_iterations, phase_diagram, plotting, spectra, theorems

Say = Callable[[str], None]
DIGITS = 6  # significant digits in the data files


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: `measure(plan, say)` yields its cases, `draw(cases)` draws them."""

    name: str
    measure: Callable[[Any, Say], Iterator[Any]]
    draw: Callable[[Sequence[Any]], plotting.Picture]
    full: Any
    quick: Any


FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("main", convergence.measure, plotting.convergence, convergence.FULL, convergence.QUICK),
        Figure("phase", phase_diagram.measure, plotting.phase, phase_diagram.FULL, phase_diagram.QUICK),
        Figure("singular", spectra.measure, plotting.singular, spectra.SINGULAR_FULL, spectra.SINGULAR_QUICK),
        Figure("rank", spectra.measure, plotting.rank, spectra.RANK_FULL, spectra.RANK_QUICK),
        Figure(
            "local-iterations",
            local_iterations.measure,
            plotting.local_iterations,
            local_iterations.FULL,
            local_iterations.QUICK,
        ),
        Figure("theorems", theorems.measure, plotting.theorems, theorems.FULL, theorems.QUICK),
    )
}


def produce(figure: Figure, plan: object, out: Path, say: Say, *, quick: bool) -> Path:
    """Measure on one thread, then write paper-NAME.json, .png and .svg; the data is on disk after every case."""
    out.mkdir(parents=True, exist_ok=True)
    target, cases = out / f"paper-{figure.name}.json", []
    began, spent = time.monotonic(), time.process_time()
    with threadpool_limits(1):
        for case in figure.measure(plan, say):
            cases.append(case)
            about = {
                "figure": figure.name,
                "quick": quick,
                "cpu_seconds": time.process_time() - spent,
                "wall_seconds": time.monotonic() - began,
            }
            _write(target, {**about, "cases": [asdict(one) for one in cases]})
    redraw(target, out)
    return target


def redraw(data: Path, out: Path) -> None:
    """Draw a figure from its data file alone."""
    document = json.loads(data.read_text(), object_hook=lambda keys: SimpleNamespace(**keys))
    plotting.save(FIGURES[document.figure].draw(document.cases), out / f"paper-{document.figure}")


def _write(path: Path, document: Mapping[str, object]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(_short(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    partial.replace(path)


def _short(value: Any) -> Any:
    """Values as plain JSON types, with floats rounded to DIGITS significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return value
