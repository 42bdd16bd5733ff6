"""Verifies hash-chained logs: the aggregator's audit log, whose entries are signed, and readers' checkpoints of a log.

The chain alone proves that no entry was changed. Only a reader who kept the last entry, a checkpoint, can prove that
the end of the log was not cut off.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dcfpca.errors import BadInput, BadMessage, Refused
from dcfpca.pki.keys import write_file
from dcfpca.v1.admin_pb2 import AuditEntry

GENESIS = bytes(32)
"""The previous hash of the first entry."""

_LABEL = b"dcfpca/v1/audit"


def entry_hash(entry: AuditEntry) -> bytes:
    """SHA-256 over every field of the entry but its hash and signature, each prefixed with its length."""
    fields = (str(entry.sequence), str(entry.at_ms), entry.actor, entry.action, entry.run_id, entry.detail)
    # Lengths, not separators: the detail is free text, which could contain any separator.
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

    The signed hash of a withheld entry stands in for its content: it can be neither changed, added nor left out.
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


@dataclass(frozen=True, slots=True)
class ChainCheckpoint:
    """The last entry of a log: its sequence number and its hash."""

    sequence: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.sequence} {self.hash.hex()}"


def verify_checkpoint(path: Path, hashes: Mapping[int, bytes], what: str) -> ChainCheckpoint | None:
    """The checkpoint of the log as it is now, for `save_checkpoint`; None for an empty log.

    `hashes` is the log, by sequence number. Raises Refused if the checkpoint in the file is no longer part of the log.
    """
    saved = _read(path)
    if saved is not None and hashes.get(saved.sequence) != saved.hash:
        sentence = f"{what} was cut off or rewritten: entry {saved.sequence} is not what it was at the last check"
        raise Refused(sentence, f"keep {path}, which proves it, and ask whoever runs the log")
    last = max(hashes, default=0)
    return ChainCheckpoint(last, hashes[last]) if last else None


def save_checkpoint(path: Path, checkpoint: ChainCheckpoint | None) -> None:
    """Write the checkpoint for the next comparison; without one, nothing."""
    if checkpoint is not None:
        write_file(path, json.dumps({"sequence": checkpoint.sequence, "hash": checkpoint.hash.hex()}).encode() + b"\n")


def _read(path: Path) -> ChainCheckpoint | None:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        checkpoint = ChainCheckpoint(saved["sequence"], bytes.fromhex(saved["hash"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "check --seen") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        checkpoint = ChainCheckpoint(0, b"")
    if type(checkpoint.sequence) is not int or len(checkpoint.hash) != 32:
        hint = "name another file with --seen; a missing one is created"
        raise BadInput(f"{path} is not a checkpoint of a log", hint)
    return checkpoint
