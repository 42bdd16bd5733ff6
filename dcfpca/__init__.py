"""Federated robust PCA: what the aggregator and the participants share, and the names that Python programs import.

`Federation` proposes runs and takes their models, `read_result` reads what a participant wrote after a run, and
`RobustPCA` is the method for data in one place. docs/python.md shows all three.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcfpca.version import __version__

if TYPE_CHECKING:
    from dcfpca.errors import DcfpcaError
    from dcfpca.python_api.estimator import RobustPCA
    from dcfpca.python_api.federation import FederatedRun, Federation, PooledModel
    from dcfpca.python_api.result_files import Result, read_result
    from dcfpca.python_api.run_snapshots import Participant, RankError, Round, RunSnapshot, Verdict

__all__ = [
    "DcfpcaError",
    "FederatedRun",
    "Federation",
    "Participant",
    "PooledModel",
    "RankError",
    "Result",
    "RobustPCA",
    "Round",
    "RunSnapshot",
    "Verdict",
    "__version__",
    "read_result",
]

_NAMES = {
    "dcfpca.errors": ("DcfpcaError",),
    "dcfpca.python_api.estimator": ("RobustPCA",),
    "dcfpca.python_api.federation": ("FederatedRun", "Federation", "PooledModel"),
    "dcfpca.python_api.run_snapshots": ("Participant", "RankError", "Round", "RunSnapshot", "Verdict"),
    "dcfpca.python_api.result_files": ("Result", "read_result"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name only when it is asked for: the services need neither scikit-learn nor the readers."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
