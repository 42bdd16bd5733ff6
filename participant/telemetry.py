"""Prometheus metrics of the daemon: times, rates, sizes and counts; never a value from the data."""

from __future__ import annotations

import resource
from collections.abc import Callable
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from dcfpca.version import __version__
from dcfpca.web_server import Request, Response, not_found

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Telemetry:
    """Counters that the daemon increments as things happen, and levels read at every scrape. A local step that fails
    costs the site its round."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        Info("dcfpca_participant", "Software of the participant.", registry=own).info({"version": __version__})
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        self._step_seconds = Histogram(
            "dcfpca_local_step_seconds", "Time of a local step, reading included.", buckets=_SECONDS, registry=own
        )
        self._rate = Gauge(
            "dcfpca_local_step_flops", "Floating point operations per second of the last local step.", registry=own
        )
        self.failures = Counter(
            "dcfpca_local_steps_failed", "Local steps that failed; the site misses their rounds.", registry=own
        )
        self.messages = Counter("dcfpca_messages", "Messages sent by fate.", ["message", "fate"], registry=own)
        self.answers = Counter("dcfpca_answers", "Answers to proposals.", ["answer"], registry=own)
        self.results = Counter("dcfpca_results", "Results written.", registry=own)
        self.connected = Gauge("dcfpca_connected", "1 while the stream of assignments is open.", registry=own)
        peak = Gauge("dcfpca_peak_memory_bytes", "Largest resident memory so far.", registry=own)
        peak.set_function(peak_memory)

    def step(self, flops: float, round: int, seconds: float) -> None:
        """Count a local step: its time, and its floating point operations per second; the opening has none."""
        self._step_seconds.observe(seconds)
        if round > 0 and seconds > 0:
            self._rate.set(flops / seconds)

    def watch_certificate(self, not_after: Callable[[], datetime]) -> None:
        """Report at every scrape how many days the certificate remains valid."""
        days = Gauge("dcfpca_certificate_days", "Days until this certificate expires.", registry=self.registry)
        days.set_function(lambda: (not_after() - datetime.now(UTC)).total_seconds() / 86400)

    async def page(self, request: Request) -> Response:
        """The text that Prometheus scrapes, at /metrics."""
        if request.path != "/metrics":
            return not_found()
        return Response(generate_latest(self.registry), CONTENT_TYPE_LATEST)


def peak_memory() -> float:
    """Largest resident size of this process, in bytes (Linux counts in kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
