"""Whether a site's privacy budget allows a run, by ρ of all its runs together. Pure.

ρ (zCDP) adds up over runs in any order, whatever their δ. A run is judged by ε of the sum at its own δ, which must not
be above the site's `max_delta`: so all runs that a site ever joined are together (max_epsilon, max_delta)-private.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from dcfpca.config_file import Section
from dcfpca.privacy.settings import PrivacySettings
from dcfpca.privacy.zcdp import accountant_is_installed, epsilon_of, rho_of

if TYPE_CHECKING:
    from dcfpca.spec import RunSpec


class PrivacyLimits(Section):
    """What a site's policy says on differential privacy."""

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
        1, ge=0, description="How many conspirators, at least, the noise of such a run must withstand."
    )


@dataclass(frozen=True, slots=True)
class Spending:
    """ρ that the site has spent before a run: on the same data, and in the last 365 days on any data.

    `later` charges of the year are dated later than now: a clock was wrong when they were made, or is wrong now.
    """

    data: float = 0.0
    year: float = 0.0
    later: int = 0


def composed(rhos: Iterable[float]) -> float:
    """ρ of all these runs together; correctly rounded, so that their order does not matter."""
    return math.fsum(rhos)


def rho_asked(privacy: PrivacySettings) -> float:
    """ρ of a whole run with these settings."""
    return rho_of(privacy.epsilon, privacy.delta)


def epsilon_left(limit: float, spent: float, delta: float) -> float:
    """The largest ε of one more run at this δ, after which all runs together have at most ε = `limit`."""
    return epsilon_of(max(rho_of(limit, delta) - spent, 0.0), delta)


def privacy_reasons(spec: RunSpec, policy: PrivacyLimits, spent: Spending) -> list[str]:
    """Why the site's policy on differential privacy does not allow a run, one sentence each; empty when it does."""
    if spec.privacy is None:
        if not policy.require_privacy:
            return []
        return [
            "the site takes part only in runs with differential privacy ([policy] require_privacy), and the spec has"
            " no [privacy] table; state its epsilon there"
        ]
    if not accountant_is_installed():  # a site that cannot account for a run does not join it
        return ["this site has no accountant of differential privacy (pip install 'dcfpca[privacy]')"]
    return [*_term_reasons(spec.privacy, policy), *_budget_reasons(spec.privacy, policy, spent)]


def _term_reasons(privacy: PrivacySettings, policy: PrivacyLimits) -> list[str]:
    reasons = []
    if privacy.delta > policy.max_delta:
        reasons.append(
            f"δ = {privacy.delta:g} is above the {policy.max_delta:g} that the site allows ([policy] max_delta)"
        )
    if privacy.conspirators < policy.min_conspirators:
        reasons.append(
            f"the noise withstands {privacy.conspirators} conspirators, and the site demands {policy.min_conspirators}"
            " ([policy] min_conspirators); raise conspirators in the spec"
        )
    return reasons


def clock_remark(spent: Spending) -> str:
    """That charges are dated later than now, and what follows; empty where none is."""
    if not spent.later:
        return ""
    many = "one charge is" if spent.later == 1 else f"{spent.later} charges are"
    return f"{many} dated later than now and counted among those of the last 365 days; check the clock"


def _budget_reasons(privacy: PrivacySettings, policy: PrivacyLimits, spent: Spending) -> list[str]:
    over_data = _over(privacy, spent.data, policy.max_epsilon, "on this data", "max_epsilon")
    over_year = _over(privacy, spent.year, policy.max_epsilon_year, "in the last 365 days", "max_epsilon_year")
    remark = clock_remark(spent)
    return over_data + [f"{reason} ({remark})" if remark else reason for reason in over_year]


def _over(privacy: PrivacySettings, before: float, limit: float | None, where: str, key: str) -> list[str]:
    if limit is None:
        return []
    delta = privacy.delta
    total = epsilon_of(composed((before, rho_asked(privacy))), delta)
    if total <= limit:
        return []
    left = epsilon_left(limit, before, delta)
    rest = f"at most ε = {rounded_down(left):g} is left for one run" if left > 0.0 else "nothing is left"
    return [
        f"the run asks for ε = {privacy.epsilon:g} at δ = {delta:g}, ε = {epsilon_of(before, delta):.3g} has been"
        f" spent {where}, and together they come to ε = {total:.3g}, above the site's limit of {limit:g}"
        f" ([policy] {key}); {rest}"
    ]


def rounded_down(value: float) -> float:
    """Rounds down to three digits, so that a run that asks for exactly what is left is accepted."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit) * unit:.12g}")
