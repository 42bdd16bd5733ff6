"""Ids of samples, names of features and the persons of samples, as they stand in the data itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from participant.data.layout import Layout
from participant.data.matrix import Matrix
from participant.data.selection import Indices


@dataclass(frozen=True, slots=True)
class RowLabels:
    """The texts of a table's lines: ids of samples or names of features, and whose each sample is."""

    names: list[str | None] = field(default_factory=list)
    persons: list[str | None] = field(default_factory=list)

    def extend(self, layout: Layout, read: Callable[[str], Sequence[Any]]) -> None:
        """Take up further lines; `read` gives their entries in a column by its name."""
        for name, into in ((layout.label, self.names), (layout.person, self.persons)):
            if name:
                into.extend(None if entry is None else str(entry) for entry in read(name))


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


def check_persons(labels: Sequence[str | None], origin: str) -> tuple[str, ...]:
    """Whose each sample is, without surrounding blanks; BadInput names the place of one that is not said.

    A label identifies a person: it is never part of the sentence.
    """
    found = tuple((label or "").strip() for label in labels)
    if "" in found:
        told = f"does not say whose sample {found.index('') + 1} is ([data] person_column, persons)"
        raise BadInput(f"the data {origin} {told}", "name a person for every sample, the same one for all of theirs")
    return found


def first_of_each_person(matrix: Matrix) -> Indices:
    """The first sample of each person, in order: which one it is depends on that person's samples alone."""
    _, first = np.unique(np.asarray(matrix.persons, dtype=object), return_index=True)
    return np.sort(first).astype(np.intp)
