"""Prometheus metrics of the aggregator: counters and gauges, never a value from data.

Counters are incremented where things happen. Gauges (who is connected, the state of each run) are read from the
run registry at every scrape, so that they cannot drift from the truth.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aggregator.run.rules import awaited
from aggregator.run.state import Run, Status
from dcfpca.v1.admin_pb2 import RoundView
from dcfpca.version import __version__
from dcfpca.web_server import Request, Response, not_found

if TYPE_CHECKING:
    from aggregator.run_registry import RunRegistry
    from aggregator.runner import Runner
    from aggregator.trust import Trust

SHOWN_SECONDS = 3600.0
"""How long a run that is over keeps its own series; run ids must not pile up in the time series database."""

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Telemetry:
    """Counters that the service increments as things happen."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        Info("dcfpca_aggregator", "Software of the aggregator.", registry=own).info({"version": __version__})
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        self._rounds = Counter("dcfpca_rounds", "Rounds that reached a consensus.", registry=own)
        self._reopened = Counter("dcfpca_attempts_failed", "Attempts at a round that had to be repeated.", registry=own)
        self._dropouts = Counter("dcfpca_dropouts", "Members of a cohort missing from a finished round.", registry=own)
        self._bytes = Counter("dcfpca_payload_bytes", "Payload of finished rounds.", ["direction"], registry=own)
        self._round_seconds = _histogram("dcfpca_round_seconds", "From opening a round to its consensus.", own)
        self._phase_seconds = _histogram("dcfpca_phase_seconds", "Time spent in a phase.", own, "phase")
        self.messages = Counter("dcfpca_messages", "Messages of rounds by fate.", ["message", "fate"], registry=own)
        self.answers = Counter("dcfpca_answers", "Answers to proposals.", ["answer"], registry=own)
        self._calls = Counter("dcfpca_calls", "gRPC calls by outcome.", ["method", "status"], registry=own)
        self._call_seconds = _histogram("dcfpca_call_seconds", "Time to answer a call.", own, "method")
        self._stages: dict[str, tuple[tuple[str, int, int, str, str], float]] = {}
        self._counted: dict[str, RoundView] = {}

    def stage_changed(self, run: Run, last: RoundView | None, now: float) -> None:
        """A run went on to another phase, attempt, round or status; `last` is its latest finished round."""
        before, since = self._stages.get(run.run_id, (None, now))
        stage = run.stage()
        if before is not None and before != stage:
            if before[3] != "over":
                self._phase_seconds.labels(before[3]).observe(max(0.0, now - since))
            if run.status is Status.PAUSED or (before[1] == stage[1] and before[2] < stage[2]):
                self._reopened.inc()
        if before != stage:
            self._stages[run.run_id] = (stage, now)
        if last is not None and self._counted.get(run.run_id) is not last:
            self._counted[run.run_id] = last
            self._rounds.inc()
            self._dropouts.inc(len(last.dropouts))
            self._round_seconds.observe(last.seconds)
            self._bytes.labels("received").inc(last.bytes_received)
            self._bytes.labels("sent").inc(last.bytes_sent)
        if run.status.over:  # its last round has been told
            self._counted.pop(run.run_id, None)

    def forget(self, run_id: str) -> None:
        """A run was deleted."""
        self._stages.pop(run_id, None)
        self._counted.pop(run_id, None)

    def call_ended(self, method: str, status: str, seconds: float | None = None) -> None:
        """A call was answered with this gRPC status; `seconds` is how long a unary one took."""
        self._calls.labels(method, status).inc()
        if seconds is not None:
            self._call_seconds.labels(method).observe(seconds)

    def watch(self, runs: RunRegistry, trust: Trust) -> None:
        """Read the gauges from these runs at every scrape."""
        self.registry.register(Levels(runs, trust))

    async def page(self, request: Request) -> Response:
        """The text that Prometheus scrapes, at /metrics."""
        if request.path != "/metrics":
            return not_found()
        return Response(generate_latest(self.registry), CONTENT_TYPE_LATEST)


