"""The rules of a run that waits for every member of its cohort."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggregator.run import events, waiting
from aggregator.run.attempts import Accumulate, Discard, Kind, Reply, Sum, why_not_finished
from aggregator.run.rules import assignments, awaited, deadline
from aggregator.run.secure_sum import check_misfit
from aggregator.run.state import Status
from aggregator.runner import needs_checkpoint
from aggregator.store.codec import dump_event, dump_run, load_event, load_run
from dcfpca.errors import BadMessage
from dcfpca.secagg.messages import NO_SUM
from dcfpca.secagg.site import SecureSite
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES
from tests.support.runs.secagg import identity_of, verify
from tests.support.runs.secure_rules import WaitingRun


def kinds(run: WaitingRun, name: str) -> list[Kind]:
    return [one.kind for one in assignments(run.rules, run.run, name)]


def test_a_run_is_set_up_once_and_a_round_is_one_message_of_everybody() -> None:
    run = WaitingRun()
    assert run.place == ("running", 0, 1, "advertising")
    run.advertise(*NAMES[:3])
    assert run.place[3] == "advertising"
    run.advertise("dag")
    assert run.place[3] == "sharing"
    run.share()
    assert run.place == ("running", 0, 1, "uploading")
    run.update(*NAMES[:3])
    assert run.place[3] == "uploading"
    run.update("dag")
    assert run.place[3] == "summing"
    assert run.effects[1:] == (Accumulate(run.attempt.ref, "dag", b"dag".ljust(32)), Sum(run.attempt.ref))
    run.summed()
    assert run.place == ("running", 1, 1, "uploading")
    assert not run.fixed.adverts
    assert not run.fixed.shares


def test_what_a_member_is_asked_for_in_each_phase() -> None:
    run = WaitingRun()
    assert kinds(run, "ann") == [Kind.RUN_KEY_WANTED]
    run.advertise("ann")
    assert kinds(run, "ann") == [Kind.STANDBY]
    run.advertise("bob", "cem", "dag")
    assert kinds(run, "ann") == [Kind.ROSTER_CLOSED]
    run.share()
    assert kinds(run, "ann") == [Kind.GROUP_SHARES_RELAYED, Kind.ROUND_OPENED]
    run.update("ann")
    assert kinds(run, "ann") == [Kind.STANDBY]
    run.update("bob", "cem", "dag").summed()
    assert kinds(run, "ann") == [Kind.ROUND_OPENED]


def test_no_round_closes_without_a_member_however_late_it_is() -> None:
    run = WaitingRun(patience=1000).set_up().update("ann", "bob", "cem")
    run.tell(events.Left, participant="dag")
    run.at = 100.0
    run.overdue()
    assert run.place == ("running", 0, 1, "uploading")
    assert awaited(run.rules, run.run) == ("dag",)


def test_a_silent_member_is_awaited_since_the_opening_and_one_that_left_since_then() -> None:
    run = WaitingRun().set_up().update("ann", "bob")
    run.at = 40.0
    run.tell(events.Left, participant="dag")
    assert run.fixed.waiting == {"dag": 40.0}
    run.at = 100.0
    run.overdue()
    assert run.fixed.waiting == {"cem": 0.0, "dag": 40.0}
    run.update("cem")
    assert run.fixed.waiting == {"dag": 40.0}


def test_the_run_pauses_when_its_patience_ends_and_names_who_is_missing_and_what_it_said() -> None:
    run = WaitingRun(patience=500).set_up().update("ann", "bob", "cem")
    run.say(
        events.Complained, "dag", accused="", error="SiteFailure", sentence="disk full", certificate=b"", signature=b""
    )
    run.at = 100.0
    run.overdue()
    assert deadline(run.rules, run.run) == 500.0
    run.at = 500.0
    run.overdue()
    assert run.run.status is Status.PAUSED
    assert "dag" in run.run.reason
    assert "disk full" in run.run.reason
    assert deadline(run.rules, run.run) is None


def test_patience_with_an_absent_member_does_not_wait_for_the_deadline_of_the_round() -> None:
    run = WaitingRun(patience=10).set_up()
    run.at = 20.0
    run.tell(events.Left, participant="dag")
    assert deadline(run.rules, run.run) == 30.0
    run.at = 30.0
    assert run.overdue().run.status is Status.PAUSED


def test_a_deadline_that_has_moved_since_does_not_end_the_patience() -> None:
    run = WaitingRun(patience=10).set_up()
    run.tell(events.Left, participant="dag")
    run.at = 9.9
    assert run.overdue().run.status is Status.RUNNING


def test_resume_goes_on_in_the_same_attempt_with_what_was_accepted() -> None:
    run = WaitingRun(patience=10).set_up().update("ann", "bob", "cem")
    run.tell(events.Left, participant="dag")
    run.at = 10.0
    run.overdue()
    assert run.say(events.UpdateReceived, "dag", sha256=b"d" * 32, size=8).fate is Fate.LATE
    run.at = 1000.0
    run.tell(events.Resumed)
    assert run.place == ("running", 0, 1, "uploading")
    assert deadline(run.rules, run.run) == 1010.0
    assert run.update("dag").place == ("running", 0, 1, "summing")


def test_a_run_paused_while_it_sums_sums_again_when_it_is_resumed() -> None:
    run = WaitingRun().set_up().update()
    run.tell(events.MemberRevoked, participant="dag")
    assert run.run.status is Status.PAUSED
    assert run.tell(events.Resumed).effects == (Sum(run.attempt.ref),)


def test_a_header_without_bytes_is_never_taken_for_an_update() -> None:
    run = WaitingRun().set_up()
    assert run.say(events.UpdateReceived, "ann", sha256=b"d" * 32, size=0).fate is Fate.LATE
    assert "ann" not in run.attempt.updates


def test_a_repeat_is_a_duplicate_and_another_update_or_tag_is_refused() -> None:
    run = WaitingRun().set_up().update("ann")
    same = {"sha256": b"ann".ljust(32), "size": 8}
    assert run.say(events.UpdateReceived, "ann", **same, tag=7).fate is Fate.DUPLICATE
    assert run.say(events.UpdateReceived, "ann", **same, tag=8).fate is Fate.REJECTED
    assert run.say(events.UpdateReceived, "ann", sha256=b"x" * 32, size=8, tag=7).fate is Fate.REJECTED


def test_a_second_key_of_one_member_and_a_key_of_somebody_else_are_refused_at_intake() -> None:
    run = WaitingRun().advertise("ann")
    other = SecureSite.begin(run.begin("ann").terms, identity_of("ann"), bytes(range(64)))
    assert run.say(events.RunKeyAdvertised, "ann", run_key=run.begin("ann").advert()).fate is Fate.DUPLICATE
    assert run.say(events.RunKeyAdvertised, "ann", run_key=other.advert()).fate is Fate.REJECTED
    stolen = replace(run.begin("bob").advert(), key=run.begin("ann").advert().key)
    with pytest.raises(BadMessage):
        run.post(events.RunKeyAdvertised, "bob", run_key=stolen)


def test_a_misfit_opens_the_round_again_with_it_and_with_the_same_exponents() -> None:
    run = WaitingRun().set_up().update("bob")
    before, ref = run.fixed.exponents, run.attempt.ref
    assert run.report_misfit("ann").fate is Fate.ACCEPTED
    assert run.place == ("running", 0, 2, "uploading")
    assert run.effects[1:] == (Discard(ref),)
    assert run.fixed.exponents == before
    assert [misfit.name for misfit in run.fixed.misfits] == ["ann"]
    (told,) = run.run.complaints
    assert (told.participant, told.error, told.accused) == ("ann", "Misfit", "")
    assert "its update of round 0 does not fit" in told.sentence
    assert awaited(run.rules, run.run) == NAMES
    assert kinds(run, "ann") == [Kind.ROUND_OPENED]


def test_a_run_has_room_for_three_misfits() -> None:
    run = WaitingRun().set_up()
    for _ in range(2):
        assert run.report_misfit("ann").fate is Fate.ACCEPTED
    run.update().summed()
    assert run.opened_with() == (b"s" * 31 + b"\0", 0)
    assert run.report_misfit("ann").fate is Fate.ACCEPTED
    assert run.report_misfit("ann").fate is Fate.REJECTED


def test_a_misfit_of_one_whose_update_was_accepted_or_about_another_round_is_refused() -> None:
    run = WaitingRun().set_up().update("ann")
    assert run.report_misfit("ann").fate is Fate.REJECTED
    old = run.misfit("bob")
    run.update("bob", "cem", "dag").summed()
    with pytest.raises(BadMessage, match="another round"):
        check_misfit(run.terms, run.run, run.digest, old, verify)


def test_lost_updates_are_asked_for_again_in_the_same_attempt() -> None:
    run = WaitingRun().set_up().update()
    run.tell(events.UpdatesLost, round=0, attempt=1, reason="torn", participants=("bob",))
    assert run.place == ("running", 0, 1, "uploading")
    assert awaited(run.rules, run.run) == ("bob",)
    assert kinds(run, "bob") == [Kind.ROUND_OPENED]
    assert run.update("bob").place[3] == "summing"


def test_after_a_restart_members_have_the_time_of_a_round_to_come_back() -> None:
    run = WaitingRun(patience=10).set_up()
    run.tell(events.Left, participant="dag")
    run.at = 5000.0
    run.tell(events.Restarted)
    assert deadline(run.rules, run.run) == 5000.0 + run.spec.round_seconds


def test_a_withdrawal_pauses_the_run_which_cannot_be_resumed() -> None:
    run = WaitingRun().set_up().rounds(3)
    run.say(events.Responded, "bob", accept=False, reasons=("we changed our mind",))
    assert run.run.status is Status.PAUSED
    assert "bob has withdrawn: we changed our mind; finish the run with the consensus it has" in run.run.reason
    assert "bob" in run.rules.why_not_resumed(run.run)
    assert run.tell(events.Resumed).run.status is Status.PAUSED
    assert run.tell(events.FinishedByOperator, reason="enough").run.status is Status.FINISHED


def test_before_the_first_consensus_a_withdrawal_or_a_revocation_leaves_only_an_abort() -> None:
    run = WaitingRun().set_up()
    run.say(events.Responded, "bob", accept=False, reasons=("too small a cohort",))
    assert run.run.reason == "bob has withdrawn: too small a cohort; abort it, for it has no result yet"
    run.say(events.Responded, "cem", accept=False, reasons=())
    assert run.rules.why_not_resumed(run.run).startswith("bob, cem have withdrawn")
    other = WaitingRun().set_up()
    other.tell(events.MemberRevoked, participant="bob")
    assert other.run.reason == "bob was revoked; abort it, for it has no result yet"


def test_a_run_is_finished_with_its_consensus_once_a_round_of_the_method_was_summed() -> None:
    run = WaitingRun().set_up().rounds(1)
    assert "round 1" in why_not_finished(run.spec, run.run)
    assert run.tell(events.FinishedByOperator, reason="enough").run.status is Status.RUNNING
    run.rounds(2)
    assert run.tell(events.FinishedByOperator, reason="enough").run.status is Status.FINISHED
    assert run.run.reason == "enough"
    assert kinds(run, "ann") == [Kind.RUN_FINISHED]
    assert why_not_finished(run.spec, run.run)


def test_an_accusation_in_the_set_up_pauses_the_run_and_names_the_accused() -> None:
    run = WaitingRun().set_up()
    said = {
        "error": "TamperedShare",
        "sentence": "the share of bob does not open",
        "certificate": b"",
        "signature": b"",
    }
    assert run.say(events.Complained, "ann", accused="bob", **said).fate is Fate.ACCEPTED
    assert run.run.status is Status.PAUSED
    assert run.run.reason == "ann accuses bob: the share of bob does not open"
    assert run.say(events.Complained, "ann", accused="bob", **said).fate is Fate.DUPLICATE
    later = WaitingRun().set_up().rounds(1)
    later.say(events.Complained, "ann", accused="bob", **said)
    assert later.run.status is Status.RUNNING
    assert waiting.last_said(later.run, "ann") == said["sentence"]


def test_complaints_are_bounded_and_the_loudest_does_not_drown_the_others() -> None:
    run = WaitingRun().set_up()
    fields = {"accused": "", "error": "E", "certificate": b"", "signature": b""}
    run.say(events.Complained, "bob", sentence="mine", **fields)
    for number in range(50):
        run.say(events.Complained, "ann", sentence=str(number), **fields)
    assert len(run.run.complaints) == 20
    assert run.run.complaints[0].sentence == "mine"
    assert run.run.complaints[-1].sentence == "49"


def test_a_store_set_back_behind_its_members_pauses_unless_the_opening_is_the_same() -> None:
    run = WaitingRun().set_up().rounds(2)
    run.tell(events.NewerAttemptShown, participant="ann", round=2, attempt=1, same_consensus=True)
    assert run.place[0] == "running"
    run.tell(events.NewerAttemptShown, participant="ann", round=4, attempt=1, same_consensus=False)
    assert run.run.status is Status.PAUSED
    assert "restored from a backup" in run.run.reason


def test_the_first_round_has_no_previous_sum_and_later_ones_name_it() -> None:
    run = WaitingRun().set_up()
    assert run.opened_with() == (NO_SUM, 0)
    assert run.rounds(2).opened_with() == (b"s" * 31 + b"\1", 0)


def test_relayed_keys_and_shares_are_durable_before_they_are_sent() -> None:
    run = WaitingRun().advertise("ann", "bob", "cem")
    before = run.run
    run.advertise("dag")
    assert needs_checkpoint(before, run.run)
    run.share("ann", "bob", "cem")
    before = run.run
    assert needs_checkpoint(before, run.share("dag").run)


def test_state_and_events_are_read_back_from_the_store_as_they_were() -> None:
    run = WaitingRun().set_up().update("ann")
    run.report_misfit("bob")
    run.say(events.Complained, "cem", accused="", error="E", sentence="s", certificate=b"c", signature=b"g")
    run.tell(events.Left, participant="dag")
    assert load_run(dump_run(run.run), run.run.spec_sha256) == run.run
    misfit = run.misfit("ann")
    told: list[events.Event] = [
        events.RunKeyAdvertised(at=1.0, participant="ann", run_key=WaitingRun().begin("ann").advert()),
        events.GroupSecretShared(at=1.0, participant="ann", shares=run.fixed.shares["ann"]),
        events.MisfitReported(at=1.0, participant="ann", ref=run.attempt.ref, misfit=misfit),
        events.UpdatesLost(at=1.0, ref=run.attempt.ref, reason="r", participants=("ann",)),
    ]
    for event in told:
        assert load_event(dump_event(event), "r1") == event


@pytest.mark.parametrize("kind", [events.RunKeyAdvertised, events.GroupSecretShared])
def test_a_stranger_cannot_take_part_in_the_set_up(kind: type) -> None:
    run = WaitingRun()
    fields = {"run_key": run.begin("ann").advert()} if kind is events.RunKeyAdvertised else {"shares": ()}
    reply: Reply = run.say(kind, "eve", **fields)
    assert reply.fate is Fate.REJECTED
