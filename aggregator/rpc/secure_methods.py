"""The methods of RoundService that only a secure run has: set-up, misfits, opened sums, complaints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from google.protobuf.message import Message
from grpc import aio

from aggregator.rpc.answers import Missing, OutOfTurn, logged_receipt, runner_of
from aggregator.rpc.update_intake import TransferSlots
from aggregator.run import events, secure_sum
from aggregator.run.attempts import Reply
from aggregator.run.rules import step
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store import run_rows
from aggregator.trust import CALLER, Trust
from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import Receipt
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import advert_from_wire, misfit_from_wire, ref_from_wire, shares_from_wire
from dcfpca.wire.tensors import encoded_chunks

Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Checked: TypeAlias = events.SecureStep | events.Complained


class SecureSumMethods:
    """Part of `RoundServicer`; the guard has authenticated the caller."""

    _registry: RunRegistry
    _trust: Trust
    _downloads: TransferSlots

    async def AdvertiseRunKey(self, request: pb.AdvertiseRunKeyRequest, context: Context) -> Receipt:  # noqa: N802
        """Set-up 1: the key of the run, which must be the caller's own."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get().name
        key = advert_from_wire(request.key)
        if key.name != who:
            raise BadMessage(f"the key is that of {key.name}, but {who} sent it")
        event = events.RunKeyAdvertised(at=self._now(), participant=who, run_key=key)
        return await self._set_up(runner, request, event)

    async def ShareGroupSecret(self, request: pb.ShareGroupSecretRequest, context: Context) -> Receipt:  # noqa: N802
        """Set-up 2: sealed shares for every other member."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get().name
        shares = tuple(sorted(shares_from_wire(request.shares), key=lambda share: share.receiver))
        event = events.GroupSecretShared(at=self._now(), participant=who, shares=shares)
        return await self._set_up(runner, request, event)

    async def _set_up(self, runner: Runner, request: Message, event: events.SetUpMessage) -> Receipt:
        def check() -> None:
            secure_sum.check_set_up(runner.spec, runner.run, event, self._trust.participant_key)

        return await self._step(runner, request, event, check)

    async def ReportMisfit(self, request: pb.ReportMisfitRequest, context: Context) -> Receipt:  # noqa: N802
        """The update of the open round does not fit under its exponents; the statement must be the caller's own."""
        runner, who = await runner_of(self._registry, request.ref.run_id), CALLER.get().name
        misfit = misfit_from_wire(request.misfit)
        if misfit.name != who:
            raise BadMessage(f"the misfit is not one of {who}, who sent it")
        ref = ref_from_wire(request.ref)

        def check() -> None:
            consensus = runner.round_sum.encoded().digest
            secure_sum.check_misfit(runner.terms, runner.run, consensus, misfit, self._trust.participant_key)

        event = events.MisfitReported(at=self._now(), participant=who, ref=ref, misfit=misfit)
        return await self._step(runner, request, event, check)

    async def Complain(self, request: pb.ComplainRequest, context: Context) -> Receipt:  # noqa: N802
        """Why a site cannot go on, signed; kept with the run and recorded in the audit log."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get()
        said = {"accused": request.accused, "error": request.error, "sentence": request.sentence}
        event = events.Complained(
            at=self._now(),
            participant=who.name,
            accused=request.accused,
            error=request.error,
            sentence=request.sentence,
            certificate=request.certificate,
            signature=request.signature,
        )

        def check() -> None:
            secure_sum.check_complaint(runner.spec, runner.run, event, self._trust.participant_key)

        async def kept() -> Receipt:
            reply = await self._checked(runner, event, check)
            if reply is None or reply.fate is Fate.ACCEPTED:
                log("site_complained", level="warning", run=request.run_id, participant=who.name, **said)
                await self._registry.store.record("site_complained", actor=who.title, run_id=request.run_id, **said)
            return self._receipt(runner, request, event, reply)

        return await self._registry.complete(kept())

    async def FetchSum(  # noqa: N802
        self, request: pb.FetchSumRequest, context: Context
    ) -> AsyncIterator[pb.SumPart | bytes]:
        """The opened sum of an earlier round."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get().name
        if who not in runner.run.cohort:
            raise OutOfTurn("this participant is not in the run's cohort")
        run_id, round = request.run_id, request.round
        kept = await self._registry.store.do(lambda store: run_rows.kept_opened_sum(store.connection, run_id, round))
        if kept is None:
            raise Missing(f"the sum of round {round} is no longer kept, or there is none yet")
        async with self._downloads.hold(who):
            yield pb.SumPart(header=pb.SumHeader.FromString(kept.header))
            for part in encoded_chunks(kept.values, request.offset):
                runner.round_sum.traffic.sent += len(part)
                yield part

    async def _step(
        self, runner: Runner, request: Message, event: events.SecureStep, check: Callable[[], None]
    ) -> Receipt:
        """Post a message in turn if its check passes.

        One out of turn cannot be checked: it gets the answer of the rules at once, changes nothing, and must not wait
        among the runner's events until its turn has come.
        """
        if runner.rules.is_in_turn(runner.run, event):
            return self._receipt(runner, request, event, await self._checked(runner, event, check))
        _, effects = step(runner.rules, runner.run, event)
        reply = next((one for one in effects if isinstance(one, Reply)), None)
        return self._receipt(runner, request, event, reply)

    async def _checked(self, runner: Runner, event: Checked, check: Callable[[], None]) -> Reply | None:
        try:
            # Shares have a signature for every other member: the loop serves the others while they are checked.
            await asyncio.to_thread(check) if isinstance(event, events.GroupSecretShared) else check()
        except BadMessage as error:
            return Reply(Fate.REJECTED, str(error))
        return await runner.post(event)

    def _receipt(self, runner: Runner, request: Message, event: Checked, reply: Reply | None) -> Receipt:
        runner.round_sum.traffic.received += request.ByteSize()
        return logged_receipt(self._registry, event.kind, reply, run=runner.run.run_id, participant=event.participant)

    def _now(self) -> float:
        return self._registry.store.now()
