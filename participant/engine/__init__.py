"""Where the local step runs: in threads, part by part, or on a Dask cluster (`dask_engine`, an optional extra)."""

from participant.engine.thread_engine import Engine

__all__ = ["Engine"]
