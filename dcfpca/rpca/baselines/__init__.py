"""Published centralized robust PCA solvers, for comparison. All see the whole matrix and return one result type."""

from dcfpca.rpca.baselines.alm import alm
from dcfpca.rpca.baselines.altproj import accelerated_alternating_projections
from dcfpca.rpca.baselines.apgm import apgm
from dcfpca.rpca.baselines.cfpca import cf_pca
from dcfpca.rpca.baselines.godec import godec
from dcfpca.rpca.baselines.ircur import ircur
from dcfpca.rpca.baselines.result import BaselineResult, Ending
from dcfpca.rpca.baselines.scaledgd import scaled_gradient_descent

__all__ = [
    "BaselineResult", "Ending", "accelerated_alternating_projections", "alm", "apgm", "cf_pca", "godec", "ircur",
    "scaled_gradient_descent",
]  # fmt: skip
