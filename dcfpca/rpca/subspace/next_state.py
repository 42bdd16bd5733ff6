"""The aggregator's step of `subspace`: what follows from the sum of a round, as a state without messages. Pure.

The next subspace and its singular values are those of the Rayleigh–Ritz step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dcfpca.rpca.kernels.step_parameters import select_columns
from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.subspace.rank_rules import MOVING, NUMERICALLY_ABSENT
from dcfpca.rpca.subspace.round_plan import State, unit_and_scales
from dcfpca.rpca.subspace.schedule import (
    QUIET_ROUNDS,
    Measured,
    Schedule,
    accelerated,
    first_schedule,
    is_final,
    next_round_explains,
    next_schedule,
    warm_schedule,
)
from dcfpca.rpca.subspace.solver import SubspaceSolver

DEPENDENT = 1e-7  # the squared ratio of singular values below which squares tell too little


def hold_against(solver: SubspaceSolver, old: State, sums: TensorMessage) -> State:
    """After the first round of a warm run: U stays, and how well it explains the data decides where the thresholds
    begin.

    Under the first λ, which does not depend on U, outliers would turn U away from where it is.
    """
    scalars = sums.scalars
    schedule = warm_schedule(old.schedule, Measured.of(old.schedule, scalars), solver.settings)
    unit, scales = unit_and_scales(old.values)
    U, values = rotate_to_principal(old.U, sums.tensor * unit, scales)
    weights = solver.rules.weights(values, schedule, scalars[0] * schedule.columns, stretch=1.0, moving=True)
    return State(U, weights, _kept_alive(values, schedule), schedule, old.number + 1)


def next_state(solver: SubspaceSolver, old: State, sums: TensorMessage, *, warm: bool) -> State:
    """After an ordinary round: thresholds, then the subspace, then which directions enter L, then the pace."""
    schedule = _lower_thresholds(solver, old, sums.scalars, warm)
    U, values = next_subspace(old, sums.tensor)
    weights, held = _weigh(solver, old, U, values, schedule, sums.scalars[0] * schedule.columns)
    change = relative_change(old.U, old.weights * old.values, U, weights * values)
    at_rest = change < solver.tolerance
    narrow = 0 if held or at_rest else solver.rules.narrow_rounds(old, weights, values, change, schedule.noise)
    rank = int(np.count_nonzero(weights))
    return State(
        U=np.linalg.qr(U)[0] if old.narrow and not narrow else U,  # what rested is no longer orthogonal to the rest
        weights=weights,
        values=_kept_alive(values, schedule),
        schedule=accelerated(schedule, rank, solver.rows, change, old.change, solver.settings),
        number=old.number + 1,
        change=change,
        quiet=_quiet_rounds(solver, old, schedule, change),
        narrow=narrow,
        held=held,
    )


def _quiet_rounds(solver: SubspaceSolver, old: State, schedule: Schedule, change: float) -> int:
    """Consecutive rounds in which L was at rest; as many as needed, if the next round is certain to find it at rest."""
    if next_round_explains(change, old.change, schedule, old.schedule, solver.tolerance):
        return QUIET_ROUNDS
    final = change < solver.tolerance and is_final(schedule, old.schedule, solver.settings, solver.tolerance)
    return old.quiet + 1 if final else 0


def _lower_thresholds(solver: SubspaceSolver, old: State, scalars: FloatArray, warm: bool) -> Schedule:
    """The schedule after this round. While directions are held back, λ waits with them."""
    settings = solver.settings.adjusted(min(float(solver.rows), old.schedule.columns), warm)
    if old.number == 1:
        return first_schedule(old.schedule, scalars, settings)
    measured, at_rest = Measured.of(old.schedule, scalars), old.change < solver.tolerance
    schedule = next_schedule(old.schedule, measured, old.change, at_rest, settings)
    return replace(schedule, level=old.schedule.level, entry=old.schedule.entry) if old.held else schedule


def _weigh(
    solver: SubspaceSolver, old: State, U: FloatArray, values: FloatArray, schedule: Schedule, columns: float
) -> tuple[FloatArray, int]:
    """d, and for how many rounds in a row directions that would have entered have now been held back."""
    stretch = old.schedule.step / old.schedule.relaxation
    weights = solver.rules.weights(values, schedule, columns, stretch, moving=old.change > MOVING)
    if old.number > 1:
        weights = solver.rules.with_evident_directions(weights, U, values, old, schedule, columns)
    if old.narrow:
        weights[old.weights == 0.0] = 0.0  # they rested: their singular values are those of an earlier round
    weak = solver.rules.deferred_directions(values, old)
    held = old.held + 1 if weights[weak].any() else 0
    weights[weak] = 0.0
    return weights, held


def next_subspace(old: State, tensor: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The next U and singular values; after a narrow round, those of the entering directions beside the old rest."""
    (unit, scales), rough = unit_and_scales(old.values), old.schedule.single > 0.0
    if not old.narrow:
        return rayleigh_ritz(old.U, tensor * unit, scales, rough)
    entering = old.weights > 0.0
    U, values = old.U.copy(), old.values.copy()
    Z = tensor[:, entering] * unit
    U[:, entering], values[entering] = rayleigh_ritz(old.U[:, entering], Z, scales[entering], rough)
    return U, values


