"""The consortium's certificates: keys, trust, credentials, and the authority that issues them."""

from dcfpca.pki.ca_directory import Authority, create_authority, open_authority
from dcfpca.pki.credential_files import Credentials, SiteFiles, issue_credentials, load_credentials
from dcfpca.pki.keys import key_fingerprint, load_private_key, sign, verify
from dcfpca.pki.revocation import identity_mark, is_revoked, key_mark, load_revocations, marks_of, serial_mark
from dcfpca.pki.trust import (
    SOON_DAYS,
    check_role,
    load_certificate,
    load_certificates,
    parse_certificate,
    serial_of,
    verify_peer,
    whole_days,
)

__all__ = [
    "SOON_DAYS",
    "Authority",
    "Credentials",
    "SiteFiles",
    "check_role",
    "create_authority",
    "identity_mark",
    "is_revoked",
    "issue_credentials",
    "key_fingerprint",
    "key_mark",
    "load_certificate",
    "load_certificates",
    "load_credentials",
    "load_private_key",
    "load_revocations",
    "marks_of",
    "open_authority",
    "parse_certificate",
    "serial_mark",
    "serial_of",
    "sign",
    "verify",
    "verify_peer",
    "whole_days",
]
