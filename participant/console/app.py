"""The routes of the console, and its server on loopback."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from dcfpca.errors import DcfpcaError
from dcfpca.logs import log
from dcfpca.report.page import paragraph
from dcfpca.web_server import Listener, loopback
from participant.commands.approve import approve_run, approver_name, decline_run, end_like, waiting_runs
from participant.commands.transform import SCORED
from participant.config import Config
from participant.console import pages
from participant.console.gate import Form, Gate, Visit
from participant.findings.decisions import Decision, Decisions, Place
from participant.findings.worklist import Finding, aside_sentence, matching, read_worklist
from participant.results.reading import read_manifests
from participant.state.ledger import verify
from participant.state.store import Store

LINK = "console.link"
STOP_SECONDS = 5.0
RUNS_REFRESH = 5
_KEYS = {
    "size": lambda one: (one.aside, -abs(one.z)),
    "sample": lambda one: (one.sample, one.feature),
    "feature": lambda one: (one.feature, one.sample),
    "cause": lambda one: (not one.cause, one.cause, -abs(one.z)),
}


class Console:
    """The console of one site; it reads and writes the site's state beside a running daemon."""

    def __init__(self, config: Config, store: Store, port: int, renewed: Callable[[str], None] | None = None) -> None:
        self._config, self._store, self.gate = config, store, Gate(port, renewed)
        self._decisions = Decisions(config.state.dir)
        self._site = config.identity.cert.stem

    def app(self) -> Starlette:
        """The application; every route but the way in goes through the gate."""
        page, post = self.gate.page, self.gate.post
        return Starlette(
            routes=[
                Route("/", self.gate.enter),
                Mount(
                    self.gate.root,
                    routes=[
                        Route("/style.css", page(_style)),
                        Route("/proposals", page(self.proposals)),
                        Route("/proposals/{run}/approve", post(self.approve), methods=["POST"]),
                        Route("/proposals/{run}/decline", post(self.decline), methods=["POST"]),
                        Route("/proposals/{run}/end", post(self.end_like), methods=["POST"]),
                        Route("/runs", page(self.runs)),
                        Route("/findings", page(self.findings), methods=["GET"]),
                        Route("/findings", post(self.decide), methods=["POST"]),
                        Route("/name", post(self.sign), methods=["POST"]),
                        Route("/decisions.{kind}", page(self.export)),
                        Route("/ledger", page(self.ledger)),
                        Route("/ledger/verify", post(self.verify), methods=["POST"]),
                    ],
                ),
            ]
        )

    async def proposals(self, _: Request, visit: Visit, note: str = "") -> Response:
        """The runs that wait for a person."""
        rows = waiting_runs(self._store, _now_ms())
        approved = {one.run_id for one in self._store.approvals.standing(_now_ms())}
        likes = self._store.approvals.likes(_now_ms())
        parts = pages.proposals_page(
            [row for row in rows if row.run_id not in approved], self._store.runs(), likes, visit
        )
        return self._page("/proposals", parts, note)

    async def approve(self, request: Request, visit: Visit, form: Form) -> Response:
        """As `dcfpca-participant approve`."""
        return await self._answer(request, visit, form, declined=False)

    async def decline(self, request: Request, visit: Visit, form: Form) -> Response:
        """As `dcfpca-participant reject`."""
        return await self._answer(request, visit, form, declined=True)

    async def _answer(self, request: Request, visit: Visit, form: Form, *, declined: bool) -> Response:
        run, name = request.path_params["run"], form.get("name", "")
        try:
            if declined:
                said = decline_run(self._store, run, name, form.get("reason", ""), _now_ms())
                note = f"Run {run} is declined; the operator reads: {said}"
            else:
                like = form.get("like", "")
                approval = approve_run(self._store, run, name, form.get("expires", "7d"), _now_ms(), like)
                note = f"Run {run} is approved {approval.describe()}; the daemon enrols within seconds."
            visit.name = name.strip()
        except DcfpcaError as error:
            note = f"Nothing was done: {error}."
        return await self.proposals(request, visit, note)

    async def end_like(self, request: Request, visit: Visit, form: Form) -> Response:
        """As `dcfpca-participant approve --end-like`."""
        run = request.path_params["run"]
        try:
            end_like(self._store, run, form.get("name", ""), _now_ms())
            note = f"Runs like {run} are asked about again."
        except DcfpcaError as error:
            note = f"Nothing was done: {error}."
        return await self.proposals(request, visit, note)

    async def runs(self, _: Request, __: Visit) -> Response:
        """What was proposed here and how it went; looks again by itself while a run goes on."""
        rows, finished = self._store.runs(), {found["run"]: found for found in self._manifests()}
        parts = pages.runs_page(rows, list(self._store.ledger.entries()), finished)
        going = any(row.status in ("enrolled", "waiting") for row in rows)
        return self._page("/runs", parts, refresh=RUNS_REFRESH if going else 0)

    async def findings(self, request: Request, visit: Visit, note: str = "") -> Response:
        """The worklist of a run."""
        given, runs = request.query_params, self._results()
        asked = {
            "q": given.get("q", "")[:200],
            "run": given.get("run", ""),
            "show": "open",
            "sort": "size",
            "from": "0",
        }
        for name, known in (("show", pages.STATES), ("sort", pages.SORTS)):
            asked[name] = given[name] if given.get(name, "") in known else asked[name]
        asked["run"] = asked["run"] if asked["run"] in runs else next(iter(runs), "")
        asked["from"] = given["from"] if given.get("from", "").isdecimal() else "0"
        whole = self._worklist(asked["run"]) if runs else []
        found = sorted(matching(whole, asked["q"], asked["show"]), key=_KEYS[asked["sort"]])
        parts = pages.findings_page(found, len(whole), asked, runs, visit)
        apart = [paragraph(said)] if (said := aside_sentence(whole)) else []
        return self._page("/findings", [*parts[:2], *apart, *parts[2:]], note)

    async def decide(self, request: Request, visit: Visit, form: Form) -> Response:
        """Keep a decision and show the list again, at the place where it was."""
        place = Place(form.get("sample", ""), form.get("feature", ""), form.get("value", ""))
        run, note = form.get("run", ""), form.get("note", "").strip()
        try:
            if not any(one.place == place for one in self._worklist(run)):
                return await self.findings(request, visit, "Nothing was kept: that finding is not in the list.")
            self._decisions.decide(place, Decision(form.get("verdict", ""), visit.name, _now_ms(), note, run))
        except DcfpcaError as error:
            return await self.findings(request, visit, f"Nothing was kept: {error}.")
        back = urlencode({name: form.get(name, "") for name in ("q", "run", "show", "sort", "from")})
        return RedirectResponse(f"{self.gate.root}/findings?{back}#f{form.get('place', '0')}", status_code=303)

    async def sign(self, request: Request, visit: Visit, form: Form) -> Response:
        """Take the name that decisions of this visit are kept under."""
        try:
            visit.name = approver_name(form.get("name", ""))
        except DcfpcaError as error:
            return await self.findings(request, visit, f"Nothing was kept: {error}.")
        return RedirectResponse(f"{self.gate.root}/findings", status_code=303)

    async def export(self, request: Request, _: Visit) -> Response:
        """All decisions as a file."""
        kind = "parquet" if request.path_params["kind"] == "parquet" else "csv"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / f"decisions.{kind}"
            self._decisions.export(out)
            body = out.read_bytes()
        named = {"Content-Disposition": f'attachment; filename="decisions.{kind}"'}
        return Response(body, media_type="text/csv" if kind == "csv" else "application/octet-stream", headers=named)

    async def ledger(self, request: Request, visit: Visit, note: str = "") -> Response:
        """What left the site."""
        text = request.query_params.get("q", "")[:200]
        return self._page("/ledger", pages.ledger_page(list(self._store.ledger.entries()), text, visit), note)

    async def verify(self, request: Request, visit: Visit, _: Form) -> Response:
        """As `dcfpca-participant ledger --verify`."""
        try:
            note = f"The chain of {verify(self._store.ledger.entries())} entries is whole."
        except DcfpcaError as error:
            note = f"NOT whole: {error}; {error.hint}."
        return await self.ledger(request, visit, note)

    def _worklist(self, run: str) -> list[Finding]:
        """Of a result; `run` comes from a browser and is compared with what is there."""
        known = run in self._results()
        return read_worklist(self._config.results.dir / run, self._decisions.all()) if known else []

    def _results(self) -> dict[str, str]:
        """Directories of results below `[results] dir` with their names for people, the newest run first; after each
        run the files that its model has scored."""
        found: dict[str, str] = {}
        manifests = self._manifests()
        labels = Counter(manifest.get("label") for manifest in manifests)
        for manifest in reversed(manifests):
            run, label = manifest["run"], manifest.get("label") or "run"
            found[run] = label if label != "run" and labels[label] == 1 else f"{run} {label}"
            for scored in read_manifests(self._config.results.dir / run / SCORED)[::-1]:
                found[f"{run}/{SCORED}/{Path(scored['directory']).name}"] = f"{scored['scored']}, scored by {label}"
        return found

    def _manifests(self) -> list[dict[str, Any]]:
        return read_manifests(self._config.results.dir) if self._config.results.dir.exists() else []

    def _page(self, here: str, parts: Sequence[str], note: str = "", refresh: int = 0) -> Response:
        page = pages.frame(self._site, here, parts, note, refresh)
        return HTMLResponse(page.replace('="/', f'="{self.gate.root}/'))  # its links; in text quotes are escaped


