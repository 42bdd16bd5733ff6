"""Builds the method that a spec names.

`dcfpca.method_names` lists the methods, and `method_of` is where a name becomes one. What services need to know
of a method beyond its rounds (`opening_rounds`, `reads_per_round`, `step_flops`) they ask of the method itself.
"""

from __future__ import annotations

from dcfpca.rpca.gradient.method import GradientMethod
from dcfpca.rpca.method import Method
from dcfpca.rpca.scaling import ScaledMethod
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.spec import RunSpec


def method_of(spec: RunSpec) -> Method:
    """The method of this spec; pure, and the same at the aggregator, at every site and in `simulate`."""
    inner = _inner(spec)
    return ScaledMethod(inner, spec.rows) if spec.scaling == "robust" else inner


def _inner(spec: RunSpec) -> Method:
    match spec.method:
        case "subspace":
            return SubspaceMethod(
                rows=spec.rows,
                width=spec.width,
                rounds=spec.rounds,
                tolerance=spec.tolerance,
                seed=spec.seed,
                settings=spec.subspace,
                fixed_rank=spec.rank is not None,
            )
        case "gradient":
            return GradientMethod(
                rows=spec.rows,
                width=spec.width,
                rounds=spec.rounds,
                tolerance=spec.tolerance,
                seed=spec.seed,
                settings=spec.gradient,
            )
