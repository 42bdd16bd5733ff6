"""A site's part in one run, without network, disk or clock: events in, actions out.

The driver guarantees three things. It saves every event for which `handle` asks it before it carries out the actions.
It draws a fresh seed for every `Opened`. After a restart it gives the saved events to `replay`, which restores the
session, and carries out what `resume` returns. Every answer is a function of what is saved, so a restarted site sends
the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from dcfpca.attempt_ref import AttemptRef
from dcfpca.chunked_vectors import Buffer
from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.method import FloatArray
from dcfpca.secagg import SigningIdentity
from dcfpca.secagg.errors import OutOfTurn, RunOver, SecureSumRefusal
from dcfpca.secagg.fixed_cohort import Opening, PastRun
from dcfpca.spec import RunSpec, parse_spec, spec_digest
from participant.policy import Accept, Refuse, SiteFacts, check_cohort, check_exposure, review, review_export
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
from participant.session.attempt import Attempt, begin, bytes_of
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
        past: Callable[[], Sequence[PastRun]] = tuple,
        approved: bool = False,
    ) -> None:
        """`past` gives the other runs over the same data in which sums were opened; `approved` is a person's word."""
        self.run_id = run_id
        self.consent = consent
        self.finished = finished
        self.site = site
        self.fixed: FixedCohortRun | None = None
        self._identity = identity
        self._past = past
        self._person_approved = approved
        self._waiting: Proposed | None = None
        self._cohort: tuple[str, ...] = ()
        self._attempt: Attempt | FixedCohortAttempt | None = None
        self._computed: Computed | None = None
        self._computing: int | None = None
        self._ending = False  # the run has ended, and its results are being written
        self._use_edition()

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
        if not isinstance(attempt, Attempt) or attempt.side is None or attempt.ref.round != round:
            return ()
        return attempt.side.opened.members if attempt.side.opened else ()

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
        self._computing = None

    def resume(self) -> tuple[Action, ...]:
        """The work that the restart interrupted and that no assignment asks for again: the local step."""
        return self._compute()

    def update_bytes(self, ref: AttemptRef) -> memoryview:
        """The bytes of the update of this attempt; raises BadMessage when the attempt is no longer open."""
        attempt = self._attempt
        if attempt is None or attempt.ref != ref:
            raise BadMessage(f"{ref} is not open any more")
        return attempt.update_bytes() if isinstance(attempt, Attempt) else bytes_of(attempt.masked().values)

    def update_seal(self, ref: AttemptRef) -> tuple[int, bytes]:
        """Tag and context that go with the update of a fixed cohort; zero and empty elsewhere."""
        attempt = self._attempt
        if not isinstance(attempt, FixedCohortAttempt) or attempt.ref != ref:
            return 0, b""
        masked = attempt.masked()
        return masked.tag, masked.context

    def admit(self, round: int, payload: Buffer) -> tuple[Opened, Opening, FloatArray | None]:
        """Fixed cohort: whether the round now open, with the consensus bytes that were received, may be answered.

        Returns its announcement, the opening that is bound into the masks, and the update if it was computed before.
        """
        attempt = self._attempt
        if self.finished or self.fixed is None:
            raise RunOver(f"run {self.run_id} is over at this site")
        if attempt is None or attempt.ref.round != round:
            raise OutOfTurn(f"round {round} is not open any more")
        return attempt.opened, *self.fixed.admit(attempt.opened, payload, self._computed)

    @property
    def computed(self) -> Computed | None:
        """The last local step."""
        return self._computed

    def _decide(self, event: Event) -> Reaction:
        match event:
            case Proposed():
                return self._proposed(event)
            case Approved():
                return self._approved()
            case Opened():
                return self._opened(event)
            case KeyWanted() | RosterClosed() | SharesRelayed():
                return self._set_up(event)
            case RosterRelayed() | MaskWanted() | SurvivorsAnnounced() | UnmaskWanted():
                return self._secure_step(event)
            case Answered():
                return self._answered(event)
            case RoundRefused():
                return self._round_refused(event)
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
        match review(spec, self.site, self._past()):
            case Refuse(reasons):
                return self._answer(spec, event.digest, reasons)
            case Accept(needs_approval=True, why=why):
                self._waiting = event
                return Reaction((AwaitApproval(why),), save=True)
            case Accept():
                return self._answer(spec, event.digest, ())

    def _approved(self) -> Reaction:
        self._person_approved = True
        if self._waiting is None or self.consent is not None:
            return NOTHING
        return self._answer(parse_spec(self._waiting.spec), self._waiting.digest, ())

    def _answer(self, spec: RunSpec, digest: bytes, reasons: tuple[str, ...]) -> Reaction:
        self.consent = Consent(spec, digest, not reasons, reasons, self.site.policy.private)
        self._use_edition()
        return Reaction((self._response(self.consent),), save=True)

    def _use_edition(self) -> None:
        """Secure runs that wait for everybody are of the second edition; plain ones and those that go on are not."""
        consent = self.consent
        if self.fixed is None and consent and consent.accept and is_fixed_cohort(consent.spec):
            self.fixed = FixedCohortRun(self.run_id, consent.spec, self.site, self._identity)

    def _refusal(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        complaint = self.fixed.complain(error) if self.fixed is not None else ()
        return (LogRefusal(type(error).__name__, str(error)), *complaint)

    def _set_up(self, event: SetUpStep) -> Reaction:
        if self.fixed is None or self.consent is None or not self.consent.accept:
            raise BadMessage("keys of a fixed cohort are wanted in a run that has none at this site")
        if self.finished:
            raise RunOver(f"run {self.run_id} is over at this site")
        before = self.fixed.state
        match event:
            case KeyWanted():
                if reasons := self._against_cohort(self._consented(event.digest), event.cohort):
                    return self._withdraw(self.consent, reasons)
                wanted = self.fixed.begin(event.cohort, event.entropy)
            case RosterClosed():
                wanted = self.fixed.close_roster(event)
            case SharesRelayed():
                wanted = self.fixed.complete(event)
        return Reaction(wanted, save=self.fixed.state is not before)

    def _against_cohort(self, consent: Consent, cohort: tuple[str, ...]) -> tuple[str, ...]:
        """Why the site does not let its update into sums over this cohort; empty when it does, or did before."""
        if self.fixed is not None and self.fixed.cohort:
            return ()
        exposed = () if self._person_approved else check_exposure(self.site, cohort, self._past())
        return (*check_cohort(consent.spec, self.site, cohort), *exposed)

    def _response(self, consent: Consent) -> Respond:
        return Respond(consent.digest, consent.accept, consent.reasons, consent.private)

    def _opened(self, event: Opened) -> Reaction:
        if self.consent is not None and not self.consent.accept:
            return Reaction((self._response(self.consent),))
        consent = self._consented(event.digest)
        if self.finished or (self._ending and self.fixed is None):
            return Reaction((Respond(consent.digest, accept=False, reasons=(OVER,), private=consent.private),))
        latest = self.ref
        if latest is not None and event.ref < latest:
            return NOTHING
        if self.fixed is not None:
            self.fixed.check_announced(event)
        else:
            self._check_same_run(event)
        if latest == event.ref and self._attempt is not None:
            return Reaction((*self._compute(), *self._attempt.start()))
        if self.fixed is not None:
            self._attempt = FixedCohortAttempt(event)
            return Reaction(self._compute(), save=True)
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
        """Raise BadMessage when a cohort gained members, that of a secure run lost some, or a round has a second,
        different consensus."""
        secure = self.consent is not None and self.consent.spec.aggregation == "secure"
        if self.consent is not None and event.ref.round > (last := self.consent.spec.last_round):
            raise BadMessage(f"round {event.ref.round} is beyond the last of the spec, {last}")
        if secure and self._cohort and (gone := sorted(set(self._cohort) - set(event.cohort))):
            raise BadMessage(f"the cohort of a secure run does not shrink: {', '.join(gone)} was left out")
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
        if self._attempt is None or self.finished or self._attempt.is_answered or self._computing is not None:
            return ()
        self._computing = self._attempt.ref.round
        return (Compute(self._attempt.ref.round, self._attempt.opened.consensus),)

    def _take_computed(self, event: Computed) -> Reaction:
        self._computing = None
        self._computed = event
        attempt = self._attempt
        if not isinstance(attempt, Attempt) or self.finished:
            return NOTHING
        if not _answers(event, attempt.opened):
            return Reaction(self._compute())
        return Reaction(attempt.computed(event.vector))

    def _round_refused(self, event: RoundRefused) -> Reaction:
        self._computing = None
        if self.ref is not None and self.ref.round != event.round:
            return Reaction(self._compute())
        return Reaction(self._refusal(event.error))

    def _answered(self, event: Answered) -> Reaction:
        self._computing = None
        self._computed = event.computed
        attempt = self._attempt
        if not isinstance(attempt, FixedCohortAttempt) or self.fixed is None or self.finished:
            return NOTHING
        if attempt.ref != event.answer.ref or attempt.is_answered:
            return Reaction(self._compute())
        self.fixed.adopt(event.answer)
        attempt.answer = event.answer
        return Reaction(attempt.start(), save=True)

    def _secure_step(self, event: SecureStep) -> Reaction:
        attempt = self._attempt
        if self.fixed is not None:
            raise OutOfTurn("a step of a sum that goes on without members was asked for in a run that waits for all")
        if not isinstance(attempt, Attempt) or event.ref < attempt.ref or self.finished:
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
        self._attempt, self._ending = None, True
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
        self._attempt = self._computed = self._waiting = None
        if self.fixed is not None:
            self.fixed.finish()

    def _export(self, event: ExportWanted) -> tuple[Action, ...]:
        if self.consent is None or not self.consent.accept:
            reason = "this participant did not take part in the run"
        else:
            reason = review_export(self.consent.spec, self.site.policy)
        return (RefuseExport(event.export_id, reason),) if reason else (Export(event.export_id),)


def is_fixed_cohort(spec: RunSpec) -> bool:
    """Whether sums of such a run are always over the whole cohort (the second edition of the secure sum)."""
    return spec.aggregation == "secure" and spec.dropouts == "wait"


def _answers(computed: Computed, opened: Opened) -> bool:
    """Whether this local step was computed for the round and the consensus of this attempt."""
    return (computed.round, computed.consensus_sha256) == (opened.ref.round, opened.consensus.sha256)
