"""What is wrong with a file of keys and values, for people. Apart from the spec, so that a config costs no numerics."""

from __future__ import annotations

from pydantic import ValidationError


def describe(error: ValidationError) -> str:
    """All complaints of a pydantic validation in one line: `key: what is wrong`, with `;` between."""
    return "; ".join(_complaint(item["loc"], item["msg"], item["type"]) for item in error.errors())


def _complaint(loc: tuple[int | str, ...], message: str, kind: str) -> str:
    key = ".".join(str(part) for part in loc)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: there is no such key"
    said = message.removeprefix("Value error, ")
    return f"{key}: {said}" if key else said
