"""The work of one run on the site's own data: the local step of each round, and the results at the end."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dcfpca.errors import BadMessage
from dcfpca.logs import log
from dcfpca.method_memory import encode_memory
from dcfpca.privacy.noise_stream import noise_entropy
from dcfpca.rpca.initial_basis import WARM
from dcfpca.rpca.method import Consensus
from dcfpca.rpca.own_view.own_view import columns_sample
from dcfpca.rpca.own_view.site_shift import Profile, shift_notes
from dcfpca.rpca.private.stages import PrivateSolver
from dcfpca.rpca.private.whole_numbers import grid_digest
from dcfpca.rpca.scaling import found_units
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.wire.tensors import (
    FLOAT64,
    DigestedBytes,
    check_header,
    digested,
    message_bytes,
    message_from,
    verified,
)
from participant.contract import Contract
from participant.driver.site_services import SiteServices
from participant.engine.progress import Cancellation, MeteredColumns, ProgressMeter, WorkCancelled
from participant.privacy_account import account_of
from participant.results.manifest import ResultFacts
from participant.results.writing import ResultNames, write_results
from participant.session import Consent, actions
from participant.session.events import AnnouncedConsensus, LocalStep


class SiteDiffers(Exception):
    """The site's features differ from those of all sites, and its policy does not let them pass unseen."""

    def __init__(self, notes: tuple[str, ...]) -> None:
        super().__init__("features of this site differ from those of all sites")
        self.notes = notes


