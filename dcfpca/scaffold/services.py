"""Starts and stops a consortium on one machine, as `dcfpca init local` has laid it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcfpca.errors import BadInput
from dcfpca.operator.connection import CONNECTION_KEYS, connect_settings, connected
from dcfpca.scaffold.background import Background, ProcessEnded

START_SECONDS = 90.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Consortium:
    """The processes of a directory: the aggregator, and one daemon per site."""

    directory: Path
    aggregator: Background
    sites: Sequence[Background]

    @property
    def operator_config(self) -> Path:
        """The file for `--config` of the operator's commands."""
        return self.directory / "operator" / "operator.toml"


def find_consortium(directory: Path) -> Consortium:
    """The consortium in a directory; BadInput if there is none."""
    home = directory.resolve()
    sites = sorted(path.parent for path in home.glob("sites/*/participant.toml"))
    if not sites or not (home / "aggregator" / "aggregator.toml").exists():
        hint = "make one with `dcfpca init local`"
        raise BadInput(f"{directory} has no consortium: aggregator/aggregator.toml or sites/ is missing", hint)
    daemons = [Background(path.name, path) for path in sites]
    return Consortium(home, Background("the aggregator", home / "aggregator"), daemons)


def start_consortium(consortium: Consortium, note: Callable[[str], None]) -> list[str]:
    """Start what does not run, and wait until the aggregator listens and every site is connected.

    Returns the names of the processes that were started.
    """
    home, ready = consortium.aggregator.directory, consortium.aggregator.directory / "ready"
    if not consortium.aggregator.is_running():
        ready.unlink(missing_ok=True)
    started = consortium.aggregator.start(["aggregator.main", "serve", "--config", str(home / "aggregator.toml")])
    _until(ready.exists, [consortium.aggregator], "the start of the aggregator")
    note(f"the aggregator {'listens' if started else 'was running already'} at {ready.read_text().strip()}")
    names = [consortium.aggregator.name] if started else []
    for site in consortium.sites:
        new = site.start(["participant.main", "serve", "--config", str(site.directory / "participant.toml")])
        note(f"{site.name} {'is started' if new else 'was running already'}")
        names += [site.name] if new else []
    sites = [site.name for site in consortium.sites]
    settings = connect_settings(dict.fromkeys(CONNECTION_KEYS), consortium.operator_config)
    with connected(settings) as operator:
        _until(lambda: operator.are_connected(sites), consortium.sites, "the sites' connection")
    return names


def stop_consortium(consortium: Consortium, note: Callable[[str], None]) -> list[str]:
    """Stop the sites, then the aggregator; returns the names of those that were running."""
    names = []
    for process in (*consortium.sites, consortium.aggregator):
        stopped = process.stop()
        note(f"{process.name} {'is stopped' if stopped else 'was not running'}")
        names += [process.name] if stopped else []
    return names


def _until(done: Callable[[], bool], processes: Sequence[Background], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not done():
        for process in processes:
            process.require_running()
        if time.monotonic() > deadline:
            logs = ", ".join(str(process.log) for process in processes)
            raise ProcessEnded(f"{what} did not happen within {START_SECONDS:g} s", f"the logs: {logs}")
        time.sleep(_LOOK_SECONDS)