async def _style(_: Request, __: Visit) -> Response:
    """The style of reports, and what forms need."""
    sheets = [("dcfpca.report", "style.css"), ("participant.console", "console.css")]
    text = "\n".join(package_files(package).joinpath(name).read_text(encoding="utf-8") for package, name in sheets)
    return Response(text, media_type="text/css")


def serve(console: Console, listener: Listener, port: int) -> None:
    """Serve until interrupted."""
    _server(console, port).run([listener])


def _server(console: Console, port: int) -> uvicorn.Server:
    """No request is logged, the token of the link least of all; errors are, in the format of the daemon's own lines.

    By default uvicorn would set up logging again, and close the handlers of the process that it is in.
    """
    quiet: dict[str, Any] = {"access_log": False, "log_config": None, "server_header": False}
    return uvicorn.Server(uvicorn.Config(console.app(), host="127.0.0.1", port=port, **quiet))


@contextmanager
def console_beside(config: Config) -> Iterator[None]:
    """The console of `[console] listen`, in a thread of its own: reading a worklist must not hold up a round.

    Its link is in a file of the state directory, for this user alone, and is another after each use.
    """
    port, path = int(config.console.listen.rpartition(":")[2]), config.state.dir / LINK
    listener = loopback(port)

    def keep(link: str) -> None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{link}\n")

    store = Store(config.state.dir, config.results.dir)
    server = _server(Console(config, store, port, keep), port)
    thread = threading.Thread(target=server.run, args=([listener],), name="console", daemon=True)
    thread.start()
    log("console_listening", at=config.console.listen, link_in=str(path))
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
        store.close()
        path.unlink(missing_ok=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
