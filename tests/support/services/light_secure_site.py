"""A member of secure runs in a hundred lines, so that a thousand fit into a few processes. Real mutual TLS.

It masks as a daemon does and counts the bytes of its set-up; it neither checks sums nor saves anything.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.pki.keys import sign
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.secagg.fixed_point import block_layout
from dcfpca.secagg.keys import SigningIdentity, Verify
from dcfpca.secagg.messages import Masked, RunTerms
from dcfpca.secagg.site import SecureSite
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import round_messages
from dcfpca.wire.tensors import header_of, message_from
from participant.session.secure_run import announced_opening
from participant.wire_codec import announcement_of
from tests.support.inputs.chunks import chunks
from tests.support.services.light_site import LightSite, Papers


@dataclass
class SetUpCost:
    """What the set-up of a run cost one site."""

    sent: int = 0
    received: int = 0
    cpu_seconds: float = 0.0


class LightSecureSite(LightSite):
    """Enrols, sets the run up, and answers every round under its masks."""

    def __init__(
        self, address: str, papers: Papers, key: ec.EllipticCurvePrivateKey, data: FloatArray, verify: Verify
    ) -> None:
        super().__init__(address, papers, key, data)
        certificate = x509.load_pem_x509_certificate(papers.certificate).public_bytes(Encoding.DER)
        self._identity = SigningIdentity(papers.name, certificate, lambda said: sign(key, said), verify)
        self._side: SecureSite | None = None
        self.cost = SetUpCost()

    async def _set_up(self, assignment: pb.Assignment) -> None:
        self.cost.received += assignment.ByteSize()
        began, run_id = time.thread_time(), assignment.run_id
        match assignment.WhichOneof("what"):
            case "run_key_wanted":
                key = round_messages.advert_to_wire(self._begun(run_id, assignment.run_key_wanted).advert())
                advert = pb.AdvertiseRunKeyRequest(run_id=run_id, key=key)
                self._spent(began, advert.ByteSize())
                await self._stub.AdvertiseRunKey(advert)
            case "roster_closed":
                assert self._side is not None
                sealed = self._side.share(round_messages.roster_from_wire(assignment.roster_closed.keys))
                shares = pb.ShareGroupSecretRequest(run_id=run_id, shares=round_messages.shares_to_wire(sealed))
                self._spent(began, shares.ByteSize())
                await self._stub.ShareGroupSecret(shares)
            case "group_shares_relayed":
                assert self._side is not None
                relayed = assignment.group_shares_relayed
                incoming = round_messages.shares_from_wire(relayed.incoming)
                self._side.complete(round_messages.roster_from_wire(relayed.keys), incoming)
                self._spent(began, 0)

    def _spent(self, began: float, sent: int) -> None:
        self.cost.cpu_seconds += time.thread_time() - began
        self.cost.sent += sent

    def _begun(self, run_id: str, wanted: pb.RunKeyWanted) -> SecureSite:
        if self._side is None:
            assert self._spec is not None
            cohort = tuple(wanted.cohort)
            terms = RunTerms(run_id, wanted.spec_sha256, cohort, self._spec.last_round, self._spec.precision)
            self._side = SecureSite.begin(terms, self._identity, os.urandom(64))
        return self._side

    async def _answer(self, opened: pb.RoundOpened) -> None:
        assert self._spec is not None
        assert self._site is not None
        assert self._side is not None
        stage, told = Terms.of(self._spec).method.stage(opened.stage), await self._consensus(opened)
        if self._last[0] != opened.ref.round:
            opening = announced_opening(announcement_of(opened), block_layout(stage.up), hashlib.sha256(told))
            asked = Consensus(opened.ref.round, stage.name, message_from(stage.down, told))
            said = self._side.answer(opening, self._site.answer(asked).flat())
            assert isinstance(said, Masked)
            self._last, self._bound = (opened.ref.round, said.values.tobytes()), (said.tag, said.context)
        payload, (tag, context) = self._last[1], self._bound
        tensor = header_of(payload, stage.up, types.DTYPE_UINT64)

        async def parts() -> AsyncIterator[pb.UpdatePart]:
            header = pb.UpdateHeader(ref=opened.ref, tensor=tensor, tag=tag, context=context)
            yield pb.UpdatePart(header=header)
            if len(opened.cohort) > self._crowd:
                await call.initial_metadata()
            for chunk in chunks(payload):
                yield pb.UpdatePart(chunk=chunk)

        call = self._stub.SubmitUpdate(parts())
        await call
