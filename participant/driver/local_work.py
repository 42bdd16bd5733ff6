"""The work of one run on the site's own data: the local step of each round, and the results at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from dcfpca.chunked_vectors import Buffer, check_digest, check_header, message_from
from dcfpca.errors import BadMessage
from dcfpca.rpca.method import Site, TensorMessage
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from participant.contract import Contract
from participant.driver.site_services import SiteServices
from participant.engine.cancellation import Cancellation, WorkCancelled
from participant.engine.progress import MeteredColumns, ProgressMeter, passes_of
from participant.results import FinalBroadcast, ResultFacts, ResultNames, write_results
from participant.session import Consent, actions, is_fixed_cohort
from participant.session.events import AnnouncedConsensus
from participant.state.step_file import LocalStep


class LocalWork:
    """Holds the run's site (the local half of the method) between rounds; one piece of work at a time."""

    def __init__(self, run_id: str, services: SiteServices, report: Callable[[int], None]) -> None:
        """`report` is called on the event loop with the percentage that a long local step has reached."""
        self._run_id, self._services, self._report = run_id, services, report
        self._site: Site | None = None
        self._saved: LocalStep | None = None
        self._lock = asyncio.Lock()
        self._fetched: tuple[bytes, Buffer] = (b"", b"")
        self._meter = ProgressMeter(self._progressed)
        self._cancellation = Cancellation()
        self._loop: asyncio.AbstractEventLoop | None = None

    def continue_from(self, step: LocalStep | None) -> None:
        """Open the site from this saved step, so that its file is read and checked once after a restart."""
        self._saved = step

    def forget(self) -> None:
        """Drop the site; the next piece of work opens it again from the last saved step."""
        self._site = self._saved = None
        self._fetched = (b"", b"")

    def cancel(self) -> None:
        """Stop the work under way before its next block of columns, which then raises WorkCancelled; drop the site."""
        self._cancellation.cancel()
        self.forget()

    async def step(self, agreed: Contract, action: actions.Compute, still_wanted: Callable[[], bool]) -> LocalStep:
        """Compute and save the local step of a round; the site is dropped when that fails.

        A step that is no longer wanted is not begun. One that ends after the run has is not recorded, and its file is
        removed.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with self._lock:
                broadcast = await self._consensus(agreed, action.consensus, action.round)
                if not still_wanted():
                    raise WorkCancelled("the site takes part in the run no longer")
                site = self._open_site(agreed)
                work = self._services.engine.run(lambda: self._compute(agreed, site, action, broadcast))
                step, checksum = await work
                if still_wanted():
                    self._services.store.record_step(self._run_id, step, checksum, durable=is_fixed_cohort(agreed.spec))
                else:
                    self._services.store.forget_files(self._run_id)
        except Exception:
            # A site that took half a step must not continue from it: the next round starts from the last saved step.
            self.forget()
            raise
        return step

    async def finish(self, agreed: Contract, consent: Consent, action: actions.Finish) -> None:
        """Fetch the final consensus and write the results directory of the run."""
        facts = ResultFacts(
            run_id=self._run_id,
            participant=self._services.site.name,
            digest=consent.digest,
            rounds=action.round,
            outcome=action.outcome,
            written=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        part, results = self._services.site.part(consent.spec), self._services.results
        names = ResultNames(part.features, part.all_ids(), self._services.site.orientation)
        async with self._lock:
            broadcast = await self._consensus(agreed, action.consensus, action.round, final=True)
            site = self._open_site(agreed)
            final, count = FinalBroadcast(broadcast, action.consensus.stage), part.columns.shape[1]
            try:
                await self._services.engine.run(
                    lambda: write_results(results, facts, consent.spec, site, final, count, names)
                )
            finally:
                self.forget()

    def _compute(
        self, agreed: Contract, site: Site, action: actions.Compute, broadcast: TensorMessage
    ) -> tuple[LocalStep, int]:
        """Runs in a thread of the engine; returns the step and the checksum of its file."""
        self._meter.begin(passes_of(agreed.spec) * self._services.site.columns(agreed.spec).shape[1])
        vector = site.answer(action.round, broadcast).flat()
        if not np.isfinite(vector).all():
            raise BadMessage("the local step gave numbers that are not finite")
        step = LocalStep(
            action.round, action.consensus.sha256, vector, site.snapshot(), broadcast.flat(), action.consensus.stage
        )
        checksum = self._services.store.save_step(self._run_id, step)
        if is_fixed_cohort(agreed.spec):
            # What is answered is pinned for good, so the numbers must outlive a power cut.
            self._services.store.sync_step(self._run_id, step.round)
        return step, checksum

    def _progressed(self, percent: int) -> None:
        """Called from the thread that computes."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, percent)

    def _open_site(self, agreed: Contract) -> Site:
        """The local half of the method, continued from the last saved step if there is one."""
        if self._site is None:
            self._cancellation = Cancellation()
            columns = MeteredColumns(self._services.site.columns(agreed.spec), self._meter, self._cancellation)
            site = self._services.engine.site(agreed.method, columns)
            if (step := self._saved or self._services.store.step(self._run_id)) is not None:
                self._services.engine.resume(site, step.snapshot)
            self._site, self._saved = site, None
        return self._site

    async def _consensus(
        self, agreed: Contract, announced: AnnouncedConsensus, round: int, *, final: bool = False
    ) -> TensorMessage:
        """The consensus of a round as the method reads it."""
        layout = agreed.method.broadcast_layout(max(round, 1) if final else round, announced.stage)
        return message_from(layout, await self.consensus_bytes(agreed, announced, round, final=final))

    async def consensus_bytes(
        self, agreed: Contract, announced: AnnouncedConsensus, round: int, *, final: bool = False
    ) -> Buffer:
        """The bytes of a consensus, inline or fetched; its announced shape is checked against the spec first."""
        layout = agreed.method.broadcast_layout(max(round, 1) if final else round, announced.stage)
        check_header(announced.header, layout, types.DTYPE_FLOAT64)
        if announced.inline:
            check_digest(announced.header, announced.inline)
            return announced.inline
        if layout.size == 0:
            return b""
        if announced.sha256 != self._fetched[0]:
            request = pb.FetchConsensusRequest(run_id=self._run_id, round=round, final=final)
            self._fetched = announced.sha256, await self._services.link.fetch(request, announced.header)
        return self._fetched[1]
