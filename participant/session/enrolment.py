"""A site's answer to a proposed run, which its policy gives or leaves to a person. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dcfpca.errors import BadMessage
from dcfpca.secagg.differencing_check import PastRun
from dcfpca.spec import RunSpec, parse_spec, spec_digest
from participant.policy import Accept, Reasons, Refuse, SiteFacts
from participant.privacy_review import Spending
from participant.review import NOTHING_SPENT, check_cohort, check_exposure, review
from participant.session.actions import AwaitApproval, Consent, LogRefusal, Reaction
from participant.session.events import Proposed

OVER = "the run is over at this site; it is not taken up again"
"""Sent when a round of an ended run is opened, as by an aggregator whose store was restored from an older backup."""

_TOO_OFTEN = (
    "this site refused several proposals of the last 24 hours for reasons about its data, and more refusals would"
    " reveal more about it ([policy] max_data_refusals)"
)
_PROPOSE_AGAIN = "this changed after a person was asked; propose the run again"
_WHAT_TO_CHANGE = (
    "propose it when all are connected, or name the participants in the spec, so that a person here may approve"
)


@dataclass(frozen=True, slots=True)
class History:
    """What the site remembers of other runs; asked each time that a proposal is judged."""

    past: Callable[[], Sequence[PastRun]] = tuple
    """Runs in which sums were opened, or may yet be."""
    spent: Callable[[], Spending] = Spending
    result_of: Callable[[str], bytes] = lambda _: b""
    """The digest of the subspace that a run ended with, if this site has verified it; empty if not."""
    data_refusals: Callable[[], int] = lambda: 0
    """How many proposals of the last 24 hours the site refused for reasons about its data."""


def declined(reason: str) -> Reasons:
    """What the operator is told of a person's refusal."""
    return Reasons((f"a person at the site declined it: {reason}",))


class Enrolment:
    """Whether this site takes part in one run; `consent` is None until the proposal is answered."""

    def __init__(
        self, site: SiteFacts, history: History, consent: Consent | None = None, approved: bool = False
    ) -> None:
        self.consent = consent
        self._site = site
        self._history = history
        self._person_approved = approved
        self._waiting: Proposed | None = None
        self.asked_because = ""
        """Why a person is asked to approve the run; empty where the site asks for every run."""

    @property
    def accepted(self) -> Consent | None:
        """The answer, if the site takes part."""
        return self.consent if self.consent and self.consent.accept else None

    def propose(self, event: Proposed) -> Reaction:
        """Answer the proposal, ask a person, or repeat the answer that was given before."""
        if self.consent is not None:
            if event.digest != self.consent.digest:
                raise BadMessage("the spec was changed after this site had answered; the first answer stands")
            return Reaction((self.consent,))
        if self._waiting is not None and event.digest != self._waiting.digest:
            raise BadMessage("the spec was changed while a person was asked to approve it; the first one stands")
        if spec_digest(event.spec) != event.digest:
            raise BadMessage("the proposed spec does not match its digest")
        spec = parse_spec(event.spec)
        verdict = self._review(spec)
        if not verdict.why.public and self._history.data_refusals() >= self._site.policy.max_data_refusals:
            # Whatever the verdict: if only refusals waited, waiting would be one.
            return self._ask(event, f"{_TOO_OFTEN}; {verdict.why}" if verdict.why else _TOO_OFTEN)
        match verdict:
            case Refuse(why):
                return self._answer(spec, event.digest, why)
            case Accept(needs_approval=True, why=why):
                return self._ask(event, str(why))
            case Accept():
                return self._answer(spec, event.digest, Reasons())

    def _ask(self, event: Proposed, why: str) -> Reaction:
        self._waiting, self.asked_because = event, why
        return Reaction((AwaitApproval(why),), save=True)

    def approve(self) -> Reaction:
        """Take a person's approval, which answers the proposal that waits for it."""
        self._person_approved = True
        if self._waiting is None or self.consent is not None:
            return Reaction()
        spec = parse_spec(self._waiting.spec)
        # Reviewed again: other runs may have spent the privacy budget while this one waited for a person, or have been
        # joined with a cohort that differs too little from this one's, which that person did not know.
        match self._review(spec):
            case Refuse(why):
                return self._answer(spec, self._waiting.digest, why)
            case Accept(why=why):
                unknown = Reasons() if str(why) in self.asked_because else why.with_advice(_PROPOSE_AGAIN)
                return self._answer(spec, self._waiting.digest, unknown)

    def decline(self, reason: str) -> Reaction:
        """Take a person's refusal of the proposal that waits."""
        if self._waiting is None or self.consent is not None:
            return Reaction()
        return self._answer(parse_spec(self._waiting.spec), self._waiting.digest, declined(reason))

    def stop_waiting(self) -> None:
        """The run is over; a later approval answers nothing."""
        self._waiting = None

    def withdraw(self, reasons: Reasons) -> Reaction:
        """Leave a run that this site had enrolled in."""
        assert self.consent is not None
        self.consent = self.consent.withdrawn(*reasons.leaving)
        return self._responded(reasons)

    def objections(self, spec: RunSpec, cohort: tuple[str, ...]) -> Reasons:
        """Why the site does not let its update into sums over this cohort; empty when it does.

        A person approves of the cohort that the spec names, and of no other.
        """
        approved = self._person_approved and frozenset(cohort) == frozenset(spec.participants)
        exposed = Reasons() if approved else check_exposure(spec, self._site, cohort, self._history.past())
        exposed = exposed.with_advice(_WHAT_TO_CHANGE)
        return Reasons((*check_cohort(spec, self._site, cohort), *exposed.public), exposed.about_data)

    def _review(self, spec: RunSpec) -> Accept | Refuse:
        history, knows_start = self._history, bool(self._history.result_of(spec.warm_start))
        spent = history.spent() if spec.privacy else NOTHING_SPENT
        return review(spec, self._site, history.past(), spent, knows_start=knows_start)

    def _answer(self, spec: RunSpec, digest: bytes, reasons: Reasons) -> Reaction:
        self.consent = Consent(spec, digest, not reasons, reasons.leaving, self._site.policy.private)
        return self._responded(reasons)

    def _responded(self, reasons: Reasons) -> Reaction:
        """The answer, and for the site's own log what it does not say."""
        assert self.consent is not None
        here = tuple(LogRefusal("AboutData", sentence) for sentence in reasons.about_data)
        return Reaction((*here, self.consent), save=True)
