"""ML-KEM-768 as FIPS 203 writes it down, slowly and without care for side channels: to check the library by."""

from __future__ import annotations

from hashlib import sha3_256, sha3_512, shake_128, shake_256

Q, N, K, ETA, DU, DV = 3329, 256, 3, 2, 10, 4
Polynomial = list[int]


def _reversed(number: int) -> int:
    return int(f"{number:07b}"[::-1], 2)


ZETAS = [pow(17, _reversed(i), Q) for i in range(128)]
GAMMAS = [pow(17, 2 * _reversed(i) + 1, Q) for i in range(128)]


def _ntt(f: Polynomial) -> Polynomial:
    f, i, length = list(f), 1, 128
    while length >= 2:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = ZETAS[i] * f[j + length] % Q
                f[j], f[j + length] = (f[j] + t) % Q, (f[j] - t) % Q
            i += 1
        length //= 2
    return f


def _inverse_ntt(f: Polynomial) -> Polynomial:
    f, i, length = list(f), 127, 2
    while length <= 128:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = f[j]
                f[j], f[j + length] = (t + f[j + length]) % Q, ZETAS[i] * (f[j + length] - t) % Q
            i -= 1
        length *= 2
    return [x * 3303 % Q for x in f]


def _product(f: Polynomial, g: Polynomial) -> Polynomial:
    h = [0] * N
    for i in range(128):
        (a, b), (c, d) = f[2 * i : 2 * i + 2], g[2 * i : 2 * i + 2]
        h[2 * i], h[2 * i + 1] = (a * c + b * d * GAMMAS[i]) % Q, (a * d + b * c) % Q
    return h


def _sum(*terms: Polynomial) -> Polynomial:
    return [sum(column) % Q for column in zip(*terms, strict=True)]


def _encoded(f: Polynomial, bits: int) -> bytes:
    return sum(x << (bits * i) for i, x in enumerate(f)).to_bytes(32 * bits, "little")


def _decoded(raw: bytes, bits: int) -> Polynomial:
    number = int.from_bytes(raw, "little")
    return [number >> (bits * i) & ((1 << bits) - 1) for i in range(N)]


def _compressed(f: Polynomial, bits: int) -> Polynomial:
    return [((x << bits) + Q // 2) // Q % (1 << bits) for x in f]


def _uniform(seed: bytes, j: int, i: int) -> Polynomial:
    stream, place = shake_128(seed + bytes([j, i])).digest(3000), 0
    found: Polynomial = []
    while len(found) < N:
        a, b, c = stream[place : place + 3]
        place += 3
        found += [d for d in (a + 256 * (b % 16), b // 16 + 16 * c) if d < Q]
    return found[:N]


def _small(seed: bytes, number: int) -> Polynomial:
    bits = int.from_bytes(shake_256(seed + bytes([number])).digest(64 * ETA), "little")
    pair = [bits >> (2 * ETA * i) for i in range(N)]
    return [((p & 1) + (p >> 1 & 1) - (p >> 2 & 1) - (p >> 3 & 1)) % Q for p in pair]


def public_key(d: bytes) -> bytes:
    """The encapsulation key of the seed d."""
    hashed = sha3_512(d + bytes([K])).digest()
    rho, sigma = hashed[:32], hashed[32:]
    s, e = ([_ntt(_small(sigma, K * part + i)) for i in range(K)] for part in (0, 1))
    rows = [_sum(e[i], *(_product(_uniform(rho, j, i), s[j]) for j in range(K))) for i in range(K)]
    return b"".join(_encoded(row, 12) for row in rows) + rho


def encapsulated(key: bytes, m: bytes) -> tuple[bytes, bytes]:
    """The secret and the ciphertext that the randomness m gives under this key."""
    hashed = sha3_512(m + sha3_256(key).digest()).digest()
    secret, r = hashed[:32], hashed[32:]
    t, rho = [_decoded(key[384 * i : 384 * (i + 1)], 12) for i in range(K)], key[384 * K :]
    y, e1, e2 = [_ntt(_small(r, i)) for i in range(K)], [_small(r, K + i) for i in range(K)], _small(r, 2 * K)
    u = [_sum(e1[i], _inverse_ntt(_sum(*(_product(_uniform(rho, i, j), y[j]) for j in range(K))))) for i in range(K)]
    message = [bit * ((Q + 1) // 2) for bit in _decoded(m, 1)]
    v = _sum(_inverse_ntt(_sum(*(_product(t[j], y[j]) for j in range(K)))), e2, message)
    parts = [_encoded(_compressed(part, DU), DU) for part in u]
    return secret, b"".join(parts) + _encoded(_compressed(v, DV), DV)
