"""A federation of real services on this machine, for as long as a benchmark needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dcfpca.operator.client import Operator
from dcfpca.operator.connection import CONNECTION_KEYS, connect_settings, connected
from dcfpca.rpca.method import FloatArray
from dcfpca.scaffold.config_texts import Tables
from dcfpca.scaffold.local_consortium import Consortium, LocalPlan, create_consortium, start_consortium, stop_consortium


def planned(directory: Path, names: list[str], participant: Tables, aggregator: Tables | None = None) -> LocalPlan:
    """Sites with these further keys each, and their data beside their configuration."""
    data = {name: directory / "sites" / name / "data.npy" for name in names}
    # No web page: several federations may run on one machine.
    tables = {"dashboard": {"listen": ""}, **(aggregator or {})}
    return LocalPlan("bench", data, aggregator=tables, participants=dict.fromkeys(names, participant))


@contextmanager
def local_federation(
    directory: Path, plan: LocalPlan, data: Mapping[str, FloatArray], aggregator: list[str] | None = None
) -> Iterator[tuple[Consortium, Operator]]:
    """The services, all connected, and an operator; stopped at the end.

    `aggregator` are words before the aggregator's own command line, for one that starts by another module.
    """
    consortium = create_consortium(directory, plan)
    for name, own in data.items():
        np.save(plan.sites[name], own)
    try:
        if aggregator:
            config = consortium.aggregator.directory / "aggregator.toml"
            consortium.aggregator.start([*aggregator, "aggregator.main", "serve", "--config", str(config)])
        start_consortium(consortium, lambda _: None)
        settings = connect_settings(dict.fromkeys(CONNECTION_KEYS), consortium.operator_config)
        with connected(settings) as operator:
            yield consortium, operator
    finally:
        stop_consortium(consortium, lambda _: None)


def pid_of(consortium: Consortium, site: str | None = None) -> int:
    """The process of the aggregator, or of a site."""
    pid = (consortium.sites[site] if site else consortium.aggregator).pid()
    assert pid is not None, f"{site or 'the aggregator'} is not running"
    return pid
