"""A site with a finished run over patients with planted errors, a run that waits for a person, and its console."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from participant.results.manifest import ResultFacts
from participant.results.writing import ResultNames, write_results
from participant.state.store import Store

FEATURES = ("age", "weight", "height", "systolic", "diastolic", "cd4", "cd8", "haemoglobin", "glucose", "sodium")
_MEANS = np.array([45.0, 74.0, 171.0, 128.0, 79.0, 350.0, 900.0, 14.0, 5.4, 140.0])
_SPREADS = np.array([11.0, 11.0, 8.0, 14.0, 8.0, 90.0, 210.0, 1.3, 0.6, 3.0])
_DECIMALS = (0, 1, 1, 0, 0, 0, 0, 1, 1, 0)
PLANTED = {
    ("patient 003", "weight"): (10.0, "ten times too large"),
    ("patient 017", "height"): (0.1, "ten times too small"),
    ("patient 030", "glucose"): (10.0, "ten times too large"),
    ("patient 041", "sodium"): (-1.0, "the sign"),
    ("patient 055", "haemoglobin"): (100.0, "a hundred times too large"),
}
"""By what each was multiplied, and what is said of it."""


def patients() -> FloatArray:
    rng, loadings = np.random.default_rng(4), np.random.default_rng(9).standard_normal((10, 2))
    z = loadings @ rng.standard_normal((2, 600)) + 0.5 * rng.standard_normal((10, 600))
    z /= np.sqrt(np.sum(loadings**2, axis=1) + 0.25)[:, None]
    M = _MEANS[:, None] + _SPREADS[:, None] * z
    return np.array([np.round(row, digits) for row, digits in zip(M, _DECIMALS, strict=True)])


def ids(count: int) -> list[str]:
    return [f"patient {number:03}" for number in range(count)]


def make_site(root: Path) -> Path:
    """Its configuration file; nothing but the certificate is left out."""
    M = patients()
    own = M[:, :200].copy()
    for (sample, feature), (factor, _) in PLANTED.items():
        place = FEATURES.index(feature), ids(200).index(sample)
        own[place] = round(float(own[place] * factor), 3)
    write_run(root, "spring", own, M[:, 200:])
    lines = [",".join(map(str, (name, *values))) for name, values in zip(ids(200), own.T.tolist(), strict=True)]
    (root / "data.csv").write_text("\n".join([",".join(("id", *FEATURES)), *lines]) + "\n")
    store = Store(root / "state", root / "results")
    spec = RunSpec(rows=10, features=FEATURES, label="ACTG autumn", participants=("a", "b", "c"), enrol_seconds=86400)
    now = time.time_ns() // 1_000_000
    store.save_waiting("autumn", spec.canonical(), spec.digest(), False, now, "patients of site b differ from spring")
    other = RunSpec(rows=10, label="no purpose", enrol_seconds=86400)
    store.save_waiting("winter", other.canonical(), other.digest(), False, now)
    store.save_waiting("unanswered", spec.canonical(), spec.digest(), False, now, "site b is new in the cohort")
    store.close()
    (root / "participant.toml").write_text(
        '[aggregator]\naddress = "a:1"\n[identity]\nca = "x"\ncert = "site-a.pem"\nkey = "x"\n'
        '[data]\npath = "data.csv"\nid_column = "id"\norientation = "samples-in-rows"\n'
        '[state]\ndir = "state"\n[results]\ndir = "results"\n'
    )
    return root / "participant.toml"


def write_run(root: Path, run: str, own: FloatArray, others: FloatArray) -> None:
    """A finished run at this site and another."""
    spec = RunSpec(rows=10, features=FEATURES, label=run)
    method = method_of(spec)
    sites, consensus = [method.site(ArrayColumns(one)) for one in (own, others)], method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    facts = ResultFacts(run, "site-a", spec.digest(), 9, consensus.outcome.value, "2026-01-01T00:00:00+00:00")
    names = ResultNames(FEATURES, ids(own.shape[1]))
    write_results(root / "results", facts, Terms.of(spec), sites[0], consensus, ArrayColumns(own), names)


@contextmanager
def running_console(config: Path, port: int) -> Iterator[str]:
    """The command as people start it; gives the link that it printed."""
    command = [sys.executable, "-m", "participant.main", "console", "--config", str(config), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + process.stdout.read()
        yield found[0]
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
