"""Random bits for the noise of one local step, from a key that a site makes for one run and tells nobody.

The same step has the same noise each time it is computed, also by a site that was restored from a backup: two noises
of one step would let the aggregator average them. Another consensus has other noise, and so has another exact answer,
as of a restored site that computes with other software: the difference of two answers is never without. The bits are
those of AES-256 in counter mode under a key of their own.
"""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dcfpca.privacy.discrete_gaussian import Entropy
from dcfpca.secagg.encoding import canonical

KEY_BYTES = 32


def noise_entropy(key: bytes, run_id: str, round: int, consensus_sha256: bytes, answer_sha256: bytes) -> Entropy:
    """An endless stream of bits, for one step; `answer_sha256` is of the answer that the noise is added to."""
    step = canonical("noise", run_id, round, consensus_sha256, answer_sha256, label="dcfpca/v1/")
    seed = hmac.digest(key, step, "sha256")
    cipher = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    return lambda count: cipher.update(bytes(count))
