"""Configuration files of both services: TOML, validated as a whole. Every error names the file and the key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo

from dcfpca.errors import BadInput
from dcfpca.validation_text import describe


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


def read_config(path: Path, kind: type[Config], service: str) -> Config:
    """Read and check the file; anything wrong is one BadInput that names the file and the keys."""
    try:
        keys = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"the configuration {path} cannot be read: {error.strerror}", "check --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the configuration {path} is not valid TOML: {error}", "correct it at that place") from error
    try:
        return kind.model_validate(keys, context={"directory": str(path.resolve().parent)})
    except ValidationError as error:
        hint = f"`dcfpca init {service}` writes an example, docs/configuration.md explains every key"
        raise BadInput(f"the configuration {path} is not valid: {describe(error)}", hint) from error
