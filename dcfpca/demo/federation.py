"""The files of a federation below one directory, and its processes: one aggregator, one daemon per site.

DIR/ca/                     the certificate authority
DIR/aggregator/             certificate, aggregator.toml, store, log
DIR/operator/               certificate, operator.toml
DIR/sites/NAME/             certificate, participant.toml, data.npy, state, results, log
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.demo.child_processes import Children
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.scaffold.listening_ports import free_ports

AGGREGATOR = "aggregator"
_HOSTS = ("localhost", "127.0.0.1")
_START_SECONDS = 60.0

Value = str | int | float | bool
Toml = Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site to set up: its policy, and further tables of its configuration."""

    name: str
    policy: Mapping[str, Value] = field(default_factory=dict)
    more: Toml = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AggregatorPlace:
    """Where the aggregator listens (on a free port of loopback, if empty), the hosts in its certificate, and the module
    that starts it, with its words."""

    listen: str = ""
    hosts: tuple[str, ...] = _HOSTS
    module: tuple[str, ...] = ("aggregator.main",)


class Federation:
    """Sets up the files and processes of a consortium on one machine."""

    def __init__(
        self,
        directory: Path,
        children: Children,
        consortium: str = "demo",
        place: AggregatorPlace = AggregatorPlace(),
    ) -> None:
        self.directory = directory
        self.children = children
        self._place = place
        self._now = datetime.now(UTC)
        self._authority: Authority = create_authority(directory / "ca", consortium, self._now)
        self._sites: list[str] = []
        self.address = ""

    @property
    def operator_config(self) -> Path:
        """The file for `--config` of the operator's commands."""
        return self.directory / "operator" / "operator.toml"

    @property
    def sites(self) -> Sequence[str]:
        """The names of the sites, in the order they were added."""
        return tuple(self._sites)

    def site_directory(self, name: str) -> Path:
        """The directory of a site."""
        return self.directory / "sites" / name

    def results_directory(self, name: str, run_id: str) -> Path:
        """The directory with a site's result of a run."""
        return self.site_directory(name) / "results" / run_id

    def start_aggregator(self, more: Toml | None = None) -> str:
        """Issue its certificate, write its config and the operator's, start it; returns host:port."""
        home = self._issue(Role.AGGREGATOR, AGGREGATOR, self.directory / AGGREGATOR, self._place.hosts)
        self._write_aggregator(self._place.listen or f"127.0.0.1:{free_ports(1)[0]}", more or {})
        arguments = [*self._place.module, "serve", "--config", str(home / "aggregator.toml")]
        self.children.start(AGGREGATOR, arguments, home / "log")
        self.address = self._await_aggregator()
        self._write_operator()
        return self.address

    def restart_aggregator(self) -> None:
        """Restart the aggregator after it was killed, and wait until it listens."""
        (self.directory / AGGREGATOR / "ready").unlink()
        self.children.restart(AGGREGATOR)
        self._await_aggregator()

    def add_site(self, plan: SitePlan, data: NDArray[np.float64]) -> None:
        """Issue a site's certificate, write its data and config, start its daemon."""
        home = self._issue(Role.PARTICIPANT, plan.name, self.site_directory(plan.name))
        np.save(home / "data.npy", data)
        tables: dict[str, Mapping[str, Value]] = {
            "aggregator": {"address": self.address},
            "identity": {"ca": "ca.crt", "cert": f"{plan.name}.crt", "key": f"{plan.name}.key"},
            "data": {"path": "data.npy"},
            "policy": dict(plan.policy),
            "state": {"dir": "state"},
            "results": {"dir": "results"},
        }
        config = home / "participant.toml"
        config.write_text(toml({**tables, **plan.more}))
        self._sites.append(plan.name)
        self.children.start(plan.name, ["participant.main", "serve", "--config", str(config)], home / "log")

    def _issue(self, role: Role, name: str, home: Path, hosts: Sequence[str] = ()) -> Path:
        issue_credentials(self._authority, role, name, home, now=self._now, hosts=hosts)
        return home

    def _write_aggregator(self, listen: str, more: Toml) -> None:
        tables: dict[str, Mapping[str, Value]] = {
            "server": {"listen": listen, "ca": "ca.crt", "cert": "aggregator.crt", "key": "aggregator.key"},
            "store": {"path": "store.db"},
            # No web ports: several federations may run on one machine.
            "telemetry": {"ready_file": "ready", "metrics": ""},
            "dashboard": {"listen": ""},
        }
        for name, keys in more.items():
            tables[name] = {**tables.get(name, {}), **keys}
        (self.directory / AGGREGATOR / "aggregator.toml").write_text(toml(tables))

    def _write_operator(self) -> None:
        home = self._issue(Role.OPERATOR, "operator", self.directory / "operator")
        keys = {"aggregator": self.address, "ca": "ca.crt", "cert": "operator.crt", "key": "operator.key"}
        (home / "operator.toml").write_text(toml({"operator": keys}))

    def _await_aggregator(self) -> str:
        ready = self.directory / AGGREGATOR / "ready"
        self.children.until(ready.exists, "the start of the aggregator", _START_SECONDS)
        return ready.read_text().strip()


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Flat tables as TOML; strings, numbers, booleans and lists are the same as in JSON."""
    lines: list[str] = []
    for name, keys in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""]
    return "\n".join(lines)
