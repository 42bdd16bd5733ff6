"""The work of one run on the site's own data: the local step of each round, and the results at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dcfpca.chunked_vectors import DigestedBytes, check_digest, check_header, digested, message_bytes, message_from
from dcfpca.errors import BadMessage
from dcfpca.privacy.noise_stream import noise_entropy
from dcfpca.rpca.method import Site, TensorMessage
from dcfpca.rpca.private.grid import grid_digest
from dcfpca.rpca.private.method import PrivateSubspaceMethod
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from participant.contract import Contract
from participant.driver.site_services import SiteServices
from participant.engine.cancellation import Cancellation, WorkCancelled
from participant.engine.progress import MeteredColumns, ProgressMeter, passes_of
from participant.privacy_account import account_of
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
        self._failed: Site | None = None  # the site that the last piece of work failed at
        self._saved: LocalStep | None = None
        self._lock = asyncio.Lock()
        self._known: DigestedBytes | None = None  # the last consensus whose digest was verified
        self._meter = ProgressMeter(self._progressed)
        self._cancellation = Cancellation()
        self._loop: asyncio.AbstractEventLoop | None = None

    def continue_from(self, step: LocalStep | None) -> None:
        """Open the site from this saved step, so that its file is read and checked once after a restart."""
        self._saved = step

    def forget(self) -> None:
        """Drop the site; the next piece of work opens it again from the last saved step."""
        self._site = self._failed = self._saved = self._known = None

    def _fail(self) -> None:
        """Drop the site, which may have taken half a step, but let the next one have what it left in the engine."""
        left = self._site or self._failed
        self.forget()
        self._failed = left

    def cancel(self) -> None:
        """Stop the work under way before its next block of columns, which then raises WorkCancelled; drop the site."""
        self._cancellation.cancel()
        self.forget()

    async def step(
        self,
        agreed: Contract,
        action: actions.Compute,
        still_wanted: Callable[[], bool],
        sites: int = 0,
        opening: bytes = b"",
    ) -> LocalStep:
        """Compute and save the local step of a round; when that fails, the next one starts from the last saved step.

        A step that is no longer wanted is not begun. One that ends after the run has is removed. `sites` is the size of
        the cohort, over which the noise of a private run is shared out; `opening` the digest of what was announced.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with self._lock:
                broadcast = await self._consensus(agreed, action.consensus, action.round)
                if not still_wanted():
                    raise WorkCancelled("the site takes part in the run no longer")
                site = self._open_site(agreed)
                work = self._services.engine.run(lambda: self._compute(agreed, site, action, broadcast, sites, opening))
                step = await work
                if not still_wanted():
                    self._services.store.forget_files(self._run_id)
        except WorkCancelled:
            self.forget()
            raise
        except Exception:
            self._fail()
            raise
        return step

    async def finish(
        self, agreed: Contract, consent: Consent, action: actions.Finish, verified: bool | None = None
    ) -> None:
        """Fetch the final consensus and write the results directory of the run, which says if it was `verified`."""
        facts = ResultFacts(
            run_id=self._run_id,
            participant=self._services.site.name,
            digest=consent.digest,
            rounds=action.round,
            outcome=action.outcome,
            written=datetime.now(UTC).isoformat(timespec="seconds"),
            privacy=self._account(consent),
            verified=verified,
        )
        part, results = self._services.site.part(consent.spec), self._services.results
        names = ResultNames(part.features, part.all_ids(), self._services.site.orientation)
        async with self._lock:
            broadcast = await self._consensus(agreed, action.consensus, action.round, final=True)
            site = self._result_site(agreed)
            final, count = FinalBroadcast(broadcast, action.consensus.stage), part.columns.shape[1]
            try:
                await self._services.engine.run(
                    lambda: write_results(results, facts, consent.spec, site, final, count, names)
                )
            except Exception:
                self._fail()
                raise
            except asyncio.CancelledError:
                self.forget()
                raise
            self.forget()

    def _account(self, consent: Consent) -> dict[str, Any] | None:
        """What the run has cost of the privacy of the site's data; None for a run without privacy."""
        if consent.spec.privacy is None:
            return None
        site, budget = self._services.site, self._services.store.privacy
        now_ms = time.time_ns() // 1_000_000
        terms, policy = consent.spec.privacy, site.facts.policy
        return account_of(budget, terms, policy, site.data.sha256, site.unit, now_ms).document()

    def _compute(
        self,
        agreed: Contract,
        site: Site,
        action: actions.Compute,
        broadcast: TensorMessage,
        sites: int,
        opening: bytes,
    ) -> LocalStep:
        """Runs in a thread of the engine; the step is saved when this returns."""
        self._meter.begin(passes_of(agreed.spec) * self._services.site.fitted_columns(agreed.spec).shape[1])
        vector = site.answer(action.round, broadcast).flat()
        if not np.isfinite(vector).all():
            raise BadMessage("the local step gave numbers that are not finite")
        if isinstance(agreed.method, PrivateSubspaceMethod):
            # Only what has its noise is ever saved or sent, and the step has one noise however often it is computed,
            # whatever digest was announced: of an empty consensus nothing is received that could be held against it.
            key, told = self._services.store.noise_key(self._run_id), digested(message_bytes(broadcast))
            entropy = noise_entropy(key, self._run_id, action.round, told.sha256, grid_digest(vector))
            columns = self._services.site.fitted_columns(agreed.spec).shape[1]
            vector = agreed.method.noised(action.round, vector, columns, sites, entropy)
        # A fixed cohort holds the next consensus against this one. What it answers is pinned for good, so the numbers
        # must outlive a power cut.
        fixed = is_fixed_cohort(agreed.spec)
        computed_on = broadcast.flat() if fixed else np.zeros(0)
        announced = action.consensus
        step = LocalStep(action.round, announced.sha256, vector, site.snapshot(), computed_on, announced.stage, opening)
        self._services.store.save_step(self._run_id, agreed.spec, step, durable=fixed)
        return step

    def _progressed(self, percent: int) -> None:
        """Called from the thread that computes."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, percent)

    def _open_site(self, agreed: Contract) -> Site:
        """The local half of the method, continued from the last saved step if there is one."""
        if self._site is None:
            self._cancellation = Cancellation()
            fitted = self._services.site.fitted_columns(agreed.spec)
            columns = MeteredColumns(fitted, self._meter, self._cancellation)
            site = self._services.engine.site(agreed.method, columns)
            if (step := self._saved or self._services.store.step(self._run_id)) is not None:
                self._services.engine.resume(site, step.snapshot, self._failed)
            self._site, self._failed, self._saved = site, None, None
        return self._site

    def _result_site(self, agreed: Contract) -> Site:
        """The local half over all columns; where the rounds had one column of each person, a new one."""
        whole = self._services.site.columns(agreed.spec)
        if self._services.site.fitted_columns(agreed.spec) is whole:
            return self._open_site(agreed)
        self._cancellation = Cancellation()
        columns = MeteredColumns(whole, self._meter, self._cancellation)
        return self._services.engine.site(agreed.method, columns)

    async def _consensus(
        self, agreed: Contract, announced: AnnouncedConsensus, round: int, *, final: bool = False
    ) -> TensorMessage:
        """The consensus of a round as the method reads it."""
        layout = agreed.method.broadcast_layout(max(round, 1) if final else round, announced.stage)
        return message_from(layout, (await self.consensus_bytes(agreed, announced, round, final=final)).data)

    def take_consensus(self, announced: AnnouncedConsensus, derived: bytes) -> None:
        """Use these bytes for the announced consensus if they have its digest; else it is fetched."""
        found = digested(derived)
        if found.sha256 == announced.sha256:
            self._known = found

    async def consensus_bytes(
        self, agreed: Contract, announced: AnnouncedConsensus, round: int, *, final: bool = False
    ) -> DigestedBytes:
        """The bytes of a consensus, inline or fetched; its announced shape is checked against the spec first."""
        layout = agreed.method.broadcast_layout(max(round, 1) if final else round, announced.stage)
        check_header(announced.header, layout, types.DTYPE_FLOAT64)
        if layout.size == 0:
            return digested(b"")
        if self._known is not None and announced.sha256 == self._known.sha256:
            return self._known
        if announced.inline:
            received = digested(announced.inline)
            check_digest(announced.header, received)
        else:
            request = pb.FetchConsensusRequest(run_id=self._run_id, round=round, final=final)
            received = await self._services.link.fetch(request, announced.header)
        self._known = received
        return received
