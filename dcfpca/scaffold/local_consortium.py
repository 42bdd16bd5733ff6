"""A consortium on one machine: certificates, configurations and processes below one directory.

DIR/ca/            the certificate authority
DIR/aggregator/    certificate, aggregator.toml, store, log
DIR/operator/      certificate, operator.toml
DIR/sites/NAME/    certificate, participant.toml, state, results, log
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from dcfpca.errors import BadInput
from dcfpca.identity import Identity, Role
from dcfpca.operator.connection import CONNECTION_KEYS, connect_settings, connected
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.scaffold.background import Background, until
from dcfpca.scaffold.config_texts import DataKeys, Tables, aggregator_text, operator_text, participant_text

FEWEST_SITES = 2
_LOWEST_PORT, _PORT_TRIES = 20_000, 100
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_ELSEWHERE = 32_768  # the lowest default of the systems we know


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """The sites with their data files, what holds for the data of all of them, and further keys of the services."""

    consortium: str
    sites: Mapping[str, Path]
    data: DataKeys = field(default_factory=lambda: DataKeys(""))
    listen: str = ""  # on a free port of loopback, if empty
    hosts: Sequence[str] = ("localhost", "127.0.0.1")  # in the aggregator's certificate
    aggregator: Tables = field(default_factory=dict)
    participants: Mapping[str, Tables] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Consortium:
    """The processes of a directory: the aggregator, and one daemon per site."""

    directory: Path
    aggregator: Background
    sites: Mapping[str, Background]

    @property
    def operator_config(self) -> Path:
        """The file for `--config` of the operator's commands."""
        return self.directory / "operator" / "operator.toml"

    @property
    def address(self) -> str:
        """Where the aggregator listens, once it does."""
        return (self.aggregator.directory / "ready").read_text().strip()

    def results(self, site: str, run_id: str) -> Path:
        """The directory with a site's result of a run."""
        return self.sites[site].directory / "results" / run_id

    def start_aggregator(self) -> bool:
        """Start the aggregator unless it runs, and wait until it listens; returns whether it was started."""
        home = self.aggregator.directory
        if not self.aggregator.is_running():
            (home / "ready").unlink(missing_ok=True)
        started = self.aggregator.start(["aggregator.main", "serve", "--config", str(home / "aggregator.toml")])
        until((home / "ready").exists, [self.aggregator], "the start of the aggregator")
        return started

    def start_site(self, name: str) -> bool:
        """Start a site's daemon unless it runs; returns whether it was started."""
        site = self.sites[name]
        return site.start(["participant.main", "serve", "--config", str(site.directory / "participant.toml")])


