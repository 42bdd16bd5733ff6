"""One round of a secure run: fetch the consensus, judge it, verify the sum before, compute, mask.

No further round opens after the last one, so nobody else would find out: each site checks for itself that the final
consensus follows from the last sum, whatever its size, before it forms results from it.
"""

from __future__ import annotations

import errno

from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.rpca.method import Consensus, Outcome
from dcfpca.secagg.checking_turns import members_in_turn, unforeseen_draw
from dcfpca.secagg.errors import Evidence, ImplausibleConsensus, SecureSumRefusal, SiteFailure, WrongConsensus, WrongSum
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.tensors import DigestedBytes, message_bytes, message_from
from participant.contract import Contract
from participant.driver.local_work import LocalWork
from participant.driver.outgoing import INLINE_UPDATE_BYTES
from participant.driver.saved_events import computed_event
from participant.driver.site_services import SiteServices
from participant.policy import wants_verification
from participant.session import Session, actions, events
from participant.session.events import ShownSum
from participant.session.secure_run import SecureRun
from participant.session.verification import check_announced, check_final, following, has_announced_memory


async def answer_round(
    services: SiteServices, local: LocalWork, agreed: Contract, session: Session, action: actions.Compute
) -> events.Answered:
    """The answer to the round now open. Raises the refusal that the announcement deserves; nothing is pinned yet."""
    run = session.secure
    assert run is not None
    check = SumCheck(services, agreed, run, session, action)
    if not action.consensus.inline and (derived := await check.consensus_bytes()) is not None:
        local.take_consensus(action.consensus, derived)
    elif (computed_on := run.seen(session.computed)) is not None and computed_on.round == action.round:
        # After a restart: by now the aggregator may hold the consensus of a later round only.
        local.take_consensus(action.consensus, message_bytes(computed_on.broadcast))
    payload = await local.consensus_bytes(agreed, action.consensus, action.round)
    opened, opening, vector = session.admit(action.round, payload)
    if vector is None:
        await check.announced(opened, payload)
        checked = run.digest_of(opening)
        step = await local.step(agreed, action, lambda: not session.finished, len(run.cohort), checked)
        computed = computed_event(step)
    else:
        assert session.computed is not None
        computed = session.computed
    made = computed.vector
    if made.nbytes <= INLINE_UPDATE_BYTES:
        return events.Answered(computed, run.answer(opened.ref, opening, made))
    return events.Answered(computed, await services.engine.run(lambda: run.answer(opened.ref, opening, made)))


