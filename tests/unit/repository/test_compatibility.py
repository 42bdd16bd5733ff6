"""What the installation page says about versions is what the code does."""

from __future__ import annotations

import re

from aggregator.store.database_port import VERSION as STORE
from dcfpca.version import __version__
from dcfpca.wire.constants import PROTOCOL
from participant.state.database import VERSION as STATE
from tests.support.paths import ROOT

PAGE = " ".join((ROOT / "docs/installation.md").read_text().split())
KEPT = ROOT / "tests/vectors/kept"


def test_the_page_names_the_versions_of_protocol_store_and_state() -> None:
    assert f"Version {__version__.rsplit('.', 1)[0]} speaks wire protocol {PROTOCOL}." in PAGE
    assert f"stores of versions 1 to {STORE}, and a site opens states of versions 1 to {STATE}" in PAGE


def test_a_file_of_every_older_version_is_kept_and_opened_by_the_tests() -> None:
    for stem, newest, test in (
        ("aggregator-store", STORE, "tests/unit/aggregator/store/test_kept_versions.py"),
        ("site-state", STATE, "tests/unit/participant/state/test_kept_versions.py"),
    ):
        kept = {int(re.sub(r"\D", "", path.stem)) for path in KEPT.glob(f"{stem}-*.sql")}
        assert kept == set(range(1, newest))
        assert f"{stem}-" in (ROOT / test).read_text()


def test_pythons_are_the_same_in_package_page_and_ci() -> None:
    stated = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()))
    assert stated == {"3.11", "3.12", "3.13"}
    for path in ("docs/installation.md", ".github/workflows/ci.yml", ".gitlab-ci.yml", "deploy/verify/release.sh"):
        text = (ROOT / path).read_text()
        assert [version for version in sorted(stated) if version not in text] == [], path


def test_every_extra_of_the_package_is_on_the_page() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[project.optional-dependencies]")[1].split("\n[project.scripts]")[0]
    extras = set(re.findall(r"^([a-z]+) = \[", section, re.MULTILINE)) - {"dev", "bench", "docs"}
    assert {f"| `{extra}` |" for extra in extras if f"| `{extra}` |" not in PAGE} == set()
