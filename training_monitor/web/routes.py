"""The addresses of the page and what each of them answers.

A request passes four doors, the cheap ones first: its host, its address and method, its site, its session.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from training_monitor.core.units import known_number
from training_monitor.web.access import Refused, is_act
from training_monitor.web.board import LEAST_SPAN, MOST_SPAN, Board
from training_monitor.web.charts import Window
from training_monitor.web.door import Door
from training_monitor.web.pages import ASKED, HEADS, rank_of
from training_monitor.web.stream import Feed

_FOLDER = os.path.join(os.path.dirname(__file__), "static")
_JSON, _HTML = "application/json", "text/html; charset=utf-8"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_WIDTHS, _MOST_OFFSET = (240, 4000), 15 * 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose head and body were read; the names of `headers` are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    session: str = ""


class Reply(NamedTuple):
    """A whole answer."""

    body: bytes
    kind: str = _JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Stream(NamedTuple):
    """An answer that goes on while its session is open: the events after a state's number."""

    number: int
    session: str


class Web(NamedTuple):
    """What the routes work with."""

    board: Board
    feed: Feed
    door: Door
    title: str


class Route(NamedTuple):
    """An address: `answers` by method. `public`: without a session; `linked`: other pages may lead here."""

    answers: Mapping[str, Callable[[Web, Request], Reply | Stream]]
    public: bool = False
    linked: bool = False


def answer(web: Web, request: Request) -> Reply | Stream:
    """Answer a request. Raises Refused."""
    host = request.headers.get("host")
    web.door.check_host(host)
    route = ROUTES.get(request.path)
    if route is None:
        raise Refused(404, "no page at this address")
    if request.method not in route.answers:
        raise Refused(405, f"this address accepts only {' and '.join(route.answers)} requests")
    if not (route.linked and request.method == "GET"):
        web.door.check_site(request.headers.get("origin"), request.headers.get("sec-fetch-site"), host)
    if not route.public:
        request = replace(request, session=_session(web, request))
    return route.answers[request.method](web, request)


def parse_target(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Request:
    """Return the request for a target such as /api/member?id=1. Raises Refused for one of another form."""
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        raise Refused(400, "expected a path")
    try:
        values = dict(parse_qsl(query, strict_parsing=bool(query), max_num_fields=8))
    except ValueError:
        raise Refused(400, "the query string (after the ?) must have the form NAME=VALUE&NAME=VALUE") from None
    return Request(method, path, values, headers, body)


def json_reply(value: Mapping[str, Any], status: int = 200) -> Reply:
    """Return a JSON answer."""
    return Reply(json.dumps(value).encode(), status=status)


def error_reply(refused: Refused) -> Reply:
    """Return the short JSON answer of a refused request."""
    return json_reply({"error": refused.error}, refused.status)


# ---------------------------------------------------------------- the page, and signing in


def _page(web: Web, request: Request) -> Reply:
    try:
        session = _session(web, request)
    except Refused:
        return _redirect("/open")
    page = _file("index.html", _HTML).body.replace(b"FORGERY_TOKEN", web.door.forgery_token(session).encode())
    by_person = is_act(request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-user"))
    return Reply(page, _HTML, headers=web.door.renew(session) if by_person else ())


def _session(web: Web, request: Request) -> str:
    """Return the session of a request. Raises Refused without one."""
    return web.door.session(request.headers.get("cookie"), request.headers.get("authorization"))


def _open(web: Web, request: Request) -> Reply:
    if "once" not in request.query:
        return _open_page(web)
    try:
        return _redirect("/", ("Set-Cookie", web.door.open_by_link(request.query["once"])))
    except Refused as refused:
        is_known = web.door.is_signed_in(request.headers.get("cookie"), request.headers.get("authorization"))
        return _redirect("/") if is_known else _open_page(web, refused)


def _sign_in(web: Web, request: Request) -> Reply:
    """Sign in by the form; a browser gets the form again after a wrong token."""
    try:
        return _redirect("/", ("Set-Cookie", web.door.open_by_token(_typed(request.body, "token"))))
    except Refused as refused:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return _open_page(web, refused)


def _sign_out(web: Web, request: Request) -> Reply:
    """End the session by the form of the page, which needs no script."""
    try:
        session = _session(web, request)
    except Refused:
        return _redirect("/open")
    web.door.check_forgery(session, _typed(request.body, "forgery_token"))
    return _redirect("/open", ("Set-Cookie", web.door.sign_out(session)))


def _typed(body: bytes, name: str) -> str:
    """Return a field of a form. Raises Refused."""
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=8)).get(name, "")
    except ValueError:
        raise Refused(400, "The form has too many fields.") from None


