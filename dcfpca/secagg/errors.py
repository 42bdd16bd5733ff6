"""The reasons for which a side of the secure sum stops; one error class per misbehaviour.

Every one of these fails closed: nothing is sent in answer, and the state of the side that raised is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.errors import BadMessage


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a site keeps when it catches the aggregator in a lie: two digests that should be equal.

    `context` is the digest of the opening that the site answered in `round`, which names run, roster, consensus, sum
    before, layout and exponents.
    """

    round: int
    context: bytes
    announced: bytes
    found: bytes


class SecureSumRefusal(BadMessage):
    """One side of the secure sum stops. `accused` names the participant whose message is at fault, if one can be named;
    `evidence` proves the aggregator's fault, if anything does."""

    def __init__(self, sentence: str, hint: str = "", *, accused: str = "", evidence: Evidence | None = None) -> None:
        super().__init__(sentence, hint)
        self.accused = accused
        self.evidence = evidence


class OutOfTurn(SecureSumRefusal):
    """A step was asked for before the one it builds on."""


class InventedParticipant(SecureSumRefusal):
    """A party whose keys this side has not verified: not in the cohort, without a certificate, or listed twice."""


class SwappedKey(SecureSumRefusal):
    """Keys, or a commitment to them, that their owner did not sign; or a key that no one can use."""


class ReplayedKey(SecureSumRefusal):
    """Something signed for another run, round or attempt, or one participant's keys under two names."""


class ChangedRoster(SecureSumRefusal):
    """A second, different roster in one attempt, or one without this participant."""


class ChangedExponent(SecureSumRefusal):
    """A common exponent that would clip this site's update, is out of range, or changed within a round."""


class ChangedUpdate(SecureSumRefusal):
    """A second, different update under one mask."""


class TamperedShare(SecureSumRefusal):
    """A sealed share does not open, or shares do not give back the secret they were made of."""


class UnusableUpdate(SecureSumRefusal):
    """The update has numbers that are not finite, or too large for fixed point."""


class IncompleteCohort(SecureSumRefusal):
    """A roster that is not exactly the cohort this site consented to."""


class ChangedConsensus(SecureSumRefusal):
    """A second, different consensus, previous sum or layout under one round number."""


class RoundPassed(SecureSumRefusal):
    """A round before the last one that this site answered."""


class PastLastRound(SecureSumRefusal):
    """A round beyond the last one of the spec."""


class RunOver(SecureSumRefusal):
    """A message after the end of the run, when this site's keys have been deleted."""


class LostState(SecureSumRefusal):
    """This site's stored state is missing, damaged, or older than what it has already said in this run."""


class UpdateTooLarge(SecureSumRefusal):
    """An update that still does not fit after the exponents have been raised as often as a run allows."""


class RoundedAway(SecureSumRefusal):
    """A sum that rounds to zero in a whole block, because exponents were raised for a member's misfit."""


class WrongSum(SecureSumRefusal):
    """A sum that its tag contradicts: the aggregator announced something that the sites did not send."""


class ImpossibleSum(SecureSumRefusal):
    """A sum of what the sites sent that honest updates cannot have: one of the sites sent something else."""


class WrongConsensus(SecureSumRefusal):
    """A consensus that does not follow from the verified sum."""


class ImplausibleConsensus(SecureSumRefusal):
    """A consensus that cannot be true: not orthonormal, not finite, or at odds with what this site saw before."""


class SiteFailure(SecureSumRefusal):
    """A problem of the site itself: unreadable data, a full disk, or a failed local step. It accuses nobody."""
