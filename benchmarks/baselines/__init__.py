"""Published centralized robust PCA solvers, for comparison. All see the whole matrix and return one result type."""

from benchmarks.baselines.alm import alm
from benchmarks.baselines.altproj import accelerated_alternating_projections
from benchmarks.baselines.apgm import apgm
from benchmarks.baselines.cfpca import cf_pca
from benchmarks.baselines.godec import godec
from benchmarks.baselines.ircur import ircur
from benchmarks.baselines.result import BaselineResult, Ending
from benchmarks.baselines.scaledgd import scaled_gradient_descent

__all__ = [
    "BaselineResult", "Ending", "accelerated_alternating_projections", "alm", "apgm", "cf_pca", "godec", "ircur",
    "scaled_gradient_descent",
]  # fmt: skip
