"""The audit log: who did what when, each entry chained to the one before and signed by the aggregator.

A participant may read it, too: entries that do not concern it are reduced to their place in the chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aggregator.store.database_port import Database
from dcfpca.errors import BadInput
from dcfpca.identity import Identity, Role
from dcfpca.v1.admin_pb2 import AuditEntry
from dcfpca.wire.audit_chain import GENESIS, entry_hash, withheld

# The columns of the table are the fields of the message.
_COLUMNS = ("sequence", "at_ms", "actor", "action", "run_id", "detail", "previous", "hash", "signature", "certificate")
_INSERT = (
    "INSERT INTO audit (sequence, at_ms, actor, action, run_id, detail, previous, hash, signature, certificate)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT = (
    "SELECT sequence, at_ms, actor, action, run_id, detail, previous, hash, signature, certificate FROM audit"
    " WHERE sequence > ? ORDER BY sequence LIMIT ?"
)
_LAST = "SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1"
_LAST_CERTIFICATE = "SELECT certificate FROM audit WHERE certificate != ? ORDER BY sequence DESC LIMIT 1"
_FIRST_ACTOR = "SELECT actor FROM audit ORDER BY sequence LIMIT 1"
_NO_LIMIT = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Signer:
    """The aggregator's identity: how it signs, and the certificate that others verify with."""

    sign: Callable[[bytes], bytes]
    certificate: bytes


def append(
    db: Database, signer: Signer, *, at_ms: int, actor: str, action: str, run_id: str, detail: Mapping[str, object]
) -> AuditEntry:
    """Append an entry; it contains the certificate only where that differs from the one used before."""
    with db.transaction():
        last = db.execute(_LAST).fetchone() or (0, GENESIS)
        used = db.execute(_LAST_CERTIFICATE, (b"",)).fetchone()
        entry = AuditEntry(
            sequence=last[0] + 1,
            at_ms=at_ms,
            actor=actor,
            action=action,
            run_id=run_id,
            detail=json.dumps(detail, sort_keys=True, separators=(",", ":")),
            previous=last[1],
            certificate=b"" if used and used[0] == signer.certificate else signer.certificate,
        )
        entry.hash = entry_hash(entry)
        entry.signature = signer.sign(entry.hash)
        db.execute(_INSERT, tuple(getattr(entry, name) for name in _COLUMNS))
    return entry


def entries(db: Database, after: int = 0, limit: int = _NO_LIMIT) -> list[AuditEntry]:
    """The entries after this sequence number, `limit` at most; only the whole log can be verified."""
    rows = db.execute(_SELECT, (after, limit)).fetchall()
    return [AuditEntry(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def check_consortium(db: Database, consortium: str) -> None:
    """Raise BadInput when the log, which begins with the start of an aggregator, began with one of another consortium.

    Its runs, its participants and whom it turned away are another consortium's, and names may be the same in both.
    """
    first = db.execute(_FIRST_ACTOR).fetchone()
    found = Identity.parse(first[0]).consortium if first else consortium
    if found != consortium:
        hint = "check [store] and [server] cert: one of them belongs to another aggregator"
        raise BadInput(f"the store is that of the consortium {found!r}, and this aggregator's is {consortium!r}", hint)


def shown_to(reader: Identity, entry: AuditEntry, invited: Callable[[str], bool]) -> AuditEntry:
    """The entry as this reader gets it: whole, or with nothing but its place in the chain.

    Operators read everything. `invited` tells whether the reader may take part in a run.
    """
    return entry if reader.role is Role.OPERATOR or _concerns(reader, entry, invited) else withheld(entry)


def _concerns(reader: Identity, entry: AuditEntry, invited: Callable[[str], bool]) -> bool:
    actor = Identity.parse(entry.actor)
    if actor == reader:
        return True
    if actor.role is Role.PARTICIPANT or _names_another(reader, entry):
        return False
    return not entry.run_id or invited(entry.run_id)


def _names_another(reader: Identity, entry: AuditEntry) -> bool:
    """True if an operator's act was about another participant: revoked, restored, or its export fetched."""
    detail = json.loads(entry.detail)
    about = {detail[key] for key in ("participant", "name") if key in detail}
    return bool(about - {reader.name})
