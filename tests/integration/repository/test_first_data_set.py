"""The page on the first real data set, typed as written: it ends with the patient whose entry is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT, SHARED

PAGE = (ROOT / "docs" / "first-data-set.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
HEART = SHARED / "data" / "heart"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.usefixtures("compiled_loops")]


def typed(script: str, where: Path) -> str:
    """What one terminal prints; the consortium is stopped whatever happens."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DCFPCA")}
    environment = kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    script = f"trap 'dcfpca down clinic || true' ERR\n{script}"
    done = subprocess.run(
        ["bash", "-eEuo", "pipefail", "-c", script],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_the_page_works_as_written_and_names_the_patient(tmp_path: Path) -> None:
    said = typed("\n".join(BLOCKS), tmp_path)
    found = re.search(r"N0018: chol is \+(\d+) from", said)
    assert found, said
    assert abs(int(found[1]) - 300) < 15
    assert "enrolled: east, north, south, west" in said
    assert "N0018" in (tmp_path / "north.html").read_text()


@pytest.mark.skipif(not HEART.is_dir(), reason="the heart tables lie in ../shared/data, which is absent here")
def test_the_report_of_a_hospital_names_its_patients_when_the_spec_names_a_part_of_the_features(tmp_path: Path) -> None:
    for path in sorted(HEART.glob("*.csv")):
        shutil.copy(path, tmp_path)
    wrong = (tmp_path / "cleveland.csv").read_text().splitlines()
    place = wrong[0].split(",").index("chol")
    fields = wrong[18].split(",")
    fields[place] = f"{10 * float(fields[place])}"  # a decimal point that slipped
    wrong[18] = ",".join(fields)
    (tmp_path / "cleveland.csv").write_text("\n".join(wrong) + "\n")
    tables = " ".join(path.name for path in sorted(HEART.glob("*.csv")))
    spec = """--set 'features=["age","trestbps","chol","thalach","oldpeak"]'"""
    said = typed(
        f"""
        dcfpca init local clinic {tables} --id-column patient --exclude diagnosis
        dcfpca-participant check --config clinic/sites/hungarian/participant.toml
        dcfpca up clinic
        dcfpca up clinic
        export DCFPCA_CONFIG=clinic/operator/operator.toml
        dcfpca run start --rank 2 --rounds 30 --set missing=true --set scaling=robust {spec} --watch
        dcfpca-participant results --config clinic/sites/cleveland/participant.toml --run latest --report cleveland.html
        dcfpca down clinic
        """,
        tmp_path,
    )
    assert "cannot carry a low-rank part, being nearly constant or empty here: fbs, restecg, slope, ca" in said
    assert "cleveland was running already" in said
    report = (tmp_path / "cleveland.html").read_text()
    assert set(re.findall(r"CL\d{4}", report)) >= set(re.findall(r"CL\d{4}", wrong[18]))
    assert not re.search(r"(HU|SW|VA)\d{4}", report)
