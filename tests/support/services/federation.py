"""A whole federation of real processes on loopback: PKI, configurations, aggregator, participants, operator."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Self

import grpc
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from dcfpca.identity import Identity, Role
from dcfpca.methods import method_of
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import channel_to
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials, load_credentials
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.scaffold.local_consortium import free_ports
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub
from dcfpca.wire.addresses import Address
from participant.state.column_sets import KEY_NAME
from tests.support.services.processes import PATIENCE, Process, run_to_end

POLICY = {"allow_plain": True, "allow_export": True, "min_cohort": 2, "min_columns": 2, "max_rank": 2000}
Toml = Mapping[str, str | int | float | bool | Sequence[str]]


@dataclass(frozen=True)
class Result:
    """What a site wrote."""

    L: FloatArray
    S: sparse.csc_array
    V: FloatArray
    U: FloatArray
    manifest: str


class Federation:
    """Starts, stops and kills its processes; use as a context manager so that none is left behind.

    With `fresh` each is an interpreter of its own, as in measurements, and not forked from one that has all imports.
    """

    def __init__(
        self, root: Path, limits: Toml | None = None, server: Toml | None = None, *, fresh: bool = False
    ) -> None:
        self.root, self._fresh = root, fresh
        self.authority = create_authority(root / "ca", "acme", datetime.now(UTC))
        self.processes: dict[str, Process] = {}
        self.files: dict[str, SiteFiles] = {}
        self.data: dict[str, FloatArray] = {}
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._limits, self._server = limits or {}, server or {}
        self._channel: Any = None
        self.identity(Role.AGGREGATOR, "agg", hosts=["localhost", "127.0.0.1"])
        self.identity(Role.OPERATOR, "op")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel:
            self._channel.close()
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.kill()

    def identity(self, role: Role, name: str, hosts: Sequence[str] = (), **more: Any) -> SiteFiles:
        """A certificate of this consortium."""
        out = self.root / "identities" / name
        given: dict[str, Any] = {"now": datetime.now(UTC), "days": 30} | more
        self.files[name] = issue_credentials(self.authority, role, name, out, hosts=hosts, **given)
        return self.files[name]

    # The aggregator.

    def start_aggregator(self, level: str = "debug") -> Process:
        """Start it, or start it again on the same port with the same store."""
        ready = self.root / "ready"
        ready.unlink(missing_ok=True)
        process = self._start("agg", "aggregator.main", self.aggregator_config(level))
        process.await_action("serving")
        self.address = ready.read_text().strip()
        return process

    def aggregator_config(self, level: str = "debug") -> Path:
        """Written anew, so that a restart listens where the participants dial."""
        files, path = self.files["agg"], self.root / "aggregator.toml"
        tables: dict[str, Toml] = {
            "server": {
                "listen": self.address,
                "ca": str(files.ca),
                "cert": str(files.certificate),
                "key": str(files.key),
                "crl": str(self.authority.crl_path),
                "drain_seconds": 2,
                **self._server,
            },
            "store": {"path": "store.db"},
            "limits": self._limits,
            "telemetry": {"log": "json", "level": level, "ready_file": "ready", "metrics": ""},
            "dashboard": {"listen": ""},
        }
        path.write_text(to_toml(tables))
        return path

    @property
    def aggregator(self) -> Process:
        return self.processes["agg"]

    # Participants.

    def add_site(
        self, name: str, data: FloatArray | None, via: str = "", tables: Mapping[str, Toml] | None = None, **policy: Any
    ) -> None:
        """Certificate, data and configuration of one participant; `via` is the address it dials instead."""
        if name not in self.files:
            self.identity(Role.PARTICIPANT, name)
        home = self.root / "sites" / name
        home.mkdir(parents=True, exist_ok=True)
        if data is not None:
            np.save(home / "data.npy", data)
            self.data[name] = np.asarray(data, dtype=np.float64)
        files = self.files[name]
        wanted: dict[str, Toml] = {
            "aggregator": {"address": via or self.address},
            "identity": {"ca": str(files.ca), "cert": str(files.certificate), "key": str(files.key)},
            "data": {"path": "data.npy", "missing": "allow"},
            "policy": POLICY | policy,
            "state": {"dir": "state"},
            "results": {"dir": "results"},
            "telemetry": {"log_format": "json", "log_level": "debug"},
            "engine": {"threads": 1},
        }
        for table, keys in (tables or {}).items():
            wanted[table] = {**wanted.get(table, {}), **keys}
        (home / "participant.toml").write_text(to_toml(wanted))

    def start_site(self, name: str) -> Process:
        """Start a site; its key follows from its name, so that every run of a test hides the same entries."""
        state = self.root / "sites" / name / "state"
        if not state.exists():
            state.mkdir(mode=0o700)
            (state / KEY_NAME).write_bytes(hashlib.sha256(f"site-{name}".encode()).digest())
        return self.start_as(name, "participant.main")

    def start_as(self, name: str, module: str) -> Process:
        """Start a site as what this module makes of a daemon."""
        return self._start(name, module, self.root / "sites" / name / "participant.toml")

    def site_command(self, name: str, *arguments: str) -> CompletedProcess[str]:
        """What `dcfpca-participant ARGUMENTS` does and says with the site's configuration."""
        config = self.root / "sites" / name / "participant.toml"
        return run_to_end("participant.main", *arguments, "--config", str(config))

    def start_sites(self, names: Iterable[str]) -> None:
        """Start them all, then wait until all are connected."""
        started = [self.start_site(name) for name in names]
        for process in started:
            process.await_action("connected")

    def _start(self, name: str, module: str, config: Path) -> Process:
        process = Process(module, ["serve", "--config", str(config)], self.root / f"{name}.log", fresh=self._fresh)
        self.processes[name] = process
        return process

    def stop_all(self) -> None:
        for process in self.processes.values():
            process.stop()

    # The operator.

    @property
    def operator(self) -> Operator:
        return Operator(self.channel(), Address.parse(self.address), Identity("acme", Role.OPERATOR, "op"))

    def channel(self) -> grpc.Channel:
        """The operator's channel."""
        if self._channel is None:
            files = self.files["op"]
            own = load_credentials(files.ca, files.certificate, files.key, now=datetime.now(UTC), role=Role.OPERATOR)
            self._channel = channel_to(Address.parse(self.address), own)
        return self._channel

    def propose(self, **keys: Any) -> str:
        """Propose a run; its id."""
        return self.operator.propose(parse_spec(keys).canonical(), uuid.uuid4().hex).run_id

    def follow(self, run_id: str, patience: float = 90.0) -> pb.RunView:
        """The run when it is over or paused, across restarts of the aggregator."""
        while True:
            try:
                for view in self._watch(run_id, patience):
                    if view.ended_ms or view.status == "paused":
                        return self.operator.run(run_id)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                grpc.channel_ready_future(self.channel()).result(PATIENCE)

    def _watch(self, run_id: str, patience: float) -> Iterable[pb.RunView]:
        stub: Any = AdminServiceStub(self.channel())
        views: Iterable[pb.RunView] = stub.WatchRun(pb.WatchRunRequest(run_id=run_id, after_round=-1), timeout=patience)
        return views

    def finish(self, run_id: str, patience: float = 90.0) -> pb.RunView:
        """The run, which must finish."""
        view = self.follow(run_id, patience)
        assert view.status == "finished", (view.status, view.reason)
        return view

    def run(self, **keys: Any) -> pb.RunView:
        """Propose and finish."""
        return self.finish(self.propose(**keys))

    # Results.

    def result(self, name: str, run_id: str) -> Result:
        """What the site wrote, once it has."""
        self.processes[name].await_action("results_written", run=run_id)
        where = self.root / "sites" / name / "results" / run_id
        return Result(
            L=np.load(where / "L.npy"),
            S=sparse.csc_array(sparse.load_npz(where / "S.npz")),
            V=np.load(where / "V.npy"),
            U=np.load(where / "U.npy"),
            manifest=(where / "manifest.json").read_text(),
        )

    def model(self, run_id: str) -> FloatArray:
        """U as the operator fetches it."""
        buffer, rows, columns = io.BytesIO(), 0, 0
        for part in self.operator.model(run_id):
            if part.WhichOneof("part") == "header":
                rows, columns = part.header.rows, part.header.columns
            else:
                buffer.write(part.chunk.data)
        return np.frombuffer(buffer.getvalue(), "<f8")[: rows * columns].reshape(rows, columns)

    def simulate(self, view: pb.RunView, names: Sequence[str]) -> Simulation:
        """The same spec over the same data, without the network; with one thread of algebra, as at the sites."""
        spec: RunSpec = parse_spec(view.spec)
        with threadpool_limits(1):
            own = [ArrayColumns(self.data[name]) for name in names]
            return simulate(method_of(spec), own, keys=[self.key_of(name) for name in names])

    def key_of(self, name: str) -> bytes:
        """The key of a site that has been started, by which it draws the entries that runs hide."""
        return (self.root / "sites" / name / "state" / KEY_NAME).read_bytes()


@contextmanager
def running_federation(root: Path, sites: Mapping[str, FloatArray], **policy: Any) -> Iterator[Federation]:
    """A federation whose aggregator and sites, with this data by name, are started and connected."""
    with Federation(root) as made:
        made.start_aggregator()
        for name, data in sites.items():
            made.add_site(name, data, **policy)
        made.start_sites(sites)
        yield made


def to_toml(tables: Mapping[str, Toml]) -> str:
    """The few kinds of value that our configurations hold."""
    return "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in keys.items())
        for table, keys in tables.items()
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return str(value)


def relative(got: FloatArray, wanted: FloatArray) -> float:
    """Relative distance in the Frobenius norm."""
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
