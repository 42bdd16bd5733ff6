"""Who may use the console: whoever has the link that the command printed, once; and only pages of the console itself.

Every user of this machine reaches loopback, and so does every page that a browser here shows. Against the former there
is the token, which opens one visit, and a path that nobody can guess: a browser sends cookies to every port of a host,
but only below their path. Against the latter the visit's cookie is not sent from other sites, every POST has a token
that only our own pages know, and names other than loopback's are not answered (DNS rebinding).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

VISIT_SECONDS = 12 * 3600.0
LARGEST_FORM = 64 << 10
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser says of our own forms that they come from nowhere
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CLOSED = "This link was used, or has expired. Call `dcfpca-participant console` again and open its link."


@dataclass(slots=True)
class Visit:
    """One browser; `name` is whoever decided last in it, so that it need not be written each time."""

    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    name: str = ""
    ends: float = field(default_factory=lambda: time.monotonic() + VISIT_SECONDS)


Form = Mapping[str, str]
Page = Callable[[Request, Visit], Awaitable[Response]]
Post = Callable[[Request, Visit, Form], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Gate:
    """Wraps every page of the console at one port."""

    def __init__(self, port: int, renewed: Callable[[str], None] | None = None) -> None:
        """`renewed` is told of the first link, and of the next one whenever one was used; without it there is one."""
        self._port, self._renewed = port, renewed
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"dcfpca-console-{port}"
        self.root = f"/{secrets.token_urlsafe(16)}"  # of every page; a server at another port is not sent the cookie
        self._visits: dict[str, Visit] = {}
        self._renew()

    def _renew(self) -> None:
        self._token = secrets.token_urlsafe(32)
        self.link = f"http://127.0.0.1:{self._port}/?token={self._token}"
        if self._renewed is not None:
            self._renewed(self.link)

    async def enter(self, request: Request) -> Response:
        """`/`: open a visit with the token, which is then used up; or go on with the one that is open."""
        if (refusal := self._misdirected(request)) is not None:
            return refusal
        entered = RedirectResponse(f"{self.root}/proposals", status_code=303, headers=HEADERS)
        given = request.query_params.get("token", "")
        if self._token and secrets.compare_digest(given.encode(), self._token.encode()):
            self._token, number = "", secrets.token_urlsafe(32)
            now = time.monotonic()
            self._visits = {key: visit for key, visit in self._visits.items() if visit.ends > now}
            self._visits[number] = Visit()
            if self._renewed is not None:
                self._renew()
            entered.set_cookie(self._cookie, number, httponly=True, samesite="strict", path=self.root)
            return entered
        return entered if self._visit(request) else _refused(_CLOSED)

    def page(self, show: Page) -> Endpoint:
        """A page that is shown to whoever came in by the link."""

        async def answer(request: Request) -> Response:
            if (refusal := self._misdirected(request)) is not None:
                return refusal
            if (visit := self._visit(request)) is None:
                return _refused(_CLOSED)
            return _sealed(await show(request, visit))

        return answer

    def post(self, act: Post) -> Endpoint:
        """A form that a page of this visit has sent."""

        async def answer(request: Request, visit: Visit) -> Response:
            if (
                request.headers.get("origin", f"http://{request.headers['host']}")
                != f"http://{request.headers['host']}"
            ):
                return _refused("This form was sent by another site.")
            form = await _form(request)
            if form is None or not secrets.compare_digest(form.get("csrf", "").encode(), visit.csrf.encode()):
                return _refused("This form is out of date: open the page again.")
            return await act(request, visit, form)

        return self.page(answer)

    def _misdirected(self, request: Request) -> Response | None:
        if request.headers.get("host", "").lower() in self._hosts:
            return None
        return PlainTextResponse("this page does not answer to that name\n", 421, HEADERS)

    def _visit(self, request: Request) -> Visit | None:
        found = self._visits.get(request.cookies.get(self._cookie, ""))
        return found if found is not None and found.ends > time.monotonic() else None


def _refused(sentence: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", 403, HEADERS)


def _sealed(response: Response) -> Response:
    response.headers.update(HEADERS)
    return response


async def _form(request: Request) -> Form | None:
    """The fields of a form; None if it is too large or not text."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_FORM:
            return None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        return None
