"""Validation errors of configurations and specs as one line. Separate from the spec, which imports NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_TEXTS = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such key",
    "unexpected_keyword_argument": "there is no such key",
    "string_type": 'it must be text in quotes, such as "a"',
    "path_type": 'it must be a path in quotes, such as "data.csv"',
    "tuple_type": 'it must be a list in brackets, such as ["a", "b"]',
    "list_type": 'it must be a list in brackets, such as ["a", "b"]',
    "bool_type": "it must be true or false, without quotes",
    "bool_parsing": "it must be true or false, without quotes",
    "int_type": "it must be a whole number, without quotes",
    "int_parsing": "it must be a whole number, without quotes",
    "int_parsing_size": "it has too many digits",
    "json_invalid": "the text is not JSON",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number, without quotes",
    "float_parsing": "it must be a number, without quotes",
    "finite_number": "it must be a finite number",
    "model_type": "it must be a table, with a line [{key}] above its keys",
    "dataclass_type": "it must be a table, with a line [{key}] above its keys",
    "dict_type": "it must be a table, with a line [{key}] above its keys",
    "greater_than_equal": "it must be {ge} or more",
    "greater_than": "it must be more than {gt}",
    "less_than_equal": "it must be {le} or less",
    "less_than": "it must be less than {lt}",
    "literal_error": "it must be {expected}",
    "string_too_long": "it must have at most {max_length} characters",
    "string_too_short": "it must have at least {min_length} characters",
}
_REMOVED = dict.fromkeys(
    ("dropouts", "threshold", "policy.allow_dropouts", "policy.min_threshold"),
    "there is no such key any more; remove it: a secure run waits for its members",
)
"""Keys of earlier versions, and what to do about them."""
_OTHERWISE = "it is not written as it must be"


def describe(error: ValidationError) -> str:
    """All errors of a pydantic validation in one line: `key: what is wrong`, separated by `;`."""
    return "; ".join(
        _describe_one(item["loc"], item["msg"], item["type"], item.get("ctx", {})) for item in error.errors()
    )


def _describe_one(loc: tuple[int | str, ...], message: str, kind: str, context: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in loc)
    if kind == "value_error":  # our own words
        text = message.removeprefix("Value error, ")
    elif kind == "extra_forbidden" and key in _REMOVED:
        text = _REMOVED[key]
    elif kind in _TEXTS:
        text = _TEXTS[kind].format(key=key, **context)
    else:
        text = _OTHERWISE
    return f"{key}: {text}" if key else text
