"""One round of a run with a fixed cohort: fetch the consensus, judge it, verify the sum before, compute, mask."""

from __future__ import annotations

import errno
import os

from dcfpca.chunked_vectors import Buffer, message_from
from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.secagg.errors import ImplausibleConsensus, SecureSumRefusal, SiteFailure, WrongSum
from dcfpca.secagg.evidence import Evidence
from dcfpca.v1 import rounds_pb2 as pb
from participant.contract import Contract
from participant.driver.local_work import LocalWork
from participant.driver.outgoing import INLINE_UPDATE_BYTES
from participant.driver.site_services import SiteServices
from participant.policy import wants_verification
from participant.session import Session, actions, events
from participant.session.fixed_cohort import FixedCohortRun
from participant.session.verification import ShownSum, verify_round


async def answer_round(
    services: SiteServices, local: LocalWork, agreed: Contract, session: Session, action: actions.Compute
) -> events.Answered:
    """The answer to the round now open. Raises the refusal that the announcement deserves; nothing is pinned yet."""
    run = session.fixed
    assert run is not None
    payload = await local.consensus_bytes(agreed, action.consensus, action.round)
    opened, opening, vector = session.admit(action.round, payload)
    if vector is None:
        await _verify(services, agreed, run, session, opened, payload)
        step = await local.step(agreed, action, lambda: not session.finished)
        computed = events.Computed(step.round, step.consensus, step.vector, step.broadcast, step.stage)
    else:
        assert session.computed is not None
        computed = session.computed
    made = computed.vector
    if made.nbytes <= INLINE_UPDATE_BYTES:
        return events.Answered(computed, run.answer(opened.ref, opening, made))
    return events.Answered(computed, await services.engine.run(lambda: run.answer(opened.ref, opening, made)))


async def _verify(
    services: SiteServices,
    agreed: Contract,
    run: FixedCohortRun,
    session: Session,
    opened: events.Opened,
    payload: Buffer,
) -> None:
    """Check the last sum that this site had a part in, and what follows from it, as often as the policy says."""
    before, state, told = run.seen(session.computed), run.state, opened.announced
    if before is None or state is None or told is None or state.round != before.round:
        return
    size = agreed.method.update_layout(before.round, before.stage).size * agreed.spec.precision // 8
    drawn = wants_verification(services.site.facts.policy, size, os.urandom(1)[0])
    known = run.verified if run.verified is not None and run.verified.round == before.round else None
    # The memory of a verified round is shown only with the sum after it, so that one is checked, too.
    if not drawn and (known is None or known.round == 0):
        return
    request = pb.FetchSumRequest(run_id=run.run_id, round=before.round)
    try:
        shown = ShownSum(*await services.link.fetch_sum(request, size))
    except BadMessage as error:
        proof = Evidence(before.round, state.opening, bytes(told.previous_sum), bytes(32))
        sentence = f"the aggregator does not show the sum of round {before.round}: {error}"
        raise WrongSum(sentence, evidence=proof) from error
    consensus = message_from(agreed.method.broadcast_layout(opened.ref.round, opened.consensus.stage), payload)
    side = run.side
    found = await services.engine.run(lambda: verify_round(agreed.method, side, before, shown, told, consensus, known))
    run.verified = found if drawn else None
    log("sum_verified", level="debug", run=run.run_id, round=before.round)


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
