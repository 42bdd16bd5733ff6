"""What is stored is what is live: replaying the journal gives the run, whatever happened."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from aggregator.run import events
from aggregator.run.rules import rules_of, step
from aggregator.run.secure_sum import full_roster
from aggregator.run.state import Run
from aggregator.runner import needs_checkpoint
from aggregator.store.codec import dump_consensus, dump_event, dump_run, load_consensus, load_event, load_run
from aggregator.store.database import SqliteDatabase
from aggregator.store.store import Commit
from aggregator.store.update_files import UpdateFiles, UpdateKey
from dcfpca.errors import BadMessage
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, Outcome, Progress, TensorMessage
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import Advert, Misfit, SealedShare
from dcfpca.terms import Terms
from tests.support.runs.rules import NAMES, Machine, spec_of
from tests.support.runs.secure_rules import WaitingRun
from tests.support.runs.stored_runs import load_runs
from tests.support.services.stores import OpenStore

_names = st.sampled_from((*NAMES, "eve"))
_blob = st.binary(max_size=8)
_round = st.integers(0, 2)
_attempt = st.integers(1, 3)
_at = st.floats(0, 1e9)
_ref = st.builds(AttemptRef, st.just("r1"), _round, _attempt)
_advert = st.builds(Advert, _names, _blob, _blob, _blob, _blob, _blob)
_share = st.builds(SealedShare, _names, _names, _blob, _blob)
_misfit = st.builds(Misfit, _names, _blob, _blob, _blob)
_place = {"at": _at, "participant": _names, "ref": _ref}


EVENTS: st.SearchStrategy[events.Event] = st.one_of(
    st.builds(
        events.Responded,
        at=_at,
        participant=_names,
        accept=st.booleans(),
        reasons=st.tuples(st.text(max_size=5)),
        private=st.booleans(),
        signature=_blob,
        fingerprint=st.text(max_size=5),
    ),
    st.builds(events.EnrolmentClosed, at=_at, overdue=st.booleans()),
    st.builds(events.RunKeyAdvertised, at=_at, participant=_names, run_key=_advert),
    st.builds(events.GroupSecretShared, at=_at, participant=_names, shares=st.lists(_share, max_size=2).map(tuple)),
    st.builds(events.MisfitReported, **_place, misfit=_misfit),
    st.builds(events.UpdateReceived, **_place, sha256=_blob, size=st.integers(0, 2**40), tag=st.integers(0, 2**61)),
    st.builds(events.ConsensusReached, at=_at, ref=_ref, outcome=st.sampled_from(["", "done"])),
    st.builds(events.ExportsLost, at=_at, participants=st.lists(_names, max_size=2).map(tuple)),
    st.builds(events.UpdatesLost, at=_at, ref=_ref, reason=st.text(max_size=5)),
    st.builds(events.SumFailed, at=_at, ref=_ref, reason=st.text(max_size=5), fatal=st.booleans()),
    st.builds(
        events.DeadlinePassed,
        at=_at,
        ref=_ref,
        phase=st.sampled_from(["advertising", "sharing", "uploading"]),
    ),
    st.builds(events.Joined, at=_at, participant=_names),
    st.builds(events.Left, at=_at, participant=_names),
    st.builds(events.Aborted, at=_at, reason=st.text(max_size=5)),
    st.builds(events.Resumed, at=_at),
    st.builds(events.ExportRequested, at=_at, export_id=st.just("e1")),
    st.builds(
        events.FileExported,
        at=_at,
        participant=_names,
        export_id=st.sampled_from(["e1", "e2"]),
        artifact=st.sampled_from(["L.npy", "S.npz", "x"]),
        size=st.integers(0, 2**40),
        sha256=_blob,
    ),
    st.builds(events.ExportRefused, at=_at, participant=_names, export_id=st.just("e1"), reason=st.text(max_size=5)),
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_an_event_is_read_back_as_it_was_written(event: events.Event) -> None:
    assert load_event(dump_event(event), "r1") == event


STARTS = [
    Machine().run,
    Machine().enrol(*NAMES).run,
    Machine().enrol(*NAMES).upload("ann", "bob").run,
    WaitingRun().run,
    WaitingRun().advertise().share("ann").run,
    WaitingRun().set_up().update("ann", "bob").run,
    Machine().enrol(*NAMES).upload().reach("done").tell(events.ExportRequested, export_id="e1").run,
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(STARTS), st.lists(EVENTS, max_size=20), st.data())
def test_replaying_the_journal_gives_the_live_run(
    open_store: OpenStore,
    tmp_path_factory: pytest.TempPathFactory,
    start: Run,
    told: list[events.Event],
    data: st.DataObject,
) -> None:
    """Events in batches of any size, as the runner commits them; the store is read back after each."""
    spec = spec_of(aggregation="secure" if start.secure is not None else "plain")
    store = open_store(tmp_path_factory.mktemp("journal") / "store.db")
    if isinstance(store.connection, SqliteDatabase):
        store.connection.execute("PRAGMA synchronous = OFF")
    try:
        start = replace(start, spec_sha256=spec.digest())
        store.create_run(start, spec.canonical(), "request", method_of(spec).begin())
        live, seq, rest, rules = start, 0, list(told), rules_of(Terms.of(spec))
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            batch, rest, before, journal = rest[:size], rest[size:], live, []
            for event in batch:
                after, _ = step(rules, live, event)
                if after is not live:
                    journal.append(event)
                live = after
            if not journal:
                continue
            seq += len(journal)
            store.commit(Commit(run=live, seq=seq, events=journal, checkpoint=needs_checkpoint(before, live)))
            (stored,) = load_runs(store)
            assert stored.run == live
            assert stored.seq == seq
    finally:
        store.close()


def test_shares_of_many_members_stay_in_the_journal_until_the_set_up_is_over(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The square of the members must not become one row; what is loaded is the same, and survives a power cut."""
    monkeypatch.setattr("aggregator.store.store.MOST_SHARES", 2)
    begun = WaitingRun().advertise()
    store = open_store(tmp_path / "store.db")
    try:
        store.create_run(begun.run, begun.spec.canonical(), "request", method_of(begun.spec).begin())
        for seq, name in enumerate(NAMES, start=1):
            before = begun.run
            shares = sorted(begun.sides[name].share(full_roster(begun.fixed)), key=lambda share: share.receiver)
            event = events.GroupSecretShared(at=begun.at, participant=name, shares=tuple(shares))
            begun.run, _ = step(begun.rules, before, event)
            checkpoint = needs_checkpoint(before, begun.run)
            store.commit(Commit(run=begun.run, seq=seq, events=[event], checkpoint=checkpoint))
        assert checkpoint  # the last shares open round 0
        (state,) = store.connection.execute("SELECT state FROM runs").fetchone()
        assert not load_run(bytes(state), begun.run.spec_sha256).secure.shares  # type: ignore[union-attr]
        (stored,) = load_runs(store)
        assert (stored.run, stored.seq) == (begun.run, len(NAMES))
    finally:
        store.close()


