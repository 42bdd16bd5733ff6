"""The console as people use it, in a real browser by keyboard alone, and against those who must not use it."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from dcfpca.errors import BadInput
from dcfpca.python_api.result_files import read_table
from dcfpca.scaffold.local_consortium import free_ports
from participant.config import load_config
from participant.console.app import LINK, console_beside
from participant.findings.decisions import Decisions
from participant.findings.worklist import matching, read_worklist
from participant.main import main
from participant.state.ledger import verify
from participant.state.store import Store
from tests.support.inputs.console_site import PLANTED, make_site, patients, running_console, write_run
from tests.support.surroundings.browser import CHROMIUM, WHY_NOT, Browser, Page, chromium

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(not CHROMIUM, reason=WHY_NOT)
Answer = tuple[http.client.HTTPResponse, str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_site(tmp_path_factory.mktemp("site"))


@pytest.fixture
def console(template: Path) -> Iterator[tuple[Path, str]]:
    with running_console(template, free_ports(1)[0]) as link:
        await_answer(link)
        yield template.parent, link


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def await_answer(link: str) -> None:
    """Until the port is open."""
    where, end = urlsplit(link), time.monotonic() + 30
    while True:
        try:
            socket.create_connection((where.hostname, where.port), 1).close()
            return
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def ask(link: str, path: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(link).port or 0, timeout=10)
    with closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()


def entered(link: str) -> tuple[str, dict[str, str]]:
    """The path of all pages and the cookie of a session."""
    answer, _ = ask(link, f"/?{urlsplit(link).query}")
    root = str(answer.getheader("location")).removesuffix("/proposals")
    return root, {"Cookie": str(answer.getheader("set-cookie")).partition(";")[0]}


def test_nobody_gets_in_without_the_link_and_the_link_works_once(console: tuple[Path, str]) -> None:
    _, link = console
    for path in ("/", "/?token=guess"):
        assert ask(link, path)[0].status == 403, path
    for path in ("/proposals", "/findings", "/ledger", "/decisions.csv"):
        assert ask(link, path)[0].status == 404, path
    first, _ = ask(link, f"/?{urlsplit(link).query}")
    cookie, root = str(first.getheader("set-cookie")), str(first.getheader("location")).removesuffix("/proposals")
    assert (first.status, len(root) > 20) == (303, True)
    assert {"HttpOnly", "SameSite=strict", f"Path={root}"} <= {part.strip() for part in cookie.split(";")}
    assert ask(link, f"{root}/proposals")[0].status == 403
    assert ask(link, f"/?{urlsplit(link).query}")[0].status == 403
    shown, text = ask(link, f"{root}/proposals", Cookie=cookie.partition(";")[0])
    assert (shown.status, "ACTG autumn" in text) == (200, True)
    policy = str(shown.getheader("content-security-policy"))
    assert "default-src 'none'" in policy
    assert "script" not in policy.replace("default-src", "")
    assert "<script" not in text


def test_another_host_name_another_site_and_a_form_without_its_token_are_refused(console: tuple[Path, str]) -> None:
    root, link = console
    root_path, cookie = entered(link)
    assert ask(link, f"{root_path}/proposals", Host="evil.example:80", **cookie)[0].status == 421
    form = urlencode({"name": "Eve", "expires": "7d"})
    before = len(list(Store(root / "state").ledger.entries()))
    assert ask(link, f"{root_path}/proposals/autumn/approve", "POST", form, **cookie)[0].status == 403
    assert ask(link, f"{root_path}/proposals/autumn/approve", "POST", form + "&csrf=x", **cookie)[0].status == 403
    csrf = ask(link, f"{root_path}/proposals", **cookie)[1].partition('name="csrf" value="')[2].partition('"')[0]
    whole = f"{form}&{urlencode({'csrf': csrf})}"
    foreign = ask(link, f"{root_path}/proposals/autumn/approve", "POST", whole, Origin="http://evil.example", **cookie)
    assert foreign[0].status == 403
    assert ask(link, f"{root_path}/proposals/autumn/approve", "GET", **cookie)[0].status == 405
    assert ask(link, f"{root_path}/findings", "POST", "x" * 100_000, **cookie)[0].status == 403
    assert len(list(Store(root / "state").ledger.entries())) == before


def test_the_daemons_console_has_another_link_after_each_use_for_its_user_alone(
    template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, port = template.read_text(), free_ports(1)[0]
    config = template.with_name("with-console.toml")
    config.write_text(f'{text}[console]\nlisten = "127.0.0.1:{port}"\n')
    kept = template.parent / "state" / LINK
    with console_beside(load_config(config)):
        assert kept.stat().st_mode & 0o777 == 0o600
        with pytest.raises(SystemExit):
            main(["console", "--config", str(config)])  # prints the link, and starts no second one
        first = kept.read_text().strip()
        assert first in capsys.readouterr().out
        await_answer(first)
        root, cookie = entered(first)
        assert ask(first, f"{root}/proposals", **cookie)[0].status == 200
        second = kept.read_text().strip()
        assert second != first
        assert ask(first, f"/?{urlsplit(first).query}")[0].status == 403
        assert ask(second, f"/?{urlsplit(second).query}")[0].status == 303
        with pytest.raises(BadInput, match="cannot listen at"), console_beside(load_config(config)):
            pass
    assert not kept.exists()
    config.write_text(f'{text}[console]\nlisten = "0.0.0.0:{port}"\n')
    with pytest.raises(BadInput, match="tunnel to it"):
        load_config(config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "nope"], "there is no result of run nope"),
        (["ledger", "--run", "nope"], "the ledger has no entry of a run nope"),
        (["approve", "winter", "--by", "me", "--like", "forever"], "--like forever is not a duration"),
        (["transform", "--run", "spring", "--input", "nofile.csv"], "check the path (--input"),
        (["console", "--port", "BUSY"], "the console cannot listen at 127.0.0.1"),
    ],
)
def test_a_mistake_is_answered_with_what_to_change(
    template: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        given = [str(busy.getsockname()[1]) if one == "BUSY" else one for one in arguments]
        with pytest.raises(SystemExit) as ended:
            main([*given, "--config", str(template)])
    assert ended.value.code
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out  # no link to a page that is not there


@needs_browser
def test_a_server_of_another_user_at_another_port_is_not_sent_the_cookie(
    console: tuple[Path, str], browser: Browser
) -> None:
    _, link = console
    page = browser.page(link)
    page.until("location.pathname.endsWith('/proposals')")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        page.evaluate(f"void (location.href = 'http://127.0.0.1:{listener.getsockname()[1]}/proposals')")
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(20)
            asked = peer.recv(1 << 16).decode().lower()
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert asked.startswith("get /proposals")
    assert "cookie" not in asked


def test_a_decision_about_what_is_not_in_the_list_is_not_kept(console: tuple[Path, str]) -> None:
    root, link = console
    root_path, cookie = entered(link)
    csrf = ask(link, f"{root_path}/ledger", **cookie)[1].partition('name="csrf" value="')[2].partition('"')[0]
    form = {"csrf": csrf, "name": "Ada", "verdict": "real", "run": "../state", "sample": "patient 003"}
    answer, text = ask(link, f"{root_path}/findings", "POST", urlencode(form), **cookie)
    assert (answer.status, "Nothing was kept" in text) == (200, True)
    assert not Decisions(root / "state").all()


def tab_to(page: Page, wanted: str, most: int = 80) -> None:
    """Press Tab until the focus is on what the expression says of `document.activeElement` as `e`."""
    for _ in range(most):
        page.press("Tab", 9)
        if page.evaluate(f"((e) => {wanted})(document.activeElement)"):
            return
    raise AssertionError(f"Tab does not lead to {wanted}")


def write(page: Page, text: str) -> None:
    page.ask("Input.insertText", text=text)


@needs_browser
def test_a_steward_approves_declines_decides_and_verifies_by_keyboard_alone(
    console: tuple[Path, str], browser: Browser
) -> None:
    root, link = console
    page = browser.page(link)
    page.until("location.pathname.endsWith('/proposals')")
    assert "only the sum over all sites" in page.evaluate("document.body.innerText")
    tab_to(page, "e.name === 'name' && e.form.action.endsWith('autumn/approve')")
    write(page, "Ada Byron")
    tab_to(page, "e.innerText === 'Approve'")
    page.press("Enter", 13)
    page.until("document.body.innerText.includes('Run autumn is approved by Ada Byron')")
    tab_to(page, "e.name === 'reason' && e.form.action.endsWith('winter/decline')")
    write(page, "no ethics vote")
    page.press("Enter", 13)
    page.until("document.body.innerText.includes('Run winter is declined')")
    tab_to(page, "e.innerText === 'Findings'")
    page.press("Enter", 13)
    page.until("location.pathname.endsWith('/findings')")
    first = page.evaluate("[...document.querySelectorAll('.finding')].slice(0, 8).map((e) => e.innerText)")
    for (sample, feature), (_, said) in PLANTED.items():
        assert any(sample in one and feature in one and said in one.lower() for one in first), (sample, feature)
    tab_to(page, "e.type === 'search'")
    write(page, "patient 041")
    page.press("Enter", 13)
    page.until("location.search.includes('041')")
    assert page.evaluate("document.querySelectorAll('.finding').length") == 1
    tab_to(page, "e.name === 'note'")
    write(page, "typed twice")
    tab_to(page, "e.value === 'error'")
    page.press("Enter", 13)
    page.until("document.body.innerText.includes('error, by Ada Byron')")
    tab_to(page, "e.innerText === 'Ledger'")
    page.press("Enter", 13)
    page.until("location.pathname.endsWith('/ledger')")
    tab_to(page, "e.innerText === 'Verify the chain'")
    page.press("Enter", 13)
    page.until("/chain of \\d+ entries is whole/.test(document.body.innerText)")
    entries = list(Store(root / "state").ledger.entries())
    verify(entries)
    assert [(one.item.kind, one.item.run_id) for one in entries] == [("approval", "autumn"), ("declined", "winter")]


@needs_browser
def test_what_is_confirmed_as_real_is_not_shown_again_until_its_value_changes(
    console: tuple[Path, str], browser: Browser
) -> None:
    root, link = console
    page = browser.page(f"{link}")
    page.until("location.pathname.endsWith('/proposals')")
    page.ask("Page.navigate", url=page.evaluate("location.href").rpartition("/")[0] + "/findings")
    page.until("location.pathname.endsWith('/findings') && document.querySelector('.finding')")
    tab_to(page, "e.name === 'name'")
    write(page, "Ada")
    page.press("Enter", 13)
    page.until("document.body.innerText.includes('Change')")
    page.ask("Page.navigate", url=page.evaluate("location.href").rpartition("/")[0] + "/findings?q=patient+017+height")
    page.until("location.search.includes('017') && document.querySelector('.finding')")
    tab_to(page, "e.name === 'note'")
    page.press("Enter", 13)  # a note is no decision
    assert not any(place.sample == "patient 017" for place in Decisions(root / "state").all())
    tab_to(page, "e.value === 'real'")
    page.press("Enter", 13)
    page.until("document.querySelectorAll('.finding').length === 0 && document.readyState === 'complete'")
    decided = Decisions(root / "state")
    exported = root / "decisions.csv"
    exported.unlink(missing_ok=True)
    decided.export(exported)
    assert "real" in read_table(exported)["decision"].tolist()
    again, M = decided.all(), patients()
    own = M[:, :200].copy()
    own[2, 17] = round(float(own[2, 17] / 10.0), 3)
    write_run(root / "again", "spring", own, M[:, 200:])
    names = [(one.sample, one.feature) for one in matching(read_worklist(root / "again" / "results" / "spring", again))]
    assert ("patient 017", "height") not in names
    own[2, 17] = 18.0
    write_run(root / "changed", "spring", own, M[:, 200:])
    found = matching(read_worklist(root / "changed" / "results" / "spring", again))
    assert ("patient 017", "height") in [(one.sample, one.feature) for one in found]


def test_results_begin_with_the_verdict_and_the_worst_by_name(
    template: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="0"):
        main(["results", "--config", str(template)])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("run spring: ")
    table = "\n".join(shown[:16])
    assert "patient 055" in table
    assert "a hundred times too large: 15.3 was meant" in table


def test_transform_of_tomorrows_samples_ends_with_3_if_one_is_flagged_and_with_0_if_none(
    template: Path, tmp_path: Path
) -> None:
    header, *lines = (template.parent / "data.csv").read_text().splitlines()
    files = {"odd": lines[:10], "ordinary": lines[5:15]}  # patient 003 has a planted error
    ended = dict[str, int | str | None]()
    for name, chosen in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *chosen]) + "\n")
        options = ["--run", "spring", "--input", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / name)]
        with pytest.raises(SystemExit) as exit:
            main(["transform", "--config", str(template), *options])
        ended[name] = exit.value.code
    assert ended == {"odd": 3, "ordinary": 0}
    (found,) = read_worklist(tmp_path / "odd")
    assert (found.sample, found.feature, found.cause) == ("patient 003", "weight", "ten times too large")


@needs_browser
def test_the_report_lists_everything_that_is_flagged_and_finds_it_by_id_and_cause(
    template: Path, browser: Browser
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["results", "--config", str(template), "--report", str(template.parent / "site.html"), "--force"])
    page = browser.page((template.parent / "site.html").as_uri())
    for text, lines in (("patient 055", 1), ("the sign", 1), ("ten times too", 3), ("nobody", 0)):
        page.evaluate(f"search.value = '{text}'; search.dispatchEvent(new Event('input'))")
        shown = "[...document.querySelectorAll('details tr[data-text]')].filter((e) => e.offsetHeight).length"
        assert page.evaluate(shown) == lines, text
        assert f"{lines} lines of the list" in page.evaluate("matches.innerText")


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [380, 1280])
def test_no_page_is_cut_off_on_a_phone_or_in_the_dark(
    console: tuple[Path, str], browser: Browser, width: int, dark: bool, tmp_path: Path
) -> None:
    _, link = console
    page = browser.page(link, width, dark=dark)
    page.until("location.pathname.endsWith('/proposals')")
    for name in ("proposals", "runs", "findings", "ledger"):
        page.ask("Page.navigate", url=link.partition("/?")[0] + f"/{name}")
        page.until(f"location.pathname.endsWith('/{name}') && document.readyState === 'complete'")
        page.screenshot(tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        small = "[...document.querySelectorAll('button, input:not([type=hidden]), select')]"
        assert page.evaluate(f"{small}.every((e) => e.hidden || e.offsetHeight >= 24)"), name
