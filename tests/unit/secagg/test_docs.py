"""The documents point at tests, errors and figures that exist."""

import re

import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.dropout_recovery import graph
from tests.support.paths import ROOT

THREATS = (ROOT / "docs" / "threat-model.md").read_text()
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
MALICIOUS = "tests/unit/secagg/test_malicious.py"


def named_tests() -> list[tuple[str, str]]:
    full = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", THREATS)
    rows = re.findall(r"\| `\w+` \| `(test_\w+)` \|", THREATS)
    return full + [(MALICIOUS, name) for name in rows]


def test_every_claim_of_the_threat_model_points_at_a_test_that_exists() -> None:
    assert len(named_tests()) >= 35
    for path, name in named_tests():
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_every_attack_of_the_suite_stands_in_the_threat_model() -> None:
    told = {name for _, name in named_tests()}
    suite = re.findall(r"^def (test_\w+_(?:is|are|release)_\w*refused)\(", (ROOT / MALICIOUS).read_text(), re.MULTILINE)
    assert suite
    assert set(suite) <= told


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
    assert [graph.degree_for(size) for size in sizes] == degrees
