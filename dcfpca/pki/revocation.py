"""Reading revocation lists: X.509 CRLs signed by an authority of the bundle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from dcfpca.errors import BadIdentity
from dcfpca.pki.keys import check_public_key
from dcfpca.pki.marks import serial_mark

_PEM_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


def load_revocations(path: Path, authorities: Sequence[x509.Certificate], now: datetime) -> frozenset[str]:
    """Marks of what the lists in a PEM file revoke; during a change of CA it holds one list of each."""
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = "copy crl.pem from the holder of the CA; `dcfpca certs init` writes an empty one"
        raise BadIdentity(f"the revocation list {path} cannot be read: {error.strerror}", hint) from None
    lists = [_read_list(pem, path) for pem in _PEM_CRL.findall(data)]
    if not lists:
        raise BadIdentity(f"{path} holds no PEM revocation list", "it should begin with -----BEGIN X509 CRL-----")
    for crl in lists:
        _check_list(crl, path, authorities, now)
    return frozenset(serial_mark(crl.issuer, line.serial_number) for crl in lists for line in crl)


def _read_list(pem: bytes, path: Path) -> x509.CertificateRevocationList:
    try:
        return x509.load_pem_x509_crl(pem)
    except (ValueError, x509.InvalidVersion):
        hint = "copy it again from the holder of the CA"
        raise BadIdentity(f"the revocation list {path} cannot be decoded", hint) from None


def _check_list(
    crl: x509.CertificateRevocationList, path: Path, authorities: Sequence[x509.Certificate], now: datetime
) -> None:
    """A list nobody trusted has signed could revoke anybody, and a stale one misses somebody."""
    if not any(_signed_by(crl, authority) for authority in authorities):
        hint = "use the crl.pem that lies beside the ca.crt in use"
        raise BadIdentity(f"the revocation list {path} is not signed by a trusted CA", hint)
    if crl.next_update_utc is not None and crl.next_update_utc < now:
        hint = "get the present list from the holder of the CA"
        raise BadIdentity(f"the revocation list {path} was superseded on {crl.next_update_utc:%Y-%m-%d}", hint)


def _signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if crl.issuer != authority.subject:
        return False
    try:
        return crl.is_signature_valid(check_public_key(authority.public_key(), "the CA certificate"))
    except (TypeError, UnsupportedAlgorithm):
        return False
