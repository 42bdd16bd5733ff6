"""A site's part in one run, without network, disk or clock: events in, actions out.

The driver guarantees three things. It saves every event for which `handle` asks it before it carries out the actions.
It puts fresh entropy into every `KeyWanted`. After a restart it restores the keys, gives the saved events to `replay`,
and carries out what `resume` returns. Every answer is a function of what is saved, so a restarted site sends the same
bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.method import FloatArray
from dcfpca.run_references import AttemptRef
from dcfpca.secagg import Opening, SigningIdentity
from dcfpca.secagg.errors import OutOfTurn, RunOver, SecureSumRefusal
from dcfpca.terms import Terms
from dcfpca.wire.tensors import DigestedBytes
from participant.policy import Reasons, SiteFacts, review_export
from participant.session.actions import Action, Export, Finish, Forget, LogRefusal, Reaction, RefuseExport
from participant.session.enrolment import OVER, Consent, Enrolment, History
from participant.session.events import (
    Acknowledged,
    Answered,
    Approved,
    Computed,
    ComputeFailed,
    Ended,
    Event,
    ExportWanted,
    KeyWanted,
    Opened,
    Proposed,
    ResultsWritten,
    RosterClosed,
    RoundRefused,
    SetUpStep,
    SharesRelayed,
    StoodBy,
    TurnedDown,
)
from participant.session.open_round import OpenRound
from participant.session.plain_run import PlainRun
from participant.session.secure_run import SecureRun

NOTHING = Reaction()
NO_HISTORY = History()


class Session:
    """One run at one site."""

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
        """`history` is what the site remembers of other runs; `approved` is a person's word."""
        self.run_id = run_id
        self.finished = finished
        self.site = site
        self._part: SecureRun | PlainRun | None = None  # None before the site takes part
        self.terms: Terms | None = None
        """What follows from the spec; None until the site has enrolled."""
        self._identity = identity
        self._history = history
        self._enrolment = Enrolment(site, history, consent, approved)
        self._round = OpenRound()
        self._ending = False  # the run has ended, and its results are being written
        self._take_part()

    @property
    def consent(self) -> Consent | None:
        """The site's answer to the proposal; None before it is given."""
        return self._enrolment.consent

    @property
    def asked_because(self) -> str:
        """Why a person is asked to approve the run; empty where the site asks for every run."""
        return self._enrolment.told

    @property
    def ref(self) -> AttemptRef | None:
        """The latest attempt that was opened to this site; None before the first and after the run has ended."""
        return self._round.ref

    @property
    def latest(self) -> Opened | None:
        """The announcement of the latest attempt; None before the first and after the run has ended."""
        return self._round.attempt.opened if self._round.attempt else None

    @property
    def computed(self) -> Computed | None:
        """The last local step."""
        return self._round.computed

    @property
    def secure(self) -> SecureRun | None:
        """The site's part in a secure run that it takes part in; None in a plain run."""
        return self._part if isinstance(self._part, SecureRun) else None

    def restore_keys(self, cohort: tuple[str, ...], slots: tuple[bytes, ...]) -> None:
        """Take up what was saved of the run before a restart: its cohort, and the slots of the key record if any."""
        if self.secure is not None and cohort:
            self.secure.restore(cohort, slots)

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
        self._round.stop_computing()

    def resume(self) -> tuple[Action, ...]:
        """The work that the restart interrupted and that no assignment asks for again: the local step."""
        return self._round.compute()

    def refuse_end(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        """What the site says of a final consensus that it forms no results from, nor from another one unchecked."""
        if self.secure is not None:
            self.secure.end_refusal = error
        return self._refusal(error)

    def update_bytes(self, ref: AttemptRef) -> memoryview:
        """The bytes of the update of this attempt; raises BadMessage when the attempt is no longer open."""
        return self._round.update(ref).update_bytes()

    def update_seal(self, ref: AttemptRef) -> tuple[int, bytes]:
        """Tag and context that go with a masked update; zero and empty in a plain run."""
        return self._round.update(ref).update_seal()

    def admit(self, round: int, payload: DigestedBytes) -> tuple[Opened, Opening, FloatArray | None]:
        """Secure run: whether the round now open, with the consensus bytes that were received, may be answered.

        Returns its announcement, the opening that is bound into the masks, and the update if it was computed before.
        """
        opened = self.latest
        if self.finished or self.secure is None:
            raise RunOver(f"run {self.run_id} is over at this site")
        if opened is None or opened.ref.round != round:
            raise OutOfTurn(f"round {round} is not open any more")
        return opened, *self.secure.admit(opened, payload, self.computed)

    def _decide(self, event: Event) -> Reaction:
        match event:
            case Proposed():
                return self._enrolled(self._enrolment.propose(event))
            case Approved():
                return self._enrolled(self._enrolment.approve())
            case Opened():
                return self._opened(event)
            case KeyWanted() | RosterClosed() | SharesRelayed():
                return self._set_up(event)
            case Answered():
                return self._round.take_answer(event, self.secure) if self.secure is not None else NOTHING
            case RoundRefused():
                return self._round_refused(event)
            case Computed():
                return self._round.take_computed(event)
            case ComputeFailed():
                return self._compute_failed(event)
            case Acknowledged():
                self._round.acknowledge(event)
                return NOTHING
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

    def _enrolled(self, reaction: Reaction) -> Reaction:
        self._take_part()
        return reaction

    def _take_part(self) -> None:
        """Once the site has enrolled, it has a part in the run. This is where secure and plain runs separate."""
        if self._part is not None or (consent := self._enrolment.accepted) is None:
            return
        self.terms = Terms.of(consent.spec)
        if consent.spec.aggregation == "plain":
            self._part = PlainRun(consent.spec, self.site)
        else:
            start = self._history.result_of(consent.spec.warm_start) if consent.spec.warm_start else b""
            self._part = SecureRun(self.run_id, self.terms, consent.digest, self._identity, start)

    def _refusal(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        complaint = self._part.complain(error) if self._part is not None else ()
        return (LogRefusal(type(error).__name__, str(error)), *complaint)

    def _set_up(self, event: SetUpStep) -> Reaction:
        run = self.secure
        if run is None or self._enrolment.accepted is None:
            raise BadMessage("keys of a secure run are wanted in a run that has none at this site")
        if self.finished:
            raise RunOver(f"run {self.run_id} is over at this site")
        before = run.state
        match event:
            case KeyWanted():
                spec = self._enrolment.signed(event.digest).spec
                if not run.cohort and (reasons := self._enrolment.objections(spec, event.cohort)):
                    return self._withdraw(reasons)
                wanted = run.begin(event.cohort, event.entropy)
            case RosterClosed():
                wanted = run.close_roster(event)
            case SharesRelayed():
                wanted = run.complete(event)
        return Reaction(wanted, save=run.state is not before)

    def _opened(self, event: Opened) -> Reaction:
        if self.consent is not None and not self.consent.accept:
            return Reaction((self.consent.response(),))
        consent = self._enrolment.signed(event.digest)
        # A secure run that is ending complains of a further round (RunOver): it may be an attempt to open a sum twice.
        if self._part is None or self.finished or (self._ending and self.secure is None):
            return Reaction((consent.withdrawn(OVER).response(),))
        if self.ref is not None and event.ref < self.ref:
            return NOTHING
        self._part.check_announced(event, self.latest)
        if self.ref == event.ref:
            return Reaction(self._round.announced_again(event))
        if reasons := self._part.objections(event):
            return self._withdraw(Reasons(reasons))
        return Reaction(self._round.begin(self._part.attempt(event)), save=True)

    def _withdraw(self, reasons: Reasons) -> Reaction:
        self._round.close()
        return self._enrolment.withdraw(reasons)

    def _compute_failed(self, event: ComputeFailed) -> Reaction:
        self._round.stop_computing()
        sentence = f"this site does not take part in round {event.round}: {event.reason}"
        return Reaction((LogRefusal("ComputeFailed", sentence),))

    def _round_refused(self, event: RoundRefused) -> Reaction:
        self._round.stop_computing()
        if self.ref is None:
            return NOTHING
        if self.ref.round != event.round:
            return Reaction(self._round.compute())
        return Reaction(self._refusal(event.error))

    def _ended(self, event: Ended) -> Reaction:
        if self.finished or self.consent is None:
            return NOTHING
        if event.status != "finished" or not self.consent.accept:
            self._over()
            return Reaction((Forget(event.status, event.reason),), save=True)
        if event.digest != self.consent.digest:
            raise BadMessage("the run ended under another spec than the one this site signed")
        self._round.close()
        self._ending = True
        if self._part is not None:
            self._part.finish()
        return Reaction((Finish(event.round, event.reason, event.consensus),), save=True)

    def _turned_down(self, event: TurnedDown) -> Reaction:
        if self.finished:
            return NOTHING
        self._over()
        return Reaction((Forget("turned down", event.reason),), save=True)

    def _over(self) -> None:
        """Mark the run as over and drop what it holds in memory."""
        self.finished = True
        self._round = OpenRound()
        self._enrolment.stop_waiting()
        if self._part is not None:
            self._part.forget()

    def _export(self, event: ExportWanted) -> tuple[Action, ...]:
        if (consent := self._enrolment.accepted) is None:
            reason = "this participant did not take part in the run"
        else:
            reason = review_export(consent.spec, self.site.policy)
        return (RefuseExport(event.export_id, reason),) if reason else (Export(event.export_id),)
