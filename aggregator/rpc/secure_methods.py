"""The methods of RoundService that only a secure run has: set-up, misfits, opened sums, complaints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from google.protobuf.message import Message
from grpc import aio

from aggregator.rpc import wire_events
from aggregator.rpc.guard import caller
from aggregator.rpc.status_errors import Missing, OutOfTurn
from aggregator.rpc.transfers import TransferSlots
from aggregator.rpc.wire_events import runner_of
from aggregator.run import events, secure_sum
from aggregator.run.attempts import out_of_turn
from aggregator.run.effects import Reply
from aggregator.run.rules import step
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store import run_rows
from aggregator.trust import Trust
from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import Receipt
from dcfpca.wire.receipt import Fate
from dcfpca.wire.tensors import chunks

Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Checked: TypeAlias = events.SetUpMessage | events.MisfitReported | events.Complained


class SecureSumMethods:
    """Part of `RoundServicer`; the guard has authenticated the caller."""

    _registry: RunRegistry
    _trust: Trust
    _downloads: TransferSlots

    async def AdvertiseRunKey(self, request: pb.AdvertiseRunKeyRequest, context: Context) -> Receipt:  # noqa: N802
        """Set-up 1: the key of the run."""
        return await self._set_up(request, wire_events.run_key_advertised(request, caller().name, self._time()))

    async def ShareGroupSecret(self, request: pb.ShareGroupSecretRequest, context: Context) -> Receipt:  # noqa: N802
        """Set-up 2: sealed shares for every other member."""
        return await self._set_up(request, wire_events.group_secret_shared(request, caller().name, self._time()))

    async def ReportMisfit(self, request: pb.ReportMisfitRequest, context: Context) -> Receipt:  # noqa: N802
        """The update of the open round does not fit under its exponents."""
        runner = runner_of(self._registry, request.ref.run_id)
        event = wire_events.misfit_reported(request, caller().name, self._time())

        def check() -> None:
            told = runner.round_sum.encoded().told
            secure_sum.check_misfit(runner.terms, runner.run, told, event.misfit, self._trust.participant_key)

        here = runner.run
        if here.secure and out_of_turn(here, event.participant, event.ref) is None:
            return await self._checked(runner, request, event, check)
        return self._unchecked(runner, request, event)

    async def Complain(self, request: pb.ComplainRequest, context: Context) -> Receipt:  # noqa: N802
        """Why a site cannot go on, signed; kept with the run and recorded in the audit log."""
        runner, who = runner_of(self._registry, request.run_id), caller()
        event = wire_events.complained(request, who.name, self._time())

        def check() -> None:
            secure_sum.check_complaint(runner.spec, runner.run, event, self._trust.participant_key)

        async def kept() -> Receipt:
            answer = await self._checked(runner, request, event, check)
            if wire_events.fate_of(answer) == Fate.ACCEPTED.value:
                said = {"accused": event.accused, "error": event.error, "sentence": event.sentence}
                log("site_complained", level="warning", run=request.run_id, participant=who.name, **said)
                record = self._registry.store.record
                await record("site_complained", actor=str(who.identity), run_id=request.run_id, **said)
            return answer

        return await self._registry.complete(kept())

    async def FetchSum(self, request: pb.FetchSumRequest, context: Context) -> AsyncIterator[pb.SumPart]:  # noqa: N802
        """The opened sum of an earlier round."""
        runner, who = runner_of(self._registry, request.run_id), caller().name
        if who not in runner.run.cohort:
            raise OutOfTurn("this participant is not in the run's cohort")
        run_id, round = request.run_id, request.round
        kept = await self._registry.store.do(lambda store: run_rows.kept_opened_sum(store.connection, run_id, round))
        if kept is None:
            raise Missing(f"the sum of round {round} is not kept any more, or there is none yet")
        async with self._downloads.hold(who):
            yield pb.SumPart(header=pb.SumHeader.FromString(kept.header))
            for chunk in chunks(kept.values, request.offset):
                runner.count_traffic(sent=len(chunk.data))
                yield pb.SumPart(chunk=chunk)

    async def _set_up(
        self, request: pb.AdvertiseRunKeyRequest | pb.ShareGroupSecretRequest, event: events.SetUpMessage
    ) -> Receipt:
        runner = runner_of(self._registry, request.run_id)

        def check() -> None:
            secure_sum.check_set_up(runner.spec, runner.run, event, self._trust.participant_key)

        if secure_sum.is_in_turn(runner.run, event):
            return await self._checked(runner, request, event, check)
        return self._unchecked(runner, request, event)

    def _unchecked(self, runner: Runner, request: Message, event: Checked) -> Receipt:
        """What the rules say of a message out of turn. It could not be checked: it changes nothing, and must not wait
        among the runner's events until its turn has come."""
        runner.count_traffic(received=request.ByteSize())
        _, effects = step(runner.terms, runner.run, event)
        return self._told(runner, event, next((one for one in effects if isinstance(one, Reply)), None))

    async def _checked(
        self,
        runner: Runner,
        request: Message,
        event: Checked,
        check: Callable[[], None],
    ) -> Receipt:
        """Post an event unless its check refuses it, and tell the fate."""
        runner.count_traffic(received=request.ByteSize())
        try:
            check()
        except BadMessage as error:
            return self._told(runner, event, Reply(Fate.REJECTED, str(error)))
        return self._told(runner, event, await runner.post(event))

    def _told(self, runner: Runner, event: Checked, reply: Reply | None) -> Receipt:
        """The receipt that says what became of a message, after counting and logging it."""
        answer = wire_events.receipt(reply)
        fate = wire_events.fate_of(answer)
        self._registry.telemetry.message(event.kind, fate)
        level: Any = "warning" if fate == Fate.REJECTED.value else "debug"
        said = {"message": event.kind, "participant": event.participant, "reason": answer.reason or None}
        log(f"message_{fate}", level=level, run=runner.run.run_id, **said)
        return answer

    def _time(self) -> float:
        return self._registry.store.now()
