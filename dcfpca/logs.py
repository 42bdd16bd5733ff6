"""One line per event: `action=` and ids as fields, for people or as JSON. Never a value from data, never a secret."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["human", "json"]
Value = str | int | float | bool | None | Sequence[str]

_LOGGER = logging.getLogger("dcfpca")
_FIELDS = "dcfpca_fields"


def setup(log_format: LogFormat = "human", level: str = "info", stream: TextIO | None = None) -> None:
    """Send the lines to `stream` (standard error unless told) in this form; a repeat replaces the earlier setup."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Human())
    _LOGGER.handlers[:] = [handler]
    _LOGGER.propagate = False
    _LOGGER.setLevel(level.upper())


def log(action: str, *, level: Literal["debug", "info", "warning", "error"] = "info", **fields: Value) -> None:
    """Say that something happened, in the past tense: `log("update_accepted", run=…, round=3)`."""
    number = getattr(logging, level.upper())
    if _LOGGER.isEnabledFor(number):
        _check(fields)
        _LOGGER.log(number, action, extra={_FIELDS: fields})


def _check(fields: Mapping[str, Any]) -> None:
    """Bytes and arrays have no place in a log: the first are secrets, the second data."""
    for name, value in fields.items():
        if not isinstance(value, str | int | float | list | tuple | None):
            raise TypeError(f"{name} is a {type(value).__name__}; a log line takes text and numbers only")


class _Human(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields = getattr(record, _FIELDS, {})
        words = [f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z", f"{record.levelname.lower():7}"]
        words.append(f"action={record.getMessage()}")
        words += [f"{name}={_text(value)}" for name, value in fields.items() if value is not None]
        return " ".join(words)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": moment, "level": record.levelname.lower(), "action": record.getMessage()}
        text = json.dumps(line | getattr(record, _FIELDS, {}), ensure_ascii=False, default=str)
        return text if text.isprintable() else json.dumps(line | getattr(record, _FIELDS, {}), default=str)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = ",".join(value) if isinstance(value, list | tuple) else str(value)
    if not text.isprintable():
        # Peers choose some of these words: none may move a terminal's cursor or begin a line of its own.
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=') else text
