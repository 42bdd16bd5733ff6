"""The same run through the network and through `simulate` gives the same numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.synthetic import Problem, Recipe, generate
from dcfpca.secagg.column_sets import KEY_BYTES
from dcfpca.spec import parse_spec
from participant.state.column_sets import KEY_NAME
from tests.support.services.federation import Federation, relative

NAMES = ("alpha", "beta", "gamma")
ROWS, RANK = 24, 2


pytestmark = pytest.mark.slow


def small_problem(seed: int = 3) -> Problem:
    return generate(Recipe(rows=ROWS, columns=33, rank=RANK, sparsity=0.05, counts=(14, 10, 9)), seed)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = small_problem()
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with Federation(tmp_path_factory.mktemp("federation")) as made:
        made.start_aggregator()
        for name, data in sites.items():
            made.add_site(name, data)
            state = made.root / "sites" / name / "state"
            state.mkdir(mode=0o700)
            (state / KEY_NAME).write_bytes(os.urandom(KEY_BYTES))  # what closing rounds hide is another each time
        made.start_sites(sites)
        yield made


def distance(federation: Federation, **keys: Any) -> float:
    """The largest relative difference, over U, L and S, between the network's run and the simulated one."""
    spec = {"rank": RANK, "rounds": 8, "tolerance": 0.0, "participants": NAMES, "round_seconds": 20.0} | keys
    view = federation.run(**spec)
    alone = federation.simulate(view, NAMES)
    assert view.round == alone.consensus.round
    expected = method_of(parse_spec(view.spec)).model(alone.consensus)["U"]
    apart = [relative(federation.model(view.run_id), expected)]
    for name, mine in zip(NAMES, alone.results, strict=True):
        found = federation.result(name, view.run_id)
        assert json.loads(found.manifest).get("consensus_verified") is (None if spec.get("aggregation") else True)
        apart += [relative(found.L, mine.L), relative(found.S.toarray(), mine.S.toarray())]
    return max(apart)


def test_plain_gradient_agrees_with_the_simulation_to_rounding(federation: Federation) -> None:
    assert distance(federation, method="gradient", aggregation="plain") <= 1e-12


def test_secure_gradient_agrees_with_the_simulation_to_fixed_point(federation: Federation) -> None:
    # Three rounds: while it is far from its limit, every round amplifies rounding, by which entries the sites hide.
    assert distance(federation, method="gradient", rounds=3) <= 1e-10


@pytest.mark.parametrize("fit", [{"closing_rounds": False}, {"rounds": 60, "tolerance": 1e-9}])
def test_secure_subspace_agrees_with_the_simulation_to_rounding(federation: Federation, fit: dict[str, Any]) -> None:
    assert distance(federation, method="subspace", **fit) <= 1e-12


def test_closing_rounds_after_a_fit_cut_short_agree_to_rounding(federation: Federation) -> None:
    # Whichever entries the sites hide: what they begin at is exact to 1e-7, and stays so.
    assert distance(federation, method="subspace") <= 1e-12


def test_half_the_bytes_still_give_five_digits_of_a_fit_and_three_of_its_closing_rounds(federation: Federation) -> None:
    # Closing rounds divide by the noise.
    assert distance(federation, method="gradient", precision=32, rounds=3, closing_rounds=False) <= 1e-5
    assert distance(federation, method="gradient", precision=32, rounds=3) <= 1e-3


def test_several_runs_one_after_another_each_have_their_own_result(federation: Federation) -> None:
    first = federation.run(method="subspace", rank=1, rounds=2, participants=NAMES)
    second = federation.run(method="subspace", rank=2, rounds=2, participants=NAMES)
    assert first.run_id != second.run_id
    assert federation.result("alpha", first.run_id).U.shape == (ROWS, 1)
    assert federation.result("alpha", second.run_id).U.shape == (ROWS, 2)
    assert [view.run_id for view in federation.operator.runs()][:2] == [second.run_id, first.run_id]


def test_an_open_run_takes_whoever_enrols(federation: Federation) -> None:
    view = federation.run(method="subspace", rank=RANK, rounds=2)
    assert [one.participant for one in view.enrolled] == list(NAMES)


def test_rows_are_learnt_from_the_participants(federation: Federation) -> None:
    view = federation.run(method="subspace", rank=RANK, rounds=1)
    assert b'"rows":24' in view.spec


def test_a_site_with_other_rows_refuses_with_both_numbers_and_the_others_go_on(
    federation: Federation, tmp_path: Path
) -> None:
    federation.add_site("wrong", np.ones((ROWS + 5, 4)))
    process = federation.start_site("wrong")
    process.await_action("connected")
    # Plain: sums over this cohort beside those of the runs above would single out a member, which needs an approval.
    cohort = (*NAMES, "wrong")
    view = federation.run(method="subspace", rank=RANK, rounds=1, rows=ROWS, participants=cohort, aggregation="plain")
    (refusal,) = view.refusals
    assert refusal.participant == "wrong"
    assert refusal.reasons == [f"the spec says {ROWS} features (rows), this site has {ROWS + 5}"]
    process.stop()
