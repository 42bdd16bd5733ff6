"""kill -9 at every phase and every step: the run goes on, and its result is that of the undisturbed run."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from aggregator.store.store import Store
from dcfpca.errors import DcfpcaError
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import parse_spec
from tests.support.runs.stored_runs import load_runs
from tests.support.services.federation import Federation, relative, running_federation
from tests.support.services.processes import PATIENCE

NAMES = ("alpha", "beta", "gamma")
PHASES = ("advertising", "sharing", "uploading")
# What a participant logs at each of its steps, with the fields that tell one from another.
STEPS: tuple[tuple[str, dict[str, Any]], ...] = (("step_computed", {}), ("update_sent", {}))
SPEC = {
    "method": "subspace",
    "rank": 2,
    "tolerance": 0.0,
    "participants": NAMES,
    "round_seconds": 24.0,
    "closing_rounds": False,
}
LONG = bool(os.environ.get("DCFPCA_LONG"))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = generate(Recipe(rows=24, columns=33, rank=2, sparsity=0.05, noise=0.05, counts=(14, 10, 9)), 3)
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with running_federation(tmp_path_factory.mktemp("federation"), sites) as made:
        yield made


def check_undisturbed(federation: Federation, run_id: str) -> None:
    """The run finished with everybody in every round, each round summed once, and the simulation's result."""
    view = federation.finish(run_id, 200)
    assert [done.round for done in view.rounds] == list(range(view.round + 1))
    assert all(list(done.survivors) == list(NAMES) for done in view.rounds)
    alone = federation.simulate(view, NAMES)
    wanted = alone.consensus.broadcast.tensor
    assert relative(with_signs_of(wanted, federation.model(run_id)), wanted) <= 1e-10
    for name, mine in zip(NAMES, alone.results, strict=True):
        assert relative(federation.result(name, run_id).L, mine.L) <= 1e-10


def with_signs_of(wanted: FloatArray, got: FloatArray) -> FloatArray:
    """Each direction of U turned as wanted: rounding alone decides which of its two signs a direction has."""
    return got * np.sign(np.sum(got * wanted, axis=0))


def phase_in_store(federation: Federation) -> str:
    """Where the killed aggregator was, by its own store."""
    store = Store(federation.root / "store.db")
    try:
        return load_runs(store)[-1].run.phase
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_aggregator_killed_in_every_phase_loses_nothing(federation: Federation) -> None:
    killed_in: set[str] = set()
    for tries in itertools.count():
        wanted = next((phase for phase in PHASES if phase not in killed_in), None)
        if wanted is None or tries > 3 * len(PHASES):
            break
        # A run each: the first two phases are its set-up, which comes once.
        run_id = federation.propose(**SPEC, rounds=6)
        federation.aggregator.await_action("phase_entered", run=run_id, phase=wanted)
        federation.aggregator.kill()
        killed_in.add(phase_in_store(federation))
        federation.start_aggregator()
        check_undisturbed(federation, run_id)
    assert killed_in >= set(PHASES)


@pytest.mark.slow
def test_the_aggregator_killed_with_a_sum_that_it_has_not_stored_forms_it_again(federation: Federation) -> None:
    run_id = federation.propose(**SPEC, rounds=6)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=2)
    federation.aggregator.kill()
    federation.start_aggregator()
    check_undisturbed(federation, run_id)


@pytest.mark.slow
def test_the_aggregator_killed_while_enrolling_still_has_the_answers(federation: Federation) -> None:
    federation.processes["gamma"].kill()
    run_id = federation.propose(**SPEC, rounds=3, enrol_seconds=120)
    federation.aggregator.await_action("participant_enrolled", run=run_id, participant="alpha")
    federation.aggregator.kill()
    federation.start_aggregator()
    assert "alpha" in [one.participant for one in federation.operator.run(run_id).enrolled]
    federation.start_site("gamma")
    check_undisturbed(federation, run_id)


@pytest.mark.slow
@pytest.mark.timeout(600 if LONG else 300)
def test_participants_killed_at_every_step_lose_nothing(federation: Federation) -> None:
    """Each step once, each participant in turn; the long form kills each participant at each step."""
    order = itertools.cycle(NAMES)
    plan = [(name, step) for step in STEPS for name in (NAMES if LONG else [next(order)])]
    run_id = federation.propose(**SPEC, rounds=4 * len(plan))
    for name, (action, fields) in plan:
        process = federation.processes[name]
        process.await_action(action, after=len(process.lines), **fields)
        process.kill()
        federation.start_site(name)
    check_undisturbed(federation, run_id)


@pytest.mark.slow
def test_a_participant_killed_while_it_writes_its_results_writes_them_after_all(federation: Federation) -> None:
    run_id = federation.propose(**SPEC, rounds=2)
    federation.processes["alpha"].await_line(lambda line: line.get("key") == f"{run_id}/finished")
    federation.processes["alpha"].kill()
    federation.start_site("alpha")
    check_undisturbed(federation, run_id)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_everything_killed_at_once_and_started_again_goes_on(federation: Federation) -> None:
    run_id = federation.propose(**SPEC, rounds=12)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=3)
    for process in federation.processes.values():
        process.signal(signal.SIGKILL)
    for process in federation.processes.values():
        process.wait()
    federation.start_aggregator()
    federation.start_sites(NAMES)
    check_undisturbed(federation, run_id)


@pytest.mark.slow
def test_an_orderly_stop_is_quick_and_loses_nothing(federation: Federation) -> None:
    run_id = federation.propose(**SPEC, rounds=12)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=2)
    assert federation.aggregator.stop() == 0
    assert federation.aggregator.events()[-1]["action"] == "stopped"
    federation.start_aggregator()
    check_undisturbed(federation, run_id)


def cut_short(federation: Federation, call: Callable[[], object]) -> None:
    """Kill the aggregator while it works on this call, and start it again."""
    asking = threading.Thread(target=lambda: suppressed(call))
    asking.start()
    federation.aggregator.kill()
    asking.join()
    federation.start_aggregator()
    grpc.channel_ready_future(federation.channel()).result(PATIENCE)


def suppressed(call: Callable[[], object]) -> None:
    with contextlib.suppress(grpc.RpcError, DcfpcaError):
        call()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_aggregator_killed_while_it_is_told_to_start_finish_or_abort_a_run_does_so_once(
    federation: Federation,
) -> None:
    operator = federation.operator
    for word, wanted in (("finish", "finished"), ("abort", "aborted")):
        spec, request = parse_spec({**SPEC, "rounds": 400}).canonical(), uuid.uuid4().hex
        before = len(operator.runs())
        cut_short(federation, lambda spec=spec, request=request: operator.propose(spec, request))  # type: ignore[misc]
        run_id = operator.propose(spec, request).run_id
        assert len(operator.runs()) == before + 1
        federation.aggregator.await_action("consensus_reached", run=run_id, round=2)
        end = getattr(operator, word)
        cut_short(federation, lambda end=end, run_id=run_id: end(run_id, "enough"))  # type: ignore[misc]
        if not operator.run(run_id).ended_ms:
            end(run_id, "enough")
        assert operator.run(run_id).status == wanted
        for name in NAMES:
            federation.processes[name].await_action("results_written" if word == "finish" else "run_ended", run=run_id)
