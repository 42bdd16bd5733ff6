"""A proposed run in words, for whoever approves it: what it is about, and what would leave the site. Pure."""

from __future__ import annotations

import json
from typing import Any

from dcfpca.errors import DcfpcaError, listed
from dcfpca.privacy.statement import run_line, spec_document
from dcfpca.spec import RunSpec, parse_kept_spec
from dcfpca.terms import Terms

MOST_NAMES = 30


def proposal_facts(spec_text: bytes) -> list[tuple[str, str]]:
    """Heading and sentence about a proposal, the most important first."""
    document: dict[str, Any] = json.loads(spec_text)
    spec = parse_kept_spec(spec_text)
    names = listed(list(spec.features), MOST_NAMES) if spec.features else "as this site has them"
    cohort = listed(list(spec.participants), MOST_NAMES) if spec.participants else "whoever enrols in time"
    return [
        ("label", spec.label or "none"),
        ("who takes part", cohort),
        ("features", f"{spec.rows}: {names}" if spec.rows else names),
        *(("leaves this site", sentence) for sentence in what_leaves(spec)),
        (
            "stays here",
            f"{'' if spec.export else 'every entry, '}every id, what is found here, and what is decided about it",
        ),
        ("privacy", _privacy(document)),
    ]


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
