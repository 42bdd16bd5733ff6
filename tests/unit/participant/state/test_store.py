"""The site's memory: what was saved is there after a restart, seeds are spent once, one daemon per directory."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dcfpca.errors import BadInput, Refused
from dcfpca.method_memory import snapshot_format
from dcfpca.secagg.differencing_check import PastRun
from dcfpca.spec import RunSpec
from participant.commands.approve import approve_run
from participant.session import Consent
from participant.session.events import LocalStep
from participant.state.database import DATABASE
from participant.state.directory import only_daemon
from participant.state.key_record import noise_file
from participant.state.store import Store

SPEC = RunSpec(rows=5, rank=2)
CONSENT = Consent(SPEC, SPEC.digest(), True, (), False)


def step_of(round: int) -> LocalStep:
    rng = np.random.default_rng(round)
    return LocalStep(round, bytes([round]) * 32, rng.standard_normal(7), {"V": rng.standard_normal((4, 2))})


def save(store: Store, round: int, run_id: str = "run-1", durable: bool = False) -> None:
    store.save_consent(run_id, CONSENT, 1)
    store.steps.save(run_id, step_of(round), snapshot_format(SPEC), durable=durable)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_only_the_owner_can_read_the_state(directory: Path) -> None:
    Store(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / DATABASE).stat().st_mode) == 0o600


def test_consents_and_refusals_survive_a_restart(directory: Path) -> None:
    store = Store(directory)
    store.save_consent("run-1", CONSENT, 1)
    store.save_consent("run-2", Consent(SPEC, SPEC.digest(), False, ("too large",), True), 2)
    store.close()
    first, second = Store(directory).runs()
    assert first.consent == CONSENT
    assert second.consent is not None
    assert second.consent.reasons == ("too large",)
    assert not second.consent.accept


def test_the_last_local_step_survives_a_restart_bit_by_bit(directory: Path) -> None:
    store = Store(directory)
    for round in (1, 2, 3):
        save(store, round)
    store.close()
    found = Store(directory).step("run-1")
    assert found is not None
    assert (found.round, found.consensus_sha256) == (3, bytes([3]) * 32)
    np.testing.assert_array_equal(found.vector, step_of(3).vector)
    np.testing.assert_array_equal(found.snapshot["V"], step_of(3).snapshot["V"])


@pytest.mark.parametrize("durable", [True, False])
def test_a_write_that_is_cut_short_leaves_the_step_before(directory: Path, durable: bool) -> None:
    store = Store(directory)
    for round in range(1, 6):
        before = {path: path.read_bytes() for path in directory.glob("*.step")}
        save(store, round, durable=durable)
        (written,) = [path for path in directory.glob("*.step") if before.get(path) != path.read_bytes()]
        whole = written.read_bytes()
        for cut in (0, 1, len(whole) // 2, len(whole) - 1):
            written.write_bytes(whole[:cut] + before.get(written, b"")[cut:])
            found = Store(directory).step("run-1")
            assert (found.round if found else 0) == round - 1
        written.write_bytes(whole)


def test_a_step_that_was_read_is_not_overwritten_while_it_may_be_in_use(directory: Path) -> None:
    store = Store(directory)
    save(store, 1)
    found = store.step("run-1")
    assert found is not None
    for round in (2, 3, 4):
        save(store, round)
    np.testing.assert_array_equal(found.snapshot["V"], step_of(1).snapshot["V"])


def test_steps_of_runs_with_similar_names_are_apart(directory: Path) -> None:
    store = Store(directory)
    save(store, 1)
    save(store, 2, "run")
    store.end("run", "finished", "")
    assert store.step("run-1") is not None
    assert store.step("run") is None


def test_a_damaged_step_is_not_used(directory: Path) -> None:
    store = Store(directory)
    save(store, 1)
    (path,) = directory.glob("*.step")
    whole = path.read_bytes()
    for damaged in (whole[:-1] + b"x", whole[:-1], b"", b"[]\n"):
        path.write_bytes(damaged)
        assert store.step("run-1") is None
    path.unlink()
    assert store.step("run-1") is None


def test_array_files_do_not_pile_up(directory: Path) -> None:
    store = Store(directory)
    for round in range(1, 20):
        save(store, round)
        if round % 5 == 0:
            store.flush()
    assert len(list(directory.glob("*.step"))) <= 3
    store.end("run-1", "finished", "")
    assert list(directory.glob("*.step")) == []


def test_files_of_runs_that_are_over_are_removed_at_the_next_start(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(directory)
    for run_id in ("run-1", "run-2"):
        save(store, 1, run_id)
        store.make_noise_key(run_id, b"n" * 32)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.steps, "forget", killed)
        with pytest.raises(KeyboardInterrupt):
            store.end("run-1", "finished", "")
    store.close()
    store = Store(directory)
    store.remove_leftovers()
    assert store.step("run-1") is None
    assert not noise_file(directory, "run-1").exists()
    assert store.step("run-2") is not None
    assert store.noise_key("run-2") == b"n" * 32


def test_a_run_may_end_while_its_steps_are_flushed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(directory)
    save(store, 1)
    monkeypatch.setattr(Path, "exists", lambda path: True)  # as it was the moment before
    for path in directory.glob("*.step"):
        path.unlink()
    store.flush()


@pytest.mark.parametrize("left", [b"", b"k" * 17, b"k" * 32, b"k" * 50])
def test_a_key_of_the_noise_that_was_cut_off_while_written_is_made_again(directory: Path, left: bytes) -> None:
    store = Store(directory)
    noise_file(directory, "run-1").write_bytes(left)
    store.make_noise_key("run-1", b"n" * 32)
    assert store.noise_key("run-1") == b"n" * 32
    store.make_noise_key("run-1", b"o" * 32)
    assert store.noise_key("run-1") == b"n" * 32


def test_a_kill_while_the_first_keys_of_a_run_are_saved_leaves_a_run_without_keys(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run makes new ones; one that has a cohort and no keys would be lost."""
    real = os.pwrite
    for writes in (0, 1):
        store, left = Store(directory), iter(range(writes))
        store.save_consent("run-1", CONSENT, 1)

        def killed(descriptor: int, data: bytes, offset: int, left: Iterator[int] = left) -> int:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(descriptor, data, offset)

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", killed)
            with pytest.raises(KeyboardInterrupt):
                store.save_keys("run-1", ("a", "b"), b"k" * 100)
        store.close()
        row = (store := Store(directory)).run("run-1")
        assert row is not None
        assert row.cohort == ()
        store.close()
    store = Store(directory)
    store.save_keys("run-1", ("a", "b"), b"l" * 100)
    row = store.run("run-1")
    assert row is not None
    assert (row.cohort, store.key_slots("run-1")) == (("a", "b"), (b"l" * 100, b"l" * 100))


