"""A site's answer to a proposed run, which its policy gives or leaves to a person. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dcfpca.errors import BadMessage
from dcfpca.secagg.fixed_cohort import PastRun
from dcfpca.spec import RunSpec, parse_spec, spec_digest
from participant.policy import NOTHING_SPENT, Accept, Refuse, SiteFacts, check_cohort, check_exposure, review
from participant.privacy_review import Spending
from participant.session.actions import AwaitApproval, Reaction, Respond
from participant.session.events import Proposed

OVER = "the run is over at this site; it is not taken up again"
"""Sent when a round of an ended run is opened, as by an aggregator whose store was restored from an older backup."""

_PROPOSE_AGAIN = "that became so after a person was asked; propose the run again"
_WHAT_TO_CHANGE = (
    "propose it when all are there, or name the participants in the spec, so that a person here may approve"
)


@dataclass(frozen=True, slots=True)
class Consent:
    """The site's answer to the proposal. It is final, except that the site may withdraw, and binds to `digest`."""

    spec: RunSpec
    digest: bytes
    accept: bool
    reasons: tuple[str, ...]
    private: bool

    def response(self) -> Respond:
        """The message that carries this answer."""
        return Respond(self.digest, self.accept, self.reasons, self.private)

    def withdrawn(self, *reasons: str) -> Consent:
        """The answer of a site that leaves the run for these reasons."""
        return replace(self, accept=False, reasons=reasons)


class Enrolment:
    """Whether this site takes part in one run; `consent` is None until the proposal is answered."""

    def __init__(
        self,
        site: SiteFacts,
        past: Callable[[], Sequence[PastRun]],
        consent: Consent | None = None,
        approved: bool = False,
        spent: Callable[[], Spending] = Spending,
    ) -> None:
        self.consent = consent
        self._site = site
        self._past = past
        self._spent = spent
        self._person_approved = approved
        self._waiting: Proposed | None = None
        self.told = ""
        """What whoever is asked to approve is told."""

    @property
    def accepted(self) -> Consent | None:
        """The answer, if the site takes part."""
        return self.consent if self.consent and self.consent.accept else None

    def propose(self, event: Proposed) -> Reaction:
        """Answer the proposal, ask a person, or repeat the answer that was given before."""
        if self.consent is not None:
            if event.digest != self.consent.digest:
                raise BadMessage("the spec was changed after this site had answered; the first answer stands")
            return Reaction((self.consent.response(),))
        if self._waiting is not None and event.digest != self._waiting.digest:
            raise BadMessage("the spec was changed while a person was asked to approve it; the first one stands")
        if spec_digest(event.spec) != event.digest:
            raise BadMessage("the proposed spec does not match its digest")
        spec = parse_spec(event.spec)
        match self._review(spec):
            case Refuse(reasons):
                return self._answer(spec, event.digest, reasons)
            case Accept(needs_approval=True, why=why):
                self._waiting, self.told = event, why
                return Reaction((AwaitApproval(why),), save=True)
            case Accept():
                return self._answer(spec, event.digest, ())

    def approve(self) -> Reaction:
        """Take a person's approval, which answers the proposal that waits for it."""
        self._person_approved = True
        if self._waiting is None or self.consent is not None:
            return Reaction()
        spec = parse_spec(self._waiting.spec)
        # Reviewed again: other runs may have spent the privacy budget while this one waited for a person, or have been
        # joined with a cohort that differs too little from this one's, of which that person was not told.
        match self._review(spec):
            case Refuse(reasons):
                return self._answer(spec, self._waiting.digest, reasons)
            case Accept(why=why):
                untold = (f"{why}; {_PROPOSE_AGAIN}",) if why and why != self.told else ()
                return self._answer(spec, self._waiting.digest, untold)

    def stop_waiting(self) -> None:
        """The run is over; a later approval answers nothing."""
        self._waiting = None

    def withdraw(self, reasons: tuple[str, ...]) -> Reaction:
        """Leave a run that this site had enrolled in."""
        assert self.consent is not None
        self.consent = self.consent.withdrawn(*reasons)
        return Reaction((self.consent.response(),), save=True)

    def signed(self, digest: bytes) -> Consent:
        """The answer, if it was given to the spec with this digest; BadMessage otherwise."""
        if self.consent is None:
            raise BadMessage("a round was opened in a run that this site has not enrolled in")
        if digest != self.consent.digest:
            raise BadMessage("a round was opened under another spec than the one this site signed")
        return self.consent

    def objections(self, spec: RunSpec, cohort: tuple[str, ...]) -> tuple[str, ...]:
        """Why the site does not let its update into sums over this cohort; empty when it does.

        A person approves of the cohort that the spec names, and of no other.
        """
        approved = self._person_approved and frozenset(cohort) == frozenset(spec.participants)
        exposed = () if approved else check_exposure(self._site, cohort, self._past())
        return (*check_cohort(spec, self._site, cohort), *(f"{why}; {_WHAT_TO_CHANGE}" for why in exposed))

    def _review(self, spec: RunSpec) -> Accept | Refuse:
        return review(spec, self._site, self._past(), self._spent() if spec.privacy else NOTHING_SPENT)

    def _answer(self, spec: RunSpec, digest: bytes, reasons: tuple[str, ...]) -> Reaction:
        self.consent = Consent(spec, digest, not reasons, reasons, self._site.policy.private)
        return Reaction((self.consent.response(),), save=True)
