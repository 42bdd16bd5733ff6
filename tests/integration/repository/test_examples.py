"""Every file of examples/ runs as its README says, and prints what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.surroundings.notebooks import as_program, read_notebook

EXAMPLES = ROOT / "examples"
FEDERATION_SECONDS = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * FEDERATION_SECONDS), pytest.mark.usefixtures("compiled_loops")]


def run(*command: str | Path, seconds: float = 100, **variables: str) -> str:
    """What the example prints, run from elsewhere; it must succeed."""
    binaries = Path(sys.executable).parent
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DCFPCA")}
    environment = inherited | {"PATH": f"{binaries}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [str(word) for word in command], env=environment, cwd="/", capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_robust_pca_finds_rank_and_outliers() -> None:
    said = run(sys.executable, EXAMPLES / "robust_pca.py")
    found = re.search(r"outliers found: (\d+) of (\d+)", said)
    assert said.startswith("rank 3 ")
    assert found
    assert found[1] == found[2]


def test_the_simulated_federation_converges_at_every_site() -> None:
    said = run(sys.executable, EXAMPLES / "simulated_federation.py")
    assert said.startswith("rank 4 ")
    errors = [float(error) for error in re.findall(r"within (\S+) of the truth", said)]
    assert len(errors) == 4
    assert max(errors) < 1e-6


def test_the_federation_by_shell_leaves_each_site_a_result_that_the_reader_reads(tmp_path: Path) -> None:
    run(EXAMPLES / "federation.sh", tmp_path, seconds=FEDERATION_SECONDS)
    for site in ("site-a", "site-b", "site-c"):
        said = run(sys.executable, EXAMPLES / "site_result.py", tmp_path / site / "results")
        assert "subspace, rank 4, converged" in said
        assert "50 rows, 80 own columns" in said


def test_the_notebook_finds_the_stuck_sensor_of_lyon(tmp_path: Path) -> None:
    cells = read_notebook(EXAMPLES / "federation.ipynb")
    assert not any(cell["outputs"] for cell in cells if cell["cell_type"] == "code"), "keep it without outputs"
    program = tmp_path / "notebook.py"
    program.write_text(as_program(cells))
    said = run(sys.executable, program, seconds=FEDERATION_SECONDS, MPLBACKEND="Agg", TMPDIR=str(tmp_path))
    assert "2025-02-15 stands out" in said
    (picture,) = tmp_path.glob("dcfpca-notebook-*/day.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_example_is_run_here_and_named_in_the_readme() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh", ".ipynb")}
    here = Path(__file__).read_text()
    readme = (EXAMPLES / "README.md").read_text()
    assert {name for name in files if f'"{name}"' in here} == files
    assert set(re.findall(r"\]\(([a-z_]+\.(?:py|sh|ipynb))\)", readme)) == files
