"""Ids of samples and names of features that stand in the data itself: each must be there, and only once."""

from __future__ import annotations

from collections.abc import Sequence

from dcfpca.errors import BadInput


def check_ids(labels: Sequence[str | None], origin: str, column: str = "") -> tuple[str, ...]:
    """The labels without surrounding blanks; BadInput names the place of one that is empty or occurs twice.

    A label may identify a person: it is never part of the sentence.
    """
    seen: dict[str, int] = {}
    where = f", column {column}" if column else ""
    for place, label in enumerate(labels, start=1):
        text = (label or "").strip()
        if not text:
            raise BadInput(f"the data {origin} has no id in entry {place}{where}", "give every sample an id")
        if text in seen:
            told = f"the same id in entries {seen[text]} and {place}{where}"
            raise BadInput(f"the data {origin} has {told}", "give every sample an id of its own")
        seen[text] = place
    return tuple(seen)
