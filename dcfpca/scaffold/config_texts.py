"""Configuration files with comments, ready to use. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dcfpca.errors import BadInput

Value = str | int | float | bool | Sequence[str]
Tables = Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class DataKeys:
    """What `init` asks about a site's data; empty keys are written as comments."""

    path: str
    id_column: str = ""
    features: Sequence[str] = ()
    exclude: Sequence[str] = ()
    missing: str = "allow"
    dataset: str = ""


@dataclass(frozen=True, slots=True)
class _Key:
    """A line of a file; one that is not `active` is commented out, as an example."""

    value: Value
    comment: str = ""
    active: bool = True

    def line(self, name: str) -> str:
        value = self.value if isinstance(self.value, str | int | float) else list(self.value)
        text = json.dumps(value, ensure_ascii=False)
        return ("" if self.active else "# ") + f"{name} = {text}" + (f"  # {self.comment}" if self.comment else "")


def operator_text(address: str, name: str) -> str:
    """operator.toml."""
    keys = {
        "aggregator": _Key(address, "host:port; the host must be a name in the aggregator's certificate"),
        **_credentials(name),
    }
    return _text(
        "# The operator's configuration: who starts runs. Paths are relative to this file.",
        "# Use it with --config, or export DCFPCA_CONFIG with its path.",
        *(key.line(name) for name, key in keys.items()),
    )


def aggregator_text(listen: str, name: str, more: Tables | None = None) -> str:
    """aggregator.toml; `more` replaces or adds keys."""
    tables = {
        "server": {
            "listen": _Key(listen, "host:port of the service; participants dial it"),
            **_credentials(name),
            "crl": _Key("crl.pem", "the CA's revocation list, read again when it changes", active=False),
        },
        "store": {"path": _Key("store.db", "runs and the audit log; on a local disk, never NFS")},
        "dashboard": {
            "listen": _Key("127.0.0.1:7480", "read-only web page; whoever reaches it can read it; empty: none")
        },
    }
    return _text(
        "# The aggregator's configuration. Paths are relative to this file; docs/configuration.md has every key.",
        "# Check it with: dcfpca-aggregator check --config aggregator.toml",
        *_table_lines(tables, more or {}),
    )


def participant_text(address: str, name: str, data: DataKeys, more: Tables | None = None) -> str:
    """participant.toml; `more` replaces or adds keys."""
    tables = {
        "aggregator": {"address": _Key(address, "host:port; the host must be a name in the aggregator's certificate")},
        "identity": _credentials(name),
        "data": _data_keys(data),
        "policy": {
            "private": _Key(True, "the reconstruction of this site's data never leaves, whoever asks"),
            "min_cohort": _Key(3, "smallest cohort in whose sums this site takes part"),
        },
        "state": {
            "dir": _Key("state", "what survives a restart; never restore it from a backup while a run is open"),
        },
        "results": {"dir": _Key("results", "one directory per finished run")},
    }
    return _text(
        "# A site's configuration. It has the last word: nobody else can order what it does not allow.",
        "# Paths are relative to this file; docs/configuration.md has every key.",
        "# Check it with: dcfpca-participant check --config participant.toml",
        *_table_lines(tables, more or {}),
    )


def spec_text(features: Sequence[str], label: str) -> str:
    """spec.toml of a run about these features."""
    keys = {
        "label": _Key(label, "for people to read"),
        "features": _Key(features, "each site chooses and orders its own by these names; one that lacks any refuses"),
        "missing_features": _Key("allow", "a site that lacks some takes part with them unobserved", active=False),
        "max_rank": _Key(5, "a bound on the rank; without it one is chosen", active=False),
        "participants": _Key(["a", "b", "c"], "who takes part; without it whoever enrols in time", active=False),
    }
    return _text(
        "# The spec of a run. Use it with: dcfpca run start spec.toml --watch",
        "# Every site reviews and signs it; deploy/config/spec.toml shows every key.",
        *(key.line(name) for name, key in keys.items()),
    )


def feature_names(text: str, origin: str) -> list[str]:
    """The names in what `dcfpca-participant check --json` prints, or of a text with one on each line."""
    try:
        found = [one["name"] for one in json.loads(text)["features"]]
    except (ValueError, KeyError, TypeError):
        found = [line.strip() for line in text.splitlines() if line.strip() and not set(line) & set("{,;\t")]
    if not found:
        hint = "give what `dcfpca-participant check --json` prints at a site, or one name on each line"
        raise BadInput(f"{origin} has no names of features", hint)
    return found


def _data_keys(data: DataKeys) -> dict[str, _Key]:
    optional = {
        "dataset": (data.dataset, "X", "which array of a file that holds several"),
        "id_column": (data.id_column, "patient", "the column with the samples' ids; they stay here"),
        "features": (data.features, ["age", "lab_*"], "which columns to use, by name or pattern; empty: all"),
        "exclude": (data.exclude, ["diagnosis"], "which columns to leave out"),
    }
    return {
        "path": _Key(data.path, "CSV, Excel, Parquet, NumPy and others; or a folder of parts"),
        **{name: _Key(value or example, comment, bool(value)) for name, (value, example, comment) in optional.items()},
        "missing": _Key(data.missing, '"allow": empty entries count as unobserved; "refuse": no run with any'),
        "orientation": _Key("samples-in-rows", "a line is a sample; without it the names decide", active=False),
    }


def _credentials(name: str) -> dict[str, _Key]:
    return {
        "ca": _Key("ca.crt", "the consortium's CA certificate"),
        "cert": _Key(f"{name}.crt", "this one's certificate"),
        "key": _Key(f"{name}.key", "its private key, which never leaves this machine"),
    }


def _table_lines(tables: Mapping[str, Mapping[str, _Key]], more: Tables) -> list[str]:
    lines: list[str] = []
    for table in dict.fromkeys([*tables, *more]):
        keys = dict(tables.get(table, {}))
        for name, value in more.get(table, {}).items():
            keys[name] = replace(keys.get(name, _Key("")), value=value, active=True)
        lines += ["", f"[{table}]", *(key.line(name) for name, key in keys.items())]
    return lines


def _text(*lines: str) -> str:
    return "\n".join(lines) + "\n"
