"""What the driver of a run sends through `egress`: the answer to the proposal, round messages, exports."""

from __future__ import annotations

from dcfpca.logs import log
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import consent_bytes
from participant import wire_codec
from participant.contract import Contract
from participant.driver.site_services import SiteServices
from participant.results.reading import has_result
from participant.session import Consent, Session, actions


async def respond(services: SiteServices, run_id: str, consent: Consent) -> tuple[Fate, str]:
    """Sign and send the answer to the proposal; returns its fate and the aggregator's reason."""
    name = services.site.name
    statement = consent_bytes(
        run_id, consent.digest, name, accept=consent.accept, private=consent.private, reasons=consent.reasons
    )
    log("run_enrolled" if consent.accept else "run_refused", run=run_id, reasons=list(consent.reasons) or None)
    services.telemetry.answered(accept=consent.accept)
    signature = services.site.sign(statement)
    receipt = await services.egress.respond(wire_codec.encode_consent(run_id, consent, signature))
    fate = wire_codec.fate_of(receipt)
    log("answer_sent", run=run_id, fate=fate.value, reason=receipt.reason or None)
    return fate, receipt.reason


async def send(services: SiteServices, agreed: Contract, session: Session, action: actions.RoundMessage) -> None:
    """Send the message of an attempt; log and count what became of it. LATE is ordinary: a plain round closes without
    whoever is last."""
    ref, opened = action.ref, session.opened
    if isinstance(action, actions.SendMisfit):
        kind, receipt = "misfit", await services.egress.misfit(agreed, action)
    elif opened is None or opened.ref != ref:
        return  # another attempt is open by now, and the update would be late
    else:
        stage, ticket, cohort = opened.consensus.stage, opened.ticket, len(opened.cohort)
        kind = "update"
        receipt = await services.egress.submit(agreed, ref, session.update(ref), stage, ticket, cohort)
    fate = wire_codec.fate_of(receipt)
    log(
        f"{kind}_sent",
        level="warning" if fate is Fate.REJECTED else "info" if kind == "update" else "debug",
        run=ref.run_id,
        round=ref.round,
        attempt=ref.attempt,
        fate=fate.value,
        reason=receipt.reason or None,
    )
    services.telemetry.message(kind, fate.value)


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
