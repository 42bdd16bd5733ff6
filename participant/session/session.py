"""A site's part in one run, without network, disk or clock: events in, actions out.

The driver guarantees three things. It saves every event for which `handle` asks it before it carries out the actions.
It draws a fresh seed for every `Opened`. After a restart it gives the saved events to `replay`, which restores the
session, and carries out what `resume` returns. Every answer is a function of what is saved, so a restarted site sends
the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadInput, BadMessage
from dcfpca.secagg import SigningIdentity
from dcfpca.spec import RunSpec, parse_spec, spec_digest
from participant.policy import Accept, Refuse, SiteFacts, check_cohort, review, review_export
from participant.session.actions import (
    Action,
    AwaitApproval,
    Compute,
    Export,
    Finish,
    Forget,
    LogRefusal,
    RefuseExport,
    Respond,
)
from participant.session.attempt import Attempt, begin
from participant.session.events import (
    Acknowledged,
    Approved,
    Computed,
    ComputeFailed,
    Ended,
    Event,
    ExportWanted,
    MaskWanted,
    Opened,
    Proposed,
    ResultsWritten,
    RosterRelayed,
    SecureStep,
    StoodBy,
    SurvivorsAnnounced,
    TurnedDown,
    UnmaskWanted,
)


@dataclass(frozen=True, slots=True)
class Consent:
    """The site's answer to the proposal. It is final, except that the site may withdraw, and binds to `digest`."""

    spec: RunSpec
    digest: bytes
    accept: bool
    reasons: tuple[str, ...]
    private: bool


@dataclass(frozen=True, slots=True)
class Reaction:
    """The actions that an event leads to, and whether the event must be saved before them."""

    actions: tuple[Action, ...] = ()
    save: bool = False


NOTHING = Reaction()

OVER = "the run is over at this site; it is not taken up again"
"""Sent when a round of an ended run is opened, as by an aggregator whose store was restored from an older backup."""


