"""The consortium's certificates: keys, trust, credentials, and the authority that issues them."""

from dcfpca.pki.ca_directory import Authority, create_authority, open_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials
from dcfpca.pki.credentials import Credentials, load_credentials
from dcfpca.pki.keys import key_fingerprint, load_private_key, sign, verify
from dcfpca.pki.revocation import load_revocations
from dcfpca.pki.revocation_identifiers import identity_mark, is_revoked, key_mark, marks_of, serial_mark
from dcfpca.pki.trust import (
    check_role,
    load_certificate,
    load_certificates,
    parse_certificate,
    serial_of,
    verify_peer,
)
from dcfpca.pki.validity import SOON_DAYS, whole_days

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
