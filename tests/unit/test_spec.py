import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.errors import BadInput, DcfpcaError
from dcfpca.identity import check_name
from dcfpca.spec import RunSpec, parse_kept_spec, parse_spec, read_spec_file, spec_digest

SMALL = {"rank": 3}
PRIVATE = {"privacy": {"epsilon": 1.0}}

SPECS = st.fixed_dictionaries(
    {},
    optional={
        "label": st.text(max_size=20),
        "method": st.sampled_from(["subspace", "gradient"]),
        "rows": st.integers(50, 10**9),
        "rounds": st.integers(1, 1000),
        "tolerance": st.floats(0, 0.5),
        "seed": st.integers(0, 2**63 - 1),
        "aggregation": st.sampled_from(["secure", "plain"]),
        "export": st.booleans(),
        "enrol_seconds": st.integers(1, 1000) | st.floats(0.1, 1000),
        "participants": st.lists(st.sampled_from(["a", "b-1", "c.example.org"]), unique=True),
    },
)


@given(SPECS)
def test_the_canonical_bytes_read_back_as_the_same_spec_with_the_same_digest(keys: dict[str, object]) -> None:
    made = parse_spec(SMALL | keys)
    again = parse_spec(made.canonical())
    assert again == made
    assert again.canonical() == made.canonical()
    assert spec_digest(made.canonical()) == again.digest()


@given(SPECS, SPECS)
def test_equal_digests_mean_equal_specs(one: dict[str, object], other: dict[str, object]) -> None:
    first, second = parse_spec(SMALL | one), parse_spec(SMALL | other)
    assert (first.digest() == second.digest()) == (first == second)


def test_the_order_of_keys_and_unstated_defaults_do_not_change_the_digest() -> None:
    spelled = json.loads(parse_spec(SMALL).canonical())
    backwards = dict(reversed(spelled.items()))
    assert parse_spec(json.dumps(backwards, indent=3).encode()).digest() == parse_spec(SMALL).digest()


def test_every_key_is_in_the_canonical_bytes_so_that_a_site_signs_all_of_them() -> None:
    assert set(json.loads(parse_spec(SMALL).canonical())) == set(RunSpec.model_fields)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"closing_rounds": False}, "give rank or max_rank"),
        ({"method": "gradient"}, "give rank or max_rank"),
        ({"rank": 3, "max_rank": 3}, "not both"),
        ({"rank": 0}, "rank"),
        ({"rank": -1}, "rank"),
        ({"rank": 11, "rows": 10}, "rank 11 is larger than the 10 features"),
        ({"max_rank": 11, "rows": 10}, "rank 11 is larger than the 10 features"),
        (SMALL | {"rounds": 0}, "rounds"),
        (SMALL | {"tolerance": float("nan")}, "tolerance"),
        (SMALL | {"tolerance": -1e-9}, "tolerance"),
        (SMALL | {"seed": 2**63}, "seed"),
        (SMALL | {"method": "magic"}, "method: .*subspace.*gradient"),
        (SMALL | {"aggregation": "none"}, "aggregation"),
        (SMALL | {"precision": 16}, "precision"),
        (SMALL | {"round_seconds": 0}, "round_seconds"),
        (SMALL | {"round_seconds": float("inf")}, "round_seconds"),
        (SMALL | {"participants": ["a", "a"]}, "names somebody twice"),
        (SMALL | {"participants": ["A"]}, "participants.0"),
        (SMALL | {"participants": ["a..b"]}, "participants.0"),
        (SMALL | {"participants": ["../etc"]}, "participants.0"),
        (SMALL | {"participants": ["a" * 64]}, "participants.0"),
        (SMALL | {"participants": ["a", "b"], "quorum": 3}, "quorum 3 is larger than the cohort of 2"),
        (SMALL | {"roundz": 3}, r"roundz: there is no such key \(did you mean rounds\?\)"),
        (SMALL | {"gradient": {"magic": 3}}, "gradient.magic: there is no such key"),
        (SMALL | {"subspace": {"magic": 3}}, "subspace.magic: there is no such key"),
        (SMALL | {"gradient": {"rho": float("nan")}}, "gradient.rho"),
        (SMALL | {"privacy": 3}, r"privacy: it must be a table"),
        (SMALL | {"privacy": {}}, "privacy.epsilon: it is missing"),
        (SMALL | {"privacy": {"epsilon": 0}}, "privacy.epsilon"),
        (SMALL | {"privacy": {"epsilon": 1, "delta": 0}}, "privacy.delta"),
        (SMALL | {"privacy": {"epsilon": 1, "delta": 0.5}}, "privacy.delta"),
        (SMALL | {"privacy": {"epsilon": 1, "clip": "big"}}, 'privacy.clip: it must be "auto" or the length'),
        (SMALL | {"privacy": {"epsilon": 1, "clip": 0}}, "privacy.clip"),
        (SMALL | {"privacy": {"epsilon": 1, "rounds": 0}}, "privacy.rounds"),
        (SMALL | {"privacy": {"epsilon": 1, "rounds": 5}, "rounds": 6}, "rounds says 6, and privacy.rounds 5"),
        (SMALL | {"privacy": {"epsilon": 1, "conspirators": 2}, "participants": ["a", "b"]}, "no honest site"),
        (SMALL | {"privacy": {"epsilon": 1, "conspirators": 2}, "quorum": 2}, "no honest site"),
        ({"privacy": {"epsilon": 1}}, "give rank or max_rank"),
        (SMALL | PRIVATE | {"aggregation": "plain"}, "privacy: .*plain aggregation shows each site"),
        (SMALL | PRIVATE | {"precision": 32}, "privacy: .*precision = 64"),
        (SMALL | PRIVATE | {"method": "gradient"}, "privacy: .*subspace"),
        (SMALL | PRIVATE | {"closing_rounds": True}, "privacy: closing rounds"),
        (SMALL | PRIVATE | {"scaling": "robust"}, "privacy: medians"),
        (SMALL | PRIVATE | {"warm_start": "r1"}, "privacy: .*warm_start"),
        (SMALL | PRIVATE | {"features": ["a", "b", "c"], "missing_features": "allow"}, "privacy: counts of features"),
    ],
)
def test_a_spec_that_cannot_be_run_is_refused_with_the_key(keys: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_spec(keys)


def test_privacy_decides_the_rounds_and_is_part_of_what_sites_sign() -> None:
    made = parse_spec(SMALL | {"privacy": {"epsilon": 1, "rounds": 4}})
    assert (made.rounds, made.last_round, made.closing_rounds) == (4, 4, False)
    assert parse_spec(made.canonical()) == made
    assert made.digest() != parse_spec(SMALL | {"rounds": 4, "closing_rounds": False}).digest()


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"3", b"null", b"\xff\xfe", b'{"rank": 1e999}', b'"rank"'])
def test_bytes_that_are_no_spec_are_bad_input(data: bytes) -> None:
    with pytest.raises(BadInput):
        parse_spec(data)


