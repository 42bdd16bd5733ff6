"""Whether the consensus with which a run of a fixed cohort ends follows from its last sum.

No further round opens after it, so nobody else would find out: each site checks for itself what its results are formed
from, whatever the size of the sum.
"""

from __future__ import annotations

from dcfpca.chunked_vectors import message_bytes, message_from
from dcfpca.errors import BadMessage
from dcfpca.rpca.method import Outcome
from dcfpca.secagg.errors import WrongConsensus
from dcfpca.v1 import rounds_pb2 as pb
from participant.contract import Contract
from participant.driver.local_work import LocalWork
from participant.driver.site_services import SiteServices
from participant.session import Session, actions
from participant.session.events import ShownSum
from participant.session.verification import check_final


async def final_is_verified(
    services: SiteServices, local: LocalWork, agreed: Contract, session: Session, action: actions.Finish
) -> bool:
    """True if the final consensus follows from the last sum that this site had a part in, or is one that it checked
    before it answered, as where an operator ends a run within a round. False if that cannot be told here: the site
    checks nothing, left the check of that round to the members in turn, was restarted since, or the aggregator does not
    show the sum. False, too, if the run is said to have ended otherwise than it has, as converged where it was not.

    Raises WrongSum or WrongConsensus where it is another.
    """
    run, final, method = session.fixed, action.consensus, agreed.method
    if run is None or services.site.facts.policy.verify == "never":
        return False
    payload = (await local.consensus_bytes(agreed, final, action.round, final=True)).data
    before, side = run.seen(session.computed), run.closing
    if before is None or side is None:
        return False
    claimed = next((outcome for outcome in Outcome if outcome.value == action.outcome), None)
    if claimed is None and final.stage is before.stage and bytes(payload) == message_bytes(before.broadcast):
        return final.sha256 == run.checked  # members in turn may have refused it, and nobody would know
    if side.state.round != before.round:
        return False
    size = method.update_layout(before.round, before.stage).size * agreed.spec.precision // 8
    request = pb.FetchSumRequest(run_id=run.run_id, round=before.round)
    try:
        shown = ShownSum(*await services.link.fetch_sum(request, size))
    except BadMessage:
        return False
    try:
        told = message_from(method.broadcast_layout(max(action.round, 1), final.stage), payload)
    except BadMessage as error:
        raise WrongConsensus(f"the final consensus cannot be true: {error}") from error
    known = run.verified
    expected = await services.engine.run(lambda: check_final(method, side, before, shown, (told, final.stage), known))
    return expected.outcome is claimed
