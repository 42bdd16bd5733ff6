"""What all runs at a site share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from participant.egress import Egress
from participant.engine.thread_engine import Engine
from participant.link import Link
from participant.local_site import LocalSite
from participant.state.store import Store
from participant.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class SiteServices:
    """The site's data and identity, its state, the connection, the one way out, the engine and the results."""

    site: LocalSite
    store: Store
    link: Link
    egress: Egress
    engine: Engine
    results: Path
    telemetry: Telemetry = field(default_factory=Telemetry)
