"""The identity in a certificate: one URI `spiffe://<consortium>/<role>/<name>` in its subject alternative names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from dcfpca.errors import BadIdentity

MAX_NAME = 63
_SCHEME = "spiffe://"
_FORM = "spiffe://<consortium>/<role>/<name>"
_REMAKE = "use a certificate made with `dcfpca certs`"
# Names become file names and host parts of URIs, so a trailing "." or "-" and ".." are not allowed.
_NAME = re.compile(r"[a-z0-9]+(?:-+[a-z0-9]+)*(?:\.[a-z0-9]+(?:-+[a-z0-9]+)*)*")


class Role(StrEnum):
    """The role of a certificate's holder."""

    AGGREGATOR = "aggregator"
    PARTICIPANT = "participant"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """A role and a name within a consortium; `str()` is the URI of the certificate."""

    consortium: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        check_name(self.consortium, "consortium")
        check_name(self.name, str(self.role))

    def __str__(self) -> str:
        return f"{_SCHEME}{self.consortium}/{self.role}/{self.name}"

    @classmethod
    def parse(cls, uri: str) -> Identity:
        """Read `spiffe://<consortium>/<role>/<name>`; anything else is BadIdentity."""
        parts = uri.removeprefix(_SCHEME).split("/")
        if not uri.startswith(_SCHEME) or len(parts) != 3:
            raise BadIdentity(f"{uri!r} is not an identity", f"an identity has the form {_FORM}")
        consortium, role, name = parts
        return cls(consortium, parse_role(role), name)


def parse_role(word: str) -> Role:
    """Read a role; the error lists the valid ones."""
    try:
        return Role(word)
    except ValueError:
        raise BadIdentity(f"{word!r} is not a role", f"the roles are {', '.join(Role)}") from None


def check_name(name: str, what: str) -> str:
    """Return the name if it is valid in an identity; raises BadIdentity with the rules otherwise."""
    hint = f"use 1 to {MAX_NAME} lower-case letters, digits, hyphens and dots, such as hospital-a or site1.example.org"
    if len(name) > MAX_NAME:
        raise BadIdentity(f"the {what} name {name[:MAX_NAME]!r}… has {len(name)} characters, at most {MAX_NAME}", hint)
    if not _NAME.fullmatch(name):
        raise BadIdentity(f"{name!r} cannot be the name of a {what}", hint)
    return name


def identity_of(certificate: x509.Certificate) -> Identity:
    """The one identity a certificate carries; none or several URIs are BadIdentity."""
    try:
        extensions = certificate.extensions
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise BadIdentity("the certificate's extensions cannot be decoded", _REMAKE) from None
    return identity_in(extensions, "certificate")


def identity_in(extensions: x509.Extensions, what: str) -> Identity:
    """The one identity among the extensions of a certificate or a signing request."""
    hint = f"a {what} of this consortium names exactly one URI {_FORM}; make it with `dcfpca certs`"
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise BadIdentity(f"the {what} has no subject alternative name, so it has no identity", hint) from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise BadIdentity(f"the {what} has {len(uris)} URI names where exactly one is needed", hint)
    return Identity.parse(uris[0])


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the DER encoding, lower-case hex: the form that people compare and revocation lists use."""
    return certificate.fingerprint(hashes.SHA256()).hex()
