"""Finds certificates in the CA's index by name, role and name, serial number or fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dcfpca.errors import BadInput
from dcfpca.identity import Identity, parse_role
from dcfpca.pki.index import CertificateRecord, Index

_SHORTEST_PREFIX = 8


def choose_identity(index: Index, words: Sequence[str]) -> Identity:
    """The one identity meant by `NAME` or `ROLE NAME`."""
    found = _identities(index, words)
    if not found:
        hint = "`dcfpca certs list` shows the names there are"
        raise BadInput(f"no certificate has been issued to {' '.join(words)!r}", hint)
    if len(found) > 1:
        roles = ", ".join(sorted(str(identity.role) for identity in found))
        raise BadInput(
            f"{words[0]!r} has more than one role: {roles}", f"say which, as in `{roles.split(',')[0]} {words[0]}`"
        )
    return found.pop()


def choose_records(index: Index, words: Sequence[str], now: datetime) -> tuple[CertificateRecord, ...]:
    """The certificates to revoke: those of a name that can still be used, or the one with a serial or fingerprint."""
    if len(words) == 1 and not _identities(index, words):
        return (_by_number(index, words[0]),)
    identity = choose_identity(index, words)
    live = tuple(record for record in index.of(identity) if record.is_live(now))
    if not live:
        raise BadInput(f"{identity} has no certificate that can still be used", "there is nothing to revoke")
    return live


def _identities(index: Index, words: Sequence[str]) -> set[Identity]:
    if len(words) > 2:
        raise BadInput(f"{' '.join(words)!r} is not NAME or ROLE NAME", "give one certificate holder at a time")
    role = parse_role(words[0]) if len(words) == 2 else None
    known = {record.speaks_for() for record in index.records}
    return {identity for identity in known if identity.name == words[-1] and role in (None, identity.role)}


def _by_number(index: Index, number: str) -> CertificateRecord:
    """A serial or fingerprint may be cut to its first 8 digits or more, as long as it fits only one certificate."""
    prefix = number.lower().replace(":", "")
    fits = [r for r in index.records if r.serial.startswith(prefix) or r.fingerprint.startswith(prefix)]
    if len(prefix) < _SHORTEST_PREFIX or not fits:
        hint = "`dcfpca certs list` shows names, serial numbers and fingerprints"
        raise BadInput(f"no certificate has the name, serial number or fingerprint {number!r}", hint)
    if len(fits) > 1:
        raise BadInput(f"{number!r} fits {len(fits)} certificates", "give more digits")
    if fits[0].revoked:
        raise BadInput(
            f"the certificate {fits[0].serial} was revoked on {fits[0].revoked[:10]} already", "nothing was changed"
        )
    return fits[0]
