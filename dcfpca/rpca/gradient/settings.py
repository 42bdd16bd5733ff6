"""The tunables of `gradient`, and those that the aggregator broadcasts once the data's size is known."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.gradient.objective import INNER_LIMIT, Penalties
from dcfpca.rpca.method import FloatArray, TensorMessage

# λ and η in units of the data, fitted to the authors' values for their problems (λ: 0.1 to 0.2 where the entries of
# L deviate by 5 to 12; K η n_i: 15 to 100).
MEASURED_LAMBDA = 0.02
MEASURED_STEP = 15.0
# ρ‖L‖_* balances λ‖S‖₁ at ρ = λ√max(m, n). With the paper's ρ, hundreds of times smaller, columns of U beyond the true
# rank go on to explain outliers for as long as the run lasts; half the balance keeps them at zero and biases L little.
MEASURED_BALANCE = 0.5


@dataclass(frozen=True, slots=True)
class GradientSettings:
    """Algorithm 1 of the paper. `None` means: measured from the data in the opening exchange.

    The authors' values are absolute, for data where U and V have entries near 1: with `lambda_` given, U starts
    standard normal and ρ = 1/√min(m, n) as in the paper, which suits a `width` that is the true rank. With `lambda_`
    None both follow the scale of the data, and ρ is large enough for `width` to be an upper bound.
    """

    local_iterations: int = 5  # K
    learning_rate: float | None = None  # η_0
    decay: Literal["sqrt", "constant"] = "sqrt"  # η_t = η_0/√(t+1), or η_0
    lambda_: float | None = None  # λ
    rho: float | None = None  # ρ
    inner_steps: int = 1  # alternations of V and S per local iteration: 1 as the authors do, 0 to the tolerance
    inner_tolerance: float = 1e-6  # of that solve: relative residual of ρV = clip(M − UVᵀ, ±λ)ᵀU
    weights: Literal["equal", "columns"] = "equal"  # the paper's mean, or by column counts as in its experiments

    def __post_init__(self) -> None:
        if self.local_iterations < 1:
            raise BadInput(
                "A round of `gradient` needs at least one local iteration.", "Set local_iterations to 1 or more."
            )
        for name in ("learning_rate", "lambda_", "rho"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < np.inf:
                raise BadInput(f"{name} must be positive, not {value}.", "Leave it out to have it measured.")
        if self.inner_steps < 0 or not 0.0 < self.inner_tolerance < 1.0:
            raise BadInput("inner_steps must not be negative, and inner_tolerance lies between 0 and 1.")

    @property
    def local_passes(self) -> int:
        """Passes over a site's data in one local step; the most there can be where V is solved to a tolerance."""
        return self.local_iterations * (self.inner_steps or INNER_LIMIT)


@dataclass(frozen=True, slots=True)
class GradientPlan:
    """The scalars of every broadcast: which round of the fit it is, from 1, then n, λ, ρ and η_0."""

    number: float
    columns: float
    lambda_: float
    rho: float
    learning_rate: float

    @staticmethod
    def of(broadcast: TensorMessage) -> GradientPlan:
        """Read them from a broadcast."""
        return GradientPlan(*broadcast.scalars.tolist())

    @property
    def penalties(self) -> Penalties:
        """λ and ρ."""
        return Penalties(self.lambda_, self.rho)

    def step(self, decay: Literal["sqrt", "constant"]) -> float:
        """η of this round; the first round is the paper's t = 0."""
        return self.learning_rate / float(np.sqrt(self.number)) if decay == "sqrt" else self.learning_rate

    def broadcast(self, U: FloatArray) -> TensorMessage:
        """The inverse of `of`, with the left factor of the round."""
        return TensorMessage(U, np.array(astuple(self)))


@dataclass(frozen=True, slots=True)
class Opening:
    """The totals of the opening exchange: m, n, the number of sites, and the mean of their scales."""

    rows: int
    columns: float
    sites: int
    scale: float


def unit_of(settings: GradientSettings, scale: float, width: int) -> float:
    """The size that an entry of U Vᵀ has per factor: 1 in the paper's units, else from the data's scale."""
    return 1.0 if settings.lambda_ is not None or scale == 0.0 else scale / float(np.sqrt(width))


def plan_of(settings: GradientSettings, opening: Opening, unit: float) -> GradientPlan:
    """Replace settings that are None by values measured in the opening exchange."""
    longer, shorter = max(opening.rows, opening.columns), min(opening.rows, opening.columns)
    if settings.lambda_ is None:
        lambda_ = MEASURED_LAMBDA * (opening.scale or 1.0)
        rho = MEASURED_BALANCE * lambda_ * float(np.sqrt(longer))
    else:
        lambda_, rho = settings.lambda_, 1.0 / float(np.sqrt(shorter))
    rate = MEASURED_STEP * opening.sites / (settings.local_iterations * opening.columns * unit)
    return GradientPlan(
        number=1.0,
        columns=opening.columns,
        lambda_=lambda_,
        rho=rho if settings.rho is None else settings.rho,
        learning_rate=rate if settings.learning_rate is None else settings.learning_rate,
    )
