"""What a site has answered with survives a power cut at any moment, also one after a kill or a failed write."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from dcfpca.atomic_files import sync_directory, sync_file
from dcfpca.secagg.site import SecureSite
from dcfpca.secagg.state import latest
from participant.session.events import LocalStep
from participant.state.key_record import KeyRecord, read_slots
from participant.state.step_files import StepFiles
from tests.support.runs.secure_relay import Relay, opening_of, random_updates, terms_of
from tests.support.surroundings.power_cuts import Killed, UnsyncedDisk

A = "site-0000"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (made := tmp_path / "state").mkdir()
    return made


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    numbers = count()
    yield lambda: tmp_path / f"images-{next(numbers)}"
    for left in tmp_path.glob("images-*"):
        shutil.rmtree(left)


def step_of(round: int) -> LocalStep:
    return LocalStep(round, bytes(32), np.full(9, float(round)), {"V": np.full(5, float(round))})


def save(files: StepFiles, round: int) -> None:
    files.save("run-1", step_of(round), "format", durable=True)


def round_on(image: Path) -> int:
    found = StepFiles(image).latest("run-1")
    if found is None:
        return 0
    np.testing.assert_array_equal(found[1].vector, step_of(found[1].round).vector)
    return found[1].round


@pytest.mark.parametrize("killed_at", range(1, 9))
@pytest.mark.parametrize("by", [Killed, OSError])
def test_a_step_that_may_have_been_answered_with_survives_a_power_cut(
    directory: Path, images: Callable[[], Path], killed_at: int, by: type[BaseException]
) -> None:
    disk, syncs, answered = UnsyncedDisk(directory), count(1), 0

    def check() -> None:
        found = [round_on(image) for image in disk.after_power_cuts(images())]
        assert min(found) >= answered, (answered, found)

    def before_sync() -> None:
        check()
        if next(syncs) == killed_at:
            raise by

    disk.before_sync = before_sync
    files = StepFiles(directory)
    for round in range(1, 6):
        with disk.watching():
            try:
                save(files, round)
            except by:
                # A restarted daemon reads what it has, and answers with it; one whose disk failed tries again.
                if by is Killed:
                    files = StepFiles(directory)
                    found = files.latest("run-1")
                    answered = found[1].round if found else 0
                    check()
                if answered < round:
                    save(files, round)
        answered = round
        check()


@pytest.mark.parametrize("killed_at", range(1, 14))
@pytest.mark.parametrize("by", [Killed, OSError])
def test_a_record_that_may_have_been_answered_with_survives_a_power_cut(
    directory: Path, images: Callable[[], Path], killed_at: int, by: type[BaseException]
) -> None:
    relay = Relay(terms_of(3)).set_up()
    side, path = relay.sides[A], directory / "run-1.keys"
    disk, syncs, answered = UnsyncedDisk(directory), count(1), -1

    def record_on(where: Path) -> int:
        slots = read_slots(where / path.name)
        return latest(slots, relay.terms.binding).round if slots else -1

    def check() -> None:
        if answered >= 0:
            assert min(record_on(image) for image in disk.after_power_cuts(images())) >= answered

    def before_sync() -> None:
        check()
        if next(syncs) == killed_at:
            raise by

    disk.before_sync = before_sync
    record = KeyRecord(path)
    for round in range(6):
        side.answer(opening_of(round), random_updates([A])[A])
        with disk.watching():
            try:
                record.write(side.record)
            except by:
                if by is Killed:
                    record = KeyRecord(path)
                record.write(side.record)
        answered = round
        check()


def test_a_second_power_cut_does_not_bring_back_an_earlier_record(directory: Path, images: Callable[[], Path]) -> None:
    """The first left the slots apart; the next write must not begin with the newer one."""
    relay = Relay(terms_of(3)).set_up()
    side, path = relay.sides[A], directory / "run-1.keys"
    records = [_answered(side, round) for round in range(3)]
    for slots in ((records[1], records[0]), (records[0], records[1]), (records[1], b"x" * len(records[0]))):
        path.write_bytes(b"".join(slots))
        disk = UnsyncedDisk(directory)

        def check(disk: UnsyncedDisk = disk) -> None:
            for image in disk.after_power_cuts(images()):
                found = read_slots(image / path.name)
                assert not found or latest(found, relay.terms.binding).round >= 1

        with disk.watching():
            _sync_all(directory)
            disk.before_sync = check
            KeyRecord(path).write(records[2])


def _answered(side: SecureSite, round: int) -> bytes:
    side.answer(opening_of(round), random_updates([A])[A])
    return side.record


def _sync_all(directory: Path) -> None:
    for path in directory.iterdir():
        sync_file(path)
    sync_directory(directory)
