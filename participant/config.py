"""The participant's configuration file."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dcfpca.config_file import FilePath, Section, read_config, read_toml
from dcfpca.errors import BadInput
from dcfpca.wire.addresses import all_dialled, listening_or_none
from dcfpca.wire.proxies import proxy_url
from participant.data.data_config import DataTable, RulesTable
from participant.policy import SitePolicy

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def _in_bytes(value: Any) -> Any:
    """ "512 MiB" as a number of bytes; a number is taken as it is."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError('it must be a size such as "512 MiB" or "2 GiB"')
    return int(float(found[1]) * _UNITS[found[2].lower()])


Size = Annotated[int, BeforeValidator(_in_bytes)]
WebAddress = Annotated[str, AfterValidator(listening_or_none)]
Addresses = Annotated[str, AfterValidator(all_dialled)]


def _loopback(text: str) -> str:
    if listening_or_none(text) and text.rpartition(":")[0] not in ("127.0.0.1", "localhost"):
        raise ValueError("the console speaks plain HTTP, so it listens on 127.0.0.1:PORT alone; tunnel to it by ssh -L")
    return text


class AggregatorTable(Section):
    """The aggregator that the daemon connects to."""

    address: Addresses = Field(
        description="host:port; the host must be a name in the aggregator's certificate. With a standby, both "
        "addresses with a "
        "comma between; the daemon uses the one that serves."
    )
    proxy: Annotated[str, AfterValidator(proxy_url)] = Field(
        "", description="http://host:port of an HTTP proxy that passes CONNECT; empty: as https_proxy says."
    )


class IdentityTable(Section):
    """The site's credentials."""

    ca: FilePath = Field(description="The consortium's CA certificate (both during a change of CA).")
    cert: FilePath = Field(description="This participant's certificate.")
    key: FilePath = Field(description="Its private key, readable by its owner only.")
    crl: FilePath | None = Field(
        None, description="A revocation list beside the one fetched through the aggregator; both are checked."
    )


class DirectoryTable(Section):
    """A directory of the daemon."""

    dir: FilePath = Field(description="The directory; created if it is missing, readable by this user alone.")


class ResultsTable(DirectoryTable):
    """Where results are written, and for how long they are kept."""

    keep_runs: int = Field(0, ge=0, description="Most results to keep; the oldest are deleted. 0: all.")
    keep_days: float = Field(0, ge=0, description="Days to keep a result. 0: no limit.")


class TelemetryTable(Section):
    """Log and metrics of the daemon."""

    log_format: Literal["human", "json"] = Field("human", description="Form of the log on standard error.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity that is logged."
    )
    metrics: WebAddress = Field("", description="host:port where Prometheus finds /metrics; empty: no metrics.")


class NotifyTable(Section):
    """Whom the daemon tells that a run waits for a person."""

    url: str = Field(
        "",
        pattern=r"^(https?://.*)?$",
        description="A web address, such as a chat or a mail gateway, that gets a POST with JSON (site, run, label, "
        "until).",
    )


class ConsoleTable(Section):
    """The console within the daemon."""

    listen: Annotated[str, AfterValidator(_loopback)] = Field(
        "",
        description="127.0.0.1:PORT of the page for the people of this site; empty: none. Its link, which works once,"
        " is in console.link in [state] dir; `dcfpca-participant console` prints it.",
    )


class EngineTable(Section):
    """The engine that runs the local step."""

    threads: int = Field(0, ge=0, le=1024, description="Threads of the linear algebra; 0: as many as usable cores.")
    memory_limit: Size = Field(
        0,
        ge=0,
        description='Memory for the matrix, such as "2 GiB"; a larger matrix is read in blocks. A run whose rounds '
        "need more, "
        "and more than 256 MiB, is refused. 0: as the system allows.",
    )
    kind: Literal["method", "dask", "idle"] = Field(
        "method", description="method: do the local step here. dask: on a cluster. idle: send zeros, to measure."
    )
    scheduler: str = Field(
        "", description="Address of the Dask cluster, such as tcp://host:8786; empty: processes here."
    )


class Config(Section):
    """The whole configuration."""

    aggregator: AggregatorTable
    identity: IdentityTable
    data: DataTable
    rules: RulesTable = Field(default_factory=RulesTable)
    policy: SitePolicy = Field(default_factory=SitePolicy)
    state: DirectoryTable
    results: ResultsTable
    telemetry: TelemetryTable = Field(default_factory=TelemetryTable)
    engine: EngineTable = Field(default_factory=EngineTable)
    notify: NotifyTable = Field(default_factory=NotifyTable)
    console: ConsoleTable = Field(default_factory=ConsoleTable)

    def model_post_init(self, _: Any, /) -> None:
        """Hand the rules to whoever reads the data."""
        self.data.take_rules(self.rules)


def require_console() -> None:
    """BadInput unless what the console needs is installed."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise BadInput("the console needs Starlette and uvicorn", "pip install 'dcfpca[console]'")


def load_config(path: Path) -> Config:
    """Read and check the file; anything wrong is one BadInput that names the file and the keys."""
    hint = "name a site's participant.toml with --config or DCFPCA_PARTICIPANT_CONFIG"
    keys = read_toml(path, "the configuration", f"the path: {hint}; `dcfpca init participant` writes one")
    for whose, told in (("an operator", isinstance(keys.get("aggregator"), str)), ("an aggregator", "server" in keys)):
        if told:
            raise BadInput(f"{path} is {whose}'s file, and this command is for a site", hint)
    return read_config(path, Config, "participant")
