"""pandas and xarray where they are installed; both come with the extra `frames`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dcfpca.errors import BadInput


def optional_library(name: str, what: str) -> Any:
    """The module; BadInput says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{what} need {name}, which is not installed", f"pip install {name}") from None
