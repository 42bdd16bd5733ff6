"""A site's part in one run, without network, disk or clock: events in, actions out.

The driver guarantees three things. It saves every event for which `handle` asks it before it carries out the actions.
It puts fresh entropy into every `KeyWanted`. After a restart it restores the keys, gives the saved events to `replay`,
and carries out what `resume` returns. Every answer is a function of what is saved, so a restarted site sends the same
bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

import numpy as np

from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.round_limits import BEFORE_UNITS
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.errors import OutOfTurn, RunOver, SecureSumRefusal
from dcfpca.secagg.keys import SigningIdentity
from dcfpca.secagg.messages import Masked, Misfit
from dcfpca.terms import Terms
from participant.policy import Reasons, SiteFacts, review_export
from participant.session.actions import (
    Action,
    AwaitApproval,
    Compute,
    Consent,
    Export,
    Finish,
    Forget,
    LogRefusal,
    Reaction,
    RefuseExport,
    SendMisfit,
    Submit,
)
from participant.session.enrolment import OVER, Enrolment, History, declined
from participant.session.events import (
    Acknowledged,
    Answered,
    Approved,
    Declined,
    Ended,
    EndRefused,
    Event,
    ExportWanted,
    FeaturesDiffer,
    KeyWanted,
    LocalStep,
    Opened,
    Proposed,
    Restored,
    ResultsWritten,
    RosterClosed,
    RoundRefused,
    SetUpStep,
    SharesRelayed,
    StoodBy,
    TurnedDown,
)
from participant.session.plain_run import PlainRun
from participant.session.secure_run import SecureRun

NOTHING = Reaction()
NO_HISTORY = History()


class Session:
    """One run at one site. Its attributes are for reading; `handle` alone changes them."""

    def __init__(
        self,
        run_id: str,
        site: SiteFacts,
        identity: Callable[[], SigningIdentity],
        consent: Consent | None = None,
        finished: bool = False,
        history: History = NO_HISTORY,
        approved: bool = False,
    ) -> None:
        """`history` is what the site remembers of other runs; `approved` says whether a person has approved it."""
        self.run_id = run_id
        self.finished = finished
        self.site = site
        self.enrolment = Enrolment(site, history, consent, approved)
        self.terms: Terms | None = None
        """What follows from the spec; None until the site has enrolled."""
        self.opened: Opened | None = None
        """The latest attempt that was opened to this site; None before the first and after the run has ended."""
        self.step: LocalStep | None = None
        """The last local step. It is kept, because a later attempt at the same round sends its update again."""
        self.secure: SecureRun | None = None
        """The site's part in a secure run that it takes part in; None in a plain run."""
        self.end_refusal: SecureSumRefusal | None = None
        """Why this site refused a final consensus; from then on it believes only one that it can check."""
        self._run: SecureRun | PlainRun | None = None  # None before the site takes part
        self._answer: Answered | None = None  # to the attempt now open
        self._acknowledged = False
        self._computing = False  # one local step runs at a time
        self._held = False  # until a person has seen how the site's features differ
        self._seen = False
        self._ending = False  # the run has ended, and its results are being written
        self._identity = identity
        self._history = history
        self._take_part()

    @property
    def consent(self) -> Consent | None:
        """The site's answer to the proposal; None before it is given."""
        return self.enrolment.consent

    def handle(self, event: Event) -> Reaction:
        """Handle one event. One that may not be answered gives a LogRefusal, in a secure run a complaint as well, and
        changes nothing."""
        try:
            return self._decide(event)
        except SecureSumRefusal as error:
            return Reaction(self._refusal(error))
        except (BadMessage, BadInput) as error:
            return Reaction((LogRefusal(type(error).__name__, str(error)),))

    def replay(self, events: Iterable[Event]) -> None:
        """Handle the events saved before a restart; their actions were done, or the aggregator asks for them again."""
        for event in events:
            self.handle(event)
        self._computing = False

    def resume(self) -> tuple[Action, ...]:
        """The work that was interrupted and that no assignment asks for again: the local step."""
        return self._compute()

    def update(self, ref: AttemptRef) -> tuple[memoryview, int, bytes]:
        """The bytes of the update of this attempt, not copied, and the tag and context of a masked one.

        Raises BadMessage when the attempt is no longer open.
        """
        answer = self._answer
        if answer is None or answer.ref != ref:
            raise BadMessage(f"{ref} is no longer open")
        masked = answer.message
        if isinstance(masked, Masked):
            return np.ascontiguousarray(masked.values).view(np.uint8).data, masked.tag, masked.context
        return np.ascontiguousarray(answer.step.vector, "<f8").view(np.uint8).data, 0, b""

    def open_round(self, round: int) -> Opened:
        """The announcement of the latest attempt at this round; OutOfTurn when another round is open by now."""
        if self.finished:
            raise RunOver(f"run {self.run_id} is over at this site")
        if self.opened is None or self.opened.ref.round != round:
            raise OutOfTurn(f"round {round} is no longer open")
        return self.opened

    def _decide(self, event: Event) -> Reaction:
        match event:
            case Proposed():
                return self._enrolled(self.enrolment.propose(event))
            case Approved():
                return self._released() if self._held else self._enrolled(self.enrolment.approve())
            case Declined():
                return self._withdraw(declined(event.reason)) if self._held else self.enrolment.decline(event.reason)
            case Restored():
                if self._run is not None:
                    self._run.restore(event)
                return NOTHING
            case Opened():
                return self._opened(event)
            case KeyWanted() | RosterClosed() | SharesRelayed():
                return self._set_up(event)
            case LocalStep():
                self.step = event
                return NOTHING
            case Answered():
                return self._answered(event)
            case RoundRefused():
                return self._round_refused(event)
            case FeaturesDiffer():
                return self._features_differ(event)
            case Acknowledged():
                self._acknowledged |= self.opened is not None and self.opened.ref == event.ref
                return NOTHING
            case Ended():
                return self._ended(event)
            case EndRefused():
                return self._end_refused(event)
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

    def _enrolled(self, reaction: Reaction) -> Reaction:
        self._take_part()
        return reaction

    def _take_part(self) -> None:
        """Once the site has enrolled, it has a part in the run. This is where a plain run leaves the main road."""
        if self._run is not None or (consent := self.enrolment.accepted) is None:
            return
        self.terms = Terms.of(consent.spec)
        if consent.spec.aggregation == "plain":
            self._run = PlainRun(consent.spec, self.site)
            return
        start = self._history.result_of(consent.spec.warm_start) if consent.spec.warm_start else b""
        self._run = self.secure = SecureRun(self.run_id, self.terms, consent.digest, self._identity, start)

    def _refusal(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        complaint = self._run.complain(error) if self._run is not None else ()
        return (LogRefusal(type(error).__name__, str(error)), *complaint)

    def _set_up(self, event: SetUpStep) -> Reaction:
        run = self.secure
        if run is None or self.enrolment.accepted is None:
            raise BadMessage("keys of a secure run were asked for in a run that has none at this site")
        if self.finished:
            raise RunOver(f"run {self.run_id} is over at this site")
        before = run.record
        match event:
            case KeyWanted():
                spec = self._signed(event.digest).spec
                if not run.cohort and (reasons := self.enrolment.objections(spec, event.cohort)):
                    return self._withdraw(reasons)
                wanted = run.begin(event.cohort, event.entropy)
            case RosterClosed():
                wanted = run.close_roster(event)
            case SharesRelayed():
                wanted = run.complete(event)
        return Reaction(wanted, save=run.record != before)

    def _opened(self, event: Opened) -> Reaction:
        if self.consent is not None and not self.consent.accept:
            return Reaction((self.consent,))
        consent, before = self._signed(event.digest), self.opened
        # A secure run that is ending complains of a further round (RunOver): it may be an attempt to open a sum twice.
        if self._run is None or self.finished or (self._ending and self.secure is None):
            return Reaction((consent.withdrawn(OVER),))
        if before is not None and event.ref < before.ref:
            return NOTHING
        reasons = self._run.check_announced(event, before)
        if before is not None and event.ref == before.ref:
            self._acknowledged &= not self._run.lost_answer(event, before)
            return Reaction(self._due())
        if reasons:
            return self._withdraw(Reasons(reasons))
        self._open(event)
        return Reaction(self._compute(), save=True)

    def _signed(self, digest: bytes) -> Consent:
        """The site's answer, if it was given to the spec with this digest; BadMessage otherwise."""
        consent = self.enrolment.consent
        if consent is None:
            raise BadMessage("a round was opened in a run that this site has not enrolled in")
        if digest != consent.digest:
            raise BadMessage("a round was opened under another spec than the one this site signed")
        return consent

    def _open(self, opened: Opened | None) -> None:
        """Open this attempt in place of the one before; None: nothing is open."""
        self.opened, self._answer, self._acknowledged = opened, None, False

    def _due(self) -> tuple[Action, ...]:
        """What the open attempt waits for from this site, the same bytes each time."""
        if self._answer is None:
            return self._compute()
        if self._acknowledged:
            return ()
        ref, message = self._answer.ref, self._answer.message
        return (SendMisfit(ref, message),) if isinstance(message, Misfit) else (Submit(ref),)

    def _compute(self) -> tuple[Action, ...]:
        """The local step of the open round, unless it is answered or a local step is still running."""
        if self.opened is None or self._answer is not None or self._computing or self._held:
            return ()
        self._computing = True
        return (Compute(self.opened.ref.round, self.opened.consensus),)

    def _answered(self, event: Answered) -> Reaction:
        """Take the answer, and pin it if its attempt is still the one that is open."""
        self._computing, self.step = False, event.step
        if self._run is None or self.opened is None or self.opened.ref != event.ref or self._answer is not None:
            return Reaction(self._compute())
        self._run.adopt(event)
        self._answer = event
        return Reaction(self._due(), save=True)

    def _withdraw(self, reasons: Reasons) -> Reaction:
        self._open(None)
        self._held = False
        return self.enrolment.withdraw(reasons)

    def _round_refused(self, event: RoundRefused) -> Reaction:
        self._computing = False
        if self.opened is None:
            return NOTHING
        if self.opened.ref.round != event.round:
            return Reaction(self._compute())
        return Reaction(self._refusal(event.error))

    def compares_features(self, stage: str) -> bool:
        """Whether this is the first round in which the site knows the medians of all sites, and must compare them with
        its own before it answers."""
        before = self.step is None or self.step.stage in BEFORE_UNITS
        return self.site.policy.on_shift != "tell" and not self._seen and before and stage not in BEFORE_UNITS

    def _features_differ(self, event: FeaturesDiffer) -> Reaction:
        self._computing = False
        if self.opened is None or self.opened.ref.round != event.round:
            return Reaction(self._compute())
        if self.site.policy.on_shift == "refuse":
            return self._withdraw(Reasons((), event.notes))
        self._held = True
        return Reaction((AwaitApproval(" ".join(event.notes)),), save=True)

    def _released(self) -> Reaction:
        """A person has seen it: the site takes part as it is."""
        self._held, self._seen = False, True
        return Reaction(self._compute(), save=True)

    def _ended(self, event: Ended) -> Reaction:
        if self.finished or self.consent is None:
            return NOTHING
        if event.status != "finished" or not self.consent.accept:
            self._over()
            return Reaction((Forget(event.status, event.reason),), save=True)
        if event.digest != self.consent.digest:
            raise BadMessage("the run ended under another spec than the one this site signed")
        self._open(None)
        self._ending = True
        if self._run is not None:
            self._run.finish()
        return Reaction((Finish(event.round, event.reason, event.consensus),), save=True)

    def _end_refused(self, event: EndRefused) -> Reaction:
        """The site forms no results from this final consensus, nor from another one unchecked."""
        self.end_refusal = event.error
        return Reaction(self._refusal(event.error))

    def _turned_down(self, event: TurnedDown) -> Reaction:
        if self.finished:
            return NOTHING
        self._over()
        return Reaction((Forget("turned down", event.reason),), save=True)

    def _over(self) -> None:
        """Mark the run as over and drop what it holds in memory."""
        self.finished = True
        self.step = None
        self._open(None)
        self.enrolment.stop_waiting()
        if self._run is not None:
            self._run.forget()

    def _export(self, event: ExportWanted) -> tuple[Action, ...]:
        if (consent := self.enrolment.accepted) is None:
            reason = "this participant did not take part in the run"
        else:
            reason = review_export(consent.spec, self.site.policy)
        return (RefuseExport(event.export_id, reason),) if reason else (Export(event.export_id),)
