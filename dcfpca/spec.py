"""The spec of a run: proposed by the operator, reviewed and signed by every site, and immutable afterwards."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dcfpca.config_file import describe, read_toml
from dcfpca.errors import BadInput
from dcfpca.identity import MAX_NAME
from dcfpca.privacy.settings import PrivacySettings, check_together, derived_keys
from dcfpca.rpca import MethodName
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.round_limits import (
    CLOSING_ROUNDS,
    COUNT_ROUNDS,
    SCALING_ROUNDS,
    WHOLE,
    WIDEST_CLOSING,
    automatic_bound,
)
from dcfpca.rpca.subspace.settings import SubspaceSettings

# The names that certificates may carry; see dcfpca.identity.
Name = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[a-z0-9]+(-+[a-z0-9]+)*(\.[a-z0-9]+(-+[a-z0-9]+)*)*$")]

FeatureName = Annotated[str, Field(min_length=1, max_length=200)]


REMOVED = ("dropouts", "threshold", "subspace.fall_resting", "subspace.sampled_share")
"""Keys of earlier versions: allowed in stored specs, refused in new ones."""


def features_digest(names: Sequence[str]) -> bytes:
    """SHA-256 over the names in order, encoded as JSON, so that different lists never have the same bytes."""
    return hashlib.sha256(json.dumps(list(names), ensure_ascii=False).encode()).digest()


class RunSpec(BaseModel):
    """Everything that decides what a run computes and who may see what. Frozen; identified by its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str = Field("", max_length=200, description="A name for people to read; it changes nothing.")
    method: MethodName = Field("subspace", description="How the low-rank part is found.")
    rows: int = Field(0, ge=0, description="How many features a run has; 0: as the connected participants report.")
    features: tuple[FeatureName, ...] = Field(
        (),
        description="Names of the features; each site selects and orders its columns by them. Empty: as the sites "
        "have them.",
    )
    features_sha256: str = Field(
        "",
        pattern=r"^([0-9a-f]{64})?$",
        description="Digest of the feature names in order; empty: as the sites report.",
    )
    missing_features: Literal["refuse", "allow"] = Field(
        "refuse",
        description="allow: a site that lacks some of `features` takes part with them unobserved.",
    )
    min_feature_sites: int = Field(
        3, ge=2, description="Fewest sites that must have each feature if sites may lack some; otherwise the run ends."
    )
    rank: int | None = Field(
        None, ge=1, description="The exact rank of the low-rank part. With neither rank nor max_rank the rank is found."
    )
    max_rank: int | None = Field(None, ge=1, description="An upper bound; method subspace finds the rank below it.")
    closing_rounds: bool = Field(
        True,
        description="After the fit, refine it on inexact data, choose the rank by hidden entries, calibrate flags and "
        "judge the answer. false: the fit alone.",
    )
    hidden_share: float = Field(
        0.03, ge=0.001, le=0.2, description="Share of observed entries hidden from the fit to judge it by."
    )
    flag_rate: float = Field(
        0.01,
        gt=0,
        le=0.5,
        description="How strict flags are: an entry is flagged if the probability that it is ordinary is below "
        "15 times this.",
    )
    covariance: bool = Field(
        True,
        description="Up to 256 features, sum the covariance of all features and judge entries by it. false: by the "
        "directions of the low-rank part alone.",
    )
    min_carriers: int = Field(
        2,
        ge=1,
        description="A direction of U is shown and exported only if the columns of at least this many sites move "
        "along it.",
    )
    max_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Largest share that one site's columns may have in the sums that refine U and choose its rank. 1: "
        "no limit.",
    )
    rounds: int = Field(100, ge=1, le=100_000, description="Stop after this many rounds.")
    tolerance: float = Field(1e-9, ge=0, lt=1, description="Stop when the subspace moves less than this; 0: never.")
    scaling: Literal["auto", "robust", "none"] = Field(
        "none",
        description="robust: centre and scale features by their medians and MADs over all sites, found from sums "
        "alone. auto: "
        "as robust, unless all features vary about zero by similar amounts. none: leave the data as it is. A "
        "proposal without this key, by command, file or Python, has auto.",
    )
    warm_start: str = Field(
        "", max_length=100, description="Start from the subspace of this earlier finished run; empty: a random start."
    )
    seed: int = Field(
        0, ge=0, lt=2**63, description="Seed of the random start; the same seed gives the same run at the same sites."
    )
    participants: tuple[Name, ...] = Field((), description="A fixed cohort; empty: whoever enrols by the deadline.")
    quorum: int | None = Field(
        None, ge=1, description="Fewest enrolments of a secure run, or updates in a plain round; by default a majority."
    )
    aggregation: Literal["secure", "plain"] = Field(
        "secure", description="secure: the aggregator sees only sums. plain: it sees each site's update."
    )
    patience: float = Field(
        3600, gt=0, le=30 * 86400, description="Seconds to wait for a site that is away before the run pauses."
    )
    precision: Literal[64, 32] = Field(64, description="Bits per number in a secure sum; 32 halves the bytes.")
    export: bool = Field(False, description="Public participants will be asked for their reconstructions.")
    missing: bool = Field(True, description="NaN entries are unobserved; false: a site with NaN refuses.")
    min_entries: int = Field(
        5,
        ge=1,
        description="Entries that every feature must have at every site with missing values; a site with fewer "
        "refuses.",
    )
    min_cell: int = Field(
        5,
        ge=1,
        description="Fewest entries that a count of a site may be about; smaller ones join their neighbours.",
    )
    enrol_seconds: float = Field(30, gt=0, le=30 * 86400, description="The longest time that enrolment stays open.")
    round_seconds: float = Field(
        60, gt=0, le=86400, description="Deadline of a round; every other timeout of a round derives from it."
    )
    max_attempts: int = Field(3, ge=1, le=100, description="Tries at one round before the run pauses.")
    subspace: SubspaceSettings = Field(default_factory=SubspaceSettings)
    gradient: GradientSettings = Field(default_factory=GradientSettings)
    privacy: PrivacySettings | None = Field(
        None, description="Differential privacy per column, see [privacy]; absent: results are exact, and not private."
    )

    @model_validator(mode="before")
    @classmethod
    def _privacy_says_the_rounds(cls, keys: Any) -> Any:
        """With a table of privacy, the number of rounds follows from it, and there are no closing rounds."""
        privacy = keys.get("privacy") if isinstance(keys, dict) else None
        return derived_keys(privacy) | keys if isinstance(privacy, dict) else keys

    @model_validator(mode="before")
    @classmethod
    def _features_say_the_rows(cls, keys: Any) -> Any:
        """Where features are named, their number and digest follow and may be left out."""
        names = keys.get("features") if isinstance(keys, dict) else None
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            return keys
        derived = {"rows": len(names), "features_sha256": features_digest(names).hex()}
        return keys | {key: keys.get(key) or value for key, value in derived.items()}

    @model_validator(mode="after")
    def _names_fit(self) -> RunSpec:
        if len(set(self.features)) != len(self.features):
            raise ValueError("features: a name is given twice")
        if self.features and self.rows != len(self.features):
            raise ValueError(f"rows says {self.rows}, and features names {len(self.features)}; leave rows out")
        if self.features and self.features_sha256 != features_digest(self.features).hex():
            raise ValueError("features_sha256 is not the digest of features; leave it out")
        return self

    @model_validator(mode="after")
    def _lacking_features_fit(self) -> RunSpec:
        if self.missing_features == "refuse":
            return self
        if not self.features:
            raise ValueError('missing_features = "allow" needs the names of all features; give features')
        if not self.missing:
            raise ValueError('missing_features = "allow" leaves entries unobserved; set missing = true')
        if self.aggregation == "plain":
            raise ValueError('missing_features = "allow" needs a cohort that stays: set aggregation = "secure"')
        return self

    @model_validator(mode="after")
    def _sane(self) -> RunSpec:
        if self.rank is not None and self.max_rank is not None:
            raise ValueError("give rank (exact) or max_rank (an upper bound), not both; neither: the rank is found")
        if self.rank is None and self.max_rank is None and (self.method == "gradient" or not self.closing_rounds):
            raise ValueError(
                "give rank or max_rank: only the closing rounds of method subspace find it without a bound"
            )
        if self.closing_rounds and self.width > WIDEST_CLOSING:
            raise ValueError(
                f"closing rounds take a rank of at most {WIDEST_CLOSING}, not {self.width}; set closing_rounds = false"
            )
        if self.rows and self.width > self.rows:
            raise ValueError(f"the rank {self.width} is larger than the {self.rows} features of the data; lower it")
        if len(set(self.participants)) != len(self.participants):
            raise ValueError("participants names somebody twice")
        if self.quorum and self.participants and self.quorum > len(self.participants):
            raise ValueError(f"the quorum {self.quorum} is larger than the cohort of {len(self.participants)}")
        return self

    @model_validator(mode="after")
    def _privacy_fits(self) -> RunSpec:
        if self.privacy is not None:
            check_together(self.privacy, self)
        return self

    @property
    def width(self) -> int:
        """Columns of the exchanged tensors: the rank, its upper bound, or the bound chosen for these rows."""
        return self.rank or self.max_rank or automatic_bound(self.rows)

    @property
    def sums_covariance(self) -> bool:
        """Whether sites are asked for the covariance of all features."""
        judged = self.closing_rounds and self.method == "subspace" and self.privacy is None
        return judged and self.covariance and self.rows <= WHOLE

    @property
    def last_fit_round(self) -> int:
        """The highest number of a round of the method proper; counting and scaling take rounds before it."""
        return self.rounds + self.rounds_before_fit

    @property
    def last_round(self) -> int:
        """The highest round number that can occur, with closing rounds where the spec has them."""
        return self.last_fit_round + (CLOSING_ROUNDS if self.closing_rounds else 0)

    @property
    def rounds_before_fit(self) -> int:
        """Rounds that come before those of the method: the count of features that sites may lack, and scaling."""
        counting = COUNT_ROUNDS if self.missing_features == "allow" else 0
        return counting + (SCALING_ROUNDS if self.scaling != "none" else 0)

    @property
    def grace_seconds(self) -> float:
        """The seconds to wait for a participant whose connection broke before the round goes on without it."""
        return self.round_seconds / 10

    @property
    def least_cohort(self) -> int:
        """Fewest sites: 3 in a secure sum, as with two of them the sum minus one's own update is the other's update."""
        return 3 if self.aggregation == "secure" else 1

    @property
    def update_format(self) -> Literal["uint64", "uint32", "float64"]:
        """The format of an update's numbers: whole numbers where they are masked, doubles in the clear."""
        if self.aggregation == "plain":
            return "float64"
        return "uint64" if self.precision == 64 else "uint32"

    def quorum_of(self, cohort: int) -> int:
        """Fewest enrolments with which a secure run begins, or updates that make a round of a plain one."""
        majority = cohort // 2 + 1
        wanted = max(self.quorum or majority, self.privacy.conspirators + 1 if self.privacy else 1)
        return max(wanted, majority) if self.aggregation == "secure" else wanted

    def canonical(self) -> bytes:
        """The bytes that are signed and digested: JSON with sorted keys, no spaces, every default spelled out."""
        # Not the TOML as it was written: order, spelling and what was left to a default would be part of the signature.
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return spec_digest(self.canonical())