class SumCheck:
    """Checks the last sum that this site had a part in, and what follows from it, as often as the policy says."""

    def __init__(
        self, services: SiteServices, agreed: Contract, run: SecureRun, session: Session, action: actions.Compute
    ) -> None:
        self._services, self._agreed, self._run = services, agreed, run
        self._opened, self._round = session.latest, action.round
        self._before = run.seen(session.computed)
        self._expected: Consensus | None = None

    async def consensus_bytes(self) -> bytes | None:
        """The consensus as it follows from the sum, to be used if it has the announced digest; None if the sum is not
        checked in this round."""
        expected = await self._follows()
        return message_bytes(expected.broadcast) if expected is not None else None

    async def announced(self, opened: events.Opened, payload: DigestedBytes) -> None:
        """Refuse an announcement that does not follow from the sum, if it is checked in this round."""
        if opened is not self._opened:
            self._opened, self._expected = opened, None
        expected, before = await self._follows(), self._before
        if expected is None or opened.announced is None or before is None:
            return
        told, run, terms = opened.announced, self._run, self._agreed.terms
        consensus = message_from(terms.down(opened.consensus.stage), payload.data)
        check_announced(terms, run.side, before, told, consensus, expected)
        run.checked = payload.sha256
        # A memory that other rounding made another is shown with the next sum, which is then checked as well.
        run.verified = expected if self._is_due(before) and not has_announced_memory(told, expected) else None
        log("sum_verified", level="debug", run=run.run_id, round=before.round)

    async def _follows(self) -> Consensus | None:
        """What follows from the sum of the round before; None if it is not checked in this round."""
        if self._expected is not None:
            return self._expected
        run, before, opened = self._run, self._before, self._opened
        if before is None or opened is None or run.state is None:
            return None
        if run.state.round != before.round or before.round >= self._round:
            return None
        known = run.verified if run.verified is not None and run.verified.round == before.round else None
        told = opened.announced
        if told is None or not (self._is_due(before) or (known is not None and known.round > 0)):
            return None
        shown = await self._shown(before, opened)
        terms, side = self._agreed.terms, run.side
        self._expected = await self._services.engine.run(lambda: following(terms, side, before, shown, told, known))
        return self._expected

    def _is_due(self, before: Consensus) -> bool:
        turn = self._services.site.name in members_in_turn(self._run.cohort, self._round)
        draw = unforeseen_draw(self._run.side.state.roots, self._round)
        size = self._agreed.terms.update_bytes(before.stage)
        return wants_verification(self._services.site.facts.policy, size, draw, turn=turn)

    async def _shown(self, before: Consensus, opened: events.Opened) -> ShownSum:
        size, state, told = self._agreed.terms.update_bytes(before.stage), self._run.state, opened.announced
        assert state is not None
        assert told is not None
        if opened.shown is not None and len(opened.shown.total) == size:
            return opened.shown
        request = pb.FetchSumRequest(run_id=self._run.run_id, round=before.round)
        try:
            return ShownSum(*await self._services.link.fetch_sum(request, size))
        except BadMessage as error:
            proof = Evidence(before.round, state.opening, bytes(told.previous_sum), bytes(32))
            sentence = f"the aggregator does not show the sum of round {before.round}: {error}"
            raise WrongSum(sentence, evidence=proof) from error


def refusal_of(error: Exception, round: int) -> SecureSumRefusal:
    """The refusal that says why a round was not answered. The site's own trouble is named without any of its data."""
    if isinstance(error, SecureSumRefusal):
        return error
    if isinstance(error, BadMessage):
        return ImplausibleConsensus(f"round {round} was announced wrongly: {error}")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SiteFailure(f"the disk of this site is full; round {round} waits until there is space")
    if isinstance(error, MemoryError):
        return SiteFailure(f"this site has too little memory for round {round}")
    return SiteFailure(
        f"the local step of round {round} failed at this site ({type(error).__name__}); its log says why"
    )


async def final_is_verified(
    services: SiteServices, local: LocalWork, agreed: Contract, session: Session, action: actions.Finish
) -> bool:
    """True if the final consensus follows from the last sum that this site had a part in, or is one that it checked
    before it answered, as where an operator ends a run within a round. False if that cannot be told here: the site
    checks nothing, left the check of that round to the members in turn, was restarted since, or the aggregator does not
    show the sum. False, too, if the aggregator reports another outcome than the one that follows here.

    Raises WrongSum or WrongConsensus where it is another.
    """
    run, final, terms = session.secure, action.consensus, agreed.terms
    if run is None or services.site.facts.policy.verify == "never":
        return False
    payload = (await local.consensus_bytes(agreed, final, action.round, final=True)).data
    before, side = run.seen(session.computed), run.closing
    if before is None or side is None:
        return False
    claimed = next((outcome for outcome in Outcome if outcome.value == action.outcome), None)
    if claimed is None and final.stage == before.stage and bytes(payload) == message_bytes(before.broadcast):
        return final.sha256 == run.checked  # members in turn may have refused it, and nobody would know
    if side.state.round != before.round:
        return False
    request = pb.FetchSumRequest(run_id=run.run_id, round=before.round)
    try:
        shown = ShownSum(*await services.link.fetch_sum(request, terms.update_bytes(before.stage)))
    except BadMessage:
        return False
    try:
        told = message_from(terms.down(final.stage), payload)
    except BadMessage as error:
        raise WrongConsensus(f"the final consensus cannot be true: {error}") from error
    known = run.verified
    expected = await services.engine.run(lambda: check_final(terms, side, before, shown, (told, final.stage), known))
    return expected.outcome is claimed
