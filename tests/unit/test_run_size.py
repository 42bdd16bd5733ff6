"""What is said of a run that is large by its features or its sites, before it starts."""

from __future__ import annotations

from dcfpca.run_size import KEY_BYTES, SHARE_BYTES, amount, largest_update, round_memory, size_notes
from dcfpca.secagg.set_up import SEALED_BYTES
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.terms import Terms
from participant.policy import Refuse, SiteFacts, SitePolicy
from participant.review import review


def spec_of(rows: int, **keys: object) -> RunSpec:
    return parse_spec({"rows": rows, "rank": 10, "scaling": "auto"} | keys)


def test_nothing_is_said_of_a_run_of_ordinary_size() -> None:
    assert size_notes(spec_of(1000), 64) == []


def test_many_features_are_said_with_the_largest_update_and_what_sends_less() -> None:
    spec = spec_of(50_000)
    (note,) = size_notes(spec, 4)
    largest = max(stage.up.size for stage in Terms.of(spec).method.stages) * 8
    assert largest_update(spec)[1] == largest
    assert f"a site sends {amount(largest)}" in note
    assert "closing_rounds = false" in note
    (fit,) = size_notes(spec_of(500_000, closing_rounds=False, scaling="none"), 4)
    assert "closing_rounds" not in fit


def test_many_secure_sites_are_said_and_plain_ones_are_not() -> None:
    (note,) = size_notes(spec_of(20), 300)
    assert "square of its 300 sites" in note
    assert "279 MB of memory and 10 s of CPU" in note
    assert size_notes(spec_of(20, aggregation="plain"), 300) == []


def test_the_set_up_is_not_said_smaller_than_its_keys_and_shares_are() -> None:
    assert KEY_BYTES > 1184 + 600  # an ML-KEM key, and a certificate
    assert SHARE_BYTES > SEALED_BYTES + 72  # and its signature


def test_a_site_refuses_rounds_that_need_more_memory_than_it_allows() -> None:
    spec = spec_of(50_000)
    facts = {"name": "a", "rows": 50_000, "columns": 100, "has_missing": False, "allows_missing": False}
    policy = SitePolicy(max_rank=128)
    little = review(spec, SiteFacts(**facts, policy=policy, memory_limit=round_memory(spec) - 1))  # type: ignore[arg-type]
    assert isinstance(little, Refuse)
    assert "[engine] memory_limit" in little.reasons[0]
    enough = review(spec, SiteFacts(**facts, policy=policy, memory_limit=round_memory(spec)))  # type: ignore[arg-type]
    assert not isinstance(enough, Refuse)
