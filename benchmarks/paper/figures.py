"""The figures by name: what each measures, how it is drawn, and how its data is written."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.paper import convergence, local_iterations, phase_diagram, plotting, spectra, theorems
from dcfpca.errors import BadInput

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


def part_of(figure: Figure, plan: Any, size: int | None, solver: str | None) -> Any:
    """The plan with only this size and this solver, where given; raises BadInput where it has no such parts."""
    if not hasattr(plan, "part"):
        divided = ", ".join(name for name, one in FIGURES.items() if hasattr(one.full, "part"))
        raise BadInput(
            f"the figure {figure.name} is measured as a whole", f"--size and --solver go with --figure {divided}"
        )
    return plan.part(size, solver)


def produce(
    figure: Figure, plan: object, out: Path, say: Say, *, quick: bool, part: bool = False, first: int | None = None
) -> Path:
    """Measure on one thread, then write paper-NAME.json, .png and .svg; the data is on disk after every case.

    With `part`, what is in the file and is not measured again stays there. With `first`, only this many cases are.
    """
    out.mkdir(parents=True, exist_ok=True)
    target, cases = out / f"paper-{figure.name}.json", list[dict[str, Any]]()
    kept: dict[str, Any] = {"cases": [], "cpu_seconds": 0.0}
    if part and target.exists():
        kept = json.loads(target.read_text())
    began, spent = time.monotonic(), time.process_time()
    with threadpool_limits(1):
        for case in islice(figure.measure(plan, say), first):
            cases.append(asdict(case))
            about = {
                "figure": figure.name,
                "quick": quick,
                "cpu_seconds": kept["cpu_seconds"] - _replaced(kept["cases"], cases) + time.process_time() - spent,
                "wall_seconds": None if kept["cases"] else time.monotonic() - began,
            }
            _write(target, {**about, "cases": _merged(kept["cases"], cases)})
    if part and not any(map(_curves, cases)):
        raise BadInput(f"the figure {figure.name} has no such size or solver", "see the names in its data file")
    redraw(target, out)
    return target


def _place(case: Mapping[str, Any]) -> tuple[Any, ...]:
    return case.get("size"), case.get("outliers")


def _curves(case: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a case holds of each solver."""
    return {one["solver"]: one for key in ("tracks", "spectra") for one in case.get(key, ())}


def _merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The old cases, with what was measured again in place of what it replaces."""
    if not old:
        return list(new)
    found = {_place(case): case for case in old}
    for case in new:
        before = found.get(_place(case), {})
        curves = list({**_curves(before), **_curves(case)}.values())
        found[_place(case)] = {**case, **{key: curves for key in ("tracks", "spectra") if key in case}}
    return list(found.values())


def _replaced(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> float:
    """CPU seconds of the old curves that were measured again, where they are known."""
    again = {(_place(case), solver) for case in new for solver in _curves(case)}
    return sum(
        float(curve.get("cpu_seconds", 0.0))
        for case in old
        for solver, curve in _curves(case).items()
        if (_place(case), solver) in again
    )


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
