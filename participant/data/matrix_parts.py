"""The part of the site's matrix that a run uses: the features of its spec, and the samples that have any of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from participant.data.facts import measure, without_empty_samples
from participant.data.matrix import Matrix, keep_samples, select_features
from participant.data.sample_ids import first_of_each_person


@dataclass(slots=True)
class MatrixParts:
    """Parts by the features that specs name; finding the empty samples of one takes a pass, made once."""

    matrix: Matrix
    has_missing: bool
    _found: dict[tuple[tuple[str, ...], bool], Matrix] = field(default_factory=dict)
    _persons: dict[tuple[str, ...], Matrix] = field(default_factory=dict)

    def part(self, features: tuple[str, ...], origin: str, *, may_lack: bool = False) -> Matrix:
        """The part with these features, all if there are none; BadInput names those that the data lacks.

        With `may_lack` the features that the data lacks are unobserved.
        """
        key = features, may_lack
        if key not in self._found:
            chosen = select_features(self.matrix, features, origin, may_lack=may_lack)
            if self.has_missing and chosen is not self.matrix:
                chosen = without_empty_samples(chosen, measure(chosen.columns, origin))
            self._found[key] = chosen
        return self._found[key]

    def one_per_person(self, features: tuple[str, ...], origin: str) -> Matrix:
        """The part with these features, of each person the first sample alone; all where no person has several."""
        if features not in self._persons:
            part = self.part(features, origin)
            self._persons[features] = keep_samples(part, first_of_each_person(part)) if part.persons else part
        return self._persons[features]
