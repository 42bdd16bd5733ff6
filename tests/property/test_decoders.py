"""Every decoder there is, on damaged input: it reads it or refuses it in a sentence; it never crashes, hangs or swells.

The long form: DCFPCA_FUZZ_CASES=100000 pytest tests/property/test_decoders.py --timeout=7200
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf.message import DecodeError

from aggregator.config import load_config as load_aggregator_config
from aggregator.run import events
from aggregator.run.state import Run
from aggregator.store import codec as store_codec
from dcfpca import wire
from dcfpca.audit import entry_hash, verify_log
from dcfpca.cli.connection import connect_settings
from dcfpca.errors import DcfpcaError
from dcfpca.heads import check_seen
from dcfpca.identity import Identity, Role
from dcfpca.methods import method_of
from dcfpca.pki import Authority, create_authority, load_private_key, load_revocations, verify_peer
from dcfpca.pki.directory import issue_certificate, list_records, revoke_certificates
from dcfpca.pki.index import read_index
from dcfpca.pki.keys import new_private_key
from dcfpca.pki.requests import Wanted, new_request, read_request
from dcfpca.spec import parse_spec, parse_spec_toml
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.admin_pb2 import AuditEntry
from participant.arrays import read_arrays, write_arrays
from participant.codec import decode, fate_of
from participant.config import load_config as load_participant_config
from participant.ledger import Item, verify
from participant.results import load_features, load_model, read_manifests
from participant.store import DATABASE, Store
from tests.support.damage import damaged

CASES = int(os.environ.get("DCFPCA_FUZZ_CASES", "300"))
SEED = int(os.environ.get("DCFPCA_FUZZ_SEED", "1"))
LARGEST = 64 << 20
ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)


@dataclass(frozen=True)
class Decoder:
    """Sound input, and how it is read."""

    sound: bytes
    read: Callable[[bytes], object]
    slow: int = 1
    """How many times fewer cases it gets."""


def from_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A decoder of files, given bytes."""

    def call(body: bytes) -> object:
        path.write_bytes(body)
        path.chmod(0o600)
        return read(path)

    return call


def assignment(folder: Path) -> Decoder:
    ref = types.RoundRef(run_id="run-1", round=2, attempt=1)
    keys = pb.AdvertisedKeys(participant="ann", sealing_key=bytes(32), masking_key=bytes(32), signature=bytes(70))
    relayed = pb.KeysRelayed(ref=ref, roster=["ann", "bob"], root=bytes(32), path=[bytes(32)], keys=[keys])
    sound = pb.Assignment(run_id="run-1", key="k", keys_relayed=relayed).SerializeToString()
    return Decoder(sound, lambda body: decode(pb.Assignment.FromString(body)))


def opened(folder: Path) -> Decoder:
    ref = types.RoundRef(run_id="run-1", round=2, attempt=1)
    header = types.TensorHeader(dtype=1, rows=3, columns=2, sha256=bytes(32))
    told = pb.RoundOpened(
        ref=ref, spec_sha256=bytes(32), cohort=["ann", "bob"], consensus=header, inline_consensus=b"12"
    )
    sound = pb.Assignment(run_id="run-1", round_opened=told).SerializeToString()
    return Decoder(sound, lambda body: decode(pb.Assignment.FromString(body)))


def receipt(folder: Path) -> Decoder:
    sound = types.Receipt(fate=1, reason="well").SerializeToString()
    return Decoder(sound, lambda body: fate_of(types.Receipt.FromString(body)))


def tensor(folder: Path) -> Decoder:
    payload = np.arange(8.0).tobytes()
    layout = method_of(parse_spec({"rows": 4, "rank": 2})).update_layout(1)
    header = wire.header_of(payload, layout, types.DTYPE_FLOAT64)
    header.rows, header.columns, header.scalars = 4, 2, 0
    parts = [types.TensorPart(header=header), *(types.TensorPart(chunk=chunk) for chunk in wire.chunks(payload))]
    sound = b"".join(len(one).to_bytes(2, "big") + one for one in (part.SerializeToString() for part in parts))

    def read(body: bytes) -> object:
        size = int.from_bytes(body[:2], "big")
        assembly = wire.Assembly(types.TensorPart.FromString(body[2 : 2 + size]).header)
        assembly.add(types.TensorPart.FromString(body[4 + size :]).chunk)
        return wire.to_array(header, assembly.finish())

    return Decoder(sound, read)


def spec(folder: Path) -> Decoder:
    keys = {"rows": 9, "rank": 2, "participants": ("ann", "bob", "cem"), "features_sha256": "a" * 64, "export": True}
    return Decoder(parse_spec(keys).canonical(), parse_spec)


def spec_file(folder: Path) -> Decoder:
    sound = (ROOT / "deploy/config/spec.toml").read_bytes()
    return Decoder(sound, lambda body: parse_spec_toml(body.decode("latin-1"), "spec.toml"))


def stored_event(folder: Path) -> Decoder:
    event = events.UpdateReceived(at=1.5, participant="ann", round=1, attempt=1, sha256=bytes(range(32)), size=64)
    return Decoder(store_codec.dump_event(event), store_codec.load_event)


def stored_run(folder: Path) -> Decoder:
    return Decoder(store_codec.dump_run(Run(run_id="r", created_at=1.0, operator="op")), store_codec.load_run)


