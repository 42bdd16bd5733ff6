"""Draws the state diagrams of the pages as SVG, so that the site needs no script from elsewhere to show them.

States stand in columns by their distance from the start. Arrows are numbered, and a list below says what each means.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

Arrow = tuple[str, str, str]
_COLUMN, _LINE, _WIDTH, _HEIGHT, _MARGIN = 210, 96, 128, 36, 70
_START, _END = "start", "end"


def replace_diagrams(text: str) -> str:
    """The page with each Mermaid state diagram as a drawing and its legend."""
    return re.sub(r"```mermaid\nstateDiagram-v2\n(.*?)```", lambda found: _drawing(found[1]), text, flags=re.DOTALL)


def _drawing(body: str) -> str:
    arrows: list[Arrow] = []
    for line in body.strip().splitlines():
        route, _, label = line.strip().partition(": ")
        start, _, end = route.partition(" --> ")
        if end != "[*]" or label:
            names = (_START if start == "[*]" else start, _END if end == "[*]" else end)
            arrows.append((*names, label.replace("<br/>", "; ")))
    return f"{_svg(arrows)}\n\n{_legend(arrows)}\n"


def _legend(arrows: Sequence[Arrow]) -> str:
    return "\n".join(
        f"{i}. {_name(a)} → {_name(b)}{f': {label}' if label else ''}" for i, (a, b, label) in enumerate(arrows, 1)
    )


def _name(state: str) -> str:
    return state.replace("_", " ")


def _depths(arrows: Sequence[Arrow]) -> dict[str, int]:
    """The fewest arrows from the start to each state; those that nothing leaves stand last."""
    depth, reached = {_START: 0}, True
    while reached:
        reached = False
        for start, end, _ in arrows:
            if start in depth and end not in depth:
                depth[end], reached = depth[start] + 1, True
    left = {start for start, _, _ in arrows}
    last = max(depth[state] for state in left) + 1
    return {state: place if state in left else last for state, place in depth.items()}


def _svg(arrows: Sequence[Arrow]) -> str:
    depth = _depths(arrows)
    columns = [[state for state in depth if depth[state] == place] for place in range(max(depth.values()) + 1)]
    columns = [column for column in columns if column]
    tallest = max(len(column) for column in columns)
    at = {
        state: (_MARGIN + x * _COLUMN, _MARGIN + (y + (tallest - len(column)) / 2) * _LINE + _HEIGHT)
        for x, column in enumerate(columns)
        for y, state in enumerate(column)
    }
    size = (_MARGIN * 2 + (len(columns) - 1) * _COLUMN, _MARGIN * 2 + tallest * _LINE)
    drawn = [_arrow(i, at[start], at[end]) for i, (start, end, _) in enumerate(arrows, 1)]
    drawn += [_box(_name(state), *place) for state, place in at.items()]
    head = (
        '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path class="head" d="M0,0 L9,4 L0,8 z"/></marker></defs>'
    )
    numbers = "".join(_number(i, at[start], at[end]) for i, (start, end, _) in enumerate(arrows, 1))
    body = head + "".join(drawn) + numbers
    return (
        f'<svg class="state-diagram" viewBox="0 0 {size[0]:g} {size[1]:g}" width="{size[0]:g}" role="img">{body}</svg>'
    )


def _box(name: str, x: float, y: float) -> str:
    corner = f'x="{x - _WIDTH / 2:g}" y="{y - _HEIGHT / 2:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="9"'
    text = f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle">{html.escape(name)}</text>'
    return f'<rect class="box" {corner}/>{text}'


def _curve(a: tuple[float, float], b: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    """Start, two control points and end of an arrow: forwards through the sides, others around the boxes."""
    if a == b:
        x, y = a
        return (x - 30, y - _HEIGHT / 2), (x - 50, y - 70), (x + 50, y - 70), (x + 30, y - _HEIGHT / 2)
    if b[0] > a[0]:
        start, end = (a[0] + _WIDTH / 2, a[1]), (b[0] - _WIDTH / 2, b[1])
        lift = 80.0 if b[0] - a[0] > _COLUMN and a[1] == b[1] else 0.0
        return start, (start[0] + 45, start[1] - lift), (end[0] - 45, end[1] - lift), end
    if b[0] == a[0]:
        side, down = (1, 1) if b[1] > a[1] else (-1, -1)
        start, end = (a[0] + side * 25, a[1] + down * _HEIGHT / 2), (b[0] + side * 25, b[1] - down * _HEIGHT / 2)
        out = side * (12 if abs(b[1] - a[1]) <= _LINE else 90)
        return start, (start[0] + out, start[1] + down * 15), (end[0] + out, end[1] - down * 15), end
    start, end = (a[0], a[1] + _HEIGHT / 2), (b[0], b[1] + _HEIGHT / 2)
    return start, (start[0], start[1] + 60), (end[0], end[1] + 60), end


def _arrow(number: int, a: tuple[float, float], b: tuple[float, float]) -> str:
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = _curve(a, b)
    path = f"M{x0:g},{y0:g} C{x1:g},{y1:g} {x2:g},{y2:g} {x3:g},{y3:g}"
    return f'<path class="arrow" marker-end="url(#head)" d="{path}"/>'


def _number(number: int, a: tuple[float, float], b: tuple[float, float]) -> str:
    """A small circle on the arrow; arrows that cross carry it at different parts of their length."""
    t = (0.5, 0.38, 0.62)[number % 3]
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(w * point[axis] for w, point in zip(weights, _curve(a, b), strict=True)) for axis in (0, 1))
    return (
        f'<circle class="number" cx="{x:.0f}" cy="{y:.0f}" r="9"/>'
        f'<text class="small" x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{number}</text>'
    )
