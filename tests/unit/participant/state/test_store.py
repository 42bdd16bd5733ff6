"""The site's memory: what was saved is there after a restart, seeds are spent once, one daemon per directory."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest

from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadInput, Refused
from dcfpca.spec import RunSpec
from participant.session import Consent
from participant.state.directory_lock import only_daemon
from participant.state.step_file import LocalStep
from participant.state.store import DATABASE, Store

SPEC = RunSpec(rows=5, rank=2)
CONSENT = Consent(SPEC, SPEC.digest(), True, (), False)


def step_of(round: int) -> LocalStep:
    rng = np.random.default_rng(round)
    return LocalStep(round, bytes([round]) * 32, rng.standard_normal(7), {"V": rng.standard_normal((4, 2))})


def save(store: Store, round: int) -> None:
    store.record_step("run-1", step_of(round), store.save_step("run-1", step_of(round)))


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
    assert (found.round, found.consensus) == (3, bytes([3]) * 32)
    np.testing.assert_array_equal(found.vector, step_of(3).vector)
    np.testing.assert_array_equal(found.snapshot["V"], step_of(3).snapshot["V"])


def test_a_step_that_was_saved_but_not_recorded_does_not_count(directory: Path) -> None:
    store = Store(directory)
    save(store, 1)
    store.save_step("run-1", step_of(2))
    found = Store(directory).step("run-1")
    assert found is not None
    assert found.round == 1


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
    assert len(list(directory.glob("*.step"))) <= 2
    store.end("run-1", "finished", "")
    assert list(directory.glob("*.step")) == []


def test_a_new_attempt_wipes_the_seed_and_the_messages_of_the_one_before(directory: Path) -> None:
    store = Store(directory)
    store.open_attempt(AttemptRef("run-1", 1, 1), b"1" * 32, b"opened 1.1")
    store.save_inbox("run-1", b"roster 1.1")
    assert store.inbox("run-1") == [b"opened 1.1", b"roster 1.1"]
    store.open_attempt(AttemptRef("run-1", 1, 2), b"2" * 32, b"opened 1.2", ("a", "b"))
    assert store.seed("run-1") == (b"2" * 32, ("a", "b"))
    assert store.inbox("run-1") == [b"opened 1.2"]
    store.close()
    left = b"".join(path.read_bytes() for path in directory.iterdir())
    assert b"1" * 32 not in left


def test_an_attempt_gets_one_seed_and_never_a_second(directory: Path) -> None:
    store = Store(directory)
    store.open_attempt(AttemptRef("run-1", 1, 1), b"1" * 32, b"")
    with pytest.raises(sqlite3.IntegrityError):
        store.open_attempt(AttemptRef("run-1", 1, 1), b"2" * 32, b"")
    assert store.seed("run-1")[0] == b"1" * 32


def test_the_end_of_a_run_leaves_nothing_secret_behind(directory: Path) -> None:
    store = Store(directory)
    store.save_consent("run-1", CONSENT, 1)
    store.open_attempt(AttemptRef("run-1", 1, 1), b"1" * 32, b"opened")
    store.end("run-1", "finished", "converged")
    assert store.seed("run-1")[0] == b""
    assert store.inbox("run-1") == []
    assert b"1" * 32 not in b"".join(path.read_bytes() for path in directory.iterdir())
    (row,) = store.runs()
    assert (row.status, row.outcome) == ("finished", "converged")


def test_after_a_power_cut_the_open_attempt_is_sat_out_and_after_a_kill_it_is_not(directory: Path) -> None:
    store = Store(directory)
    store.discard_seeds_after_reboot()
    store.open_attempt(AttemptRef("run-1", 1, 1), b"1" * 32, b"opened")
    killed = Store(directory)
    killed.discard_seeds_after_reboot()
    assert killed.seed("run-1")[0] == b"1" * 32
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("UPDATE boot SET boot_id = 'another start of the machine'")
    store = Store(directory)
    store.discard_seeds_after_reboot()
    assert store.seed("run-1")[0] == b""
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
