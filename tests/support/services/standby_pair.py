"""Two aggregators on one database, with sites and an operator that know both addresses."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import grpc

from aggregator.config import Config, load_config
from dcfpca.identity import Role
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import ConnectionSettings, serving_channel
from dcfpca.pki.credential_files import load_credentials
from dcfpca.scaffold.local_consortium import free_ports
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.wire.addresses import Address, TlsFiles
from tests.support.services.federation import Federation, Toml, to_toml
from tests.support.services.processes import Process

NAMES = ("first", "second")


class StandbyPair(Federation):
    """A federation whose aggregators are `first` and `second`, each with a certificate and a port of its own."""

    def __init__(self, root: Path, url: str, url_of_first: str = "") -> None:
        """`url_of_first` is how the first one finds the same database, if otherwise."""
        super().__init__(root)
        self._url_files = {name: root / f"database-url-{name}" for name in NAMES}
        for name, found in zip(NAMES, (url_of_first or url, url), strict=True):
            self._url_files[name].write_text(found)
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        for name in NAMES:
            self.identity(Role.AGGREGATOR, name, hosts=["localhost", "127.0.0.1"])
        files = self.files["op"]
        own = load_credentials(files.ca, files.certificate, files.key, now=datetime.now(UTC), role=Role.OPERATOR)
        address, *standbys = Address.parse_all(self.address)
        tls = TlsFiles(files.ca, files.certificate, files.key)
        self.settings = ConnectionSettings(address, tls, tuple(standbys))
        self._channel = serving_channel(self.settings, own)
        self.own = own

    @property
    def operator(self) -> Operator:
        assert self._channel is not None
        return Operator(self._channel, self.settings.address, self.own.identity)

    def start(self, name: str) -> Process:
        """Start one of the aggregators; await what it becomes."""
        process = self._start(name, "aggregator.main", self._config_file(name))
        process.await_line(lambda line: line["action"] in ("serving", "standing_by"))
        return process

    def config(self, name: str) -> Config:
        return load_config(self._config_file(name))

    def _config_file(self, name: str) -> Path:
        files, path = self.files[name], self.root / f"{name}.toml"
        tables: dict[str, Toml] = {
            "server": {
                "listen": f"127.0.0.1:{self._ports[name]}",
                "ca": str(files.ca),
                "cert": str(files.certificate),
                "key": str(files.key),
                "drain_seconds": 2,
            },
            "store": {"path": f"{name}/store", "url_file": str(self._url_files[name])},
            "telemetry": {"log": "json", "level": "debug", "metrics": ""},
            "dashboard": {"listen": ""},
        }
        path.write_text(to_toml(tables))
        return path

    def follow(self, run_id: str, patience: float = 90.0) -> pb.RunView:
        """The run when it is over or paused, across takeovers."""
        while True:
            try:
                for view in self.operator.watch(run_id, -1):
                    if view.ended_ms or view.status == "paused":
                        return self.operator.run(run_id)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