class Session:
    """One run at one site."""

    def __init__(
        self,
        run_id: str,
        site: SiteFacts,
        identity: Callable[[], SigningIdentity],
        consent: Consent | None = None,
        finished: bool = False,
    ) -> None:
        self.run_id = run_id
        self.consent = consent
        self.finished = finished
        self.site = site
        self._identity = identity
        self._waiting: Proposed | None = None
        self._cohort: tuple[str, ...] = ()
        self._attempt: Attempt | None = None
        self._computed: Computed | None = None
        self._computing: int | None = None

    @property
    def ref(self) -> AttemptRef | None:
        """The latest attempt that was opened to this site."""
        return self._attempt.ref if self._attempt else None

    @property
    def latest(self) -> Opened | None:
        """The announcement of the latest attempt; None before the first and after the run has ended."""
        return self._attempt.opened if self._attempt and not self.finished else None

    def opened_for(self, round: int) -> tuple[str, ...]:
        """The survivors for whom this site revealed shares in this round; empty when it did not."""
        attempt = self._attempt
        if attempt is None or attempt.side is None or attempt.ref.round != round or attempt.side.opened is None:
            return ()
        return attempt.side.opened.members

    def handle(self, event: Event) -> Reaction:
        """Handle one event. One that may not be answered gives a LogRefusal and changes nothing."""
        try:
            return self._decide(event)
        except (BadMessage, BadInput) as error:
            return Reaction((LogRefusal(type(error).__name__, str(error)),))

    def replay(self, events: Iterable[Event]) -> None:
        """Handle the events saved before a restart; their actions were done, or the aggregator asks for them again."""
        for event in events:
            self.handle(event)
        self._computing = None

    def resume(self) -> tuple[Action, ...]:
        """The work that the restart interrupted and that no assignment asks for again: the local step."""
        return self._compute()

    def update_bytes(self, ref: AttemptRef) -> memoryview:
        """The bytes of the update of this attempt; raises BadMessage when the attempt is no longer open."""
        if self._attempt is None or self._attempt.ref != ref:
            raise BadMessage(f"{ref} is not open any more")
        return self._attempt.update_bytes()

    def _decide(self, event: Event) -> Reaction:
        match event:
            case Proposed():
                return self._proposed(event)
            case Approved():
                return self._approved()
            case Opened():
                return self._opened(event)
            case RosterRelayed() | MaskWanted() | SurvivorsAnnounced() | UnmaskWanted():
                return self._secure_step(event)
            case Computed():
                return self._take_computed(event)
            case ComputeFailed():
                self._computing = None
                return Reaction(
                    (
                        LogRefusal(
                            "ComputeFailed", f"this site does not take part in round {event.round}: {event.reason}"
                        ),
                    )
                )
            case Acknowledged():
                return self._acknowledged(event)
            case Ended():
                return self._ended(event)
            case ExportWanted():
                return Reaction(self._export(event))
            case ResultsWritten():
                self._over()
                return Reaction(save=True)
            case TurnedDown():
                return self._turned_down(event)
            case StoodBy():
                return NOTHING
            case _:
                assert_never(event)

    def _proposed(self, event: Proposed) -> Reaction:
        if self.consent is not None:
            if event.digest != self.consent.digest:
                raise BadMessage("the spec was changed after this site had answered; the first answer stands")
            return Reaction((self._response(self.consent),))
        if spec_digest(event.spec) != event.digest:
            raise BadMessage("the proposed spec does not match its digest")
        spec = parse_spec(event.spec)
        match review(spec, self.site):
            case Refuse(reasons):
                return self._answer(spec, event.digest, reasons)
            case Accept(needs_approval=True):
                self._waiting = event
                return Reaction((AwaitApproval(),), save=True)
            case Accept():
                return self._answer(spec, event.digest, ())

    def _approved(self) -> Reaction:
        if self._waiting is None or self.consent is not None:
            return NOTHING
        return self._answer(parse_spec(self._waiting.spec), self._waiting.digest, ())

    def _answer(self, spec: RunSpec, digest: bytes, reasons: tuple[str, ...]) -> Reaction:
        self.consent = Consent(spec, digest, not reasons, reasons, self.site.policy.private)
        return Reaction((self._response(self.consent),), save=True)

    def _response(self, consent: Consent) -> Respond:
        return Respond(consent.digest, consent.accept, consent.reasons, consent.private)

    def _opened(self, event: Opened) -> Reaction:
        if self.consent is not None and not self.consent.accept:
            return Reaction((self._response(self.consent),))
        consent = self._consented(event.digest)
        if self.finished:
            return Reaction((Respond(consent.digest, accept=False, reasons=(OVER,), private=consent.private),))
        latest = self.ref
        if latest is not None and event.ref < latest:
            return NOTHING
        self._check_same_run(event)
        if latest == event.ref and self._attempt is not None:
            return Reaction((*self._compute(), *self._attempt.start()))
        if reasons := check_cohort(consent.spec, self.site, event.cohort):
            return self._withdraw(consent, reasons)
        return self._begin(consent, event)

    def _begin(self, consent: Consent, event: Opened) -> Reaction:
        # Read for each attempt, because certificates are renewed during a run; an attempt keeps the one it advertised.
        attempt = begin(consent.spec, self.site, self._identity(), event)
        self._cohort = self._cohort or event.cohort
        self._attempt = attempt
        computed = self._computed
        if computed is not None and _answers(computed, event):
            attempt.vector = computed.vector
        return Reaction((*self._compute(), *attempt.start()), save=True)

    def _check_same_run(self, event: Opened) -> None:
        """Raise BadMessage when the cohort gained members, or a round has a second, different consensus."""
        if self._cohort and (added := sorted(set(event.cohort) - set(self._cohort))):
            raise BadMessage(f"the cohort grew after the run began: {', '.join(added)}")
        before = self._attempt.opened if self._attempt else None
        if before and before.ref.round == event.ref.round and before.consensus.sha256 != event.consensus.sha256:
            raise BadMessage(f"a second, different consensus was announced for round {event.ref.round}")

    def _withdraw(self, consent: Consent, reasons: tuple[str, ...]) -> Reaction:
        self.consent = Consent(consent.spec, consent.digest, False, reasons, consent.private)
        self._attempt = None
        return Reaction((self._response(self.consent),), save=True)

    def _consented(self, digest: bytes) -> Consent:
        if self.consent is None:
            raise BadMessage("a round was opened in a run that this site has not enrolled in")
        if digest != self.consent.digest:
            raise BadMessage("a round was opened under another spec than the one this site signed")
        return self.consent

    def _compute(self) -> tuple[Action, ...]:
        """The local step of the open round, unless it is done or a local step is still running."""
        if self._attempt is None or self.finished or self._attempt.vector is not None or self._computing is not None:
            return ()
        self._computing = self._attempt.ref.round
        return (Compute(self._attempt.ref.round, self._attempt.opened.consensus),)

    def _take_computed(self, event: Computed) -> Reaction:
        self._computing = None
        self._computed = event
        attempt = self._attempt
        if attempt is None or self.finished:
            return NOTHING
        if not _answers(event, attempt.opened):
            return Reaction(self._compute())
        return Reaction(attempt.computed(event.vector))

    def _secure_step(self, event: SecureStep) -> Reaction:
        attempt = self._attempt
        if attempt is None or event.ref < attempt.ref or self.finished:
            return NOTHING
        if event.ref > attempt.ref:
            raise BadMessage(f"{event.ref} is under way, but was never opened to this site; it is ignored")
        new = type(event) not in attempt.heard
        return Reaction(attempt.hear(event), save=new)

    def _acknowledged(self, event: Acknowledged) -> Reaction:
        if self._attempt is not None and self._attempt.ref == event.ref:
            self._attempt.done.add(event.kind)
        return NOTHING

    def _ended(self, event: Ended) -> Reaction:
        if self.finished or self.consent is None:
            return NOTHING
        if event.status != "finished" or not self.consent.accept:
            self._over()
            return Reaction((Forget(event.status, event.reason),), save=True)
        if event.digest != self.consent.digest:
            raise BadMessage("the run ended under another spec than the one this site signed")
        self._attempt = None
        return Reaction((Finish(event.round, event.reason, event.consensus),))

    def _turned_down(self, event: TurnedDown) -> Reaction:
        if self.finished:
            return NOTHING
        self._over()
        return Reaction((Forget("turned down", event.reason),), save=True)

    def _over(self) -> None:
        """Mark the run as over and drop what it holds in memory."""
        self.finished = True
        self._attempt = self._computed = self._waiting = None

    def _export(self, event: ExportWanted) -> tuple[Action, ...]:
        if self.consent is None or not self.consent.accept:
            reason = "this participant did not take part in the run"
        else:
            reason = review_export(self.consent.spec, self.site.policy)
        return (RefuseExport(event.export_id, reason),) if reason else (Export(event.export_id),)


def _answers(computed: Computed, opened: Opened) -> bool:
    """Whether this local step was computed for the round and the consensus of this attempt."""
    return (computed.round, computed.consensus_sha256) == (opened.ref.round, opened.consensus.sha256)
