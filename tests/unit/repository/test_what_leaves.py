"""The page for data-protection officers is short, plain, and where they find it."""

from __future__ import annotations

import re

from participant.policy import SitePolicy
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "what-leaves.md").read_text()
THREATS = (ROOT / "docs" / "threat-model.md").read_text()
JARGON = ("tensor", "mask", "gradient", "consensus", "subspace", "hkdf", "x25519", "differential", "epsilon-", "matrix")


def test_both_pages_are_as_short_as_they_promise() -> None:
    assert len(PAGE.split()) <= 700
    assert len(THREATS.split()) <= 2500


def test_it_has_no_jargon() -> None:
    assert [word for word in JARGON if word in PAGE.lower()] == []


def test_every_setting_it_names_is_one_of_the_policy() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert named <= set(SitePolicy.model_fields), named - set(SitePolicy.model_fields)


def test_it_is_linked_from_readme_and_index() -> None:
    assert "docs/what-leaves.md" in (ROOT / "README.md").read_text()
    assert "what-leaves.md" in (ROOT / "docs" / "index.md").read_text()