def spec_digest(canonical: bytes) -> bytes:
    """SHA-256 of a spec's canonical bytes, as every party computes it."""
    return hashlib.sha256(canonical).digest()


def parse_spec(data: bytes | dict[str, Any]) -> RunSpec:
    """A spec from JSON or from already decoded keys; anything wrong is a BadInput that names the key."""
    try:
        return RunSpec.model_validate_json(data) if isinstance(data, bytes) else RunSpec.model_validate(data)
    except ValidationError as error:
        sentence = f"the spec is not valid: {describe(error, RunSpec)}"
        raise BadInput(sentence, "correct it and propose the run again") from error


def read_spec_file(path: Path) -> dict[str, Any]:
    """The keys of a spec file; they are validated once the command line's own keys have been added."""
    hint = 'write a line for each key, text in quotes and lists in brackets: max_rank = 5, features = ["age", "chol"]'
    return read_toml(path, "the spec", "the path", hint)


def parse_kept_spec(data: bytes | dict[str, Any]) -> RunSpec:
    """A stored spec, maybe of an earlier release: keys that no longer exist are ignored."""
    keys = copy.deepcopy(data) if isinstance(data, dict) else json.loads(data)
    for path in REMOVED:
        *tables, key = path.split(".")
        table = keys
        for name in tables:
            table = table.get(name, {})
        table.pop(key, None)
    return parse_spec(keys)
