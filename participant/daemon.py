"""The daemon: one connection to the aggregator and any number of runs, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dcfpca.errors import BadIdentity, BadInput, BadMessage, DcfpcaError
from dcfpca.freed_memory import return_freed_memory
from dcfpca.logs import log
from dcfpca.methods import load_accountant
from dcfpca.spec import features_digest, parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.version import __version__
from dcfpca.web_server import serve_beside
from dcfpca.wire.addresses import TlsFiles
from dcfpca.wire.constants import PROTOCOL
from participant import wire_codec
from participant.config import Config, require_console
from participant.driver import RunDriver, SiteServices
from participant.egress import Egress
from participant.engine.thread_engine import Engine, prepare_loops, prepare_widths
from participant.link import Connection, Link
from participant.local_site import LocalSite, open_site
from participant.peer_verifier import KeptRevocationList
from participant.results.reading import delete_expired_results
from participant.session import events
from participant.state.directory import is_disk_full, only_daemon, unusable_state, wait_for_space
from participant.state.store import RunRow, Store
from participant.telemetry import Telemetry

APPROVAL_SECONDS = 1.0
FLUSH_SECONDS = 1.0
RESULT_SECONDS = 10.0
RETENTION_SECONDS = 600.0
REVOCATION_SECONDS = 60.0
"""How often the revocation list is fetched: a peer that the CA revokes is masked with for no longer than that."""


class Daemon:
    """Gives every assignment to the driver of its run."""

    def __init__(self, config: Config, site: LocalSite, store: Store) -> None:
        self._config = config
        self._site = site
        self._store = store
        self._link = Link(config.aggregator.address, site.credentials, config.aggregator.proxy)
        egress = Egress(self._link, store.ledger, config.policy, config.notify.url)
        engine = engine_of(config)
        self._telemetry = Telemetry()
        self._telemetry.watch_certificate(lambda: site.credentials.not_after)
        self._services = SiteServices(site, store, self._link, egress, engine, config.results.dir, self._telemetry)
        self._drivers: dict[str, RunDriver] = {}
        self._unknown: set[str] = set()
        self._preparing: set[asyncio.Future[None]] = set()

    async def serve(self) -> None:
        """Serve until cancelled; raises DcfpcaError when retrying cannot help."""
        files = TlsFiles(self._config.identity.ca, self._config.identity.cert, self._config.identity.key)
        connection = Connection(files, self._link, self._telemetry.connected.set)
        metrics = await serve_beside("metrics", self._config.telemetry.metrics, self._telemetry.page)
        await self._restore()
        tasks = [
            asyncio.ensure_future(connection.watch_credentials(self._site.credentials, self._site.renew)),
            asyncio.ensure_future(connection.watch_standbys()),
            asyncio.ensure_future(self._watch_approvals()),
            asyncio.ensure_future(self._flush()),
            asyncio.ensure_future(self._follow_revocations()),
            asyncio.ensure_future(self._listen(connection)),
            asyncio.ensure_future(self._stop_when_unsaved()),
            asyncio.ensure_future(self._delete_expired_results()),
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
        """Cancel everything under way; the next start continues it from what is saved."""
        ending = [*tasks, *self._preparing]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for driver in list(self._drivers.values()):
            await driver.stop()
        await self._link.close()
        self._services.engine.close()

    async def _listen(self, connection: Connection) -> None:
        """Connect once the compiled loops are there: a site that is seen can answer a round at once."""
        if self._config.engine.kind == "method":
            await prepare_loops(self._services.engine, self._site.facts.rows)
        async for assignment in connection.assignments(self._hello, self._services.egress.subscribed):
            if assignment.WhichOneof("what") == "run_proposed":
                await self._read_changed_data()
                await _load_accountant(assignment.run_proposed.spec)
                await self._await_start(assignment.run_proposed.spec)
            self._deliver(assignment)

    async def _read_changed_data(self) -> None:
        """Before a run, read data that has changed since; while another run is open, which is bound to what was read,
        refuse new ones instead. A damaged file refuses them too, until it is mended."""
        site, config = self._site, self._config
        if not site.source.has_changed(config.data):
            site.facts = replace(site.facts, outdated="")
            return
        problem = ""
        if busy := [row.run_id for row in self._store.runs() if row.status == "enrolled"]:
            problem = f"the data has changed since it was read, and run {busy[0]} is not over; propose it again then"
        else:
            try:
                said = site.take_data(await asyncio.to_thread(open_site, config))
            except DcfpcaError as error:
                problem = f"the data has changed, and cannot be read: {error}"
            else:
                await self._renew_waiting()
                if said:
                    log("data_read_again", path=config.data.origin, changed=said)
        if problem and site.source.files is not None:
            site.facts = replace(site.facts, outdated=problem)
            log("data_changed", level="warning", reason=problem)

    async def _renew_waiting(self) -> None:
        """Have the runs that wait for a person judged by the data as it is now."""
        for row in self._store.runs():
            if row.status == "waiting" and (driver := self._drivers.pop(row.run_id, None)) is not None:
                await driver.stop()
                self._restore_run(row)

    async def _await_start(self, spec: bytes) -> None:
        """Let a run end that a proposal begins at: whether the site knows its result decides whether it asks."""
        with contextlib.suppress(BadInput, TimeoutError):
            if (earlier := self._drivers.get(parse_spec(spec).warm_start)) is not None:
                async with asyncio.timeout(RESULT_SECONDS):
                    await earlier.until_finished()

    def _deliver(self, assignment: pb.Assignment) -> None:
        try:
            event = wire_codec.decode(assignment)
        except BadMessage as error:
            log("assignment_rejected", level="warning", reason=str(error), hint=error.hint or None)
            return
        log("assignment_received", level="debug", run=assignment.run_id, key=assignment.key)
        run_id = assignment.run_id
        if (driver := self._drivers.get(run_id)) is None:
            if not self._is_known(run_id, event):
                self._log_unknown(run_id)
                return
            driver = self._driver(run_id)
        driver.take(event, assignment.SerializeToString)
        if isinstance(event, events.Proposed):
            self._prepare(event.spec)

    def _prepare(self, spec: bytes) -> None:
        """Begin to load the compiled loops of a proposed run while others enrol; a bad spec is refused elsewhere."""
        if self._config.engine.kind != "method":
            return
        with contextlib.suppress(BadInput):
            proposed = parse_spec(spec)
            if proposed.privacy is not None:  # its columns are cleaned in numpy
                return
            task = asyncio.ensure_future(prepare_widths(self._services.engine, proposed.width))
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    def _is_known(self, run_id: str, event: events.Assigned) -> bool:
        """True if the run has been proposed to this site; no driver is kept for others, which could exhaust memory."""
        return isinstance(event, events.Proposed | events.ExportWanted) or self._store.run(run_id) is not None

    def _log_unknown(self, run_id: str) -> None:
        """Log once that a run is unknown here: the state was lost, or another daemon used this site's certificate."""
        if run_id not in self._unknown:
            self._unknown.add(run_id)
            hint = "if [state] dir was lost or changed, this run goes on without the site; it joins the next one"
            log("run_not_in_state", level="warning", run=run_id, hint=hint)

    def _driver(self, run_id: str) -> RunDriver:
        if run_id not in self._drivers:
            self._drivers[run_id] = RunDriver(run_id, self._services, self._store.run(run_id), self._drop)
        return self._drivers[run_id]

    def _drop(self, driver: RunDriver) -> None:
        """Keep nothing in memory of a run that is over; a new driver is made if anybody asks about it."""
        if self._drivers.get(driver.run_id) is driver:
            del self._drivers[driver.run_id]
            return_freed_memory()

    async def _restore(self) -> None:
        for row in self._store.runs():
            if row.status in ("waiting", "enrolled"):
                await _load_accountant(row.spec)
                self._restore_run(row)

    def _restore_run(self, row: RunRow) -> None:
        """Restore one run; if it is damaged, the others continue."""
        try:
            self._driver(row.run_id).restore(row)
            self._prepare(row.spec)
        except DcfpcaError as error:
            log("run_not_resumed", level="error", run=row.run_id, reason=str(error), hint=error.hint or None)

    async def _watch_approvals(self) -> None:
        """Poll for what people say to waiting runs, which other processes write to the state directory."""
        while True:
            # First, so that of two people the one who declines is heard.
            for run_id, reason in self._store.approvals.declined():
                self._driver(run_id).take(events.Declined(reason))
            approved = self._store.approvals.use(time.time_ns() // 1_000_000)
            if approved:
                await self._read_changed_data()
            for run_id in approved:
                log("run_approved", run=run_id)
                self._driver(run_id).take(events.Approved())
            await asyncio.sleep(APPROVAL_SECONDS)

    async def _flush(self) -> None:
        """Flush the state to the disk in the background, so that no round waits for it."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await asyncio.to_thread(self._store.flush)

    async def _stop_when_unsaved(self) -> None:
        """Raise when the state could not be written: a new daemon continues from what is saved."""
        raise await self._store.until_failed()

    async def _delete_expired_results(self) -> None:
        """Delete results beyond what the configuration keeps, now and then."""
        keep = self._config.results
        while True:
            for run_id in await asyncio.to_thread(
                delete_expired_results, keep.dir, keep.keep_runs, keep.keep_days, time.time()
            ):
                log("result_deleted", run=run_id, reason="beyond [results] keep_runs or keep_days")
            await asyncio.sleep(RETENTION_SECONDS)

    async def _follow_revocations(self) -> None:
        """Keep the consortium's revocation list up to date; a problem with the aggregator's list is logged once."""
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

    def _hello(self, wanted: str) -> pb.SubscribeRequest:
        """Version, capabilities and size of this site, and the latest attempt of each open run that it has joined; of
        the one that is wanted with its consensus."""
        policy, sessions = self._config.policy, [driver.session for driver in self._drivers.values()]
        abilities = {
            "asks": policy.manual_approval,
            "secagg": True,
            "plain": policy.allow_plain,
            "export": policy.allow_export and not policy.private,
        }
        return pb.SubscribeRequest(
            protocol=PROTOCOL,
            software=f"dcfpca-participant {__version__}",
            capabilities=[name for name, able in abilities.items() if able],
            rows=self._site.facts.rows,
            features_sha256=features_digest(features) if (features := self._site.facts.features) else b"",
            seen=[
                wire_codec.encode_seen(one, self._store.inbox(one.run_id), whole=one.run_id == wanted)
                for one in sessions
                if one.terms is not None
            ],
        )


async def _load_accountant(spec: bytes) -> None:
    """Load what a private run with this spec is accounted with, while the event loop serves others."""
    with contextlib.suppress(BadInput):  # a bad spec is refused elsewhere
        await asyncio.to_thread(load_accountant, parse_spec(spec))


def engine_of(config: Config) -> Engine:
    """The engine that the configuration names."""
    wanted = config.engine
    if wanted.kind == "dask":
        from participant.engine.dask_engine import DaskEngine  # noqa: PLC0415  an optional extra, and slow to import

        return DaskEngine(wanted.scheduler, config.data, wanted.threads)
    scratch = config.state.dir / "spool"
    return Engine(wanted.threads, idle=wanted.kind == "idle", memory_limit=wanted.memory_limit, scratch=scratch)


async def serve(config: Config) -> None:
    """Run the daemon until SIGTERM or SIGINT."""
    with only_daemon(config.state.dir):
        site = await asyncio.to_thread(open_site, config)
        facts = site.facts
        log("started", participant=site.name, rows=facts.rows, columns=facts.columns, private=facts.policy.private)
        try:
            with _console(config):
                await _until_signalled(_serve_through_full_disks(config, site))
        finally:
            log("stopped", participant=site.name)


def _console(config: Config) -> contextlib.AbstractContextManager[None]:
    """The console beside the daemon, where it is asked for."""
    if not config.console.listen:
        return contextlib.nullcontext()
    require_console()
    from participant.console.app import console_beside  # noqa: PLC0415  an optional extra

    return console_beside(config)


async def _serve_through_full_disks(config: Config, site: LocalSite) -> None:
    """Serve; while there is no space for the state, disconnect and wait, then go on from what is saved."""
    directory, logged = config.state.dir, False
    while True:
        try:
            await _serve_once(config, site)
        except (sqlite3.Error, OSError) as error:
            if not is_disk_full(error, directory):
                raise unusable_state(directory, error) from error
            if not logged:
                hint = "free space on its disk; the daemon goes on by itself, and nothing is lost"
                log("state_held_up", level="error", reason=f"the disk of {directory} is full", hint=hint)
            logged = True
        await wait_for_space(directory)


async def _serve_once(config: Config, site: LocalSite) -> None:
    store = Store(config.state.dir, config.results.dir)
    try:
        store.forget_openings_after_reboot()
        store.remove_leftovers()
        store.privacy.reconcile()
        await Daemon(config, site, store).serve()
    finally:
        store.close()


async def _until_signalled(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
