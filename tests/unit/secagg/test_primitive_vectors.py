"""Every primitive against known answers, published ones where they exist (see tests/vectors/primitives/generate.py)."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dcfpca.secagg import errors, fixed_point, keys, masks
from dcfpca.secagg.encoding import canonical, derive
from dcfpca.secagg.fixed_point import Block, BlockLayout
from tests.support.paths import ROOT
from tests.vectors.primitives.mlkem768 import encapsulated, public_key

FOLDER = ROOT / "tests" / "vectors" / "primitives"
VECTORS = json.loads((FOLDER / "vectors.json").read_text())
PUBLISHED = VECTORS["published"]


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


def test_the_stored_vectors_are_what_the_independent_script_computes() -> None:
    done = subprocess.run([sys.executable, FOLDER / "generate.py"], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == VECTORS


@pytest.mark.parametrize("case", PUBLISHED["hkdf"])
def test_the_library_computes_hkdf_as_rfc_5869_publishes_it(case: dict) -> None:
    derived = HKDF(SHA256(), case["length"], unhex(case["salt"]), unhex(case["info"])).derive(unhex(case["secret"]))
    assert derived.hex() == case["okm"]


def test_the_library_computes_aes_256_as_sp_800_38a_publishes_it() -> None:
    case = PUBLISHED["aes256"]
    block = Cipher(algorithms.AES256(unhex(case["key"])), modes.ECB()).encryptor().update(unhex(case["plain"]))
    assert block.hex() == case["cipher"]


def test_agreement_is_x25519_as_rfc_7748_publishes_it() -> None:
    case = PUBLISHED["x25519"]
    own = X25519PrivateKey.from_private_bytes(unhex(case["private"]))
    assert keys.agree(own, unhex(case["peer"]), "peer").hex() == case["secret"]


@pytest.mark.parametrize("peer", [bytes(32), b"\x01" + bytes(31), bytes(31), b""])
def test_a_key_that_gives_a_known_secret_or_is_no_key_is_refused(peer: bytes) -> None:
    with pytest.raises(errors.SwappedKey, match="site-b"):
        keys.agree(X25519PrivateKey.generate(), peer, "site-b")


@pytest.mark.parametrize("case", PUBLISHED["seal"])
def test_sealing_is_aes_256_gcm_with_the_zero_nonce(case: dict) -> None:
    assert keys.seal(unhex(case["key"]), unhex(case["plain"])).hex() == case["sealed"]
    assert keys.unseal(unhex(case["key"]), unhex(case["sealed"]), "a").hex() == case["plain"]


@pytest.mark.parametrize("position", [0, 15, 16, 31])
def test_one_changed_bit_anywhere_keeps_a_seal_closed(position: int) -> None:
    sealed = bytearray(keys.seal(bytes(32), bytes(16)))
    sealed[position] ^= 1
    with pytest.raises(errors.TamperedShare):
        keys.unseal(bytes(32), bytes(sealed), "a")


def test_a_truncated_seal_stays_closed() -> None:
    for length in (0, 5, 31):
        with pytest.raises(errors.TamperedShare):
            keys.unseal(bytes(32), keys.seal(bytes(32), bytes(16))[:length], "a")


@pytest.mark.parametrize("case", VECTORS["canonical"])
def test_the_canonical_encoding(case: dict) -> None:
    assert canonical(case["purpose"], *case["fields"]).hex() == case["bytes"]


def test_no_two_lists_of_fields_have_the_same_canonical_encoding() -> None:
    encodings = [case["bytes"] for case in VECTORS["canonical"]]
    assert len(set(encodings)) == len(encodings)


@pytest.mark.parametrize("case", VECTORS["derive"])
def test_keys_are_derived_by_hkdf_with_the_label_as_info(case: dict) -> None:
    assert derive(unhex(case["secret"]), case["purpose"], *case["fields"]).hex() == case["key"]


@pytest.mark.parametrize("case", VECTORS["bound"])
def test_the_bounding_exponent(case: dict) -> None:
    numbers = np.array([float(number) for number in case["numbers"]])
    if "failure" in case:
        with pytest.raises(getattr(errors, case["failure"])):
            fixed_point.bounding_exponent(numbers)
    else:
        assert fixed_point.bounding_exponent(numbers) == case["exponent"]


@pytest.mark.parametrize("exponent", [-961, 961, 10**6])
def test_an_exponent_without_room_is_refused(exponent: int) -> None:
    with pytest.raises(errors.ChangedExponent):
        fixed_point.check_exponents(BlockLayout((Block("x", 1, 0),)), (exponent,))


@pytest.mark.parametrize("precision", [64, 32])
@pytest.mark.parametrize("participants", [1, 2, 3, 64, 1000])
def test_the_sum_of_the_largest_numbers_never_wraps(precision: int, participants: int) -> None:
    largest, layout = np.array([np.nextafter(2.0, 0), -np.nextafter(2.0, 0)]), BlockLayout((Block("x", 2, 1),))
    one = fixed_point.to_ring(fixed_point.encode(largest, layout, (1,), participants, precision), precision)
    total = fixed_point.from_ring((one * np.array(participants, one.dtype)).astype(one.dtype), precision)
    assert fixed_point.in_range(total, precision)
    found = fixed_point.decode(total, layout, (1,), participants, precision)
    assert np.allclose(found, participants * largest, rtol=2.0 ** -(precision - 12 if precision == 32 else 46))


@pytest.mark.parametrize("case", VECTORS["mask"])
def test_masks_are_the_counter_mode_stream_across_block_borders(case: dict) -> None:
    vector = np.zeros(case["size"], dtype=fixed_point.RING[case["precision"]])
    masks.mask_values(vector, unhex(case["key"]), "a", "b")
    assert hashlib.sha256(vector.tobytes()).hexdigest() == case["sha256"]
    masks.mask_values(vector, unhex(case["key"]), "b", "a")
    assert not vector.any()


@pytest.mark.parametrize("number", range(3))
def test_the_library_computes_ml_kem_768_as_fips_203_writes_it_down(number: int) -> None:
    d, z, m = (hashlib.sha256(bytes([number, part])).digest() for part in range(3))
    own = MLKEM768PrivateKey.from_seed_bytes(d + z)
    key = public_key(d)
    assert own.public_key().public_bytes_raw() == key
    secret, ciphertext = encapsulated(key, m)
    assert keys.decapsulate(own, ciphertext, "a") == secret
    carried, sent = keys.encapsulate(key, "a")
    assert keys.decapsulate(own, sent, "a") == carried
    assert (len(key), len(sent)) == (keys.KEM_KEY_BYTES, keys.KEM_BYTES)


@pytest.mark.parametrize("key", [b"", bytes(1183), b"\xff" * 1184])
def test_what_is_no_ml_kem_key_is_refused_by_name(key: bytes) -> None:
    with pytest.raises(errors.SwappedKey, match="site-b"):
        keys.encapsulate(key, "site-b")
