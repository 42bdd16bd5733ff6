"""Builds the method that a spec names.

`dcfpca.method_names` lists the methods, and `method_of` is where a name becomes one. What services need to know
of a method beyond its rounds (`opening_rounds`, `reads_per_round`, `step_flops`) they ask of the method itself.
"""

from __future__ import annotations

from dcfpca.rpca.feature_count import FeatureCountMethod
from dcfpca.rpca.gradient.method import GradientMethod
from dcfpca.rpca.method import Method
from dcfpca.rpca.refinement.method import StagedMethod
from dcfpca.rpca.scaling import ScaledMethod
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.spec import RunSpec


def method_of(spec: RunSpec) -> Method:
    """The method of this spec; pure, and the same at the aggregator, at every site and in `simulate`."""
    inner = _staged(spec) if spec.closing_rounds else _inner(spec)
    scaled = ScaledMethod(inner, spec.rows) if spec.scaling == "robust" else inner
    if spec.missing_features == "refuse":
        return scaled
    return FeatureCountMethod(scaled, spec.features, spec.min_feature_sites)


def _staged(spec: RunSpec) -> Method:
    return StagedMethod(
        _inner(spec),
        spec.rows,
        spec.width,
        fixed_rank=spec.rank is not None or spec.method == "gradient",
        refines=spec.method == "subspace",
        seed=spec.seed,
        hidden_share=spec.hidden_share,
        rate=spec.flag_rate,
        features=spec.features,
    )


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
