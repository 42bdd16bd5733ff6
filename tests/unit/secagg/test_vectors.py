"""Every primitive against known answers, published ones where they exist (see tests/vectors/secagg/generate.py)."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dcfpca.secagg import errors, keys, masks, ring_fixed_point
from dcfpca.secagg.canonical_encoding import canonical
from dcfpca.secagg.dropout_recovery import merkle, shamir
from dcfpca.secagg.dropout_recovery.keys import derive
from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "vectors" / "secagg"
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


@pytest.mark.parametrize("case", VECTORS["shamir"])
def test_shares_are_values_of_the_polynomial_and_give_the_secret_back(case: dict) -> None:
    secret, threshold = unhex(case["secret"]), case["threshold"]
    places = [int(place) for place in case["shares"]]
    shares = shamir.split(secret, threshold, places, unhex(case["key"]))
    assert [share.hex() for share in shares] == list(case["shares"].values())
    by_place = dict(zip(places, shares, strict=True))
    last = {place: by_place[place] for place in places[-threshold:]}
    assert shamir.combine(by_place, threshold) == shamir.combine(last, threshold) == secret


@pytest.mark.parametrize("case", VECTORS["combine_failures"], ids=lambda case: case["why"])
def test_shares_that_cannot_be_combined_fail_by_name(case: dict) -> None:
    shares = {int(place): unhex(share) for place, share in case["shares"].items()}
    with pytest.raises(getattr(errors, case["failure"])):
        shamir.combine(shares, 2)


def test_fewer_shares_than_the_threshold_fit_every_secret_equally_well() -> None:
    # With one share of two fixed, any other secret has a line through it: the share says nothing.
    place, value = 5, shamir.share_value(shamir.split(b"\x07" * 32, 2, [5], bytes(32))[0])
    for other in (0, 1, 2**256 - 1):
        slope = (value - other) * pow(place, -1, shamir.PRIME)
        assert (other + slope * place) % shamir.PRIME == value


def test_the_field_is_prime_by_miller_rabin_and_holds_every_32_byte_secret() -> None:
    n = shamir.PRIME
    assert n > 2**256
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 60):
        power = pow(base, odd, n)
        assert power in (1, n - 1) or any(pow(power, 2**k, n) == n - 1 for k in range(1, twos))


@pytest.mark.parametrize("case", VECTORS["ring"])
def test_fixed_point_is_the_exact_fraction_rounded_to_even(case: dict) -> None:
    numbers = np.array([float.fromhex(number) for number in case["numbers"]])
    encoded = ring_fixed_point.encode(numbers, case["exponent"], case["participants"], case["precision"])
    assert encoded.dtype == ring_fixed_point.dtype_of(case["precision"])
    assert [str(number) for number in encoded] == case["encoded"]


@pytest.mark.parametrize("case", VECTORS["bound"])
def test_the_bounding_exponent(case: dict) -> None:
    numbers = np.array([float(number) for number in case["numbers"]])
    if "failure" in case:
        with pytest.raises(getattr(errors, case["failure"])):
            ring_fixed_point.bounding_exponent(numbers)
    else:
        assert ring_fixed_point.bounding_exponent(numbers) == case["exponent"]


@pytest.mark.parametrize("exponent", [-961, 961, 10**6])
def test_an_exponent_without_room_is_refused(exponent: int) -> None:
    with pytest.raises(errors.ChangedExponent):
        ring_fixed_point.encode(np.zeros(1), exponent, 3, 64)


@pytest.mark.parametrize("precision", [64, 32])
@pytest.mark.parametrize("participants", [1, 2, 3, 64, 1000])
def test_the_sum_of_the_largest_numbers_never_wraps(precision: int, participants: int) -> None:
    largest = np.array([np.nextafter(2.0, 0), -np.nextafter(2.0, 0)])
    one = ring_fixed_point.encode(largest, 1, participants, precision)
    total = (one * np.array(participants, one.dtype)).astype(one.dtype)
    decoded = ring_fixed_point.decode(total, 1, participants, precision)
    assert np.allclose(decoded, participants * largest, rtol=2.0 ** -(precision - 12 if precision == 32 else 50))


@pytest.mark.parametrize("case", VECTORS["mask"])
def test_masks_are_the_counter_mode_stream_across_block_borders(case: dict) -> None:
    vector = np.zeros(case["size"], dtype=ring_fixed_point.dtype_of(case["precision"]))
    masks.add_mask(vector, unhex(case["key"]))
    assert hashlib.sha256(vector.tobytes()).hexdigest() == case["sha256"]
    masks.subtract_mask(vector, unhex(case["key"]))
    assert not vector.any()


@pytest.mark.parametrize("case", VECTORS["merkle"], ids=lambda case: f"{len(case['leaves'])} leaves")
def test_every_leaf_climbs_to_the_root_and_no_other_leaf_does(case: dict) -> None:
    leaves, root = [unhex(leaf) for leaf in case["leaves"]], unhex(case["root"])
    assert merkle.root_of(leaves) == root
    for index, (leaf, path) in enumerate(zip(leaves, merkle.paths_of(leaves), strict=True)):
        assert merkle.root_from_path(leaf, index, len(leaves), path) == root
        assert merkle.root_from_path(bytes(32), index, len(leaves), path) != root
        assert merkle.root_from_path(leaf, index, len(leaves), (*path, bytes(32))) is None
        assert not path or merkle.root_from_path(leaf, index, len(leaves), path[:-1]) is None


def test_any_threshold_of_the_shares_gives_the_secret_whichever_places_are_missing() -> None:
    draw = np.random.default_rng(5)
    shares = dict(zip(range(1, 41), shamir.split(b"\x5a" * 32, 25, range(1, 41), bytes(32)), strict=True))
    for _ in range(20):
        chosen = [int(place) for place in draw.choice(np.arange(1, 41), 25, replace=False)]
        assert shamir.combine({place: shares[place] for place in chosen}, 25) == b"\x5a" * 32
