"""Verifies the aggregator's audit log: a hash chain whose entries are signed. Any reader can verify it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from dcfpca.errors import BadMessage
from dcfpca.v1.admin_pb2 import AuditEntry

GENESIS = bytes(32)
"""The previous hash of the first entry."""

_LABEL = b"dcfpca/v1/audit"


def entry_hash(entry: AuditEntry) -> bytes:
    """SHA-256 over every field of the entry but its hash and signature, each prefixed with its length."""
    fields = (
        str(entry.sequence),
        str(entry.at_ms),
        entry.actor,
        entry.action,
        entry.run_id,
        entry.detail,
    )
    parts = [_LABEL, *(field.encode() for field in fields), entry.previous, entry.certificate]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


def withheld(entry: AuditEntry) -> AuditEntry:
    """The redacted entry: only its place in the chain, its hash and its signature."""
    return AuditEntry(
        sequence=entry.sequence,
        previous=entry.previous,
        hash=entry.hash,
        signature=entry.signature,
        certificate=entry.certificate,
    )


def is_withheld(entry: AuditEntry) -> bool:
    """True if the aggregator redacted the entry for this reader; all its content is then empty."""
    return entry == withheld(entry)


def all_shown(entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
    """The entries for a reader who may see all of them; raises BadMessage at a redacted one."""
    for entry in entries:
        if is_withheld(entry):
            raise BadMessage(f"the aggregator withholds entry {entry.sequence} of its audit log from an operator")
        yield entry


def verify_log(entries: Iterable[AuditEntry], verify: Callable[[bytes, bytes, bytes], bool]) -> int:
    """Check the whole log from its first entry; `verify(certificate, signature, data)` checks a signature.

    Of entries that are withheld the signed hash stands for what they say: they cannot be changed, added or left out.
    Returns how many entries there are; raises BadMessage at the first one that does not fit.
    """
    previous, certificate, count = GENESIS, b"", 0
    for entry in entries:
        count += 1
        certificate = entry.certificate or certificate
        if entry.sequence != count or entry.previous != previous:
            raise BadMessage(f"entry {entry.sequence} of the audit log does not follow the one before it")
        if not is_withheld(entry) and entry.hash != entry_hash(entry):
            raise BadMessage(f"entry {entry.sequence} of the audit log was changed after it was written")
        if not verify(certificate, entry.signature, entry.hash):
            raise BadMessage(f"entry {entry.sequence} of the audit log is not signed by the aggregator")
        previous = entry.hash
    return count
