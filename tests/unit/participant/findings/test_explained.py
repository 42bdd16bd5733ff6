"""Which flagged entries are looked at, where there are more than stories are told of."""

import numpy as np

from participant.findings.causes import MOST_EXPLAINED, MOST_SAMPLED
from participant.findings.explained import _looked_at


def test_entries_are_looked_at_that_stories_are_about_or_lean_on_and_no_others() -> None:
    columns = np.repeat(np.arange(MOST_SAMPLED, 10 * MOST_SAMPLED), 2)
    z = np.ones(columns.size)
    told = np.arange(30_001, 30_001 + 2 * MOST_EXPLAINED, 2)
    z[told] = 9.0
    kept = _looked_at(z, columns)
    assert set(told) <= set(kept)
    assert set(columns[kept]) == set(columns[told]) | set(columns[told] - 1)
    few = columns - MOST_SAMPLED
    assert set(np.flatnonzero(few < MOST_SAMPLED)) <= set(_looked_at(z, few))
