"""What `run restart` proposes, and what it says of the sites that have to approve it."""

from typing import Any

import pytest

from dcfpca.errors import BadInput, Refused
from dcfpca.operator.proposals import APPROVAL_SECONDS, end_paused, restart_of
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import admin_pb2 as pb

SITES = ("ann", "bob", "cem", "dag")


def spec_of(**keys: Any) -> RunSpec:
    return parse_spec({"rows": 30, "rank": 3, "participants": SITES, "label": "weekly", "seed": 7} | keys)


def view_of(status: str = "finished", rounds: int = 5, spec: RunSpec | None = None, **keys: Any) -> pb.RunView:
    return pb.RunView(
        run_id="20300101-abcd0123",
        status=status,
        spec=(spec or spec_of(**keys)).canonical(),
        round=rounds,
        enrolled=[pb.EnrolledView(participant=name) for name in SITES],
        rounds=[pb.RoundView(round=number) for number in range(rounds)],
    )


class Recorder:
    """Takes the calls of an operator."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def finish(self, run_id: str, reason: str) -> None:
        self.calls.append(("finish", reason))

    def abort(self, run_id: str, reason: str) -> None:
        self.calls.append(("abort", reason))


def test_a_finished_run_is_proposed_again_as_it_was_from_the_subspace_it_reached() -> None:
    view = view_of()
    again = restart_of(view, ())
    assert again.spec == spec_of(warm_start=view.run_id)
    assert again.asked == ()
    (told,) = again.sentences("20300102-00000000", view.run_id)
    assert "starts from the subspace of run 20300101-abcd0123" in told


def test_a_key_that_is_changed_leaves_the_others_and_one_rank_replaces_the_other() -> None:
    again = restart_of(view_of(), (), ["max_rank=6", "rounds=80"]).spec
    assert (again.rank, again.max_rank, again.rounds, again.label) == (None, 6, 80, "weekly")
    with pytest.raises(BadInput, match="key=value"):
        restart_of(view_of(), (), ["rounds"])


@pytest.mark.parametrize("status", ["failed", "aborted"])
def test_a_run_without_a_result_starts_as_it_did_before(status: str) -> None:
    assert restart_of(view_of(status), ()).spec == spec_of()
    before = spec_of(warm_start="20291231-00000000")
    again = restart_of(view_of(status, spec=before), ())
    assert again.spec == before
    assert "starts from the beginning" in again.sentences("r", "20300101-abcd0123")[0]


@pytest.mark.parametrize("status", ["enrolling", "running"])
def test_an_open_run_is_ended_first_and_the_hint_says_how(status: str) -> None:
    with pytest.raises(Refused, match=f"is {status}; end it first") as caught:
        restart_of(view_of(status), ())
    assert "run finish" in caught.value.hint
    assert "run abort" in caught.value.hint


@pytest.mark.parametrize(("rounds", "call", "warm"), [(1, "abort", False), (4, "finish", True)])
def test_a_paused_run_is_finished_with_its_consensus_or_aborted_without_one(rounds: int, call: str, warm: bool) -> None:
    operator, view = Recorder(), view_of("paused", rounds)
    assert bool(restart_of(view, ()).spec.warm_start) == warm
    assert operator.calls == [], "nothing is done to a run before what follows it is known to be sound"
    assert end_paused(operator, view)  # type: ignore[arg-type]
    assert operator.calls == [(call, "restarted")]
    assert end_paused(operator, view_of("aborted")) == ""  # type: ignore[arg-type]


def test_without_a_site_the_others_are_asked_to_approve_and_enrolment_waits_for_them() -> None:
    again = restart_of(view_of(), ["bob"])
    assert again.spec.participants == ("ann", "cem", "dag")
    assert (again.asked, again.exposed) == (("ann", "cem", "dag"), ("bob",))
    assert again.spec.enrol_seconds == APPROVAL_SECONDS
    _, why, how = again.sentences("20300102-00000000", "20300101-abcd0123")
    assert "would single out bob" in why
    assert "a person at each of ann, cem, dag is asked to approve it" in why
    assert "`dcfpca-participant approve 20300102-00000000 --by NAME`" in how


@pytest.mark.parametrize(("keys", "rounds"), [({"aggregation": "plain"}, 5), ({}, 0)])
def test_nobody_is_asked_where_no_sum_was_hidden_or_none_was_opened(keys: dict[str, Any], rounds: int) -> None:
    again = restart_of(view_of("aborted", rounds, **keys), ["bob"])
    assert again.spec.participants == ("ann", "cem", "dag")
    assert again.asked == ()
    assert again.spec.enrol_seconds == spec_of().enrol_seconds


def test_a_spec_that_names_nobody_goes_on_with_those_who_were_there() -> None:
    again = restart_of(view_of(participants=()), ["dag"])
    assert again.spec.participants == ("ann", "bob", "cem")


def test_a_site_that_is_not_in_the_run_is_named_with_the_closest_one() -> None:
    with pytest.raises(BadInput, match="bop is not one of the sites of run") as caught:
        restart_of(view_of(), ["bop"])
    assert caught.value.hint == "did you mean bob?"


def test_too_few_sites_for_a_secure_run_are_refused() -> None:
    with pytest.raises(BadInput, match="3 sites are needed, and ann, bob would be left"):
        restart_of(view_of(), ["cem", "dag"])


def test_a_private_run_is_never_started_from_another() -> None:
    assert restart_of(view_of(spec=spec_of(privacy={"epsilon": 1.0})), ()).spec.warm_start == ""


def test_a_spec_of_an_earlier_build_is_proposed_without_the_keys_that_are_gone() -> None:
    view = view_of()
    view.spec = view.spec[:-1] + b',"dropouts":"go-on","threshold":0.5}'
    assert restart_of(view, ()).spec == spec_of(warm_start=view.run_id)


def test_other_features_start_anew_and_say_how_many_there_are() -> None:
    named = spec_of(features=("a", "b", "c"), rows=3, rank=None, max_rank=1)
    again = restart_of(view_of(spec=named), (), ['features=["a", "c"]']).spec
    assert (again.features, again.rows, again.warm_start) == (("a", "c"), 2, "")
    assert again.features_sha256 != named.features_sha256
