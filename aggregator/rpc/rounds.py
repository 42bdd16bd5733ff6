"""RoundService: the participants' side of the aggregator. Thin: checks the caller, hands events to the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from google.protobuf.message import Message
from grpc import aio

from aggregator.config import Limits
from aggregator.presence import Connection
from aggregator.rpc import wire_events
from aggregator.rpc.guard import caller
from aggregator.rpc.reconstruction_transfer import ExportIntake
from aggregator.rpc.run_lookup import runner_of
from aggregator.rpc.status_errors import AlreadyHere, Draining, Missing, OutOfTurn, Overloaded
from aggregator.rpc.stream_timeout import Punctual
from aggregator.rpc.transfer_slots import Places
from aggregator.rpc.update_intake import Intake, Means, Slice
from aggregator.run import events, secure_sum_checks
from aggregator.run.assignments import encoded, wanted
from aggregator.run.effects import Reply
from aggregator.run.round_messages import PHASE_OF, out_of_turn
from aggregator.run_registry import House
from aggregator.runner import Runner
from aggregator.store.participants import Acquaintance
from aggregator.store.update_files import UploadKey
from aggregator.trust import Caller, Trust
from dcfpca.consent import consent_bytes
from dcfpca.errors import BadMessage
from dcfpca.fate import Fate
from dcfpca.logs import log
from dcfpca.pki import verify
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import rounds_pb2_grpc
from dcfpca.v1.types_pb2 import Receipt, RoundRef, TensorPart
from dcfpca.wire import chunks
from dcfpca.wire_constants import CHUNK_BYTES, PROTOCOL, TURNS, WHOLE

Context: TypeAlias = "aio.ServicerContext[Any, Any]"


TRANSFERS = 32
"""Uploads, and downloads, at a time: each holds a piece of at most 1 MiB in memory."""

CROWD = 2 * TRANSFERS
"""In a larger cohort an update's header comes alone, and its bytes when there is a place for them."""

MAX_REASONS, MAX_REASON_CHARACTERS = 100, 20_000
"""Of one answer; they are kept with the run and shown to every operator who looks at it."""


