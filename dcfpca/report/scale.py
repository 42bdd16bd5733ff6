"""Chart axes: from values to pixels, and the positions of ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

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
