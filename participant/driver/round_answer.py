"""One round at a site: fetch the consensus, judge it, verify the sum before, compute, mask.

No further round opens after the last one, so nobody else would find out: each site checks for itself that the final
consensus follows from the last sum, whatever its size, before it forms results from it.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable

from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.method_memory import encode_memory
from dcfpca.rpca.method import Consensus, Outcome, TensorMessage
from dcfpca.secagg.errors import Evidence, ImplausibleConsensus, SecureSumRefusal, SiteFailure, WrongConsensus, WrongSum
from dcfpca.wire.tensors import message_bytes, message_from
from participant import wire_codec
from participant.contract import Contract
from participant.driver.local_work import LocalWork, consensus_from
from participant.driver.site_services import SiteServices
from participant.session import Session, actions, events
from participant.session.events import CheckedSum, Opened, ShownSum
from participant.session.secure_run import SecureRun
from participant.session.verification import check_announced, check_final, following, wants_verification

# Below this size, masking on the event loop takes less time than handing the work to a thread.
INLINE_UPDATE_BYTES = 1 << 20


async def answer_round(
    services: SiteServices,
    local: LocalWork,
    agreed: Contract,
    session: Session,
    action: actions.Compute,
    wanted: Callable[[], bool],
) -> events.Answered:
    """The answer to the round now open. Raises a refusal if the announcement is wrong. Nothing is pinned yet."""
    run = session.secure
    if run is None:
        return await _plain_answer(local, agreed, session, action, wanted)
    check = SumCheck(services, agreed, run, session, action.round)
    if not action.consensus.inline and (derived := await check.consensus_bytes()) is not None:
        local.take_consensus(action.consensus, derived)
    elif (computed_on := run.seen(session.step)) is not None and computed_on.round == action.round:
        # After a restart: by now the aggregator may hold the consensus of a later round only.
        local.take_consensus(action.consensus, message_bytes(computed_on.broadcast))
    payload = await local.consensus_bytes(agreed, action.consensus, action.round)
    admitted, checked = run.admit(session.open_round(action.round), payload, session.step), None
    step, asked = admitted.step, admitted.consensus
    if step is None:
        checked = await check.announced(admitted.opened, asked.broadcast, payload.sha256)
        compares, members = session.compares_features(asked.stage), len(run.cohort)
        sha256 = action.consensus.sha256
        step = await local.step(agreed, asked, sha256, wanted, members, admitted.bound, compares=compares)
    if step.vector.nbytes <= INLINE_UPDATE_BYTES:
        return run.answer(admitted, step, checked)
    return await services.engine.run(lambda: run.answer(admitted, step, checked))


async def _plain_answer(
    local: LocalWork, agreed: Contract, session: Session, action: actions.Compute, wanted: Callable[[], bool]
) -> events.Answered:
    """The update as it is; a later attempt at the same round sends the one that was computed in an earlier."""
    ref, step, announced = session.open_round(action.round).ref, session.step, action.consensus
    if step is None or (step.round, step.consensus_sha256) != (action.round, announced.sha256):
        payload = await local.consensus_bytes(agreed, announced, action.round)
        asked = consensus_from(agreed, announced.stage, action.round, payload)
        compares = session.compares_features(asked.stage)
        step = await local.step(agreed, asked, announced.sha256, wanted, compares=compares)
    return events.Answered(step, ref)


class SumCheck:
    """Checks the last sum that this site had a part in, and what follows from it, as often as the policy says."""

    def __init__(self, services: SiteServices, agreed: Contract, run: SecureRun, session: Session, round: int) -> None:
        self._services, self._terms, self._run = services, agreed.terms, run
        self._opened = session.opened
        before = run.seen(session.step)
        # A sum is checked where its round is the last that this site answered: of another it could not tell the tag.
        comes_before = before is not None and before.round == run.side.state.round and before.round < round
        self._before = before if comes_before else None
        self._due = self._before is not None and wants_verification(
            services.site.facts.policy, self._terms.update_bytes[self._before.stage], run.side, round
        )
        self._expected: Consensus | None = None

    async def consensus_bytes(self) -> bytes | None:
        """The consensus as it follows from the sum, to be used if it has the announced digest; None if the sum is not
        checked in this round."""
        expected = await self._follows()
        return message_bytes(expected.broadcast) if expected is not None else None

    async def announced(self, opened: Opened, consensus: TensorMessage, sha256: bytes) -> CheckedSum | None:
        """Refuse an announcement that does not follow from the sum, if it is checked in this round."""
        if opened is not self._opened:
            self._opened, self._expected = opened, None
        expected, before = await self._follows(), self._before
        if expected is None or before is None:
            return None
        check_announced(self._terms, self._run.side, before, opened.announced, consensus, expected)
        log("sum_verified", level="debug", run=self._run.run_id, round=before.round)
        # A memory that other rounding made another is shown with the next sum, which is then checked as well.
        memory = encode_memory(expected.memory)
        differs = self._due and hashlib.sha256(memory).digest() != opened.announced.memory_sha256
        return CheckedSum(sha256, expected if differs else None, memory)

    async def _follows(self) -> Consensus | None:
        """What follows from the sum of the round before; None if it is not checked in this round."""
        run, before, opened = self._run, self._before, self._opened
        if self._expected is not None or before is None or opened is None:
            return self._expected
        known = run.verified if run.verified is not None and run.verified.round == before.round else None
        if not self._due and (known is None or known.round == 0):
            return None
        shown, terms, side = await self._shown(before, opened), self._terms, run.side
        self._expected = await self._services.engine.run(
            lambda: following(terms, side, before, shown, known, opened.announced)
        )
        return self._expected

    async def _shown(self, before: Consensus, opened: Opened) -> ShownSum:
        size = self._terms.update_bytes[before.stage]
        if opened.shown is not None and len(opened.shown.total) == size:
            return opened.shown
        try:
            return wire_codec.sum_of(*await self._services.link.fetch_sum(self._run.run_id, before.round, size))
        except BadMessage as error:
            bound, announced = self._run.side.state.opening, opened.announced.previous_sum
            proof = Evidence(before.round, bound, announced, bytes(32))
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
    before it answered, as where an operator ends a run within a round. False if that does not show here: the site
    checks nothing, left the check of that round to the members in turn, was restarted since, or the aggregator does not
    show the sum. False, too, if the aggregator reports another outcome than the one that follows here.

    Raises WrongSum or WrongConsensus where it is another.
    """
    run, final, terms = session.secure, action.consensus, agreed.terms
    if run is None or services.site.facts.policy.verify == "never":
        return False
    payload = (await local.consensus_bytes(agreed, final, action.round, final=True)).data
    before, side = run.seen(session.step), run.closing
    if before is None or side is None:
        return False
    claimed = next((outcome for outcome in Outcome if outcome.value == action.outcome), None)
    if claimed is None and final.stage == before.stage and bytes(payload) == message_bytes(before.broadcast):
        return final.sha256 == run.checked  # members in turn may have refused it, and nobody would know
    if side.state.round != before.round:
        return False
    try:
        size = terms.update_bytes[before.stage]
        shown = wire_codec.sum_of(*await services.link.fetch_sum(run.run_id, before.round, size))
    except BadMessage:
        return False
    try:
        announced = message_from(terms.method.stage(final.stage).down, payload)
    except BadMessage as error:
        raise WrongConsensus(f"the final consensus cannot be true: {error}") from error
    expected = await services.engine.run(lambda: following(terms, side, before, shown, run.verified))
    check_final(terms, side, before, final.stage, announced, expected)
    return expected.outcome is claimed
