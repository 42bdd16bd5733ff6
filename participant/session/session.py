"""A site's part in one run, without network, disk or clock: events in, actions out.

The driver guarantees three things. It saves every event for which `handle` asks it before it carries out the actions.
It puts fresh entropy into every `Opened` of a run with dropout recovery and into every `KeyWanted`. After a restart it
restores the keys, gives the saved events to `replay`, and carries out what `resume` returns. Every answer is a function
of what is saved, so a restarted site sends the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from dcfpca.attempt_ref import AttemptRef
from dcfpca.chunked_vectors import DigestedBytes
from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.method import FloatArray
from dcfpca.secagg import SigningIdentity
from dcfpca.secagg.errors import OutOfTurn, RunOver, SecureSumRefusal
from dcfpca.secagg.fixed_cohort import Opening, PastRun
from dcfpca.spec import RunSpec
from participant.policy import SiteFacts, check_cohort, review_export
from participant.privacy_review import Spending
from participant.session.actions import Action, Export, Finish, Forget, LogRefusal, Reaction, RefuseExport
from participant.session.attempt import begin
from participant.session.enrolment import OVER, Consent, Enrolment
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
    MaskWanted,
    Opened,
    Proposed,
    ResultsWritten,
    RosterClosed,
    RosterRelayed,
    RoundRefused,
    SecureStep,
    SetUpStep,
    SharesRelayed,
    StoodBy,
    SurvivorsAnnounced,
    TurnedDown,
    UnmaskWanted,
)
from participant.session.fixed_cohort import FixedCohortAttempt, FixedCohortRun
from participant.session.open_round import OpenRound, check_same_run

NOTHING = Reaction()


class Session:
    """One run at one site."""

    def __init__(
        self,
        run_id: str,
        site: SiteFacts,
        identity: Callable[[], SigningIdentity],
        consent: Consent | None = None,
        finished: bool = False,
        past: Callable[[], Sequence[PastRun]] = tuple,
        approved: bool = False,
        spent: Callable[[], Spending] = Spending,
    ) -> None:
        """`past` gives the other runs over the same data in which sums were opened, `spent` what other runs spent of
        the privacy budget; `approved` is a person's word."""
        self.run_id = run_id
        self.finished = finished
        self.site = site
        self.fixed: FixedCohortRun | None = None
        self._identity = identity
        self._enrolment = Enrolment(site, past, consent, approved, spent)
        self._round = OpenRound()
        self._cohort: tuple[str, ...] = ()
        self._ending = False  # the run has ended, and its results are being written
        self._prepare_secure_sum()

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

    def opened_for(self, round: int) -> tuple[str, ...]:
        """The survivors for whom this site revealed shares in this round; empty when it did not."""
        return self._round.opened_for(round)

    def restore_keys(self, cohort: tuple[str, ...], slots: tuple[bytes, ...]) -> None:
        """Take up what was saved of the run before a restart: its cohort, and the slots of the key record if any."""
        self._cohort = cohort
        if self.fixed is not None and cohort:
            self.fixed.restore(cohort, slots)

    def handle(self, event: Event) -> Reaction:
        """Handle one event. One that may not be answered gives a LogRefusal, in a fixed cohort a complaint as well,
        and changes nothing."""
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
        if self.fixed is not None:
            self.fixed.end_refusal = error
        return self._refusal(error)

    def update_bytes(self, ref: AttemptRef) -> memoryview:
        """The bytes of the update of this attempt; raises BadMessage when the attempt is no longer open."""
        return self._round.update_bytes(ref)

    def update_seal(self, ref: AttemptRef) -> tuple[int, bytes]:
        """Tag and context that go with the update of a fixed cohort; zero and empty elsewhere."""
        return self._round.update_seal(ref)

    def admit(self, round: int, payload: DigestedBytes) -> tuple[Opened, Opening, FloatArray | None]:
        """Fixed cohort: whether the round now open, with the consensus bytes that were received, may be answered.

        Returns its announcement, the opening that is bound into the masks, and the update if it was computed before.
        """
        opened = self.latest
        if self.finished or self.fixed is None:
            raise RunOver(f"run {self.run_id} is over at this site")
        if opened is None or opened.ref.round != round:
            raise OutOfTurn(f"round {round} is not open any more")
        return opened, *self.fixed.admit(opened, payload, self.computed)

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
            case RosterRelayed() | MaskWanted() | SurvivorsAnnounced() | UnmaskWanted():
                return self._secure_step(event)
            case Answered():
                return self._round.take_answer(event, self.fixed)
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
        self._prepare_secure_sum()
        return reaction

    def _prepare_secure_sum(self) -> None:
        """A run that this site enrolled in and that waits for its whole cohort has a fixed-cohort side."""
        consent = self._enrolment.accepted
        if self.fixed is None and consent and is_fixed_cohort(consent.spec):
            self.fixed = FixedCohortRun(self.run_id, consent.spec, self.site, self._identity)

    def _refusal(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        complaint = self.fixed.complain(error) if self.fixed is not None else ()
        return (LogRefusal(type(error).__name__, str(error)), *complaint)

    def _set_up(self, event: SetUpStep) -> Reaction:
        if self.fixed is None or self._enrolment.accepted is None:
            raise BadMessage("keys of a fixed cohort are wanted in a run that has none at this site")
        if self.finished:
            raise RunOver(f"run {self.run_id} is over at this site")
        before = self.fixed.state
        match event:
            case KeyWanted():
                spec = self._enrolment.signed(event.digest).spec
                if not self.fixed.cohort and (reasons := self._enrolment.objections(spec, event.cohort)):
                    return self._withdraw(reasons)
                wanted = self.fixed.begin(event.cohort, event.entropy)
            case RosterClosed():
                wanted = self.fixed.close_roster(event)
            case SharesRelayed():
                wanted = self.fixed.complete(event)
        return Reaction(wanted, save=self.fixed.state is not before)

    def _opened(self, event: Opened) -> Reaction:
        if self.consent is not None and not self.consent.accept:
            return Reaction((self.consent.response(),))
        consent = self._enrolment.signed(event.digest)
        if self.finished or (self._ending and self.fixed is None):
            return Reaction((consent.withdrawn(OVER).response(),))
        latest = self.ref
        if latest is not None and event.ref < latest:
            return NOTHING
        if self.fixed is not None:
            self.fixed.check_announced(event)
        else:
            check_same_run(consent.spec, self._cohort, self.latest, event)
        if latest == event.ref:
            return Reaction(self._round.announced_again(event))
        if self.fixed is not None:
            return Reaction(self._round.begin(FixedCohortAttempt(event)), save=True)
        if reasons := check_cohort(consent.spec, self.site, event.cohort):
            return self._withdraw(reasons)
        return self._begin(consent.spec, event)

    def _begin(self, spec: RunSpec, event: Opened) -> Reaction:
        # Read for each attempt, because certificates are renewed during a run; an attempt keeps the one it advertised.
        attempt = begin(spec, self.site, self._identity(), event)
        self._cohort = self._cohort or event.cohort
        return Reaction(self._round.begin(attempt), save=True)

    def _withdraw(self, reasons: tuple[str, ...]) -> Reaction:
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

    def _secure_step(self, event: SecureStep) -> Reaction:
        if self.fixed is not None:
            raise OutOfTurn("a step of a sum that goes on without members was asked for in a run that waits for all")
        return self._round.hear(event)

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
        if self.fixed is not None:
            self.fixed.finish()
        return Reaction((Finish(event.round, event.reason, event.consensus),), save=self.fixed is not None)

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
        if self.fixed is not None:
            self.fixed.forget()

    def _export(self, event: ExportWanted) -> tuple[Action, ...]:
        if (consent := self._enrolment.accepted) is None:
            reason = "this participant did not take part in the run"
        else:
            reason = review_export(consent.spec, self.site.policy)
        return (RefuseExport(event.export_id, reason),) if reason else (Export(event.export_id),)


def is_fixed_cohort(spec: RunSpec) -> bool:
    """Whether sums of such a run are always over the whole cohort: secure, with `dropouts = "wait"`."""
    return spec.aggregation == "secure" and spec.dropouts == "wait"
