from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.refinement import hidden_entries
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec

SCALED = parse_spec({"rows": 10, "scaling": "robust"})


def test_hidden_entries_follow_the_content_of_a_column_not_its_place() -> None:
    M = np.random.default_rng(0).standard_normal((30, 40))
    shuffled = np.random.default_rng(1).permutation(40)
    one = HiddenColumns(ArrayColumns(M), 0.1, seed=3).hidden(0, 40)
    other = HiddenColumns(ArrayColumns(M[:, shuffled]), 0.1, seed=3).hidden(0, 40)
    np.testing.assert_array_equal(one[:, shuffled], other)
    assert not np.array_equal(one, HiddenColumns(ArrayColumns(M), 0.1, seed=4).hidden(0, 40))


def test_about_the_share_of_every_row_is_hidden_also_of_equal_columns() -> None:
    for M in (np.random.default_rng(0).standard_normal((20, 5000)), np.ones((20, 5000))):
        hidden = HiddenColumns(ArrayColumns(M), 0.03, seed=0).hidden(0, 5000)
        shares = hidden.mean(axis=1)
        assert ((shares > 0.015) & (shares < 0.045)).all()


def test_what_is_hidden_is_shown_when_hiding_ends() -> None:
    M = np.random.default_rng(0).standard_normal((10, 50))
    columns = HiddenColumns(ArrayColumns(M), 0.2, seed=0)
    assert np.isnan(columns.read(0, 50)).any()
    columns.hiding = False
    np.testing.assert_array_equal(columns.read(10, 20), M[:, 10:20])


def test_what_is_read_lacks_the_hidden_entries_and_nothing_else() -> None:
    M = np.random.default_rng(0).standard_normal((40, 50))
    columns = HiddenColumns(ArrayColumns(M), 0.2, seed=0)
    whole = columns.hidden(0, 50)
    for first, last in ((0, 50), (10, 20), (10, 20), (20, 21)):
        np.testing.assert_array_equal(columns.hidden(first, last), whole[:, first:last])
        expected = np.where(whole[:, first:last], np.nan, M[:, first:last])
        np.testing.assert_array_equal(columns.read(first, last), expected)
    assert not np.isnan(M).any()


def test_a_restored_site_hides_the_same_entries_without_reading_all_columns_again() -> None:
    M = np.random.default_rng(0).standard_normal((30, 40))
    method = method_of(parse_spec({"rows": 30, "rank": 3}))
    before, after = (method.site(ArrayColumns(M)) for _ in range(2))
    before.answer(method.begin())
    after.restore(before.snapshot())
    shown, again = before.view.hidden, after.view.hidden
    assert shown is not None
    assert again is not None
    assert again.keys.size == 40
    np.testing.assert_array_equal(again.hidden(0, 40), shown.hidden(0, 40))


@pytest.mark.parametrize("order", ["C", "F"])
def test_compiled_loops_hide_what_numpy_hides(order: Literal["C", "F"], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="there is nothing to compile without the extra fast")
    rng = np.random.default_rng(0)
    M = rng.standard_normal((70, 90))
    M[rng.random(M.shape) < 0.1] = np.nan
    M[3, :40], M[3, 40:] = 0.0, -0.0
    M[:, 50] = M[:, 7]
    wide = np.zeros((70, 100), order=order)
    wide[:, 5:95] = M
    found = HiddenColumns(ArrayColumns(wide[:, 5:95]), 0.1, seed=3)
    by_loops, shown = found.hidden(0, 90), [found.read(0, 90) for _ in range(2)]
    monkeypatch.setattr(hidden_entries, "compiled_loops", lambda: None)
    expected = HiddenColumns(ArrayColumns(M), 0.1, seed=3)
    np.testing.assert_array_equal(by_loops, expected.hidden(0, 90))
    np.testing.assert_array_equal(found.keys, expected.keys)
    for read in shown:
        np.testing.assert_array_equal(read, expected.read(0, 90))
    assert by_loops.any()


def test_a_site_hides_by_its_own_key_other_entries_than_the_spec_tells() -> None:
    M = np.random.default_rng(0).standard_normal((30, 40))
    method = method_of(parse_spec({"rows": 30, "rank": 3}))
    hidden = {}
    for key in (b"", b"one", b"two"):
        for again in (False, True):
            columns = method.keyed(key).view(ArrayColumns(M)).hidden
            assert columns is not None
            hidden[key, again] = columns.hidden(0, 40)
        np.testing.assert_array_equal(hidden[key, False], hidden[key, True])
    for one, other in ((b"", b"one"), (b"one", b"two")):
        shared = np.count_nonzero(hidden[one, True] & hidden[other, True])
        assert shared < 0.2 * np.count_nonzero(hidden[one, True])


@pytest.mark.parametrize("factors", [0, 2])
def test_which_entries_are_flagged_does_not_depend_on_which_are_hidden(factors: int) -> None:
    rng = np.random.default_rng(factors)
    M = rng.normal(size=(10, factors)) @ rng.normal(size=(factors, 210)) + rng.standard_t(3, size=(10, 210))
    M += np.where(rng.random(M.shape) < 0.03, rng.uniform(5.0, 30.0, M.shape), 0.0)  # some of which lie about the cut
    sites, method = [ArrayColumns(part) for part in np.split(M, 3, axis=1)], method_of(SCALED)
    runs = [simulate(method, sites, keys=[b"%d of %d" % (site, run) for site in range(3)]) for run in range(6)]
    flags = [run.outliers.toarray() != 0.0 for run in runs]
    assert flags[0].any()
    for other in flags[1:]:
        np.testing.assert_array_equal(other, flags[0])
    ranks = {run.consensus.progress.rank for run in runs}
    assert max(ranks) - min(ranks) <= 2


def test_parts_are_equal_and_of_the_data_alone() -> None:
    M = np.random.default_rng(0).normal(size=(50, 400))
    first, other = (HiddenColumns(ArrayColumns(M), 0.03, seed).parts(slice(0, 400), 10) for seed in (0, 7))
    np.testing.assert_array_equal(first, other)
    np.testing.assert_array_equal(
        first[:, 100:], HiddenColumns(ArrayColumns(M[:, 100:]), 0.03, 1).parts(slice(0, 300), 10)
    )
    shares = np.bincount(first.ravel().astype(int), minlength=10) / M.size
    assert shares.size == 10
    assert np.abs(shares - 0.1).max() < 0.01
