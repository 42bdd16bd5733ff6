"""Private runs of real daemons: near the truth at a generous budget, noisy, and the same after a crash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.method import FloatArray
from participant.state.store import Store
from tests.support.services.federation import Federation, running_federation

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta", "gamma")
ROWS, RANK, COLUMNS = 30, 2, 3000


def truth_and_data() -> tuple[FloatArray, FloatArray]:
    draws = np.random.default_rng(1)
    U = np.linalg.qr(draws.standard_normal((ROWS, RANK)))[0]
    M = 5 * U @ draws.standard_normal((RANK, COLUMNS)) + 0.05 * draws.standard_normal((ROWS, COLUMNS))
    spoiled = draws.random(M.shape) < 0.03
    M[spoiled] += 60 * draws.choice([-1, 1], int(spoiled.sum()))
    return U, M


TRUTH, DATA = truth_and_data()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    parts = np.array_split(DATA, len(NAMES), axis=1)
    with running_federation(
        tmp_path_factory.mktemp("private"), dict(zip(NAMES, parts, strict=True)), verify="always"
    ) as made:
        yield made


def keys(**privacy: Any) -> dict[str, Any]:
    return {"rank": RANK, "participants": NAMES, "privacy": {"epsilon": 8.0, **privacy}}


def sine(U: FloatArray) -> float:
    return float(np.linalg.norm(TRUTH - U @ (U.T @ TRUTH), 2))


def test_two_private_runs_are_near_the_truth_and_apart_by_their_noise(federation: Federation) -> None:
    views = [federation.run(**keys()), federation.run(**keys())]
    found = [federation.model(view.run_id) for view in views]
    assert max(sine(U) for U in found) < 0.1
    assert np.abs(found[0] - found[1]).max() > 1e-6
    for name in NAMES:
        result = federation.result(name, views[0].run_id)
        assert np.array_equal(result.U, found[0])
        assert np.allclose(result.L, result.U @ result.V.T)
        own = federation.data[name]
        spoiled = np.abs(own - result.L) > 30
        assert spoiled.any()
        assert (result.S.toarray()[spoiled] != 0).mean() > 0.99
        verdict = json.loads(result.manifest)["verdict"]
        assert json.loads(result.manifest)["consensus_verified"]
        assert verdict["sound"], verdict


def test_a_site_killed_in_the_middle_sends_every_round_with_one_noise(federation: Federation) -> None:
    run_id = federation.propose(**keys(rounds=4))
    alpha = federation.processes["alpha"]
    alpha.await_action("step_computed", run=run_id, round=1)
    alpha.kill()
    federation.start_site("alpha").await_action("connected")
    view = federation.finish(run_id)
    assert view.round == 4
    federation.result("alpha", run_id)
    federation.processes["alpha"].stop()
    store = Store(federation.root / "sites" / "alpha" / "state")
    sent = [
        (entry.item.round, entry.item.sha256)
        for entry in store.ledger.entries(run_id)
        if entry.item.kind == "masked update"
    ]
    store.close()
    federation.start_sites(["alpha"])
    assert {round for round, _ in sent} == set(range(5))
    assert len(set(sent)) == 5


def test_a_run_whose_noisy_count_predicts_too_much_error_ends_with_the_reason(federation: Federation) -> None:
    view = federation.follow(federation.propose(**keys(epsilon=0.05, max_error=0.05)))
    assert view.status == "failed"
    assert "predicted error" in view.reason


def test_nothing_leaves_but_noisy_sums_and_key_material(federation: Federation) -> None:
    view = federation.run(**keys())
    federation.result("beta", view.run_id)
    federation.processes["beta"].stop()
    store = Store(federation.root / "sites" / "beta" / "state")
    items = [entry.item for entry in store.ledger.entries(view.run_id)]
    store.close()
    federation.start_sites(["beta"])
    assert {item.kind for item in items if item.size} <= {"answer", "run key", "group shares", "masked update"}
    # What is noted without any byte stays at the site.
    assert {item.kind for item in items if not item.size} <= {"privacy charge", "result"}
