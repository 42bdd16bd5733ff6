"""Certificates as an attacker without the CA's key can change them: other signatures, other encodings, damage."""

from __future__ import annotations

import random
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def twisted(certificate: x509.Certificate, order: int = P256_ORDER) -> bytes:
    """The same certificate under (r, n − s), the other valid form of the CA's signature."""
    r, s = decode_dss_signature(certificate.signature)
    return with_signature(certificate, encode_dss_signature(r, order - s))


def twisted_pem(pem: bytes) -> bytes:
    """The same for a PEM file."""
    other = x509.load_der_x509_certificate(twisted(x509.load_pem_x509_certificate(pem)))
    return other.public_bytes(Encoding.PEM)


def with_signature(certificate: x509.Certificate, signature: bytes, unused_bits: int = 0) -> bytes:
    """DER of the certificate with other bytes in place of its signature."""
    return _tagged(0x30, _before_signature(certificate) + _tagged(0x03, bytes([unused_bits]) + signature))


def other_encodings(certificate: x509.Certificate) -> Iterator[tuple[str, bytes]]:
    """Forms of one certificate that say the same and that a lenient reader would take for it."""
    r, s = decode_dss_signature(certificate.signature)
    own, n = certificate.signature, P256_ORDER
    yield "r + n", with_signature(certificate, _signature(_integer(r + n), _integer(s)))
    yield "s + n", with_signature(certificate, _signature(_integer(r), _integer(s + n)))
    yield "s − n", with_signature(certificate, _signature(_integer(r), _negative(s - n)))
    yield "a zero before r", with_signature(certificate, _signature(_integer(r, 1), _integer(s)))
    yield "a third number", with_signature(certificate, _signature(_integer(r), _integer(s), _integer(0)))
    yield "a byte after the signature", with_signature(certificate, own + b"\0")
    yield "a long length", with_signature(certificate, b"\x30\x81" + own[1:])
    yield "unused bits", with_signature(certificate, own, unused_bits=1)
    yield "a byte after the certificate", certificate.public_bytes(Encoding.DER) + b"\0"
    signed = certificate.tbs_certificate_bytes
    algorithm = _before_signature(certificate)[len(signed) :]
    with_null = _tagged(0x30, algorithm[2:] + b"\x05\x00")
    yield "a parameter of the algorithm", _tagged(0x30, signed + with_null + _tagged(0x03, b"\0" + own))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One to three accidents: bits flipped, bytes set, deleted, put in, exchanged, or appended."""
    body = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place, other = chance.randrange(len(body)), chance.randrange(len(body))
        match chance.randrange(6):
            case 0:
                body[place] ^= 1 << chance.randrange(8)
            case 1:
                body[place] = chance.randrange(256)
            case 2:
                del body[place : min(place + chance.randrange(1, 4), len(body) - 1)]
            case 3:
                body[place:place] = chance.randbytes(chance.randrange(1, 4))
            case 4:
                body[place], body[other] = body[other], body[place]
            case _:
                body += chance.randbytes(chance.randrange(1, 4))
    return bytes(body)


def _before_signature(certificate: x509.Certificate) -> bytes:
    """The signed part and the name of the algorithm, which stands outside it once more."""
    whole, signed = certificate.public_bytes(Encoding.DER), certificate.tbs_certificate_bytes
    return whole[whole.index(signed) : -len(_tagged(0x03, b"\0" + certificate.signature))]


def _signature(*numbers: bytes) -> bytes:
    return _tagged(0x30, b"".join(numbers))


def _integer(value: int, zeros: int = 0) -> bytes:
    return _tagged(0x02, bytes(zeros) + value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _negative(value: int) -> bytes:
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag]) + (bytes([size]) if size < 0x80 else bytes([0x80 | len(digits)]) + digits) + content
