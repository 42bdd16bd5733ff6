"""Charts as inline SVG. Colours come from the page's style sheet, so that they follow light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dcfpca.report.page import escape

WIDTH, HEIGHT = 720.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 28.0, 40.0


@dataclass(frozen=True, slots=True)
class Series:
    """Values at 0, 1, 2, …; NaN leaves a gap. `colour` is the number of a colour of the style sheet."""

    name: str
    values: Sequence[float]
    colour: int = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A dashed, labelled line across the chart at a value of one axis."""

    value: float
    word: str


@dataclass(frozen=True, slots=True)
class Titles:
    """The accessible name of a chart and the titles of its axes."""

    chart: str
    x: str
    y: str


def lines(
    series: Sequence[Series],
    titles: Titles,
    *,
    first: int = 0,
    places: Sequence[int] = (),
    log: bool = False,
    mark: Mark | None = None,
) -> str:
    """Line chart over the integers from `first`, or over these rising `places`."""
    count = max((len(one.values) for one in series), default=0)
    at = places or range(first, first + max(count, 1))
    x = Axis(at[0], max(at[-1], at[0] + 1), _LEFT, WIDTH - _RIGHT)
    values = [value for one in series for value in one.values] + ([mark.value] if mark and mark.value > 0 else [])
    y = (logarithmic if log else linear)(values, HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(x, y, titles), _legend(series)]
    parts += [_line(one, x, y, at) for one in series]
    if mark and (mark.value > 0 or not log):
        parts.append(_across(y.place(mark.value), mark.word))
    return framed("".join(parts), (WIDTH, HEIGHT), titles.chart)


def bars(
    series: Sequence[Series],
    titles: Titles,
    *,
    first: int = 0,
    log: bool = False,
    mark: Mark | None = None,
    over: bool = False,
) -> str:
    """Bar chart over the integers from `first`, bars grouped (`over`: overlaid); `mark` is a line after its bar."""
    count = max((len(one.values) for one in series), default=1) or 1
    x = Axis(first - 0.5, first + count - 0.5, _LEFT, WIDTH - _RIGHT)
    values = [value for one in series for value in one.values]
    y = (logarithmic if log else linear)(values, HEIGHT - _BOTTOM, _TOP)
    slot = (WIDTH - _RIGHT - _LEFT) / count
    wide = max(0.8 * slot / (1 if over else max(len(series), 1)), 0.5)
    parts = [_frame(x, y, titles), _legend(series)]
    for place, one in enumerate(series):
        offset = -0.4 * slot + (0 if over else place * wide)
        parts.append(_bars_of(one, first, (x, y), offset, wide))
    if mark:
        at = x.place(mark.value + 0.5)
        end = "end" if at > WIDTH / 2 else "start"
        shift = -6 if end == "end" else 6
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="word" x="{at + shift:.1f}" y="{_TOP + 12}" text-anchor="{end}">{mark.word}</text>')
    return framed("".join(parts), (WIDTH, HEIGHT), titles.chart)


@dataclass(frozen=True, slots=True)
class CentredBar:
    """A labelled bar from the middle to the left or right; `share` in −1 … 1, NaN for a missing value."""

    name: str
    share: float
    title: str
    kind: str = "c1"


def centred_bars(bars: Sequence[CentredBar], title: str, kind: str, *, width: float, label: float, step: float) -> str:
    """One bar below the other, with their names at the left; `kind` is the class of the drawing."""
    half = (width - label) / 2
    middle, high = label + half, step * len(bars)
    parts = [f'<line class="grid" x1="{middle:.1f}" x2="{middle:.1f}" y1="0" y2="{high:.0f}"/>']
    for line, bar in enumerate(bars):
        base, name = line * step + step - 4, escape(bar.name)
        parts.append(f'<text class="tick" x="{label - 6:.0f}" y="{base:.1f}" text-anchor="end">{name}</text>')
        if math.isnan(bar.share):
            parts.append(f'<text class="tick" x="{middle + 4:.1f}" y="{base:.1f}">missing</text>')
            continue
        long = max(abs(bar.share) * half, 0.75)
        begin = middle if bar.share > 0 else middle - long
        parts.append(
            f'<rect class="{bar.kind}" x="{begin:.1f}" y="{line * step + 2:.1f}" width="{long:.1f}" '
            f'height="{step - 4:.0f}"><title>{escape(bar.title)}</title></rect>'
        )
    return framed("".join(parts), (width, high), title, kind)


def framed(inside: str, size: tuple[float, float], title: str, kind: str = "") -> str:
    """A drawing of this size, with its accessible name."""
    named = f' class="{kind}"' if kind else ""
    box = f"0 0 {size[0]:.0f} {size[1]:.0f}"
    return f'<svg{named} viewBox="{box}" role="img" aria-label="{escape(title)}">{inside}</svg>'


