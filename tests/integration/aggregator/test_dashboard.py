"""The dashboard and the reports in a real Chromium, against a real run."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dcfpca.cli.main import main
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.scaffold.local_consortium import free_ports
from participant.main import main as participant_main
from tests.support.services.federation import Federation
from tests.support.surroundings.browser import CHROMIUM, WHY_NOT, Browser, Page, chromium

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason=WHY_NOT)]

SITES = ("site-a", "site-b", "site-c", "site-d")
ROWS = 40
TAB, ENTER = ("Tab", 9), ("Enter", 13)

# Contrast of every visible text against what lies behind it, by the formula of WCAG 2.
CONTRAST = """(() => {
  const light = (c) => { const v = c.match(/[\\d.]+/g).map(Number).slice(0, 3).map((x) => x / 255)
    .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126*v[0] + 0.7152*v[1] + 0.0722*v[2]; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    if (!e.checkVisibility() || e.matches('.skip')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 120)];
  }
  return worst; })()"""


OPENED = "([...document.querySelectorAll('details')].forEach((box) => { box.open = true; }), true)"
"""Opens everything that is folded."""


class Shown(Federation):
    """A federation whose aggregator shows its page and its metrics on free ports, always the same."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._metrics, self._page = (f"127.0.0.1:{port}" for port in free_ports(2))

    def aggregator_config(self, level: str = "debug") -> Path:
        path = super().aggregator_config(level)
        shown = path.read_text().replace('metrics = ""', f'metrics = "{self._metrics}"')
        path.write_text(shown.replace('[dashboard]\nlisten = ""', f'[dashboard]\nlisten = "{self._page}"'))
        return path

    def url(self, what: str) -> str:
        """Where the aggregator serves it."""
        return str(self.aggregator.await_action(f"{what}_served")["url"])


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    problem = generate(Recipe(rows=ROWS, columns=80, rank=3, counts=(20, 20, 20, 20)), 4)
    with Shown(tmp_path_factory.mktemp("shown")) as made:
        made.start_aggregator()
        for name, columns in zip(SITES, problem.sites(), strict=True):
            made.add_site(name, columns.array, private=name == "site-d", max_rounds=100 if name == "site-b" else 5000)
        made.start_sites(SITES)
        yield made


@pytest.fixture(scope="module")
def one_browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """The browser without the tabs of the test before."""
    yield one_browser
    one_browser.close_pages()


@pytest.fixture(scope="module")
def finished(federation: Shown) -> str:
    view = federation.run(max_rank=6, rounds=60, label="spring", export=True, enrol_seconds=5)
    federation.result("site-a", view.run_id)
    return view.run_id


def _chosen(page: Page, run: str) -> None:
    page.until(f"location.hash === '#run={run}' || document.querySelector('#run-body')?.innerText.includes('{run}')")


def test_a_run_is_seen_while_it_goes_on(federation: Shown, browser: Browser) -> None:
    page = browser.page(federation.url("dashboard"))
    page.until("document.querySelectorAll('#participants tr').length === 4")
    page.until("document.getElementById('line').textContent === 'live'")
    run = federation.propose(
        max_rank=6, rounds=2000, tolerance=0, label="endless", enrol_seconds=5, aggregation="plain"
    )
    page.until("document.querySelector('#run-title').innerText.includes('running')")
    page.until("document.querySelectorAll('#rounds tbody tr').length > 2")
    page.evaluate("window.seen = Number(document.querySelector('#rounds tbody td').textContent)")
    page.until("Number(document.querySelector('#rounds tbody td').textContent) > window.seen + 2")
    assert "site-b (enrolment): 2000 rounds are more than the 100" in page.evaluate(
        "document.querySelector('#refusals').innerText"
    )
    federation.operator.abort(run, "seen enough")
    page.until("document.querySelector('#run-title').innerText.includes('aborted')")
    assert "seen enough" in page.evaluate("document.querySelector('#reason').innerText")


def test_participants_are_shown_with_state_and_days_and_a_lost_one_as_away(federation: Shown, browser: Browser) -> None:
    page = browser.page(federation.url("dashboard"))
    page.until("document.querySelectorAll('#participants tr').length === 4")
    first = page.evaluate("document.querySelector('#participants tr').innerText")
    assert re.search(r"site-a\s+connected\s+30\s", first)
    federation.processes["site-c"].stop()
    page.until("document.querySelectorAll('#participants .away').length === 1")
    federation.start_sites(["site-c"])
    page.until("document.querySelectorAll('#participants .away').length === 0")


def test_the_page_finds_the_aggregator_again_after_a_restart(
    federation: Shown, browser: Browser, finished: str
) -> None:
    page = browser.page(federation.url("dashboard"))
    _chosen(page, finished)
    federation.aggregator.kill()
    page.until("!document.getElementById('line').classList.contains('live')")
    federation.start_aggregator()
    page.until("document.getElementById('line').textContent === 'live'")
    page.until("document.querySelectorAll('#rounds tbody tr').length > 2")
    for name in SITES:
        federation.processes[name].await_action("connected")


def test_nothing_private_to_a_site_is_on_the_page(federation: Shown, browser: Browser, finished: str) -> None:
    url = federation.url("dashboard")
    page = browser.page(f"{url}#run={finished}")
    page.until("document.querySelectorAll('#rounds tbody tr').length > 2")
    with urllib.request.urlopen(f"{url}events/{finished}") as stream:
        told = "".join(stream.readline().decode() for _ in range(5))
    assert "event: run" in told
    keys = set(re.findall(r'"(\w+)":', told))
    assert not keys & {"columns", "signature", "fingerprint", "update", "keys", "shares", "U", "V", "S", "L"}
    assert "site-d (private)" in page.evaluate("document.querySelector('.sites').innerText")


