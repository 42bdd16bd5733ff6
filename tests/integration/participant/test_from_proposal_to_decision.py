"""A person at one of three sites, with a browser and a keyboard: approves a run, finds the errors that clerks made,
decides them, has tomorrow's file scored, and finds the decisions again in the next run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest

from dcfpca.cli.main import main as operate
from dcfpca.scaffold.background import until
from dcfpca.scaffold.config_texts import DataKeys, Tables
from dcfpca.scaffold.local_consortium import (
    Consortium,
    LocalPlan,
    create_consortium,
    free_ports,
    start_consortium,
    stop_consortium,
)
from participant.findings.decisions import known_decisions
from participant.main import main
from tests.integration.participant.test_console import await_answer, tab_to, write
from tests.support.inputs.console_site import running_console
from tests.support.inputs.trial_tables import ERRORS, FEATURES, SITES, patients, write_table, wrong
from tests.support.surroundings.browser import CHROMIUM, WHY_NOT, Browser, Page, chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("compiled_loops"),
    pytest.mark.skipif(not CHROMIUM, reason=WHY_NOT),
]
SITE = "boston"


class Steward:
    """Takes notices, as a chat does."""

    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []
        told = self.told

        class Taker(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Clinic:
    consortium: Consortium
    page: Page
    root: str  # of the console's pages

    @property
    def config(self) -> Path:
        return self.consortium.sites[SITE].directory / "participant.toml"

    def open(self, path: str) -> None:
        self.page.ask("Page.navigate", url=self.root + path)
        where = path.partition("?")[0]
        self.page.until(f"location.pathname.endsWith('{where}') && document.readyState === 'complete'")

    def propose(self, label: str, capsys: pytest.CaptureFixture[str]) -> str:
        capsys.readouterr()
        settings = ["--participants", ",".join(SITES), "--label", label]
        operator = ["--config", str(self.consortium.operator_config)]
        with pytest.raises(SystemExit):
            operate(["run", "start", "--max-rank", "5", "--json", *settings, *operator])
        said = capsys.readouterr()
        assert "a person at boston is asked, so that enrolment stays open for up to a day" in said.err
        return str(json.loads(said.out)["run_id"])

    def approve(self, run: str, name: str = "") -> None:
        self.open("/proposals")
        for _ in range(100):  # the proposal is on its way
            if run in self.page.evaluate("document.body.innerText"):
                break
            self.open("/proposals")
        tab_to(self.page, f"e.name === 'name' && e.form.action.endsWith('{run}/approve')")
        if name:  # known in this visit from then on
            write(self.page, name)
        tab_to(self.page, "e.innerText === 'Approve'")
        self.page.press("Enter", 13)
        self.page.until(f"document.body.innerText.includes('Run {run} is approved by Ada Byron')")
        written = self.consortium.results(SITE, run) / "manifest.json"
        until(written.exists, self.consortium.sites.values(), "the result", 90)

    def findings(self) -> list[str]:
        """The cards that lie within the window."""
        seen = "(e) => e.getBoundingClientRect().bottom <= innerHeight"
        shown = f"[...document.querySelectorAll('.finding')].filter({seen}).map((e) => e.innerText)"
        return [str(text) for text in self.page.evaluate(shown)]


@pytest.fixture(scope="module")
def steward() -> Iterator[Steward]:
    with Steward() as listening:
        yield listening


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory, steward: Steward) -> Iterator[Clinic]:
    root = tmp_path_factory.mktemp("trial")
    data = {site: root / f"{site}.csv" for site in SITES}
    for site, path in data.items():
        write_table(path, site, wrong(patients(site)) if site == SITE else patients(site))
    keys = DataKeys("", id_column="pidnum", exclude=["cens"])
    asks: dict[str, Tables] = {SITE: {"policy": {"manual_approval": True}, "notify": {"url": steward.url}}}
    made = create_consortium(root / "clinic", LocalPlan("trial", data, keys, participants=asks))
    config = made.sites[SITE].directory / "participant.toml"
    try:
        start_consortium(made, lambda _: None)
        with running_console(config, free_ports(1)[0]) as link, chromium() as browser:
            await_answer(link)
            page = browser.page(link)
            page.until("location.pathname.endsWith('/proposals')")
            yield Clinic(made, page, page.evaluate("location.href").removesuffix("/proposals"))
    finally:
        stop_consortium(made, lambda _: None)


def test_a_clinician_goes_from_the_proposal_to_decisions_that_are_kept(
    clinic: Clinic, steward: Steward, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = clinic.propose("spring", capsys)
    clinic.approve(first, "Ada Byron")
    (notice,) = steward.told
    assert (notice["site"], notice["run"], notice["label"]) == (SITE, first, "spring")

    clinic.open("/findings")
    clinic.page.screenshot(tmp_path / "findings.png", whole=False)
    cards = clinic.findings()
    seen = [place for place, (_, said) in ERRORS.items() if _is_told(cards, *place, said)]
    assert len(seen) >= 8, (seen, cards)

    decided = {"B0012": "error", "B0031": "error", "B0110": "unsure", "B0063": "real"}
    for patient, verdict in decided.items():
        clinic.open(f"/findings?q={patient}")
        tab_to(clinic.page, "e.name === 'note'")
        write(clinic.page, "seen in the chart")
        tab_to(clinic.page, f"e.value === '{verdict}'")
        clinic.page.press("Enter", 13)
        clinic.page.until(
            f"document.body.innerText.includes('{verdict}, by Ada Byron')"
            if verdict != "real"
            else "document.querySelectorAll('.finding').length === 0 && location.search.includes('show=')"
        )
    kept = known_decisions(clinic.config.parent / "state")
    assert {place.sample: one.verdict for place, one in kept.items()} == decided

    tomorrow = patients(SITE)[200:230]
    tomorrow[7, FEATURES.index("wtkg")] *= 10
    write_table(tmp_path / "tomorrow.csv", SITE, tomorrow, first=900)
    options = ["--run", "latest", "--input", str(tmp_path / "tomorrow.csv"), "--report", str(tmp_path / "report.html")]
    with pytest.raises(SystemExit) as ended:
        main(["transform", "--config", str(clinic.config), *options])
    assert ended.value.code == 3
    clinic.open(f"/findings?run={first}/scored/tomorrow")
    assert _is_told(clinic.findings(), 907, "wtkg", "ten times too large")
    clinic.page.ask("Page.navigate", url=(tmp_path / "report.html").as_uri())
    clinic.page.until("document.title.startsWith('tomorrow.csv')")
    assert "B0907" in clinic.page.evaluate("document.body.innerText")

    corrected = wrong(patients(SITE))
    corrected[12] = patients(SITE)[12]
    write_table(clinic.consortium.directory.parent / f"{SITE}.csv", SITE, corrected)
    second = clinic.propose("summer", capsys)
    clinic.approve(second)
    log = clinic.consortium.sites[SITE].log.read_text().splitlines()
    (said,) = [line for line in log if "data_read_again" in line]
    assert "samples gone or changed: 1, new or changed: 1" in said
    clinic.open(f"/findings?run={second}")
    cards = clinic.findings()
    assert not any("B0063" in card for card in cards)  # real, and not shown again
    assert not any("B0012" in card for card in cards)  # corrected in the file, which was read anew
    assert any("B0031" in card and "error, by Ada Byron" in card and "seen in the chart" in card for card in cards)
    clinic.page.screenshot(tmp_path / "kept.png", whole=False)

    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main(["compare", first, "latest", "--config", str(clinic.config), "--json"])
    changed = json.loads(capsys.readouterr().out)
    assert ("B0012", "wtkg") in [(one["sample"], one["feature"]) for one in changed["lost"]]
    assert changed["kept"] >= 8
    with pytest.raises(SystemExit, match="0"):
        operate(["run", "compare", first, "latest", "--config", str(clinic.consortium.operator_config)])
    assert "rank 3, then 3; angles between the subspaces: " in capsys.readouterr().out


def _is_told(cards: list[str], patient: int, feature: str, said: str) -> bool:
    wanted = (f"B{patient:04}", feature, said)
    return any(all(word.lower() in card.lower() for word in wanted) for card in cards)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [380, 1280])
def test_the_worklist_of_a_real_run_fits(clinic: Clinic, width: int, dark: bool, tmp_path: Path) -> None:
    browser: Browser = clinic.page.browser
    page = browser.page(clinic.root + "/findings?show=all", width, dark=dark)
    page.until("document.querySelector('.finding')")
    page.screenshot(tmp_path / f"worklist-{width}-{dark}.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("[...document.querySelectorAll('button:not([hidden])')].every((e) => e.offsetHeight >= 24)")