def stored_consensus(folder: Path) -> Decoder:
    begin = method_of(parse_spec({"rows": 9, "rank": 2})).begin()
    return Decoder(store_codec.dump_consensus(begin), store_codec.load_consensus)


def step_file(folder: Path) -> Decoder:
    with (folder / "sound").open("wb") as file:
        checksum = write_arrays(file, {"update": np.arange(6.0), "site.S": np.zeros((2, 3))})
    sound = (folder / "sound").read_bytes()
    return Decoder(sound, from_file(folder / "step", lambda path: read_arrays(path, checksum)))


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
    read = from_file(folder / "head", lambda path: check_seen(path, {1: b"\xab" * 32}, "the log"))
    return Decoder(sound, read)


def aggregator_config(folder: Path) -> Decoder:
    sound = (ROOT / "deploy/config/aggregator.toml").read_bytes()
    return Decoder(sound, from_file(folder / "aggregator.toml", load_aggregator_config))


def participant_config(folder: Path) -> Decoder:
    sound = (ROOT / "deploy/config/participant.toml").read_bytes()
    return Decoder(sound, from_file(folder / "participant.toml", load_participant_config))


def operator_config(folder: Path) -> Decoder:
    nothing: dict[str, str | None] = dict.fromkeys(("aggregator", "ca", "cert", "key"))
    sound = (ROOT / "deploy/config/operator.toml").read_bytes()
    return Decoder(sound, from_file(folder / "operator.toml", lambda path: connect_settings(nothing, path)))


def manifest(folder: Path) -> Decoder:
    sound = (
        b'{"run": "r", "method": "subspace", "rounds": 3, "rank": 2, "outcome": "done", "files": {"L.npy": {}}, '
        b'"spec": {"features": ["a", "b"]}}'
    )
    (folder / "r").mkdir()

    def read(path: Path) -> object:
        return read_manifests(folder), load_features(folder, "r")

    return Decoder(sound, from_file(folder / "r" / "manifest.json", read))


def model(folder: Path) -> Decoder:
    (folder / "r").mkdir()
    np.save(folder / "U.npy", np.arange(12.0).reshape(6, 2))
    sound = (folder / "U.npy").read_bytes()
    return Decoder(sound, from_file(folder / "r" / "U.npy", lambda path: load_model(folder, "r")))


def authority_in(folder: Path) -> Authority:
    return create_authority(folder / "ca", "acme", NOW)


def site_of(authority: Authority) -> x509.Certificate:
    wanted = Wanted(Identity("acme", Role.PARTICIPANT, "ann"), (), new_private_key().public_key())
    return issue_certificate(authority, wanted, NOW)


def certificate(folder: Path) -> Decoder:
    authority = authority_in(folder)

    def read(body: bytes) -> object:
        return verify_peer(body, [authority.certificate], frozenset(), None, NOW)

    return Decoder(site_of(authority).public_bytes(Encoding.DER), read)


def revocation_list(folder: Path) -> Decoder:
    authority = authority_in(folder)
    site_of(authority)
    revoke_certificates(authority, list_records(authority.directory).records, NOW, x509.ReasonFlags.unspecified)
    read = from_file(folder / "crl.pem", lambda path: load_revocations(path, [authority.certificate], NOW))
    return Decoder(authority.crl_path.read_bytes(), read)


def signing_request(folder: Path) -> Decoder:
    made = new_request(Identity("acme", Role.AGGREGATOR, "agg"), ["agg.example.org"], new_private_key())
    return Decoder(made.public_bytes(Encoding.PEM), lambda body: read_request(body, "agg.csr"))


def private_key(folder: Path) -> Decoder:
    sound = (authority_in(folder).directory / "ca.key").read_bytes()
    return Decoder(sound, from_file(folder / "some.key", load_private_key))


def authority_index(folder: Path) -> Decoder:
    authority = authority_in(folder)
    site_of(authority)
    sound = (authority.directory / "index.json").read_bytes()
    return Decoder(sound, from_file(folder / "index.json", read_index))


def peak_memory() -> int:
    """Most resident bytes since it was last asked."""
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(peak.split()[1]) * 1024


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
    aggregator_config,
    participant_config,
    operator_config,
    manifest,
    model,
    certificate,
    revocation_list,
    signing_request,
    private_key,
    authority_index,
)


@pytest.mark.timeout(7200 if CASES > 10_000 else 120)
@pytest.mark.filterwarnings(
    "ignore:Parsed a serial number", "ignore:Attribute's length", "ignore:.*CryptographyDeprecat"
)
@pytest.mark.parametrize("make", DECODERS, ids=lambda make: make.__name__)
def test_damaged_input_is_read_or_refused_in_a_sentence(tmp_path: Path, make: Callable[[Path], Decoder]) -> None:
    decoder, draw = make(tmp_path), random.Random(f"{SEED} {make.__name__}")
    decoder.read(decoder.sound)
    peak_memory()
    refused, before = 0, peak_memory()
    for _ in range(max(30, CASES // decoder.slow)):
        try:
            decoder.read(damaged(draw, decoder.sound))
        except DecodeError:
            refused += 1
        except DcfpcaError as error:
            refused += bool(str(error))
    assert refused > 0
    assert peak_memory() - before < LARGEST
