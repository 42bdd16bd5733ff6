"""Private keys: creation, storage, loading and signatures. Elliptic curves P-256 and P-384 only."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from dcfpca.atomic_files import sync_directory
from dcfpca.errors import BadIdentity, BadInput, Refused

# RFC 6979: no signature can leak the key through a poor random number, and a repeat yields the same bytes.
_SIGNATURE = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_ROOT = 0


def new_private_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS #8 PEM, unencrypted because services start unattended; the file's mode protects it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key that only its owner can read."""
    return parse_private_key(read_private_file(path), str(path))


def read_private_file(path: Path) -> bytes:
    """Read a file whose mode keeps others out; refuse it otherwise."""
    try:
        with path.open("rb") as file:
            check_mode(os.fstat(file.fileno()), path, os.geteuid())
            return file.read()
    except OSError as error:
        hint = "check the path and that this user may read it"
        raise BadIdentity(f"the private key {path} cannot be read: {error.strerror}", hint) from None


def check_mode(status: os.stat_result, path: Path, user: int) -> None:
    """Raise unless only its owner can read the key; a mounted secret, owned by root, may be group-readable."""
    mode = stat.S_IMODE(status.st_mode)
    mounted_by_root = status.st_uid == _ROOT and user != _ROOT
    forbidden = 0o037 if mounted_by_root else 0o077
    if mode & forbidden:
        sentence = f"the private key {path} can be read or changed by other users (mode {mode:04o})"
        raise BadIdentity(sentence, f"chmod 600 {path}; if others had access, make a new key and revoke the old one")


def parse_private_key(pem: bytes, where: str) -> ec.EllipticCurvePrivateKey:
    """Read a PEM private key; `where` names it in errors, which never show its content."""
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        hint = f"services start unattended: openssl pkey -in {where} -out plain.key, then chmod 600 plain.key"
        raise BadIdentity(f"the private key {where} is encrypted with a passphrase", hint) from None
    except (ValueError, UnsupportedAlgorithm):
        hint = "it should begin with -----BEGIN PRIVATE KEY-----; make one with `dcfpca certs request`"
        raise BadIdentity(f"{where} is not a PEM private key", hint) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadIdentity(f"the private key {where} is not an elliptic curve key", _CURVE_HINT)
    check_public_key(key.public_key(), f"the private key {where}")
    return key


_CURVE_HINT = "keys are EC P-256 or P-384; make one with `dcfpca certs request`"


def check_public_key(key: object, whose: str) -> ec.EllipticCurvePublicKey:
    """The key, if it is of a kind this consortium uses."""
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadIdentity(f"{whose} does not hold an elliptic curve key", _CURVE_HINT)
    if not isinstance(key.curve, _CURVES):
        raise BadIdentity(f"{whose} uses the curve {key.curve.name}", _CURVE_HINT)
    return key


def public_der(key: ec.EllipticCurvePublicKey) -> bytes:
    """SubjectPublicKeyInfo, the form in which keys are compared."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of the public key, hex: the fingerprint that people compare before a certificate is signed."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(public_der(key))
    return digest.finalize().hex()


def sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """ECDSA with SHA-256, deterministic; the caller's data begins with a label that says what is signed."""
    return key.sign(data, _SIGNATURE)


def verify(key: ec.EllipticCurvePublicKey, signature: bytes, data: bytes) -> bool:
    """True if `signature` was made over exactly `data` by the holder of `key`."""
    try:
        key.verify(signature, data, _SIGNATURE)
    except InvalidSignature:
        return False
    return True


PUBLIC = 0o644
SECRET = 0o600


def write_file(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Write and replace atomically."""
    temporary = _write_beside(path, data, mode)
    temporary.replace(path)
    sync_directory(path.parent)


def write_new_key(path: Path, pem: bytes, *, force: bool = False) -> None:
    """Write a private key for its owner only; an existing file stays unless `force`."""
    if force:
        write_file(path, pem, SECRET)
        return
    temporary = _write_beside(path, pem, SECRET)
    try:
        # A link fails where a rename would replace, so no other process can lose its key between test and write.
        os.link(temporary, path)
    except FileExistsError:
        refuse_existing_key(path)
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def refuse_existing_key(path: Path) -> None:
    """Raise if the file exists, because an overwritten key cannot be recovered."""
    if path.exists():
        hint = "choose another directory with --out, or replace the key with --force"
        raise Refused(f"there is a private key at {path} already", hint)


def make_directory(path: Path) -> None:
    """Make a directory accessible to its owner only; an existing one is left unchanged."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadInput(f"the directory {path} cannot be made: {error.strerror}", "name another directory") from None


def _write_beside(path: Path, data: bytes, mode: int) -> Path:
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", "name a directory you may write to") from None
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return Path(name)
