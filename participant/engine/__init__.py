"""Engines for the local step: threads, partitions, or a Dask cluster (`dask_engine`, an optional extra)."""

from participant.engine.thread_engine import Engine

__all__ = ["Engine"]