def test_all_complaints_come_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        parse_spec({"rank": 3, "rounds": 0, "roundz": 1, "seed": -1})
    assert all(word in str(caught.value) for word in ("rounds:", "roundz:", "seed:"))


@given(st.text(alphabet="ab1.-", max_size=6) | st.just("a" * 63) | st.just("a" * 64))
def test_a_cohort_takes_exactly_the_names_that_certificates_may_carry(name: str) -> None:
    def accepted_by(check: object) -> bool:
        try:
            check()  # type: ignore[operator]
        except DcfpcaError:
            return False
        return True

    in_spec = accepted_by(lambda: parse_spec(SMALL | {"participants": [name]}))
    assert in_spec == accepted_by(lambda: check_name(name, "participant"))


@given(st.integers(1, 50), st.integers(1, 50))
def test_a_secure_run_needs_a_majority_of_its_cohort_whatever_its_quorum(cohort: int, wanted: int) -> None:
    made = parse_spec(SMALL | {"quorum": wanted})
    assert made.quorum_of(cohort) == max(wanted, cohort // 2 + 1)
    assert parse_spec(SMALL | {"quorum": wanted, "aggregation": "plain"}).quorum_of(cohort) == wanted


@given(st.integers(1, 50))
def test_the_quorum_is_a_majority_unless_told(cohort: int) -> None:
    assert 2 * parse_spec(SMALL | {"aggregation": "plain"}).quorum_of(cohort) > cohort


@pytest.mark.parametrize("content", [b"rank = = 3", b"label = '\xff'"])
def test_a_spec_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spec.toml").write_bytes(content)
    with pytest.raises(BadInput, match=r"spec\.toml is not valid TOML"):
        read_spec_file(tmp_path / "spec.toml")


def test_a_key_that_is_gone_is_passed_over_in_a_kept_spec_and_refused_in_a_new_one() -> None:
    old = {"rows": 5, "subspace": {"sampled_share": 0.125}}
    kept = json.dumps(old).encode()
    assert parse_kept_spec(kept) == parse_kept_spec(old) == parse_spec({"rows": 5})
    with pytest.raises(BadInput, match=r"subspace\.sampled_share: there is no such key"):
        parse_spec(kept)


@pytest.mark.parametrize("key", [{"dropouts": "go-on"}, {"dropouts": "wait"}, {"threshold": 0.6}])
def test_a_key_of_the_sum_that_went_on_without_members_says_what_to_do(key: dict[str, Any]) -> None:
    (name,) = key
    with pytest.raises(BadInput) as caught:
        parse_spec(SMALL | key)
    assert f"{name}: this key no longer exists; remove it: a secure run waits for its members" in str(caught.value)
    assert parse_kept_spec(json.dumps({"rank": 3} | key).encode()) == parse_spec({"rank": 3})
