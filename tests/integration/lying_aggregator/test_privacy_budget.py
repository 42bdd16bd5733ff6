"""Real daemons keep to their privacy budget, whatever an aggregator proposes, and however often they are restarted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dcfpca.privacy.zcdp import rho_of
from dcfpca.rpca.method import TensorMessage
from dcfpca.spec import spec_digest
from dcfpca.v1 import rounds_pb2 as pb
from participant.state.ledger import PRIVACY_CHARGE, PRIVACY_RETURN, Entry, verify
from participant.state.store import Store
from tests.support.hostile.attacked_sites import NAMES, Watch, attacked_sites, begun, refused, settled
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.secure_play import FixedCohortPlay

LIMIT = 1.5


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingAggregator]:
    """Sites that join private runs only, and not many of them."""
    root = tmp_path_factory.mktemp("sites")
    with attacked_sites(root, require_privacy=True, max_epsilon=LIMIT, allow_plain=True) as made:
        yield made


def private(liar: LyingAggregator, epsilon: float) -> FixedCohortPlay:
    return FixedCohortPlay(liar, NAMES, rounds=3, privacy={"epsilon": epsilon, "max_error": 1.0})


def ledger(liar: LyingAggregator, name: str, run_id: str = "") -> list[Entry]:
    home = liar.federation.root / "sites" / name
    store = Store(home / "state", home / "results")
    try:
        assert verify(store.ledger.entries()) > 0
        return list(store.ledger.entries(run_id))
    finally:
        store.close()


def charges(liar: LyingAggregator, name: str, run_id: str) -> list[str]:
    kinds = [entry.item.kind for entry in ledger(liar, name, run_id)]
    return [kind for kind in kinds if kind.startswith("privacy")]


def abort(run: FixedCohortPlay) -> None:
    watch = Watch(run)
    run.finish("aborted")
    for name in NAMES:
        watch.said(name, lambda line: line["action"] == "run_ended")


@pytest.mark.slow
def test_a_run_over_the_budget_is_refused_with_one_sentence_until_the_one_before_it_ends_unused(
    liar: LyingAggregator,
) -> None:
    first, second = private(liar, 1.0), private(liar, 1.2)
    assert all(answer.accept for answer in first.enrol().values())
    for name, answer in second.enrol().items():
        assert not answer.accept
        (reason,) = answer.reasons
        assert "the run asks for ε = 1.2 at δ = 1e-06, ε = 1 has been spent on this data" in reason
        assert f"above the site's limit of {LIMIT} ([policy] max_epsilon); at most ε = " in reason
        assert charges(liar, name, second.run_id) == []
        left = {entry.item.kind for entry in ledger(liar, name, second.run_id)}
        assert left == {"answer"}, left
    abort(first)
    assert charges(liar, "ann", first.run_id) == [PRIVACY_CHARGE, PRIVACY_RETURN]
    third = private(liar, 1.2)
    assert all(answer.accept for answer in third.enrol().values())
    abort(third)


@pytest.mark.slow
def test_a_site_that_is_killed_after_it_joined_is_charged_once(liar: LyingAggregator) -> None:
    run = private(liar, 1.0)
    assert all(answer.accept for answer in run.enrol().values())
    after = len(liar.heard)
    liar.federation.processes["ann"].kill()
    liar.federation.start_sites(["ann"])
    assert liar.await_call("Respond", "ann", run.run_id, after).request.accept
    assert charges(liar, "ann", run.run_id) == [PRIVACY_CHARGE]
    (entry,) = [entry for entry in ledger(liar, "ann", run.run_id) if entry.item.kind == PRIVACY_CHARGE]
    assert f"rho={rho_of(1.0, 1e-6)!r} " in entry.item.shape
    abort(run)


@pytest.mark.slow
def test_neither_a_run_without_privacy_nor_a_private_one_in_the_clear_is_joined(liar: LyingAggregator) -> None:
    open_run = FixedCohortPlay(liar, NAMES)
    for answer in open_run.enrol().values():
        assert not answer.accept
        assert "require_privacy" in answer.reasons[0]
    lie = private(liar, 0.5)
    watch, keys = Watch(lie), json.loads(lie.spec.canonical()) | {"aggregation": "plain"}
    spec = json.dumps(keys, sort_keys=True, separators=(",", ":")).encode()
    for name in NAMES:
        lie.tell(name, run_proposed=pb.RunProposed(spec=spec, spec_sha256=spec_digest(spec)))
    for name in NAMES:
        assert "privacy" in watch.refusal(name)["reason"]
    settled(lie)
    assert not [one for one in liar.calls("Respond") if one.request.run_id == lie.run_id]


@pytest.mark.slow
def test_no_lie_about_directions_or_clip_gets_an_update_out_of_the_noise_and_what_left_stays_charged(
    liar: LyingAggregator,
) -> None:
    run = begun(liar, played=1, rounds=3, privacy={"epsilon": 1.0, "max_error": 1.0, "clip": 5.0})
    told = run.consensus.broadcast
    swollen = TensorMessage(100.0 * told.tensor, told.scalars)
    looser = TensorMessage(told.tensor, np.concatenate([[500.0], told.scalars[1:]]))
    for lie in (swollen, looser):
        watch, opened = Watch(run), run.announcement(replace(run.consensus, broadcast=lie))
        after = run.open(opened)
        for name in NAMES:
            watch.refusal(name, "ImplausibleConsensus")
        assert refused(opened, liar, after) == list(NAMES)
    abort(run)
    for name in NAMES:
        assert charges(liar, name, run.run_id) == [PRIVACY_CHARGE]
    assert not any(answer.accept for answer in private(liar, 1.2).enrol().values())
