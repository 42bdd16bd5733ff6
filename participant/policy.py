"""The site's own policy: which runs it takes part in, and what may leave it. Pure; no message can change it.

Whatever the policy does not allow is refused, and a refusal states all its reasons at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from dcfpca.feature_names import difference, features_digest
from dcfpca.method_names import MethodName
from dcfpca.privacy.settings import MOST_SITES
from dcfpca.wire_constants import SMALL_SUM
from participant.privacy_review import Spending, privacy_reasons

if TYPE_CHECKING:
    from dcfpca.secagg.fixed_cohort import PastRun
    from dcfpca.spec import RunSpec

LEAST_COLUMNS = 20
COLUMNS_PER_RANK = 3
SAMPLED = 128
"""Beside those in its turn, `verify = "sampled"` checks large sums in one round of so many, which nobody foresees."""


class SitePolicy(BaseModel):
    """The `[policy]` table of the participant's configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    private: bool = Field(False, description="The reconstruction never leaves, whoever asks.")
    methods: tuple[MethodName, ...] = Field(get_args(MethodName), description="Methods the site takes part in.")
    max_rank: int = Field(512, ge=1, description="Largest rank, or upper bound of it.")
    max_rounds: int = Field(1000, ge=1, description="Most rounds of one run.")
    min_cohort: int = Field(3, ge=2, description="Fewest participants whose sum the site lets its update into.")
    max_local_passes: int = Field(
        100,
        ge=1,
        description="Most passes over the data in one local step: `passes`, or `local_iterations` × `inner_steps`.",
    )
    min_columns: int = Field(
        0,
        ge=0,
        description="Fewest columns of its own with which the site takes part; "
        "0: three times the rank of the run, and at least 20.",
    )
    min_entries: int = Field(
        5,
        ge=1,
        description="Smallest `min_entries` of a spec with which the site takes part: what every feature has at least, "
        "at every site of the cohort.",
    )
    allow_plain: bool = Field(False, description="Let the aggregator see this site's own updates.")
    allow_dropouts: bool = Field(
        False, description='Take part in secure runs with dropouts = "go-on", which open more to a lying aggregator.'
    )
    min_threshold: float = Field(
        0.5, ge=0.5, lt=1, description="Smallest share of the cohort that must survive a round of such a run."
    )
    verify: Literal["sampled", "always", "never"] = Field(
        "sampled",
        description="Which sums and consensuses are checked: sampled means small ones, and others in turn.",
    )
    allow_export: bool = Field(False, description="Send L and S to the operator when asked.")
    require_privacy: bool = Field(
        False, description="Take part only in runs with differential privacy (a spec with [privacy])."
    )
    max_epsilon: float | None = Field(
        None,
        gt=0,
        description="Largest ε of all runs with differential privacy over the same data together. Absent: no limit.",
    )
    max_epsilon_year: float | None = Field(
        None, gt=0, description="The same for all runs of any 365 days together, over whatever data. Absent: no limit."
    )
    max_delta: float = Field(
        1e-5, gt=0, lt=1, description="Largest δ of a run with privacy; the two limits above hold at this δ."
    )
    min_conspirators: int = Field(
        1, ge=0, description="Fewest conspirators that the noise of such a run must withstand."
    )
    allow_export_with_privacy: bool = Field(
        False, description="Let `allow_export` count for runs with privacy, which exact reconstructions would undo."
    )
    manual_approval: bool = Field(
        False, description="Wait for `dcfpca-participant approve RUN --by NAME` before enrolling."
    )

    def columns_needed(self, rank: int) -> int:
        """Fewest columns of the site's own with which it takes part in a run of this rank, or upper bound of it.

        An update spans at most `rank` directions: with no more columns than that, it gives the columns away.
        """
        return self.min_columns or max(LEAST_COLUMNS, COLUMNS_PER_RANK * rank)


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """What a review needs to know about the site."""

    name: str
    rows: int
    columns: int
    has_missing: bool
    allows_missing: bool
    policy: SitePolicy
    features: tuple[str, ...] = ()
    entries: tuple[int, ...] = ()
    """How many entries each feature has, where some are missing; empty: as many as columns."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The site may enrol; with `needs_approval` once a person at the site has agreed, knowing `why` it is asked."""

    needs_approval: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The site does not take part, for these reasons, one sentence each."""

    reasons: tuple[str, ...]


NOTHING_SPENT = Spending()


def review(
    spec: RunSpec, site: SiteFacts, past: Sequence[PastRun] = (), spent: Spending = NOTHING_SPENT
) -> Accept | Refuse:
    """Accept or refuse a proposed spec by the site's data and policy.

    `past` are the runs over the same data in which sums were opened: a fixed cohort that would single out too few
    members together with them needs a person's approval. `spent` is what runs with differential privacy have spent.
    """
    reasons = (
        *_data_reasons(spec, site),
        *_policy_reasons(spec, site.policy),
        *_cohort_reasons(spec, site),
        *privacy_reasons(spec, site.policy, spent),
    )
    if reasons:
        return Refuse(reasons)
    secure = spec.aggregation == "secure" and spec.participants
    exposed = check_exposure(site, spec.participants, past) if secure else ()
    return Accept(site.policy.manual_approval or bool(exposed), "; ".join(exposed))


def check_exposure(site: SiteFacts, cohort: Collection[str], past: Sequence[PastRun]) -> tuple[str, ...]:
    """Why sums over this cohort, with those of past runs over the same data, would be about too few members."""
    # Here, because every command reads the `[policy]` table, and only the daemon needs the secure sum.
    from dcfpca.secagg.fixed_cohort import exposure  # noqa: PLC0415

    found = exposure(past, frozenset(cohort), site.policy.min_cohort) if past else None
    return () if found is None else (f"the cohort differs too little from an earlier one: {found}",)


def wants_verification(policy: SitePolicy, sum_bytes: int, draw: int, *, turn: bool) -> bool:
    """Whether the site checks a sum of so many bytes; `draw` is a random number of the site's own."""
    if policy.verify == "sampled":
        return sum_bytes <= SMALL_SUM or turn or draw % SAMPLED == 0
    return policy.verify == "always"


