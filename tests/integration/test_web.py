"""The web page over real sockets: who gets what, and that nobody who misbehaves costs the others anything."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import wait_until
from tests.integration.web_pages import KEY, PATIENCE, TOKEN, Served, command, read_answer, read_events, request, served
from training_monitor.core.store import Store
from training_monitor.fleet.config import parse_member
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import FleetSample
from training_monitor.web import server as limits
from training_monitor.web.pages import id_of
from training_monitor.web.routes import ROUTES

MEMBERS, BROWSERS = 500, 8


@pytest.fixture(scope="module")
def page() -> Iterator[Served]:
    with served() as found:
        yield found


# ---------------------------------------------------------------- signing in


def test_a_link_signs_in_once_and_the_next_one_is_offered(page: Served) -> None:
    link = page.links[-1]
    opened = page.ask_stranger(link)
    assert (opened.status, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and cookie.startswith(f"training_monitor_{page.port}=")
    assert page.ask_stranger("/api/me", f"Cookie: {cookie.partition(';')[0]}").status == 200
    again = page.ask_stranger(link)
    assert again.status == 403 and "set-cookie" not in again.headers and page.links[-1] != link


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_used_or_wrong_link_leads_to_the_page_or_to_the_sign_in(token: str | None) -> None:
    with served(token=token) as page:
        used = page.links[-1]
        page.ask_stranger(used)
        usual = page.ask_stranger("/open")
        assert usual.status == 200 and b'role="alert"' not in usual.body and b"<!--" not in usual.body
        for link in (used, "/open?once=wrong"):
            strange = page.ask_stranger(link)
            assert strange.status == 403 and strange.headers["content-type"].startswith("text/html")
            assert b'role="alert">This link has already been used, or was never valid.' in strange.body
            known = page.ask(link)
            assert (known.status, known.headers["location"]) == (303, "/") and "set-cookie" not in known.headers


def test_a_stranger_is_led_to_the_sign_in_and_gets_nothing_else(page: Served) -> None:
    assert page.ask_stranger("/").headers["location"] == "/open"
    assert b"the terminal" in page.ask_stranger("/open").body
    private = [path for path, route in ROUTES.items() if not route.public]
    assert "/events" in private and "/api/act" in private and "/api/member" in private
    for path in private:
        method = next(iter(ROUTES[path].answers))
        answer = page.ask_stranger(path, method=method)
        assert (answer.status, answer.json) == (401, {"error": "not signed in"}), path


def test_a_token_signs_in_by_form_and_as_a_bearer() -> None:
    with served(token=TOKEN) as page:
        assert b'type="password"' in page.ask_stranger("/open").body
        for body, status in ((b"token=wrong", 403), (b"", 403), (f"token={TOKEN}".encode(), 303)):
            answer = page.ask_stranger("/open", f"Origin: http://{page.host}", method="POST", body=body)
            assert answer.status == status and ("set-cookie" in answer.headers) == (status == 303)
        assert page.ask_stranger("/api/me", f"Authorization: Bearer {TOKEN}").status == 200
        wrong = page.ask_stranger("/api/me", f"Authorization: Bearer {TOKEN}x")
        assert (wrong.status, wrong.json) == (401, {"error": "wrong token"})


def test_after_a_wrong_token_a_browser_gets_the_form_again_and_a_program_json() -> None:
    with served(token=TOKEN) as page:
        for body, status, said in (
            (b"token=<b>wrong</b>", 403, "This token is wrong."),
            (b"a=1&" * 9 + b"token=x", 400, "The form has too many fields."),
        ):
            seen = page.ask_stranger("/open", "Accept: text/html,*/*;q=0.8", method="POST", body=body)
            assert seen.status == status and seen.headers["content-type"].startswith("text/html")
            assert f'role="alert">{said}</p>'.encode() in seen.body and b'type="password"' in seen.body
            assert b"wrong</b>" not in seen.body and TOKEN.encode() not in seen.body
            assert "set-cookie" not in seen.headers
            for headers in ((), ("Accept: */*",), ("Accept: application/json",)):
                program = page.ask_stranger("/open", *headers, method="POST", body=body)
                assert (program.status, program.json) == (status, {"error": said})
        foreign = ("Origin: http://evil.example", "Accept: text/html")
        assert page.ask_stranger("/open", *foreign, method="POST", body=b"token=x").json.keys() == {"error"}


def test_without_a_token_no_bearer_is_right(page: Served) -> None:
    for token in ("", "None", TOKEN):
        assert page.ask("/api/me", f"Authorization: Bearer {token}").status == 401


# ---------------------------------------------------------------- who may ask


def test_other_sites_and_other_host_names_get_nothing(page: Served) -> None:
    evil = ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: null")
    for header in evil:
        for path in ("/events", "/api/me", "/api/member?id=0", "/app.js"):
            answer = page.ask(path, header)
            assert (answer.status, [*answer.json]) == (403, ["error"]), (path, header)
        assert page.ask("/api/act", header, method="POST", body=b"{}").status == 403
        assert page.ask("/open", header, method="POST", body=b"token=x").status == 403
    for host in ("evil.example", f"evil.example:{page.port}", "127.0.0.1.evil.example", "localhost.", "", "10.0.0.1"):
        status = page.ask("/api/me", host=host or " ").status
        assert status == (200 if host == "localhost." else 421), host
    assert all(page.ask("/api/me", host=host).status == 200 for host in ("localhost", "[::1]:9000", "LocalHost:1"))


def test_every_answer_has_the_headers_that_keep_others_out(page: Served) -> None:
    for path in ("/", "/app.js", "/api/me", "/nowhere"):
        headers = page.ask(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert "unsafe" not in headers["content-security-policy"]


def test_nonsense_gets_a_short_json_error(page: Served) -> None:
    cookie, host = page.cookie, f"Host: {page.host}"
    head = f"GET /api/me HTTP/1.1\r\n{host}\r\n"
    cases: list[tuple[bytes, int]] = [
        (request("/nowhere", cookie, host=page.host), 404),
        (request("/static/../../etc/passwd", cookie, host=page.host), 404),
        (request("//evil.example/", cookie, host=page.host), 404),
        (request("http://evil.example/api/me", cookie, host=page.host), 400),
        (request("/api/me", cookie, method="DELETE", host=page.host), 405),
        (request("/api/me", cookie, method="POST", body=b"{}", host=page.host), 405),
        (request("/api/act", cookie, host=page.host), 405),
        (request("/api/me?x", cookie, host=page.host), 400),
        (request("/api/me?" + "&".join(["a=1"] * 50), cookie, host=page.host), 400),
        (b"GET /api/me HTTP/1.1\r\n\r\n", 400),
        (b"GET /api/me\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /api/me HTTP/9.9\r\n\r\n", 505),
        (f"{head}{host}\r\n\r\n".encode(), 400),
        (f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(), 411),
        (f"{head}Content-Length: -1\r\n\r\n".encode(), 400),
        (f"{head}Content-Length: 1\r\nContent-Length: 1\r\n\r\nx".encode(), 400),
        (f"{head}Content-Length: {limits.MOST_BODY + 1}\r\n\r\n".encode(), 413),
        (f"{head}Content-Length: {'9' * 300}\r\n\r\n".encode(), 413),
        (f"{head}X: {'x' * limits.MOST_HEAD}\r\n\r\n".encode(), 431),
        (b"G" * (limits.MOST_HEAD + 10), 431),
        ((head + "A: b\r\n" * 200 + "\r\n").encode(), 431),
    ]
    for sent, status in cases:
        answer = page.say(sent)
        assert answer.status == status, (sent[:80], answer)
        assert [*answer.json] == ["error"] and len(answer.body) < 200
    assert page.ask("/api/me").status == 200


def test_half_a_request_is_answered_and_cut_off(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.2)
    whole = request("/open", f"Origin: http://{page.host}", method="POST", body=b"token=x", host=page.host)
    for cut in (10, len(whole) - 3):
        answer = page.say(whole[:cut])
        assert answer.status == 408 and "in time" in answer.json["error"]
    with page.connect() as silent:
        assert silent.recv(10) == b""


def test_one_connection_carries_many_requests(page: Served) -> None:
    one = request("/api/me", page.cookie, host=page.host)
    with page.connect() as connection:
        connection.sendall(one * 2)
        file = connection.makefile("rb")
        for _ in range(2):
            assert b"200" in file.readline()
            length = 0
            while line := file.readline().strip().lower():
                length = int(line.split()[1]) if line.startswith(b"content-length") else length
            assert json.loads(file.read(length))["title"] == "fleet"


def test_the_oldest_stranger_makes_way_where_people_who_signed_in_do_not() -> None:
    with served() as small:
        small.server.places = limits.Places(4, 2)
        strangers = [small.connect() for _ in range(2)]
        with ExitStack() as held:
            for number in range(4):  # two of them in place of the strangers
                known = held.enter_context(small.connect())
                known.sendall(request("/api/me", small.cookie, host=small.host))
                assert read_answer(known).status == 200, number
            assert [stranger.recv(1) for stranger in strangers] == [b"", b""]
            assert small.ask("/api/me").status == 503
        assert wait_until(lambda: small.ask("/api/me").status == 200)


# ---------------------------------------------------------------- what it tells


def test_a_member_its_charts_and_the_cost(page: Served) -> None:
    with page.events() as events:
        _, state = next(events)
    assert state["whole"] and len(state["rows"]) == len(state["order"]) == 12
    row = next(row for row in state["rows"] if row["name"] == "llama-00")
    assert row["level"] == "healthy" and row["why"] == []
    nan = next(row for row in state["rows"] if row["name"] == "lora-05")
    assert nan["level"] == "error" and nan["why"] == ["LOSS"]
    member = page.ask(f"/api/member?id={row['id']}").json
    assert len(member["log"]) == 10 and member["acts"] == {} and member["attempts"] is None
    now = page.fleet.clock.time()
    window = f"begin={now - 3600}&end={now}&width=500&offset=3600"
    series = page.ask(f"/api/series?id={row['id']}&{window}").json
    assert [chart["field"] for chart in series["charts"]][:2] == ["loss", "steps_per_second"]
    assert series["samples"] >= 30 and all('width="500"' in chart["svg"] for chart in series["charts"])
    cost = page.ask(f"/api/cost?{window}").json
    assert cost["members"][0]["price"].startswith("$") and cost["charts"][0]["points"]
    for query in ("begin=1", f"begin={now}&end={now}", "begin=nan&end=1e999&width=1", window.replace("500", "9e9")):
        assert page.ask(f"/api/series?id={row['id']}&{query}").status == 400
    assert page.ask(f"/api/series?id=0&{window}").status == 404


def test_prometheus_gets_the_metrics_with_its_token_only() -> None:
    with served(token=TOKEN) as page:
        assert page.ask_stranger("/metrics").status == 401
        answer = page.ask_stranger("/metrics", f"Authorization: Bearer {TOKEN}")
        assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"# HELP training_monitor_" in answer.body
        assert b'member="vast://30007001"' in answer.body


def test_a_slow_browser_holds_up_nobody() -> None:
    with served(MockFleet(count=MEMBERS)) as page:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.connect(("127.0.0.1", page.port))
        slow.sendall(request("/events", page.cookie, host=page.host))  # and reads nothing
        connections = [page.connect() for _ in range(BROWSERS - 1)]
        for each in connections:
            each.sendall(request("/events", page.cookie, host=page.host))
        streams = [read_events(each.makefile("rb")) for each in connections]
        for stream in streams:
            _, state = next(stream)
            assert state["whole"] and len(state["rows"]) == MEMBERS
        page.fleet.update_all_metrics()
        changed = [next(stream) for stream in streams]
        assert not any(state["whole"] for _, state in changed) and all(state["rows"] for _, state in changed)
        assert page.ask("/api/me").status == 200
        for each in (slow, *connections):
            each.close()


def test_charts_reach_back_as_far_as_the_history(tmp_path: Path) -> None:
    history, now = History(Store(str(tmp_path / "state"))), float(int(time.time()))
    key = "local#process:train"
    for day in range(4):
        history.add({key: FleetSample(now - 86_400 * day, {"loss": 4.0 - day, "cost_per_hour": 0.5}, "running")})
    with served(FleetMonitor([parse_member(key)]), history=history) as page:
        for days, shown in ((5.0, [1.0, 2.0, 3.0, 4.0]), (1.5, [3.0, 4.0]), (0.5, [4.0])):
            window = f"begin={now - 86_400 * days}&end={now + 1}&width=640&offset=0"
            series = page.ask(f"/api/series?id={id_of(key)}&{window}").json
            loss = next(chart for chart in series["charts"] if chart["field"] == "loss")
            assert [float(text) for _, text in loss["points"]] == shown and series["problem"] is None
        (tmp_path / "state" / "training_monitor.db").chmod(0o666)  # others could have changed it
        told = page.ask(f"/api/series?id={id_of(key)}&{window}").json
    assert "cannot be read" in told["problem"] and "chmod" in told["problem"] and told["samples"] == 0


# ---------------------------------------------------------------- acts


def test_nothing_is_stopped_without_allow_write(page: Served) -> None:
    row = page.fleet.snapshot().rows[0]
    body = json.dumps({"action": "stop", "id": _id_of(page, "llama-00"), "phrase": f"stop {row.instance_id}"}).encode()
    token = page.ask("/api/me").json["forgery_token"]
    for path in ("/api/act", "/api/acknowledge"):
        answer = page.ask(path, f"X-Forgery-Token: {token}", method="POST", body=body)
        assert answer.status == 403 and "--allow-write" in answer.json["error"]


def test_a_stop_needs_its_phrase_and_the_page_s_own_token() -> None:
    with served(allow_write=True) as page:
        name = _id_of(page, "llama-00")
        phrase = page.ask(f"/api/member?id={name}").json["acts"]["stop"]["phrase"]
        token = f"X-Forgery-Token: {page.ask('/api/me').json['forgery_token']}"
        asked = {"action": "stop", "id": name, "phrase": phrase}

        def act(*headers: str, **changes: object) -> int:
            return page.ask("/api/act", *headers, method="POST", body=json.dumps({**asked, **changes}).encode()).status

        assert act() == act("X-Forgery-Token: 0") == act(token, "Origin: http://evil.example") == 403
        assert act(token, phrase="stop") == act(token, action="refresh") == act(token, action=[1]) == 400
        assert act(token, id="0" * 16) == 404
        for body in (b"", b"[]", b"{", b"\xff" * 50, b"[" * 4000):
            assert page.ask("/api/act", token, method="POST", body=body).status == 400
        assert not any(alert.kind == "stopped" for alert in page.fleet.snapshot().alerts)
        assert act(token) == 202
        page.fleet.start()
        assert wait_until(lambda: any(alert.kind == "stopped" for alert in page.fleet.snapshot().alerts))
        page.fleet.close()


def test_an_alert_is_acknowledged_by_its_name_and_the_page_s_own_token() -> None:
    with served(allow_write=True) as page:
        token = f"X-Forgery-Token: {page.ask('/api/me').json['forgery_token']}"
        with page.events() as events:
            _, state = next(events)
        event = state["alerts"][0]["event"]

        def acknowledge(*headers: str, event: object = event) -> int:
            body = json.dumps({"event": event}).encode()
            return page.ask("/api/acknowledge", *headers, method="POST", body=body).status

        assert acknowledge() == acknowledge(token, "Origin: http://evil.example") == 403
        assert {acknowledge(token, event=each) for each in ("0" * 16, [1], None)} == {404}
        assert not any(alert.acknowledged for alert in page.fleet.snapshot().alerts)
        assert acknowledge(token) == 200
        assert [alert.acknowledged for alert in page.fleet.snapshot().alerts].count(True) == 1


def _id_of(page: Served, name: str) -> str:
    with page.events() as events:
        _, state = next(events)
    return next(str(row["id"]) for row in state["rows"] if row["name"] == name)


# ---------------------------------------------------------------- the command


def test_the_command_ends_at_once_with_browsers_connected(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with command(tmp_path, "--mock", "--port", "0") as (process, said):
            assert said["pid"] == process.pid
            port = int(said["url"].split(":")[2].partition("/")[0])
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
                connection.sendall(request("/"))
                assert read_answer(connection).status == 303
                process.send_signal(number)
                assert process.wait(PATIENCE) == -number


def test_beyond_this_machine_a_token_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    refused = run_command("web", "--mock", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2 and "--token-file" in refused.stderr
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    words = ("web", "--mock", "--host", "0.0.0.0", "--port", "0", "--token-file")
    assert "chmod 600" in run_command(*words, str(file)).stderr
    file.chmod(0o600)
    file.write_text("short")
    short = run_command(*words, str(file))
    assert short.returncode == 2 and "16 or more" in short.stderr and "short" not in short.stderr
    assert "env:NAME" in run_command(*words, "env:NOT_SET_HERE").stderr
    assert "a readable file" in run_command(*words, str(tmp_path / "none")).stderr


def test_a_token_in_a_variable_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGE_TOKEN", TOKEN)
    words = ("--mock", "--host", "0.0.0.0", "--name", "gpu1.lan", "--port", "0", "--token-file", "env:PAGE_TOKEN")
    with command(tmp_path, *words) as (process, said):
        assert re.fullmatch(r"http://gpu1\.lan:\d+/open", said["url"])
        port = int(said["url"].split(":")[2].partition("/")[0])
        for host, status in (("gpu1.lan", 200), (f"127.0.0.1:{port}", 200), ("evil.example", 421)):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
                connection.sendall(request("/api/me", f"Authorization: Bearer {TOKEN}", host=host))
                assert read_answer(connection).status == status, host
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        assert "no TLS" in err and TOKEN not in out + err and "Traceback" not in err


def test_a_wrong_name_or_mixture_is_refused(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    for words, told in (
        (("--name", "gpu1.lan:80", "--mock"), "without a port"),
        (("--name", "", "--mock"), "--name"),
        (("--mock", "my-pod"), "shows simulated instances"),
        (("--mock", "--vast"), "shows simulated instances"),
        ((), "TARGET"),
        (("my-pod#-x",), "process:NAME"),
    ):
        done = run_command("web", "--port", "0", *words, TRAINING_MONITOR_STATE_DIR=state, HOME=str(tmp_path))
        assert done.returncode == 2 and told in done.stderr, (words, done)


def test_a_port_that_is_taken_is_an_error_with_advice(page: Served, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    done = run_command("web", "--mock", "--port", str(page.port), TRAINING_MONITOR_STATE_DIR=state)
    assert done.returncode == 3 and "another --port" in done.stderr
    assert KEY.decode() not in done.stderr
