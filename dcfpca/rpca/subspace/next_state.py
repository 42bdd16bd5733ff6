"""The aggregator's step of `subspace`: what follows from the sum of a round, as a state without messages. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.subspace.rank_rules import MOVING
from dcfpca.rpca.subspace.rayleigh_ritz import rayleigh_ritz, relative_change, rotate_to_principal
from dcfpca.rpca.subspace.round_plan import State, unit_and_scales
from dcfpca.rpca.subspace.schedule import (
    QUIET_ROUNDS,
    Measured,
    Movement,
    Schedule,
    accelerated,
    first_schedule,
    next_round_explains,
    next_schedule,
    quiet_rounds,
    tangent_share,
    warm_schedule,
)
from dcfpca.rpca.subspace.solver import SubspaceSolver


def hold_against(solver: SubspaceSolver, old: State, sums: TensorMessage) -> State:
    """After the first round of a warm run: U stays, and how far it explains the data says where the thresholds begin.

    Under the first λ, which knows nothing of U, outliers would turn U away from what it is.
    """
    scalars = sums.scalars
    schedule = warm_schedule(old.schedule, Measured.of(old.schedule, scalars), solver.settings)
    unit, scales = unit_and_scales(old.values)
    U, values = rotate_to_principal(old.U, sums.tensor * unit, scales)
    weights = solver.rules.weights(values, schedule, scalars[0] * schedule.columns, stretch=1.0, moving=True)
    return State(U, weights, _kept_alive(values, schedule), schedule, old.number + 1)


def next_state(solver: SubspaceSolver, old: State, sums: TensorMessage, *, warm: bool) -> State:
    """After an ordinary round: thresholds, then the subspace, then what of it enters L, then the pace."""
    schedule = _lower_thresholds(solver, old, sums.scalars, warm)
    U, values = next_subspace(old, sums.tensor)
    weights, held = _weigh(solver, old, U, values, schedule, sums.scalars[0] * schedule.columns)
    change = relative_change(old.U, old.weights * old.values, U, weights * values)
    at_rest = change < solver.tolerance
    narrow = 0 if held or at_rest else solver.rules.narrow_rounds(old, weights, values, change, schedule.noise)
    tangent = tangent_share(int(np.count_nonzero(weights)), solver.rows, schedule.columns)
    return State(
        U=np.linalg.qr(U)[0] if old.narrow and not narrow else U,  # what rested is no longer orthogonal to the rest
        weights=weights,
        values=_kept_alive(values, schedule),
        schedule=accelerated(schedule, tangent, change, old.change, solver.settings),
        number=old.number + 1,
        change=change,
        quiet=_quiet_rounds(solver, old, schedule, change),
        narrow=narrow,
        held=held,
    )


def _quiet_rounds(solver: SubspaceSolver, old: State, schedule: Schedule, change: float) -> int:
    """Rounds in a row in which L was at rest; all that are needed, if the next round is sure to find it so."""
    if next_round_explains(change, old.change, schedule, old.schedule, solver.tolerance):
        return QUIET_ROUNDS
    at_rest = change < solver.tolerance
    return quiet_rounds(old.quiet, at_rest, schedule, old.schedule, solver.settings, solver.tolerance)


def _lower_thresholds(solver: SubspaceSolver, old: State, scalars: FloatArray, warm: bool) -> Schedule:
    """The schedule after this round. While directions are held back, λ waits with them."""
    cautious = solver.settings.adjusted_for_size(min(float(solver.rows), old.schedule.columns))
    settings = cautious.for_warm_start() if warm else cautious
    if old.number == 1:
        return first_schedule(old.schedule, scalars, settings)
    movement = Movement(old.change, at_rest=old.change < solver.tolerance)
    schedule = next_schedule(old.schedule, Measured.of(old.schedule, scalars), movement, settings)
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