class Levels(Collector):
    """Gauges, read at every scrape. Scrapes happen on the event loop, so nothing changes meanwhile."""

    def __init__(self, runs: RunRegistry, trust: Trust) -> None:
        self._runs, self._trust = runs, trust

    def collect(self) -> Iterator[Metric]:
        """All gauges."""
        yield from self._participants()
        yield from self._run_metrics()
        yield from self._store()

    def _participants(self) -> Iterator[Metric]:
        runs = self._runs
        connected = len(runs.directory.connected())
        yield Gauge("dcfpca_participants_connected", "Participants with an open stream.", value=connected)
        days = Gauge("dcfpca_certificate_days", "Days until a certificate expires.", labels=["role", "name"])
        for name in runs.directory.records:
            days.add_metric(["participant", name], runs.directory.certificate_days(name))
        mine = self._trust.credentials
        left = (mine.not_after - datetime.fromtimestamp(runs.store.now(), UTC)).total_seconds() / 86400
        days.add_metric(["aggregator", mine.identity.name], left)
        yield days

    def _run_metrics(self) -> Iterator[Metric]:
        by_status = Gauge("dcfpca_runs", "Runs in the store by status.", labels=["status"])
        runners = list(self._runs.runners.values())
        found = Tally([*(one.run.status for one in runners), *(one.status for one in self._runs.ended.values())])
        for status in Status:
            by_status.add_metric([status.value], found[status])
        yield by_status
        held = len(self._runs.held)
        yield Gauge("dcfpca_runs_held", "Runs that are damaged or in an unknown format, and not served.", value=held)
        wrong = len(self._runs.store.store.damage)
        yield Gauge("dcfpca_store_damage", "Faults that SQLite found in the tables of runs at the start.", value=wrong)
        oldest = self._runs.store.now() - SHOWN_SECONDS
        shown = [r for r in runners if not r.run.status.over or r.run.ended_at > oldest]
        yield from _run_levels(shown)

    def _store(self) -> Iterator[Metric]:
        path = self._runs.store.store.path
        size = Gauge("dcfpca_store_bytes", "Size on disk.", labels=["part"])
        size.add_metric(["store"], _size(path) + _size(Path(f"{path}-wal")))
        size.add_metric(["exports"], _tree_size(path.with_name(f"{path.name}.exports")))
        yield size


def _run_levels(runners: list[Runner]) -> Iterator[Metric]:
    """One series per run and figure. NaN where the method has no such figure or no round is finished."""
    kinds = {
        "round": "The open round, or the last one.",
        "attempt": "The attempt at it; above 1 means that something went wrong.",
        "subspace_change": "How far the subspace moved in the last finished round.",
        "rank": "Rank of the consensus.",
        "noise": "Noise level, from sums.",
        "cohort": "Participants of the run.",
        "awaited": "Participants whose message is awaited now.",
    }
    families = {name: Gauge(f"dcfpca_run_{name}", text, labels=["run"]) for name, text in kinds.items()}
    for runner in runners:
        run, progress = runner.run, runner.round_sum.consensus.progress
        at = run.attempt.ref if run.attempt else None
        figures = {
            "round": at.round if at else 0,
            "attempt": at.attempt if at else 0,
            "subspace_change": progress.change,
            "rank": progress.rank,
            "noise": progress.noise,
            "cohort": len(run.cohort),
            "awaited": len(awaited(runner.rules, run)),
        }
        for name, value in figures.items():
            families[name].add_metric([run.run_id], value)
    yield from families.values()


def _histogram(name: str, text: str, registry: CollectorRegistry, *labels: str) -> Histogram:
    return Histogram(name, text, labels, buckets=_SECONDS, registry=registry)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tree_size(path: Path) -> int:
    return sum(_size(file) for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0
