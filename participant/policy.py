"""The site's own policy: which runs it takes part in, and what may leave it. Pure; no message can change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import Field

from dcfpca.rpca import MethodName
from participant.privacy_review import PrivacyLimits

if TYPE_CHECKING:
    from dcfpca.secagg.column_sets import ColumnSet
    from dcfpca.spec import RunSpec

LEAST_COLUMNS = 20
COLUMNS_PER_RANK = 3


class SitePolicy(PrivacyLimits):
    """What the site allows. Nobody else can override it."""

    private: bool = Field(False, description="The reconstruction never leaves, whoever asks.")
    methods: tuple[MethodName, ...] = Field(get_args(MethodName), description="Methods the site takes part in.")
    max_rank: int = Field(
        512,
        ge=1,
        description="Largest rank, or bound on it, that the site accepts; also the most features whose covariance is "
        "summed.",
    )
    max_rounds: int = Field(1000, ge=1, description="Most rounds of one run.")
    min_cohort: int = Field(3, ge=2, description="Smallest cohort in whose sums the site takes part.")
    min_carriers: int = Field(
        2,
        ge=1,
        description="Least `min_carriers` of a spec that the site accepts, so that a direction only this site has "
        "stays here.",
    )
    on_shift: Literal["tell", "ask", "refuse"] = Field(
        "tell",
        description="What the site does if its features differ from those of all sites. A run knows medians and "
        "spreads before "
        "the columns enter a fit; the site then says so in its results, asks a person, or leaves the run.",
    )
    on_bad_model: Literal["tell", "alone"] = Field(
        "tell",
        description="What the site does if most sites say that the shared model fails them. alone: form its results "
        "from its "
        "own columns.",
    )
    max_local_passes: int = Field(
        100,
        ge=1,
        description="Most passes over the data in one local step: `passes`, or `local_iterations` × `inner_steps`.",
    )
    min_columns: int = Field(
        0,
        ge=0,
        description="Fewest columns that the site must have to take part; "
        "0: three times the rank of the run, and at least 20.",
    )
    min_entries: int = Field(
        5,
        ge=1,
        description="Entries that every feature must have at every site of the cohort. The site takes part only in "
        "runs whose "
        "spec has exactly this `min_entries`.",
    )
    min_cell: int = Field(
        5,
        ge=1,
        description="Fewest entries that a count of this site may be about; smaller ones join their neighbours. The "
        "site takes "
        "part only in runs whose spec has exactly this `min_cell`.",
    )
    max_data_refusals: int = Field(
        5,
        ge=0,
        description="How many proposals in 24 hours the site may refuse by itself for reasons about its data. After "
        "that it "
        "answers none without `dcfpca-participant approve`, because refusals reveal something about the data.",
    )
    allow_plain: bool = Field(False, description="Let the aggregator see this site's own updates.")
    verify: Literal["sampled", "always", "never"] = Field(
        "sampled",
        description="Which sums and consensuses the site checks. sampled: all small ones, and large ones in turn.",
    )
    allow_export: bool = Field(False, description="Send L and S to the operator when asked.")
    allow_export_with_privacy: bool = Field(
        False,
        description="Let `allow_export` also apply to runs with privacy, whose protection exact reconstructions undo.",
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
    used_columns: Callable[[RunSpec], int] | None = field(default=None, repr=False)
    """How many columns enter the sums of a run with this spec; None: all."""
    columns_of: Callable[[RunSpec], ColumnSet] | None = field(default=None, repr=False)
    """The columns that the sums of a run with this spec are about; None: not known."""
    id_at: Callable[[RunSpec, int], str] = field(default=lambda _, place: str(place), repr=False)
    """The id of one of them, which never leaves the site."""
    memory_limit: int = 0
    """Bytes that the site's rounds may take ([engine] memory_limit); 0: no limit."""
    outdated: str = ""
    """Why the data that was read is not the data that is there; empty where it is."""


ABOUT_DATA = (
    "the policy of this site does not allow this run with its data; its own log says why, and so does "
    "`dcfpca-participant check` there"
)
"""All that leaves the site of a reason that follows from its data: by different ones a proposer could ask about it."""


@dataclass(frozen=True, slots=True)
class Reasons:
    """Sentences against a run; those `about_data` stay at the site."""

    public: tuple[str, ...] = ()
    about_data: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.public or self.about_data)

    @property
    def leaving(self) -> tuple[str, ...]:
        """What may leave the site. Where a public reason suffices to refuse the run, the data is not mentioned."""
        return self.public or ((ABOUT_DATA,) if self.about_data else ())

    def with_advice(self, advice: str) -> Reasons:
        """The same, each followed by what to do about it."""
        return Reasons(*(tuple(f"{one}; {advice}" for one in kind) for kind in (self.public, self.about_data)))

    def __str__(self) -> str:
        return "; ".join((*self.public, *self.about_data))


@dataclass(frozen=True, slots=True)
class Accept:
    """The site may enrol; with `needs_approval` once a person at the site has agreed, knowing `why` it is asked."""

    needs_approval: bool = False
    why: Reasons = Reasons()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The site does not take part, for these reasons."""

    why: Reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """All of them, for the site itself."""
        return (*self.why.public, *self.why.about_data)


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