def _open_page(web: Web, refused: Refused | None = None) -> Reply:
    """Return the page that says how to sign in here, and why it was refused just now."""
    way = _file("open_link.html" if web.door.token is None else "open_token.html", _HTML).body
    told = f'<p class="refused" role="alert">{escape(refused.error)}</p>' if refused else ""
    page = _file("open.html", _HTML).body.replace(b"<!-- refused -->", told.encode()).replace(b"<!-- way -->", way)
    return Reply(page, _HTML, refused.status if refused else 200)


def _redirect(path: str, *headers: tuple[str, str]) -> Reply:
    return Reply(b"", status=303, headers=(("Location", path), *headers))


def _static(name: str, kind: str) -> Route:
    return Route({"GET": lambda web, request: _file(name, kind)}, public=True)


@cache
def _file(name: str, kind: str) -> Reply:
    with open(os.path.join(_FOLDER, name), "rb") as file:
        return Reply(file.read(), kind)


# ---------------------------------------------------------------- what the page asks for


def _me(web: Web, request: Request) -> Reply:
    columns = [
        {"title": title, "meaning": meaning, "number": each.align == ">", "rank": rank_of(each), "name": each.title}
        for (_, title, meaning, _), each in HEADS
    ]
    return json_reply(
        {
            "title": web.title,
            "columns": columns,
            "asked": ASKED,
            "allow_write": web.board.allow_write,
            "forgery_token": web.door.forgery_token(request.session),
        }
    )


def _events(web: Web, request: Request) -> Stream:
    return Stream(web.feed.number_of(request.headers.get("last-event-id")), request.session)


def _series(web: Web, request: Request) -> Reply:
    return json_reply(web.board.series(request.query.get("id", ""), _window(request.query)))


def _run(web: Web, request: Request) -> Reply:
    return json_reply(web.board.run(request.query.get("id", ""), int(_number(request.query, "width", *_WIDTHS))))


def _act(web: Web, request: Request) -> Reply:
    asked = _asked(web, request)
    web.board.act(asked.get("action"), asked.get("id"), asked.get("phrase"))
    return json_reply({"requested": True}, 202)


def _note_act(web: Web, request: Request) -> Reply:
    """Keep the session open: a person clicked or pressed a key."""
    _asked(web, request)
    return json_reply({"noted": True})._replace(headers=web.door.renew(request.session))


def _acknowledge(web: Web, request: Request) -> Reply:
    web.board.acknowledge(_asked(web, request).get("event"))
    return json_reply({"acknowledged": True})


def _asked(web: Web, request: Request) -> dict[str, Any]:
    """Return the JSON object of a request that changes something. Raises Refused."""
    web.door.check_forgery(request.session, request.headers.get("x-forgery-token"))
    try:
        asked = json.loads(request.body)
    except (ValueError, RecursionError):
        raise Refused(400, "the request body is not JSON") from None
    if not isinstance(asked, dict):
        raise Refused(400, "expected a JSON object")
    return asked


def _window(query: Mapping[str, str]) -> Window:
    """Return the time and size of a chart as asked for. Raises Refused."""
    begin, end = _number(query, "begin", 0.0, 1e11), _number(query, "end", 0.0, 1e11)
    if not LEAST_SPAN <= end - begin <= MOST_SPAN:
        raise Refused(400, f"expected a time span from {LEAST_SPAN:.0f} s to {MOST_SPAN / 86_400:.0f} days")
    width = int(_number(query, "width", *_WIDTHS))
    return Window(begin, end, width, utc_offset=_number(query, "offset", -_MOST_OFFSET, _MOST_OFFSET))


def _number(query: Mapping[str, str], name: str, least: float, most: float) -> float:
    try:
        value = known_number(float(query.get(name, "")))
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise Refused(400, f"{name}: expected a number from {least:g} to {most:g}")
    return value


ROUTES: dict[str, Route] = {
    "/": Route({"GET": _page}, public=True, linked=True),
    "/open": Route({"GET": _open, "POST": _sign_in}, public=True, linked=True),
    "/sign-out": Route({"POST": _sign_out}, public=True),
    "/app.js": _static("app.js", "text/javascript; charset=utf-8"),
    "/style.css": _static("style.css", "text/css; charset=utf-8"),
    "/icon.svg": _static("icon.svg", "image/svg+xml"),
    "/events": Route({"GET": _events}),
    "/api/me": Route({"GET": _me}),
    "/api/member": Route({"GET": lambda web, request: json_reply(web.board.member(request.query.get("id", "")))}),
    "/api/series": Route({"GET": _series}),
    "/api/run": Route({"GET": _run}),
    "/api/cost": Route({"GET": lambda web, request: json_reply(web.board.cost(_window(request.query)))}),
    "/api/queue": Route({"GET": lambda web, request: json_reply(web.board.queue())}),
    "/metrics": Route({"GET": lambda web, request: Reply(web.board.metrics().encode("utf-8", "replace"), _PROMETHEUS)}),
    "/api/act": Route({"POST": _act}),
    "/api/acknowledge": Route({"POST": _acknowledge}),
    "/api/note-act": Route({"POST": _note_act}),
}
