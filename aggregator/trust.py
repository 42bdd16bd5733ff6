"""Verifies callers' certificates against CA bundle and revocations, which are reloaded when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.config import Server
from dcfpca.atomic_files import file_version
from dcfpca.errors import BadIdentity, DcfpcaError
from dcfpca.identity import Identity, Role, fingerprint
from dcfpca.logs import log
from dcfpca.pki.credential_files import Credentials, load_credentials
from dcfpca.pki.revocation import identity_mark, marks_of, read_list_file, read_lists
from dcfpca.pki.trust import check_role, parse_certificate, verify_peer

CHECK_SECONDS = 1.0
"""How often the files are checked; revocation has to take effect within seconds."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a call, identified by its certificate alone. `name` and `title` are taken from its identity."""

    identity: Identity
    name: str
    title: str
    fingerprint: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePublicKey


CALLER: ContextVar[Caller] = ContextVar("caller")
"""Who makes the present call; set by the guard for its duration."""


class Trust:
    """The aggregator's own credentials, and the verification of its callers'."""

    def __init__(self, files: Server, revoked: frozenset[str]) -> None:
        self._files = files
        self._revoked_here = revoked
        self._seen = self._versions()
        self.credentials = self._load()
        self.revocation_list, self._revoked_by_ca = self._load_list(self.credentials)
        self._callers: dict[bytes, Caller] = {}
        self._marks: dict[str, frozenset[str]] = {}

    def caller(self, shown: bytes) -> Caller:
        """The caller with this certificate (PEM or DER); raises BadIdentity when it is invalid, expired or revoked."""
        known = self._callers.get(shown)
        now = datetime.now(UTC)
        if known and known.certificate.not_valid_after_utc > now:
            return known
        identity, key = verify_peer(shown, self.credentials.authorities, frozenset(), None, now)
        certificate = parse_certificate(shown)
        caller = Caller(identity, identity.name, str(identity), fingerprint(certificate), certificate, key)
        self._marks[caller.fingerprint] = marks = marks_of(certificate)
        if not self.revoked.isdisjoint(marks):
            hint = "ask the holder of the CA for a new certificate"
            raise BadIdentity(f"the certificate of {identity} has been revoked", hint)
        self._callers[shown] = caller
        return caller

    def participant_key(self, der: bytes, name: str) -> ec.EllipticCurvePublicKey:
        """The key with which this participant's signatures verify; raises BadIdentity."""
        who = self.caller(der)
        check_role(who.identity, Role.PARTICIPANT)
        if who.name != name:
            raise BadIdentity(f"the certificate of {who.name} was shown for {name}")
        return who.key

    def is_trusted(self, who: Caller) -> bool:
        """True if a caller that was trusted when its call began still is."""
        pem = who.certificate.public_bytes(Encoding.PEM)
        try:
            verify_peer(pem, self.credentials.authorities, self.revoked, None, datetime.now(UTC))
        except DcfpcaError:
            return False
        return True

    def is_revoked(self, name: str, fingerprint: str) -> bool:
        """True if this participant, or the certificate that it showed last, has been revoked by us or by the CA."""
        known = self._marks.get(fingerprint, frozenset())
        return not self.revoked.isdisjoint(known | {fingerprint, self.participant_mark(name)})

    @property
    def revoked(self) -> frozenset[str]:
        """The identifiers of all revoked certificates."""
        return self._revoked_here | self._revoked_by_ca

    def marks_to_revoke(self, name: str, fingerprint: str) -> frozenset[str]:
        """The identifiers that revoke a participant, or one certificate that was shown here (by serial and by key).

        By name all its certificates are turned away, also those that this aggregator has not seen.
        """
        seen = {mark for mark in self._marks.get(fingerprint, ()) if not mark.startswith("identity:")}
        return frozenset(seen | {fingerprint} | ({self.participant_mark(name)} if name else set()))

    def participant_mark(self, name: str) -> str:
        """The identifier of all certificates of a participant of this consortium."""
        return identity_mark(Identity(self.credentials.identity.consortium, Role.PARTICIPANT, name))

    def revoke(self, *marks: str) -> None:
        """Reject certificates with one of these identifiers from now on."""
        self._revoked_here |= set(marks)
        self._callers.clear()

    def restore(self, marks: Iterable[str]) -> None:
        """Undo revocations made here; those of the CA remain."""
        self._revoked_here -= set(marks)

    async def watch(self, changed: Callable[[], None]) -> None:
        """Check the files until cancelled; `changed` is called after they were reloaded."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            seen = self._versions()
            if seen == self._seen:
                continue
            self._seen = seen
            try:
                credentials = self._load()
                self.revocation_list, self._revoked_by_ca = self._load_list(credentials)
            except DcfpcaError as error:
                log("credentials_rejected", level="error", reason=str(error), hint=error.hint)
                continue
            self.credentials = credentials
            self._callers.clear()
            log("credentials_reloaded", not_after=f"{self.credentials.not_after:%Y-%m-%d}")
            changed()

    def _load(self) -> Credentials:
        files = self._files
        return load_credentials(files.ca, files.cert, files.key, now=datetime.now(UTC), role=Role.AGGREGATOR)

    def _load_list(self, mine: Credentials) -> tuple[bytes, frozenset[str]]:
        """The CA's list, which is relayed to participants unchanged, and the identifiers on it."""
        if not self._files.crl:
            return b"", frozenset()
        pem = read_list_file(self._files.crl)
        return pem, read_lists(pem, str(self._files.crl), mine.authorities, datetime.now(UTC)).marks

    def _versions(self) -> list[tuple[int, int, int] | None]:
        paths = (self._files.ca, self._files.cert, self._files.key, self._files.crl)
        return [file_version(path) for path in paths if path]
