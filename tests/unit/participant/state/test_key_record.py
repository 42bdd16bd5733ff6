"""The key record: overwritten in place, whole after a crash at any moment, and readable by its owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.state import latest
from participant.state.key_record import KeyRecord, read_slots
from tests.support.runs.secure_relay import Relay, opening_of, random_updates, terms_of

A = "site-0000"


def test_both_slots_have_the_last_record_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "run-1.keys"
    record = KeyRecord(path)
    for letter in (b"a", b"b"):
        record.write(letter * 100)
    assert read_slots(path) == (b"b" * 100, b"b" * 100)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_slots(tmp_path / "other.keys") == ()


def test_the_file_is_overwritten_in_place_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run-1.keys"
    KeyRecord(path).write(b"a" * 100)
    before = path.stat().st_ino
    KeyRecord(path).write(b"b" * 100)
    assert path.stat().st_ino == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("bytes_written", [0, 1, 50, 200, 400])
def test_a_crash_at_any_moment_leaves_a_whole_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_written: int, earlier: int
) -> None:
    relay = Relay(terms_of(3)).set_up()
    side, path = relay.sides[A], tmp_path / "run-1.keys"
    record = KeyRecord(path)
    for _ in range(1 + earlier):
        record.write(side.record)
    old = side.state
    side.answer(opening_of(), random_updates([A])[A])
    real, left = os.pwrite, bytes_written

    def cut(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal left
        if left <= 0:
            raise KeyboardInterrupt
        written = real(descriptor, data[:left], offset)
        left -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", cut)
        if bytes_written < 2 * len(side.record):
            with pytest.raises(KeyboardInterrupt):
                record.write(side.record)
    assert latest(read_slots(path), relay.terms.binding) in (old, side.state)
    record.write(side.record)
    assert latest(read_slots(path), relay.terms.binding) == side.state


def test_no_write_changes_the_slot_that_the_disk_has_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run-1.keys"
    record = KeyRecord(path)
    record.write(b"a" * 100)
    on_disk, written = path.read_bytes(), os.pwrite

    def sync(descriptor: int) -> None:
        nonlocal on_disk
        on_disk = os.pread(descriptor, 200, 0)

    def write(descriptor: int, data: bytes, offset: int) -> int:
        count = written(descriptor, data, offset)
        there, held = (on_disk[:100], on_disk[100:]), read_slots(path)
        # A power cut now leaves any mixture of both: the slot that is the same in both is whole.
        assert any(one == other and len(set(one)) == 1 for one, other in zip(there, held, strict=True))
        return count

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fdatasync", sync)
    for letter in b"bcdef":
        record.write(bytes([letter]) * 100)
        assert bytes([letter]) * 100 in on_disk


def test_a_spent_root_and_after_the_end_every_secret_is_gone_from_the_file(tmp_path: Path) -> None:
    relay = Relay(terms_of(3)).set_up()
    side, path = relay.sides[A], tmp_path / "run-1.keys"
    record, spent = KeyRecord(path), set[bytes]()
    for round in range(4):
        side.answer(opening_of(round), random_updates([A])[A])
        record.write(side.record)
        assert not any(root in path.read_bytes() for root in spent)
        spent |= {root for root in side.state.roots if any(root)}
    secret = side.state.group_secret
    assert secret in path.read_bytes()
    side.finish()
    record.write(side.record)
    assert not any(one in path.read_bytes() for one in {*spent, secret})


def test_a_cut_off_or_foreign_file_is_lost_state(tmp_path: Path) -> None:
    path = tmp_path / "run-1.keys"
    KeyRecord(path).write(Relay(terms_of(3)).sides[A].record)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 3], bytes(len(whole))):
        path.write_bytes(content)
        with pytest.raises(errors.LostState):
            latest(read_slots(path), terms_of(3).binding)
