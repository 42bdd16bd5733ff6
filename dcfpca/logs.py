"""Structured logging, one line per event: `action=` and ids as fields, as text or JSON. No data, no secrets."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

LogFormat = Literal["human", "json"]
Value = str | int | float | bool | None | Sequence[str]

_LOGGER = logging.getLogger("dcfpca")
_FIELDS = "dcfpca_fields"


def setup(log_format: LogFormat = "human", level: str = "info", stream: TextIO | None = None) -> None:
    """Log to `stream` (stderr by default) in this format; a second call replaces the first.

    Warnings and errors of libraries come in the same format, with the action `library_message`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Human())
    _LOGGER.handlers[:] = [handler]
    of_libraries = _LibraryHandler(stream or sys.stderr)
    of_libraries.setLevel(logging.WARNING)
    of_libraries.setFormatter(handler.formatter)
    root = logging.getLogger()
    root.handlers[:] = [*(one for one in root.handlers if not isinstance(one, _LibraryHandler)), of_libraries]
    logging.captureWarnings(True)
    _LOGGER.propagate = False
    _LOGGER.setLevel(level.upper())


def setup_service(log_format: LogFormat, level: str) -> None:
    """Log to stderr as `setup` does; as JSON, what ends the process or one of its threads is a line of JSON, too.

    The interpreter would write a traceback of many lines, and `run_command` an `error:` and a `hint:`.
    """
    setup(log_format, level)
    if log_format == "json":
        sys.excepthook = _process_failed
        threading.excepthook = lambda told: _log_uncaught(told.exc_value, told.thread.name if told.thread else "thread")
        sys.unraisablehook = lambda told: _log_uncaught(told.exc_value, told.err_msg or repr(told.object))


def is_json_service() -> bool:
    """Whether nothing but JSON may be on this process's stderr."""
    return sys.excepthook is _process_failed


def log(action: str, *, level: Literal["debug", "info", "warning", "error"] = "info", **fields: Value) -> None:
    """Log an event, named in the past tense: `log("update_accepted", run=…, round=3)`."""
    number = getattr(logging, level.upper())
    if _LOGGER.isEnabledFor(number):
        for name, value in fields.items():
            if not isinstance(value, str | int | float | list | tuple | None):  # others may be secrets or data
                raise TypeError(f"{name} is a {type(value).__name__}; a log line takes text and numbers only")
        # Not `Logger.log`: its search for the calling line takes as long as all the rest, and no format shows it.
        record = logging.LogRecord(_LOGGER.name, number, "", 0, action, (), None)
        setattr(record, _FIELDS, fields)
        _LOGGER.handle(record)


def _process_failed(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    _log_uncaught(error, "process")


def _log_uncaught(error: BaseException | None, where: str) -> None:
    trace = "".join(traceback.format_exception(error)) if error is not None else None
    log("uncaught_exception", level="error", where=where, error=repr(error), traceback=trace)


class _LibraryHandler(logging.StreamHandler[TextIO]):
    def format(self, record: logging.LogRecord) -> str:
        """A library's message, and its exception if there is one, as fields of one line."""
        fields = {"library": record.name, "message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = repr(record.exc_info[1])
        event = logging.LogRecord(record.name, record.levelno, "", 0, "library_message", (), None)
        setattr(event, _FIELDS, fields)
        return super().format(event)


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
        line |= {name: _finite(value) for name, value in getattr(record, _FIELDS, {}).items()}
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, default=str)
        return text if text.isprintable() else json.dumps(line, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    """The value; None for NaN and infinity, which JSON lacks: figures that a round does not have yet."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = ",".join(value) if isinstance(value, list | tuple) else str(value)
    if not text.isprintable():
        # Peers choose some of this text: it must not drive a terminal or forge a line.
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=') else text
