"""Daemons of honest sites in this process, without sockets, for a liar that plays many short scripts.

Everything between the stream and the calls is the daemon's own: reading changed files, review, drivers, state, egress,
engine. `SitesInMemory` has what `FixedCohortPlay` needs of a `LyingAggregator`; `tell` returns once the site has done
all that follows.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import numpy as np
from google.protobuf.message import Message

from dcfpca.errors import BadMessage
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.rpca.method import FloatArray
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.tensors import DigestedBytes, digested
from participant.config import Config
from participant.daemon import Daemon
from participant.driver import SiteServices
from participant.driver.run_driver import RETRY
from participant.egress import Egress
from participant.engine.thread_engine import Engine
from participant.link.calls import METHODS
from participant.local_site import open_site
from participant.state.store import Store
from tests.support.hostile.lying_aggregator import ACCEPTED, Heard, run_of
from tests.support.runs.secagg import site_names

SITES = site_names(4)


class NothingCame(Exception):
    """A site did not make the call that the liar has waited for."""


@cache
def _authority() -> tuple[Path, Any]:
    root = Path(mkdtemp(prefix="dcfpca-liar-"))
    return root, create_authority(root / "ca", "acme", datetime.now(UTC))


@cache
def _identity_of(name: str) -> dict[str, Path]:
    root, authority = _authority()
    files = issue_credentials(authority, Role.PARTICIPANT, name, root / name, now=datetime.now(UTC))
    return {"ca": files.ca, "cert": files.certificate, "key": files.key}


@dataclass(frozen=True, slots=True)
class _Wire:
    """The link of a site: every call is heard, and what is fetched is what the liar shows."""

    liar: SitesInMemory
    site: str

    async def send(self, request: Message) -> types.Receipt:
        return self._heard(METHODS[type(request)], request)

    async def upload(self, header: pb.UpdateHeader, payload: Any, cohort: int) -> types.Receipt:
        return self._heard("SubmitUpdate", header, bytes(payload))

    async def refuse_export(self, refusal: pb.ExportRefusal) -> types.Receipt:
        return self._heard("ExportReconstruction", refusal)

    async def fetch(self, run_id: str, round: int, expected: Any, *, final: bool = False) -> DigestedBytes:
        return digested(_shown(self.liar.consensus, (run_id, round, final))[1])

    async def fetch_sum(self, run_id: str, round: int, most: int) -> tuple[pb.SumHeader, bytes]:
        return _shown(self.liar.sums, (run_id, round))

    def _heard(self, call: str, request: Any, payload: bytes = b"") -> types.Receipt:
        self.liar.heard.append(Heard(self.site, call, request, payload))
        return ACCEPTED


def _shown(held: Mapping[Any, Any], wanted: Any) -> Any:
    if wanted not in held:
        raise BadMessage("the aggregator has nothing of the kind")
    return held[wanted]


class SitesInMemory:
    """Sites by name, each with a file of its own; `heard` is everything that left them, in order."""

    def __init__(self, features: Iterable[str], **policy: Any) -> None:
        self.root = Path(mkdtemp(prefix="dcfpca-sites-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        (self.root / "names.txt").write_text("\n".join(features))
        self.policy, self.heard = policy, list[Heard]()
        self.consensus: dict[Any, Any] = {}
        self.sums: dict[Any, Any] = {}
        self.daemons: dict[str, Daemon] = {}
        self.federation = SimpleNamespace(data=dict[str, FloatArray]())
        self.trust = SimpleNamespace(participant_key=self._key_of)
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Stop everything and remove the files."""
        for name in list(self.daemons):
            self.stop(name)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        shutil.rmtree(self.root)

    def write(self, name: str, data: FloatArray) -> None:
        """Replace the site's file."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        np.save(folder / "new.npy", data)
        (folder / "new.npy").replace(folder / "data.npy")
        self.federation.data[name] = data

    def start(self, name: str) -> None:
        """A daemon that goes on from what the state directory holds."""
        self._loop.run_until_complete(self._start(name))

    async def _start(self, name: str) -> None:
        config = self._config(name)
        site, store = open_site(config), Store(config.state.dir, config.results.dir)
        made, link = object.__new__(Daemon), _Wire(self, name)
        engine = Engine(1)
        egress = Egress(link, store.ledger, config.policy)  # type: ignore[arg-type]
        made._config, made._site, made._store, made._drivers = config, site, store, {}
        made._unknown, made._preparing = set(), set()
        made._services = SiteServices(site, store, link, egress, engine, config.results.dir)  # type: ignore[arg-type]
        made._prepare = lambda spec: None  # type: ignore[method-assign]  # nothing is compiled for so few columns
        self.daemons[name] = made
        await made._restore()
        await self._settled(made)

    def stop(self, name: str) -> None:
        """Kill the daemon."""
        made = self.daemons.pop(name)
        for driver in list(made._drivers.values()):
            self._loop.run_until_complete(driver.stop())
        made._store.close()
        made._services.engine.close()

    def tell(self, site: str, run_id: str, **what: Message) -> None:
        """Give the site an assignment, and wait until nothing more follows from it."""
        assignment = pb.Assignment(run_id=run_id, key=uuid.uuid4().hex, **what)  # type: ignore[arg-type]
        self._loop.run_until_complete(self._told(self.daemons[site], assignment))

    async def _told(self, daemon: Daemon, assignment: pb.Assignment) -> None:
        if assignment.WhichOneof("what") == "run_proposed":
            await daemon._read_changed_data()
        daemon._deliver(pb.Assignment.FromString(assignment.SerializeToString()))
        await self._settled(daemon)

    async def _settled(self, daemon: Daemon) -> None:
        while under_way := [
            task for driver in daemon._drivers.values() for name, task in driver._tasks._tasks.items() if name != RETRY
        ]:
            await asyncio.wait(under_way)
            await asyncio.sleep(0)

    def await_heard(self, wanted: Callable[[Heard], bool], after: int = 0) -> Heard:
        """The first call that is wanted; NothingCame if there was none."""
        for one in self.heard[after:]:
            if wanted(one):
                return one
        raise NothingCame

    def await_call(self, call: str, site: str, run_id: str) -> Heard:
        """The first such call of a site in a run."""
        return self.await_heard(lambda one: (one.site, one.call, run_of(one.request)) == (site, call, run_id))

    def _key_of(self, der: bytes, name: str) -> Any:
        return next(iter(self.daemons.values()))._site.peer_verifier.verify(der, name)

    def _config(self, name: str) -> Config:
        folder = self.root / name
        tables: dict[str, Any] = {
            "aggregator": {"address": "127.0.0.1:9"},
            "identity": _identity_of(name),
            "data": {"path": folder / "data.npy", "feature_names": self.root / "names.txt", "missing": "allow"},
            "policy": self.policy,
            "state": {"dir": folder / "state"},
            "results": {"dir": folder / "results"},
            "engine": {"threads": 1},
        }
        return Config.model_validate(tables)
