"""What the driver of a run sends through `egress`: the answer to the proposal, round messages, exports."""

from __future__ import annotations

from typing import Literal

from dcfpca.logs import log
from dcfpca.run_references import AttemptRef
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import consent_bytes
from dcfpca.wire.tensors import Buffer
from participant import wire_codec
from participant.contract import Contract
from participant.driver.site_services import SiteServices
from participant.results.reading import has_result
from participant.session import Session, actions
from participant.session.events import Kind

# Below this size, masking on the event loop takes less time than handing the work to a thread.
INLINE_UPDATE_BYTES = 1 << 20


async def respond(services: SiteServices, run_id: str, action: actions.Respond) -> tuple[Fate, str]:
    """Sign and send the answer to the proposal; returns its fate and the aggregator's reason."""
    name = services.site.name
    statement = consent_bytes(
        run_id, action.digest, name, accept=action.accept, private=action.private, reasons=action.reasons
    )
    request = pb.RespondRequest(
        run_id=run_id,
        spec_sha256=action.digest,
        accept=action.accept,
        reasons=action.reasons,
        private=action.private,
        signature=services.site.sign(statement),
    )
    log("run_enrolled" if action.accept else "run_refused", run=run_id, reasons=list(action.reasons) or None)
    services.telemetry.answered(accept=action.accept)
    receipt = await services.egress.respond(request)
    fate = wire_codec.fate_of(receipt)
    log("answer_sent", run=run_id, fate=fate.value, reason=receipt.reason or None)
    return fate, receipt.reason


async def send(
    services: SiteServices, agreed: Contract, session: Session, action: actions.RoundMessage
) -> types.Receipt:
    """Send one message of an attempt."""
    if not isinstance(action, actions.Submit):
        return await services.egress.misfit(agreed, action)
    stage = session.latest.consensus.stage if session.latest is not None else ""
    payload = await _update_bytes(services, agreed, session, action.ref, stage)
    latest = session.latest
    opened = latest if latest is not None and latest.ref == action.ref else None
    return await services.egress.submit(agreed, action.ref, payload, stage, opened, session.update_seal(action.ref))


async def _update_bytes(
    services: SiteServices, agreed: Contract, session: Session, ref: AttemptRef, stage: str
) -> Buffer:
    if not stage or agreed.terms.update_bytes(stage) <= INLINE_UPDATE_BYTES:
        return session.update_bytes(ref)
    return await services.engine.run(lambda: session.update_bytes(ref))


def log_receipt(services: SiteServices, ref: AttemptRef, kind: Kind, fate: Fate, reason: str) -> None:
    """Log and count what became of a message. LATE is ordinary: a plain round closes without whoever is last."""
    usual: Literal["info", "debug"] = "info" if kind is Kind.UPDATE else "debug"
    log(
        f"{kind.value}_sent",
        level="warning" if fate is Fate.REJECTED else usual,
        run=ref.run_id,
        round=ref.round,
        attempt=ref.attempt,
        fate=fate.value,
        reason=reason or None,
    )
    services.telemetry.message(kind.value, fate.value)


async def export(services: SiteServices, session: Session, action: actions.Export | actions.RefuseExport) -> None:
    """Send the reconstruction, or the reason why it is not sent."""
    run_id, consent, results = session.run_id, session.consent, services.results
    reason = action.reason if isinstance(action, actions.RefuseExport) else ""
    if not reason and not has_result(results, run_id):
        reason = "this participant has no result of the run"
    if reason or consent is None:
        receipt = await services.egress.refuse_export(run_id, action.export_id, reason)
        log("export_refused", run=run_id, reason=reason, fate=wire_codec.fate_of(receipt).value)
        return
    receipts = await services.egress.export(consent.spec, run_id, action.export_id, results / run_id)
    log("reconstruction_exported", run=run_id, fates=[wire_codec.fate_of(receipt).value for receipt in receipts])
