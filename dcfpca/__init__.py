"""Federated robust PCA: what the aggregator and the participants share, and `RobustPCA` for data in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dcfpca.version import __version__

if TYPE_CHECKING:
    from dcfpca.estimator import RobustPCA

__all__ = ["RobustPCA", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the estimator only when it is asked for: the services do not need scikit-learn."""
    if name == "RobustPCA":
        from dcfpca.estimator import RobustPCA  # noqa: PLC0415

        return RobustPCA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
