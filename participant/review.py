"""Whether a site takes part in a proposed run, by its policy, its data and what earlier runs have revealed. Pure.

Whatever the policy does not allow is refused, and a refusal states all its reasons at once; but what follows from the
data stays at the site.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from dcfpca.errors import listed
from dcfpca.privacy.settings import MOST_SITES
from dcfpca.run_size import ALWAYS_ALLOWED, amount, round_memory
from dcfpca.secagg.differencing_check import PastRun, column_exposure, exposure
from dcfpca.spec import features_digest
from participant.policy import LEAST_COLUMNS, Accept, Reasons, Refuse, SiteFacts, SitePolicy
from participant.privacy_review import Spending, privacy_reasons

if TYPE_CHECKING:
    from dcfpca.spec import RunSpec

NOTHING_SPENT = Spending()


def review(
    spec: RunSpec,
    site: SiteFacts,
    past: Sequence[PastRun] = (),
    spent: Spending = NOTHING_SPENT,
    *,
    knows_start: bool = True,
) -> Accept | Refuse:
    """Accept or refuse a proposed spec by the site's data and policy.

    `past` are the runs in which sums were opened: a run that would single out too few members or columns together with
    them needs a person's approval. So does a warm start from anything but a result that the site itself has verified
    (`knows_start`). `spent` is what runs with differential privacy have spent.
    """
    public = (
        *_schema_reasons(spec, site),
        *_size_reasons(spec, site),
        *_policy_reasons(spec, site.policy),
        *_cohort_reasons(spec, site),
        *privacy_reasons(spec, site.policy, spent),
    )
    if refused := Reasons(public, (*_data_reasons(spec, site), *_column_reasons(spec, site))):
        return Refuse(refused)
    asked = _doubts(spec, site, past, knows_start)
    return Accept(site.policy.manual_approval or bool(asked), asked)


def _doubts(spec: RunSpec, site: SiteFacts, past: Sequence[PastRun], knows_start: bool) -> Reasons:
    """Why a person decides about a run that nothing forbids."""
    if spec.aggregation == "plain":  # everybody's update is seen anyway, and no sum singles out a member
        return Reasons((), _changed_columns(spec, site, frozenset(spec.participants), past))
    # Without a list of participants the cohort is judged once it is known.
    exposed = check_exposure(spec, site, spec.participants, past) if spec.participants else Reasons()
    if not spec.warm_start or knows_start:
        return exposed
    # A first U of the proposer's choice is a question about the columns that lie along it.
    start = f"the run begins at the subspace of {spec.warm_start}, a result that this site has not verified"
    return Reasons((start, *exposed.public), exposed.about_data)


def check_exposure(spec: RunSpec, site: SiteFacts, cohort: Collection[str], past: Sequence[PastRun]) -> Reasons:
    """Why this secure run would tell, with past ones over some of the same columns, of too few members or columns
    alone."""
    if not past:
        return Reasons()
    now = site.columns_of(spec) if site.columns_of is not None else None
    overlapping = [run for run in past if run.cohort and (now is None or now.shared_with(run.columns).any())]
    found = exposure(overlapping, frozenset(cohort), site.policy.min_cohort)
    members = () if found is None else (f"the cohort differs too little from an earlier one: {found}",)
    return Reasons(members, _changed_columns(spec, site, frozenset(cohort), past))


def _changed_columns(
    spec: RunSpec, site: SiteFacts, cohort: frozenset[str], past: Sequence[PastRun]
) -> tuple[str, ...]:
    """Whom this run would expose, if its columns differ by few from those of a run with another of its members: the
    data has changed, or a few have entries in the features of one of the two alone.

    Noise hides a column whichever of the two runs has it.
    """
    if spec.privacy is not None or site.columns_of is None:
        return ()
    others, fewest = cohort - {site.name}, site.policy.columns_needed(spec.width)
    compared = [run for run in past if not run.noisy and (not run.cohort or not others or run.cohort & others)]
    found = column_exposure(compared, site.columns_of(spec), fewest)
    if found is None:
        return ()
    ways_out = f"wait until {fewest} or more differ, or propose the run with [privacy]"
    if not found.places.size and not found.gone:
        runs = ", ".join(found.runs)
        return (f"with the runs {runs} it cannot be decided whether too few columns would be exposed; {ways_out}",)
    ids = [site.id_at(spec, int(place)) for place in found.places]
    whom = f"{len(ids)} of the present columns ({', '.join(ids)})" if ids else "none of the present columns"
    gone = f" and {found.gone} that it leaves out" if found.gone else ""
    return (
        f"with {', '.join(found.runs)} it would reveal sums of {whom}{gone} alone, because so few"
        f" columns with entries in its features differ; {ways_out}",
    )


def _schema_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """Rows and names of features are no secret: the site states both when it connects."""
    reasons = []
    if spec.rows == 0:
        reasons.append("the spec does not state how many features (rows)")
    elif spec.rows != site.rows and not spec.features:
        reasons.append(f"the spec says {spec.rows} features (rows), this site has {site.rows}")
    if spec.width > site.rows:
        reasons.append(f"the rank {spec.width} is larger than the {site.rows} features of this site")
    return reasons + _feature_reasons(spec, site)


def _size_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """The number of features is no secret, and what a round needs follows from it."""
    if not site.memory_limit or spec.rows != site.rows or spec.width > spec.rows:
        return []
    if (needed := round_memory(spec)) <= max(site.memory_limit, ALWAYS_ALLOWED):
        return []
    return [
        f"a round over {spec.rows:,} features needs about {amount(needed)} of memory beside the data, and the site"
        f" allows {amount(site.memory_limit)} ([engine] memory_limit); closing_rounds = false needs less"
    ]


def _data_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    reasons = [site.outdated] if site.outdated else []
    if site.has_missing and not spec.missing:
        reasons.append("the local matrix has missing values (NaN), and the spec does not allow them")
    if site.has_missing and not site.allows_missing:
        reasons.append(
            'the local matrix has missing values (NaN), and the site\'s configuration says missing = "refuse"'
        )
    return reasons + _entry_reasons(spec, site)


def _entry_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """In a sum, the row of a feature is about those sites and columns alone that have entries of it.

    Every site that signs the spec answers for itself by its own policy, whose number the spec must have: a proposer who
    chose it could find out by refusals how many entries a feature has.
    """
    demanded = site.policy.min_entries
    if not site.entries or min(_entries_of(spec, site), default=demanded) >= demanded:
        return []
    return [
        f"a feature has fewer than the {demanded} entries at this site that its policy demands (min_entries): the sum"
        " of a feature that few observe would be about those alone; leave it out of the spec's features"
        " (`dcfpca-participant check` at the site names it)"
    ]


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
        present = set(site.features)
        absent = [name for name in spec.features if name not in present]
        return [f"the local matrix lacks the features {listed(absent)}"] if absent else []
    if spec.features_sha256 and site.features and features_digest(site.features).hex() != spec.features_sha256:
        return [
            "the local features are not those of the spec, in name or in order (their digests differ;"
            " a spec that names its features shows which)"
        ]
    return []


def _lacking_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    """The sum of a feature covers only the sites that have it, so these must be enough for the site's `min_cohort`."""
    reasons = []
    if not set(spec.features) & set(site.features):
        reasons.append("the local matrix has none of the features that the spec names")
    if spec.min_feature_sites < site.policy.min_cohort:
        reasons.append(
            f"the spec accepts features that {spec.min_feature_sites} sites have (min_feature_sites), and the site"
            f" demands at least {site.policy.min_cohort} participants in every sum ([policy] min_cohort)"
        )
    return reasons


