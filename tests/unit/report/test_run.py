"""The report of a run: complete, self-contained, well-formed, and safe to open."""

from __future__ import annotations

import json
import math
import re
import stat
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.errors import BadInput
from dcfpca.report.page import write_report
from dcfpca.report.run import run_report
from dcfpca.report.svg import linear, logarithmic
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2 as pb


def _view(rounds: int = 5, label: str = "spring", **more: object) -> pb.RunView:
    spec = parse_spec({"rows": 30, "max_rank": 6, "label": label})
    made = [
        pb.RoundView(
            round=number,
            attempt=2 if number == 3 else 1,
            seconds=0.5 + number,
            change=math.nan if number == 0 else 10.0**-number,
            rank=4,
            noise=math.nan if number == 0 else 0.1,
            threshold=math.nan if number == 0 else 0.3,
            bytes_received=1000 * number,
            bytes_sent=2000,
            survivors=["a", "b", "c"] if number != 2 else ["a", "b"],
            dropouts=["c"] if number == 2 else [],
            singular_values=[50.0, 40.0, 30.0, 20.0, 0.1, 0.0],
        )
        for number in range(rounds)
    ]
    enrolled = [pb.EnrolledView(participant=name, private=name == "c", fingerprint="ab" * 32) for name in "abc"]
    return pb.RunView(
        run_id="20260101-0001",
        status="finished",
        reason="converged",
        spec=spec.canonical(),
        spec_sha256=spec.digest(),
        created_ms=1_700_000_000_000,
        rounds=made,
        rounds_held=max(rounds - 1, 0),
        enrolled=enrolled,
        refusals=[pb.Refusal(participant="d", what="enrolment", reasons=["plain is not allowed here"])],
        **more,  # type: ignore[arg-type]
    )


def _text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.partition("<body>")[2]))


def test_it_shows_rank_rounds_dropouts_consent_refusals_and_spec() -> None:
    text = _text(run_report(_view(), "now"))
    assert "rank found 4" in text
    assert "Missed a round: c." in text
    assert "Repeated: round 3 (2 attempts)" in text
    assert "c private" in text
    assert "plain is not allowed here" in text
    assert parse_spec({"rows": 30, "max_rank": 6, "label": "spring"}).digest().hex() in text
    assert "max_rank 6" in text


def test_it_loads_nothing_and_runs_nothing() -> None:
    html = run_report(_view(), "now")
    assert "default-src 'none'" in html
    assert "<script" not in html
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert "url(" not in html


def test_what_others_wrote_is_shown_and_never_becomes_markup() -> None:
    hostile = '<img src=x onerror="alert(1)">&'
    view = _view(label=hostile, operator=hostile)
    view.refusals[0].reasons[0] = hostile
    html = run_report(view, "now")
    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=") >= 3


def test_every_chart_is_well_formed_labelled_and_without_a_number_that_is_none() -> None:
    charts = re.findall(r"<svg.*?</svg>", run_report(_view(), "now"), re.DOTALL)
    assert len(charts) == 5
    for chart in charts:
        root = ElementTree.fromstring(chart.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert "nan" not in chart
        assert "inf" not in chart


@pytest.mark.parametrize("rounds", [0, 1, 2, 300])
def test_any_number_of_rounds_can_be_shown(rounds: int) -> None:
    view = _view(rounds)
    html = run_report(view, "now")
    HTMLParser().feed(html)
    assert f"<dt>rounds</dt><dd>{view.rounds_held}</dd>" in html


def test_a_run_of_a_method_without_figures_can_be_shown() -> None:
    view = _view(2)
    for one in view.rounds:
        one.change = one.noise = one.threshold = math.nan
        del one.singular_values[:]
    assert "This method gives no such figure" in run_report(view, "now")


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_report(out, "one", force=False)
    with pytest.raises(BadInput, match="exists already"):
        write_report(out, "two", force=False)
    assert out.read_text() == "one"
    write_report(out, "two", force=True)
    assert out.read_text() == "two"
    assert list(tmp_path.iterdir()) == [out]


def test_a_report_is_for_its_owner_alone_as_the_results_are(tmp_path: Path) -> None:
    out = tmp_path / "site.html"
    (tmp_path / ".site.html.partial").write_text("left over")
    (tmp_path / ".site.html.partial").chmod(0o644)
    write_report(out, "figures of the site", force=False)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(tmp_path / "nowhere" / "report.html", "x", force=False)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20), st.booleans())
def test_axes_keep_every_value_on_the_paper(values: list[float], log: bool) -> None:
    finite = [value for value in values if abs(value) < 1e100 or not math.isfinite(value)]
    axis = (logarithmic if log else linear)(finite, 200.0, 20.0)
    for value in finite:
        if math.isfinite(value):
            assert 20.0 <= axis.place(value) <= 200.0
    ticks = axis.ticks()
    assert ticks
    assert len(ticks) <= 12
    assert all(math.isfinite(value) for value, _ in ticks)


