"""RoundService: the methods for participants. Thin: checks messages and posts events to their run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from grpc import aio

from aggregator.config import Limits
from aggregator.rpc.answers import (
    AlreadyConnected,
    Draining,
    Missing,
    OutOfTurn,
    Overloaded,
    logged_receipt,
    receipt,
    runner_of,
)
from aggregator.rpc.assignment_messages import BROADCAST_BYTES, StageCache, outgoing
from aggregator.rpc.reconstruction_transfer import ExportIntake
from aggregator.rpc.secure_methods import SecureSumMethods
from aggregator.rpc.update_intake import IntakeResources, TimedReader, TransferSlots, UpdateChunk, UpdateIntake
from aggregator.run import events
from aggregator.run.attempts import Reply
from aggregator.run.backup_recovery import Announced, ShownTicket
from aggregator.run.rules import assignments
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store.participants import ParticipantRecord
from aggregator.store.update_files import UpdateKey
from aggregator.trust import CALLER, Caller, Trust
from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.pki.keys import verify
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import rounds_pb2_grpc
from dcfpca.v1.types_pb2 import Receipt, TensorPart
from dcfpca.wire.constants import CONSENSUS_WANTED, PROTOCOL, TURNS_ABOVE
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import consent_bytes, misfit_from_wire, ref_from_wire
from dcfpca.wire.tensors import ChunkView, WholeUpdate

Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Part: TypeAlias = pb.UpdatePart | ChunkView
SentKeys: TypeAlias = "WeakKeyDictionary[Runner, frozenset[str]]"


TRANSFERS = 32
"""The most concurrent uploads, and as many downloads and exports: each holds a chunk of at most 1 MiB in memory, or
in a small cohort a message of at most 3.9."""

MAX_TICKETS = 1000
"""The largest number of runs for which one participant may show a ticket."""

MAX_REASONS, MAX_REASON_CHARACTERS = 100, 20_000
"""Limits on the reasons of one answer, which are stored with the run and shown to operators."""


class RoundServicer(SecureSumMethods, rounds_pb2_grpc.RoundServiceServicer):
    """The methods of participants; the guard has authenticated the caller."""

    def __init__(self, registry: RunRegistry, trust: Trust, limits: Limits) -> None:
        self._registry, self._directory = registry, registry.directory
        self._trust, self._limits = trust, limits
        self._stages = StageCache()
        self._uploads = IntakeResources(registry.store, TransferSlots(TRANSFERS))
        self._downloads, self._exports = TransferSlots(TRANSFERS), TransferSlots(TRANSFERS)

    async def Subscribe(self, request: pb.SubscribeRequest, context: Context) -> AsyncIterator[bytes]:  # noqa: N802
        """Assignments, now and whenever they change, until the stream ends or is cut."""
        who = CALLER.get()
        if request.protocol != PROTOCOL:
            side = "participant" if request.protocol < PROTOCOL else "aggregator"
            sentence = f"the participant speaks protocol {request.protocol}, the aggregator {PROTOCOL}"
            raise OutOfTurn(sentence, f"upgrade the {side}")
        if self._registry.draining:
            raise Draining("the aggregator is stopping", "connect again in a moment")
        if len(self._directory.connected()) >= self._limits.max_participants:
            raise Overloaded("as many participants are connected as the aggregator allows", "try again later")
        await self._directory.update(self._introduction(request))
        if (wanted := await self._registry.take_tickets(who.name, _shown_tickets(request))) is not None:
            context.set_trailing_metadata(((CONSENSUS_WANTED, wanted),))
            raise Draining(f"the store has lost the consensus of run {wanted}", "connect again, and bring it along")
        if not self._directory.enter(who.name):
            hint = "stop the other daemon, or give this one its own certificate"
            raise AlreadyConnected(f"a participant daemon with the identity {who.name} is connected already", hint)
        (self._directory.asking.add if "asks" in request.capabilities else self._directory.asking.discard)(who.name)
        log("participant_connected", participant=who.name, software=request.software)
        # An idle stream sends nothing for a long time; empty metadata tell the daemon that it was admitted.
        await context.send_initial_metadata(())
        try:
            async for assignment in self._stream(who.name, await self._ended(request)):
                yield assignment
        finally:
            self._directory.leave(who.name)
            log("participant_disconnected", participant=who.name)

    async def _ended(self, request: pb.SubscribeRequest) -> list[Runner]:
        """The runs that ended long ago and are open to a participant that was away all the time."""
        named = {one.ref.run_id for one in request.seen} & self._registry.ended.keys()
        return [runner for run_id in sorted(named) if (runner := await self._registry.find(run_id)) is not None]

    async def _stream(self, name: str, ended: list[Runner]) -> AsyncIterator[bytes]:
        sent: SentKeys = WeakKeyDictionary()
        while not self._registry.draining:
            seen = self._registry.stage.version
            for encode, in_turn in self._unsent(name, sent, [*ended, *self._registry.announced()]):
                # The slot is held until the message is written: gRPC keeps a copy for each stream until then.
                async with self._downloads.hold(name) if in_turn else nullcontext():
                    yield encode()
            ended = []
            await self._registry.stage.wait(seen)
        raise Draining("the aggregator is stopping", "connect again in a moment")

    def _unsent(self, name: str, sent: SentKeys, runners: list[Runner]) -> Iterator[tuple[Callable[[], bytes], bool]]:
        """What encodes each message for a participant that was not sent before, run by run, and whether it goes to some
        streams at a time. A run whose assignments cannot be formed is logged and left out: the stream serves the
        others, too."""
        for runner in runners:
            run, before = runner.run, sent.get(runner, frozenset())
            try:
                facts = self._stages.now(runner)
                wanted = assignments(runner.rules, run, name)
                messages = [outgoing(facts, run, name, one) for one in wanted if one.key not in before]
            except Exception as error:
                log("assignment_failed", level="error", run=run.run_id, reason=f"{type(error).__name__}: {error}")
                continue
            # Those of attempts that are over are dropped. One set for all streams: each run that is over stays in each.
            keys = frozenset(one.key for one in wanted)
            sent[runner] = facts.keys.setdefault(keys, keys)
            for encode, size in messages:
                runner.round_sum.traffic.sent += size
                yield encode, size * len(run.cohort) > BROADCAST_BYTES

    def _introduction(self, request: pb.SubscribeRequest) -> ParticipantRecord:
        who = CALLER.get()
        if request.rows >= 1 << 63 or len(request.features_sha256) not in (0, 32):
            raise BadMessage("the number of rows or the digest of the features is out of range")
        return ParticipantRecord(
            name=who.name,
            fingerprint=who.fingerprint,
            not_after=who.certificate.not_valid_after_utc.timestamp(),
            software=request.software[:100],
            rows=request.rows,
            features=request.features_sha256,
            last_seen=self._registry.store.now(),
        )

    async def Respond(self, request: pb.RespondRequest, context: Context) -> Receipt:  # noqa: N802
        """Enrol, refuse or withdraw."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get()
        if request.spec_sha256 != runner.run.spec_sha256:
            return receipt(Reply(Fate.REJECTED, "the digest is not that of this run's spec"))
        if len(request.reasons) > MAX_REASONS or sum(map(len, request.reasons)) > MAX_REASON_CHARACTERS:
            return receipt(Reply(Fate.REJECTED, "the reasons are too long"))
        said = consent_bytes(
            request.run_id,
            request.spec_sha256,
            who.name,
            accept=request.accept,
            private=request.private,
            reasons=list(request.reasons),
        )
        if not verify(who.key, request.signature, said):
            return receipt(Reply(Fate.REJECTED, "the signature is not this participant's over this answer"))
        return receipt(await self._registry.complete(self._answered(runner, request, who)))

    async def _answered(self, runner: Runner, request: pb.RespondRequest, who: Caller) -> Reply | None:
        event = events.Responded(
            at=self._registry.store.now(),
            participant=who.name,
            accept=request.accept,
            reasons=tuple(request.reasons),
            private=request.private,
            signature=request.signature,
            fingerprint=who.fingerprint,
        )
        reply = await runner.post(event)
        if reply and reply.fate is Fate.ACCEPTED:
            word = "participant_enrolled" if request.accept else "participant_refused"
            self._registry.telemetry.answers.labels("enrolled" if request.accept else "refused").inc()
            log(word, run=request.run_id, participant=who.name, reasons=list(request.reasons) or None)
            await self._registry.store.record(
                word, actor=who.title, run_id=request.run_id, reasons=list(request.reasons)
            )
            self._registry.enrolment_changed(request.run_id)
        return reply

    async def FetchRevocationList(  # noqa: N802
        self, request: pb.FetchRevocationListRequest, context: Context
    ) -> pb.FetchRevocationListResponse:
        """The CA's revocation list, as the aggregator has it."""
        return pb.FetchRevocationListResponse(pem=self._trust.revocation_list)

    async def FetchConsensus(  # noqa: N802
        self, request: pb.FetchConsensusRequest, context: Context
    ) -> AsyncIterator[TensorPart | bytes]:
        """The consensus of the open round, or the final one."""
        runner = await runner_of(self._registry, request.run_id)
        if CALLER.get().name not in runner.run.cohort:
            raise OutOfTurn("this participant is not in the run's cohort")
        held = runner.round_sum.consensus
        if held.round != request.round or (held.outcome is not None) != request.final:
            raise Missing(f"the consensus of round {request.round} is no longer held, or not yet")
        if runner.run.status.over:
            await runner.final.whole()
        consensus = runner.round_sum.encoded()
        self._stages.note_fetched(runner, CALLER.get().name)
        async with self._downloads.hold(CALLER.get().name):
            yield TensorPart(header=consensus.header)
            for part in consensus.parts(request.offset):
                runner.round_sum.traffic.sent += len(part)
                yield part

    async def SubmitUpdate(self, request_iterator: AsyncIterator[Part], context: Context) -> Receipt:  # noqa: N802
        """The update, plain or masked."""
        parts = TimedReader(context, self._limits.upload_seconds)
        first = await anext(parts, None)
        if not isinstance(first, pb.UpdatePart) or first.WhichOneof("part") != "header":
            raise BadMessage("an update begins with its header")
        runner = await runner_of(self._registry, first.header.ref.run_id)
        intake = UpdateIntake(runner, self._uploads, CALLER.get().name, first.header)

        async def your_turn() -> None:
            # In a smaller cohort the sender does not wait for its turn.
            if len(runner.run.cohort) > TURNS_ABOVE:
                await context.send_initial_metadata(())

        return await self._fate_of_update(intake, intake.take(_update_chunks(parts, runner), your_turn))

    async def SubmitWhole(self, request: WholeUpdate, context: Context) -> Receipt:  # noqa: N802
        """The update in one message."""
        runner = await runner_of(self._registry, request.header.ref.run_id)
        intake = UpdateIntake(runner, self._uploads, CALLER.get().name, request.header)
        runner.round_sum.traffic.received += len(request.data)
        return await self._fate_of_update(intake, intake.take_whole(request.data))

    async def _fate_of_update(self, intake: UpdateIntake, taken: Awaitable[Reply]) -> Receipt:
        try:
            reply = await taken
        except BadMessage:
            self._registry.telemetry.messages.labels("update", Fate.REJECTED.value).inc()
            raise
        ref, who = intake.key.ref, intake.key.participant
        about = {"participant": who, "round": ref.round, "attempt": ref.attempt}
        return logged_receipt(self._registry, "update", reply, **about)

    async def ResumeUpload(self, request: pb.UpdateHeader, context: Context) -> pb.ResumeUploadResponse:  # noqa: N802
        """The byte at which a broken upload continues."""
        await runner_of(self._registry, request.ref.run_id)
        if len(request.tensor.sha256) != 32:
            raise BadMessage("the tensor's digest is not a SHA-256")
        key = UpdateKey(ref_from_wire(request.ref), CALLER.get().name, request.tensor.sha256)
        offset = await self._registry.store.do(lambda store: store.updates.received(key))
        return pb.ResumeUploadResponse(offset=offset)

    async def ExportReconstruction(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ExportPart], context: Context
    ) -> Receipt:
        """A file of a reconstruction, or the refusal to send one."""
        parts = TimedReader(context, self._limits.upload_seconds)
        first = await anext(parts, None)
        if first is None or first.WhichOneof("part") not in ("header", "refusal"):
            raise BadMessage("an export begins with a header or a refusal")
        about = first.header if first.WhichOneof("part") == "header" else first.refusal
        intake = ExportIntake(await runner_of(self._registry, about.run_id), self._registry, CALLER.get(), self._limits)
        # One at a time per participant, so that unfinished files do not fill the disk.
        async with self._exports.hold(CALLER.get().name):
            return await intake.take(first, parts)

    async def ReportProgress(self, request: pb.ReportProgressRequest, context: Context) -> Receipt:  # noqa: N802
        """How far the local step is, for operators to see."""
        runner, who = await runner_of(self._registry, request.ref.run_id), CALLER.get()
        if who.name not in runner.run.cohort or request.percent > 100:
            return receipt(Reply(Fate.REJECTED, "not in the run's cohort, or not a percentage"))
        runner.report_progress(who.name, request.percent)
        return receipt(None)


async def _update_chunks(parts: AsyncIterator[Part], runner: Runner) -> AsyncIterator[UpdateChunk]:
    async for part in parts:
        received = part if isinstance(part, ChunkView) else part.chunk
        chunk = UpdateChunk(received.offset, received.data)
        runner.round_sum.traffic.received += len(chunk.data)
        yield chunk


def _shown_tickets(request: pb.SubscribeRequest) -> list[ShownTicket]:
    """The tickets that a participant shows when it connects; raises BadMessage when there are too many."""
    if len(request.seen) > MAX_TICKETS:
        raise BadMessage(f"more than {MAX_TICKETS} runs are named", "end some of them")
    return [_shown_ticket(one) for one in request.seen]


def _shown_ticket(one: pb.Seen) -> ShownTicket:
    ref, told = ref_from_wire(one.ref), one.opened
    if not one.HasField("opened") or told.ref != one.ref:
        return ShownTicket(ref, one.consensus_sha256, one.ticket)
    misfits = tuple(map(misfit_from_wire, told.misfits))
    announced = Announced(told.stage, told.previous_sum, tuple(told.exponents), misfits, told.memory_sha256)
    return ShownTicket(ref, one.consensus_sha256, one.ticket, announced, told.inline_consensus, one.memory)