def _data_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    reasons = []
    if spec.rows == 0:
        reasons.append("the spec does not state the number of rows")
    elif spec.rows != site.rows and not spec.features:
        reasons.append(f"the spec says {spec.rows} rows, the local matrix has {site.rows}")
    if spec.width > site.rows:
        reasons.append(f"the rank {spec.width} is larger than the {site.rows} rows of the local matrix")
    reasons += _feature_reasons(spec, site)
    if site.has_missing and not spec.missing:
        reasons.append("the local matrix has missing values (NaN), and the spec does not allow them")
    if site.has_missing and not site.allows_missing:
        reasons.append(
            'the local matrix has missing values (NaN), and the site\'s configuration says missing = "refuse"'
        )
    return reasons + _entry_reasons(spec, site)


def _entry_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """In a sum, the row of a feature is about those sites and columns alone that have entries of it.

    Every site that signs the spec answers for itself, so that all of them have the entries that each of them demands.
    The reason leaves the site, so it names neither the feature nor its number of entries.
    """
    reasons = []
    if spec.missing and spec.min_entries < site.policy.min_entries:
        reasons.append(
            f"the spec lets features have as few as {spec.min_entries} entries at a site, and this site demands"
            f" {site.policy.min_entries}: the sum of a feature with few would be about those alone; raise min_entries"
        )
    if site.entries and min(_entries_of(spec, site), default=spec.min_entries) < spec.min_entries:
        reasons.append(
            f"a feature has fewer than the {spec.min_entries} entries at this site that the spec demands (min_entries):"
            " the sum of a feature that few observe would be about those alone; leave it out of the spec's features"
            " (`dcfpca-participant check` at the site names it)"
        )
    return reasons


def _entries_of(spec: RunSpec, site: SiteFacts) -> list[int]:
    """The number of entries of each feature that takes part in the run."""
    if not spec.features:
        return list(site.entries)
    known = dict(zip(site.features, site.entries, strict=True)) if site.features else {}
    return [known[name] for name in spec.features if name in known]


def _feature_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """The same names must mean the same rows; where both lists are known, the features that differ are named."""
    if spec.features and not site.features:
        return ["the spec names its features, and the local matrix has no feature names ([data] feature_names)"]
    if spec.missing_features == "allow":
        return _lacking_reasons(spec, site)
    if spec.features:
        absent = difference(site.features, spec.features)
        return [f"the local matrix lacks the features {absent}"] if absent else []
    if spec.features_sha256 and site.features and features_digest(site.features).hex() != spec.features_sha256:
        return [
            "the local features are not those of the spec, in name or in order (their digests differ;"
            " a spec that names its features tells which)"
        ]
    return []


def _lacking_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """A sum about a feature is over the sites that have it: they must be as many as the site demands of a cohort."""
    reasons = []
    if not set(spec.features) & set(site.features):
        reasons.append("the local matrix has none of the features that the spec names")
    if spec.min_feature_sites < site.policy.min_cohort:
        reasons.append(
            f"features that {spec.min_feature_sites} sites have are enough for the spec (min_feature_sites), and the"
            f" site demands at least {site.policy.min_cohort} participants in every sum ([policy] min_cohort)"
        )
    return reasons


def _policy_reasons(spec: RunSpec, policy: SitePolicy) -> list[str]:
    reasons = []
    if spec.method not in policy.methods:
        allowed = ", ".join(policy.methods) or "none"
        reasons.append(f"the method {spec.method} is not among those the site allows ({allowed})")
    if spec.width > policy.max_rank:
        reasons.append(f"the rank {spec.width} is above the {policy.max_rank} that the site allows")
    if spec.rounds > policy.max_rounds:
        reasons.append(f"{spec.rounds} rounds are more than the {policy.max_rounds} that the site allows")
    reasons += _work_reasons(spec, policy)
    if spec.aggregation == "plain" and not policy.allow_plain:
        reasons.append("plain aggregation would show the site's own updates, and the site does not allow it")
    if spec.aggregation == "secure" and spec.dropouts == "go-on":
        reasons += _dropout_reasons(spec, policy)
    return reasons


