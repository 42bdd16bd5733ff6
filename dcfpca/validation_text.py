"""Validation errors of configurations and specs as one line. Separate from the spec, which imports NumPy."""

from __future__ import annotations

from pydantic import ValidationError


def describe(error: ValidationError) -> str:
    """All errors of a pydantic validation in one line: `key: what is wrong`, separated by `;`."""
    return "; ".join(_describe_one(item["loc"], item["msg"], item["type"]) for item in error.errors())


def _describe_one(loc: tuple[int | str, ...], message: str, kind: str) -> str:
    key = ".".join(str(part) for part in loc)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: there is no such key"
    text = message.removeprefix("Value error, ")
    return f"{key}: {text}" if key else text
