"""Configuration files with comments, ready to use. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Value = str | int | bool | Sequence[str]


@dataclass(frozen=True, slots=True)
class DataKeys:
    """What `init` asks about a site's data; empty keys are written as comments."""

    path: str
    id_column: str = ""
    features: Sequence[str] = ()
    exclude: Sequence[str] = ()
    missing: str = "allow"
    dataset: str = ""


def operator_text(address: str, name: str) -> str:
    """operator.toml."""
    return _joined(
        "# The operator's configuration: who starts runs. Paths are relative to this file.",
        "# Use it with --config, or export DCFPCA_CONFIG with its path.",
        _line("aggregator", address, "host:port; the host must be a name in the aggregator's certificate"),
        *_credentials(name),
    )


def aggregator_text(
    listen: str,
    name: str,
    *,
    crl: bool = False,
    dashboard: str = "127.0.0.1:7480",
    more: Mapping[str, Value] | None = None,
) -> str:
    """aggregator.toml; `more` are keys of [telemetry]."""
    told = "the CA's revocation list, read again when it changes"
    return _joined(
        "# The aggregator's configuration. Paths are relative to this file; docs/configuration.md has every key.",
        "# Check it with: dcfpca-aggregator check --config aggregator.toml",
        "",
        "[server]",
        _line("listen", listen, "host:port of the service; participants dial it"),
        *_credentials(name),
        _line("crl", "crl.pem", told) if crl else f'# crl = "crl.pem"  # {told}',
        "",
        "[store]",
        _line("path", "store.db", "runs and the audit log; on a local disk, never NFS"),
        "",
        "[dashboard]",
        _line("listen", dashboard, "read-only web page; whoever reaches it can read it; empty: none"),
        *(["", "[telemetry]", *(_line(key, value) for key, value in more.items())] if more else []),
    )


def participant_text(
    address: str, name: str, data: DataKeys, *, min_cohort: int = 3, private: bool = True, threads: int = 0
) -> str:
    """participant.toml; without `threads` a daemon takes as many as it may use cores."""
    return _joined(
        "# A site's configuration, its last word: what it does not allow, nobody else can order.",
        "# Paths are relative to this file; docs/configuration.md has every key.",
        "# See what the site makes of it with: dcfpca-participant check --config participant.toml",
        "",
        "[aggregator]",
        _line("address", address, "host:port; the host must be a name in the aggregator's certificate"),
        "",
        "[identity]",
        *_credentials(name),
        "",
        *_data_lines(data),
        "",
        "[policy]",
        _line("private", private, "the reconstruction of this site's data never leaves, whoever asks"),
        _line("min_cohort", min_cohort, "fewest participants whose sum this site lets its update into"),
        "",
        "[state]",
        _line("dir", "state", "what survives a restart; never restore it from a backup while a run is open"),
        "",
        "[results]",
        _line("dir", "results", "one directory per finished run"),
        *(["", "[engine]", _line("threads", threads, "this daemon's share of the cores")] if threads else []),
    )


def _data_lines(data: DataKeys) -> list[str]:
    return [
        "[data]",
        _line("path", data.path, "CSV, Excel, Parquet, NumPy and others; or a folder of parts"),
        _optional("dataset", data.dataset, "X", "which array of a file that holds several"),
        _optional("id_column", data.id_column, "patient", "the column with the samples' ids; they stay here"),
        _optional("features", data.features, ["age", "lab_*"], "which columns to use, by name or pattern; empty: all"),
        _optional("exclude", data.exclude, ["diagnosis"], "which columns to leave out"),
        _line("missing", data.missing, '"allow": empty entries count as unobserved; "refuse": no run with any'),
        _optional("orientation", "", "samples-in-rows", "a line is a sample; without it the names decide"),
    ]


def _credentials(name: str) -> list[str]:
    return [
        _line("ca", "ca.crt", "the consortium's CA certificate"),
        _line("cert", f"{name}.crt", "this one's certificate"),
        _line("key", f"{name}.key", "its private key, which never leaves this machine"),
    ]


def _optional(key: str, value: Value, example: Value, comment: str) -> str:
    return _line(key, value, comment) if value else f"# {_line(key, example, comment)}"


def _line(key: str, value: Value, comment: str = "") -> str:
    text = json.dumps(value if isinstance(value, str | int) else list(value), ensure_ascii=False)
    return f"{key} = {text}" + (f"  # {comment}" if comment else "")


def _joined(*lines: str) -> str:
    return "\n".join(lines) + "\n"
