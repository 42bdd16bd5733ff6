"""Approvals name their approver, expire, are used once, and all of it is in the ledger."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from dcfpca.errors import BadInput, Refused
from dcfpca.spec import RunSpec
from participant.commands.approve import (
    approve_run,
    approver_name,
    decline_run,
    end_like,
    milliseconds,
    show_waiting,
    waiting_document,
    waiting_runs,
)
from participant.session import Consent
from participant.state.ledger import Item, verify
from participant.state.store import Store

SPEC = RunSpec(rows=5, rank=2)
HOUR = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def wait(store: Store, run_id: str, at_ms: int) -> None:
    store.save_waiting(run_id, SPEC.canonical(), SPEC.digest(), False, at_ms)


def enrol(store: Store, run_id: str, at_ms: int) -> None:
    store.save_consent(run_id, Consent(SPEC, SPEC.digest(), True, (), False), at_ms)


def test_an_approval_reaches_the_daemon_through_the_store_and_is_kept_until_the_answer(store: Store) -> None:
    wait(store, "run-1", 1)
    assert store.approvals.use(2) == []
    approve_run(Store(store.directory), "run-1", "Ada", "1h", 2)
    assert store.approvals.use(3) == ["run-1"]
    assert Store(store.directory).approvals.use(4 + HOUR) == ["run-1"]
    enrol(store, "run-1", 5)
    assert store.approvals.use(6) == []


def test_an_expired_approval_is_not_used(store: Store) -> None:
    wait(store, "run-1", 1)
    approve_run(store, "run-1", "Ada", "1h", 10)
    assert store.approvals.use(10 + HOUR) == []
    assert store.approvals.standing(10 + HOUR) == []


def test_an_approval_is_for_one_run_and_no_other_with_the_same_spec(store: Store) -> None:
    wait(store, "stale", 1)
    wait(store, "run-1", 2)
    approve_run(store, "run-1", "Ada", "1h", 10)
    approve_run(store, "run-1", "Ada", "1h", 11)
    assert store.approvals.use(12) == ["run-1"]
    enrol(store, "run-1", 13)
    wait(store, "run-2", 20)
    assert store.approvals.use(21) == []
    used = [entry for entry in store.ledger.entries() if entry.item.kind == "approval used"]
    assert [entry.item.run_id for entry in used] == ["run-1"]


def test_who_declines_and_why_is_in_the_ledger_and_reaches_the_daemon_until_it_has_answered(store: Store) -> None:
    wait(store, "run-1", 1)
    assert decline_run(Store(store.directory), "run-1", "Ada", " no  purpose\n", 2) == "no purpose"
    assert store.approvals.declined() == [("run-1", "no purpose")]
    assert waiting_runs(store, 3) == []
    (entry,) = store.ledger.entries()
    assert (entry.item.kind, entry.item.shape, entry.item.detail) == ("declined", "by Ada", "no purpose")
    store.save_consent("run-1", Consent(SPEC, SPEC.digest(), False, ("no purpose",), False), 4)
    assert store.approvals.declined() == []
    with pytest.raises(Refused, match="no run run-1 waits"):
        decline_run(store, "run-1", "Ada", "again", 5)


def test_a_refusal_without_a_reason_or_a_name_is_not_recorded(store: Store) -> None:
    wait(store, "run-1", 1)
    for name, reason in (("Ada", " "), ("", "why"), ("Ada", "x" * 301)):
        with pytest.raises(BadInput):
            decline_run(store, "run-1", name, reason, 2)
    assert list(store.ledger.entries()) == []


def test_a_run_whose_enrolment_has_ended_does_not_wait_any_more(store: Store) -> None:
    wait(store, "run-1", 1)
    closes = 1 + 1000 * round(SPEC.enrol_seconds)
    assert [row.run_id for row in waiting_runs(store, closes - 1)] == ["run-1"]
    assert waiting_runs(store, closes) == []


def test_giving_and_using_are_in_the_ledger_with_the_name_the_expiry_and_the_count(store: Store) -> None:
    wait(store, "run-1", 1)
    approve_run(store, "run-1", " Ada Byron ", "30m", 0)
    store.approvals.use(1)
    given, used = store.ledger.entries()
    assert (given.item.kind, given.item.shape, given.item.sha256) == ("approval", "for 1 use", SPEC.digest())
    assert (used.item.kind, used.item.shape, used.item.run_id) == ("approval used", "use 1 of 1", "run-1")
    assert given.item.detail == used.item.detail == "by Ada Byron, until 1970-01-01T00:30:00+00:00"
    assert verify(store.ledger.entries()) == 2


def test_command_and_daemon_append_to_one_chain_at_the_same_time(store: Store) -> None:
    wait(store, "run-1", 1)
    command, start = Store(store.directory), Barrier(2)

    def approve() -> None:
        start.wait()
        for number in range(50):
            approve_run(command, "run-1", "Ada", "1h", number)

    with ThreadPoolExecutor(1) as pool:
        approving = pool.submit(approve)
        start.wait()
        for number in range(50):
            store.ledger.append(Item("progress", "", 1, bytes(32)), number)
        approving.result()
    assert verify(store.ledger.entries()) == 100


def test_only_a_waiting_run_can_be_approved_and_only_by_somebody(store: Store) -> None:
    with pytest.raises(Refused, match="no run run-1 waits"):
        approve_run(store, "run-1", "Ada", "1h", 1)
    wait(store, "run-1", 1)
    with pytest.raises(BadInput, match="needs the name of the person"):
        approve_run(store, "run-1", "  ", "1h", 1)
    assert list(store.ledger.entries()) == []


@pytest.mark.parametrize("text", ["", "7", "0d", "-1d", "367d", "1w", "1.5h", "٣d", "9999999m"])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not a duration"):
        milliseconds(text)


def test_a_name_that_could_forge_lines_is_refused() -> None:
    with pytest.raises(BadInput, match="printable"):
        approver_name("Ada\nby Eve")


def test_whoever_approves_is_shown_why_the_run_waits(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save_waiting("run-1", SPEC.canonical(), SPEC.digest(), False, 1)
    store.save_waiting("run-1", SPEC.canonical(), SPEC.digest(), False, 2, "it would give sums over dea alone")
    show_waiting(store.runs(), [])
    assert "run run-1 waits because it would give sums over dea alone" in " ".join(capsys.readouterr().err.split())
    document = waiting_document(store.runs(), [])
    assert isinstance(document, dict)
    assert "it would give sums over dea alone" in str(document["waiting"])
    assert store.runs()[0].consent is None


def like(store: Store, run_id: str, at_ms: int, why: str = "", **changes: object) -> None:
    spec = SPEC.model_copy(update=changes)
    store.save_waiting(run_id, spec.canonical(), spec.digest(), False, at_ms, why)


def test_a_standing_approval_answers_later_runs_like_it_and_no_others(store: Store) -> None:
    wait(store, "run-1", 1)
    approve_run(store, "run-1", "Ada, until noon", "1h", 2, like="90d")
    assert store.approvals.use(3) == ["run-1"]
    enrol(store, "run-1", 4)
    like(store, "summer", 5, label="summer", seed=7, enrol_seconds=86400.0)
    like(store, "larger", 5, rank=3)
    like(store, "doubted", 5, why="it would tell of two samples alone", label="doubted")
    assert store.approvals.use(6) == ["summer"]
    verify(store.ledger.entries())
    kinds = [entry.item.kind for entry in store.ledger.entries() if entry.item.run_id == "summer"]
    assert kinds == ["approval", "approval used"]
    (standing,) = store.approvals.likes(6)
    assert (standing.approver, standing.run_id) == ("Ada, until noon", "run-1")


def test_a_standing_approval_ends_when_it_expires_or_somebody_ends_it(store: Store) -> None:
    wait(store, "run-1", 1)
    approve_run(store, "run-1", "Ada", "1h", 2, like="1h")
    store.approvals.use(3)
    enrol(store, "run-1", 4)
    like(store, "late", 5, label="late")
    assert store.approvals.use(2 + 2 * HOUR) == []
    approve_run(store, "late", "Ada", "1h", 5, like="90d")
    store.approvals.use(6)
    enrol(store, "late", 7)
    with pytest.raises(Refused, match="no standing approval of runs like other"):
        end_like(store, "other", "Eve", 8)
    end_like(store, "late", "Bo", 8)
    like(store, "later", 9, label="later")
    assert store.approvals.use(10) == []
    assert store.approvals.likes(10) == []
