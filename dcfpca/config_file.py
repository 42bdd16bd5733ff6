"""Configuration files of both services: TOML, validated as a whole. Every error names the file and the key.

`describe` words the errors of specs too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo

from dcfpca.errors import BadInput, did_you_mean

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
_NO_SUCH_KEY = ("extra_forbidden", "unexpected_keyword_argument")
_REMOVED = dict.fromkeys(
    ("dropouts", "threshold", "policy.allow_dropouts", "policy.min_threshold"),
    "this key no longer exists; remove it: a secure run waits for its members",
) | {"server.threads": "this key no longer exists; remove it: sums are taken with one thread"}
"""Keys of earlier versions, and what to do about them."""
_OTHERWISE = "its form is not valid"


def _beside_the_file(value: Any, info: ValidationInfo) -> Any:
    """Relative paths are relative to the configuration file, wherever the service is started."""
    if isinstance(value, str) and info.context:
        return Path(info.context["directory"]) / Path(value).expanduser()
    return value


FilePath = Annotated[Path, BeforeValidator(_beside_the_file)]


class Section(BaseModel):
    """A table of the file; a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Config = TypeVar("Config", bound=Section)


def read_toml(path: Path, what: str, where: str, correction: str = "correct it at that place") -> dict[str, Any]:
    """The keys of a TOML file; BadInput names it. `where` says where its path was given, for the hint."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{what} {path} cannot be read: {error.strerror}", f"check {where}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{what} {path} is not valid TOML: {error}", correction) from None
    return parse_toml(text, f"{what} {path}", correction)


def parse_toml(text: str, what: str, correction: str) -> dict[str, Any]:
    """The keys in a text; BadInput unless it is TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{what} is not valid TOML: {error}", correction) from None


def read_config(path: Path, kind: type[Config], service: str) -> Config:
    """Read and check the file; anything wrong is one BadInput that names the file and the keys."""
    keys = read_toml(path, "the configuration", "--config")
    try:
        return kind.model_validate(keys, context={"directory": str(path.resolve().parent)})
    except ValidationError as error:
        hint = f"`dcfpca init {service}` writes an example, docs/configuration.md explains every key"
        raise BadInput(f"the configuration {path} is not valid: {describe(error, kind)}", hint) from error


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """All errors of a pydantic validation in one line: `key: what is wrong`, separated by `;`; for a key that `model`
    does not have, also the one that may have been meant."""
    known = sorted(set(_key_names(model)))
    return "; ".join(
        _describe_one(item["loc"], item["msg"], item["type"], item.get("ctx", {}), known) for item in error.errors()
    )


def _key_names(model: type[Any]) -> Iterator[str]:
    """The keys of a table and of the tables in it."""
    for name, field in getattr(model, "__pydantic_fields__", {}).items():
        yield name
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type):
                yield from _key_names(kind)


def _describe_one(
    loc: tuple[int | str, ...], message: str, kind: str, context: Mapping[str, Any], known: Sequence[str]
) -> str:
    key = ".".join(str(part) for part in loc)
    if kind == "value_error":  # our own words
        text = message.removeprefix("Value error, ")
    elif kind == "extra_forbidden" and key in _REMOVED:
        text = _REMOVED[key]
    elif kind in _NO_SUCH_KEY:
        meant = did_you_mean(str(loc[-1]), known)
        text = f"{_TEXTS[kind]} ({meant})" if meant else _TEXTS[kind]
    elif kind in _TEXTS:
        text = _TEXTS[kind].format(key=key, **context)
    else:
        text = _OTHERWISE
    return f"{key}: {text}" if key else text