def _kept_alive(values: FloatArray, schedule: Schedule) -> FloatArray:
    """The scales of the next update: a direction that vanished goes on with its share of what is not in L."""
    scales: FloatArray = np.maximum(values, schedule.influence * np.sqrt(schedule.columns))
    return scales


def rotate_to_principal(U: FloatArray, Z: FloatArray, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
    """U rotated within its span to the principal directions of YᵀU, and their singular values; Z = Y YᵀU/σ."""
    squares, turn = np.linalg.eigh((U.T @ Z) * scales, UPLO="U")
    return U @ turn[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))


def rayleigh_ritz(U: FloatArray, Z: FloatArray, scales: FloatArray, rough: bool) -> tuple[FloatArray, FloatArray]:
    """The left singular vectors and singular values of Y restricted to the row space that the sites used.

    The sites sent Z = Y V̂ with V̂ = YᵀU/σ. Since UᵀZ = σ V̂ᵀV̂, the aggregator can orthonormalize V̂ without having it,
    which makes the singular values exact on that space instead of squared.
    """
    gram = (U.T @ Z) / scales[:, None]
    # The scales are the strengths of the round before, which a direction that had vanished may exceed by far: it must
    # not make the others look absent. One that fell short of them is left short, for what it has may be rounding.
    lengths = np.sqrt(np.maximum(np.diag(gram), 1.0))
    gram, Z = gram / lengths / lengths[:, None], Z / lengths
    # The values descend, so the upper triangle is the half whose rows were divided by the larger of two: it keeps
    # its digits where a direction has all but vanished.
    if rough and (found := _via_gram(gram, Z)) is not None:
        return found
    strengths, vectors = np.linalg.eigh(gram, UPLO="U")
    there = strengths > NUMERICALLY_ABSENT * max(strengths[-1], 0.0)
    inverse_roots = np.zeros_like(strengths)
    inverse_roots[there] = 1.0 / np.sqrt(strengths[there])
    Q, R = np.linalg.qr(Z @ (vectors * inverse_roots))
    P, values, _ = np.linalg.svd(R)
    return Q @ P, values


def _via_gram(gram: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The same from V̂ᵀV̂ = C Cᵀ and ZᵀZ: one decomposition of p × p, C⁻¹ ZᵀZ C⁻ᵀ = W σ² Wᵀ, and U = Z C⁻ᵀ W/σ.

    It loses half the digits and takes a third of the time. None where the columns of V̂ or Y V̂ are so nearly dependent
    that the vectors would not be orthogonal to what single precision has.
    """
    try:
        factor = np.linalg.cholesky(gram, upper=True)
        spread = (np.diag(factor).min() / np.diag(factor).max()) ** 2
        inverse = np.linalg.inv(factor)
        squares, vectors = np.linalg.eigh(inverse.T @ (Z.T @ Z) @ inverse)
    except np.linalg.LinAlgError:  # of a factor that is zero, or so small that its inverse is not finite
        return None
    if spread * squares[0] <= DEPENDENT * squares[-1]:
        return None
    values = np.sqrt(squares[::-1])
    return Z @ (inverse @ (vectors[:, ::-1] / values)), values


def relative_change(old_U: FloatArray, old: FloatArray, new_U: FloatArray, new: FloatArray) -> float:
    """The change of L = U diag(σ) … relative to its size: out of the old subspace, and in its singular values.

    Computed from differences, not from 1 − cos², so that it is exact down to rounding.
    """
    size = np.sqrt(np.sum(new**2))
    if size == 0.0:
        return 0.0 if not old.any() else 1.0
    there, was = (select_columns(U, sizes.nonzero()[0]) for U, sizes in ((new_U, new), (old_U, old)))
    out = (there - was @ (was.T @ there)) * new[new > 0.0]
    return float(np.sqrt(np.sum(out**2) + np.sum((np.sort(new) - np.sort(old)) ** 2)) / size)