def test_an_announcement_takes_the_place_of_the_one_before(directory: Path) -> None:
    store = Store(directory)
    store.save_opening("run-1", b"opened 1.1")
    store.save_opening("run-1", b"opened 1.2")
    assert store.inbox("run-1") == [b"opened 1.2"]


def test_the_end_of_a_run_leaves_nothing_of_its_rounds_behind(directory: Path) -> None:
    store = Store(directory)
    store.save_consent("run-1", CONSENT, 1)
    store.save_opening("run-1", b"1" * 32)
    store.end("run-1", "finished", "converged")
    assert store.inbox("run-1") == []
    assert b"1" * 32 not in b"".join(path.read_bytes() for path in directory.iterdir())
    (row,) = store.runs()
    assert (row.status, row.outcome) == ("finished", "converged")


def test_after_a_power_cut_the_open_round_is_announced_anew_and_after_a_kill_it_is_known(directory: Path) -> None:
    store = Store(directory)
    store.forget_openings_after_reboot()
    store.save_opening("run-1", b"opened")
    killed = Store(directory)
    killed.forget_openings_after_reboot()
    assert killed.inbox("run-1") == [b"opened"]
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("UPDATE boot SET boot_id = 'another start of the machine'")
    store = Store(directory)
    store.forget_openings_after_reboot()
    assert store.inbox("run-1") == []


