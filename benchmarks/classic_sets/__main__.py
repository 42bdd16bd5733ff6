"""Known odd samples of classic data sets: ours pooled and dealt to two and three sites, and robust peers, pooled.

    python -m benchmarks.classic_sets [--sets NAME,…] [--json FILE]

Explanatory variables of Hawkins, Bradu and Kass (1984; 14 odd of 75) and of the modified wood data (Rousseeuw 1984; 4
of 20), milk (Daudin et al. 1988; 15 of 86, after Atkinson 1994), the stars of CYG OB1 (Rousseeuw and Leroy 1987; four
giants of 47) and bushfire (Campbell 1984, Maronna and Yohai 1995; 14 of 38) are in small_sets.txt. Octane (Esbensen et
al. 1994; 6 of 39) is read from R's rrcov where Rscript has it. Glass is in R's cellWise alone, which was not to be had,
and with it MacroPCA. Peers flag by their defaults: ROBPCA (rrcov's PcaHubert, scaled), MCD (robustbase's covMcd,
97.5 %), or scikit-learn's MinCovDet where there is no R.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.covariance import MinCovDet
from threadpoolctl import threadpool_limits

from benchmarks.r_methods import ROBPCA, flagged, run_r
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec
from participant.results.flag_tables import significant

SMALL = Path(__file__).with_name("small_sets.txt")
KNOWN = {
    "hbk": range(1, 15),
    "wood": (4, 6, 8, 19),
    "milk": (1, 2, 3, 12, 13, 14, 15, 16, 17, 41, 44, 47, 70, 74, 75),
    "starsCYG": (11, 20, 30, 34),
    "bushfire": (*range(7, 12), *range(30, 39)),
    "octane": (25, 26, 36, 37, 38, 39),
}
SITES, FLAG_RATE, LEVEL, MOST_FEATURES = (1, 2, 3), 0.01, 0.975, 20
PEERS = {
    "ROBPCA (rrcov)": ROBPCA,
    "MCD (robustbase)": "{m <- robustbase::covMcd(X); mahalanobis(X, m$center, m$cov) > qchisq(.975, ncol(X))}",
}


def load(name: str) -> FloatArray | None:
    """Samples × features; None where it is in an R package that is not there."""
    if name == "octane":
        wanted = 'data(octane, package = "rrcov"); write.table(as.matrix(octane), row.names = FALSE, col.names = FALSE)'
        found = run_r(wanted)
        return None if found is None else np.loadtxt(io.StringIO(found))
    parts = SMALL.read_text().split("# ")[1:]
    texts = dict(part.split("\n", 1) for part in parts)
    return np.loadtxt(io.StringIO(texts[name]))


def ours(X: FloatArray, count: int) -> NDArray[np.bool_]:
    """The samples that sites flag which are dealt them in turn."""
    sites = [np.arange(first, len(X), count) for first in range(count)]
    method = method_of(parse_spec({"rows": X.shape[1], "scaling": "robust"}))
    run, odd = simulate(method, [ArrayColumns(X[rows].T) for rows in sites]), np.zeros(len(X), bool)
    for rows, result in zip(sites, run.results, strict=True):
        odd[rows] = significant(result.p_values, FLAG_RATE)
    return odd


def peers(X: FloatArray) -> dict[str, NDArray[np.bool_]]:
    """What robust methods flag with all data in one place."""
    found = {}
    for name, method in PEERS.items():
        if name.startswith("MCD") and X.shape[1] > MOST_FEATURES:
            continue  # more features than samples
        if (odd := flagged(method, X)) is not None:
            found[name] = odd
    if not found and X.shape[1] <= MOST_FEATURES:
        fitted = MinCovDet(random_state=0).fit(X)
        found["MCD (scikit-learn)"] = fitted.mahalanobis(X) > chi2.ppf(LEVEL, X.shape[1])
    return found


def measure(name: str) -> list[dict[str, Any]]:
    """How many known odd samples each method finds, and how many others it flags."""
    X = load(name)
    if X is None:
        print(f"{name}: not measured, as it is read from R's rrcov, which is not here")
        return []
    known = np.zeros(len(X), bool)
    known[np.array(KNOWN[name]) - 1] = True
    with threadpool_limits(1):
        odd_by = {f"ours, {count} site{'s' * (count > 1)}": ours(X, count) for count in SITES} | peers(X)
    return [
        {
            "set": name,
            "who": who,
            "known": int(known.sum()),
            "found": int(odd[known].sum()),
            "false": int(odd[~known].sum()),
        }
        for who, odd in odd_by.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(KNOWN))
    parser.add_argument("--json", type=Path)
    wanted, rows = parser.parse_args(), []
    for name in wanted.sets.split(","):
        for row in measure(name):
            rows.append(row)
            print(
                f"{name:>9}  {row['who']:<18} found {row['found']:>2} of {row['known']:>2}, false {row['false']}",
                flush=True,
            )
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
