"""What comes over the wire or lies in a store: messages, specs, journal, ledger, audit log."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from aggregator.run import events
from aggregator.run.state import Run
from aggregator.store import codec as store_codec
from dcfpca.config_file import parse_toml
from dcfpca.methods import method_of
from dcfpca.run_references import AttemptRef
from dcfpca.spec import parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.admin_pb2 import AuditEntry
from dcfpca.wire import tensors
from dcfpca.wire.audit_chain import entry_hash, verify_checkpoint, verify_log
from participant.state.database import DATABASE
from participant.state.ledger import Item, verify
from participant.state.step_files import read_arrays, write_arrays
from participant.state.store import Store
from participant.wire_codec import decode, fate_of
from tests.support.inputs.chunks import chunks
from tests.support.inputs.decoding import Decoder, from_file
from tests.support.paths import ROOT

NOW = datetime.now(UTC)


def assignment(folder: Path) -> Decoder:
    key = pb.RunKey(participant="ann", key=bytes(32), commitment=bytes(32), binding=bytes(32), signature=bytes(70))
    share = pb.SealedGroupShare(sender="bob", recipient="ann", ciphertext=bytes(48), signature=bytes(70))
    relayed = pb.GroupSharesRelayed(incoming=[share], keys=[key])
    sound = pb.Assignment(run_id="run-1", key="k", group_shares_relayed=relayed).SerializeToString()
    return Decoder(sound, lambda body: decode(pb.Assignment.FromString(body)))


def opened(folder: Path) -> Decoder:
    ref = types.RoundRef(run_id="run-1", round=2, attempt=1)
    header = types.TensorHeader(dtype=types.DTYPE_FLOAT64, rows=3, columns=2, sha256=bytes(32))
    opened = pb.RoundOpened(
        ref=ref, spec_sha256=bytes(32), cohort=["ann", "bob"], consensus=header, inline_consensus=b"12"
    )
    sound = pb.Assignment(run_id="run-1", round_opened=opened).SerializeToString()
    return Decoder(sound, lambda body: decode(pb.Assignment.FromString(body)))


def receipt(folder: Path) -> Decoder:
    sound = types.Receipt(fate=types.FATE_ACCEPTED, reason="well").SerializeToString()
    return Decoder(sound, lambda body: fate_of(types.Receipt.FromString(body)))


def tensor(folder: Path) -> Decoder:
    payload = np.arange(8.0).tobytes()
    layout = method_of(parse_spec({"rows": 4, "rank": 2})).stages[1].up
    header = tensors.header_of(payload, layout, types.DTYPE_FLOAT64)
    header.rows, header.columns, header.scalars = 4, 2, 0
    parts = [
        types.TensorPart(header=header),
        *(types.TensorPart(chunk=chunk) for chunk in chunks(payload)),
    ]
    sound = b"".join(len(one).to_bytes(2, "big") + one for one in (part.SerializeToString() for part in parts))

    def read(body: bytes) -> object:
        size = int.from_bytes(body[:2], "big")
        assembly = tensors.Assembly(types.TensorPart.FromString(body[2 : 2 + size]).header)
        assembly.add(types.TensorPart.FromString(body[4 + size :]).chunk)
        return tensors.to_array(header, assembly.finish().data)

    return Decoder(sound, read)


def spec(folder: Path) -> Decoder:
    keys = {"rows": 9, "rank": 2, "participants": ("ann", "bob", "cem"), "features_sha256": "a" * 64, "export": True}
    return Decoder(parse_spec(keys).canonical(), parse_spec)


def spec_file(folder: Path) -> Decoder:
    sound = (ROOT / "deploy/config/spec.toml").read_bytes()
    return Decoder(sound, lambda body: parse_toml(body.decode("latin-1"), "spec.toml", ""))


def stored_event(folder: Path) -> Decoder:
    event = events.UpdateReceived(
        at=1.5, participant="ann", ref=AttemptRef("r", 1, 1), sha256=bytes(range(32)), size=64
    )
    return Decoder(store_codec.dump_event(event), lambda body: store_codec.load_event(body, "r"))


def stored_run(folder: Path) -> Decoder:
    sound = store_codec.dump_run(Run(run_id="r", created_at=1.0, operator="op"))
    return Decoder(sound, lambda body: store_codec.load_run(body, bytes(32)))


def stored_consensus(folder: Path) -> Decoder:
    begin = method_of(parse_spec({"rows": 9, "rank": 2})).begin()
    return Decoder(store_codec.dump_consensus(begin), store_codec.load_consensus)


def step_file(folder: Path) -> Decoder:
    with (folder / "sound").open("wb") as file:
        write_arrays(file, {"update": np.arange(6.0), "site.S": np.zeros((2, 3))})
    sound = (folder / "sound").read_bytes()
    return Decoder(sound, from_file(folder / "step", read_arrays))


def ledger(folder: Path) -> Decoder:
    made = Store(folder / "made")
    for number in range(40):
        made.ledger.append(Item("answer", "1 signature", 5, bytes(32), "run-1", number, 1), at_ms=number)
    made.close()
    with sqlite3.connect(folder / "made" / DATABASE) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()

    def read(path: Path) -> object:
        for beside in path.parent.glob(f"{DATABASE}-*"):
            beside.unlink()
        store = Store(path.parent)
        try:
            return verify(store.ledger.entries())
        finally:
            store.close()

    (folder / "state").mkdir()
    return Decoder((folder / "made" / DATABASE).read_bytes(), from_file(folder / "state" / DATABASE, read), slow=20)


def audit_log(folder: Path) -> Decoder:
    previous, parts = bytes(32), b""
    for number in (1, 2):
        entry = AuditEntry(sequence=number, at_ms=5, actor="op", action="run_proposed", detail="{}", previous=previous)
        entry.hash = previous = entry_hash(entry)
        one = entry.SerializeToString()
        parts += len(one).to_bytes(2, "big") + one

    def read(body: bytes) -> object:
        found = []
        while body:
            size = int.from_bytes(body[:2], "big")
            found.append(AuditEntry.FromString(body[2 : 2 + size]))
            body = body[2 + size :]
        return verify_log(found, lambda *_: True)

    return Decoder(parts, read)


def head(folder: Path) -> Decoder:
    sound = b'{"sequence": 1, "hash": "' + b"ab" * 32 + b'"}\n'
    read = from_file(folder / "head", lambda path: verify_checkpoint(path, {1: b"\xab" * 32}, "the log"))
    return Decoder(sound, read)


DECODERS = (
    assignment,
    opened,
    receipt,
    tensor,
    spec,
    spec_file,
    stored_event,
    stored_run,
    stored_consensus,
    step_file,
    ledger,
    audit_log,
    head,
)