def _hold(directory: Path, held: object, go: object) -> None:
    with only_daemon(directory):
        held.set()  # type: ignore[attr-defined]
        go.wait()  # type: ignore[attr-defined]


def test_a_second_daemon_on_one_state_directory_is_refused_until_the_first_has_died(directory: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(directory, held, go))
    other.start()
    assert held.wait(60)
    with pytest.raises(Refused, match="another participant daemon"), only_daemon(directory):
        pass
    assert other.pid is not None
    os.kill(other.pid, 9)
    other.join()
    with only_daemon(directory):
        pass


def test_a_state_of_a_newer_version_is_left_alone(directory: Path) -> None:
    Store(directory).close()
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(BadInput, match="newer version"):
        Store(directory)


def test_a_damaged_state_gives_one_sentence(directory: Path) -> None:
    directory.mkdir()
    (directory / DATABASE).write_bytes(b"this is not a database" * 100)
    with pytest.raises(BadInput, match="cannot be used"):
        Store(directory)


def test_a_run_counts_as_past_from_its_cohort_on_and_after_its_end_only_if_it_gave_sums(directory: Path) -> None:
    store, data = Store(directory), b"d" * 32

    def past() -> dict[str, frozenset[str]]:
        return {one.run: one.cohort for one in Store(directory).past_runs("new")}

    for run_id, cohort in (("summed", "abc"), ("silent", "abd")):
        store.save_consent(run_id, CONSENT, 1)
        assert run_id not in past(), "its cohort is not known"
        store.pin_data(run_id, data)
        store.save_keys(run_id, tuple(cohort), b"record")
    assert past() == {"summed": frozenset("abc"), "silent": frozenset("abd")}
    assert "silent" not in [one.run for one in store.past_runs("silent")]
    store.save_exposure(data, "summed", ("a", "b", "c"))
    for run_id in ("summed", "silent"):
        store.end(run_id, "ended", "aborted")
    assert past() == {"summed": frozenset("abc")}


def test_of_runs_with_the_same_members_and_columns_the_first_stands_for_all(directory: Path) -> None:
    store = Store(directory)
    for place, (run_id, data) in enumerate((("one", b"d"), ("two", b"d"), ("other", b"e"))):
        store.save_consent(run_id, CONSENT, place)
        store.save_exposure(32 * data, run_id, ("a", "b", "c"))
    assert [one.run for one in store.past_runs("new")] == ["one", "other"]
    assert [one.run for one in store.past_runs("one")] == ["two", "other"]


def test_a_run_that_a_person_approved_counts_with_the_cohort_its_spec_names(directory: Path) -> None:
    store = Store(directory)
    named = SPEC.model_copy(update={"participants": ("a", "b", "c")})
    for run_id, spec in (("approved", named), ("unnamed", SPEC), ("not-approved", named)):
        store.save_waiting(run_id, spec.canonical(), spec.digest(), False, 1)
        if run_id != "not-approved":
            approve_run(store, run_id, "Ada", "1h", 2)
    assert store.past_runs("new") == [], "nobody has answered yet"
    store.approvals.use(3)
    for run_id, spec in (("approved", named), ("unnamed", SPEC), ("not-approved", named)):
        store.save_consent(run_id, Consent(spec, spec.digest(), True, (), False), 4)
    assert store.past_runs("new") == [PastRun("approved", frozenset("abc"))]


def test_a_second_store_in_the_daemons_process_leaves_its_log_of_writes_alone(tmp_path: Path) -> None:
    """The console within the daemon; what a command of another process does then must not delete the log."""
    spec, store = RunSpec(rows=4), Store(tmp_path)
    beside = Store(tmp_path)
    command = (
        "from participant.state.store import Store; store = Store(Path({!r})); print(len(store.runs())); store.close()"
    )
    for number in range(3):
        made = ["-c", f"from pathlib import Path; {command.format(str(tmp_path))}"]
        shown = subprocess.run([sys.executable, *made], check=True, capture_output=True, text=True).stdout
        assert int(shown) == number
        store.save_waiting(str(number), spec.canonical(), spec.digest(), False, number)
    beside.close()
    store.close()
