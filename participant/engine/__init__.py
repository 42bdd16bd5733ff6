"""Engines for the local step: threads, partitions, or a Dask cluster (`dask_engine`, an optional extra)."""
