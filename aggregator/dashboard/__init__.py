"""The read-only page: runs, live rounds, participants. It shows what operators see, and can change nothing."""

from aggregator.dashboard.http_routes import Dashboard

__all__ = ["Dashboard"]
