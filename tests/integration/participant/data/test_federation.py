"""A consortium whose sites keep their data in different forms: one matrix, agreed by name, in real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from dcfpca.rpca.method import FloatArray
from tests.support.services.federation import Federation, relative

pytestmark = pytest.mark.slow
NAMES = ("a", "b", "c")
FEATURES = tuple(f"f{k}" for k in range(20))
TABLE = {"orientation": "samples-in-rows", "missing": "allow"}


def samples() -> dict[str, FloatArray]:
    """Samples in rows, in units that differ by feature, with gross errors."""
    rng = np.random.default_rng(5)
    U, units = rng.standard_normal((20, 2)), 10.0 ** rng.integers(-2, 3, 20)
    made = {}
    for name, count in zip(NAMES, (30, 25, 40), strict=True):
        L = rng.standard_normal((count, 2)) @ U.T
        made[name] = (L + np.where(rng.random(L.shape) < 0.05, 30.0, 0.0)) * units
    return made


def columns(values: FloatArray, order: tuple[str, ...] = FEATURES) -> pa.Table:
    return pa.table({name: values[:, FEATURES.index(name)] for name in order})


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A CSV in another order with a column more, a folder of Parquet files, and an array without names."""
    data = samples()
    with Federation(tmp_path_factory.mktemp("federation")) as made:
        made.start_aggregator()
        made.add_site("a", None, tables={"data": {"path": "vitals.csv", **TABLE}})
        made.add_site("b", None, tables={"data": {"path": "parts", **TABLE}, "engine": {"memory_limit": "4 KiB"}})
        made.add_site("c", data["c"], tables={"data": {**TABLE, "feature_names": "names.txt"}})
        sites = made.root / "sites"
        order = tuple(reversed(FEATURES))
        csv.write_csv(columns(data["a"], order).append_column("age", [[40.0] * 30]), sites / "a" / "vitals.csv")
        (sites / "b" / "parts").mkdir()
        for number, part in enumerate((data["b"][:10], data["b"][10:])):
            parquet.write_table(columns(part), sites / "b" / "parts" / f"{number}.parquet")
        (sites / "c" / "names.txt").write_text("\n".join(FEATURES))
        made.data = {name: values.T for name, values in data.items()}
        made.start_sites(NAMES)
        yield made


@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_sites_with_different_formats_agree_by_feature_name(federation: Federation, scaling: str) -> None:
    view = federation.run(
        features=FEATURES, rank=2, rounds=6, tolerance=0, participants=NAMES, scaling=scaling, round_seconds=30
    )
    alone = federation.simulate(view, NAMES)
    assert view.round == alone.consensus.round
    for name, mine in zip(NAMES, alone.results, strict=True):
        found = federation.result(name, view.run_id)
        assert relative(found.L, mine.L) <= 1e-6  # early rounds are in single precision, whose rounding differs
        scale = np.load(federation.root / "sites" / name / "results" / view.run_id / "scale.npy")
        assert bool(np.all(scale == 1.0)) == (scaling == "none")


def test_a_site_worked_in_parts_is_killed_in_mid_run_and_goes_on(federation: Federation) -> None:
    keys = {"features": FEATURES, "rank": 2, "rounds": 30, "tolerance": 0, "participants": NAMES, "round_seconds": 60}
    run_id = federation.propose(**keys)
    federation.processes["b"].await_action("step_computed", run=run_id, round=4)
    federation.processes["b"].kill()
    federation.start_site("b").await_action("connected")
    view = federation.finish(run_id)
    alone = federation.simulate(view, NAMES)
    assert relative(federation.result("b", run_id).L, alone.results[1].L) <= 1e-6


def test_a_site_that_lacks_a_feature_refuses_and_names_it(federation: Federation) -> None:
    wanted = (*FEATURES, "age")
    view = federation.follow(federation.propose(features=wanted, rank=2, participants=NAMES, enrol_seconds=20))
    assert view.status == "failed"
    reasons = {who.participant: " ".join(who.reasons) for who in view.refusals}
    assert "lacks the features age" in reasons["b"]
    assert "lacks the features age" in reasons["c"]


def test_names_in_another_order_are_refused_when_the_spec_gives_none(federation: Federation) -> None:
    """b and c have the same digest; a, with a feature more, has other rows as well."""
    view = federation.follow(federation.propose(rank=2, rounds=2, enrol_seconds=20, rows=20))
    reasons = {who.participant: " ".join(who.reasons) for who in view.refusals}
    assert "digests differ" in reasons["a"]
    assert list(reasons) == ["a"]
    assert json.loads(view.spec)["features_sha256"]


def test_a_run_starts_from_an_earlier_one_and_needs_fewer_rounds(federation: Federation) -> None:
    keys = {"features": FEATURES, "rank": 3, "participants": NAMES, "scaling": "robust", "tolerance": 1e-6}
    keys["closing_rounds"] = False  # they are as many from any start
    cold = federation.run(**keys)
    warm = federation.run(**keys, warm_start=cold.run_id)
    assert warm.round < cold.round
    with pytest.raises(grpc.RpcError, match="no finished run 'nowhere'"):
        federation.propose(**keys, warm_start="nowhere")


def test_results_are_where_they_belong(federation: Federation) -> None:
    root: Path = federation.root / "sites" / "b"
    assert list((root / "state" / "spool").iterdir()) == []
