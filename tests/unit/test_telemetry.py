"""Metrics: what is counted, once each, under the documented names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.run.state import Attempt, Phase, Run, Status
from aggregator.telemetry import Telemetry
from dcfpca.run_references import AttemptRef
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from dcfpca.v1.admin_pb2 import RoundView
from dcfpca.web_server import Request
from participant import telemetry as at_site


async def _samples(telemetry: Telemetry | at_site.Telemetry) -> dict[str, float]:
    response = await telemetry.page(Request("GET", "/metrics"))
    assert isinstance(response.body, bytes)
    families = text_string_to_metric_families(response.body.decode())
    return {
        sample.name + "".join(f"[{value}]" for value in sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
        if "le" not in sample.labels
    }


def _run(phase: Phase, round: int = 1, attempt: int = 1) -> Run:
    opened = Attempt(ref=AttemptRef("r", round, attempt), first_attempt=1, phase=phase, opened_at=0.0)
    return Run(run_id="r", created_at=0.0, status=Status.RUNNING, attempt=opened)


async def test_a_finished_round_is_counted_once_however_often_it_is_told() -> None:
    telemetry = Telemetry()
    view = RoundView(round=1, seconds=2.5, bytes_received=10, bytes_sent=20, dropouts=["c"])
    telemetry.stage_changed(_run(Phase.SUMMING), None, 0.0)
    telemetry.stage_changed(_run(Phase.UPLOADING, 2), view, 1.0)
    telemetry.stage_changed(_run(Phase.SUMMING, 2), view, 2.0)
    got = await _samples(telemetry)
    assert got["dcfpca_rounds_total"] == 1
    assert got["dcfpca_dropouts_total"] == 1
    assert got["dcfpca_round_seconds_sum"] == 2.5
    assert (got["dcfpca_payload_bytes_total[received]"], got["dcfpca_payload_bytes_total[sent]"]) == (10, 20)


async def test_each_phase_is_timed_from_its_beginning_to_its_end() -> None:
    telemetry = Telemetry()
    for phase, at in ((Phase.ADVERTISING, 0.0), (Phase.SHARING, 1.5), (Phase.UPLOADING, 4.0)):
        telemetry.stage_changed(_run(phase), None, at)
    got = await _samples(telemetry)
    assert got["dcfpca_phase_seconds_sum[advertising]"] == 1.5
    assert got["dcfpca_phase_seconds_sum[sharing]"] == 2.5
    assert "dcfpca_phase_seconds_sum[uploading]" not in got


async def test_a_repeated_attempt_and_a_pause_count_as_failed_attempts() -> None:
    telemetry = Telemetry()
    telemetry.stage_changed(_run(Phase.UPLOADING), None, 0.0)
    telemetry.stage_changed(_run(Phase.UPLOADING, attempt=2), None, 1.0)
    telemetry.stage_changed(replace(_run(Phase.UPLOADING, attempt=2), status=Status.PAUSED), None, 2.0)
    assert (await _samples(telemetry))["dcfpca_attempts_failed_total"] == 2


async def test_fates_and_answers_are_unexplained_text() -> None:
    telemetry = Telemetry()
    for fate in ("accepted", "accepted", "late"):
        telemetry.messages.labels("update", fate).inc()
    telemetry.answers.labels("refused").inc()
    got = await _samples(telemetry)
    assert got["dcfpca_messages_total[accepted][update]"] == 2
    assert got["dcfpca_messages_total[late][update]"] == 1
    assert got["dcfpca_answers_total[refused]"] == 1


async def test_only_the_metrics_path_is_answered() -> None:
    response = await Telemetry().page(Request("GET", "/"))
    assert response.status == 404


@pytest.mark.parametrize(
    ("keys", "products"),
    [
        ({"method": "subspace", "subspace": {"passes": 3}}, 7),
        ({"method": "gradient", "gradient": {"local_iterations": 2, "inner_steps": 3}}, 16),
    ],
)
async def test_the_rate_is_the_products_of_the_step_by_its_seconds(keys: dict[str, object], products: int) -> None:
    spec = parse_spec({"rows": 30, "rank": 4, **keys})
    telemetry = at_site.Telemetry()
    telemetry.step(Terms.of(spec).method.solver.step_flops(50), 1, 0.5)
    got = await _samples(telemetry)
    assert got["dcfpca_local_step_flops"] == products * 2 * 30 * 4 * 50 / 0.5
    assert got["dcfpca_local_step_seconds_count"] == 1


async def test_the_opening_round_has_no_products_and_leaves_the_rate_alone() -> None:
    telemetry = at_site.Telemetry()
    telemetry.step(1.0, 0, 0.5)
    got = await _samples(telemetry)
    assert got["dcfpca_local_step_flops"] == 0
    assert got["dcfpca_local_step_seconds_count"] == 1


@pytest.mark.slow
def test_peak_memory_grows_with_what_is_held() -> None:
    before = at_site.peak_memory()
    held = np.ones(int(before) // 8 + (64 << 20) // 8)
    assert at_site.peak_memory() >= before
    assert at_site.peak_memory() > held.nbytes
