"""What a site flags, from its own view and from what all sites share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.expectation import Expected
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement import scoring
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.scoring import CLEARLY, SEVERAL, Scored, score_twice

CUT, ROWS, CLEAR, BEYOND, WEAK = 4.0, 8, 1.1 * CLEARLY * 4.0, 4.1, 3.9


def _scored(z: FloatArray) -> Scored:
    one, column = np.ones_like(z), np.ones(z.shape[1])
    others = Expected(z, z, column, z, one, one > 0.0)
    return Scored(others, z, Calibration.unknown(len(z)), np.abs(z) > CUT, column, column, column)


def _flagged(monkeypatch: pytest.MonkeyPatch, own: list[float], shared: list[float]) -> list[bool]:
    """What is flagged of one sample with these deviations by either view."""
    made = {place: _scored(np.array(z)[:, None]) for place, z in (("shared", shared), ("own", own))}
    plans = {
        name: cast("Any", SimpleNamespace(name=name, calibration=SimpleNamespace(null=SimpleNamespace(cut=CUT))))
        for name in made
    }

    def score_columns(plan: ClosingPlan, *_: object) -> Scored:
        return made[cast("Any", plan).name]

    monkeypatch.setattr(scoring, "score_columns", score_columns)
    empty = np.zeros((ROWS, 1))
    return [bool(flag) for flag in score_twice(plans["shared"], plans["own"], empty, empty, empty)[0].flagged[:, 0]]


def test_what_the_others_find_usual_is_flagged_only_where_it_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [CLEAR, BEYOND, WEAK, *[0.0] * 5]
    assert _flagged(monkeypatch, own, [0.0] * ROWS) == [True, *[False] * 7]


def test_what_both_find_unusual_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _flagged(monkeypatch, [BEYOND, WEAK, *[0.0] * 6], [BEYOND] * ROWS) == [True, *[False] * 7]


def test_of_a_sample_that_others_cannot_judge_weaker_entries_are_flagged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [*[CLEAR] * SEVERAL, BEYOND, WEAK, 0.9 * CUT / CLEARLY, 0.0, 0.0]
    assert _flagged(monkeypatch, own, [0.0] * ROWS) == [*[True] * (SEVERAL + 2), False, False, False]
    assert _flagged(monkeypatch, own, [BEYOND] * ROWS) == [*[True] * (SEVERAL + 1), *[False] * 4]
