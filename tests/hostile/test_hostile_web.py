"""Hostile text on the web page in a browser: none acts, deceives or reveals a secret.

What the server sends is searched as it is on the wire, and the page is shown by a real Chromium.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.hostile.texts import HOSTILE, harm_in
from tests.hostile.tries import tried
from tests.integration.browser import Browser, a_browser
from tests.integration.web_pages import Served, request, served
from tests.unit.core.test_masking import forms
from tests.unit.ui.snapshots import NOW, SNAPSHOT, member
from training_monitor.core.values import Verdict
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSnapshot
from training_monitor.runs.values import MetricHistory, Run
from training_monitor.web.pages import id_of

MARKUP = (
    "<script>window.hit = 1</script>", "<img src=x onerror='window.hit=1'>", '"><svg onload="window.hit=1">',
    "</td></tr></table><iframe src='javascript:parent.hit=1'>", "</script><script>window.hit=1</script>",
    "<a href='javascript:window.hit=1'>x</a>", "{{constructor.constructor('window.hit=1')()}}", "&lt;b&gt;", "${hit=1}",
    "<style>body{display:none}</style>", "<base href='http://evil.example/'>", "__proto__", "constructor",
    "data: x\n\ndata: {\"whole\":true}\n\n", "\r\nSet-Cookie: a=b",
)  # fmt: skip
FORMS = {name: each for name, each in forms().items() if "private key" not in name}
SECRETS = {name: text for name, (_, text) in FORMS.items()}
TEXTS = [*MARKUP, *HOSTILE, *[*SECRETS.values()][::5]]  # a row each


def hostile(number: int, text: str) -> TrainingMetrics:
    verdict = Verdict(text, "failed", text, NOW, text, text, remedies=(text, text))
    return member(
        number, name=text, gpu_type=text, status=text, message=text, error=text, key=f"k{number} {text}",
        instance_id=text, groups=(text, "all"), recent_logs=deque([text, f"{text} " * 3]), job_status=text,
        extra={text: 1.0}, stale_since=NOW - 5 if number % 2 else None, verdict=verdict,
    )  # fmt: skip


class Hostile(MockFleet):
    """Says the texts wherever a fleet has a text."""

    rows = tuple(hostile(number, text) for number, text in enumerate(TEXTS))
    alerts = tuple(FleetAlert(NOW, row.key, text, text, text) for row, text in zip(rows, TEXTS))
    looks = 0

    def snapshot(self) -> FleetSnapshot:
        self.looks += 1
        error = TEXTS[self.looks % len(TEXTS)]
        return replace(SNAPSHOT, rows=self.rows, alerts=self.alerts, error=error, groups=("all", *MARKUP))

    def recent(self, key: str) -> tuple[FleetSample, ...]:
        return ()

    def read_run(self, key: str) -> Run:
        history = {text: MetricHistory((1, 2), (1.0, 2.0)) for text in TEXTS[:32]}
        return Run("", "", "", history=history, config=dict(zip(TEXTS, TEXTS)))


@pytest.fixture(scope="module")
def page() -> Iterator[Served]:
    with served(Hostile(), allow_write=True) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)


def test_what_goes_over_the_wire_neither_lies_nor_tells(page: Served) -> None:
    with page.events() as events:
        answers = [next(events)[1]]
    assert len(answers[0]["rows"]) == len(TEXTS)
    answers += [page.ask(f"/api/member?id={id_of(row.key)}").json for row in Hostile.rows]
    answers.append(page.ask(f"/api/run?id={id_of(Hostile.rows[0].key)}&width=640").json)
    answers.append(page.ask(f"/api/cost?begin={NOW - 3600}&end={NOW}&width=500&offset=0").json)
    secrets = [line for secret, _ in FORMS.values() for line in secret.splitlines()]
    for answer in answers:
        tried()
        assert [harm_in(text) for text in texts_in(answer) if harm_in(text)] == []
        said = json.dumps(answer)
        assert [secret for secret in secrets if secret in said] == []


def test_an_event_cannot_be_forged_by_a_text(page: Served) -> None:
    with page.connect() as connection:
        connection.sendall(request("/events", page.cookie, host=page.host))
        file = connection.makefile("rb")
        while file.readline().strip():
            pass
        lines = []
        while not lines or lines[-1] or len(lines) < 4:
            lines.append(file.readline().decode("ascii").rstrip("\n"))
    kinds = [line.partition(": ")[0] for line in lines if line]
    tried(len(TEXTS))
    assert kinds == ["retry", "id", "event", "data"]


def test_the_page_shows_them_as_texts(browser: Browser, page: Served) -> None:
    browser.open(f"http://{page.host}{page.links[-1]}")
    browser.wait("all are there", lambda: len(browser.all("tbody tr")) == len(TEXTS))
    browser.complaints()
    browser.addresses()
    views = ["#/", "#/alerts", "#/cost", *(f"#/member/{id_of(row.key)}" for row in Hostile.rows[: len(MARKUP)])]
    for view in views:
        tried()
        browser.run("location.hash = arguments[0]", view)
        if view.startswith("#/member"):
            browser.wait("its log", lambda: len(browser.text("pre").splitlines()) > 1)
            browser.wait("its charts", lambda: len(browser.all("svg.chart")) > 5)
        assert browser.run("return window.hit") is None
        strange = "script:not([src='/app.js']), iframe, base, style, img:not([src='/icon.svg']), object, embed"
        assert browser.all(strange) == [] and browser.run("return Object.prototype.whole") is None
        assert browser.run("return [...document.links].every((link) => link.getAttribute('href').startsWith('#'))")
        assert harm_in(browser.text().replace("\n", " ").replace("\t", " ")) == ""
    browser.run("location.hash = '#/'")
    browser.wait("they are shown as they are", lambda: MARKUP[0] in browser.text("tbody"))
    assert browser.complaints() == []
    assert all(url.startswith((f"http://{page.host}/", "data:", "about:")) for url in browser.addresses())


WAYS = """
const [address, done] = arguments;
const get = (path, options) => fetch(address + path, { credentials: "include", ...options })
  .then(() => "got", () => "no");
const load = (name, path) => new Promise((end) => {
  const node = document.createElement(name);
  Object.assign(node, { src: address + path, onload: () => end("got"), onerror: () => end("no") });
  document.body.append(node);
});
const events = new Promise((end) => {
  const source = new EventSource(`${address}/events`, { withCredentials: true });
  source.onmessage = source.onopen = () => end("got");
  source.onerror = () => { source.close(); end("no"); };
});
Promise.all([events, get("/api/me"), get("/api/act", { method: "POST", body: "{}" }), load("script", "/app.js"),
  load("img", "/icon.svg"), get("/api/cost", { mode: "no-cors" })]).then(done);
"""


class OtherSite(BaseHTTPRequestHandler):
    """Another page of this machine, with the same host name: a browser sends it the cookies of all ports."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><link rel=icon href='data:,'><body>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_page_of_another_site_gets_nothing(browser: Browser, page: Served) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherSite) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        browser.open(f"http://{page.host}{page.links[-1]}")  # somebody is signed in
        browser.one("tbody tr")
        for host in ("127.0.0.1", "localhost"):
            browser.open(f"http://{host}:{other.server_port}/")
            browser.statuses()
            said = browser.driver.execute_async_script(WAYS, f"http://{page.host}")
            tried(len(said))
            assert said[:5] == ["no"] * 5
            assert set(browser.statuses()) == {403}, host
        other.shutdown()
