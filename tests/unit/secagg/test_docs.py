"""The documents point at tests, errors and figures that exist."""

import re
from pathlib import Path

import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.neighbours import degree_for
from tests.support.paths import ROOT

THREATS = (ROOT / "docs" / "threat-model.md").read_text()
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()


def named_tests() -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", THREATS)


def test_every_claim_of_the_threat_model_points_at_a_test_that_exists() -> None:
    assert len(named_tests()) >= 35
    for path, name in named_tests():
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


@pytest.mark.parametrize("path", sorted((ROOT / "tests/integration/lying_aggregator").glob("test_*.py")), ids=str)
def test_every_file_of_attacks_stands_in_the_threat_model(path: Path) -> None:
    assert path.relative_to(ROOT).as_posix() in THREATS


@pytest.mark.parametrize("text", [THREATS, PROTOCOL], ids=["threat-model", "protocol"])
def test_every_error_named_in_the_documents_exists(text: str) -> None:
    for name in re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text):
        assert hasattr(errors, name), name


def test_every_error_is_explained_in_the_protocol() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and kind.__module__ == errors.__name__:
            assert f"`{name}`" in PROTOCOL, name


def test_the_table_of_neighbours_is_the_one_computed() -> None:
    sizes, degrees = (
        [int(cell) for row in re.findall(rf"^\| {head} \|(.*)\|$", PROTOCOL, re.MULTILINE) for cell in row.split("|")]
        for head in ("members", "k")
    )
    assert [degree_for(size) for size in sizes] == degrees
