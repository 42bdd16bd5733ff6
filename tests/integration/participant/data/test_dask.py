"""The local step on a Dask cluster gives the local engine's result, and outlives a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dcfpca.errors import Unreachable
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import block_width
from dcfpca.rpca.method import Columns, Consensus, FloatArray, TensorMessage, Total
from dcfpca.rpca.simulate import SiteResult, collect
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.terms import Terms
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.tensors import header_of, message_bytes
from participant.contract import Contract
from participant.data.data_config import DataTable
from participant.data.matrix import select_features
from participant.data.readers import open_matrix
from participant.driver import SiteServices
from participant.driver.local_work import LocalWork
from participant.engine.dask_engine import DaskEngine, cut
from participant.engine.progress import Cancellation, MeteredColumns, ProgressMeter, WorkCancelled
from participant.engine.thread_engine import Engine
from participant.session import Consent
from participant.state.store import Store
from participant.wire_codec import consensus_of
from tests.support.services.federation import Federation, relative

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Dask's own making, in threads that end after the test
]
# Early rounds in single precision, the default, agree to single precision only; their limit agrees as well as others.
EXACT = {"single": 1.0}
GRADIENT: RunSpec = parse_spec({"rows": 60, "rank": 3, "method": "gradient", "closing_rounds": False})
NAMES = tuple(f"f{k}" for k in range(60))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DataTable:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    L = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 9000))
    M = L + np.where(rng.random(L.shape) < 0.05, 20.0, 0.0)
    M[rng.random(M.shape) < 0.02] = np.nan
    np.save(folder / "M.npy", M)
    (folder / "names.txt").write_text("\n".join(NAMES))
    return DataTable(path=folder / "M.npy", feature_names=folder / "names.txt")


@pytest.fixture(scope="module")
def engine(table: DataTable) -> Iterator[DaskEngine]:
    """Two workers, each a process of its own."""
    made = DaskEngine("", table, threads=2)
    yield made
    made.close()


def run(method: Method, site: Site, rounds: int = 6) -> tuple[Consensus, list[FloatArray]]:
    consensus, updates = method.begin(), []
    for _ in range(rounds + 1):
        update = site.answer(consensus)
        updates.append(update.flat())
        consensus = method.advance(consensus, Total(update, 1))
    return consensus, updates


def ending(method: Method, site: Site) -> tuple[Consensus, SiteResult]:
    """A run to its end."""
    consensus = method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, Total(site.answer(consensus), 1))
    return consensus, collect(site, consensus)


def close(one: FloatArray, other: FloatArray) -> bool:
    return float(np.linalg.norm(one - other)) <= 1e-10 * float(np.linalg.norm(other))


@pytest.mark.parametrize("keys", [{"max_rank": 5, "subspace": EXACT}, {"rank": 3, "method": "gradient"}])
@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_the_cluster_gives_the_local_engines_result(
    engine: DaskEngine, table: DataTable, scaling: str, keys: dict[str, Any]
) -> None:
    spec = parse_spec({"rows": 60, "scaling": scaling, "closing_rounds": False, **keys})
    method, columns = method_of(spec), open_matrix(table).columns
    rounds = spec.last_round - spec.rounds + 5
    alone, spread = method.site(columns), engine.site(method, columns)
    ours, updates = run(method, spread, rounds)
    theirs, expected = run(method, alone, rounds)
    assert all(close(one, other) for one, other in zip(updates, expected, strict=True))
    found, wanted = collect(spread, ours), collect(alone, theirs)
    assert close(found.L, wanted.L)
    assert close(found.S.toarray(), wanted.S.toarray())
    assert found.certificate.keys() == wanted.certificate.keys()


def test_workers_keep_the_memory_of_freed_arrays_for_the_next(engine: DaskEngine, table: DataTable) -> None:
    def faults() -> int:
        import resource  # noqa: PLC0415 — on the worker

        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(400):
            np.ones(1 << 17)  # a block of columns
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    method = method_of(parse_spec({"rows": 60, "rank": 3}))
    engine.site(method, open_matrix(table).columns).answer(method.begin())
    assert max(engine.client.run(faults).values()) < 0.1 * 400 * 256


def test_a_whole_run_ends_with_the_local_engines_result(engine: DaskEngine, table: DataTable) -> None:
    method, columns = method_of(parse_spec({"rows": 60, "max_rank": 5, "tolerance": 1e-12})), open_matrix(table).columns
    _, spread = ending(method, engine.site(method, columns))
    _, alone = ending(method, method.site(columns))
    assert close(spread.L, alone.L)


def test_the_own_view_of_a_site_is_formed_on_the_workers_too(engine: DaskEngine, table: DataTable) -> None:
    wanted = NAMES[:12]
    method = method_of(parse_spec({"features": wanted, "rank": 1}))  # of three: what is left is noise
    columns: Columns = select_features(open_matrix(table), wanted, "here").columns
    (_, spread), (_, alone) = (ending(method, site) for site in (engine.site(method, columns), method.site(columns)))
    assert alone.S.nnz
    np.testing.assert_array_equal(spread.S.toarray() != 0.0, alone.S.toarray() != 0.0)
    assert np.isclose(spread.certificate["error_ratio"], alone.certificate["error_ratio"])


def test_the_percentage_of_a_step_on_the_workers_is_told(engine: DaskEngine, table: DataTable) -> None:
    told: list[int] = []
    method, columns = method_of(parse_spec({"rows": 60, "rank": 3})), open_matrix(table).columns
    meter = ProgressMeter(told.append, every=0.0)
    meter.begin(columns.shape[1])
    engine.site(method, MeteredColumns(columns, meter)).answer(method.begin())
    assert told == sorted(told)
    assert told[-1] >= 50


def test_features_are_chosen_on_the_workers(engine: DaskEngine, table: DataTable) -> None:
    wanted = tuple(reversed(NAMES[:40]))
    method = method_of(parse_spec({"features": wanted, "rank": 3, "subspace": EXACT}))
    columns: Columns = select_features(open_matrix(table), wanted, "here").columns
    _, updates = run(method, engine.site(method, columns), 3)
    _, expected = run(method, method.site(columns), 3)
    assert close(updates[-1], expected[-1])


def test_a_daemon_that_restarts_finds_its_coefficients_again(engine: DaskEngine, table: DataTable) -> None:
    """V_i stays on the workers; what a restarted daemon has is the data, and the run ends where it would have ended."""
    spec = parse_spec({"rows": 60, "rank": 3, "tolerance": 1e-12})
    method, columns = method_of(spec), open_matrix(table).columns
    site = engine.site(method, columns)
    consensus, _ = run(method, site, 5)
    fresh = engine.site(method, columns)
    engine.resume(fresh, site.snapshot())
    assert sum(array.nbytes for array in site.snapshot().values()) < 1000
    while consensus.outcome is None:
        consensus = method.advance(consensus, Total(fresh.answer(consensus), 1))
    _, alone = ending(method, method.site(columns))
    assert close(collect(fresh, consensus).L, alone.L)


def test_a_worker_killed_in_mid_round_does_not_lose_the_round(engine: DaskEngine, table: DataTable) -> None:
    method, columns = method_of(parse_spec({"rows": 60, "rank": 3, "subspace": EXACT})), open_matrix(table).columns
    site, alone = engine.site(method, columns), method.site(columns)
    consensus, _ = run(method, site, 3)
    run(method, alone, 3)
    victim = next(iter(engine.client.run(os.getpid).values()))
    answers: list[FloatArray] = []
    # Something long occupies both workers, so that the round is under way, and waiting, when one of them dies.
    busy = [engine.client.submit(_occupy, number, pure=False) for number in range(2)]
    thread = Thread(target=lambda: answers.append(site.answer(consensus).flat()))
    thread.start()
    os.kill(victim, signal.SIGKILL)
    thread.join(100)
    engine.client.cancel(busy)
    assert len(answers) == 1
    assert close(answers[0], alone.answer(consensus).flat())
    assert victim not in engine.client.run(os.getpid).values()


def _occupy(number: int) -> float:
    """Some seconds of work."""
    rng = np.random.default_rng(number)
    return float(sum(np.linalg.svd(rng.standard_normal((200, 200)), compute_uv=False)[0] for _ in range(40)))


def test_results_are_fetched_however_often_the_wait_looks_for_a_cancellation(
    engine: DaskEngine, table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that falls into the fetching of a result, as it does on a busy machine, must not break it off."""
    monkeypatch.setattr("participant.engine.dask_engine.CANCELLATION_SECONDS", 1e-3)
    method, columns = method_of(GRADIENT), open_matrix(table).columns
    _, updates = run(method, engine.site(method, columns), 4)
    _, expected = run(method, method.site(columns), 4)
    assert all(close(one, other) for one, other in zip(updates, expected, strict=True))


