import io
import json
import math
from typing import Any

from rich.console import Console

from dcfpca.privacy.zcdp import rho_of
from dcfpca.spec import parse_spec
from dcfpca.text import run_views
from dcfpca.text.console import print_json
from dcfpca.text.run_progress import RunHistory, RunProgress, picture, round_line
from dcfpca.v1 import admin_pb2 as pb

SPEC = parse_spec({"max_rank": 4, "rows": 20, "rounds": 50, "label": "[bold]spring[/]"})


def round_view(number: int, **more: Any) -> pb.RoundView:
    keys: dict[str, Any] = {
        "seconds": 0.5,
        "change": 10.0**-number,
        "rank": 2,
        "noise": math.nan,
        "bytes_received": 2000,
    }
    return pb.RoundView(round=number, survivors=["a", "b"], **(keys | more))


def run_view(*rounds: pb.RoundView, **more: Any) -> pb.RunView:
    keys: dict[str, Any] = {
        "run_id": "r1",
        "status": "running",
        "phase": "uploading",
        "spec": SPEC.canonical(),
        "created_ms": 1,
        "round_limit": 50,
        "rounds_held": max((one.round for one in rounds), default=0),
    }
    return pb.RunView(rounds=rounds, **(keys | more))


def drawn(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=True, color_system=None).print(renderable)
    return out.getvalue()


def test_every_field_of_a_run_and_a_round_is_in_the_document() -> None:
    document: Any = run_views.run_document(run_view(round_view(1)))
    renamed = {"created_ms": "created", "ended_ms": "ended", "deadline_ms": "deadline"}
    fields = {renamed.get(field.name, field.name) for field in pb.RunView.DESCRIPTOR.fields}
    assert set(document) == fields | {"privacy", "timing"}  # which the spec and the rounds say
    assert set(document["rounds"][0]) == {field.name for field in pb.RoundView.DESCRIPTOR.fields}


def test_the_timing_of_a_run_adds_up_the_rounds_of_each_stage_in_their_order() -> None:
    fits = [round_view(n, stage="fit", seconds=1.0, awaited_seconds=0.75, bytes_sent=8) for n in (1, 2)]
    view = run_view(round_view(0, stage="open", seconds=0.5, awaited_seconds=0.5), *fits)
    open_stage, fit = run_views.stage_timing(view.rounds)
    assert (open_stage["stage"], open_stage["rounds"], open_stage["seconds"]) == ("open", 1, 0.5)
    fit_sums = {"rounds": 2, "seconds": 2.0, "awaited_seconds": 1.5, "bytes_received": 4000, "bytes_sent": 16}
    assert fit == {"stage": "fit"} | fit_sums
    shown = drawn(run_views.run_picture(view, timing=True))
    assert shown.index("open") < shown.index("fit")
    assert all(word in shown for word in ("2.00 s", "1.50 s", "4.0 kB"))


def test_a_private_run_is_shown_with_epsilon_delta_rho_and_conspirators() -> None:
    spec = parse_spec({"rank": 4, "rows": 20, "privacy": {"epsilon": 2.0, "conspirators": 3}})
    view = run_view(spec=spec.canonical())
    document: Any = run_views.run_document(view)
    rho = rho_of(2.0, 1e-6)
    assert document["privacy"] == {"epsilon": 2.0, "delta": 1e-6, "conspirators": 3, "rho": rho}
    assert f"ε = 2 at δ = 1e-06 (ρ = {rho:.3g}) at every site, c = 3" in drawn(run_views.run_picture(view))
    exact: Any = run_views.run_document(run_view())
    assert exact["privacy"] is None


def test_every_field_of_those_waited_for_and_of_complaints_is_in_the_document() -> None:
    view = run_view(waiting=[pb.WaitingView(participant="c")], complaints=[pb.ComplaintView(accused="d")])
    document: Any = run_views.run_document(view)
    for entry, shown in (("waiting", pb.WaitingView), ("complaints", pb.ComplaintView)):
        assert set(document[entry][0]) == {field.name.removesuffix("_ms") for field in shown.DESCRIPTOR.fields}


def test_every_field_of_a_participant_is_in_the_document() -> None:
    fields = {field.name.removesuffix("_ms") for field in pb.ParticipantView.DESCRIPTOR.fields}
    assert set(run_views.participant_document(pb.ParticipantView())) == fields


def test_a_round_without_figures_is_still_valid_json(capsys: object) -> None:
    print_json(run_views.run_document(run_view(round_view(0, change=math.nan))))
    document = json.loads(capsys.readouterr().out)  # type: ignore[attr-defined]
    assert document["rounds"][0]["change"] is None
    assert document["ended"] is None
    assert document["spec"]["max_rank"] == 4


