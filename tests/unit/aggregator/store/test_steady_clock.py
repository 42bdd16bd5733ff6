"""The clock of runs when the clock of the machine is set."""

from __future__ import annotations

import pytest

from aggregator.store.thread import SLEW, SteadyClock


class Machine:
    wall, monotonic = 1_000_000.0, 50.0

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.mark.parametrize("step", [-3600.0, 3600.0, -0.5])
def test_durations_stay_right_within_the_slew_when_the_clock_is_set(step: float) -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.wall, lambda: machine.monotonic)
    began = clock.now()
    machine.sleep(5)
    machine.wall += step
    machine.sleep(5)
    assert 10 * (1 - SLEW) <= clock.now() - began <= 10 * (1 + SLEW)


def test_the_time_of_day_is_reached_again() -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.wall, lambda: machine.monotonic)
    machine.wall -= 60
    told = [clock.now()]
    for _ in range(40):
        machine.sleep(60)
        told.append(clock.now())
    assert told == sorted(told)
    assert told[-1] == pytest.approx(machine.wall)
