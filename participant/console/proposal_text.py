"""A proposed run in words, for whoever approves it: what it is about, and what would leave the site. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dcfpca.errors import DcfpcaError, listed
from dcfpca.privacy.statement import run_line, spec_document
from dcfpca.secagg.differencing_check import PastRun, exposure
from dcfpca.spec import RunSpec, parse_kept_spec
from dcfpca.terms import Terms
from participant.state.store import RunRow

MOST_NAMES, MOST_SHOWN = 30, 60
UNCOMPARED = ("label", "seed", "enrol_seconds", "warm_start", "participants", "features", "features_sha256")


def proposal_facts(spec_text: bytes) -> list[tuple[str, str]]:
    """Heading and sentence about a proposal, the most important first."""
    document: dict[str, Any] = json.loads(spec_text)
    spec = parse_kept_spec(spec_text)
    names = listed(list(spec.features), MOST_NAMES) if spec.features else "as this site has them"
    cohort = listed(list(spec.participants), MOST_NAMES) if spec.participants else "whoever enrols in time"
    return [
        ("who takes part", cohort),
        ("features", f"{spec.rows}{':' if spec.features else ','} {names}" if spec.rows else names),
        *(("leaves this site", sentence) for sentence in what_leaves(spec)),
        (
            "stays here",
            f"{'' if spec.export else 'every entry, '}every id, what is found here, and what is decided about it",
        ),
        ("privacy", _privacy(document)),
    ]


def compared(row: RunRow, rows: Sequence[RunRow]) -> list[tuple[str, str]]:
    """What differs from the last run that this site took part in, and whom the sums of all of them expose together."""
    past = [one for one in rows if one.cohort and one.run_id != row.run_id and one.proposed_ms <= row.proposed_ms]
    if not past:
        return [("compared with earlier runs", "this site has taken part in none")]
    last, spec = max(past, key=lambda one: one.proposed_ms), parse_kept_spec(row.spec)
    differs = [*_cohort_change(spec, last.cohort), *_changes(json.loads(last.spec), json.loads(row.spec))]
    said = listed(differs, MOST_NAMES) if differs else "the same sites, features and settings"
    return [(f"compared with run {last.run_id}", said), ("exposed by both together", _exposed(spec, past))]


def _cohort_change(spec: RunSpec, before: Sequence[str]) -> Iterator[str]:
    if not spec.participants:
        return
    for word, names in (("with", {*spec.participants} - {*before}), ("without", {*before} - {*spec.participants})):
        if names:
            yield f"{word} {listed(sorted(names), MOST_NAMES)}"


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    old, new = (frozenset(keys.get("features") or ()) for keys in (before, now))
    for word, names in (("more", new - old), ("fewer", old - new)):
        if names and old and new:
            yield f"{word} features: {listed(sorted(names), MOST_NAMES)}"
    for key in sorted(before.keys() | now.keys()):
        if key not in UNCOMPARED and before.get(key) != now.get(key):
            shown = [json.dumps(keys.get(key), ensure_ascii=False)[:MOST_SHOWN] for keys in (now, before)]
            yield f"{key} {shown[0]} instead of {shown[1]}".replace("null", "none")


def _exposed(spec: RunSpec, past: Sequence[RunRow]) -> str:
    if spec.aggregation == "plain":
        return "every site, to the aggregator, which reads each update as it is"
    if not spec.participants:
        return "known once the sites have enrolled; the daemon then refuses or asks"
    earlier = [PastRun(one.run_id, frozenset(one.cohort)) for one in past]
    found = exposure(earlier, frozenset(spec.participants), spec.least_cohort)
    if found is None:
        return f"nobody: no difference of their sums is about fewer than {spec.least_cohort} sites"
    whom = (
        f"sums of {listed(list(found.members))} alone"
        if found.members
        else "possibly one site: there are too many runs"
    )
    return f"{whom}, by the differences of this run and {listed(list(found.runs))}"


def what_leaves(spec: RunSpec) -> list[str]:
    """The messages that the spec lets out, as the contract of the run declares them."""
    secure = spec.aggregation == "secure"
    seen = (
        "masked: the aggregator can read only the sum over all sites"
        if secure
        else "NOT masked: the aggregator reads this site's own update"
    )
    said = [f"in each of at most {spec.last_round + 1} rounds one update{_size(spec)}, {seen}"]
    if secure:
        said.append("a public key, sealed shares of a secret for the other sites, signatures")
    if spec.export:
        said.append("if the operator asks, and this site's policy allows it: this site's reconstructed data")
    return [*said, "the answer to this proposal, with the reason if it is declined"]


def _size(spec: RunSpec) -> str:
    try:
        terms = Terms.of(spec)
        return f" of at most {max(stage.up.size for stage in terms.method.stages):,} numbers"
    except DcfpcaError:
        return ""  # a spec that this site would refuse has no messages to size


def _privacy(document: dict[str, Any]) -> str:
    if private := spec_document(document):
        return run_line(private)
    return "no differential privacy: what the result reveals about one sample is not bounded"
