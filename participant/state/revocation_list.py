"""The consortium's revocation list, fetched through the aggregator and kept: the latest one that this site has seen.

The aggregator only carries it. The CA signed it, and an earlier issue than the one kept is refused. So an aggregator
can hold a new list back until the one kept runs out; it can neither invent one nor bring a revoked peer back by an old
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from dcfpca.errors import BadIdentity
from dcfpca.pki.key_files import write_file
from dcfpca.pki.revocation import RevocationLists, read_list_file, read_trusted_lists

FILE = "crl.pem"
_FETCHED = "from the aggregator"


@dataclass(frozen=True, slots=True)
class KeptRevocationList:
    """The list in the state directory of a site; there is none before the first was fetched."""

    path: Path

    @classmethod
    def in_state(cls, directory: Path) -> KeptRevocationList:
        """The one in this state directory."""
        return cls(directory / FILE)

    def read(self, authorities: Sequence[x509.Certificate], now: datetime) -> RevocationLists | None:
        """What is kept; raises BadIdentity when it is damaged or has run out, for then nobody can be believed."""
        if not self.path.exists():
            return None
        return read_trusted_lists(read_list_file(self.path), str(self.path), authorities, now)

    def take(self, pem: bytes, authorities: Sequence[x509.Certificate], now: datetime) -> bool:
        """Keep a list that was fetched; whether it is another one. Raises BadIdentity and keeps what there was."""
        kept = self.path.read_bytes() if self.path.exists() else b""
        if pem == kept:
            return False
        if not pem:
            raise BadIdentity("the aggregator has no revocation list", "its operator sets [server] crl")
        fetched = read_trusted_lists(pem, _FETCHED, authorities, now)
        if kept and fetched.is_older_than(self._seen(kept, authorities)):
            hint = "ask the aggregator's operator for the present list; this site goes on with the one it has"
            raise BadIdentity("the revocation list from the aggregator is older than the one seen before", hint)
        if not fetched.issues:
            hint = "the aggregator needs the crl.pem of this consortium's CA"
            raise BadIdentity("the revocation list from the aggregator is not signed by a trusted CA", hint)
        write_file(self.path, pem)
        return True

    def _seen(self, kept: bytes, authorities: Sequence[x509.Certificate]) -> RevocationLists:
        """What is kept, also where it has run out: a list that has is still not to be followed by an older one."""
        return read_trusted_lists(kept, str(self.path), authorities, datetime.min.replace(tzinfo=UTC))
