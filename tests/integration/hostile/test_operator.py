"""An operator who means ill: absurd specs, exports it may not have, aborts at any moment. Nothing of a site leaves."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import parse_spec
from tests.support.services.federation import Federation, running_federation

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta", "gamma")
LIMITS: dict[str, Any] = {"allow_plain": False, "max_rank": 3, "max_rounds": 50, "min_columns": 5, "min_cohort": 3}
HARMLESS = {"answer", "subscription", "export refusal"}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = generate(Recipe(rows=20, columns=30, rank=2, sparsity=0.05, counts=(10, 10, 10)), 4)
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with running_federation(tmp_path_factory.mktemp("hostile-operator"), sites, private=True, **LIMITS) as made:
        yield made


def left_of(federation: Federation, name: str, run_id: str) -> set[str]:
    """The kinds of message that left the site for this run, by its own ledger."""
    done = federation.site_command(name, "ledger", "--run", run_id, "--json")
    if "has no entry of a run" in done.stderr:
        return set()
    return {entry["type"] for entry in json.loads(done.stdout)["entries"] if entry["sent"]}


ABSURD = [
    ({"rank": 4}, "rank"),
    ({"rank": 2, "rounds": 51}, "rounds"),
    ({"rank": 2, "aggregation": "plain"}, "plain"),
    ({"rank": 2, "participants": NAMES[:2]}, "cohort"),
    ({"rank": 2, "rows": 21}, "21"),
]


@pytest.mark.parametrize(("keys", "reason"), ABSURD)
def test_a_spec_beyond_the_sites_policy_is_refused_by_each_and_nothing_leaves(
    federation: Federation, keys: dict[str, Any], reason: str
) -> None:
    run_id = federation.propose(**{"rows": 20, "participants": NAMES, "rounds": 5} | keys)
    view = federation.follow(run_id)
    assert view.status == "failed"
    assert {one.participant for one in view.refusals} == set(keys.get("participants", NAMES))
    assert all(any(reason in sentence for sentence in one.reasons) for one in view.refusals)
    for name in NAMES:
        assert left_of(federation, name, run_id) <= HARMLESS


@pytest.mark.parametrize("keys", [{"rank": 0}, {"rank": 2, "rounds": 0}, {"rank": 10**9, "rows": 10**9}])
def test_a_spec_that_makes_no_sense_is_turned_away_at_the_door(federation: Federation, keys: dict[str, Any]) -> None:
    before = len(federation.operator.runs())
    body = json.dumps({"rows": 20, "participants": NAMES} | keys).encode()
    with pytest.raises(grpc.RpcError) as caught:
        federation.operator.propose(body, uuid.uuid4().hex)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(federation.operator.runs()) == before


def test_a_private_site_refuses_the_export_however_often_it_is_asked(federation: Federation) -> None:
    view = federation.run(rows=20, rank=2, rounds=4, covariance=False, export=True, participants=NAMES)
    for name in NAMES:
        federation.result(name, view.run_id)
    for _ in range(3):
        federation.operator.request_export(view.run_id)
    for name in NAMES:
        federation.processes[name].await_action("export_refused", run=view.run_id)
        assert "reconstruction" not in " ".join(left_of(federation, name, view.run_id))


def test_aborts_raced_against_every_moment_of_a_run_leave_the_federation_working(federation: Federation) -> None:
    for _ in range(6):
        keys = parse_spec(
            {"rows": 20, "rank": 2, "rounds": 40, "covariance": False, "tolerance": 0, "participants": NAMES}
        )
        run_id = federation.operator.propose(keys.canonical(), uuid.uuid4().hex).run_id
        federation.operator.abort(run_id, "never mind")
        assert federation.follow(run_id).status == "aborted"
    assert federation.run(rows=20, rank=2, rounds=4, covariance=False, participants=NAMES).status == "finished"
