"""The daemon: one connection, any number of runs, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

from dcfpca.doctor.connection_diagnosis import Files
from dcfpca.errors import BadIdentity, BadInput, BadMessage, DcfpcaError
from dcfpca.feature_names import features_digest
from dcfpca.logs import log
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.version import __version__
from dcfpca.web_server import serve_beside
from dcfpca.wire_constants import PROTOCOL
from participant import wire_codec
from participant.config import Config
from participant.driver import Driver, Means
from participant.egress import Egress
from participant.engine import Engine
from participant.link import Connection, Link
from participant.local_site import LocalSite, open_site
from participant.revocation_list import KeptRevocationList
from participant.session import events
from participant.store import RunRow, Store, only_daemon
from participant.telemetry import Telemetry

APPROVAL_SECONDS = 1.0
FLUSH_SECONDS = 1.0
REVOCATION_SECONDS = 60.0
"""How often the revocation list is fetched: a peer that the CA revokes is masked with for no longer than that."""


class Daemon:
    """Hands every assignment to the driver of its run."""

    def __init__(self, config: Config, site: LocalSite, store: Store) -> None:
        self._config = config
        self._site = site
        self._store = store
        self._link = Link(config.aggregator.address, site.credentials)
        egress = Egress(self._link, store.ledger, config.policy)
        engine = engine_of(config)
        self._telemetry = Telemetry()
        self._telemetry.watch_certificate(lambda: site.credentials.not_after)
        self._means = Means(site, store, self._link, egress, engine, config.results.dir, self._telemetry)
        self._drivers: dict[str, Driver] = {}

    async def serve(self) -> None:
        """Serve until cancelled; raises DcfpcaError when there is no point in going on."""
        files = Files(self._config.identity.ca, self._config.identity.cert, self._config.identity.key)
        connection = Connection(self._config.aggregator.address, files, self._link, self._telemetry.connected)
        metrics = await serve_beside("metrics", self._config.telemetry.metrics, self._telemetry.page)
        self._restore()
        tasks = [
            asyncio.ensure_future(connection.watch_credentials(self._site.credentials, self._site.renew)),
            asyncio.ensure_future(self._watch_approvals()),
            asyncio.ensure_future(self._flush()),
            asyncio.ensure_future(self._follow_revocations()),
            asyncio.ensure_future(self._listen(connection)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            if metrics is not None:
                await metrics.stop()
            await self._close(tasks)

    async def _close(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Everything under way is cancelled: what mattered is on disk and is taken up again at the next start."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for driver in self._drivers.values():
            await driver.stop()
        await self._link.close()
        self._means.engine.close()

    async def _listen(self, connection: Connection) -> None:
        async for assignment in connection.assignments(self._hello, self._means.egress.subscribed):
            self._deliver(assignment)

    def _deliver(self, assignment: pb.Assignment) -> None:
        try:
            event = wire_codec.decode(assignment)
        except BadMessage as error:
            log("assignment_rejected", level="warning", reason=str(error), hint=error.hint or None)
            return
        log("assignment_received", level="debug", run=assignment.run_id, key=assignment.key)
        run_id = assignment.run_id
        if run_id not in self._drivers and not self._concerns_us(run_id, event):
            return
        self._driver(run_id).take(event, assignment)
        if self._drivers[run_id].is_over:
            del self._drivers[run_id]

    def _concerns_us(self, run_id: str, event: events.Assigned) -> bool:
        """Nothing is remembered for runs that were never proposed here, however many an aggregator invents."""
        return isinstance(event, events.Proposed | events.ExportWanted) or self._store.run(run_id) is not None

    def _driver(self, run_id: str) -> Driver:
        if run_id not in self._drivers:
            self._drivers[run_id] = Driver(run_id, self._means, self._store.run(run_id))
        return self._drivers[run_id]

    def _restore(self) -> None:
        for row in self._store.runs():
            if row.status in ("waiting", "enrolled"):
                self._restore_run(row)

    def _restore_run(self, row: RunRow) -> None:
        """One damaged run must not keep the others from going on."""
        try:
            self._driver(row.run_id).restore(row)
        except DcfpcaError as error:
            log("run_not_resumed", level="error", run=row.run_id, reason=str(error), hint=error.hint or None)

    async def _watch_approvals(self) -> None:
        """A person answers through the state directory, from another process."""
        while True:
            for run_id in self._store.approved():
                log("run_approved", run=run_id)
                self._driver(run_id).take(events.Approved())
            await asyncio.sleep(APPROVAL_SECONDS)

    async def _flush(self) -> None:
        """Bring to the disk what the rounds left in the system's memory, without any of them waiting for it."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await asyncio.to_thread(self._store.flush)

    async def _follow_revocations(self) -> None:
        """Keep the consortium's revocation list up to date; what is wrong with the aggregator's is said once."""
        kept, said = KeptRevocationList.in_state(self._config.state.dir), ""
        while True:
            try:
                pem = await self._link.revocation_list()
                if kept.take(pem, self._site.credentials.authorities, datetime.now(UTC)):
                    log("revocation_list_kept", file=str(kept.path))
                said = ""
            except (BadIdentity, BadMessage) as error:
                if str(error) != said:
                    log("revocation_list_refused", level="warning", reason=str(error), hint=error.hint or None)
                said = str(error)
            await asyncio.sleep(REVOCATION_SECONDS)

    def _hello(self) -> pb.SubscribeRequest:
        """Who this is, and how far it has seen its runs go."""
        policy = self._config.policy
        abilities = {"secagg": True, "plain": policy.allow_plain, "export": policy.allow_export and not policy.private}
        return pb.SubscribeRequest(
            protocol=PROTOCOL,
            software=f"dcfpca-participant {__version__}",
            capabilities=[name for name, able in abilities.items() if able],
            rows=self._site.facts.rows,
            features_sha256=features_digest(features) if (features := self._site.facts.features) else b"",
            seen=[wire_codec.encode_seen(run_id, opened) for run_id, opened in self._open_attempts() if opened.ticket],
        )

    def _open_attempts(self) -> list[tuple[str, events.Opened]]:
        latest = [(run_id, driver.session.latest) for run_id, driver in self._drivers.items()]
        return [(run_id, opened) for run_id, opened in latest if opened is not None]


def engine_of(config: Config) -> Engine:
    """Where the local step runs, by the configuration."""
    wanted = config.engine
    if wanted.kind == "dask":
        from participant.dask_engine import DaskEngine  # noqa: PLC0415  an extra, and slow to import

        return DaskEngine(wanted.scheduler, config.data, wanted.threads)
    scratch = config.state.dir / "spool"
    return Engine(wanted.threads, idle=wanted.kind == "idle", memory_limit=wanted.memory_limit, scratch=scratch)


async def serve(config: Config) -> None:
    """Run the daemon until SIGTERM or SIGINT."""
    with only_daemon(config.state.dir):
        site = await asyncio.to_thread(open_site, config)
        store = Store(config.state.dir)
        store.take_over()
        facts = site.facts
        log("started", participant=site.name, rows=facts.rows, columns=facts.columns, private=facts.policy.private)
        try:
            await _until_told(Daemon(config, site, store).serve())
        except (sqlite3.Error, OSError) as error:
            hint = "free space on its disk, or repair its rights; then start the daemon again, nothing is lost"
            raise BadInput(f"the state in {config.state.dir} cannot be written: {error}", hint) from error
        finally:
            store.close()
            log("stopped", participant=site.name)


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
