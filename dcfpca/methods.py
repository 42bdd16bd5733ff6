"""Builds the method that a spec names: the one place where keys of a spec become a list of stages.

`dcfpca.rpca` lists the methods. What services need to know of a run beyond its method is in `dcfpca.terms`.
"""

from __future__ import annotations

from dataclasses import replace

from dcfpca.privacy.settings import PrivacySettings
from dcfpca.privacy.zcdp import accountant_is_installed, rho_of
from dcfpca.rpca.feature_count import counting_features
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.private.schedule import PrivateSchedule
from dcfpca.rpca.private.stages import PrivateSolver, private_method
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.scaling import in_robust_units
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.spec import RunSpec


def method_of(spec: RunSpec) -> Method:
    """The method of this spec; pure, and the same at the aggregator, at every site and in `simulate`."""
    if spec.privacy is not None:
        return _private(spec, spec.privacy)
    fit = (spec.rows, spec.width, spec.rounds, spec.tolerance, spec.seed)
    match spec.method:
        case "subspace":
            method = subspace_method(SubspaceSolver(*fit, spec.subspace, spec.rank is not None))
        case "gradient":
            method = gradient_method(GradientSolver(*fit, spec.gradient))
    if spec.closing_rounds:
        method = with_closing_rounds(
            method,
            fixed_rank=spec.rank is not None or spec.method == "gradient",
            refines=spec.method == "subspace",
            hidden_share=spec.hidden_share,
            seed=spec.seed,
            rate=spec.flag_rate,
            min_cell=spec.min_cell,
            covariance=spec.covariance,
            min_carriers=spec.min_carriers,
        )
    if spec.scaling != "none":
        method = in_robust_units(method, auto=spec.scaling == "auto")
    if spec.missing_features == "allow":
        method = counting_features(method, spec.features, spec.min_feature_sites)
    return replace(method, min_cell=spec.min_cell, max_share=spec.max_share)


def schedule_of(privacy: PrivacySettings) -> PrivateSchedule:
    """What each round of a private run may spend; needs the accountant of the extra `privacy`."""
    return PrivateSchedule(privacy.rounds, rho_of(privacy.epsilon, privacy.delta))


def load_accountant(spec: RunSpec) -> None:
    """Compute ρ of a private spec, which takes up to two seconds the first time. Services call this off their event
    loop, so that `method_of` finds the value cached."""
    if spec.privacy is not None and accountant_is_installed():
        schedule_of(spec.privacy)


def _private(spec: RunSpec, privacy: PrivacySettings) -> Method:
    return private_method(
        PrivateSolver(
            rows=spec.rows,
            width=spec.width,
            schedule=schedule_of(privacy),
            conspirators=privacy.conspirators,
            clip=privacy.fixed_clip,
            max_error=privacy.max_error,
            seed=spec.seed,
            fixed_rank=spec.rank is not None,
        )
    )
