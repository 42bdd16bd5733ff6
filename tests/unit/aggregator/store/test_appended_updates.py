"""Updates that came whole share one file, and what a crash leaves of it is told from what was kept."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from aggregator.store.database import StoreFailed
from aggregator.store.update_files import UpdateFiles, UpdateKey
from dcfpca.run_references import AttemptRef
from dcfpca.wire.constants import CHUNK_BYTES

REF = AttemptRef("r1", 1, 1)


def update(name: str, data: bytes) -> tuple[UpdateKey, int, bytes]:
    """An update that came whole."""
    return UpdateKey(REF, name, hashlib.sha256(data).digest()), 0, data


ANN, BOB, CEM = update("ann", b"12345678" * 3), update("bob", b"abcdefgh\n" * 8), update("cem", b"ABCDEFGH")


def content(updates: UpdateFiles, key: UpdateKey) -> bytes:
    """The bytes that are kept of an update, verified."""
    found: list[bytes] = []
    assert updates.read_verified(key, lambda _offset, data: found.append(data))
    return b"".join(found)


def the_file(directory: Path) -> Path:
    """The one file of the attempt."""
    (file,) = (directory / "r1" / "1.1").iterdir()
    return file


def test_updates_that_come_whole_share_one_file_and_are_found_after_a_restart(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path)
    updates.add_last([ANN, BOB])
    updates.add_last([CEM])
    assert the_file(tmp_path).stat().st_mode & 0o777 == 0o600
    for files in (updates, UpdateFiles(tmp_path)):
        files.load(REF)
        for key, _, data in (ANN, BOB, CEM):
            assert content(files, key) == data
            assert (files.received(key), files.size(key)) == (len(data) // 8 * 8, len(data))
        assert files.has_other(UpdateKey(REF, "ann", b"e" * 32))
        assert not files.has_other(UpdateKey(REF, "dan", b"e" * 32))


def test_an_update_larger_than_a_chunk_is_read_in_chunks(tmp_path: Path) -> None:
    key, _, data = large = update("ann", bytes(range(256)) * (CHUNK_BYTES // 256) + b"12345678")
    updates = UpdateFiles(tmp_path)
    updates.add_last([large, BOB])
    assert [(offset, len(part)) for offset, part in updates.chunks(key)] == [(0, CHUNK_BYTES), (CHUNK_BYTES, 8)]
    assert content(updates, key) == data


def test_the_last_chunk_of_an_update_in_several_goes_to_its_own_file(tmp_path: Path) -> None:
    key, _, data = update("ann", b"12345678abcdefgh")
    updates = UpdateFiles(tmp_path)
    updates.add(key, 0, data[:8])
    updates.add_last([(key, 8, data[8:]), BOB])
    assert content(updates, key) == data
    assert content(updates, BOB[0]) == BOB[2]


@pytest.mark.parametrize("cut", range(1, len("+cem@") + 64 + len(" 8\n") + len(CEM[2]) + 1))
def test_an_update_that_a_crash_cut_off_does_not_count_and_is_written_over(tmp_path: Path, cut: int) -> None:
    UpdateFiles(tmp_path).add_last([ANN, CEM])
    file = the_file(tmp_path)
    os.truncate(file, file.stat().st_size - cut)
    updates = UpdateFiles(tmp_path)
    assert content(updates, ANN[0]) == ANN[2]
    assert updates.received(CEM[0]) == 0
    assert not updates.read_verified(CEM[0], lambda *_: None)
    updates.add_last([BOB])
    assert content(UpdateFiles(tmp_path), BOB[0]) == BOB[2]
    assert UpdateFiles(tmp_path).received(CEM[0]) == 0


def test_bytes_of_an_update_that_was_cut_off_are_never_taken_for_another_update(tmp_path: Path) -> None:
    """A participant chooses its bytes, so they may look like the line of another participant's update."""
    victim = UpdateKey(REF, "bob", b"v" * 32)
    forged = b"+bob@%s 8\n12345678" % victim.sha256.hex().encode()
    UpdateFiles(tmp_path).add_last([update("ann", forged * 50)])
    file = the_file(tmp_path)
    os.truncate(file, file.stat().st_size - 1)
    updates = UpdateFiles(tmp_path)
    for size in (8, 16, 24, 32):
        updates.add_last([update("cem", b"x" * size)])
        again = UpdateFiles(tmp_path)
        assert again.received(victim) == 0
        assert not again.has_other(UpdateKey(REF, "bob", b"w" * 32))


def test_a_forgotten_update_stays_forgotten_and_can_be_sent_again(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path)
    updates.add_last([ANN, BOB])
    updates.forget(ANN[0])
    for files in (updates, UpdateFiles(tmp_path)):
        assert (files.received(ANN[0]), files.size(ANN[0])) == (0, 0)
        assert content(files, BOB[0]) == BOB[2]
    updates.add_last([ANN])
    assert content(UpdateFiles(tmp_path), ANN[0]) == ANN[2]


def test_of_an_update_that_came_twice_the_later_one_counts(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path)
    updates.add_last([ANN, BOB])
    damaged = bytearray(the_file(tmp_path).read_bytes())
    damaged[damaged.index(ANN[2])] ^= 1
    the_file(tmp_path).write_bytes(damaged)
    assert not UpdateFiles(tmp_path).read_verified(ANN[0], lambda *_: None)
    UpdateFiles(tmp_path).add_last([ANN])
    assert content(UpdateFiles(tmp_path), ANN[0]) == ANN[2]


def test_a_file_of_zeros_as_after_a_power_cut_holds_no_updates(tmp_path: Path) -> None:
    UpdateFiles(tmp_path).add_last([ANN, BOB])
    the_file(tmp_path).write_bytes(bytes(the_file(tmp_path).stat().st_size))
    updates = UpdateFiles(tmp_path)
    assert [updates.received(one[0]) for one in (ANN, BOB)] == [0, 0]
    updates.add_last([BOB])
    assert content(UpdateFiles(tmp_path), BOB[0]) == BOB[2]


def test_after_a_full_disk_what_was_kept_is_there_and_the_rest_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = UpdateFiles(tmp_path)
    updates.add_last([ANN])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("aggregator.store.update_files.os.fdopen", full)
        with pytest.raises(StoreFailed, match="cannot be kept"):
            updates.add_last([BOB, CEM])
    assert [updates.received(one[0]) for one in (ANN, BOB, CEM)] == [24, 0, 0]
    updates.add_last([BOB, CEM])
    for key, _, data in (ANN, BOB, CEM):
        assert content(updates, key) == data
