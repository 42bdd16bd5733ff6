"""The paper's experiments, small: each figure's claim holds, and its data, PNG and SVG are written."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.paper import convergence, local_iterations, phase_diagram, published, spectra, theorems
from benchmarks.paper.__main__ import Choice, app
from benchmarks.paper.figures import FIGURES, part_of, produce, redraw
from benchmarks.paper.plotting import require_matplotlib
from dcfpca.errors import BadInput
from dcfpca.rpca.synthetic import Outliers

pytestmark = pytest.mark.slow  # a quarter of a minute of work in all, most of it matplotlib's

TINY = {
    "main": convergence.Plan(((80, Outliers.IMPULSE),), 30, central_rounds=10, apgm_iterations=60),
    "phase": phase_diagram.Plan(60, (0.05, 0.10), (0.05, 0.15), 25),
    "singular": spectra.Plan((80,), 60),
    "rank": spectra.Plan((60, 80), 40, long_rounds=20, long_rounds_of_paper=10, long_from=70),
    "local-iterations": local_iterations.Plan(80, (1, 10), 15),
    "theorems": theorems.Plan(40, 2, 2, 4, (0.05,), fractions=(0.02, 0.1, 1.1)),
}


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("figures")
    for name, plan in TINY.items():
        produce(FIGURES[name], plan, out, quiet, quick=True)
    return out


def cases(produced: Path, name: str) -> list[dict[str, Any]]:
    return list(json.loads((produced / f"paper-{name}.json").read_text())["cases"])


def test_the_command_offers_every_figure() -> None:
    assert {choice.value for choice in Choice} == set(FIGURES) == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_a_figure_is_data_and_two_pictures(produced: Path, name: str) -> None:
    assert (produced / f"paper-{name}.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (produced / f"paper-{name}.svg").read_bytes()


def test_a_picture_comes_from_its_data_alone_and_is_the_same_again(produced: Path, tmp_path: Path) -> None:
    redraw(produced / "paper-rank.json", tmp_path)
    assert (tmp_path / "paper-rank.svg").read_bytes() == (produced / "paper-rank.svg").read_bytes()


def test_subspace_converges_to_rounding_and_the_convex_methods_behind_it(produced: Path) -> None:
    tracks = {track["solver"]: track for track in cases(produced, "main")[0]["tracks"]}
    assert {"gradient", "subspace", "subspace, bound 2r", "CF-PCA", "APGM", "ALM"} == set(tracks)
    assert tracks["subspace"]["errors_L"][-1] < 1e-10
    assert tracks["ALM"]["errors"][-1] < tracks["APGM"]["errors"][-1] < tracks["APGM"]["errors"][0]
    assert tracks["gradient"]["errors"][-1] < 1e-2 * tracks["gradient"]["errors"][0]


def test_every_cell_has_both_methods_and_the_easiest_is_solved(produced: Path) -> None:
    cells = cases(produced, "phase")
    assert len(cells) == 4
    assert cells[0]["subspace"]["relative_error_L"] < 1e-8
    assert all(cell["published"] is None for cell in cells)  # 60 rows are not the paper's 500
    assert published.phase(0.15, 0.3) == 1.5e-2


def test_the_models_values_are_the_spectrum_and_only_the_measured_rho_can_hold_surplus_directions_at_zero(
    produced: Path,
) -> None:
    case = cases(produced, "singular")[0]
    found = {spectrum["solver"]: spectrum for spectrum in case["spectra"]}
    assert len(found["gradient, measured ρ"]["values"]) == case["bound"] == 2 * case["rank"]
    assert found["subspace"]["error"] < 1e-8
    assert found["gradient, measured ρ"]["error"] < 0.05
    assert found["gradient, measured ρ"]["pull"] < 1 < found["gradient, the paper's ρ"]["pull"]


def test_a_size_whose_rounds_take_long_gets_fewer(produced: Path) -> None:
    short, long = cases(produced, "rank")
    assert {spectrum["rounds"] for spectrum in short["spectra"] if "gradient" in spectrum["solver"]} == {40}
    assert [spectrum["rounds"] for spectrum in long["spectra"] if "gradient" in spectrum["solver"]] == [20, 10]


def test_a_part_measured_again_replaces_itself_alone(produced: Path, tmp_path: Path) -> None:
    name, solver = "paper-rank.json", "gradient, the paper's ρ"
    before = json.loads((produced / name).read_text())
    (tmp_path / name).write_text(json.dumps(before))
    figure = FIGURES["rank"]
    plan = replace(part_of(figure, TINY["rank"], 80, solver), long_rounds_of_paper=3)
    produce(figure, plan, tmp_path, quiet, quick=True, part=True)
    after = json.loads((tmp_path / name).read_text())
    assert after["cases"][0] == before["cases"][0]
    assert after["cases"][1]["spectra"][:2] == before["cases"][1]["spectra"][:2]
    assert [one["rounds"] for one in after["cases"][1]["spectra"] if one["solver"] == solver] == [3]


def test_a_part_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="as a whole"):
        part_of(FIGURES["theorems"], TINY["theorems"], 500, None)
    with pytest.raises(BadInput, match="no such size"):
        produce(
            FIGURES["rank"], part_of(FIGURES["rank"], TINY["rank"], 7, None), tmp_path, quiet, quick=True, part=True
        )


def test_more_local_iterations_fall_faster(produced: Path) -> None:
    one, ten = (case["track"]["errors"] for case in cases(produced, "local-iterations"))
    assert ten[4] < one[4]


def test_flat_from_is_where_the_tail_begins() -> None:
    assert local_iterations.flat_from((10.0, 5.0, 1.05, 1.0, 1.0)) == 3
    assert local_iterations.flat_from((3.0, 2.0, 1.0)) == 3


def test_the_gradient_stays_under_the_bounds_and_beyond_the_line_only_zero_is_left(produced: Path) -> None:
    bounds = [case for case in cases(produced, "theorems") if case["kind"] == "theorem 1"]
    lines = [case for case in cases(produced, "theorems") if case["kind"] == "theorem 2"]
    assert bounds[0]["allowed"]
    for bound in bounds:
        assert all(mean <= limit for mean, limit in zip(bound["means"], bound["bounds"], strict=True))
        assert bound["largest_site_gradient"] <= bound["derived_site_bound"]
    assert lines[0]["relative_error_L"] < 0.1
    assert not lines[0]["refused"]
    assert lines[-1]["size_L"] < 1e-6
    assert lines[-1]["refused"]


def test_the_command_writes_a_figure_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = replace(FIGURES["local-iterations"], quick=TINY["local-iterations"])
    monkeypatch.setattr("benchmarks.paper.__main__.FIGURES", {**FIGURES, "local-iterations": figure})
    done = CliRunner().invoke(app, ["--figure", "local-iterations", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "paper-local-iterations.json").read_text())["quick"]


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "matplotlib":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadInput, match="matplotlib") as told:
        require_matplotlib()
    assert "dcfpca[bench]" in told.value.hint