@pytest.mark.parametrize("run", STARTS)
def test_a_run_is_read_back_as_it_was_written(run: Run) -> None:
    assert load_run(dump_run(run), run.spec_sha256) == run


def test_a_consensus_is_read_back_bit_by_bit() -> None:
    draw = np.random.default_rng(1)
    memory = {"previous": draw.standard_normal((4, 2)), "count": np.array([3.0])}
    progress = Progress(change=1e-9, rank=2, noise=float("nan"), threshold=0.1, singular_values=draw.standard_normal(2))
    message = TensorMessage(draw.standard_normal((4, 2)), draw.standard_normal(3))
    back = load_consensus(dump_consensus(Consensus(7, "fit", message, memory, progress, Outcome.CONVERGED)))
    assert (back.round, back.stage) == (7, "fit")
    assert back.outcome is Outcome.CONVERGED
    assert np.array_equal(back.broadcast.flat(), message.flat())
    assert {name: value.tolist() for name, value in back.memory.items()} == {
        name: value.tolist() for name, value in memory.items()
    }
    assert np.isnan(back.progress.noise)
    assert np.array_equal(back.progress.singular_values, progress.singular_values)


def ignore(offset: int, data: bytes) -> None:
    """Take a chunk and do nothing with it."""


def test_pieces_of_an_update_are_kept_only_without_a_gap(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path / "updates")
    whole = b"12345678abcdefgh!"
    key = UpdateKey(AttemptRef("r1", 1, 1), "ann", hashlib.sha256(whole).digest())
    updates.add(key, 0, whole[:8])
    with pytest.raises(BadMessage, match="byte 8 was due"):
        updates.add(key, 9, whole[9:])
    assert updates.received(key) == 8
    assert not updates.read_verified(key, ignore)
    updates.add(key, 8, whole[8:])
    updates.add(key, 0, whole[:8])
    assert updates.read_verified(key, ignore)


def test_a_piece_torn_by_a_crash_is_taken_up_at_a_whole_number(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path / "updates")
    whole = b"12345678abcdefghABCDEFGH"
    key = UpdateKey(AttemptRef("r1", 1, 1), "ann", hashlib.sha256(whole).digest())
    updates.add(key, 0, whole[:13])
    assert updates.received(key) == 8
    assert updates.digest_so_far(key).digest() == hashlib.sha256(whole[:8]).digest()
    updates.add(key, 8, whole[8:])
    assert updates.read_verified(key, ignore)


