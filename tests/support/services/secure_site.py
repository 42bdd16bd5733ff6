"""A member of a fixed cohort over real mutual TLS: the pure side of the secure sum, and as little else as possible."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.identity import Role
from dcfpca.methods import method_of
from dcfpca.pki.keys import sign
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage
from dcfpca.secagg.fixed_point import block_layout
from dcfpca.secagg.keys import SigningIdentity
from dcfpca.secagg.messages import Masked, Opening, RunTerms
from dcfpca.secagg.site import SecureSite
from dcfpca.spec import parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire import round_messages
from dcfpca.wire.constants import PROTOCOL
from dcfpca.wire.round_messages import consent_bytes
from dcfpca.wire.tensors import header_of, message_from
from participant.session.secure_run import announced_opening
from participant.wire_codec import announcement_of
from tests.support.services.service import Service


class WaitingSite:
    """Takes part in one run. `openings` keeps the openings it received, `fates` what became of each update."""

    def __init__(self, service: Service, name: str, data: FloatArray) -> None:
        self.name, self._data = name, data
        own = service.credentials(Role.PARTICIPANT, name)
        self.stub: Any = RoundServiceStub(service.channel_of(own))
        self._key = own.private_key
        certificate = own.certificate.public_bytes(Encoding.DER)
        verify = service.trust.participant_key
        self.identity = SigningIdentity(name, certificate, lambda data: sign(own.private_key, data), verify)
        self.side: SecureSite | None = None
        self.openings: dict[int, tuple[pb.RoundOpened, Opening]] = {}
        self.fates: list[int] = []
        self._updates: dict[int, FloatArray] = {}
        self.finished: pb.RunFinished | None = None

    async def listen(self, *, stop_before: int = 1 << 30, stop_at: str = "") -> None:
        """Answer what is asked until the run ends, or until this round is opened or this is asked for."""
        stream = self.stub.Subscribe(pb.SubscribeRequest(protocol=PROTOCOL, software="test", rows=len(self._data)))
        try:
            async for assignment in stream:
                what = assignment.WhichOneof("what")
                if what == "run_finished":
                    self.finished = assignment.run_finished
                    return
                if what == stop_at:
                    return
                if what == "round_opened" and assignment.round_opened.ref.round >= stop_before:
                    return
                await self._do(assignment, what)
        finally:
            stream.cancel()

    async def _do(self, assignment: pb.Assignment, what: str) -> None:
        match what:
            case "run_proposed":
                await self._enrol(assignment.run_id, assignment.run_proposed)
            case "run_key_wanted":
                self._begin(assignment.run_id, assignment.run_key_wanted)
                assert self.side is not None
                key = round_messages.advert_to_wire(self.side.advert())
                await self.stub.AdvertiseRunKey(pb.AdvertiseRunKeyRequest(run_id=assignment.run_id, key=key))
            case "roster_closed":
                assert self.side is not None
                shares = self.side.share(round_messages.roster_from_wire(assignment.roster_closed.keys))
                sealed = round_messages.shares_to_wire(shares)
                await self.stub.ShareGroupSecret(pb.ShareGroupSecretRequest(run_id=assignment.run_id, shares=sealed))
            case "group_shares_relayed":
                relayed = assignment.group_shares_relayed
                assert self.side is not None
                roster = round_messages.roster_from_wire(relayed.keys)
                self.side.complete(roster, round_messages.shares_from_wire(relayed.incoming))
            case "round_opened":
                await self._answer(assignment.round_opened)

    async def _enrol(self, run_id: str, proposed: pb.RunProposed) -> None:
        self.spec = parse_spec(proposed.spec)
        self.method = method_of(self.spec)
        self._site = self.method.site(ArrayColumns(self._data))
        digest = proposed.spec_sha256
        said = consent_bytes(run_id, digest, self.name, accept=True, private=False, reasons=[])
        request = pb.RespondRequest(run_id=run_id, spec_sha256=digest, accept=True, signature=sign(self._key, said))
        await self.stub.Respond(request)

    def _begin(self, run_id: str, wanted: pb.RunKeyWanted) -> None:
        if self.side is None:
            cohort, spec = tuple(wanted.cohort), self.spec
            terms = RunTerms(run_id, wanted.spec_sha256, cohort, spec.last_round, spec.precision)
            self.side = SecureSite.begin(terms, self.identity, os.urandom(64))

    async def _answer(self, opened: pb.RoundOpened) -> None:
        assert self.side is not None
        round, stage = opened.ref.round, self.method.stage(opened.stage)
        layout = stage.up
        opening = announced_opening(
            announcement_of(opened), block_layout(layout), hashlib.sha256(opened.inline_consensus)
        )
        self.openings[round] = (opened, opening)
        if round not in self._updates:
            consensus = Consensus(round, stage.name, message_from(stage.down, opened.inline_consensus))
            update = self._site.answer(consensus)
            self._updates[round] = TensorMessage(self.lift(round) * update.tensor, update.scalars).flat()
        said = self.side.answer(opening, self._updates[round])
        if not isinstance(said, Masked):
            misfit = round_messages.misfit_to_wire(said)
            await self.stub.ReportMisfit(pb.ReportMisfitRequest(ref=opened.ref, misfit=misfit))
            return
        payload = said.values.tobytes()
        tensor = header_of(payload, layout, types.DTYPE_UINT64)
        header = pb.UpdateHeader(ref=opened.ref, tensor=tensor, tag=said.tag, context=said.context)
        receipt = await self.stub.SubmitWhole(pb.WholeUpdate(header=header, data=payload))
        self.fates.append(receipt.fate)

    def lift(self, round: int) -> float:
        """What the site multiplies its tensor by; tests may change it. Counts must add up whatever it sends."""
        return 1.0

    async def fetch_sum(self, run_id: str, round: int) -> tuple[pb.SumHeader, bytes]:
        """An opened sum as the aggregator keeps it."""
        parts = [part async for part in self.stub.FetchSum(pb.FetchSumRequest(run_id=run_id, round=round))]
        return parts[0].header, b"".join(part.chunk.data for part in parts[1:])
