"""Counts that are about few entries do not leave a site: what merging keeps, and what an attacker finds after it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.rpca.scaling import MANY_BITS, MEDIAN
from dcfpca.rpca.small_cells import Merging, merge_cells, merge_sides
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import parse_spec
from tests.support.hostile.count_cells import few_in_a_cell, patients

LINES = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=30), min_size=1, max_size=1)


@settings(deadline=None)
@given(LINES, st.integers(2, 9))
def test_no_cell_is_left_with_few_and_none_is_lost(lines: list[list[int]], least: int) -> None:
    counts = np.array(lines, dtype=np.float64)
    merged = merge_cells(counts, least)
    assert merged.sum() == counts.sum()
    if counts.sum() >= least:
        assert not ((merged > 0.0) & (merged < least)).any()
    else:
        assert np.flatnonzero(merged).tolist() in ([], [counts.shape[1] // 2])


@settings(deadline=None)
@given(LINES, st.integers(2, 9))
def test_fewer_entries_cross_an_edge_than_a_cell_must_hold(lines: list[list[int]], least: int) -> None:
    counts = np.array(lines, dtype=np.float64)
    if counts.sum() < least:
        return
    crossed = np.cumsum(merge_cells(counts, least), axis=1) - np.cumsum(counts, axis=1)
    assert np.abs(crossed).max() < least


def test_full_cells_stay_what_they_are_and_lines_do_not_mix() -> None:
    counts = np.array([[5.0, 0.0, 7.0, 90.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 9.0]])
    merged = merge_cells(counts, 5)
    np.testing.assert_array_equal(merged[:2], counts[:2])
    np.testing.assert_array_equal(merged[2], [0.0, 0.0, 0.0, 12.0])


def test_two_sides_of_a_point_are_one_line() -> None:
    below, above = merge_sides(np.array([[2.0, 9.0, 1.0]]), np.array([[3.0, 0.0, 1.0]]), 5)
    assert below.sum() + above.sum() == 16.0
    np.testing.assert_array_equal(below, [[0.0, 10.0, 0.0]])
    np.testing.assert_array_equal(above, [[6.0, 0.0, 0.0]])


def test_shares_of_merged_counts_are_those_below_quantiles() -> None:
    rng, levels, edges = np.random.default_rng(1), np.array([0.05, 0.1, 0.3, 0.5, 0.9]), np.linspace(0.0, 1.0, 401)
    counts = np.array([np.histogram(values, edges)[0] for values in rng.random((4000, 30))], dtype=np.float64)
    below = np.cumsum(merge_cells(counts, 5).sum(axis=0))[np.searchsorted(edges, levels) - 1] / counts.sum()
    assert below == pytest.approx(Merging(30.0, 4, 5).levels(levels), abs=0.012)
    assert below[0] < 0.035  # where quantiles of the merged counts would be taken without it
    np.testing.assert_array_equal(Merging(30.0, 4, 1).levels(levels), levels)


def answers(method: Method, tables: list[FloatArray]) -> Iterator[tuple[Consensus, list[TensorMessage]]]:
    """What the sites send in every round of a run."""
    sites, consensus = [method.site(ArrayColumns(table)) for table in tables], method.begin()
    while consensus.outcome is None:
        sent = [site.answer(consensus) for site in sites]
        yield consensus, sent
        flat = np.sum([one.flat() for one in sent], axis=0)
        total = Total(TensorMessage.unflatten(method.stage(consensus.stage).up, flat), len(sites))
        assert method.conserved(consensus, total) == ""
        consensus = method.advance(consensus, total)


@pytest.mark.parametrize("keys", [{"scaling": "robust"}, {}, {"method": "gradient", "max_rank": 4}])
def test_no_round_of_a_default_run_tells_of_fewer_than_five_entries_at_a_site(keys: dict[str, object]) -> None:
    def found(min_cell: int) -> tuple[int, set[str]]:
        method, few, stages = method_of(parse_spec({"rows": 40, "min_cell": min_cell} | keys)), 0, set()
        for told, sent in answers(method, patients()):
            stages.add(told.stage)
            few += sum(few_in_a_cell(method, told, one, least=5) for one in sent)
        return few, stages

    exact, _ = found(1)
    merged, stages = found(5)
    assert exact > 300
    assert merged == 0
    assert "null" in stages


def steered_to_the_largest(method: Method, honest: list[FloatArray]) -> FloatArray:
    """What a member learns of each feature's largest value who moves the search for the median upwards: by saying that
    its own entries lie where the topmost ones of the others do."""
    sites, consensus, own = [method.site(ArrayColumns(table)) for table in honest], method.begin(), 10_000.0
    bins = 1 << MANY_BITS
    while consensus.stage == MEDIAN:
        counts = np.sum([site.answer(consensus).tensor for site in sites], axis=0)
        inside = counts[:, :bins] > 0.0
        top = np.where(inside.any(axis=1), bins - 1 - np.argmax(inside[:, ::-1], axis=1), bins)
        counts[np.arange(len(counts)), top] += own
        consensus = method.advance(consensus, Total(TensorMessage(counts, np.zeros(0)), 3))
    return np.asarray(consensus.broadcast.tensor[:, 1])


def test_a_conspirator_does_not_steer_a_search_to_the_largest_value_of_the_others() -> None:
    honest = patients()[:2]
    largest = np.max(np.hstack(honest), axis=1)
    off = {}
    for least in (1, 5):
        method = method_of(parse_spec({"rows": 40, "scaling": "robust", "min_cell": least}))
        off[least] = np.abs(steered_to_the_largest(method, honest) / largest - 1.0)
    assert off[1].max() < 1e-5  # the digits of a median: the attack works where nothing is merged
    assert off[5].min() > 1e-5
    assert np.median(off[5]) > 1e-2


@pytest.mark.parametrize("entries", [3.0, 40.0, 1000.5, 60_000.0])
def test_levels_are_those_over_all_groups_though_most_are_certain(entries: float) -> None:
    merging, levels = Merging(entries, 3, 5), np.concatenate([[0.0, 1e-6, 1.0 - 1e-9, 1.0], np.linspace(0.0, 1.0, 21)])
    groups = max(int(entries // 5), 1)
    middle = (np.arange(groups) + 0.5) * entries / groups + 0.5
    every = scipy.special.betainc(middle, entries + 1.0 - middle, levels[:, None]).mean(axis=1)
    np.testing.assert_allclose(merging.levels(levels), every, rtol=0.0, atol=1e-13)


def test_levels_of_very_many_columns_take_little_memory() -> None:
    tracemalloc.start()
    Merging(3e6, 1, 5).levels(np.full(100, 0.1))
    assert tracemalloc.get_traced_memory()[1] < 32 << 20  # all groups would take 480 MB
    tracemalloc.stop()
