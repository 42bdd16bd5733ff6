"""Robust methods in R, where Rscript and their packages are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

# ROBPCA by its defaults, features in units of their median deviations; of plain ones where those are 0.
ROBPCA = "!rrcov::PcaHubert(X, scale = function(v) if (mad(v) > 0) mad(v) else sd(v))@flag"


def run_r(script: str, *arguments: Path) -> str | None:
    """What a script prints; None without R or the package."""
    if shutil.which("Rscript") is None:
        return None
    done = subprocess.run(["Rscript", "-e", script, *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def flagged(method: str, X: FloatArray) -> NDArray[np.bool_] | None:
    """The samples that this R expression of the matrix X is true of; gaps are medians to it."""
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    with TemporaryDirectory() as folder:
        given = Path(folder) / "given"
        np.savetxt(given, filled[:, np.ptp(filled, axis=0) > 0.0])
        script = f"X <- as.matrix(read.table(commandArgs(TRUE)[1])); set.seed(1); cat(as.integer({method}))"
        said = run_r(script, given)
    return None if said is None else np.array(said.split(), dtype=int) > 0
