"""Which combinations of masked updates are free of unknown masks, found by elimination over a large prime field."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Protocol

import pytest

from dcfpca.secagg import masks as pair_roots
from dcfpca.secagg.fixed_point import FloatArray
from dcfpca.secagg.messages import Opening

PRIME = (1 << 61) - 1


class MaskedAnswer(Protocol):
    """An update as the aggregator has it: whose, for which opening, under which mask keys, and with which signs."""

    @property
    def name(self) -> str: ...
    @property
    def opening(self) -> Hashable: ...
    @property
    def used(self) -> Mapping[bytes, int]: ...


class RecordedAnswer(Protocol):
    """An update with what it hides: the numbers under the masks, and the bytes that left."""

    @property
    def name(self) -> str: ...
    @property
    def opening(self) -> Opening: ...
    @property
    def used(self) -> Mapping[bytes, int]: ...
    @property
    def numbers(self) -> FloatArray: ...
    @property
    def values(self) -> bytes: ...


@contextmanager
def recorded_masks() -> Iterator[dict[bytes, int]]:
    """The keys of the masks that the running code adds (1) or subtracts (-1) meanwhile."""
    used: dict[bytes, int] = {}
    apply = pair_roots.mask_values

    def recording(values: object, key: bytes, one: str, other: str) -> None:
        used[key] = 1 if one < other else -1
        apply(values, key, one, other)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_roots, "mask_values", recording)
        yield used


def check_only_whole_sums_are_free(received: Sequence[MaskedAnswer], known: Set[bytes], honest: Sequence[str]) -> None:
    """Every combination without unknown masks has, in each opening, one and the same weight on every honest site."""
    for weights in free_combinations(received, known):
        for opening in {one.opening for one in received}:
            assert len({_weight(received, weights, name, opening) for name in honest}) == 1


def check_one_answer_per_round_and_mask(received: Iterable[RecordedAnswer]) -> None:
    """A site masks the same numbers whenever it answers a round, and under one mask sends the same bytes."""
    numbers: dict[tuple[str, int], bytes] = {}
    masked: dict[tuple[str, bytes], bytes] = {}
    for one in received:
        sent = one.numbers.tobytes()
        assert numbers.setdefault((one.name, one.opening.round), sent) == sent
        for key in one.used:
            assert masked.setdefault((one.name, key), one.values) == one.values


def free_combinations(received: Sequence[MaskedAnswer], known: Set[bytes]) -> list[list[int]]:
    """A basis of the combinations of what was received in which every unknown mask cancels."""
    unknown = sorted({key for one in received for key in one.used} - known)
    waiting = [
        ([one.used.get(key, 0) for key in unknown], [int(place == own) for own in range(len(received))])
        for place, one in enumerate(received)
    ]
    for column in range(len(unknown)):
        pivot = next((pair for pair in waiting if pair[0][column]), None)
        if pivot is None:
            continue
        waiting.remove(pivot)
        inverse = pow(pivot[0][column], -1, PRIME)
        waiting = [_without(pair, pivot, pair[0][column] * inverse) for pair in waiting]
    return [weights for _, weights in waiting]


def _without(
    pair: tuple[list[int], list[int]], pivot: tuple[list[int], list[int]], factor: int
) -> tuple[list[int], list[int]]:
    one, other = (
        [(value - factor * by) % PRIME for value, by in zip(mine, theirs, strict=True)]
        for mine, theirs in zip(pair, pivot, strict=True)
    )
    return one, other


def _weight(received: Sequence[MaskedAnswer], weights: list[int], name: str, opening: Hashable) -> int:
    mine = zip(received, weights, strict=True)
    return sum(weight for one, weight in mine if one.name == name and one.opening == opening) % PRIME