def test_a_run_before_any_round_can_be_shown() -> None:
    assert "no round has finished yet" in drawn(run_views.run_picture(run_view(status="enrolling")))


def test_texts_from_others_are_shown_as_they_are() -> None:
    refusal = pb.Refusal(participant="d", what="enrolment", reasons=["[policy] min_columns is 9", "also [/this]"])
    text = drawn(run_views.run_picture(run_view(round_view(1, dropouts=["c"]), refusals=[refusal])))
    assert "[policy] min_columns is 9; also [/this]" in text
    assert "[bold]spring[/]" in text
    assert "c" in text.splitlines()[-1]


def test_listings_show_state_and_days_left() -> None:
    one = pb.ParticipantView(name="a", state="away", certificate_days=-3, last_seen_ms=1_700_000_000_000)
    text = drawn(run_views.participants_table([one]))
    assert "away" in text
    assert "-3" in text
    assert "r1" in drawn(run_views.runs_table([run_view()]))


def told(*seen: pb.RunView, terminal: bool = False) -> str:
    out = io.StringIO()
    with RunProgress(Console(file=out, width=200, force_terminal=terminal, color_system=None)) as progress:
        for view in seen:
            progress.update(view)
    return out.getvalue()


def test_without_a_terminal_every_round_is_one_plain_line() -> None:
    first, second = round_view(1), round_view(2, dropouts=["c"])
    lines = told(
        run_view(first), run_view(first, second), run_view(second, status="finished", reason="done")
    ).splitlines()
    assert lines == [round_line(first), "running", round_line(second), "finished: done"]
    assert lines[2].endswith("without c")


def test_a_refusal_is_told_once() -> None:
    refusal = pb.Refusal(participant="d", what="enrolment", reasons=["no"])
    view = run_view(refusals=[refusal])
    assert told(view, view).count("refused by d (enrolment): no") == 1


def test_on_a_terminal_the_picture_says_round_awaited_and_bytes() -> None:
    with RunProgress(Console(file=io.StringIO(), force_terminal=True)) as progress:
        progress.update(run_view(round_view(1), round_view(2), round=3, awaited=["b", "a"], percent={"b": 40}))
        text = drawn(picture(progress.history))
    for word in ("round 3 of at most 50", "awaiting b 40 %, a (uploading)", "4.0 kB received", "rank 2"):
        assert word in text


def test_a_finished_run_awaits_nobody() -> None:
    with RunProgress(Console(file=io.StringIO(), force_terminal=True)) as progress:
        progress.update(run_view(round_view(1), status="finished", awaited=["a"], reason="converged"))
        text = drawn(picture(progress.history))
    assert "awaiting" not in text
    assert "converged" in text


def test_a_run_says_for_whom_it_waits_since_when_and_what_was_said() -> None:
    waiting = pb.WaitingView(participant="b", since_ms=1_700_000_000_000, said="[red]disk full")
    complaint = pb.ComplaintView(participant="a", accused="b", error="TamperedShare", sentence="it does not open")
    view = run_view(waiting=[waiting], complaints=[complaint])
    document: Any = run_views.run_document(view)
    assert {**document["waiting"][0], "since": ""} == {
        "participant": "b",
        "since": "",
        "connected": False,
        "said": "[red]disk full",
    }
    assert document["complaints"][0]["accused"] == "b"
    for shown in (drawn(run_views.run_picture(view)), drawn(picture(history_of(view)))):
        assert "b since 2023-11-1" in shown
        assert "(away)" in shown
        assert "[red]disk full" in shown
    assert "a about b: it does not open (TamperedShare" in drawn(run_views.run_picture(view))


def test_lines_of_a_watched_run_name_the_awaited_and_the_complaints_once() -> None:
    told = io.StringIO()
    waiting = pb.WaitingView(participant="b", since_ms=1, connected=True)
    complaint = pb.ComplaintView(participant="a", error="WrongSum", sentence="the sum is not ours")
    with RunProgress(Console(file=told, width=200)) as progress:
        for _ in range(2):
            progress.update(run_view(waiting=[waiting], complaints=[complaint]))
    assert told.getvalue().count("round 0 waits for b since") == 1
    assert told.getvalue().count("complaint of a: the sum is not ours (WrongSum") == 1


def history_of(view: pb.RunView) -> RunHistory:
    history = RunHistory()
    history.take(view)
    return history


def test_a_run_shows_the_notes_of_its_verdict() -> None:
    told = pb.VerdictView(sound=True, sentence="done", notes=["direction 3 is uncertain"])
    out = io.StringIO()
    Console(file=out, width=200).print(run_views.run_picture(run_view(status="finished", verdict=told)))
    assert "direction 3 is uncertain" in out.getvalue()