def create_consortium(directory: Path, plan: LocalPlan) -> Consortium:
    """Write everything but the data; BadInput if the directory is not empty or a name is wrong."""
    if directory.exists() and any(directory.iterdir()):
        raise BadInput(f"{directory} is not empty", "name a new directory, or start what is there: `dcfpca up`")
    if len(plan.sites) < FEWEST_SITES:
        raise BadInput(f"a consortium has two sites or more, not {len(plan.sites)}", "give NAME=FILE for each")
    for name in plan.sites:
        Identity(plan.consortium, Role.PARTICIPANT, name)
    now = datetime.now(UTC)
    authority = create_authority(directory / "ca", plan.consortium, now)
    home, operator = directory / "aggregator", directory / "operator"
    issue_credentials(authority, Role.AGGREGATOR, "aggregator", home, now=now, hosts=plan.hosts)
    issue_credentials(authority, Role.OPERATOR, "operator", operator, now=now)
    free, page = free_ports(2)
    address = plan.listen or f"127.0.0.1:{free}"
    # No metrics: several consortia may run on one machine.
    served = {"dashboard": {"listen": f"127.0.0.1:{page}"}, "telemetry": {"ready_file": "ready", "metrics": ""}}
    _write(home / "aggregator.toml", aggregator_text(address, "aggregator", _joined(served, plan.aggregator)))
    _write(operator / "operator.toml", operator_text(address, "operator"))
    own: Tables = {
        "policy": {"min_cohort": min(3, len(plan.sites))},
        "engine": {"threads": max(1, (os.cpu_count() or 1) // len(plan.sites))},
    }
    for name, data in plan.sites.items():
        site = directory / "sites" / name
        issue_credentials(authority, Role.PARTICIPANT, name, site, now=now)
        keys = replace(plan.data, path=str(data.resolve()))
        more = _joined(own, plan.participants.get(name, {}))
        _write(site / "participant.toml", participant_text(address, name, keys, more))
    return find_consortium(directory)


def find_consortium(directory: Path) -> Consortium:
    """The consortium in a directory; BadInput if there is none."""
    home = directory.resolve()
    sites = sorted(path.parent for path in home.glob("sites/*/participant.toml"))
    if not sites or not (home / "aggregator" / "aggregator.toml").exists():
        hint = "make one with `dcfpca init local`"
        raise BadInput(f"{directory} has no consortium: aggregator/aggregator.toml or sites/ is missing", hint)
    daemons = {path.name: Background(path.name, path) for path in sites}
    return Consortium(home, Background("the aggregator", home / "aggregator"), daemons)


def start_consortium(consortium: Consortium, note: Callable[[str], None]) -> list[str]:
    """Start what does not run, and wait until the aggregator listens and every site is connected.

    Returns the names of the processes that were started.
    """
    new = consortium.start_aggregator()
    note(f"the aggregator {'listens' if new else 'was running already'} at {consortium.address}")
    started = [consortium.aggregator.name] if new else []
    for name in consortium.sites:
        new = consortium.start_site(name)
        note(f"{name} {'is started' if new else 'was running already'}")
        started += [name] if new else []
    settings = connect_settings(dict.fromkeys(CONNECTION_KEYS), consortium.operator_config)
    with connected(settings) as operator:
        names = list(consortium.sites)
        until(lambda: operator.are_connected(names), consortium.sites.values(), "the sites' connection")
    return started


def stop_consortium(consortium: Consortium, note: Callable[[str], None]) -> list[str]:
    """Stop the sites, all at once, then the aggregator; returns the names of those that were running."""
    ran = {name: site.tell_to_stop() for name, site in consortium.sites.items()}
    for site in consortium.sites.values():
        site.await_end()
    ran[consortium.aggregator.name] = consortium.aggregator.stop()
    for name, running in ran.items():
        note(f"{name} {'is stopped' if running else 'was not running'}")
    return [name for name, running in ran.items() if running]


def sites_from(arguments: Sequence[str]) -> dict[str, Path]:
    """Sites from FILE or NAME=FILE; a file without a name gives the site its own. BadInput if a file does not exist."""
    found: dict[str, Path] = {}
    for argument in arguments:
        name, equals, file = argument.partition("=")
        path = Path(file if equals else argument).expanduser()
        site = name if equals else path.stem.lower().replace("_", "-").replace(" ", "-")
        if site in found:
            raise BadInput(f"two sites are called {site}", "give them names: NAME=FILE")
        if not path.exists():
            raise BadInput(f"the data {path} of {site} does not exist", "check the path")
        found[site] = path
    return found


def free_ports(count: int) -> list[int]:
    """Different ports of this machine on which nobody listens now.

    They lie below those that the system gives to outgoing connections: one of those might be taken by anybody's
    connection before the service is started, or while it is restarted.
    """
    with ExitStack() as taken:
        return [_free_port(taken) for _ in range(count)]


def _free_port(taken: ExitStack) -> int:
    last = _first_outgoing_port()
    for _ in range(_PORT_TRIES if last > _LOWEST_PORT else 0):
        with suppress(OSError):
            return _bound(random.randrange(_LOWEST_PORT, last), taken)  # noqa: S311  nothing is kept secret by it
    return _bound(0, taken)


def _bound(port: int, taken: ExitStack) -> int:
    server = taken.enter_context(socket.create_server(("127.0.0.1", port)))
    return int(server.getsockname()[1])


def _first_outgoing_port() -> int:
    try:
        return int(_OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _OUTGOING_ELSEWHERE


def _joined(tables: Tables, more: Tables) -> Tables:
    """The tables of both; `more` wins where both have a key."""
    return {name: {**tables.get(name, {}), **more.get(name, {})} for name in dict.fromkeys([*tables, *more])}


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
