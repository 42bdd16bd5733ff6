"""Suggestions for a name that is not there: the closest of those that are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or an empty text if no known name is close; upper and lower case count as equal."""
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else ""


def listed(names: Sequence[str], most: int = 8) -> str:
    """The names, separated by commas; of many only the first, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
