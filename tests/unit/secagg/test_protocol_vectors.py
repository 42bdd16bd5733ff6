"""Every primitive of the protocol against known answers (see tests/vectors/protocol/generate.py)."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from dcfpca.secagg import fixed_point, homomorphic_mac, masks, neighbours, set_up
from dcfpca.secagg.fixed_point import RING, Block, BlockLayout
from dcfpca.secagg.messages import RunTerms, context_of, opening_digest, sum_digest
from tests.support.paths import ROOT
from tests.support.runs.secure_relay import opening_of

FOLDER = ROOT / "tests" / "vectors" / "protocol"
VECTORS = json.loads((FOLDER / "vectors.json").read_text())
KEY, CONTEXT, ROSTER = bytes(range(32)), b"\x07" * 32, b"\x09" * 32


def test_the_stored_vectors_are_what_the_independent_script_computes() -> None:
    done = subprocess.run([sys.executable, FOLDER / "generate.py"], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == VECTORS


def test_terms_opening_context_and_sum_are_named_as_published() -> None:
    terms, opening, answers = RunTerms("run-1", bytes(32), ("a", "b", "c"), 8), opening_of(3, b"U"), VECTORS["opening"]
    assert terms.binding.hex() == answers["binding"]
    assert opening_digest(terms, ROSTER, opening).hex() == answers["opening"]
    assert context_of(terms, ROSTER, opening, 0).hex() == answers["context"]
    assert context_of(terms, ROSTER, opening, 1).hex() == answers["context_after_one_lift"]
    assert sum_digest(CONTEXT, hashlib.sha256(bytes(16)).digest(), 5).hex() == answers["sum"]


def test_keys_and_secrets_are_derived_as_published() -> None:
    assert set_up.commitment(ROSTER, "a", KEY).hex() == VECTORS["commitment"]
    assert set_up.combine(ROSTER, {"b": CONTEXT, "a": KEY}).hex() == VECTORS["group_secret"]
    assert set_up.agreement_key(KEY).private_bytes_raw().hex() == VECTORS["x25519_key"]
    assert set_up.kem_seed(KEY).hex() == VECTORS["kem_seed"]
    assert set_up.kem_key(KEY).private_bytes_raw().hex() == VECTORS["kem_key"]
    assert masks.pair_agreement(KEY, ROSTER, "b", "a").hex() == VECTORS["pair_agreement"]
    assert masks.pair_part(KEY, ROSTER, "b").hex() == VECTORS["pair_part"]
    assert masks.pair_root(KEY, {"b": ROSTER, "a": CONTEXT}).hex() == VECTORS["pair_root"]
    assert masks.ratchet(KEY, 2).hex() == VECTORS["ratchet_twice"]
    assert masks.sealing_key(KEY, CONTEXT, "a", "b").hex() == VECTORS["sealing_key"]


@pytest.mark.parametrize("precision", [64, 32])
def test_masks_of_a_pair_are_the_stream_of_its_key_added_or_subtracted(precision: int) -> None:
    for sign, name, peer in ((+1, "a", "b"), (-1, "b", "a")):
        values = np.array([0, 1, 2**precision - 1], dtype=RING[precision])
        masks.mask_values(values, masks.mask_key(KEY, CONTEXT), name, peer)
        assert values.tolist() == VECTORS["masked"][f"{precision} {sign:+d}"]
    assert homomorphic_mac.masked_tag(0, KEY, CONTEXT, "a", "b") == VECTORS["tag_mask"]
    assert homomorphic_mac.masked_tag(VECTORS["tag_mask"], KEY, CONTEXT, "b", "a") == 0


@pytest.mark.parametrize("members", [1, 5])
def test_tags_are_as_published(members: int) -> None:
    integers = np.array(VECTORS["tagged"], dtype=np.int64)
    assert homomorphic_mac.tag_of(KEY, CONTEXT, integers, members) == VECTORS["tags"][str(members)]


@pytest.mark.parametrize("case", VECTORS["fixed_point"])
def test_fixed_point_is_as_published(case: dict) -> None:
    layout = BlockLayout((Block("x", 1, 0),))
    encoded = fixed_point.encode(np.array([case["x"]]), layout, (case["exponent"],), case["members"], case["precision"])
    assert encoded.tolist() == [case["integer"]]


def test_the_ring_is_ordered_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "degree_for", lambda members: 2)
    ring = VECTORS["ring"]
    for place, name in enumerate(ring):
        around = sorted((ring[place - 1], ring[(place + 1) % 8]))
        assert neighbours.neighbours_of(name, tuple("abcdefgh"), KEY) == tuple(around)
