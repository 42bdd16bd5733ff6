"""`RobustPCA`: the same solver for data in one place, with scikit-learn's interface. Rows are samples here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.rpca import MethodName
from dcfpca.rpca.column_blocks import ArrayColumns, blocks, check_entries
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.closing_stage import CURVE
from dcfpca.rpca.refinement.scoring import TransformedColumns, normality, transform_columns
from dcfpca.rpca.refinement.verdict import verdict_of
from dcfpca.rpca.round_limits import automatic_bound
from dcfpca.rpca.scaling import scale_from_mad, share_unit_and_level
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.site_result import unexplained_text
from dcfpca.rpca.subspace.solver import SubspaceSolver

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as cause:  # pragma: no cover - the development environment has it
    raise ImportError(
        "dcfpca.RobustPCA needs scikit-learn, which is not installed; install it with: pip install 'dcfpca[sklearn]'"
    ) from cause

ROUNDS_OF_JUDGEMENT = 2  # validation and null, after the rounds that fit
SMALLEST_VALUE = 1e-10  # singular values below this share of the largest are rounding


class RobustPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Split X (samples × features) into a low-rank part, sparse gross outliers, and small noise. NaN is unobserved.

    Parameters
    ----------
    rank : the exact rank of the low-rank part, if known; or "auto", the default where no bound is given either: on
        data that is exactly low-rank plus sparse the exact rank, else the smallest that predicts hidden entries.
    max_rank : an upper bound; the rank is found below it (method "gradient" works with this many directions).
    method : "subspace" (exact, finds the rank, no tuning) or "gradient" (the DCF-PCA paper's Algorithm 1).
    max_iter, tol : the most rounds; the fit stops when the subspace moves less than `tol`.
    fdr : how strict flags are on data that is not exact: an entry is flagged if the probability that it is ordinary is
        below 15 times this.
    scaling : "robust": centre features by their medians and divide them by 1.4826 times their MADs; results are in the
        units of the data. "auto", the default: as "robust", unless all features vary about zero by similar amounts.
        "none": leave the data as it is.
    random_state : seed of the random start.
    settings : SubspaceSettings or GradientSettings of the method; None for the defaults.

    Attributes
    ----------
    components_ : (rank_, features), orthonormal rows, strongest first; of features over `scale_`.
    singular_values_ : (rank_,), of the low-rank part about `location_`, over `scale_`.
    rank_, n_iter_ : the rank found, and the rounds used.
    low_rank_ : (samples, features), the training data without outliers and noise, complete.
    sparse_ : (samples, features), scipy CSR; what was taken out as an outlier: on exact data all that is not low-rank,
        otherwise the flagged entries.
    outliers_ : (samples, features) of bool; True where `sparse_` has an entry.
    location_ : (features,), the centre of the low-rank part: zeros or medians on exact data, else the fitted centre.
    scale_ : (features,), what features were divided by; ones where they were not scaled.
    p_values_ : (samples,), how likely a sample as odd as this is among normal ones.
    instruments_ : features that repeat one value or drift in the order of the samples, with the samples concerned.
    rank_curve_ : (ranks, 3), rank, error of hidden entries relative to that of medians, and its standard error.
    outcome_ : how the run ended, as a sentence; also whether features or samples stay apart, or the bound on the rank
        was reached: then the answer cannot be trusted as it is.
    verdict_ : in one sentence, what was found and whether there is a reason not to trust it.
    certificate_ : figures to judge the result by: `stationarity` (how far one more pass would move it, relatively),
        `outlier_share`, `missing_share`, `residual_rms`, and with method "subspace" `rows_apart` and `columns_apart`
        (how many features and samples have most of their entries among the outliers).
    """

    def __init__(
        self,
        *,
        rank: int | Literal["auto"] | None = None,
        max_rank: int | None = None,
        method: MethodName = "subspace",
        max_iter: int = 200,
        tol: float = 1e-9,
        fdr: float = 0.01,
        scaling: Literal["auto", "robust", "none"] = "auto",
        random_state: int = 0,
        settings: SubspaceSettings | GradientSettings | None = None,
    ) -> None:
        self.rank = rank
        self.max_rank = max_rank
        self.method = method
        self.max_iter = max_iter
        self.tol = tol
        self.fdr = fdr
        self.scaling = scaling
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Find the low-rank part and the outliers of X. `y` is ignored."""
        X = _validated(self, X, reset=True)
        method = self._method(X)
        self.location_, self.scale_ = _units(X, self.scaling)
        run = simulate(method, [self._scaled(X)])
        self._keep(run, method.model(run.consensus)["U"])
        bounded = not _is_fixed(self.rank) and self.method == "subspace"
        self.outcome_ += _apart(self.certificate_) + (_at_bound(self.rank_, _bound(self, X)) if bounded else "")
        self._judge(run, _bound(self, X) if bounded else None)
        return self

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: object) -> FloatArray:
        """`fit(X).transform(X)`."""
        return self.fit(X).transform(X)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Coordinates (samples, rank_) of each sample's normal part: its outliers are removed, the subspace stays."""
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        parts = [(found.L - self._centre[:, None]).T @ self.components_.T for found in self._fitted(X)]
        return np.concatenate(parts, axis=0)

    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """The samples (in feature space) that have these coordinates."""
        check_is_fitted(self)
        return np.asarray((np.asarray(X) @ self.components_) * self.scale_ + self.location_)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """How normal each sample is, as a whole or in its worst entries, against the null of the training data: the
        lower, the less. For ordering samples: it is no probability, as two tests are looked at."""
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        return np.concatenate([normality(found.scored, self._plan) for found in self._fitted(X)])

    def flag(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Which entries (samples, features) of new data are outliers by the null and the cut of the training data."""
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        return np.concatenate([found.scored.flagged.T for found in self._fitted(X)], axis=0)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """The mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    @property
    def _n_features_out(self) -> int:
        return int(self.rank_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _method(self, X: FloatArray) -> Method:
        return with_closing_rounds(
            self._fit_method(X.shape[1], _bound(self, X)),
            fixed_rank=_is_fixed(self.rank),
            refines=self.method == "subspace",
            seed=self.random_state,
            rate=self.fdr,
        )

    def _fit_method(self, rows: int, width: int) -> Method:
        common = (rows, width, self.max_iter, self.tol, self.random_state)
        if self.method == "gradient":
            if isinstance(self.settings, SubspaceSettings):
                raise BadInput("settings are those of subspace, the method is gradient.", "Pass GradientSettings.")
            return gradient_method(GradientSolver(*common, self.settings or GradientSettings()))
        if self.method != "subspace":
            raise BadInput(f"There is no method {self.method!r}.", "Choose subspace or gradient.")
        if isinstance(self.settings, GradientSettings):
            raise BadInput("settings are those of gradient, the method is subspace.", "Pass SubspaceSettings.")
        return subspace_method(SubspaceSolver(*common, self.settings or SubspaceSettings(), _is_fixed(self.rank)))

    def _keep(self, run: Simulation, U: FloatArray) -> None:
        result = run.results[0]
        self._plan = ClosingPlan.of(run.consensus.broadcast)
        self._centre = self._plan.centre
        basis, _ = np.linalg.qr(U)
        left, values, _ = np.linalg.svd(basis.T @ (result.L - self._centre[:, None]), full_matrices=False)
        found = int(np.count_nonzero(values > SMALLEST_VALUE * values.max(initial=0.0)))
        self.components_ = _signed((basis @ left[:, :found]).T)
        self.singular_values_ = values[:found]
        self.rank_ = found
        self.n_iter_ = len(run.history) - 1 - ROUNDS_OF_JUDGEMENT
        self.low_rank_ = np.ascontiguousarray(result.L.T) * self.scale_ + self.location_
        self.sparse_ = sparse.csr_array(result.S.T)
        self.outliers_ = self.sparse_.toarray() != 0.0
        self.sparse_.data *= self.scale_[self.sparse_.indices]
        self.location_ = self.location_ + self.scale_ * self._centre
        assert run.consensus.outcome is not None
        self.outcome_ = run.consensus.outcome.value
        self.certificate_ = result.certificate

    def _judge(self, run: Simulation, bound: int | None) -> None:
        assert run.consensus.outcome is not None
        self.verdict_ = verdict_of(self._plan, run.consensus.outcome, bound).sentence
        self.rank_curve_ = run.consensus.memory[CURVE]
        self.p_values_ = run.results[0].p_values
        self.instruments_ = run.results[0].instruments

    def _fitted(self, X: FloatArray) -> Iterator[TransformedColumns]:
        """Every sample fitted and scored, in blocks."""
        columns = self._scaled(X, self.scale_ * self._centre)
        return (transform_columns(self._plan, columns.read(start, stop)) for start, stop in blocks(columns))

    def _scaled(self, X: FloatArray, offset: FloatArray | float = 0.0) -> ArrayColumns:
        """X as the method sees it; `offset` is what of the location it has found by itself."""
        return ArrayColumns(((X - (self.location_ - offset)) / self.scale_).T)


def _is_fixed(rank: object) -> bool:
    return rank is not None and rank != "auto"


def _validated(estimator: RobustPCA, X: ArrayLike, reset: bool) -> FloatArray:
    checked: FloatArray = validate_data(
        estimator, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1, reset=reset
    )
    if not reset:  # `fit` has `simulate` check its entries
        check_entries(ArrayColumns(checked.T))
    return checked


def _bound(estimator: RobustPCA, X: FloatArray) -> int:
    """The rank that was given, or the bound on it, or the bound up to which a rank is sought."""
    rank, max_rank, smaller_side = estimator.rank, estimator.max_rank, int(min(X.shape))
    if _is_fixed(rank) and max_rank is not None:
        raise BadInput("Both rank and max_rank are given.", "Give rank if it is known, max_rank if only a bound is.")
    given: object = rank if _is_fixed(rank) else max_rank
    if given is None:
        return automatic_bound(smaller_side)
    if not isinstance(given, Integral) or not 1 <= int(given) <= smaller_side:
        raise BadInput(f"Rank {given} does not fit the data.", f"Choose a whole number from 1 to {smaller_side}.")
    return int(given)


def _apart(certificate: Mapping[str, float]) -> str:
    """The sentence for features or samples that do not follow the low-rank part; empty if there are none."""
    sentence = unexplained_text(certificate, "feature", "sample")
    return sentence and f"{sentence}, look at outliers_"


def _at_bound(rank: int, bound: int) -> str:
    """The sentence for a rank that has reached its bound; empty if it has not."""
    return f"; the rank is as large as its bound {bound}: try a larger max_rank" if rank == bound > 1 else ""


def _units(X: FloatArray, scaling: str) -> tuple[FloatArray, FloatArray]:
    """What is subtracted from features, and what they are divided by."""
    if scaling not in ("auto", "robust", "none"):
        raise BadInput(f"There is no scaling {scaling!r}.", "Choose auto, robust or none.")
    plain = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if scaling == "none":
        return plain
    median = _medians(X)
    deviation = _medians(np.abs(X - median))
    if scaling == "auto" and share_unit_and_level(median, deviation):
        return plain
    return median, scale_from_mad(deviation, median)


def _medians(X: FloatArray) -> FloatArray:
    """The medians of the observed entries by feature; 0 for a feature without any."""
    unseen = np.asarray(np.isnan(X).all(axis=0))
    medians = np.zeros(X.shape[1])
    medians[~unseen] = np.nanmedian(X[:, ~unseen], axis=0)
    return medians


def _signed(components: FloatArray) -> FloatArray:
    """Fix the sign that a singular vector leaves open: the entry of largest size is positive."""
    largest: NDArray[Any] = np.argmax(np.abs(components), axis=1)
    signs = np.sign(components[np.arange(components.shape[0]), largest])
    return np.asarray(components * signs[:, None])
