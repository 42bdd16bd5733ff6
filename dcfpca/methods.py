"""Builds the method that a spec names.

`dcfpca.method_names` lists the methods, and `method_of` is where a name becomes one. What services need to know
of a method beyond its rounds (`opening_rounds`, `reads_per_round`, `step_flops`) they ask of the method itself.
"""

from __future__ import annotations

from dcfpca.privacy.settings import PrivacySettings
from dcfpca.privacy.zcdp import accountant_is_installed, rho_of
from dcfpca.rpca.feature_count import FeatureCountMethod
from dcfpca.rpca.gradient.method import GradientMethod
from dcfpca.rpca.method import Method
from dcfpca.rpca.private.method import PrivateSubspaceMethod
from dcfpca.rpca.private.schedule import PrivateSchedule
from dcfpca.rpca.refinement.method import StagedMethod
from dcfpca.rpca.scaling import ScaledMethod
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.spec import RunSpec


def method_of(spec: RunSpec) -> Method:
    """The method of this spec; pure, and the same at the aggregator, at every site and in `simulate`."""
    if spec.privacy is not None:
        return _private(spec, spec.privacy)
    inner = _staged(spec) if spec.closing_rounds else _inner(spec)
    scaled = ScaledMethod(inner, spec.rows) if spec.scaling == "robust" else inner
    if spec.missing_features == "refuse":
        return scaled
    return FeatureCountMethod(scaled, spec.features, spec.min_feature_sites)


def schedule_of(privacy: PrivacySettings) -> PrivateSchedule:
    """What each round of a private run may spend; needs the accountant of the extra `privacy`."""
    return PrivateSchedule(privacy.rounds, rho_of(privacy.epsilon, privacy.delta))


def load_accountant(spec: RunSpec) -> None:
    """Find ρ of a spec with privacy, which takes up to two seconds once: services do it off their event loop, so that
    `method_of` does not wait for it."""
    if spec.privacy is not None and accountant_is_installed():
        schedule_of(spec.privacy)


def _private(spec: RunSpec, privacy: PrivacySettings) -> Method:
    return PrivateSubspaceMethod(
        rows=spec.rows,
        width=spec.width,
        schedule=schedule_of(privacy),
        conspirators=privacy.conspirators,
        clip=privacy.fixed_clip,
        max_error=privacy.max_error,
        seed=spec.seed,
        fixed_rank=spec.rank is not None,
    )


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