def _policy_reasons(spec: RunSpec, policy: SitePolicy) -> list[str]:
    reasons = []
    if spec.method not in policy.methods:
        allowed = ", ".join(policy.methods) or "none"
        reasons.append(f"the method {spec.method} is not among those the site allows ({allowed})")
    if spec.width > policy.max_rank:
        reasons.append(f"the rank {spec.width} is above the {policy.max_rank} that the site allows")
    if spec.sums_covariance and spec.rows > policy.max_rank:
        reasons.append(
            f"the covariance of all {spec.rows} features is summed, and the site allows {policy.max_rank} directions"
            " ([policy] max_rank): propose the run with covariance = false"
        )
    if spec.closing_rounds and spec.min_carriers < policy.min_carriers:
        reasons.append(
            f"the spec publishes directions that {spec.min_carriers} site(s) carry (min_carriers), and the site demands"
            f" at least {policy.min_carriers} ([policy] min_carriers)"
        )
    if policy.on_shift != "tell" and spec.scaling == "none":
        reasons.append(
            "the site compares its features with those of all sites before a fit ([policy] on_shift), and without"
            ' scaling it does not learn their medians: propose the run with scaling = "auto" or "robust"'
        )
    if spec.rounds > policy.max_rounds:
        reasons.append(f"{spec.rounds} rounds are more than the {policy.max_rounds} that the site allows")
    reasons += [*_work_reasons(spec, policy), *_tunable_reasons(spec)]
    if spec.missing and spec.min_entries != policy.min_entries:
        fewer = spec.min_entries < policy.min_entries
        reasons.append(
            f"the spec lets features have as few as {spec.min_entries} entries at a site, and this site demands"
            f" {policy.min_entries}: {'raise' if fewer else 'lower'} min_entries to {policy.min_entries}"
        )
    if spec.min_cell != policy.min_cell:
        reasons.append(
            f"the spec merges counts below {spec.min_cell} (min_cell), and this site those below {policy.min_cell}: set"
            f" min_cell = {policy.min_cell}"
        )
    if spec.aggregation == "plain" and not policy.allow_plain:
        reasons.append("plain aggregation would show the site's own updates, and the site does not allow it")
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


