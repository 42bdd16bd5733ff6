"""Names that are chosen by others, as a real Chromium shows them: they stay text, and change nothing around them.

Names of sites are not among them: certificates carry small letters, digits, hyphens and dots alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dcfpca.cli.main import main as operate
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.scaffold.local_consortium import free_ports
from dcfpca.spec import RunSpec
from participant.main import main
from participant.state.store import Store
from tests.integration.aggregator.test_dashboard import OPENED, SITES, Shown
from tests.integration.participant.test_console import await_answer
from tests.support.inputs import console_site
from tests.support.surroundings.browser import CHROMIUM, WHY_NOT, Browser, Page, chromium

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason=WHY_NOT)]

SCRIPT = "<script>window.hit=1</script><img src=x onerror=window.hit=1>"
TURNED = "\u202e\u2066live\x1b]0;owned\x07"
HOSTILE = f"{SCRIPT}{TURNED}"
HARM = r"""(() => {
  const all = document.documentElement.outerHTML + document.title;
  return [window.hit === 1 ? 'a script ran' : '',
    document.querySelector('[onerror], img[src=x], iframe, base') ? 'an element was made' : '',
    /[\u202a-\u202e\u2066-\u2069\u001b\u0007]/.test(all) ? 'signs that steer a display' : ''].join(''); })()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def check_harmless(page: Page) -> str:
    """What is read on the page, with everything unfolded."""
    page.evaluate(OPENED)
    assert page.evaluate(HARM) == ""
    return str(page.evaluate("document.body.innerText"))


def test_the_console_and_the_report_of_a_site_show_names_as_text(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = tuple(f"{name}{HOSTILE}" for name in console_site.FEATURES)
    plain, planted = console_site.ids, console_site.PLANTED
    monkeypatch.setattr(console_site, "FEATURES", features)
    monkeypatch.setattr(console_site, "ids", lambda count: [f"{one}{HOSTILE}" for one in plain(count)])
    monkeypatch.setattr(
        console_site, "PLANTED", {(f"{one}{HOSTILE}", f"{of}{HOSTILE}"): how for (one, of), how in planted.items()}
    )
    config = console_site.make_site(tmp_path)
    spec = RunSpec(rows=10, features=features, label=HOSTILE, participants=("a", "b", "c"), enrol_seconds=86400)
    store = Store(tmp_path / "state", tmp_path / "results")
    now = time.time_ns() // 1_000_000
    store.save_waiting(f"r{SCRIPT}", spec.canonical(), spec.digest(), False, now, f"because {HOSTILE}")
    store.close()
    with console_site.running_console(config, free_ports(1)[0]) as link:
        await_answer(link)
        page = browser.page(link)
        page.until("location.pathname.endsWith('/proposals')")
        root = urlsplit(link)._replace(path="", query="").geturl()
        waiting, read = [page.evaluate("location.href")], dict[str, str]()
        while waiting:
            address = waiting.pop()
            page.ask("Page.navigate", url=address)
            page.until("document.readyState === 'complete'")
            read[address] = check_harmless(page)
            linked = page.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.href.split('#')[0])")
            waiting += [one for one in dict.fromkeys(linked) if one.startswith(root) and one not in [*read, *waiting]]
            assert len(read) < 40
    assert len(read) >= 4
    assert any("<script>window.hit" in shown and "patient 055" in shown for shown in read.values())
    assert any("because <script>" in shown for shown in read.values())
    with pytest.raises(SystemExit, match="0"):
        main(["results", "--config", str(config), "--report", str(tmp_path / "site.html")])
    assert f"patient 055{SCRIPT}" in check_harmless(browser.page((tmp_path / "site.html").as_uri()))


def test_the_dashboard_and_the_report_of_a_run_show_its_label_and_features_as_text(
    tmp_path: Path, browser: Browser
) -> None:
    problem = generate(Recipe(rows=8, columns=90, rank=2, counts=(30, 30, 30)), 4)
    (tmp_path / "names.txt").write_text("\n".join(f"f{place}{SCRIPT}\u202e" for place in range(8)))
    table = {"data": {"feature_names": str(tmp_path / "names.txt")}}
    with Shown(tmp_path) as federation:
        federation.start_aggregator()
        for name, columns in zip(SITES, problem.sites(), strict=False):
            federation.add_site(name, columns.array, tables=table)
        federation.start_sites(SITES[:3])
        features = [f"f{place}{SCRIPT}\u202e" for place in range(8)]
        run = federation.run(max_rank=2, label=HOSTILE, participants=SITES[:3], features=features).run_id
        page = browser.page(federation.url("dashboard"))
        page.until("document.body.innerText.includes('<script>window.hit')")
        check_harmless(page)
        files, out = federation.files["op"], tmp_path / "report.html"
        connection = ["--aggregator", federation.address, "--ca", str(files.ca), "--cert", str(files.certificate)]
        with pytest.raises(SystemExit, match="0"):
            operate(["run", "report", run, "--out", str(out), *connection, "--key", str(files.key)])
    assert SCRIPT in check_harmless(browser.page(out.as_uri()))
