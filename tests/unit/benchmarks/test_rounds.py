import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rounds.masking_cost import measure_masking
from benchmarks.rounds.round_cost import RoundCase, SetUpClock, cpu_seconds, figures_of, peak_bytes
from dcfpca.methods import method_of
from dcfpca.rpca.method import Outcome, TensorMessage, Total
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2 as pb


def test_the_opening_exchange_is_not_counted() -> None:
    rounds = [pb.RoundView(round=0, seconds=9, bytes_sent=1000, bytes_received=1000)]
    rounds += [pb.RoundView(round=k, seconds=k, bytes_sent=30, bytes_received=10) for k in (1, 2, 4)]
    enrolled = [pb.EnrolledView(participant=name) for name in ("a", "b")]
    found = figures_of(pb.RunView(rounds=rounds, enrolled=enrolled), wall=20.0, peak=None)
    assert (found.median_round_s, found.min_round_s) == (2, 1)
    assert found.mean_wall_round_s == 5
    assert found.bytes_per_participant_round == 3 * 40 / (3 * 2)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
def test_the_peak_is_at_least_what_was_touched() -> None:
    before = bytearray(b"x") * (50 << 20)
    peak = peak_bytes(os.getpid())
    assert peak is not None
    assert peak > len(before)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")
def test_cpu_is_counted_over_processes() -> None:
    own = os.times()
    assert cpu_seconds([os.getpid()]) >= 0.9 * (own.user + own.system) - 0.05
    assert cpu_seconds([]) == 0.0


def test_masking_costs_more_with_more_members_and_the_set_up_too() -> None:
    few, many = (measure_masking(count, 20_000, rounds=3) for count in (3, 40))
    assert 0.0 < few.masking_cpu_s < many.masking_cpu_s
    assert 0.0 < few.set_up_cpu_s < many.set_up_cpu_s


def test_a_run_of_idle_sites_goes_through_all_its_rounds() -> None:
    method = method_of(
        parse_spec(RoundCase(3, rows=20, rank=4, rounds=40, aggregation="plain", precision=64).spec(["a"]))
    )
    consensus = method.begin()
    while consensus.outcome is None:
        layout = method.stage(consensus.stage).up
        zeros = TensorMessage.unflatten(layout, np.zeros(layout.size))
        consensus = method.advance(consensus, Total(zeros, 3))
    assert consensus.outcome is Outcome.OUT_OF_ROUNDS
    assert consensus.round == 40


def test_the_set_up_is_timed_from_the_end_of_enrolment_to_the_first_round() -> None:
    clock = SetUpClock()
    for now, (phase, round) in enumerate(
        [("enrolling", 0), ("advertising", 0), ("sharing", 0), ("uploading", 0), ("uploading", 1)]
    ):
        clock.see(pb.RunView(phase=phase, round=round), now)
    assert clock.seconds == 2
