"""A real headless Chromium, spoken to over its own debugging pipe: no driver, no network port, no extra package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
WHY_NOT = "no Chromium here: `apt-get install chromium`, as .ci/run does"

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
          "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe")  # fmt: skip


class Browser:
    """The process and its pipe. Commands are answered in order of their numbers; events are left aside."""

    def __init__(self, profile: str) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        redirect = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._pages: list[str] = []
        self._left = b""
        self._number = 0

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The result of one command of the DevTools protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError(f"chromium ended with {self._process.wait()}")
            self._left += piece
        first, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def page(self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False) -> Page:
        """A new tab of this size at this address."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._pages.append(target)
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.ask("Emulation.setEmulatedMedia", features=scheme)
        page.ask("Page.enable")
        page.ask("Page.navigate", url=url)
        page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def close_pages(self) -> None:
        """Close every tab."""
        while self._pages:
            self.ask("Target.closeTarget", targetId=self._pages.pop())

    def close(self) -> None:
        """End the process."""
        os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)


@dataclass(frozen=True, slots=True)
class Page:
    """One tab."""

    browser: Browser
    session: str

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **parameters)

    def evaluate(self, script: str) -> Any:
        """The value of an expression or promise in the page; an exception there is one here."""
        got = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise AssertionError(got["exceptionDetails"].get("exception", got["exceptionDetails"]))
        return got["result"].get("value")

    def until(self, condition: str, seconds: float = 30) -> None:
        """Wait in the page until the condition holds; what is there instead is shown when it does not."""
        script = (
            f"new Promise((done) => {{ const end = Date.now() + {seconds * 1000}; const look = () => {{"
            f"if (document.body && ({condition})) done('');"
            f"else if (Date.now() > end) done(document.body ? document.body.innerText : 'no page');"
            f"else setTimeout(look, 30); }}; look(); }})"
        )
        while True:
            try:
                instead = self.evaluate(script)
                break
            except RuntimeError as error:
                if "navigated" not in str(error) and "context" not in str(error):
                    raise
                # The page that was looked at has given way to the next: look there.
        assert not instead, f"not so after {seconds} s: {condition}\n{instead}"

    def press(self, key: str, code: int) -> None:
        """One key, down and up."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page, for people to look at."""
        got = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(got["data"]))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own, ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            yield browser
        finally:
            browser.close()