def _work_reasons(spec: RunSpec, policy: SitePolicy) -> list[str]:
    gradient = spec.method == "gradient"
    asked = spec.gradient.local_passes if gradient else spec.subspace.local_passes
    if asked <= policy.max_local_passes:
        return []
    # The number itself is not stated: it may have more digits than Python converts to text.
    keys = "gradient.local_iterations × gradient.inner_steps asks" if gradient else "subspace.passes asks"
    solved = " (inner_steps = 0 counts as the most it can take)" if gradient and not spec.gradient.inner_steps else ""
    return [
        f"{keys} for more passes over the data in one local step{solved} than the {policy.max_local_passes} that the"
        " site allows ([policy] max_local_passes); lower it in the spec"
    ]


def _column_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """The reason leaves the site, so it does not state the number of columns."""
    needed = site.policy.columns_needed(spec.width)
    if site.columns >= needed:
        return []
    if site.policy.min_columns:
        return [f"the site has fewer columns than the {needed} with which it takes part ([policy] min_columns)"]
    return [
        f"the site has fewer than the {needed} columns of its own that rank {spec.width} needs here (three times the"
        f" rank, and at least {LEAST_COLUMNS}): with few columns an update gives the data away;"
        " lower the rank, or the site sets [policy] min_columns"
    ]


def _dropout_reasons(spec: RunSpec, policy: SitePolicy) -> list[str]:
    if not policy.allow_dropouts:
        return [
            'dropouts = "go-on" opens sums over changing cohorts, whose differences may be about single sites, and the'
            ' site does not allow it (allow_dropouts = false); propose the run with dropouts = "wait"'
        ]
    if spec.threshold < policy.min_threshold:
        return [f"the threshold {spec.threshold:g} is below the {policy.min_threshold:g} that the site demands"]
    return []


def _cohort_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    reasons = _column_reasons(spec, site)
    if spec.participants and site.name not in spec.participants:
        reasons.append(f"the spec names a fixed cohort, and {site.name} is not in it")
    if spec.participants and len(spec.participants) < site.policy.min_cohort:
        reasons.append(_too_small("cohort", len(spec.participants), site.policy))
    return reasons


def check_cohort(spec: RunSpec, site: SiteFacts, cohort: Collection[str]) -> tuple[str, ...]:
    """Why the site does not take part in a round with this cohort; empty when it does."""
    reasons = []
    if site.name not in cohort:
        reasons.append(f"the announced cohort does not include {site.name}")
    if len(set(cohort)) != len(cohort):
        reasons.append("the announced cohort names somebody twice")
    if spec.participants and (strangers := sorted(set(cohort) - set(spec.participants))):
        reasons.append(f"the announced cohort includes {', '.join(strangers)}, whom the spec does not name")
    if len(cohort) < site.policy.min_cohort:
        reasons.append(_too_small("cohort", len(cohort), site.policy))
    if spec.privacy is not None and not spec.privacy.conspirators < len(cohort) <= MOST_SITES:
        reasons.append(
            f"the cohort has {len(cohort)} participants, and a private run needs more than its"
            f" {spec.privacy.conspirators} conspirators and at most {MOST_SITES}"
        )
    return tuple(reasons)


def check_roster(site: SiteFacts, roster: Collection[str], verified: Collection[str], cohort: Collection[str]) -> str:
    """Why the site does not mask with this roster, whose certificates `verified` it has checked; empty when it does."""
    if unknown := sorted(set(roster) - set(cohort)):
        return f"the roster includes {', '.join(unknown)}, who did not enrol"
    if unproven := sorted(set(verified) - set(roster)):
        return f"keys of {', '.join(unproven)} were relayed, who is not in the roster"
    if len(set(roster)) < site.policy.min_cohort:
        return _too_small("roster", len(set(roster)), site.policy)
    return ""


def review_export(spec: RunSpec, policy: SitePolicy) -> str:
    """Why the reconstruction may not be exported; empty when it may. `private` overrides everything else."""
    if policy.private:
        return "this participant is private: its reconstruction never leaves the site"
    if not policy.allow_export:
        return "the site's policy does not allow exports (allow_export = false)"
    if not spec.export:
        return "the spec that the site signed did not announce an export"
    if spec.privacy is not None and not policy.allow_export_with_privacy:
        return (
            "the run has differential privacy, which an exact reconstruction would undo, and the site's policy does not"
            " allow that (allow_export_with_privacy = false)"
        )
    return ""


def _too_small(what: str, size: int, policy: SitePolicy) -> str:
    return f"the {what} has {size} participants and the site demands at least {policy.min_cohort}"