def _line(one: Series, x: Axis, y: Axis, places: Sequence[int]) -> str:
    runs: list[list[str]] = [[]]
    dots = []
    for at, value in zip(places, one.values, strict=False):
        if not math.isfinite(value) or (y.log and value <= 0):
            runs.append([])
            continue
        here = f"{x.place(at):.1f},{y.place(value):.1f}"
        runs[-1].append(here)
        across, down = here.split(",")
        label = f"{escape(one.name)}, {at}: {value:.4g}"
        dots.append(f'<circle class="c{one.colour}" cx="{across}" cy="{down}" r="2.5"><title>{label}</title></circle>')
    drawn = "".join(f'<polyline class="l{one.colour}" points="{" ".join(run)}"/>' for run in runs if len(run) > 1)
    return drawn + "".join(dots)


def _bars_of(one: Series, first: int, axes: tuple[Axis, Axis], offset: float, wide: float) -> str:
    x, y = axes
    floor = HEIGHT - _BOTTOM
    made = []
    for number, value in enumerate(one.values):
        if not math.isfinite(value) or (y.log and value <= 0):
            continue
        top = y.place(value)
        made.append(
            f'<rect class="c{one.colour}" x="{x.place(first + number) + offset:.1f}" y="{top:.1f}" '
            f'width="{wide:.1f}" height="{max(floor - top, 0.5):.1f}">'
            f"<title>{escape(one.name)}, {first + number}: {value:.4g}</title></rect>"
        )
    return "".join(made)


def _frame(x: Axis, y: Axis, titles: Titles) -> str:
    grid = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.place(value):.1f}" y2="{y.place(value):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 8}" y="{y.place(value) + 4:.1f}" text-anchor="end">{label}</text>'
        for value, label in y.ticks()
    ]
    title = f'<text class="axis" x="8" y="14">{escape(titles.y)}</text>'
    title += f'<text class="axis" x="{WIDTH - _RIGHT}" y="{HEIGHT - 6:.1f}" text-anchor="end">{escape(titles.x)}</text>'
    down = HEIGHT - _BOTTOM + 16
    below = [
        f'<text class="tick" x="{x.place(value):.1f}" y="{down:.1f}" text-anchor="middle">{label}</text>'
        for value, label in x.ticks(10)
        if value == round(value)
    ]
    return "".join([*grid, title, *below])


def _across(at: float, word: str) -> str:
    return (
        f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text class="word" x="{WIDTH - _RIGHT - 4}" y="{at - 5:.1f}" text-anchor="end">{escape(word)}</text>'
    )


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    parts, at = [], WIDTH - _RIGHT
    for one in reversed([one for one in series if one.name]):
        at -= 22 + 7 * len(one.name)
        parts.append(f'<rect class="c{one.colour}" x="{at:.1f}" y="5" width="10" height="10" rx="2"/>')
        parts.append(f'<text class="tick" x="{at + 14:.1f}" y="14">{escape(one.name)}</text>')
    return "".join(parts)


_SMALLEST = 1e-290
"""Values and differences below this count as zero: their logarithms would leave the range of floats."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from [least, most] to pixels [begin, end], linearly or by powers of ten."""

    least: float
    most: float
    begin: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value; values outside the axis are clipped to its ends."""
        low, high, here = (self._turned(number) for number in (self.least, self.most, value))
        share = (here - low) / (high - low) if high > low else 0.5
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)

    def ticks(self, about: int = 5) -> list[tuple[float, str]]:
        """Round values with their labels."""
        return _log_ticks(self.least, self.most, about) if self.log else _even_ticks(self.least, self.most, about)

    def _turned(self, value: float) -> float:
        return math.log10(max(value, self.least)) if self.log else value


def linear(values: Iterable[float], begin: float, end: float) -> Axis:
    """An axis over zero and these values."""
    known = [0.0, *(value for value in values if math.isfinite(value))]
    least, most = min(known), max(known)
    return Axis(least, most if most - least > _SMALLEST else least + 1.0, begin, end)


def logarithmic(values: Iterable[float], begin: float, end: float) -> Axis:
    """An axis over the positive ones of these values, out to whole powers of ten."""
    known = [value for value in values if math.isfinite(value) and value > _SMALLEST] or [0.1, 1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    return Axis(10.0**low, 10.0 ** max(high, low + 1), begin, end, log=True)


def _log_ticks(least: float, most: float, about: int) -> list[tuple[float, str]]:
    low, high = round(math.log10(least)), round(math.log10(most))
    step = max(1, math.ceil((high - low) / about))
    return [(10.0**power, _power(power)) for power in range(low, high + 1, step)]


def _power(power: int) -> str:
    if 0 <= power <= 3:
        return str(10**power)
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _even_ticks(least: float, most: float, about: int) -> list[tuple[float, str]]:
    rough = (most - least) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first = math.ceil(least / step - 1e-9)
    last = math.floor(most / step + 1e-9)
    return [(number * step, f"{number * step:.10g}") for number in range(first, last + 1)]
