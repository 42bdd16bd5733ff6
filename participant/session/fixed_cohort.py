"""A site's part in the fixed-cohort secure sum of one run: set-up once, then one answer to each opening.

It keeps the side of `dcfpca.secagg.fixed_cohort`; whenever `record` has changed, the driver saves it before anything
leaves. Assignments are repeated after reconnects: what was done before is answered with the same bytes or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dcfpca.attempt_ref import AttemptRef
from dcfpca.chunked_vectors import Buffer, DigestedBytes, message_from
from dcfpca.fixed_cohort_wire import opening_from_wire
from dcfpca.methods import method_of
from dcfpca.rpca.broadcast_checks import Seen, implausible
from dcfpca.rpca.method import Consensus, FloatArray, Method, TensorMessage
from dcfpca.secagg import SigningIdentity, fixed_cohort
from dcfpca.secagg.errors import (
    ChangedConsensus,
    ChangedExponent,
    ChangedRoster,
    ImplausibleConsensus,
    IncompleteCohort,
    LostState,
    OutOfTurn,
    PastLastRound,
    RunOver,
    SecureSumRefusal,
)
from dcfpca.secagg.evidence import Evidence
from dcfpca.secagg.fixed_cohort import FixedCohortSide, Masked, Misfit, Numbers, Opening, RunTerms
from dcfpca.secagg.fixed_cohort.context import opening_digest
from dcfpca.secagg.fixed_cohort.exponents import first_exponents
from dcfpca.secagg.fixed_cohort.roster import roster_digest
from dcfpca.secagg.fixed_cohort.state import SiteState, Step, latest
from dcfpca.secagg_block_layout import block_layout
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from participant.policy import SiteFacts
from participant.session.actions import (
    Action,
    AdvertiseRunKey,
    Complain,
    SendMisfit,
    ShareGroupSecret,
    SignedEvidence,
    Submit,
)
from participant.session.events import Answer, Computed, Kind, Opened, RosterClosed, SharesRelayed

OTHER_DATA = "put the data back as they were and restart, or begin a new run"
LOST = "begin a new run; this one can be finished with the consensus it has"


class FixedCohortRun:
    """One run with `dropouts = "wait"` at one site. `cohort` is empty until the set-up begins."""

    def __init__(self, run_id: str, spec: RunSpec, site: SiteFacts, identity: Callable[[], SigningIdentity]) -> None:
        self.run_id, self.spec, self.site = run_id, spec, site
        self.cohort: tuple[str, ...] = ()
        self.method: Method = method_of(spec)
        self._identity = identity
        self._terms: RunTerms | None = None
        self._side: FixedCohortSide | None = None
        self._lost: LostState | None = None
        self._complained: set[tuple[str, str]] = set()
        self.closing: FixedCohortSide | None = None
        """The side as it was when the run ended, by which its last sum is checked; None after a restart since."""
        self.verified: Consensus | None = None if spec.warm_start else self.method.begin()
        """What this site last found to follow; its memory is held against the one that is shown in the next round."""
        self.checked = b""
        """SHA-256 of the last consensus that this site itself has checked to follow; empty after a restart since."""
        self.end_refusal: SecureSumRefusal | None = None
        """Why this site refused a final consensus; from then on it believes only one that it can check."""

    def restore(self, cohort: tuple[str, ...], slots: tuple[bytes, ...]) -> None:
        """Take up the record that was saved before a restart; without a whole one the run cannot be gone on with."""
        self.cohort = cohort
        try:
            state = latest(slots, self.terms.binding) if slots else None
            if state is None:
                raise LostState(f"the keys of run {self.run_id} are not in this site's state any more", LOST)
            self._side = FixedCohortSide(self.terms, self._identity(), state)
        except LostState as error:
            self._lost = error

    def stop_for_other_data(self) -> None:
        """Answer nothing any more: two updates under the masks of one round would give away their difference."""
        self._lost = LostState(f"the data of this site are not those with which run {self.run_id} began", OTHER_DATA)

    @property
    def terms(self) -> RunTerms:
        """What all members agreed to."""
        if self._terms is None or self._terms.cohort != self.cohort:
            self._terms = self._terms_with(self.cohort)
        return self._terms

    def _terms_with(self, cohort: tuple[str, ...]) -> RunTerms:
        return RunTerms(self.run_id, self.spec.digest(), cohort, self.spec.last_round, self.spec.precision)

    @property
    def record(self) -> bytes:
        """The side's record as it must be on the disk; empty before the set-up."""
        return self._side.record if self._side else b""

    @property
    def state(self) -> SiteState | None:
        """The side's state, to tell whether something changed."""
        return self._side.state if self._side else None

    @property
    def side(self) -> FixedCohortSide:
        """The side; LostState or OutOfTurn where there is none."""
        if self._lost is not None:
            raise self._lost
        if self._side is None:
            raise OutOfTurn("the set-up of the run has not begun at this site")
        return self._side

    def begin(self, cohort: tuple[str, ...], entropy: bytes) -> tuple[Action, ...]:
        """Make the key of the run, or advertise the one that was made."""
        if self.cohort and cohort != self.cohort:
            raise IncompleteCohort(f"the cohort of run {self.run_id} was announced differently before")
        if not self.cohort:
            self._side = FixedCohortSide.begin(self._terms_with(cohort), self._identity(), entropy)
            self.cohort = cohort
        side = self.side
        return (AdvertiseRunKey(side.advert()),) if side.state.step is Step.ADVERTISED else ()

    def close_roster(self, event: RosterClosed) -> tuple[Action, ...]:
        """Check the roster and seal the share for everybody else."""
        if self._is_past_set_up(event.roster):
            return ()
        return (ShareGroupSecret(self.side.share(event.roster)),)

    def complete(self, event: SharesRelayed) -> tuple[Action, ...]:
        """Open the others' shares, which ends the set-up."""
        if not self._is_past_set_up(event.roster):
            self.side.complete(event.roster, event.shares)
        return ()

    def check_announced(self, opened: Opened) -> None:
        """Raise the refusal that an opening deserves, as far as that can be told before its consensus is there.

        A round is opened once every member's answer to the one before was added, this site's among them. So a site
        whose record knows nothing of that answer was restored from a backup.
        """
        if self.side.state.step is Step.FINISHED:
            raise RunOver(f"run {self.run_id} is over at this site")
        if opened.cohort != self.cohort:
            raise IncompleteCohort(f"round {opened.ref.round} was opened for another cohort than that of the run")
        if opened.ref.round > self.spec.last_round:
            raise PastLastRound(f"round {opened.ref.round} is beyond the last of the spec, {self.spec.last_round}")
        self.side.check_receipt(opened.ref.round - 1)

    def admit(
        self, opened: Opened, payload: DigestedBytes, before: Computed | None
    ) -> tuple[Opening, FloatArray | None]:
        """The opening, and the update if it was computed before. Raises the refusal that it deserves.

        `before` is the last local step of this site; its consensus is what the new one is held against.
        """
        round = opened.ref.round
        if before is not None and before.round == round and before.consensus_sha256 != opened.consensus.sha256:
            raise ChangedConsensus(f"round {round} was opened with another consensus, which this site has computed on")
        opening = self.opening_of(opened, payload)
        self._check_first_exponents(opening, before)
        pinned = self.side.state.round == round  # then the record knows the opening, if an older step does not
        known = before.opening if before is not None and before.round == round else None
        if known is not None and known != self.digest_of(opening) and (known or not pinned):
            # The step was computed after a check of what was announced then, and vouches for nothing else.
            raise ChangedConsensus(f"round {round} was announced differently when this site computed its update")
        numbers = self.side.admit(opening, lambda: self._check_broadcast(opened, payload.data, before))
        if before is not None and (before.round, before.consensus_sha256) == (round, opened.consensus.sha256):
            return opening, before.vector
        if numbers is Numbers.SAVED:
            raise LostState(f"the update that this site sent in round {round} is not in its state any more", LOST)
        return opening, None

    def _check_first_exponents(self, opening: Opening, before: Computed | None) -> None:
        """Where there is no sum of the same layout before, exponents are those of the layout, which needs no sum to
        know: by lower ones an aggregator would learn from misfits how large this site's numbers are."""
        begins = opening.round == 0
        if before is not None and before.round == opening.round - 1:
            earlier = self.method.update_layout(before.round, before.stage)
            begins = block_layout(earlier, self.spec.precision) != opening.layout
        if begins and opening.exponents != first_exponents(opening.layout):
            raise ChangedExponent(f"the exponents of round {opening.round} are not those with which its layout begins")

    def opening_of(self, opened: Opened, consensus: DigestedBytes) -> Opening:
        """The opening that these announced bytes make."""
        if opened.announced is None:
            raise OutOfTurn("the round was announced without what a fixed cohort binds into its masks")
        layout = block_layout(self.method.update_layout(opened.ref.round, opened.consensus.stage), self.spec.precision)
        return opening_from_wire(opened.announced, layout, consensus)

    def digest_of(self, opening: Opening) -> bytes:
        """The digest of all that was announced of a round but its lifts, which a step is computed for."""
        return opening_digest(self.terms, self.side.state.roster, opening)

    def answer(self, ref: AttemptRef, opening: Opening, vector: FloatArray) -> Answer:
        """What this site says to the opening; nothing is pinned before `adopt`. Slow for large tensors."""
        side = FixedCohortSide(self.terms, self._identity(), self.side.state)
        return Answer(ref, side, side.answer(opening, vector))

    def adopt(self, answer: Answer) -> None:
        """Pin the answer; from now on the round is answered with it."""
        self._side = answer.side

    def finish(self) -> None:
        """The run is over: the secrets are gone from the record; in memory those of the tags stay until `forget`."""
        if self._side is not None and self._side.state.step is not Step.FINISHED:
            self.closing = FixedCohortSide(self.terms, self._identity(), self._side.state)
            self._side.finish()

    def forget(self) -> None:
        """Nothing of the run is checked any more: drop what `finish` left in memory."""
        self.finish()
        self.closing = None

    def complain(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        """The complaint that this refusal gives rise to, once for each distinct sentence."""
        key = (type(error).__name__, str(error))
        if not self.cohort or key in self._complained:
            return ()
        self._complained.add(key)
        identity = self._identity()
        return (Complain(fixed_cohort.complain(self.terms, identity, error), self._proof(identity, error.evidence)),)

    def _proof(self, identity: SigningIdentity, evidence: Evidence | None) -> SignedEvidence | None:
        if evidence is None:
            return None
        statement = fixed_cohort.evidence_statement(self.terms, identity.name, evidence)
        return SignedEvidence(evidence, identity.sign(statement))

    def _is_past_set_up(self, roster: fixed_cohort.Roster) -> bool:
        state = self.side.state
        if state.step not in (Step.READY, Step.FINISHED):
            return False
        if roster_digest(self.terms, roster) != state.roster:
            raise ChangedRoster("this is a second, different roster in one run")
        return True

    def _check_broadcast(self, opened: Opened, consensus: Buffer, before: Computed | None) -> None:
        round, stage = opened.ref.round, opened.consensus.stage
        told = message_from(self.method.broadcast_layout(round, stage), consensus)
        if reason := implausible(self.method, round, told, self.seen(before), self.spec.precision, stage):
            raise ImplausibleConsensus(f"round {round} was refused before anything was computed: {reason}")

    def seen(self, before: Computed | None) -> Seen | None:
        """The consensus of the last local step, as the method reads it."""
        if before is None:
            return None
        layout = self.method.broadcast_layout(before.round, before.stage)
        if before.broadcast.size != layout.size:
            return None
        return Seen(before.round, TensorMessage.unflatten(layout, before.broadcast), before.stage)


@dataclass(slots=True)
class FixedCohortAttempt:
    """The opening that a site now answers; `answer` is set once its update is masked and the record is saved."""

    opened: Opened
    answer: Answer | None = None
    done: set[Kind] = field(default_factory=set)

    @property
    def ref(self) -> AttemptRef:
        """Which round and attempt."""
        return self.opened.ref

    @property
    def is_answered(self) -> bool:
        """Whether nothing has to be computed any more."""
        return self.answer is not None

    def repeats(self, event: Opened) -> bool:
        """Whether an announcement says the same as the one that this attempt answers; the ticket may be another's."""
        same = event.consensus.sha256 == self.opened.consensus.sha256
        return same and _without_ticket(event.announced) == _without_ticket(self.opened.announced)

    def start(self) -> tuple[Action, ...]:
        """What is due now, the same bytes each time."""
        match self.answer.message if self.answer else None:
            case Masked():
                return () if Kind.UPDATE in self.done else (Submit(self.ref),)
            case Misfit() as misfit:
                return () if Kind.MISFIT in self.done else (SendMisfit(self.ref, misfit),)
            case _:
                return ()

    def masked(self) -> Masked:
        """The masked update; OutOfTurn before it is there."""
        if self.answer is None or not isinstance(self.answer.message, Masked):
            raise OutOfTurn("the update is not masked yet")
        return self.answer.message


def _without_ticket(announced: pb.RoundOpened | None) -> pb.RoundOpened:
    bare = pb.RoundOpened()
    if announced is not None:
        bare.CopyFrom(announced)
    bare.ClearField("ticket")
    return bare