def test_a_step_that_broke_off_is_computed_again_from_the_saved_one(engine: DaskEngine, table: DataTable) -> None:
    cancellation, there, left = Cancellation(), open_matrix(table).columns, [10**6]

    def count(_: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            cancellation.cancel()

    method, meter = method_of(GRADIENT), ProgressMeter(count, every=0.0)
    site, alone = engine.site(method, MeteredColumns(there, meter, cancellation)), method.site(there)
    consensus, _ = run(method, site, 3)
    run(method, alone, 3)
    saved = site.snapshot()
    left[0] = 10  # shards: amid the local iterations of the round
    with pytest.raises(WorkCancelled):
        site.answer(consensus)
    again = engine.site(method, there)
    engine.resume(again, saved, site)
    wanted = alone.answer(consensus).flat()
    assert close(again.answer(consensus).flat(), wanted)


class Work:
    """The local work of a run of GRADIENT at a site without network."""

    def __init__(self, directory: Path, engine: Engine, columns: Columns) -> None:
        self.store = Store(directory)
        self.store.save_consent("r1", Consent(GRADIENT, GRADIENT.digest(), True, (), False), 1)
        local = SimpleNamespace(columns=lambda spec: columns, fitted_columns=lambda spec: columns, key=b"")
        parts: dict[str, Any] = {"site": local, "store": self.store, "engine": engine, "results": directory}
        services = SiteServices(**parts, link=cast("Any", None), egress=cast("Any", None))
        self._local, self._contract = (
            LocalWork("r1", services, lambda percent: None),
            Contract("r1", "a", Terms.of(GRADIENT)),
        )

    async def step(self, consensus: Consensus) -> TensorMessage:
        stage, payload = self._contract.terms.method.stage(consensus.stage), message_bytes(consensus.broadcast)
        told = consensus_of(header_of(payload, stage.down, types.DTYPE_FLOAT64), stage.name, payload)
        step = await self._local.step(self._contract, consensus, told.sha256, lambda: True)
        return TensorMessage.unflatten(stage.up, step.vector)


@pytest.mark.parametrize("disk_is_full_in", [0, 1, 3])
async def test_a_step_that_could_not_be_saved_is_computed_again_alike(
    engine: DaskEngine, table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_is_full_in: int
) -> None:
    method, columns = method_of(GRADIENT), open_matrix(table).columns
    work, alone = Work(tmp_path, engine, columns), method.site(columns)
    consensus = method.begin()
    for round in range(5):
        if round == disk_is_full_in:
            with monkeypatch.context() as full:
                full.setattr(work.store.steps, "save", _fail)
                for _ in range(2):
                    with pytest.raises(OSError, match="full"):
                        await work.step(consensus)
        update = await work.step(consensus)
        assert close(update.flat(), alone.answer(consensus).flat())
        consensus = method.advance(consensus, Total(update, 1))


def _fail(*_: object, **__: object) -> None:
    raise OSError("the disk is full")


def test_a_daemon_with_a_cluster_takes_part_like_any_other(tmp_path: Path, table: DataTable) -> None:
    assert table.path is not None
    matrix, names = np.load(table.path), ("a", "b", "c")
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        federation.add_site("a", matrix[:, :500], tables={"engine": {"kind": "dask", "threads": 2}})
        federation.add_site("b", matrix[:, 500:700])
        federation.add_site("c", matrix[:, 700:])
        federation.start_sites(names)
        keys: dict[str, Any] = {"rank": 3, "rounds": 4, "tolerance": 0, "participants": names, "round_seconds": 60}
        keys["closing_rounds"] = False
        view = federation.run(**keys, subspace=EXACT)
        alone = federation.simulate(view, names)
        assert relative(federation.result("a", view.run_id).L, alone.results[0].L) <= 1e-10
        view = federation.run(**keys, method="gradient")
        alone = federation.simulate(view, names)
        assert relative(federation.result("a", view.run_id).L, alone.results[0].L) <= 1e-10
        federation.stop_all()


def test_a_scheduler_that_is_not_there_is_said(table: DataTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("participant.engine.dask_engine.CONNECT_SECONDS", 1)
    with pytest.raises(Unreachable, match=r"tcp://127\.0\.0\.1:1 does not answer"):
        DaskEngine("tcp://127.0.0.1:1", table, threads=1)


def test_every_worker_gets_shards_and_none_too_large() -> None:
    block = block_width(1000)
    assert cut((1000, 8 * block - 1), workers=2) == [
        (0, 2 * block), (2 * block, 4 * block), (4 * block, 6 * block), (6 * block, 8 * block - 1)
    ]  # fmt: skip
    assert cut((10, 1), workers=8) == [(0, 1)]
    assert max(stop - start for start, stop in cut((1000, 10**6), workers=1)) * 8000 <= 128 << 20


def test_a_cancelled_step_does_not_wait_for_the_cluster(engine: DaskEngine, table: DataTable) -> None:
    spec = parse_spec({"rows": 60, "rank": 3, "method": "gradient", "gradient": {"local_iterations": 10**12}})
    cancellation = Cancellation()
    there = open_matrix(table).columns
    # The first shard that is done cancels the rest.
    columns = MeteredColumns(there, ProgressMeter(lambda _: cancellation.cancel(), every=0), cancellation)
    method = method_of(spec)
    site = engine.site(method, columns)
    opening = method.site(there).answer(method.begin())
    consensus = method.advance(method.begin(), Total(opening, 1))
    with pytest.raises(WorkCancelled):
        site.answer(consensus)
