"""The path of one secure round, drawn from a traced run of three real sites: `python -m docs.round_path`.

It starts an aggregator and three daemons as processes of their own, over mutual TLS, with every call of the project's
functions noted (`docs.traced_service`), and writes the files that one masked update passes, in order, with figures,
into docs/architecture.md. A test traces again, and fails where a figure has grown by more than a tenth.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dcfpca.methods import method_of
from dcfpca.python_api.federation import Federation
from dcfpca.scaffold.config_texts import DataKeys
from dcfpca.scaffold.local_consortium import LocalPlan, create_consortium
from dcfpca.spec import RunSpec, parse_spec

FEATURES, SAMPLES, RANK = 41, 60, 3
SITES = ("north", "south", "west")
SPEC = {"rows": FEATURES, "rank": RANK, "rounds": 12, "tolerance": 0.0, "closing_rounds": False}
ORDINARY = slice(8, 14)  # turns of the fit after the rounds that find units and its own first ones, and before its last
FIRST = {"site": "participant/link/", "aggregator": "aggregator/rpc/"}
SECONDS = 90.0
PAGE = Path(__file__).parent / "architecture.md"
_TRACED = re.compile(r"<!-- traced: round -->\n.*?<!-- end -->", flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class RoundPath:
    """What one round takes of one process: functions in the order of their first call, and the forms of the update."""

    functions: tuple[str, ...]
    forms: tuple[str, ...]
    hops: int

    @property
    def files(self) -> tuple[str, ...]:
        """The files in the order in which the round enters them."""
        return tuple(dict.fromkeys(name.partition(":")[0] for name in self.functions))

    def figures(self) -> dict[str, int]:
        """The figures that must not grow."""
        return {
            "functions": len(self.functions),
            "files": len(self.files),
            "forms": len(self.forms),
            "thread hops": self.hops,
        }


def traced_paths() -> dict[str, RoundPath]:
    """Run the federation and return the typical round of a site and of the aggregator."""
    with tempfile.TemporaryDirectory() as directory:
        return _traced(Path(directory))


def drawn(paths: Mapping[str, RoundPath]) -> str:
    """The tables and figures as they stand in architecture.md."""
    return "\n".join(_section(where, path) for where, path in paths.items())


def documented(page: str) -> dict[str, dict[str, int]]:
    """The figures of each process as the page states them."""
    stated = re.findall(r"^At (.+?): (.+)\.$", page, flags=re.MULTILINE)
    return {
        where: {name: int(value) for value, _, name in (one.partition(" ") for one in figures.split(", "))}
        for where, figures in stated
    }


def _section(where: str, path: RoundPath) -> str:
    figures = ", ".join(f"{value} {name}" for name, value in path.figures().items())
    rows = Counter(name.partition(":")[0] for name in path.functions)
    entered = {file: name.partition(":.")[2] for name in reversed(path.functions) for file in [name.partition(":")[0]]}
    table = "".join(f"| `{file}` | {rows[file]} | `{entered[file]}` |\n" for file in path.files)
    forms = ", ".join(path.forms)
    return f"At {where}: {figures}.\n\nForms: {forms}.\n\n| file | functions | entered by |\n|---|---|---|\n{table}"


def _traced(home: Path) -> dict[str, RoundPath]:
    spec = parse_spec(dict(SPEC))
    numbers = str(_update_size(spec))
    files = {name: _write_data(home / f"{name}.npy", seed) for seed, name in enumerate(SITES)}
    consortium = create_consortium(home / "run", LocalPlan("traced", files, DataKeys("")))
    services = {"aggregator": ("aggregator.main", home / "run/aggregator/aggregator.toml")}
    services |= {name: ("participant.main", home / f"run/sites/{name}/participant.toml") for name in SITES}
    processes = {}
    try:
        for name, (module, config) in services.items():
            out = home / f"{name}.json"
            command = [sys.executable, "-m", "docs.traced_service", str(out), numbers, module, "serve", "--config"]
            with (home / f"{name}.log").open("w") as log:
                processes[name] = subprocess.Popen([*command, str(config)], stderr=log)  # noqa: S603  our own modules
            if name == "aggregator":
                _wait_for((home / "run/aggregator/ready").exists)
        with Federation.connect(consortium.operator_config) as federation:
            _wait_for(lambda: sum(one.state == "connected" for one in federation.participants()) == len(SITES))
            federation.propose(**SPEC)
        # Watched by what the sites write: an operator that looks on would be in the aggregator's path.
        _wait_for(lambda: len(list(home.glob("run/sites/*/results/*/manifest.json"))) == len(SITES))
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for process in processes.values():
            process.wait(SECONDS)
    sites = [_typical(home / f"{name}.json", FIRST["site"]) for name in SITES]
    return {
        "a site": max(sites, key=lambda path: len(path.functions)),
        "the aggregator": _typical(home / "aggregator.json", FIRST["aggregator"]),
    }


def _update_size(spec: RunSpec) -> int:
    return method_of(spec).stage("fit").up.size


def _write_data(path: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    basis = np.random.default_rng(99).normal(size=(FEATURES, RANK))
    np.save(path, basis @ random.normal(size=(RANK, SAMPLES)) + 1e-3 * random.normal(size=(FEATURES, SAMPLES)))
    return path


def _typical(file: Path, first: str) -> RoundPath:
    """The median turn. In the longest ones a timer of the process went off: a flush, a look for approvals or new
    credentials, which no update passes."""
    turns = json.loads(file.read_text())[ORDINARY]
    turn = sorted(turns, key=lambda turn: len(turn["functions"]))[len(turns) // 2]
    hops = sorted(turn["hops"] for turn in turns)[len(turns) // 2]
    return RoundPath(_from(first, turn["functions"]), tuple(turn["forms"]), hops)


def _from(first: str, functions: Sequence[str]) -> tuple[str, ...]:
    """The functions of a turn, beginning where a message comes in; a turn itself begins in the middle of the work."""
    start = next((place for place, name in enumerate(functions) if name.startswith(first)), 0)
    return (*functions[start:], *functions[:start])


def _wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("the traced federation did not get ready")
        time.sleep(0.1)


if __name__ == "__main__":
    traced = f"<!-- traced: round -->\n\n{drawn(traced_paths())}\n<!-- end -->"
    PAGE.write_text(_TRACED.sub(lambda _: traced, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
