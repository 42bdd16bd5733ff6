"""How large the messages of a run are, to be said before it starts where they are large. Pure."""

from __future__ import annotations

from dcfpca.rpca.round_limits import BOUND_ROUNDS, MOST_ROUNDS
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms

LARGE_UPDATE = 20_000_000
"""Bytes of an update from which on a run says how large its messages are."""
MEMORY_OF_UPDATE = 16
"""Peak memory of a site's round beyond its data, in updates; measured (`benchmarks.wide`)."""
ALWAYS_ALLOWED = 1 << 28
"""Memory of a round that no limit refuses: limits bound how much of the data is held at once, and a daemon without any
data needs about as much."""
MANY_SITES = 64
KEY_BYTES, SHARE_BYTES = 1_960, 1_270
"""Of the set-up: a member's key, which every other receives twice, and what it sends to each other member."""
HELD_BYTES = 3_100
"""Memory of the aggregator for each pair of members during the set-up; measured (`benchmarks.many_secure`)."""
PAIR_SECONDS = 1.1e-4
"""CPU of the aggregator for each pair: it checks a signature; measured likewise."""


def size_notes(spec: RunSpec, sites: int) -> list[str]:
    """Sentences on updates that are large by the number of features, and on a set-up that is by the number of sites;
    none for a run of ordinary size. The spec states its rows."""
    return [note for note in (_features_note(spec), _sites_note(spec, sites)) if note]


def largest_update(spec: RunSpec) -> tuple[str, int]:
    """The stage with the largest update of one site, and its bytes."""
    sizes = Terms.of(spec).update_bytes
    name = max(sizes, key=lambda stage: sizes[stage])
    return name, sizes[name]


def round_memory(spec: RunSpec) -> int:
    """About how many bytes a site needs in the largest round, beside its data."""
    return MEMORY_OF_UPDATE * largest_update(spec)[1]


def _features_note(spec: RunSpec) -> str:
    stage, size = largest_update(spec)
    if size < LARGE_UPDATE:
        return ""
    said = (
        f"with {spec.rows:,} features a site sends {amount(size)} in a round of stage {stage} and needs about"
        f" {amount(round_memory(spec))} of memory beside its data"
    )
    if not spec.closing_rounds:
        return said
    alone = largest_update(spec.model_copy(update={"closing_rounds": False, "scaling": "none"}))[1]
    return (
        f"{said}, in up to {BOUND_ROUNDS + MOST_ROUNDS} such rounds; the fit alone (closing_rounds = false, scaling ="
        f' "none") sends {amount(alone)} a round'
    )


def _sites_note(spec: RunSpec, sites: int) -> str:
    if spec.aggregation == "plain" or sites <= MANY_SITES:
        return ""
    sent, received = SHARE_BYTES * sites, (2 * KEY_BYTES + SHARE_BYTES) * sites
    return (
        f"the set-up of a secure run grows with the square of its {sites:,} sites: each sends {amount(sent)} and"
        f" receives {amount(received)} once, and the aggregator needs about {amount(HELD_BYTES * sites**2)} of memory"
        f" and {PAIR_SECONDS * sites**2:.0f} s of CPU"
    )


def amount(count: float) -> str:
    """Bytes as a person says them."""
    unit, name = next((one for one in ((1e9, "GB"), (1e6, "MB")) if count >= one[0]), (1e3, "kB"))
    return f"{count / unit:.3g} {name}"
