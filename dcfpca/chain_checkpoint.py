"""How far somebody has seen a chained log: its last entry, noted in a file of one's own.

A chain shows that nothing inside it was changed; that its end was not cut off shows only who remembers the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dcfpca.errors import BadInput, Refused
from dcfpca.pki.files import write_file


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry of a log: its number and its hash."""

    sequence: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.sequence} {self.hash.hex()}"


def check_seen(path: Path, hashes: Mapping[int, bytes], what: str) -> Head | None:
    """Raise Refused unless the log, given as hashes by number, still has the entry noted in the file, if there is one.

    Returns the log's last entry now, for `note_seen`; None for an empty log.
    """
    noted = _read(path)
    if noted is not None and hashes.get(noted.sequence) != noted.hash:
        sentence = f"{what} was cut off or rewritten: it no longer has its entry {noted.sequence} as it was seen before"
        raise Refused(sentence, f"keep {path}, which notes what was seen, and ask whoever keeps the log")
    last = max(hashes, default=0)
    return Head(last, hashes[last]) if last else None


def note_seen(path: Path, head: Head | None) -> None:
    """Note the last entry for the next time."""
    if head is not None:
        write_file(path, json.dumps({"sequence": head.sequence, "hash": head.hash.hex()}).encode() + b"\n")


def _read(path: Path) -> Head | None:
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        head = Head(noted["sequence"], bytes.fromhex(noted["hash"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "check --seen") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        head = Head(0, b"")
    if type(head.sequence) is not int or len(head.hash) != 32:
        hint = "name another file with --seen; one that is not there is made"
        raise BadInput(f"{path} does not note the end of a log", hint)
    return head