def test_the_verdict_and_the_curve_of_the_rank_are_shown_first(
    federation: Shown, browser: Browser, finished: str
) -> None:
    page = browser.page(f"{federation.url('dashboard')}#run={finished}")
    page.until("document.querySelector('#run-body').firstElementChild?.id === 'verdict'")
    assert page.evaluate("document.querySelector('#next').innerText").startswith("Next: ")
    assert page.evaluate("document.querySelector('.charts svg').getAttribute('aria-label')").startswith(
        "Error on hidden entries by rank; rank 3"
    )
    held = federation.operator.run(finished).rounds_held
    assert f"{held} of" in page.evaluate("document.querySelector('.tiles').innerText")
    assert not page.evaluate("document.querySelector('.details').checkVisibility()")


def test_a_countdown_says_what_happens_when(federation: Shown, browser: Browser) -> None:
    run = federation.propose(max_rank=6, rounds=5, enrol_seconds=300, participants=[*SITES, "site-e"], label="counted")
    page = browser.page(f"{federation.url('dashboard')}#run={run}")
    page.until("/^In [45] min: enrolment closes\\.$/.test(document.querySelector('#deadline')?.innerText)")
    federation.operator.abort(run, "seen enough")
    page.until("!document.querySelector('#deadline')")


def test_it_works_with_the_keyboard_alone(federation: Shown, browser: Browser, finished: str) -> None:
    other = federation.run(max_rank=6, rounds=5, label="other", enrol_seconds=5).run_id
    page = browser.page(federation.url("dashboard"))
    page.until("document.querySelectorAll('#runs a').length >= 2")
    _chosen(page, other)
    for _ in range(12):
        page.press(*TAB)
        if page.evaluate(f"document.activeElement.getAttribute('href') === '#run={finished}'"):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press(*ENTER)
    page.until(f"document.querySelector('#run-body').innerText.includes('{finished}')")
    assert page.evaluate("document.querySelector('#runs a[aria-current]').innerText").startswith("spring")


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_on_a_wide_screen_and_on_a_phone(
    federation: Shown, browser: Browser, finished: str, dark: bool, tmp_path: Path
) -> None:
    for width in (1280, 390):
        page = browser.page(f"{federation.url('dashboard')}#run={finished}", width, 900, dark=dark)
        page.until("document.querySelectorAll('#rounds tbody tr').length > 2")
        ratio, where = page.evaluate(CONTRAST)
        assert ratio >= 4.5, where
        assert page.evaluate(f"{OPENED} && document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every((s) => s.scrollWidth <= s.clientWidth)")
        assert page.evaluate("[...document.querySelectorAll('svg')].every((s) => s.getAttribute('aria-label'))")
        page.screenshot(tmp_path / f"{width}.png")
        assert (tmp_path / f"{width}.png").stat().st_size > 10_000


def test_the_runs_report_opens_by_itself_and_shows_the_rank(
    federation: Shown, browser: Browser, finished: str, tmp_path: Path
) -> None:
    files = federation.files["op"]
    out = tmp_path / "report.html"
    connection = ["--aggregator", federation.address, "--ca", str(files.ca), "--cert", str(files.certificate)]
    with pytest.raises(SystemExit) as ended:
        main(["run", "report", finished, "--out", str(out), *connection, "--key", str(files.key)])
    assert ended.value.code == 0
    page = browser.page(out.as_uri())
    assert re.search(r"rank found\s+3\s", page.evaluate("document.body.innerText"))
    assert page.evaluate("document.querySelectorAll('svg').length") >= 5
    assert page.evaluate("[...document.querySelectorAll('svg')].every((s) => s.getBoundingClientRect().height > 40)")
    for dark in (False, True):
        phone = browser.page(out.as_uri(), 390, dark=dark)
        assert phone.evaluate(CONTRAST)[0] >= 4.5
        assert phone.evaluate(f"{OPENED} && document.documentElement.scrollWidth <= innerWidth")
        assert phone.evaluate("[...document.querySelectorAll('.scroll')].every((s) => s.scrollWidth <= s.clientWidth)")


def test_the_sites_own_report_shows_its_pictures(
    federation: Shown, browser: Browser, finished: str, tmp_path: Path
) -> None:
    out, config = tmp_path / "site.html", federation.root / "sites" / "site-a" / "participant.toml"
    with pytest.raises(SystemExit) as ended:
        participant_main(["results", "--run", finished, "--report", str(out), "--config", str(config)])
    assert ended.value.code == 0
    page = browser.page(out.as_uri())
    sizes = page.evaluate("[...document.images].map((i) => [i.complete, i.naturalWidth, i.naturalHeight])")
    assert sizes == [[True, 20, ROWS]] * 2
    assert "For this site only" in page.evaluate("document.body.innerText")
    assert page.evaluate(CONTRAST)[0] >= 4.5
    for dark in (False, True):
        phone = browser.page(out.as_uri(), 390, dark=dark)
        assert phone.evaluate(CONTRAST)[0] >= 4.5
        assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_metrics_tell_the_finished_rounds(federation: Shown, finished: str) -> None:
    with urllib.request.urlopen(federation.url("metrics") + "metrics") as page:
        text = page.read().decode()
    assert re.search(r"^dcfpca_participants_connected 4\.0$", text, re.MULTILINE)
    assert re.search(r'^dcfpca_runs\{status="finished"\} [1-9]', text, re.MULTILINE)
    assert f'dcfpca_run_rank{{run="{finished}"}} 3.0' in text
    assert re.search(r"^dcfpca_store_bytes\{part=\"store\"\} [1-9]", text, re.MULTILINE)
