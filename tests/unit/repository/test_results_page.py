"""docs/results.md and its appendix are what their command makes of the data, and names only commands that exist."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from benchmarks import report, taken
from benchmarks.paper import composed_round_time as composed
from benchmarks.sections import Section, power, table
from tests.support.paths import ROOT

SECTIONS = report.sections()


def offered(module: str) -> set[str]:
    """The options of a benchmark: those that it declares, or that stand in its source."""
    place = ROOT / module.replace(".", "/")
    package = place.is_dir()
    source = (place / "__main__.py" if package else place.with_suffix(".py")).read_text()
    if "typer.Typer(" not in source:
        return set(re.findall(r'"(--[a-z-]+)"', source))
    app = import_module(f"{module}.__main__" if package else module).app
    return {word for option in typer.main.get_command(app).params for word in option.opts}


def test_the_page_and_its_appendix_are_fresh() -> None:
    assert (ROOT / "docs" / "results.md").read_text() == report.page(), "run `make results`"
    assert (ROOT / "docs" / "measurements.md").read_text() == report.appendix(), "run `make results`"


def test_the_page_says_on_which_commit_each_record_was_taken() -> None:
    noted = taken.known(report.RESULTS)
    assert {name: one["digest"] for name, one in noted.items()} == taken.records(report.RESULTS), "run `make results`"
    for name, one in noted.items():
        assert f"| `{name}` | `{one['commit']}` |" in report.page()


def test_the_code_that_each_record_measures_exists() -> None:
    for name in taken.known(report.RESULTS):
        assert all((ROOT / path).is_dir() for path in taken.measured(name)), name
    assert all(any(name.startswith(start) for name in taken.known(report.RESULTS)) for start in taken.MEASURED)


def test_a_changed_record_is_noted_with_the_present_commit(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1")
    noted = {"a.json": {"digest": taken.records(tmp_path)["a.json"], "commit": "0000001"}}
    (tmp_path / taken.NAME).write_text(json.dumps(noted))
    (tmp_path / "b.json").write_text("2")
    taken.note(tmp_path)
    assert taken.known(tmp_path)["a.json"]["commit"] == "0000001"
    assert taken.known(tmp_path)["b.json"]["commit"] != "0000001"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_every_section_names_commands_that_exist(section: Section) -> None:
    assert section.commands
    for command in section.commands:
        words = command.split()
        assert words[:2] == ["python", "-m"]
        assert {word for word in words if word.startswith("--")} <= offered(words[2])


def test_every_picture_is_there() -> None:
    for target in re.findall(r"\]\((figures/[^)]+)\)", report.appendix()):
        assert (ROOT / "docs" / target).exists(), target


def test_the_page_says_what_falls_short() -> None:
    told = report.appendix().split("## What falls short")[1]
    assert all(sentence.split(" (")[0][:40] in " ".join(told.split()) for one in SECTIONS for sentence in one.short)
    assert told.count("\n- ") == sum(len(section.short) for section in SECTIONS)


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    assert report.sections(tmp_path) == []


def test_numbers_read_as_people_write_them() -> None:
    assert [power(value) for value in (2.2e-5, 1e-10, 0.0286, 0.5, 382.9, 4.8e20, None, 0.0)] == [
        "2.2e-5", "1e-10", "0.029", "0.5", "383", "4.8e20", "–", "0",
    ]  # fmt: skip
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_the_best_number_of_sites_is_where_a_sites_work_and_the_exchange_balance() -> None:
    steps = [
        SimpleNamespace(method="m", columns=n, sites=E, site_seconds=n / E / 1000, aggregator_seconds=0.0)
        for n in (1000, 4000, 16000)
        for E in (1, 2, 4, 8, 16, 32)
    ]
    found = composed.curves(steps, composed.Exchange(fixed=0.01, each=0.1))
    assert [one.best for one in found] == pytest.approx([(n / 100) ** 0.5 for n in (1000, 4000, 16000)])
    assert [one.lowest for one in found] == [4, 8, 16]
    assert composed.exponent(found) == pytest.approx(0.5)
