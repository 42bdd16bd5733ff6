"""Federated robust PCA: what the aggregator and the participants share, and what a program needs of it.

`RobustPCA` is the method for data in one place; `read_result` reads what a participant wrote after a run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcfpca.version import __version__

if TYPE_CHECKING:
    from dcfpca.estimator import RobustPCA
    from dcfpca.result_files import Result, read_result

__all__ = ["Result", "RobustPCA", "__version__", "read_result"]

_HOMES = {"RobustPCA": "dcfpca.estimator", "Result": "dcfpca.result_files", "read_result": "dcfpca.result_files"}


def __getattr__(name: str) -> Any:
    """Import a name only when it is asked for: the services need neither scikit-learn nor the readers."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