def test_the_specs_keys_are_all_in_the_table() -> None:
    html = run_report(_view(), "now")
    spec = json.loads(_view().spec)
    for key, value in spec.items():
        if not isinstance(value, dict):
            assert f"<td>{key}</td>" in html


def test_the_verdict_and_what_to_do_come_before_every_figure() -> None:
    verdict = pb.VerdictView(
        sound=False, sentence="Rank 4 of 4 allowed.", reasons=["the bound"], advice="raise max_rank"
    )
    text = _text(run_report(_view(verdict=verdict), "now"))
    assert text.index("Rank 4 of 4 allowed.") < text.index("Next: raise max_rank") < text.index("rank found")


def test_who_is_awaited_is_told_in_the_sites_own_words_with_what_happens_when() -> None:
    view = _view(
        3, deadline_ms=1_700_000_100_000, at_deadline="the run pauses unless it hears from b", awaited=["b", "c"]
    )
    view.status, view.reason = "running", ""
    view.waiting.add(participant="b", since_ms=1_700_000_000_000, connected=True, said="the disk is full")
    text = _text(run_report(view, "now"))
    assert "2023-11-14T22:15:00.000Z: the run pauses unless it hears from b." in text
    assert "the disk is full" in text
    assert "Next: wait for b" in text


def test_tunables_of_the_method_are_folded_away() -> None:
    before, _, folded = run_report(_view(), "now").partition("all other keys")
    assert "<td>max_rank</td>" in before
    assert "subspace.fall_fastest" not in before
    assert "subspace.fall_fastest" in folded


def test_two_hundred_sites_are_folded_and_none_is_lost() -> None:
    view = _view(2)
    names = [f"station-{number:03d}" for number in range(200)]
    view.enrolled.extend(pb.EnrolledView(participant=name) for name in names)
    html = run_report(view, "now")
    assert "show all 203" in html
    assert all(name in html for name in names)


def curve_of(*ranks: int) -> list[pb.RankErrorView]:
    return [pb.RankErrorView(rank=rank, error=1.0 / (1 + rank), standard_error=0.01) for rank in ranks]


def test_errors_by_rank_stand_at_their_ranks_where_not_all_were_tried() -> None:
    html = run_report(_view(rank_curve=curve_of(0, 1, 2, 3, 4, 6, 16)), "now")
    drawn = html[html.index("Error on hidden entries by rank") :]
    places = [float(at) for at in re.findall(r'<circle class="c1" cx="([0-9.]+)"', drawn.partition("</svg>")[0])]
    assert len(places) == 7
    steps = [(right - left) / (places[1] - places[0]) for left, right in pairwise(places)]
    assert steps == pytest.approx([1, 1, 1, 1, 2, 10], abs=0.02)
    assert "error, 16: " in drawn


@pytest.mark.parametrize(
    ("ranks", "spec", "said"),
    [
        ((0, 1, 2, 4, 6), {}, "Rank 4 was chosen: the smallest within one standard error"),
        ((0, 4), {}, "The fit found rank 4 by itself"),
        ((0, 1, 2, 4), {"rank": 4, "max_rank": None}, "The spec asked for rank 4."),
    ],
)
def test_the_report_says_who_chose_the_rank(ranks: tuple[int, ...], spec: dict[str, object], said: str) -> None:
    view = _view(rank_curve=curve_of(*ranks))
    view.spec = json.dumps(json.loads(view.spec) | spec).encode()
    assert said in _text(run_report(view, "now"))


def test_a_finished_run_whose_last_change_is_above_the_tolerance_says_why_it_is_over() -> None:
    assert "A run ends as soon as the next round would fall below it" in _text(run_report(_view(), "now"))
    stopped = _view()
    stopped.reason = "stopped at the round limit"
    assert "A run ends as soon" not in _text(run_report(stopped, "now"))


def test_the_advice_does_not_name_the_command_that_wrote_the_page() -> None:
    advice = "dcfpca run report 20260101-0001 --out report.html; each site: dcfpca-participant results"
    text = _text(run_report(_view(verdict=pb.VerdictView(sound=True, sentence="Exact.", advice=advice)), "now"))
    assert "Next: each site: dcfpca-participant results" in text
    assert "dcfpca run report" not in text


def test_a_private_run_says_what_it_cost_and_shows_its_table() -> None:
    view = _view(verdict=pb.VerdictView(sound=True, sentence="Done."))
    view.spec = parse_spec({"rows": 30, "rank": 4, "privacy": {"epsilon": 1.0}}).canonical()
    html = run_report(view, "now")
    assert "Privacy: ε = 1 at δ = 1e-06" in _text(html)
    assert "expected error, sin θ" in html
    assert "last change" not in _text(html)
    assert "<td>privacy.epsilon</td>" in html.partition("all other keys")[0]
    assert "Privacy:" not in _text(run_report(_view(), "now"))
