"""A site worked part by part, on several threads and from disk, is the site."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from dcfpca.atomic_files import atomic_write
from dcfpca.errors import BadInput
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Total
from dcfpca.rpca.simulate import collect
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import parse_spec
from participant.data.data_config import DataTable
from participant.data.matrix import ChunkedColumns, WindowedColumns
from participant.data.readers import open_matrix
from participant.engine import thread_engine as engine_module
from participant.engine.partitioned_site import PartitionedSite, PartStates
from participant.engine.thread_engine import Engine
from participant.state.step_files import read_arrays, write_arrays

EXACT = {"single": 1.0}
LIMIT = 64 * 8 * 30 * 20  # a window is 20 columns


def matrix() -> FloatArray:
    rng = np.random.default_rng(0)
    M = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 550))
    M[rng.random(M.shape) < 0.05] += 20.0
    M[rng.random(M.shape) < 0.02] = np.nan
    return M


def test_a_gradient_site_that_diverges_in_parts_says_so(columns: Columns, tmp_path: Path) -> None:
    steep = {"learning_rate": 1e200, "lambda_": 1.0, "rho": 0.1}
    method = method_of(parse_spec({"rows": 30, "rank": 3, "method": "gradient", "gradient": steep}))
    answers = []
    for site in (Engine(2, memory_limit=LIMIT, scratch=tmp_path).site(method, columns), method.site(columns)):
        answers.append(run(method, site, method.begin(), 3)[1][-1])
    np.testing.assert_array_equal(answers[0], answers[1])


@pytest.fixture(params=["C", "F"])
def columns(tmp_path: Path, request: pytest.FixtureRequest) -> Columns:
    """From a file much larger than the memory limit."""
    np.save(tmp_path / "M.npy", np.array(matrix(), order=request.param))
    return open_matrix(DataTable(path=tmp_path / "M.npy"), tmp_path, LIMIT).columns


def run(method: Method, site: Site, consensus: Consensus, rounds: int) -> tuple[Consensus, list[FloatArray]]:
    updates = []
    for _ in range(rounds):
        update = site.answer(consensus)
        updates.append(update.flat())
        consensus = method.advance(consensus, Total(update, 1))
    return consensus, updates


def close(one: FloatArray, other: FloatArray, tolerance: float = 1e-11) -> bool:
    return float(np.linalg.norm(one - other)) <= tolerance * float(np.linalg.norm(other))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"max_rank": 5, "subspace": EXACT}, {"rank": 3, "method": "gradient"}])
@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_parts_from_disk_give_what_the_whole_gives(
    columns: Columns, tmp_path: Path, scaling: str, keys: dict[str, Any]
) -> None:
    method = method_of(parse_spec({"rows": 30, "scaling": scaling, **keys}))
    parted = Engine(2, memory_limit=LIMIT, scratch=tmp_path).site(method, columns)
    assert isinstance(parted, PartitionedSite)
    rounds = 6 if scaling == "none" else 16
    whole = method.site(ArrayColumns(matrix()))
    ours, updates = run(method, parted, method.begin(), rounds)
    theirs, expected = run(method, whole, method.begin(), rounds)
    assert all(close(one, other) for one, other in zip(updates, expected, strict=True))
    found, wanted = collect(parted, ours), collect(whole, theirs)
    # `gradient` solves its result block by block to 1e-10, and these parts are smaller than a block.
    tolerance = 1e-9 if "method" in keys else 1e-11
    assert close(found.L, wanted.L, tolerance)
    assert close(found.V, wanted.V, tolerance)
    assert close(found.S.toarray(), wanted.S.toarray(), tolerance)
    assert found.certificate.keys() == wanted.certificate.keys()


def test_the_number_of_threads_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LEAST_PART_BYTES", 8 * 30 * 40)
    monkeypatch.setattr(engine_module, "block_width", lambda rows: 20)
    method = method_of(parse_spec({"rows": 30, "rank": 3}))
    columns, answers = ArrayColumns(matrix()), []
    for threads in (2, 5):
        site = Engine(threads, scratch=tmp_path).site(method, columns)
        assert isinstance(site, PartitionedSite)
        answers.append(run(method, site, method.begin(), 5)[1][-1])
    np.testing.assert_array_equal(answers[0], answers[1])


def test_parts_held_in_memory_give_what_the_whole_gives_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LEAST_PART_BYTES", 8 * 30 * 40)
    monkeypatch.setattr(engine_module, "block_width", lambda rows: 20)
    method, engine = method_of(parse_spec({"rows": 30, "max_rank": 5, "subspace": EXACT})), Engine(2)
    columns, whole = ArrayColumns(matrix()), method.site(ArrayColumns(matrix()))
    parted = engine.site(method, columns)
    assert isinstance(parted, PartitionedSite)
    consensus, updates = run(method, parted, method.begin(), 4)
    _, expected = run(method, whole, method.begin(), 4)
    assert all(close(one, other) for one, other in zip(updates, expected, strict=True))
    atomic_write(tmp_path / "step", lambda file: write_arrays(file, parted.snapshot()))
    fresh = engine.site(method, columns)
    engine.resume(fresh, read_arrays(tmp_path / "step"))
    (ours, again), (_, once) = (run(method, one, consensus, 3) for one in (fresh, parted))
    assert all(close(one, other) for one, other in zip(again, once, strict=True))
    assert close(collect(fresh, ours).L, collect(parted, ours).L)


def noisy() -> FloatArray:
    """As `matrix`, without gaps, with noise; one feature repeats a value over several parts, one drifts over all."""
    rng = np.random.default_rng(1)
    M = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 550)) + 0.3 * rng.standard_normal((30, 550))
    M[4, 300:360] = 1.25
    M[9] += np.linspace(-2.0, 2.0, 550)
    return M


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_instruments_are_those_of_the_whole_site_and_named_once(tmp_path: Path, scaling: str) -> None:
    np.save(tmp_path / "M.npy", noisy())
    columns = open_matrix(DataTable(path=tmp_path / "M.npy"), tmp_path, LIMIT).columns
    method = method_of(parse_spec({"rows": 30, "rank": 3, "scaling": scaling}))
    parted, whole = Engine(2, memory_limit=LIMIT, scratch=tmp_path).site(method, columns), ArrayColumns(noisy())
    assert isinstance(parted, PartitionedSite)
    found = []
    for site in (parted, method.site(whole)):
        consensus = method.begin()
        while consensus.outcome is None:
            consensus, _ = run(method, site, consensus, 1)
        found.append(collect(site, consensus).instruments)
    assert [(one.feature, one.kind, one.first, one.last) for one in found[0]] == [
        (4, "stuck", 300, 359),
        (9, "drift", 0, 549),
    ]
    for one, other in zip(*found, strict=True):
        assert (one.feature, one.kind, one.first, one.last) == (other.feature, other.kind, other.first, other.last)
        assert one.amount == pytest.approx(other.amount, rel=1e-3)
    assert found[0][0].amount == pytest.approx(1.25)


def test_no_more_parts_compute_at_a_time_than_there_are_threads(tmp_path: Path) -> None:
    lock, computing, most = threading.Lock(), 0, 0
    workers = Engine(1, scratch=tmp_path)._part_workers(1, WindowedColumns(ArrayColumns(matrix()), 40))

    def task(site: Site) -> FloatArray:
        nonlocal computing, most
        with lock:
            computing += 1
            most = max(most, computing)
        site.answer(method.begin())
        with lock:
            computing -= 1
        return np.ones(1)

    method = method_of(parse_spec({"rows": 30, "rank": 3}))
    site = PartitionedSite(method, WindowedColumns(ArrayColumns(matrix()), 40), 40, workers)
    assert site.total(task)[0] == len(site.parts) > 2
    assert most == 1


@pytest.mark.parametrize(("order", "threads"), [("F", 2), ("C", 3)])
def test_a_thread_more_waits_for_the_disk_only_where_nothing_reads_ahead(
    order: Literal["C", "F"], threads: int, tmp_path: Path
) -> None:
    np.save(tmp_path / "M.npy", np.asarray(np.random.default_rng(0).standard_normal((60, 9000)), order=order))
    engine, method = Engine(2, memory_limit=1 << 21, scratch=tmp_path), method_of(parse_spec({"rows": 60, "rank": 3}))
    before = set(threading.enumerate())
    site = engine.site(method, open_matrix(DataTable(path=tmp_path / "M.npy"), tmp_path, 1 << 21).columns)
    site.answer(method.begin())
    begun = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("parts")]
    engine.close()
    assert len(begun) == threads


def test_a_restored_site_goes_on_as_if_nothing_had_happened(columns: Columns, tmp_path: Path) -> None:
    method, engine = method_of(parse_spec({"rows": 30, "max_rank": 5})), Engine(2, memory_limit=LIMIT, scratch=tmp_path)
    site = engine.site(method, columns)
    consensus, _ = run(method, site, method.begin(), 4)
    atomic_write(tmp_path / "step", lambda file: write_arrays(file, site.snapshot()))
    fresh = engine.site(method, columns)
    engine.resume(fresh, read_arrays(tmp_path / "step"))
    again, once = (run(method, one, consensus, 3)[1] for one in (fresh, site))
    np.testing.assert_array_equal(again, once)


def test_a_state_of_another_cut_is_left_and_the_run_ends_where_it_would_have(columns: Columns, tmp_path: Path) -> None:
    spec = parse_spec({"rows": 30, "rank": 3, "tolerance": 1e-12, "rounds": 60})
    method, whole = method_of(spec), Engine(1)
    before = whole.site(method, ArrayColumns(matrix()))
    consensus, _ = run(method, before, method.begin(), 5)
    engine = Engine(2, memory_limit=LIMIT, scratch=tmp_path)
    ends = []
    for one, its_engine in ((before, whole), (engine.site(method, columns), engine)):
        its_engine.resume(one, before.snapshot())
        now = consensus
        while now.outcome is None:
            now, _ = run(method, one, now, 1)
        ends.append(collect(one, now).L)
    assert float(np.linalg.norm(ends[0] - ends[1])) <= 1e-10 * float(np.linalg.norm(ends[0]))
    other = PartitionedSite(method, columns, 100, engine._part_workers(1, columns))
    other.restore(engine.site(method, columns).snapshot())
    assert other.answer(consensus).tensor.shape == (30, 3)


def test_what_a_part_cannot_read_is_the_sites_sentence() -> None:
    def fetch(start: int, stop: int) -> FloatArray:
        if start >= 200:
            raise BadInput("the disk is gone")
        return matrix()[:, start:stop]

    method = method_of(parse_spec({"rows": 30, "rank": 3}))
    broken = Engine(2).site(method, WindowedColumns(ChunkedColumns((30, 550), fetch, 1), 40))
    with pytest.raises(BadInput, match="the disk is gone"):
        broken.answer(method.begin())


def test_a_shelf_keeps_once_what_parts_share(tmp_path: Path) -> None:
    shelf, U = PartStates(tmp_path), np.arange(1000.0)
    for place in range(20):
        shelf.put({"U": U, "V": np.full(3, float(place))})
    assert sum(array.nbytes for array in shelf.mapped().values()) == U.nbytes + 20 * 24
    np.testing.assert_array_equal(shelf.get(7)["U"], U)
    np.testing.assert_array_equal(shelf.get(7)["V"], np.full(3, 7.0))
    assert shelf.get(20) == {}
    assert list(tmp_path.iterdir()) == []
