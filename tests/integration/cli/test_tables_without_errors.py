"""Tables in which nothing is wrong, through the operator's command and real sites: what a run says of them is true."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dcfpca.cli.main import main
from dcfpca.rpca.method import FloatArray
from dcfpca.scaffold.background import until
from dcfpca.scaffold.config_texts import DataKeys
from dcfpca.scaffold.local_consortium import Consortium, LocalPlan, create_consortium, start_consortium, stop_consortium

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_loops")]

SITES, SAMPLES, FEATURES = ("a", "b", "c", "d"), 200, 20
SHAPE = (len(SITES) * SAMPLES, FEATURES)
Draw = Callable[[np.random.Generator, FloatArray], FloatArray]
TABLES: dict[str, Draw] = {
    "rare": lambda rng, L: (rng.random(SHAPE) < rng.uniform(0.02, 0.1, FEATURES)).astype(float),
    "coin": lambda rng, L: (rng.random(SHAPE) < 0.5).astype(float),
    "zeros": lambda rng, L: rng.poisson(2.0, SHAPE) * (rng.random(SHAPE) < 0.1).astype(float),
    "poisson": lambda rng, L: rng.poisson(0.3, SHAPE).astype(float),
    "t3": lambda rng, L: L + rng.standard_t(3, SHAPE),
    "lognormal": lambda rng, L: np.exp(rng.normal(size=SHAPE)),
    "million": lambda rng, L: 1e6 + L + rng.normal(size=SHAPE),
}
STRUCTURED = {"t3", "million"}


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    directory, rng = tmp_path_factory.mktemp("federation"), np.random.default_rng(3)
    L = rng.normal(size=(SHAPE[0], 2)) @ rng.normal(size=(2, FEATURES))
    values = np.column_stack([draw(rng, L) for draw in TABLES.values()])
    data = {name: directory / "sites" / name / "data.csv" for name in SITES}
    made = create_consortium(directory, LocalPlan("demo", data, data=DataKeys("", id_column="patient")))
    head = ",".join(["patient", *(name for kind in TABLES for name in _features(kind))])
    for name, own in zip(SITES, np.split(values, len(SITES)), strict=True):
        lines = [f"{name}{number}," + ",".join(f"{value:.17g}" for value in row) for number, row in enumerate(own)]
        data[name].write_text("\n".join([head, *lines]) + "\n")
    try:
        start_consortium(made, lambda _: None)
        yield made
    finally:
        stop_consortium(made, lambda _: None)


def _features(kind: str) -> list[str]:
    return [f"{kind} {number}" for number in range(FEATURES)]


@pytest.mark.parametrize("kind", TABLES)
def test_nothing_is_found_exact_or_predicted_and_hardly_anything_flagged_where_nothing_is_wrong(
    kind: str, consortium: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f"rows = {FEATURES}\nfeatures = {json.dumps(_features(kind))}\nparticipants = {json.dumps(SITES)}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", "start", str(spec), "--watch", "--json", "--config", str(consortium.operator_config)])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    run = json.loads(said.out)
    sentence = run["verdict"]["sentence"]
    assert run["status"] == "finished"
    assert "xact" not in sentence
    # Which entries are hidden follows from the sites' keys: with tails as heavy, the second direction may be missed.
    assert sentence.startswith(("Rank 1", "Rank 2") if kind in STRUCTURED else "Rank 0")
    manifests = [consortium.results(name, run["run_id"]) / "manifest.json" for name in SITES]
    until(lambda: all(path.exists() for path in manifests), consortium.sites.values(), "results", 60)
    told = [json.loads(path.read_text()) for path in manifests]
    assert np.mean([one["certificate"]["outlier_share"] for one in told]) <= 0.002
    for one in told:
        assert not one["verdict"]["checked"] or "expected to be ordinary" in sentence or "few or no entries" in sentence


def test_a_list_that_a_resample_of_the_fit_flags_as_much_of_is_not_called_one_to_be_trusted(
    consortium: Consortium,
) -> None:
    """Counts of a few values have tails that look like errors: the check sees it, and the report says so."""
    manifests = [json.loads(path.read_text()) for path in consortium.directory.glob("sites/*/**/manifest.json")]
    counts = [one for one in manifests if one["spec"]["features"][0].startswith("poisson")]
    assert len(counts) == len(SITES)
    for one in counts:
        flagged = "Not to be trusted" in one["verdict"]["sentence"]
        assert one["verdict"]["checked"] is not flagged
