"""A checkpoint of a hash-chained log: its last entry, kept in a file by whoever reads the log.

The chain alone proves that no entry was changed. Only a reader who kept the last entry can prove that the end of the
log was not cut off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dcfpca.errors import BadInput, Refused
from dcfpca.pki.key_files import write_file


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
