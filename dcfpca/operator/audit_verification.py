"""Verifies the aggregator's audit log against the consortium's CA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from cryptography import x509

from dcfpca.audit_chain import verify_log
from dcfpca.errors import BadIdentity, Refused
from dcfpca.identity import Role
from dcfpca.pki import parse_certificate, verify, verify_peer
from dcfpca.v1 import admin_pb2 as pb


def verify_audit_log(entries: Iterable[pb.AuditEntry], authorities: Sequence[x509.Certificate]) -> int:
    """The number of entries; raises at the first one that breaks the chain or that no aggregator of ours signed."""
    try:
        return verify_log(entries, lambda der, signature, data: _is_signed(der, signature, data, authorities))
    except BadIdentity as error:
        hint = "check --ca; if it is your consortium's, the log was not written by your aggregator"
        raise Refused(f"the audit log is not signed by an aggregator of this CA: {error}", hint) from error


def _is_signed(der: bytes, signature: bytes, data: bytes, authorities: Sequence[x509.Certificate]) -> bool:
    """Checks an expired certificate as of its last valid moment: what it signed before it expired stays signed."""
    certificate = parse_certificate(der)
    when = min(datetime.now(UTC), certificate.not_valid_after_utc)
    _, key = verify_peer(der, authorities, frozenset(), Role.AGGREGATOR, when)
    return verify(key, signature, data)
