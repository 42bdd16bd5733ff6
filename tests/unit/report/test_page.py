"""Text in reports: whoever chose a name cannot change how the page around it reads."""

from __future__ import annotations

import pytest

from dcfpca.report.page import escape, short_labels, table


@pytest.mark.parametrize(
    "sign", ["\u202e", "\u2066", "\u200f", "\u061c", "\x1b", "\x00", "\r", "\x9b", "\u2028", "\udc80"]
)
def test_signs_that_steer_a_display_are_shown_as_escapes(sign: str) -> None:
    assert escape(f"a{sign}b") == f"a\\u{ord(sign):04x}b"
    assert sign not in table(["name"], [[f"a{sign}b"]], stacks=True)


@pytest.mark.parametrize("text", ["Größe", "体重", "وزن", "a\u200cb", "1\u00a0000", "two\nlines\tand a tab"])
def test_text_of_any_language_stays_as_it_is(text: str) -> None:
    assert escape(text) == text


def test_labels_are_cut_where_they_stay_different() -> None:
    assert short_labels(["age", "haemoglobin at entry"], 14) == ["age", "haemoglobin a…"]
    assert short_labels(["haemoglobin at entry", "haemoglobin at week 20"], 14) == ["…obin at entry", "…in at week 20"]
    within = ["cd4 early, per microlitre", "cd8 early, per microlitre"]
    assert short_labels(within, 8) == ["cd4 ear…", "cd8 ear…"]
    alike = [f"concentration {letter} in blood plasma" for letter in "ab"]
    assert short_labels(alike, 14) == alike  # nothing that differs fits
