"""Rules that a site's data suggests: lines of `[rules]` for a person to read, correct and paste. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from dcfpca.rpca.method import FloatArray
from participant.data.facts import FeatureProfile

MOST_FEATURES = 200
"""Of more, no pairs are compared."""
EXPECTED_BREACHES = 20.0
"""An order is no chance if values of different samples would break it that often."""
RARE = 500
"""One sample in so many may break an order, as an error does."""
ALIKE = 3.0
"""Features whose medians and spreads differ by a larger factor have different units."""
END_SHARE, FEWEST_AT_END = 0.01, 3


def proposed_rules(profiles: Sequence[FeatureProfile], values: FloatArray) -> list[str]:
    """Lines of `[rules]` that the data suggests, ready to paste; none where it suggests nothing.

    `values` has a row for every profile.
    """
    missing = {one.name: list(one.sentinels) for one in profiles if one.sentinels}
    codes = {one.name: list(one.values) for one in profiles if one.kind == "binary"}
    ranges = {
        one.name: ends
        for one, own in zip(profiles, values, strict=True)
        if one.kind in ("codes", "numeric") and (ends := _ends(own, one))
    }
    never = [
        one.name
        for one in profiles
        if one.kind == "numeric" and one.least_but_sentinels >= 0 and one.name not in ranges
    ]
    pairs = [[profiles[low].name, profiles[high].name] for low, high in ordered_pairs(profiles, values)]
    lines = [
        *([f"missing = {_inline(missing)}"] if missing else []),
        *([f"range = {_inline(ranges)}"] if ranges else []),
        *([f"codes = {_inline(codes)}"] if codes else []),
        *([f"non_negative = {json.dumps(never, ensure_ascii=False)}"] if never else []),
        *([f"ordered = {json.dumps(pairs, ensure_ascii=False)}"] if pairs else []),
    ]
    return ["[rules]", *lines] if lines else []


def _ends(values: FloatArray, one: FeatureProfile) -> list[float]:
    """Least and greatest of a scale: values pile up at both ends, as in percentages and grades; empty otherwise."""
    there = values[~np.isnan(values) & ~np.isin(values, one.sentinels)]
    least, greatest = float(there.min()), float(there.max())
    needed = max(FEWEST_AT_END, END_SHARE * there.size)
    piled = all(np.count_nonzero(there == end) >= needed for end in (least, greatest))
    return [least, greatest] if piled else []


def ordered_pairs(profiles: Sequence[FeatureProfile], values: FloatArray) -> list[tuple[int, int]]:
    """Pairs of features in one unit of which the first never exceeds the second in a sample, although it would if
    samples were mixed; without those that follow from two others."""
    numeric = [row for row, one in enumerate(profiles) if one.kind == "numeric"]
    if len(numeric) > MOST_FEATURES:
        return []
    clean = {row: np.where(np.isin(values[row], profiles[row].sentinels), np.nan, values[row]) for row in numeric}
    found = {
        (low, high)
        for low in numeric
        for high in numeric
        if low != high and _alike(profiles[low], profiles[high]) and _is_ordered(clean[low], clean[high])
    }
    implied = {(a, d) for a, b in found for c, d in found if b == c}
    return sorted(found - implied)


def _alike(one: FeatureProfile, other: FeatureProfile) -> bool:
    def within(a: float, b: float) -> bool:
        return min(a, b) > 0 and max(a, b) <= ALIKE * min(a, b)

    return within(one.mad, other.mad) and within(abs(one.median), abs(other.median))


def _is_ordered(low: FloatArray, high: FloatArray) -> bool:
    both = ~np.isnan(low) & ~np.isnan(high)
    below, above = low[both], high[both]
    if not below.size or np.count_nonzero(below > above) > below.size // RARE or np.mean(below < above) < 0.5:
        return False
    mixed = np.searchsorted(np.sort(above), below, side="left").mean()  # how many values of others each exceeds
    return bool(mixed >= EXPECTED_BREACHES)


def _inline(table: Mapping[str, Sequence[float]]) -> str:
    """A table on one line of TOML."""
    pairs = (
        f"{json.dumps(name, ensure_ascii=False)} = [{', '.join(f'{x:g}' for x in own)}]" for name, own in table.items()
    )
    return f"{{ {', '.join(pairs)} }}"