def _tunable_reasons(spec: RunSpec) -> list[str]:
    """Beyond these ranges a tunable makes a step expensive, or a count rest on few entries."""
    table = spec.gradient if spec.method == "gradient" else spec.subspace
    return [
        f"{spec.method}.{name} is outside {least:g} … {most:g}, where this site takes part; leave it out"
        for name, (least, most) in TUNABLES[spec.method].items()
        if (value := getattr(table, name)) is not None and not least <= value <= most
    ]


TUNABLES: dict[str, dict[str, tuple[float, float]]] = {
    "subspace": {
        "a": (1.0, 16.0),
        "b": (1.0, 16.0),
        "noise_factor": (0.5, 16.0),
        "opening_factor": (0.5, 16.0),
        "fall_lead": (1.0, 16.0),
        "fall_fastest": (0.01, 1.0),
        "caution_lead": (0.0, 200.0),
        "caution_fastest": (0.0, 200.0),
        "fall_slowest": (0.1, 1.0),
        "gap": (1.0, 1e4),
        "fall_gap": (0.1, 1.0),
        "rank_entry": (0.1, 16.0),
        "rank_noise": (0.1, 16.0),
        "largest_relaxation": (1.0, 4.0),
        "momentum_below": (0.0, 1.0),
        "floor": (0.0, 1e-3),
        "narrow_below": (0.0, 1.0),
        "narrow_gap": (1.0, 1e4),
        "narrow_rounds": (1, 1e5),
        "sampled_rows": (20, 1e6),
        "block_bytes": (1 << 16, 1 << 28),
        "single": (0.0, 1.0),
    },
    "gradient": {
        "learning_rate": (1e-15, 1e6),
        "lambda_": (1e-12, 1e12),
        "rho": (1e-12, 1e12),
        "inner_tolerance": (1e-12, 0.1),
    },
}
"""What a site takes part with, whatever it is asked for; passes are limited by `max_local_passes`."""


def _column_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    needed = site.policy.columns_needed(spec.width)
    if _has_columns(spec, site, needed):
        return []
    if site.policy.min_columns:
        return [f"the site has fewer columns than the {needed} with which it takes part ([policy] min_columns)"]
    return [
        f"the site has fewer than the {needed} columns of its own that rank {spec.width} needs here (three times the"
        f" rank, and at least {LEAST_COLUMNS}): with few columns an update reveals the data;"
        " lower the rank, or the site sets [policy] min_columns"
    ]


def _has_columns(spec: RunSpec, site: SiteFacts, needed: int) -> bool:
    """Whether at least `needed` columns have an entry in the spec's features. Counting them may take a pass over the
    data, which is saved where one feature alone has enough entries."""
    if spec.privacy is None and site.entries and max(_entries_of(spec, site), default=0) >= needed:
        return True
    return (site.used_columns(spec) if site.used_columns is not None else site.columns) >= needed


def _cohort_reasons(spec: RunSpec, site: SiteFacts) -> list[str]:
    reasons = []
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


def _too_small(what: str, size: int, policy: SitePolicy) -> str:
    return f"the {what} has {size} participants and the site demands at least {policy.min_cohort}"
