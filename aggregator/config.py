"""The aggregator's configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from dcfpca.config_file import FilePath, Section, read_config
from dcfpca.errors import BadInput
from dcfpca.wire.addresses import listening, listening_or_none

ListenAddress = Annotated[str, AfterValidator(listening)]
WebAddress = Annotated[str, AfterValidator(listening_or_none)]
_POSTGRESQL = ("postgresql://", "postgres://")


class Server(Section):
    """The listening address, the service's credentials and the revocation list, and the time to stop."""

    listen: ListenAddress = Field("0.0.0.0:7443", description="host:port of the gRPC service; port 0 takes a free one.")
    ca: FilePath = Field(description="The consortium's CA certificate, or two of them during a change of CA.")
    cert: FilePath = Field(description="The aggregator's certificate; its names must match what participants dial.")
    key: FilePath = Field(description="Its private key, readable by the service alone.")
    crl: FilePath | None = Field(None, description="The CA's revocation list; read again whenever it changes.")
    drain_seconds: float = Field(10, ge=0, description="How long open calls may finish when the service stops.")


class StoreSection(Section):
    """The location of the store."""

    path: FilePath = Field(description="The SQLite file; open updates and exported files lie in directories beside it.")
    url: str = Field(
        "",
        repr=False,
        description="postgresql://USER@HOST/DATABASE, shared by aggregators that stand by for each other; `path` then "
        "names only the directories. The password is best left to PGPASSFILE or url_file. Empty: SQLite.",
    )
    url_file: FilePath | None = Field(
        None, description="A file that holds the url, password included, in place of `url`."
    )
    keep_runs: int = Field(0, ge=0, description="Most runs that are over to keep; the oldest are deleted. 0: all.")
    keep_days: float = Field(0, ge=0, description="Days to keep a run after its end. 0: no limit.")

    @field_validator("url")
    @classmethod
    def _is_postgresql(cls, url: str) -> str:
        if url and not url.startswith(_POSTGRESQL):
            raise ValueError("it must begin with postgresql://")
        return url

    def database_url(self) -> str:
        """The URL of the PostgreSQL database; empty for a SQLite file."""
        if self.url_file is None:
            return self.url
        try:
            found = self.url_file.read_text().strip()
        except OSError as error:
            hint = "check [store] url_file, and that this user may read it"
            raise BadInput(f"{self.url_file} cannot be read: {error.strerror}", hint) from error
        if not found.startswith(_POSTGRESQL):
            raise BadInput(f"{self.url_file} does not hold a database URL", "write one line: postgresql://…")
        return found


class Limits(Section):
    """Limits on what one peer may ask of the service."""

    max_update_mib: int = Field(1024, ge=1, description="Largest update of a run that is accepted for proposal.")
    max_export_mib: int = Field(16384, ge=1, description="Largest exported file.")
    max_open_runs: int = Field(100, ge=1, description="Most runs at a time that are not over.")
    max_participants: int = Field(1000, ge=1, description="Most participants connected at a time.")
    max_connections: int = Field(4000, ge=1, description="Most connections at a time, from anyone; more are closed.")
    handshake_seconds: float = Field(30, gt=0, description="Seconds that a peer has for the TLS handshake.")
    calls_per_second: float = Field(1000, gt=0, description="Sustained calls of one identity.")
    call_burst: int = Field(2000, ge=1, description="Calls that one identity may make at once above that rate.")
    concurrent_calls: int = Field(32, ge=1, description="Calls of one identity in progress at a time, watches apart.")
    concurrent_watches: int = Field(32, ge=1, description="Watches of one identity open at a time.")
    upload_seconds: float = Field(30, gt=0, description="Longest pause inside an upload before it is disconnected.")
    read_seconds: float = Field(
        60, gt=0, description="Seconds for which a peer may leave a MiB unread before it is disconnected."
    )


class Telemetry(Section):
    """Logging, the ready file and the address of the metrics."""

    log: Literal["human", "json"] = Field("human", description="Form of the log on standard error.")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest severity that is logged.")
    ready_file: FilePath | None = Field(None, description="Written with host:port once the service listens.")
    metrics: WebAddress = Field(
        "127.0.0.1:9464", description="host:port where Prometheus finds /metrics; empty: no metrics."
    )


class DashboardSection(Section):
    """The dashboard: read-only, and open to anybody who can reach its address."""

    listen: WebAddress = Field(
        "127.0.0.1:7480",
        description="host:port of the read-only web page; empty: no page. Whoever can reach it can read it.",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Host names that it answers to, such as runs.example.org; localhost and IP addresses always work.",
    )


class Config(Section):
    """The whole file."""

    server: Server
    store: StoreSection
    limits: Limits = Field(default_factory=Limits)
    telemetry: Telemetry = Field(default_factory=Telemetry)
    dashboard: DashboardSection = Field(default_factory=DashboardSection)


def load_config(path: Path) -> Config:
    """Read and check the file; every failure is one sentence that names the key."""
    return read_config(path, Config, "aggregator")
