"""The ring above 64 members: symmetric, of the computed degree, and connected among the honest."""

import numpy as np
import pytest

from dcfpca.secagg.neighbours import CORRUPT_SHARE, degree_for, neighbours_of
from tests.support.runs.secagg import site_names


@pytest.mark.parametrize("count", [2, 3, 64])
def test_up_to_64_everybody_masks_with_everybody(count: int) -> None:
    names = site_names(count)
    for name in names:
        assert neighbours_of(name, names, bytes(32)) == tuple(other for other in names if other != name)


@pytest.mark.parametrize("count", [65, 100, pytest.param(300, marks=pytest.mark.slow)])
def test_above_64_neighbours_are_mutual_and_as_many_as_computed(count: int) -> None:
    names = site_names(count)
    around = {name: neighbours_of(name, names, b"\x05" * 32) for name in names}
    for name, others in around.items():
        assert len(set(others)) == degree_for(count)
        assert all(name in around[other] for other in others)


def test_another_group_secret_is_another_ring() -> None:
    names = site_names(100)
    assert neighbours_of(names[0], names, bytes(32)) != neighbours_of(names[0], names, b"\x01" * 32)


@pytest.mark.parametrize("count", [65, 100, pytest.param(300, marks=pytest.mark.slow)])
def test_the_honest_stay_connected_when_a_third_conspires(count: int) -> None:
    names, draw = site_names(count), np.random.default_rng(count)
    for trial in range(10):
        secret = trial.to_bytes(32, "big")
        corrupt = set(draw.choice(names, int(CORRUPT_SHARE * count), replace=False))
        honest = [name for name in names if name not in corrupt]
        reached, waiting = {honest[0]}, [honest[0]]
        while waiting:
            for other in neighbours_of(waiting.pop(), names, secret):
                if other not in corrupt and other not in reached:
                    reached.add(other)
                    waiting.append(other)
        assert len(reached) == len(honest)
