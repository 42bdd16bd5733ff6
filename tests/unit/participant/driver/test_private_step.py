"""The local step of a private run: one noise per step, whatever happens to the site, and nothing exact on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.private.site import PrivatePlan
from dcfpca.rpca.private.stages import PrivateSolver
from dcfpca.rpca.private.whole_numbers import GRID_BITS
from dcfpca.secagg.errors import LostState
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from participant.contract import Contract
from participant.driver import SiteServices
from participant.driver.local_work import LocalWork
from participant.engine.thread_engine import Engine
from participant.session import Consent
from participant.state.store import Store

SPEC = parse_spec({"rows": 60, "rank": 2, "participants": ["a", "b", "c"], "privacy": {"epsilon": 1.0, "clip": 1.0}})
DATA = np.random.default_rng(0).standard_normal((60, 400))
ENGINE = Engine(1)


STAGES = {0: "open", 1: "sketch", 2: "fit"}


class Site:
    """A site with a state directory of its own, without network."""

    def __init__(self, directory: Path, data: FloatArray = DATA, fitted: FloatArray | None = None) -> None:
        self.store = Store(directory)
        columns = ArrayColumns(data)
        entering = columns if fitted is None else ArrayColumns(fitted)
        local = SimpleNamespace(columns=lambda spec: columns, fitted_columns=lambda spec: entering, key=b"")
        parts: dict[str, Any] = {"site": local, "store": self.store, "engine": ENGINE, "results": directory}
        self.services = SiteServices(**parts, link=cast("Any", None), egress=cast("Any", None))

    def enrol(self, run_id: str = "r1", key: bytes = bytes(range(32))) -> None:
        self.store.save_consent(run_id, Consent(SPEC, SPEC.digest(), True, (), False), 1)
        self.store.make_noise_key(run_id, key)

    async def step(self, round: int, run_id: str = "r1", sites: int = 3, turn: float = 0.0) -> FloatArray:
        """The vector that is saved, and would be masked and sent."""
        work = LocalWork(run_id, self.services, lambda percent: None)
        step = await work.step(
            Contract(run_id, "a", Terms.of(SPEC)), consensus(round, turn), bytes(32), lambda: True, sites
        )
        saved = self.store.step(run_id)
        assert saved is not None
        assert saved.vector.tobytes() == step.vector.tobytes()
        return step.vector


def consensus(round: int, turn: float = 0.0) -> Consensus:
    stage = STAGES[round]
    down = Terms.of(SPEC).method.stage(stage).down
    if round == 0:
        return Consensus(round, stage, down.zeros())
    U = np.linalg.qr(np.eye(60, down.columns) + turn * np.eye(60, down.columns, -1))[0]
    return Consensus(round, stage, PrivatePlan(U, 1.0, 1200.0, 0, 0.1, np.zeros(2)).broadcast())


def exact(round: int) -> FloatArray:
    terms, stage = Terms.of(SPEC), STAGES[round]
    told = PrivatePlan(np.eye(60, terms.method.stage(stage).down.columns), 1.0, 1200.0, 0, 0.1, np.zeros(2))
    return terms.method.site(ArrayColumns(DATA)).answer(Consensus(round, stage, told.broadcast())).flat()


async def test_a_site_that_computes_a_step_again_has_the_same_bytes(tmp_path: Path) -> None:
    first = Site(tmp_path / "state")
    first.enrol()
    before = tmp_path / "backup"
    shutil.copytree(tmp_path / "state", before)
    sent = await first.step(1)
    again, restored = await Site(tmp_path / "state").step(1), await Site(before).step(1)
    assert sent.tobytes() == again.tobytes() == restored.tobytes()


async def test_the_sums_have_the_columns_that_enter_and_the_result_has_all(tmp_path: Path) -> None:
    whole, alone = Site(tmp_path / "whole", DATA, DATA[:, ::2]), Site(tmp_path / "alone", DATA[:, ::2])
    whole.enrol()
    alone.enrol()
    assert (await whole.step(1)).tobytes() == (await alone.step(1)).tobytes()
    work = LocalWork("r1", whole.services, lambda percent: None)
    told = PrivatePlan(np.eye(60, 50), 1.0, 1200.0, 2, 0.1, np.ones(2)).broadcast()
    blocks = work._result_site(Contract("r1", "a", Terms.of(SPEC))).finish(Consensus(1, "sketch", told))
    assert sum(block.L.shape[1] for block in blocks) == DATA.shape[1]


async def test_noise_of_another_round_consensus_run_or_site_is_another(tmp_path: Path) -> None:
    site, other = Site(tmp_path / "one"), Site(tmp_path / "other")
    site.enrol()
    site.enrol("r2")
    other.enrol(key=bytes(32))
    noises = [
        await site.step(1) - exact(1),
        await site.step(1, turn=1e-9) - exact(1),
        await site.step(1, "r2") - exact(1),
        await other.step(1) - exact(1),
    ]
    for index, one in enumerate(noises):
        for another in noises[:index]:
            assert abs(np.corrcoef(one, another)[0, 1]) < 0.1


async def test_no_second_noise_is_drawn_for_the_opening_under_another_digest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.enrol()
    work, contract = LocalWork("r1", site.services, lambda percent: None), Contract("r1", "a", Terms.of(SPEC))
    step = await work.step(contract, consensus(0), b"another digest".ljust(32), lambda: True, 3)
    assert step.vector.tobytes() == (await site.step(0)).tobytes()


async def test_another_answer_to_the_same_step_has_another_noise(tmp_path: Path) -> None:
    # As of a restored site whose other software, or other division of the columns, rounds a sum differently.
    site, other = Site(tmp_path / "one"), Site(tmp_path / "other", DATA[:, 1:])
    site.enrol()
    other.enrol()
    apart = await site.step(1) - await other.step(1)
    solver = Terms.of(SPEC).method.solver
    assert isinstance(solver, PrivateSolver)
    assert apart.std() > solver.schedule.deviation(1) / np.sqrt(3 - 1)


@pytest.mark.parametrize("round", [0, 1])
async def test_what_is_saved_is_on_the_grid_and_has_its_share_of_the_noise(tmp_path: Path, round: int) -> None:
    site = Site(tmp_path)
    site.enrol()
    method = Terms.of(SPEC).method
    assert isinstance(method.solver, PrivateSolver)
    sent = await site.step(round)
    steps = np.ldexp(sent, GRID_BITS)
    assert np.array_equal(steps, np.rint(steps))
    noise = sent - (exact(1) if round else method.site(ArrayColumns(DATA)).answer(method.begin()).flat())
    expected = method.solver.schedule.deviation(round) / np.sqrt(3 - 1)
    assert abs(noise.std() / expected - 1) < 5 / np.sqrt(2 * noise.size)


async def test_without_its_key_or_an_honest_site_no_step_is_taken(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.store.save_consent("r1", Consent(SPEC, SPEC.digest(), True, (), False), 1)
    with pytest.raises(LostState):
        await site.step(0)
    site.enrol()
    with pytest.raises(BadInput):
        await site.step(0, sites=1)
    assert site.store.step("r1") is None


def test_the_key_of_the_noise_is_gone_after_the_run(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.enrol()
    site.store.end("r1", "finished", "complete")
    assert not list(tmp_path.glob("*.noise"))
