"""Exports: asked for once, answered with both files or a refusal, never taken from one who enrolled as private."""

from __future__ import annotations

from aggregator.run import events, exports
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES, Machine, spec_of


def finished() -> Machine:
    machine = Machine(spec_of(export=True))
    for name in NAMES:
        machine.say(events.Responded, name, accept=True, private=name == "dag")
    machine.upload().reach("converged")
    return machine.tell(events.ExportRequested, export_id="e1")


def send(machine: Machine, who: str, artifact: str = "L.npy", export_id: str = "e1") -> Fate:
    fields = {"export_id": export_id, "artifact": artifact, "size": 9, "sha256": b"x"}
    return machine.say(events.FileExported, who, **fields).fate


def test_everybody_is_asked_once() -> None:
    machine = finished().tell(events.ExportRequested, export_id="e2")
    assert machine.run.export is not None
    assert machine.run.export.export_id == "e1"
    assert exports.awaited(machine.run) == NAMES


def test_nothing_is_asked_of_a_run_that_is_not_finished() -> None:
    machine = Machine().enrol(*NAMES).tell(events.ExportRequested, export_id="e1")
    assert machine.run.export is None


def test_both_files_make_an_answer() -> None:
    machine = finished()
    assert send(machine, "ann") is Fate.ACCEPTED
    assert "ann" in exports.awaited(machine.run)
    assert send(machine, "ann", "S.npz") is Fate.ACCEPTED
    assert "ann" not in exports.awaited(machine.run)
    assert send(machine, "ann") is Fate.DUPLICATE


def test_a_file_of_a_private_participant_is_rejected_even_if_it_sends_one() -> None:
    machine = finished()
    before = machine.run
    assert send(machine, "dag") is Fate.REJECTED
    assert machine.run is before


def test_a_refusal_is_an_answer_and_stands() -> None:
    machine = finished()
    refusal = {"export_id": "e1", "reason": "private"}
    assert machine.say(events.ExportRefused, "dag", **refusal).fate is Fate.ACCEPTED
    assert "dag" not in exports.awaited(machine.run)
    assert machine.say(events.ExportRefused, "dag", **refusal).fate is Fate.DUPLICATE
    assert send(machine, "dag") is Fate.DUPLICATE
    assert machine.run.export is not None
    assert not machine.run.export.answers["dag"].files


def test_strangers_other_requests_and_other_files_are_rejected() -> None:
    machine = finished()
    before = machine.run
    assert send(machine, "eve") is Fate.REJECTED
    assert send(machine, "ann", export_id="other") is Fate.REJECTED
    assert send(machine, "ann", artifact="../../etc/passwd") is Fate.REJECTED
    assert machine.run is before


def test_files_that_another_machine_received_are_awaited_again_and_a_refusal_stands() -> None:
    machine = finished()
    for who in ("ann", "bob"):
        send(machine, who)
        send(machine, who, "S.npz")
    machine.say(events.ExportRefused, "dag", export_id="e1", reason="private")
    machine.tell(events.ExportsLost, participants=("ann",))
    assert exports.awaited(machine.run) == ("ann", "cem")
    assert send(machine, "ann") is Fate.ACCEPTED


def test_nothing_is_awaited_again_where_nothing_was_exported() -> None:
    machine = Machine().enrol(*NAMES)
    before = machine.run
    assert machine.tell(events.ExportsLost, participants=("ann",)).run is before