def test_a_different_update_of_the_same_attempt_is_noticed(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path / "updates")
    key = UpdateKey(AttemptRef("r1", 1, 1), "ann", b"d" * 32)
    updates.add(key, 0, b"1234")
    assert not updates.has_other(key)
    assert updates.has_other(UpdateKey(AttemptRef("r1", 1, 1), "ann", b"e" * 32))
    assert not updates.has_other(UpdateKey(AttemptRef("r1", 1, 2), "ann", b"e" * 32))
    assert not updates.has_other(UpdateKey(AttemptRef("r1", 1, 1), "bob", b"e" * 32))


def test_what_arrived_before_a_restart_is_found_again(tmp_path: Path) -> None:
    key, other = (UpdateKey(AttemptRef("r1", 1, 1), "ann", digit * 32) for digit in (b"d", b"e"))
    UpdateFiles(tmp_path / "updates").add(key, 0, b"12345678")
    again = UpdateFiles(tmp_path / "updates")
    assert key.ref not in again.loaded
    again.load(key.ref)
    assert key.ref in again.loaded
    assert again.received(key) == 8
    assert again.has_other(other)
    again.forget(key)
    assert again.received(key) == 0
    assert not again.has_other(other)


def test_questions_about_attempts_that_are_not_open_are_answered_and_not_remembered(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path / "updates")
    key = UpdateKey(AttemptRef("r1", 9, 9), "ann", b"d" * 32)
    assert updates.received(key) == 0
    assert key.ref not in updates.loaded


def test_an_attempt_that_is_over_takes_its_pieces_and_earlier_ones_along_and_no_later_ones(
    open_store: OpenStore, tmp_path: Path
) -> None:
    spec, store = spec_of(), open_store(tmp_path / "store.db")
    run = Run(run_id="r1", created_at=1.0)
    store.create_run(run, spec.canonical(), "request", method_of(spec).begin())
    keys = [UpdateKey(AttemptRef("r1", *place), "ann", b"d" * 32) for place in ((0, 9), (1, 1), (1, 2), (1, 3), (2, 1))]
    for key in keys:
        store.updates.add(key, 0, b"12345678")
    store.commit(Commit(run=run, seq=0, events=[], discard=[AttemptRef("r1", 1, 2)]))
    assert [store.updates.received(key) for key in keys] == [0, 0, 0, 8, 8]
    store.close()


def test_what_was_discarded_is_swept_also_where_chunks_came_after_it(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path / "updates")
    over, open_ = (UpdateKey(AttemptRef("r1", round, 1), "ann", b"d" * 32) for round in (1, 2))
    for _ in range(2):
        updates.add(over, 0, b"12345678")
        updates.add(open_, 0, b"12345678")
        updates.discard(over.ref)
        assert [updates.size(key) for key in (over, open_)] == [0, 8]
    updates.sweep("r1")
    assert [path.name for path in (tmp_path / "updates" / "r1").iterdir()] == ["2.1"]
    assert UpdateFiles(tmp_path / "updates").received(open_) == 8


def test_updates_of_runs_that_ended_elsewhere_are_not_kept(tmp_path: Path) -> None:
    updates = UpdateFiles(tmp_path / "updates")
    keys = [UpdateKey(AttemptRef(run, 1, 1), "ann", b"d" * 32) for run in ("open", "ended")]
    for key in keys:
        updates.add(key, 0, b"12345678")
    again = UpdateFiles(tmp_path / "updates")
    again.keep_only({"open"})
    assert [again.received(key) for key in keys] == [8, 0]


STORED_EVENTS = (
    b'{"at":1.0,"participant":"ann","round":2,"attempt":3,"kind":"update_received","sha256":"ZA==","size":8,"tag":5}',
    b'{"at":1.0,"participant":"ann","round":2,"attempt":3,"kind":"misfit_reported",'
    b'"misfit":{"name":"ann","context":"Yw==","certificate":"eA==","signature":"Zw=="}}',
    b'{"at":1.0,"participant":"ann","round":2,"attempt":3,"kind":"seen_ahead","same_consensus":true}',
)


@pytest.mark.parametrize("body", STORED_EVENTS)
def test_the_stored_layout_of_events_stays_as_it_is(body: bytes) -> None:
    event = load_event(body, "r1")
    assert isinstance(event, events.AttemptMessage)
    assert event.ref == AttemptRef("r1", 2, 3)
    assert json.loads(dump_event(event)) == json.loads(body)


def test_the_stored_layout_of_a_run_stays_as_it_is() -> None:
    stored = json.loads(dump_run(WaitingRun().set_up().update("ann").run))
    assert stored["round"].keys() >= {"round", "attempt", "phase", "opened_at", "updates", "tags"}
    assert stored["fixed_cohort"].keys() >= {"exponents", "adverts", "shares", "roster", "ready", "previous_sum"}
    assert stored["fixed_cohort"]["adverts"]["ann"].keys() == {
        "name",
        "key",
        "kem_key",
        "commitment",
        "binding",
        "certificate",
        "signature",
    }
    assert not stored.keys() & {"spec_sha256", "attempt", "secure"}
