"""The consortium's certificates: keys, trust, credentials, and the authority that issues them."""

from dcfpca.pki.credentials import Credentials, load_credentials
from dcfpca.pki.keys import key_fingerprint, load_private_key, sign, verify
from dcfpca.pki.trust import (
    check_role,
    days_left,
    is_revoked,
    load_certificate,
    load_certificates,
    parse_certificate,
    serial_of,
    verify_peer,
)

__all__ = [
    "Credentials",
    "check_role",
    "days_left",
    "is_revoked",
    "key_fingerprint",
    "load_certificate",
    "load_certificates",
    "load_credentials",
    "load_private_key",
    "parse_certificate",
    "serial_of",
    "sign",
    "verify",
    "verify_peer",
]