class RoundServicer(rounds_pb2_grpc.RoundServiceServicer):
    """What participants may ask; the guard has established who they are."""

    def __init__(self, house: House, trust: Trust, limits: Limits) -> None:
        self._house, self._trust, self._limits = house, trust, limits
        self._uploads, self._downloads, self._exports = (Places(TRANSFERS) for _ in range(3))

    async def Subscribe(self, request: pb.SubscribeRequest, context: Context) -> AsyncIterator[bytes]:  # noqa: N802
        """Assignments, now and whenever they change, until the stream ends or is cut."""
        who = caller()
        if request.protocol != PROTOCOL:
            side = "participant" if request.protocol < PROTOCOL else "aggregator"
            told = f"the participant speaks protocol {request.protocol}, the aggregator {PROTOCOL}"
            raise OutOfTurn(told, f"upgrade the {side}")
        if self._house.draining:
            raise Draining("the aggregator is stopping", "connect again in a moment")
        if len(self._house.presence.names()) >= self._limits.max_participants:
            raise Overloaded("as many participants are connected as the aggregator allows", "try again later")
        await self._house.introduce(self._introduction(request))
        await self._house.hear_of(who.name, wire_events.seen(request))
        connection = self._house.presence.enter(who.name)
        if connection is None:
            hint = "stop the other daemon, or give this one its own certificate"
            raise AlreadyHere(f"a participant daemon with the identity {who.name} is connected already", hint)
        log("participant_connected", participant=who.name, software=request.software)
        # An idle stream says nothing for a long time; this tells the daemon that it has been let in.
        await context.send_initial_metadata(((TURNS, str(CROWD)), (WHOLE, str(CHUNK_BYTES))))
        try:
            async for assignment in self._stream(connection):
                yield assignment
        finally:
            self._house.presence.leave(connection)
            log("participant_disconnected", participant=who.name)

    async def _stream(self, connection: Connection) -> AsyncIterator[bytes]:
        sent: dict[str, frozenset[str]] = {}
        while not self._house.draining:
            seen = self._house.stage.version
            for runner in self._house.telling():
                before = sent.get(runner.run.run_id, frozenset())
                facts, run = runner.facts.now(), runner.run
                requests = wanted(facts, run, connection.name)
                # Of attempts that are over nothing needs to be remembered.
                sent[run.run_id] = frozenset(key for key, _, _ in requests)
                for assignment in encoded(facts, run, [one for one in requests if one[0] not in before]):
                    runner.traffic.sent += len(assignment)
                    yield assignment
            await self._house.stage.wait(seen)
        raise Draining("the aggregator is stopping", "connect again in a moment")

    def _introduction(self, request: pb.SubscribeRequest) -> Acquaintance:
        who = caller()
        if request.rows >= 1 << 63 or len(request.features_sha256) not in (0, 32):
            raise BadMessage("the rows or the digest of the features are out of any range")
        return Acquaintance(
            name=who.name,
            fingerprint=who.fingerprint,
            not_after=who.certificate.not_valid_after_utc.timestamp(),
            software=request.software[:100],
            rows=request.rows,
            features=request.features_sha256,
            last_seen=self._house.keeper.now(),
        )

    async def Respond(self, request: pb.RespondRequest, context: Context) -> Receipt:  # noqa: N802
        """Enrol, refuse or withdraw."""
        runner, who = runner_of(self._house, request.run_id), caller()
        if request.spec_sha256 != runner.facts.spec_sha256:
            return wire_events.receipt(Reply(Fate.REJECTED, "the digest is not that of this run's spec"))
        if len(request.reasons) > MAX_REASONS or sum(map(len, request.reasons)) > MAX_REASON_CHARACTERS:
            return wire_events.receipt(Reply(Fate.REJECTED, "the reasons are longer than anybody would read"))
        said = consent_bytes(
            request.run_id,
            request.spec_sha256,
            who.name,
            accept=request.accept,
            private=request.private,
            reasons=list(request.reasons),
        )
        if not verify(who.key, request.signature, said):
            return wire_events.receipt(Reply(Fate.REJECTED, "the signature is not this participant's over this answer"))
        return wire_events.receipt(await self._house.finish(self._answered(runner, request, who)))

    async def _answered(self, runner: Runner, request: pb.RespondRequest, who: Caller) -> Reply | None:
        reply = await runner.post(wire_events.responded(request, who.name, who.fingerprint, self._now()))
        if reply and reply.fate is Fate.ACCEPTED:
            word = "participant_enrolled" if request.accept else "participant_refused"
            self._house.telemetry.answered(accept=request.accept)
            log(word, run=request.run_id, participant=who.name, reasons=list(request.reasons) or None)
            await self._house.keeper.record(
                word, actor=str(who.identity), run_id=request.run_id, reasons=list(request.reasons)
            )
            self._house.look_at_enrolment(request.run_id)
        return reply

    async def FetchRevocationList(  # noqa: N802
        self, request: pb.FetchRevocationListRequest, context: Context
    ) -> pb.FetchRevocationListResponse:
        """The CA's list as it lies here."""
        return pb.FetchRevocationListResponse(pem=self._trust.revocation_list)

    async def FetchConsensus(  # noqa: N802
        self, request: pb.FetchConsensusRequest, context: Context
    ) -> AsyncIterator[TensorPart]:
        """The consensus of the open round, or the final one."""
        runner = runner_of(self._house, request.run_id)
        if caller().name not in runner.run.cohort:
            raise OutOfTurn("this participant is not in the run's cohort")
        held = runner.sums.consensus
        if held.round != request.round or (held.outcome is not None) != request.final:
            raise Missing(f"the consensus of round {request.round} is not held any more, or not yet")
        header, payload = runner.facts.consensus()
        async with self._downloads.hold(caller().name):
            yield TensorPart(header=header)
            for chunk in chunks(payload, request.offset):
                runner.traffic.sent += len(chunk.data)
                yield TensorPart(chunk=chunk)

    async def AdvertiseKeys(self, request: pb.AdvertiseKeysRequest, context: Context) -> Receipt:  # noqa: N802
        """Step 1 of the secure sum."""
        runner = runner_of(self._house, request.ref.run_id)
        event = wire_events.keys_advertised(request, caller().name, self._now())
        digest = runner.facts.spec_sha256
        return await self._receive(
            runner,
            event,
            request,
            lambda: secure_sum_checks.check_keys(runner.spec, digest, runner.run, event, self._trust.participant_key),
        )

    async def ShareKeys(self, request: pb.ShareKeysRequest, context: Context) -> Receipt:  # noqa: N802
        """Step 2, and step 3 where it comes along."""
        runner = runner_of(self._house, request.ref.run_id)
        event = wire_events.shares_sent(request, caller().name, self._now())
        taken = self._receive(runner, event, request, lambda: secure_sum_checks.check_shares(_book(runner), event))
        if not request.HasField("exponent"):
            return await taken
        bound = wire_events.bound_stated(request, caller().name, self._now())
        stated = self._receive(runner, bound, None, lambda: secure_sum_checks.check_bound(bound))
        return wire_events.worst(await asyncio.gather(taken, stated))

    async def StateBound(self, request: pb.StateBoundRequest, context: Context) -> Receipt:  # noqa: N802
        """Step 3."""
        runner = runner_of(self._house, request.ref.run_id)
        event = wire_events.bound_stated(request, caller().name, self._now())
        return await self._receive(runner, event, request, lambda: secure_sum_checks.check_bound(event))

    async def AttestSurvivors(self, request: pb.AttestSurvivorsRequest, context: Context) -> Receipt:  # noqa: N802
        """Step 5."""
        runner = runner_of(self._house, request.ref.run_id)
        event = wire_events.survivors_attested(request, caller().name, self._now())

        def check() -> None:
            assert runner.run.round is not None
            secure_sum_checks.check_attestation(_book(runner), runner.run.round, event, self._trust.participant_key)

        return await self._receive(runner, event, request, check)

    async def Unmask(self, request: pb.UnmaskRequest, context: Context) -> Receipt:  # noqa: N802
        """Step 6."""
        runner = runner_of(self._house, request.ref.run_id)
        event = wire_events.shares_revealed(request, caller().name, self._now())

        def check() -> None:
            assert runner.run.round is not None
            secure_sum_checks.check_reveal(_book(runner), runner.run.round, event)

        return await self._receive(runner, event, request, check)

    async def SubmitUpdate(self, request_iterator: AsyncIterator[pb.UpdatePart], context: Context) -> Receipt:  # noqa: N802
        """The update, plain or masked."""
        parts = Punctual(context, self._limits.upload_seconds)
        first = await anext(parts, None)
        if first is None or first.WhichOneof("part") != "header":
            raise BadMessage("an update begins with its header")
        intake = self._intake(first.header)
        runner = intake.runner

        async def your_turn() -> None:
            # The others have sent everything by now, and need not be told.
            if len(runner.run.cohort) > CROWD:
                await context.send_initial_metadata(())

        return await self._fate_of_update(intake.take(_slices(parts, runner), your_turn), first.header)

    async def SubmitWhole(self, request: pb.WholeUpdate, context: Context) -> Receipt:  # noqa: N802
        """The update in one message."""
        intake, data = self._intake(request.header), request.data
        intake.runner.traffic.received += len(data)
        return await self._fate_of_update(intake.take_whole(data), request.header)

    def _intake(self, header: pb.UpdateHeader) -> Intake:
        runner = runner_of(self._house, header.ref.run_id)
        return Intake(runner, Means(self._house.keeper, self._uploads), caller().name, header)

    async def _fate_of_update(self, taken: Awaitable[Receipt], header: pb.UpdateHeader) -> Receipt:
        try:
            answer = await taken
        except BadMessage:
            self._house.telemetry.message("update", Fate.REJECTED.value)
            raise
        self._tell_fate("update", caller().name, header.ref, answer)
        return answer

    async def ResumeUpload(self, request: pb.UpdateHeader, context: Context) -> pb.ResumeUploadResponse:  # noqa: N802
        """Where a broken upload goes on."""
        ref = request.ref
        runner_of(self._house, ref.run_id)
        if len(request.tensor.sha256) != 32:
            raise BadMessage("the tensor's digest is not a SHA-256")
        key = UploadKey(ref.run_id, ref.round, ref.attempt, caller().name, request.tensor.sha256)
        offset = await self._house.keeper.do(lambda store: store.spool.received(key))
        return pb.ResumeUploadResponse(offset=offset)

    async def ExportReconstruction(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ExportPart], context: Context
    ) -> Receipt:
        """A file of a reconstruction, or the refusal to send one."""
        parts = Punctual(context, self._limits.upload_seconds)
        first = await anext(parts, None)
        if first is None or first.WhichOneof("part") not in ("header", "refusal"):
            raise BadMessage("an export begins with a header or a refusal")
        about = first.header if first.WhichOneof("part") == "header" else first.refusal
        intake = ExportIntake(runner_of(self._house, about.run_id), self._house, caller(), self._limits)
        # One at a time of each, so that nobody's unfinished files fill the disk.
        async with self._exports.hold(caller().name):
            return await intake.take(first, parts)

    async def ReportProgress(self, request: pb.ReportProgressRequest, context: Context) -> Receipt:  # noqa: N802
        """A percentage for people to look at."""
        runner, who = runner_of(self._house, request.ref.run_id), caller()
        if who.name not in runner.run.cohort or request.percent > 100:
            return wire_events.receipt(Reply(Fate.REJECTED, "not in the run's cohort, or not a percentage"))
        runner.percent[who.name] = request.percent
        runner.changed.fire()
        return wire_events.receipt(None)

    async def _receive(
        self, runner: Runner, event: events.RoundMessage, request: Message | None, check: Callable[[], None]
    ) -> Receipt:
        """Check a message of the secure sum where it is in turn, then let the rules decide."""
        runner.traffic.received += request.ByteSize() if request is not None else 0
        if out_of_turn(runner.run, event.participant, event.round, event.attempt, PHASE_OF[type(event)]) is None:
            try:
                check()
            except BadMessage as error:
                answer = wire_events.receipt(Reply(Fate.REJECTED, str(error)))
                self._tell_fate(event.kind, event.participant, event, answer)
                return answer
        answer = wire_events.receipt(await runner.post(event))
        self._tell_fate(event.kind, event.participant, event, answer)
        return answer

    def _tell_fate(self, what: str, participant: str, ref: RoundRef | events.RoundMessage, answer: Receipt) -> None:
        self._house.telemetry.message(what, wire_events.word_of(answer))
        _log_fate(what, participant, ref, answer)

    def _now(self) -> float:
        return self._house.keeper.now()


def _book(runner: Runner) -> Any:
    book = runner.facts.book()
    if book is None:
        raise BadMessage("the roster of this attempt is not closed")
    return book


async def _slices(parts: AsyncIterator[pb.UpdatePart], runner: Runner) -> AsyncIterator[Slice]:
    async for part in parts:
        piece = Slice(part.chunk.offset, part.chunk.data)
        runner.traffic.received += len(piece.data)
        yield piece


def _log_fate(what: str, participant: str, ref: RoundRef | events.RoundMessage, answer: Receipt) -> None:
    fate = wire_events.word_of(answer)
    # Late is ordinary: a phase closes once it has what it needs.
    level: Any = "warning" if fate == "rejected" else "debug"
    log(
        f"{what}_{fate}" if what == "update" else f"message_{fate}",
        level=level,
        message=what,
        participant=participant,
        round=ref.round,
        attempt=ref.attempt,
        reason=answer.reason or None,
    )
