"""The only way out of the site: a message is checked against the contract, recorded in the ledger, then sent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path

from dcfpca.atomic_files import sha256_of_file
from dcfpca.errors import Refused
from dcfpca.logs import log
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.constants import ARTIFACTS
from dcfpca.wire.round_messages import ref_to_wire
from participant import contract, wire_codec
from participant.contract import Contract, EgressViolation, Update
from participant.link import Link
from participant.link.notice import post_notice
from participant.policy import SitePolicy, review_export
from participant.session.actions import AdvertiseRunKey, RunMessage, SendMisfit, ShareGroupSecret
from participant.state.ledger import Item, Ledger


class Egress:
    """Every message of the site leaves through one of these methods; a test keeps others from calling the link's."""

    def __init__(self, link: Link, ledger: Ledger, policy: SitePolicy, notify: str = "") -> None:
        """`notify` is the address that is told when a run waits for a person; empty: nobody is."""
        self._link = link
        self._ledger = ledger
        self._policy = policy
        self._notify = notify

    def subscribed(self, hello: pb.SubscribeRequest) -> None:
        """Record that the stream is being opened."""
        self._record(contract.subscribe_item(hello))

    async def respond(self, request: pb.RespondRequest) -> types.Receipt:
        """Send the answer to a proposal."""
        self._record(contract.respond_item(request))
        return await self._link.send(request)

    async def misfit(self, agreed: Contract, message: SendMisfit) -> types.Receipt:
        """Send the statement that the update of an attempt does not fit."""
        misfit = wire_codec.encode_misfit(message.ref, message.misfit)
        self._record_once(contract.misfit_item(agreed, misfit))
        return await self._link.send(misfit)

    async def tell(self, agreed: Contract, message: RunMessage) -> types.Receipt:
        """Send one message of a secure run that belongs to no round."""
        match message:
            case AdvertiseRunKey():
                key = wire_codec.encode_run_key(agreed.run_id, message.advert)
                self._record_once(contract.run_key_item(agreed, key))
                return await self._link.send(key)
            case ShareGroupSecret():
                shares = wire_codec.encode_group_shares(agreed.run_id, message.shares)
                self._record_once(contract.group_shares_item(agreed, shares))
                return await self._link.send(shares)
            case _:
                complaint = wire_codec.encode_complaint(agreed.run_id, message.complaint)
                items = [contract.complaint_item(agreed, complaint)]
                if message.proof is not None:
                    items.insert(0, contract.evidence_item(agreed, complaint, message.proof))
                self._record(*items)
                return await self._link.send(complaint)

    async def submit(
        self, agreed: Contract, ref: AttemptRef, update: Update, stage: str, ticket: bytes, cohort: int
    ) -> types.Receipt:
        """Send the update of an attempt; after a broken connection, only the bytes that have not arrived.

        `update` is its bytes, and the tag and the context of a masked one; stage, ticket and the size of the cohort are
        those of the announcement.
        """
        item, header = contract.update_item(agreed, ref, update, stage, ticket)
        self._record_once(item)
        return await self._link.upload(header, update[0], cohort)

    async def export(self, spec: RunSpec, run_id: str, export_id: str, directory: Path) -> list[types.Receipt]:
        """Send L and S, after a last check of the site's policy; raises Refused when it does not allow that."""
        if reason := review_export(spec, self._policy):
            raise Refused(reason)
        return [await self._export_file(run_id, export_id, directory / name) for name in ARTIFACTS]

    async def _export_file(self, run_id: str, export_id: str, path: Path) -> types.Receipt:
        size, digest = await asyncio.to_thread(lambda: (path.stat().st_size, sha256_of_file(path)))
        header = pb.ExportHeader(run_id=run_id, export_id=export_id, artifact=path.name, size=size, sha256=digest)
        self._record(contract.export_item(header))
        return await self._link.export(header, path)

    async def report(self, agreed: Contract, ref: AttemptRef, percent: int) -> None:
        """Send the percentage that a long local step has reached; it is shown to operators."""
        request = pb.ReportProgressRequest(ref=ref_to_wire(ref), percent=percent)
        self._record(contract.progress_item(agreed, request))
        await self._link.send(request)

    async def refuse_export(self, run_id: str, export_id: str, reason: str) -> types.Receipt:
        """Send the reason why the reconstruction is not exported."""
        refusal = pb.ExportRefusal(run_id=run_id, export_id=export_id, reason=reason)
        self._record(contract.refusal_item(refusal))
        return await self._link.refuse_export(refusal)

    async def notify(self, site: str, run_id: str, label: str, until: str) -> None:
        """Tell the people of the site that a run waits for them; nothing about the data. A failure is logged."""
        if not self._notify:
            return
        body = json.dumps({"site": site, "run": run_id, "label": label, "until": until}).encode()
        self._record(Item("notice", "JSON", len(body), hashlib.sha256(body).digest(), run_id, detail="[notify] url"))
        try:
            await asyncio.to_thread(post_notice, self._notify, body)
        except OSError as error:
            log("notice_not_sent", level="warning", run=run_id, reason=str(error), hint="check [notify] url")

    def _record_once(self, item: Item) -> None:
        """Record the only message of its kind in an attempt; EgressViolation for a second with different bytes."""
        left = self._ledger.sent_digests(item)
        if left - {item.sha256}:
            raise EgressViolation(f"a second, different {item.kind} was about to leave in one attempt; it was stopped")
        if not left:
            self._ledger.append_all([item], time.time_ns() // 1_000_000)

    def _record(self, *items: Item) -> None:
        self._ledger.append_all(items, time.time_ns() // 1_000_000)
