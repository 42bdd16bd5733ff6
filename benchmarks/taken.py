"""Keeps, for every record under benchmarks/results, on which commit it was taken.

`make results` notes the present commit for a record that is new or has changed; results/taken.json holds it with the
record's digest, so that a record that was changed without being noted is found by a test.

    python -m benchmarks.taken

lists the records, and how much of the code that each of them measures has changed since: the oldest are due.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

NAME = "taken.json"
_FIT = ("dcfpca/rpca/subspace", "dcfpca/rpca/kernels")
_RUN = (*_FIT, "dcfpca/rpca/refinement", "dcfpca/rpca/calibration", "dcfpca/rpca/own_view")
_SERVICES = ("aggregator", "participant", "dcfpca/secagg", "dcfpca/wire")
MEASURED = {
    "causes": (*_RUN, "participant/findings"),
    "many": _SERVICES,
    "out_of_core-": _RUN,
    "out_of_core": (*_FIT, "participant/engine"),
    "paper-costs-exchange": _SERVICES,
    "paper-": (*_FIT, "dcfpca/rpca/gradient"),
    "peers": _FIT,
    "private-subspace": ("dcfpca/rpca/private",),
    "table-peers": (),  # other methods
    "solver-closing": _RUN,
    "solver-known-failures": _RUN,
    "solver-": _FIT,
    "thread-speedup": (*_FIT, "participant/engine"),
    **dict.fromkeys(("delayed-rounds", "growth", "rounds", "secure-rounds", "slow-line", "start-up"), _SERVICES),
    **dict.fromkeys(("small-job", "wide"), (*_RUN, *_SERVICES)),
}
"""The code that a record measures, by the beginning of its name; of all others a whole run."""


def records(results: Path) -> dict[str, str]:
    """Every record's name and digest."""
    found = sorted(path for path in results.glob("*.json*") if path.name != NAME)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in found}


def known(results: Path) -> dict[str, dict[str, str]]:
    """What is noted."""
    path = results / NAME
    noted: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return noted


def note(results: Path) -> None:
    """Note the present commit for what is new or has changed, and forget what is gone."""
    before, now = known(results), records(results)
    noted = {
        name: before[name] if before.get(name, {}).get("digest") == digest else {"digest": digest, "commit": _commit()}
        for name, digest in now.items()
    }
    (results / NAME).write_text(json.dumps(noted, indent=1) + "\n")


def measured(record: str) -> tuple[str, ...]:
    """The code that this record measures."""
    return next((paths for start, paths in MEASURED.items() if record.startswith(start)), _RUN)


def _commit() -> str:
    return _git("rev-parse", "--short=7", "HEAD").strip()


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def _changed_lines(commit: str, paths: tuple[str, ...]) -> int:
    counts = (line.split("\t")[:2] for line in _git("diff", "--numstat", commit, "--", *paths).splitlines())
    return sum(int(count) for pair in counts for count in pair if count != "-")


def main() -> None:
    """List the records, the ones whose code has changed most first."""
    noted = known(Path(__file__).parent / "results")
    found = [
        (_changed_lines(one["commit"], paths) if (paths := measured(name)) else 0, name) for name, one in noted.items()
    ]
    for lines, name in sorted(found, reverse=True):
        print(f"{noted[name]['commit']}  {lines:6} lines changed since  {name}")


if __name__ == "__main__":
    main()
