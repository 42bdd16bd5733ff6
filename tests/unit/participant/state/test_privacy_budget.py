"""What runs spend is charged once, with the consent, in the ledger and beside it, and is not forgotten."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from dcfpca.errors import Refused, UnusableState
from dcfpca.privacy.zcdp import epsilon_of, rho_of
from dcfpca.secagg.column_sets import ColumnSet
from dcfpca.spec import RunSpec
from participant.session import Consent
from participant.state.database import DATABASE
from participant.state.ledger import NO_PRIVACY, PRIVACY_CHARGE, PRIVACY_RETURN, Item, verify
from participant.state.privacy_budget import NAME, YEAR_MS
from participant.state.store import Store
from tests.support.runs.columns import column_set

DATA, OTHER = column_set(30), column_set(30, first=100)
NOW = 50 * YEAR_MS
RHO = rho_of(1.0, 1e-6)


def consent(epsilon: float | None = 1.0) -> Consent:
    privacy = {} if epsilon is None else {"privacy": {"epsilon": epsilon}}
    spec = RunSpec.model_validate({"rows": 5, "rank": 2} | privacy)
    return Consent(spec, spec.digest(), True, (), False)


def opened(tmp_path: Path) -> Store:
    return Store(tmp_path / "state", tmp_path / "results")


def join(store: Store, run_id: str, epsilon: float | None = 1.0, data: ColumnSet = DATA, at_ms: int = NOW) -> None:
    store.save_joining(run_id, consent(epsilon), data, "column", at_ms)


def kinds(store: Store) -> list[str]:
    return [entry.item.kind for entry in store.ledger.entries()]


def test_a_run_is_charged_in_the_transaction_that_saves_the_consent(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    row = store.run("run-1")
    assert row is not None
    assert row.status == "enrolled"
    (entry,) = store.ledger.entries("run-1")
    assert (entry.item.kind, entry.item.sha256) == (PRIVACY_CHARGE, DATA.digest)
    assert "ε = 1 at δ = 1e-06 for one column" in entry.item.detail
    assert store.privacy.spending(DATA, NOW).data == RHO


def test_a_consent_whose_charge_cannot_be_entered_is_not_saved(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with sqlite3.connect(tmp_path / "state" / DATABASE) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END")
    with pytest.raises(sqlite3.Error):
        join(store, "run-1")
    assert store.run("run-1") is None
    assert store.privacy.standing() == []


def test_charges_add_up_by_data_and_by_year(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "old", at_ms=NOW - YEAR_MS - 1)
    store.end("old", "finished", "complete")
    join(store, "now")
    join(store, "elsewhere", data=OTHER)
    spent = store.privacy.spending(DATA, NOW)
    assert (spent.data, spent.year) == (2 * RHO, 2 * RHO)
    assert store.privacy.spending(OTHER, NOW).data == RHO


def test_a_run_joined_long_ago_counts_for_the_year_in_which_it_told_something(tmp_path: Path) -> None:
    store, joined = opened(tmp_path), NOW - 3 * YEAR_MS
    join(store, "slow", at_ms=joined)
    assert store.privacy.spending(DATA, NOW).year == RHO  # it is open, and may tell something at any moment
    store.ledger.append(Item("masked update", "5 × 2", 80, DATA.digest, "slow", 1, 1), NOW)
    store.end("slow", "finished", "complete")
    assert store.privacy.spending(DATA, NOW + YEAR_MS - 1).year == RHO
    assert store.privacy.spending(DATA, NOW + YEAR_MS).year == 0.0
    assert store.privacy.spending(DATA, NOW + YEAR_MS).data == RHO


def test_a_charge_made_while_the_clock_was_set_back_counts_for_the_year_when_it_is_right_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "right", data=OTHER)
    join(store, "set-back", at_ms=NOW - 5 * YEAR_MS)
    store.end("right", "finished", "complete")
    store.end("set-back", "finished", "complete")
    assert store.privacy.spending(DATA, NOW + 1).year == 2 * RHO
    assert store.privacy.spending(DATA, NOW + YEAR_MS).year == 0.0
    (entry,) = store.ledger.entries("set-back")
    assert entry.at_ms == NOW
    assert entry.item.detail.endswith("dated like the latest entry, as the clock is 1825 days behind it")
    verify(store.ledger.entries())


def test_a_clock_set_back_under_a_restored_state_is_seen_by_the_record_beside_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "right")
    store.close()
    shutil.rmtree(tmp_path / "state")
    store = opened(tmp_path)
    join(store, "set-back", at_ms=NOW - 5 * YEAR_MS)
    assert store.privacy.spending(DATA, NOW + 1).year == 2 * RHO


def test_charges_dated_later_than_now_count_for_the_year_and_are_told_apart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    spent = store.privacy.spending(OTHER, NOW - 5 * YEAR_MS)
    assert (spent.year, spent.later) == (RHO, 1)
    assert store.privacy.spending(OTHER, NOW).later == 0


def test_the_ledger_says_what_all_runs_over_the_data_have_spent_together(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    join(store, "run-2")
    (entry,) = store.ledger.entries("run-2")
    assert f"ε = {epsilon_of(2 * RHO, 1e-6):.4g} with all runs over this data" in entry.item.detail


def test_a_restart_charges_nothing_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    store.close()
    store = opened(tmp_path)
    store.privacy.reconcile()
    assert store.privacy.spending(DATA, NOW).data == RHO
    assert kinds(store) == [PRIVACY_CHARGE]


def test_a_run_that_ends_before_an_update_left_is_given_back_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    store.privacy.settle("run-1", NOW + 1)
    store.privacy.settle("run-1", NOW + 2)
    assert kinds(store) == [PRIVACY_CHARGE, PRIVACY_RETURN]
    assert store.privacy.spending(DATA, NOW).data == 0.0
    assert store.privacy.charge_of("run-1") is None


def test_a_run_of_which_an_update_was_made_ready_stays_charged_in_full(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    store.save_exposure(DATA.digest, "run-1", ("a", "b", "c"))
    store.privacy.settle("run-1", NOW + 1)
    assert store.privacy.spending(DATA, NOW).data == RHO


def test_a_state_restored_from_a_backup_does_not_forget_what_was_spent_since(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    store.close()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    store = opened(tmp_path)
    join(store, "run-2", at_ms=NOW + 1)
    store.close()
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    store = opened(tmp_path)
    store.privacy.reconcile()
    assert store.run("run-2") is None
    assert store.privacy.spending(DATA, NOW).data == 2 * RHO
    join(store, "run-2", at_ms=NOW + 2)  # joined again with fresh noise, which spends again
    assert store.privacy.spending(DATA, NOW).data == 3 * RHO


def test_a_run_whose_update_left_after_the_backup_stays_charged_when_it_ends(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    join(store, "run-2")
    store.close()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    store = opened(tmp_path)
    store.save_exposure(DATA.digest, "run-1", ("a", "b", "c"))
    store.close()
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    store = opened(tmp_path)
    store.privacy.reconcile()
    for run_id in ("run-1", "run-2"):
        store.privacy.settle(run_id, NOW + 1)
    assert [charge.run_id for charge in store.privacy.standing()] == ["run-1"]


def test_that_an_update_leaves_is_on_the_disk_before_it_does(tmp_path: Path) -> None:
    """Else a power cut would forget it, and what the run was charged be given back."""
    store, said = opened(tmp_path), list[str]()
    join(store, "run-1")
    store.ledger._database.set_trace_callback(said.append)
    store.save_exposure(DATA.digest, "run-1", ("a", "b", "c"))
    (place,) = [
        index for index, statement in enumerate(said) if "exposed_cohorts" in statement and "INSERT" in statement
    ]
    levels = [statement for statement in said[:place] if "synchronous" in statement]
    assert levels[-1].endswith("FULL")


def test_a_charge_given_back_counts_again_when_the_state_from_before_is_restored(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    store.close()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    store = opened(tmp_path)
    store.privacy.settle("run-1", NOW + 1)
    store.close()
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    assert opened(tmp_path).privacy.spending(DATA, NOW).data == RHO


def test_without_the_second_record_the_ledger_counts_and_writes_it_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    (tmp_path / "results" / NAME).unlink()
    store.privacy.reconcile()
    assert store.privacy.spending(DATA, NOW).data == RHO
    assert "run-1" in (tmp_path / "results" / NAME).read_text()


def test_a_damaged_second_record_is_named(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    (tmp_path / "results" / NAME).write_text("{")
    with pytest.raises(UnusableState, match=NAME):
        store.privacy.standing()


@pytest.mark.parametrize(("number", "raised"), [(errno.ENOSPC, OSError), (errno.EACCES, UnusableState)])
def test_a_full_disk_below_the_results_is_waited_for_and_forbidden_writes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    store = opened(tmp_path)

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr("participant.state.privacy_budget.atomic_write", fails)
        with pytest.raises(raised):
            join(store, "run-1")
    store.close()
    store = opened(tmp_path)
    store.privacy.reconcile()  # as the daemon does when it begins again
    assert "run-1" in (tmp_path / "results" / NAME).read_text()


def test_a_charge_made_smaller_in_the_file_breaks_the_chain(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    assert verify(store.ledger.entries()) == 1
    with sqlite3.connect(tmp_path / "state" / DATABASE) as other:
        other.execute("UPDATE ledger SET shape = replace(shape, 'rho=', 'rho=0')")
    with pytest.raises(Refused, match="altered at entry 1"):
        verify(store.ledger.entries())


def test_runs_without_privacy_over_the_same_data_are_told_once_an_update_left(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "private")
    join(store, "plain", None)
    join(store, "refused", None)
    join(store, "other", None, data=OTHER)
    store.save_exposure(DATA.digest, "private", ("a", "b", "c"))
    for run in ("plain", "other"):
        store.ledger.append(Item("plain update", "3×2", 48, b"x" * 32, run, 1, 1), NOW)
    assert kinds(store).count(NO_PRIVACY) == 3
    assert store.privacy.runs_without(DATA) == ("plain",)


def test_epsilon_is_spent_by_the_columns_that_were_used_whatever_file_they_are_in(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    join(store, "run-2", data=column_set(30, first=20))
    assert store.privacy.spending(column_set(40), NOW).data == 2 * RHO  # columns 20 … 29 were in both
    assert store.privacy.spending(column_set(20), NOW).data == RHO
    assert store.privacy.spending(column_set(20, first=50), NOW).data == 0.0
    assert len(store.privacy.charges_on(column_set(2, first=29))) == 2


def test_a_person_with_new_values_gets_no_fresh_budget(tmp_path: Path) -> None:
    store, names = opened(tmp_path), [f"p{place}" for place in range(30)]
    join(store, "run-1", data=column_set(30, owners=names))
    assert store.privacy.spending(column_set(30, first=500, owners=names), NOW).data == RHO


def test_a_charge_on_columns_that_are_not_known_any_more_counts_on_all(tmp_path: Path) -> None:
    store = opened(tmp_path)
    join(store, "run-1")
    store.close()
    for path in (tmp_path / "state").glob("columns-*"):
        path.unlink()
    assert opened(tmp_path).privacy.spending(OTHER, NOW).data == RHO
