"""A site's part in a secure run: set-up once, then one answer to each opening. Pure.

It keeps the site of `dcfpca.secagg`; whenever `record` has changed, the driver saves it before anything leaves.
Assignments are repeated after reconnects: what was done before is answered with the same bytes or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from dcfpca.method_memory import encode_memory
from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.secagg.errors import (
    ChangedConsensus,
    ChangedExponent,
    ChangedRoster,
    Evidence,
    ImplausibleConsensus,
    IncompleteCohort,
    LostState,
    OutOfTurn,
    PastLastRound,
    RunOver,
    SecureSumRefusal,
    WrongConsensus,
)
from dcfpca.secagg.fixed_point import BlockLayout
from dcfpca.secagg.keys import SigningIdentity
from dcfpca.secagg.messages import (
    Opening,
    Roster,
    RunTerms,
    complain,
    consensus_digest,
    evidence_statement,
    opening_digest,
)
from dcfpca.secagg.set_up import roster_digest
from dcfpca.secagg.site import Numbers, SecureSite
from dcfpca.secagg.state import Step, latest, to_record
from dcfpca.terms import Terms
from dcfpca.wire.tensors import DigestedBytes, message_bytes, message_from
from participant.session.actions import Action, AdvertiseRunKey, Complain, ShareGroupSecret, SignedEvidence
from participant.session.events import (
    Announcement,
    Answered,
    CheckedSum,
    LocalStep,
    Opened,
    Restored,
    RosterClosed,
    SharesRelayed,
)

OTHER_DATA = "put the data back as they were and restart, or begin a new run"
LOST = "begin a new run; this one can be finished with the consensus it has"


class Admitted(NamedTuple):
    """A round that may be answered: its announcement, its consensus, what the masks bind, the digest of that, and the
    local step if it was computed before."""

    opened: Opened
    consensus: Consensus
    opening: Opening
    bound: bytes
    step: LocalStep | None


def announced_opening(announced: Announcement, layout: BlockLayout, consensus: hashlib._Hash) -> Opening:
    """The opening of a round; its consensus is a SHA-256 over the bytes that were received, whatever was announced."""
    bound = consensus_digest(consensus, announced.stage, announced.memory_sha256)
    return Opening(announced.round, bound, announced.previous_sum, layout, announced.exponents, announced.misfits)


class SecureRun:
    """One secure run at one site. `cohort` is empty until the set-up begins."""

    def __init__(
        self, run_id: str, agreed: Terms, digest: bytes, identity: Callable[[], SigningIdentity], start: bytes = b""
    ) -> None:
        """`digest` is that of the spec as this site signed it, `start` that of the memory with which a warm start
        begins; empty if only the person who approved it knows."""
        self.run_id, self.agreed, self.spec, self._digest = run_id, agreed, agreed.spec, digest
        self.cohort: tuple[str, ...] = ()
        self.terms: RunTerms  # what all members agreed to; set together with the cohort
        self._identity = identity
        begin = agreed.method.begin()
        self._start = start if self.spec.warm_start else hashlib.sha256(encode_memory(begin.memory)).digest()
        self._side: SecureSite | None = None
        self._lost: LostState | None = None
        self._complained: set[tuple[str, str]] = set()
        self.closing: SecureSite | None = None
        """The side as it was when the run ended, by which its last sum is checked; None after a restart since."""
        self.verified: Consensus | None = None if self.spec.warm_start else begin
        """The last consensus that this site derived itself; its memory must be the one shown in the next round."""
        self.checked = b""
        """SHA-256 of the last consensus that this site itself has checked to follow; empty after a restart since."""
        self.memory = encode_memory(begin.memory)
        """The memory that goes with it, for an aggregator that has lost both."""

    def restore(self, event: Restored) -> None:
        """Continue from the key record that was saved before a restart; without a complete one nothing is answered."""
        if event.cohort:
            self.cohort, self.terms = event.cohort, self._terms_with(event.cohort)
            try:
                state = latest(event.slots, self.terms.binding) if event.slots else None
                if state is None:
                    raise LostState(f"the keys of run {self.run_id} are no longer in this site's state", LOST)
                self._side = SecureSite(self.terms, self._identity(), state)
            except LostState as error:
                self._lost = error
        if event.other_data:
            # Nothing is answered any more: two updates under the masks of one round would give away their difference.
            sentence = f"the data of this site are not those with which run {self.run_id} began"
            self._lost = LostState(sentence, OTHER_DATA)

    def _terms_with(self, cohort: tuple[str, ...]) -> RunTerms:
        return RunTerms(self.run_id, self._digest, cohort, self.spec.last_round, self.spec.precision)

    @property
    def record(self) -> bytes:
        """The side's record as it must be on the disk; empty before the set-up."""
        return to_record(self._side.state) if self._side else b""

    @property
    def side(self) -> SecureSite:
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
            terms = self._terms_with(cohort)
            self._side = SecureSite.begin(terms, self._identity(), entropy)
            self.cohort, self.terms = cohort, terms
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

    def check_announced(self, event: Opened, before: Opened | None) -> tuple[str, ...]:
        """Raise a refusal if the announcement is wrong, judged without its consensus. The result is always empty: the
        cohort was judged before the set-up and never changes, so there is no reason to withdraw.

        A round is opened once every member's answer to the one before was added, this site's among them. So a site
        whose record knows nothing of that answer was restored from a backup.
        """
        side, round = self.side, event.ref.round
        if side.state.step is Step.FINISHED:
            raise RunOver(f"run {self.run_id} is over at this site")
        if event.cohort != self.cohort:
            raise IncompleteCohort(f"round {round} was opened for another cohort than that of the run")
        if round > self.terms.last_round:
            raise PastLastRound(f"round {round} is beyond the last of the spec, {self.terms.last_round}")
        if round - 1 > side.state.round:
            answered = f"this site answered round {round - 1} of run {self.run_id}"
            raise LostState(f"{answered}, and its stored state is older than that", LOST)
        return ()

    def lost_answer(self, event: Opened, before: Opened) -> bool:
        """Whether an acknowledged answer goes out again, as the same bytes. A round is announced only to members whose
        answer is missing: one that was acknowledged was lost with the aggregator that took it, and its successor on
        another machine waits for it. An announcement that differs from the one that was answered gets nothing."""
        return event == before

    def admit(self, opened: Opened, payload: DigestedBytes, before: LocalStep | None) -> Admitted:
        """Raise a refusal unless the opening may be answered, judged with the bytes of its consensus.

        `before` is the last local step of this site; the new consensus is compared with the one it was computed on.
        """
        round, sha256 = opened.ref.round, opened.consensus.sha256
        again = before if before is not None and before.round == round else None
        if again is not None and again.consensus_sha256 != sha256:
            raise ChangedConsensus(f"round {round} was opened with another consensus, which this site has computed on")
        opening = announced_opening(opened.announced, self.agreed.blocks[opened.consensus.stage], payload.sha)
        self._check_start(opened, payload)
        self._check_first_exponents(opening, before)
        side = self.side
        bound = opening_digest(self.terms, side.state.roster, opening)
        pinned = side.state.round == round  # then the record knows the opening, if an older step does not
        if again is not None and again.opening != bound and (again.opening or not pinned):
            # The step was computed after a check of what was announced then, and vouches for nothing else.
            raise ChangedConsensus(f"round {round} was announced differently when this site computed its update")
        numbers = side.admit(opening)
        if numbers is Numbers.SAVED and again is None:
            raise LostState(f"the update that this site sent in round {round} is no longer in its state", LOST)
        stage = opened.consensus.stage
        consensus = Consensus(round, stage, message_from(self.agreed.method.stage(stage).down, payload.data))
        if numbers is Numbers.NEW and (
            reason := self.agreed.method.plausible(consensus, self.seen(before), self.spec.precision)
        ):
            raise ImplausibleConsensus(f"round {round} was refused before anything was computed: {reason}")
        return Admitted(opened, consensus, opening, bound, again)

    def _check_start(self, opened: Opened, payload: DigestedBytes) -> None:
        """A run begins with a consensus that its spec alone decides, and with an empty memory or exactly the result of
        the run that the spec names. From a U or a window of its own choice the aggregator would learn how many columns
        lie along the one, or entries in the other."""
        if opened.ref.round != 0:
            return
        begin = self.agreed.method.begin()
        if opened.consensus.stage != begin.stage or bytes(payload.data) != message_bytes(begin.broadcast):
            raise WrongConsensus("the run was opened with another consensus than the one at which its spec begins")
        if self._start and opened.announced.memory_sha256 != self._start:
            known = f"the result of {self.spec.warm_start}" if self.spec.warm_start else "nothing"
            raise WrongConsensus(f"the run was opened with another memory than {known}, at which its spec begins")

    def _check_first_exponents(self, opening: Opening, before: LocalStep | None) -> None:
        """In the first round of a layout the exponents are fixed by the layout alone. With lower ones the aggregator
        would provoke misfits, and learn from them how large this site's numbers are."""
        begins = opening.round == 0
        if before is not None and before.round == opening.round - 1:
            begins = self.agreed.blocks[before.stage] != opening.layout
        if begins and opening.exponents != opening.layout.first_exponents:
            raise ChangedExponent(f"the exponents of round {opening.round} are not those with which its layout begins")

    def seen(self, before: LocalStep | None) -> Consensus | None:
        """The consensus of the last local step, as the method reads it."""
        if before is None or before.stage not in self.agreed.blocks:
            return None
        layout = self.agreed.method.stage(before.stage).down
        if before.broadcast.size != layout.size:
            return None
        return Consensus(before.round, before.stage, TensorMessage.unflatten(layout, before.broadcast))

    def answer(self, admitted: Admitted, step: LocalStep, checked: CheckedSum | None = None) -> Answered:
        """What this site says to the opening, by a copy of its side: nothing is pinned before `adopt`. Slow for large
        tensors, so it may run in a thread while the session goes on."""
        side = SecureSite(self.terms, self._identity(), self.side.state)
        return Answered(step, admitted.opened.ref, side.answer(admitted.opening, step.vector), side, checked)

    def adopt(self, event: Answered) -> None:
        """Pin the answer; from now on the round is answered with it."""
        self._side = event.side
        if event.checked is not None:
            self.checked, self.verified = event.checked.sha256, event.checked.expected
            self.memory = event.checked.memory

    def finish(self) -> None:
        """The run is over: the secrets are gone from the record; in memory those of the tags stay until `forget`."""
        if self._side is not None and self._side.state.step is not Step.FINISHED:
            self.closing = SecureSite(self.terms, self._identity(), self._side.state)
            self._side.finish()

    def forget(self) -> None:
        """Nothing of the run will be checked again: drop what `finish` left in memory."""
        self.finish()
        self.closing = None

    def complain(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        """The complaint that this refusal gives rise to, once for each distinct sentence."""
        key = (type(error).__name__, str(error))
        if not self.cohort or key in self._complained:
            return ()
        self._complained.add(key)
        identity = self._identity()
        return (Complain(complain(self.terms, identity, error), self._proof(identity, error.evidence)),)

    def _proof(self, identity: SigningIdentity, evidence: Evidence | None) -> SignedEvidence | None:
        if evidence is None:
            return None
        statement = evidence_statement(self.terms, identity.name, evidence)
        return SignedEvidence(evidence, identity.sign(statement))

    def _is_past_set_up(self, roster: Roster) -> bool:
        state = self.side.state
        if state.step not in (Step.READY, Step.FINISHED):
            return False
        if roster_digest(self.terms, roster) != state.roster:
            raise ChangedRoster("this is a second, different roster in one run")
        return True
