"""The same names mean the same rows: chosen by the spec, compared by digest, and named where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dcfpca.errors import BadInput, listed
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.spec import RunSpec, features_digest, parse_spec
from participant.data.matrix import Matrix, keep_samples, select_features
from participant.policy import Accept, Refuse, SiteFacts, SitePolicy
from participant.review import review

NAMES = ("height", "weight", "pulse")


def spec(**keys: Any) -> RunSpec:
    return parse_spec({"rank": 1, **keys})


def site(features: tuple[str, ...], rows: int | None = None) -> SiteFacts:
    rows = len(features) if rows is None else rows
    return SiteFacts("a", rows, 10, False, False, SitePolicy(min_columns=2), features)


def reasons(spec: RunSpec, site: SiteFacts) -> tuple[str, ...]:
    answer = review(spec, site)
    return answer.reasons if isinstance(answer, Refuse) else ()


def test_names_give_rows_and_digest() -> None:
    made = spec(features=NAMES)
    assert made.rows == 3
    assert made.features_sha256 == features_digest(NAMES).hex()
    assert parse_spec(made.canonical()) == made


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"features": ["a", "a"]}, "given twice"),
        ({"features": ["a", "b"], "rows": 3}, "leave rows out"),
        ({"features": ["a"], "features_sha256": "0" * 64}, "not the digest"),
        ({"features_sha256": "xyz"}, "features_sha256"),
        ({"features": [""]}, "features"),
        ({"features": [1]}, "features"),
    ],
)
def test_names_that_contradict_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        spec(**keys)


def test_the_digest_tells_order_and_borders_apart() -> None:
    assert len({features_digest(names) for names in [("a", "b"), ("b", "a"), ("ab",), ("a,b",), ('a", "b',)]}) == 5


def test_a_site_with_more_features_in_another_order_takes_part() -> None:
    assert isinstance(review(spec(features=NAMES), site(("pulse", "age", "weight", "height"))), Accept)


def test_absent_features_are_named_in_the_refusal() -> None:
    assert reasons(spec(features=NAMES), site(("height", "mass"))) == (
        "the local matrix lacks the features weight, pulse",
    )
    assert "has no feature names" in reasons(spec(features=NAMES), site((), rows=3))[0]


def test_digests_are_compared_when_the_spec_gives_no_names() -> None:
    wanted = spec(rows=3, features_sha256=features_digest(NAMES).hex())
    assert isinstance(review(wanted, site(NAMES)), Accept)
    assert isinstance(review(wanted, site((), rows=3)), Accept)
    assert "digests differ" in reasons(wanted, site(("weight", "height", "pulse")))[0]


def test_long_differences_are_cut_short() -> None:
    assert listed([f"f{k}" for k in range(10)], most=2) == "f0, f1 and 8 more"


def test_a_site_that_lacks_features_takes_part_if_the_spec_lets_it() -> None:
    union = spec(features=NAMES, missing_features="allow")
    assert isinstance(review(union, site(("pulse", "age"))), Accept)
    assert "has none of the features" in reasons(union, site(("age", "sex")))[0]


def test_a_feature_must_be_at_as_many_sites_as_the_site_demands_of_a_cohort() -> None:
    union = spec(features=NAMES, missing_features="allow", min_feature_sites=2)
    assert "demands at least 3 participants in every sum" in reasons(union, site(NAMES))[0]


def test_a_feature_that_the_data_lacks_is_a_row_of_nan_through_any_later_selection() -> None:
    matrix = Matrix(ArrayColumns(np.arange(6.0).reshape(2, 3)), ("height", "pulse"))
    chosen = select_features(matrix, NAMES, "data", may_lack=True)
    np.testing.assert_array_equal(chosen.columns.read(0, 3), [[0, 1, 2], [np.nan] * 3, [3, 4, 5]])
    again = select_features(keep_samples(chosen, np.array([0, 2])), ("pulse", "weight"), "data")
    np.testing.assert_array_equal(again.columns.read(0, 2), [[3, 5], [np.nan] * 2])
    with pytest.raises(BadInput, match="lacks the features weight"):
        select_features(matrix, NAMES, "data")