class LocalWork:
    """Holds the run's site (the local half of the method) between rounds; one piece of work at a time."""

    def __init__(self, run_id: str, services: SiteServices, report: Callable[[int], None]) -> None:
        """`report` is called on the event loop with the percentage that a long local step has reached."""
        self._run_id, self._services, self._report = run_id, services, report
        self._site: Site | None = None
        self._columns = self._reads = 0  # how many columns that site has, and how many it reads in a round
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
        consensus: Consensus,
        asked: bytes,
        still_wanted: Callable[[], bool],
        sites: int = 0,
        opening: bytes = b"",
        *,
        compares: bool = False,
    ) -> LocalStep:
        """Compute and save the local step of a round; when that fails, the next one starts from the last saved step.

        `asked` is the announced digest of the consensus. A step that is no longer wanted is not begun. One that ends
        after the run has is removed. `sites` is the size of the cohort, over which the noise of a private run is shared
        out; `opening` the digest of all that was announced.
        With `compares`, SiteDiffers is raised where features here differ from those of all sites.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with self._lock:
                if not still_wanted():
                    raise WorkCancelled("the site no longer takes part in the run")
                if compares:
                    await self._services.engine.run(lambda: self._compare(agreed, consensus))
                site = self._site or self._open_site(agreed)
                step = await self._services.engine.run(
                    lambda: self._compute(agreed, site, consensus, asked, sites, opening)
                )
                if not still_wanted():
                    self._services.store.steps.forget(self._run_id)
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
        names = ResultNames(part.features, part.all_ids(), self._services.site.orientation, part.rules)
        async with self._lock:
            payload = await self.consensus_bytes(agreed, action.consensus, action.round, final=True)
            final = consensus_from(agreed, action.consensus.stage, action.round, payload)
            site = self._result_site(agreed)
            try:
                alone = self._alone(agreed) if self._services.site.facts.policy.on_bad_model == "alone" else None
                U = await self._services.engine.run(
                    lambda: write_results(results, facts, agreed.terms, site, final, part.columns, names, alone)
                )
            except Exception:
                self._fail()
                raise
            except asyncio.CancelledError:
                self.forget()
                raise
            self.forget()
        if verified:
            self._services.store.save_result(self._run_id, hashlib.sha256(encode_memory({WARM: U})).digest(), _now_ms())

    def _account(self, consent: Consent) -> dict[str, Any] | None:
        """What the run has cost of the privacy of the site's data; None for a run without privacy."""
        if consent.spec.privacy is None:
            return None
        site, budget = self._services.site, self._services.store.privacy
        terms, policy = consent.spec.privacy, site.facts.policy
        return account_of(budget, terms, policy, site.column_set, site.unit, _now_ms()).document()

    def _compute(
        self, agreed: Contract, site: Site, consensus: Consensus, asked: bytes, sites: int, opening: bytes
    ) -> LocalStep:
        """Runs in a thread of the engine; the step is saved when this returns."""
        round, solver, store = consensus.round, agreed.terms.method.solver, self._services.store
        self._meter.begin(self._reads)
        vector = site.answer(consensus).flat()
        if not np.isfinite(vector).all():
            raise BadMessage("the local step gave numbers that are not finite")
        if isinstance(solver, PrivateSolver):
            # Nothing is saved or sent without its noise, and a step has the same noise however often it is computed.
            # The noise is bound to the bytes received, not to the announced digest, which nothing contradicts where
            # the consensus is empty.
            received = digested(message_bytes(consensus.broadcast)).sha256
            entropy = noise_entropy(store.noise_key(self._run_id), self._run_id, round, received, grid_digest(vector))
            vector = solver.noised(consensus.stage, vector, self._columns, sites, entropy)
        vector.flags.writeable = False  # what is sent again is what was sent
        # A secure run holds the next consensus against this one. What it answers is pinned for good, so the numbers
        # must outlive a power cut.
        masked = agreed.masked
        computed_on = consensus.broadcast.flat() if masked else np.zeros(0)
        step = LocalStep(round, asked, vector, site.snapshot(), computed_on, consensus.stage, opening)
        store.steps.save(self._run_id, step, agreed.terms.snapshot_format, durable=masked)
        return replace(step, snapshot={})  # it is large, and a session would keep those of two rounds in memory

    def _compare(self, agreed: Contract, consensus: Consensus) -> None:
        """Raise SiteDiffers with a sentence for each feature that differs from those of all sites."""
        spec, site = agreed.terms.spec, self._services.site
        profile = Profile.of_units(*found_units(consensus.broadcast, spec.rows))
        if notes := shift_notes(profile, columns_sample(site.fitted_columns(spec)), site.part(spec).features):
            log("site_differs", level="warning", run=self._run_id, features=len(notes))
            raise SiteDiffers(notes)

    def _progressed(self, percent: int) -> None:
        """Called from the thread that computes."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, percent)

    def _open_site(self, agreed: Contract) -> Site:
        """The local half of the method, continued from the last saved step if there is one."""
        self._cancellation = Cancellation()
        fitted = self._services.site.fitted_columns(agreed.terms.spec)
        self._columns = fitted.shape[1]
        self._reads = self._columns * agreed.terms.method.solver.reads_per_round
        columns = MeteredColumns(fitted, self._meter, self._cancellation)
        site = self._services.engine.site(self._method(agreed), columns)
        if (step := self._saved or self._services.store.step(self._run_id)) is not None:
            self._services.engine.resume(site, step.snapshot, self._failed)
        self._site, self._failed, self._saved = site, None, None
        return site

    def _method(self, agreed: Contract) -> Method:
        """The run's method, as this site carries it out."""
        return agreed.terms.method.keyed(self._services.site.key)

    def _result_site(self, agreed: Contract) -> Site:
        """The local half over all columns; where the rounds had one column of each person, a new one."""
        whole = self._services.site.columns(agreed.terms.spec)
        if self._services.site.fitted_columns(agreed.terms.spec) is whole:
            return self._site or self._open_site(agreed)
        self._cancellation = Cancellation()
        columns = MeteredColumns(whole, self._meter, self._cancellation)
        return self._services.engine.site(self._method(agreed), columns)

    def _alone(self, agreed: Contract) -> Callable[[Method], Site]:
        """Makes a site of all columns for a method by itself."""
        columns = MeteredColumns(self._services.site.columns(agreed.terms.spec), self._meter, self._cancellation)
        return lambda method: self._services.engine.site(method.keyed(self._services.site.key), columns)

    def take_consensus(self, announced: AnnouncedConsensus, derived: bytes) -> None:
        """Use these bytes for the announced consensus if they have its digest; else it is fetched."""
        found = digested(derived)
        if found.sha256 == announced.sha256:
            self._known = found

    async def consensus_bytes(
        self, agreed: Contract, announced: AnnouncedConsensus, round: int, *, final: bool = False
    ) -> DigestedBytes:
        """The bytes of a consensus, inline or fetched; its announced shape is checked against the spec first."""
        layout = agreed.terms.method.stage(announced.stage).down
        check_header(announced, layout, FLOAT64)
        if layout.size == 0:
            return digested(b"")
        if self._known is not None and announced.sha256 == self._known.sha256:
            return self._known
        if announced.inline:
            received = verified(announced, announced.inline)
        else:
            received = await self._services.link.fetch(self._run_id, round, announced, final=final)
        self._known = received
        return received


def consensus_from(agreed: Contract, stage: str, round: int, payload: DigestedBytes) -> Consensus:
    """The consensus in these bytes, as the method reads it; BadMessage where its numbers are not finite."""
    return Consensus(round, stage, message_from(agreed.terms.method.stage(stage).down, payload.data))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
