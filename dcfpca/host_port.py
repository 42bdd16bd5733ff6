"""The addresses in configurations: host:port to dial or to listen on, and what is wrong with one in plain words."""

from __future__ import annotations

import re

_SHAPE = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s/,\[\]]+):([0-9]{1,9})")
_LARGEST_PORT = 65535
_EXAMPLE = "it must be host:port, such as aggregator.example.org:7443"


def listening(text: str) -> str:
    """host:port to listen on, as it is; port 0 takes a free one. ValueError says what is wrong."""
    return _checked(text, _EXAMPLE, least=0)


def listening_or_none(text: str) -> str:
    """host:port to listen on, or nothing."""
    return listening(text) if text else text


def dialled(text: str) -> str:
    """host:port to dial, as it is."""
    return _checked(text, _EXAMPLE, least=1)


def all_dialled(text: str) -> str:
    """host:port to dial, or several with commas between them: an aggregator and its standby."""
    for part in text.split(","):
        _checked(part.strip(), f"{_EXAMPLE}, or several with commas between", least=1)
    return text


def _checked(text: str, otherwise: str, least: int) -> str:
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError(otherwise)
    if not least <= int(found[2]) <= _LARGEST_PORT:
        raise ValueError(f"the port {found[2]} must be between {least} and {_LARGEST_PORT}")
    return text
