"""A consortium on one machine: certificates and configurations below one directory.

DIR/ca/            the certificate authority
DIR/aggregator/    certificate, aggregator.toml, store, log
DIR/operator/      certificate, operator.toml
DIR/sites/NAME/    certificate, participant.toml, state, results, log
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dcfpca.errors import BadInput
from dcfpca.identity import Identity, Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.scaffold.config_texts import DataKeys, aggregator_text, operator_text, participant_text
from dcfpca.scaffold.listening_ports import free_ports

HOSTS = ("localhost", "127.0.0.1")
FEWEST_SITES = 2


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """The sites with their data files, and what holds for the data of all of them."""

    consortium: str
    sites: Mapping[str, Path]
    data: DataKeys
    port: int = 0


def create_consortium(directory: Path, plan: LocalPlan) -> Path:
    """Write everything; returns the operator's configuration. BadInput if the directory exists or a name is wrong."""
    if directory.exists() and any(directory.iterdir()):
        raise BadInput(f"{directory} is not empty", "name a new directory, or start what is there: `dcfpca up`")
    _check_sites(plan)
    now = datetime.now(UTC)
    authority = create_authority(directory / "ca", plan.consortium, now)
    free, page = free_ports(2)
    address, dashboard = f"127.0.0.1:{plan.port or free}", f"127.0.0.1:{page}"
    home = directory / "aggregator"
    issue_credentials(authority, Role.AGGREGATOR, "aggregator", home, now=now, hosts=HOSTS)
    more = {"ready_file": "ready", "metrics": ""}
    (home / "aggregator.toml").write_text(aggregator_text(address, "aggregator", dashboard=dashboard, more=more))
    issue_credentials(authority, Role.OPERATOR, "operator", directory / "operator", now=now)
    operator = directory / "operator" / "operator.toml"
    operator.write_text(operator_text(address, "operator"))
    for name, data in plan.sites.items():
        site = directory / "sites" / name
        issue_credentials(authority, Role.PARTICIPANT, name, site, now=now)
        keys = replace(plan.data, path=str(data.resolve()))
        cores = max(1, (os.cpu_count() or 1) // len(plan.sites))
        text = participant_text(address, name, keys, min_cohort=min(3, len(plan.sites)), threads=cores)
        (site / "participant.toml").write_text(text, encoding="utf-8")
    return operator


def sites_from(arguments: Sequence[str]) -> dict[str, Path]:
    """Sites from FILE or NAME=FILE; a file without a name gives the site its own."""
    found: dict[str, Path] = {}
    for argument in arguments:
        name, equals, file = argument.partition("=")
        path = Path(file if equals else argument).expanduser()
        site = name if equals else path.stem.lower().replace("_", "-").replace(" ", "-")
        if site in found:
            raise BadInput(f"two sites are called {site}", "give them names: NAME=FILE")
        found[site] = path
    return found


def _check_sites(plan: LocalPlan) -> None:
    if len(plan.sites) < FEWEST_SITES:
        raise BadInput(f"a consortium has two sites or more, not {len(plan.sites)}", "give NAME=FILE for each")
    for name, path in plan.sites.items():
        Identity(plan.consortium, Role.PARTICIPANT, name)
        if not path.exists():
            raise BadInput(f"the data {path} of {name} does not exist", "check the path")
