"""The real server in a process of its own: both eras, broken messages, cancelled calls, many calls, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client import META, ROOT, SECONDS, Client
from training_monitor import __version__
from training_monitor.agents.mcp import protocol, server

OLD, NEW = "2025-11-25", None
# A server whose calls answer at once, without a command: what they do is printed, raised or echoed.
QUICK = """
import os, sys
from training_monitor.agents.mcp import tools
def echo(words, given):
    print("printed"); os.write(1, b"written\\n"); os.system("echo by a child")
    assert sys.stdin.read() == ""
    if "raise" in words: raise ZeroDivisionError("a defect")
    return {"text": words[-1]}
tools.run_command = echo
from training_monitor.cli.main import main
sys.exit(main())
"""
# A server whose calls take long, once they have made the file that they are given as their training.
SLOW = """
import sys, time
from training_monitor.agents.mcp import calls, server
server.PROGRESS_SECONDS, server.LEAVING_SECONDS = 0.05, 1.0
calls._START = "import sys, time; open(sys.argv[4], 'w').close(); time.sleep(600)"
from training_monitor.cli.main import main
sys.exit(main())
"""


def check(client: Client, *path: Path | str) -> int | str:
    """Call `check` with this as its training; the id of the request."""
    return client.request("tools/call", name="check", arguments={"what": str(Path(*path))})


@pytest.fixture(params=[OLD, NEW], ids=["handshake", "stateless"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    with Client(version=request.param, TRAINING_MONITOR_JOBS_DIR=str(tmp_path / "jobs")) as found:
        yield found


@pytest.mark.parametrize("version", protocol.HANDSHAKE_VERSIONS)
def test_a_handshake_and_a_call(version: str) -> None:
    with Client(version=version, code=QUICK) as client:
        assert client.initialized["protocolVersion"] == version
        assert client.initialized["serverInfo"] == {"name": "training-monitor", "version": __version__}
        assert client.initialized["capabilities"] == {"tools": {}}
        assert "check" in client.initialized["instructions"]
        assert client.ask("ping") == {}
        result = client.call("check", what="1")
        assert result["structuredContent"]["text"] == "1" and "resultType" not in result
        texts = [each["text"] for each in result["content"]]
        assert len(texts) == (2 if version < "2025-06-18" else 1)  # later clients read the structured content
        assert version >= "2025-06-18" or json.loads(texts[1]) == result["structuredContent"]


def test_a_stateless_client_discovers_lists_and_calls() -> None:
    with Client(code=QUICK) as client:
        found = client.ask("server/discover")
        assert found["supportedVersions"] == ["2026-07-28"] and found["resultType"] == "complete"
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "training-monitor"
        assert found["ttlMs"] > 0 and found["cacheScope"] == "private" and "check" in found["instructions"]
        listed = client.ask("tools/list")
        assert listed["ttlMs"] > 0 and listed["resultType"] == "complete"
        result = client.call("check")
        assert result["resultType"] == "complete" and not result["isError"]
        assert client.refused("ping")["code"] == protocol.NO_METHOD  # removed from this version
        assert client.refused("initialize")["code"] == protocol.INVALID_PARAMS


def test_both_eras_may_be_mixed_and_without_a_handshake_it_is_told_how_to_begin() -> None:
    with Client(version=OLD) as client:
        stateless = client.ask("tools/list", meta=META)
        assert stateless["resultType"] == "complete" and "resultType" not in client.ask("tools/list")
    with Client() as client:
        for method in ("tools/list", "tools/call"):
            client.send({"jsonrpc": "2.0", "id": "a", "method": method, "params": {"name": "check"}})
            assert "initialize" in client.read()["error"]["message"]
        client.send({"jsonrpc": "2.0", "id": "a", "method": "server/discover"})
        assert client.read()["error"]["code"] == protocol.INVALID_PARAMS


def test_the_list_of_tools_is_the_same_each_time_whatever_is_only_noted(client: Client) -> None:
    names = [[tool["name"] for tool in client.ask("tools/list")["tools"]] for _ in range(2)]
    assert names[0] == names[1] and names[0][0] == "check" and "stop" not in names[0]
    for message in SAYS_NOTHING:
        client.send({"jsonrpc": "2.0", **message})
    client.write(b"\n \n")
    client.ask("tools/list")
    assert client.noise == []


def test_acts_are_offered_only_where_they_are_allowed() -> None:
    with Client("--allow-write") as client:
        assert "stop" in {tool["name"] for tool in client.ask("tools/list")["tools"]}
    with Client() as client:
        error = client.refused("tools/call", name="stop", arguments={"confirm": True})
        assert error["code"] == protocol.INVALID_PARAMS and "stop" in error["message"]


def test_a_command_answers_its_document(client: Client) -> None:
    result = client.call("rentals", action="queue")
    assert result["structuredContent"]["jobs"] == [] and result["structuredContent"]["exit_status"] == 0
    missing = client.call("logs", target="local", job="process:nothing")
    assert missing["isError"] and missing["structuredContent"]["kind"] == "JobNotFound", missing
    result = client.call("check", target="--version")
    assert result["isError"] and "does not begin with -" in result["content"][0]["text"]


def on_line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode()


BROKEN: list[bytes] = [
    *(b"nonsense", b"\xff\xfe\x00", b"[]", b"[1, 2]", b"{}", b"null", b'"text"', b"1e999"),
    *(b"9" * 5000, b"[" * 50_000, b'{"a":' * 1000, b"x" * (server.MOST_BYTES + 5), b"y" * (2 * server.MOST_BYTES + 5)),
    on_line(id={}, method="ping"),
    on_line(method=["ping"]),
    on_line(method="nothing/here"),
    on_line(method="tools/call", params=[1]),
    on_line(method="tools/call", params={"name": 5}),
    on_line(method="tools/call", params={"name": "check", "arguments": [1]}),
    on_line(method="tools/call", params={"name": "\ud800"}),
    on_line(method="initialize", params={"protocolVersion": []}),
]


def test_broken_messages_are_answered_with_errors_and_end_nothing() -> None:
    with Client(version=OLD) as client:
        for line in BROKEN:
            client.write(line + b"\n")
            assert client.read()["error"]["code"] < 0, line[:100]
        assert client.ask("ping") == {}


SAYS_NOTHING: list[dict[str, Any]] = [
    {"method": "notifications/cancelled", "params": {"requestId": 99}},
    {"method": "notifications/cancelled", "params": {"requestId": []}},
    {"method": "notifications/cancelled"},
    {"method": "notifications/nothing"},
    {"id": 7, "result": {}},
    {"id": 7, "error": {"code": 1, "message": "x"}},
]


def test_a_batch_is_answered_as_one_where_the_version_has_batches() -> None:
    def request(number: int, **more: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": "ping", **more}

    call = request(3, method="tools/call", params={"name": "check"})
    batch = [request(1), {"jsonrpc": "2.0", "method": "notifications/x"}, call, request(4, method="nothing"), 5]
    with Client(version="2025-03-26", code=QUICK) as client:
        client.send(batch)
        answers = client.read()
        assert sorted(str(each["id"]) for each in answers) == ["1", "3", "4", "None"]
        client.send([{"jsonrpc": "2.0", "method": "notifications/x"}])  # nothing to say
        assert client.ask("ping") == {}
    with Client(version=OLD) as client:
        client.send(batch)
        assert client.read()["error"]["code"] == protocol.INVALID_REQUEST


def test_what_is_printed_goes_to_stderr_and_a_defect_is_an_error() -> None:
    with Client(version=OLD, code=QUICK) as client:
        assert client.call("check", what="a")["structuredContent"]["text"] == "a"
        failed = client.call("check", what="raise")
        assert failed["isError"] and "ZeroDivisionError" in failed["structuredContent"]["error"]
        assert client.noise == []
    client.process.wait(SECONDS)
    assert all(each in client.errors for each in ("printed", "written", "by a child"))


def wait_for(path: Path) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def children_of(client: Client) -> list[str]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(client.process.pid)], capture_output=True, text=True)
    return listed.stdout.split()


def test_a_cancelled_call_ends_its_command_and_is_not_answered(tmp_path: Path) -> None:
    with Client(version=OLD, code=SLOW) as client:
        running = check(client, tmp_path, "begun")
        wait_for(tmp_path / "begun")
        assert children_of(client)
        client.note("notifications/cancelled", requestId=running, reason="enough")
        end = time.monotonic() + SECONDS
        while children_of(client):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert client.ask("ping") == {} and client.noise == []
        check(client, tmp_path, "again")
        wait_for(tmp_path / "again")
    assert not children_of(client)


def test_a_call_that_waits_for_its_turn_can_be_cancelled(tmp_path: Path) -> None:
    with Client(version=OLD, code=SLOW) as client:
        asked = [check(client, tmp_path, f"{number}") for number in range(server.MOST_AT_ONCE + 3)]
        for number in range(server.MOST_AT_ONCE):
            wait_for(tmp_path / f"{number}")
        for each in reversed(asked):
            client.note("notifications/cancelled", requestId=each)
        assert client.call("rentals")["isError"]  # there is a turn for the next one
        assert client.noise == [] and not (tmp_path / f"{server.MOST_AT_ONCE + 2}").exists()


def test_progress_is_told_to_who_wants_it(tmp_path: Path) -> None:
    with Client(version=OLD, code=SLOW) as client:
        running = client.request(
            "tools/call", name="check", arguments={"what": str(tmp_path / "begun")}, meta={"progressToken": "mine"}
        )
        told = [client.read() for _ in range(2)]
        assert [each["method"] for each in told] == ["notifications/progress"] * 2
        first, second = (each["params"] for each in told)
        assert first["progressToken"] == "mine" and second["progress"] > first["progress"]
        client.note("notifications/cancelled", requestId=running)


def test_an_id_that_has_no_answer_yet_is_not_taken_twice(tmp_path: Path) -> None:
    with Client(version=OLD, code=SLOW) as client:
        params = {"name": "check", "arguments": {"what": str(tmp_path / "begun")}}
        for _ in range(2):
            client.send({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params})
        assert client.answer_to("same")["error"]["code"] == protocol.INVALID_REQUEST


@pytest.mark.parametrize("version", [OLD, NEW], ids=["handshake", "stateless"])
def test_a_thousand_calls_side_by_side(version: str | None) -> None:
    with Client(version=version, code=QUICK.replace("os.system", "len")) as client:
        asked = {check(client, str(number)): str(number) for number in range(1, 1001)}
        found = {}
        while len(found) < len(asked):
            answer = client.read()
            found[answer["id"]] = answer["result"]["structuredContent"]["text"]
        assert found == asked
        threads = len(os.listdir(f"/proc/{client.process.pid}/task"))
        assert threads <= server.MOST_AT_ONCE + 2


@pytest.mark.parametrize("seconds", [0, 2])
def test_the_server_ends_when_stdin_does_and_finishes_what_takes_some_seconds(seconds: int) -> None:
    code = QUICK.replace('    return {"text"', f'    import time; time.sleep({seconds})\n    return {{"text"')
    client = Client(version=OLD, code=code)
    assert client.process.stdin
    running = check(client, "a")
    client.process.stdin.close()
    assert client.answer_to(running)["result"]["structuredContent"]["text"] == "a"
    assert client.process.wait(SECONDS) == 0 and "Traceback" not in client.errors


def test_the_server_ends_its_calls_when_their_answers_cannot_be_read(tmp_path: Path) -> None:
    words = {"name": "check", "arguments": {"what": str(tmp_path / "begun")}, "_meta": META}
    process = start_raw("-c", SLOW)
    assert process.stdin and process.stdout
    process.stdin.write(on_line(method="tools/call", params=words) + b"\n")
    process.stdin.flush()
    wait_for(tmp_path / "begun")
    process.stdout.close()
    process.stdin.close()
    assert process.wait(SECONDS) == 0


def test_the_server_ends_with_sigterm_and_takes_its_commands_along(tmp_path: Path) -> None:
    client = Client(version=OLD, code=SLOW)
    check(client, tmp_path, "begun")
    wait_for(tmp_path / "begun")
    children = children_of(client)
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(SECONDS) == -signal.SIGTERM and "Traceback" not in client.errors
    assert children and not any(os.path.exists(f"/proc/{pid}") for pid in children)


def start_raw(*words: str) -> subprocess.Popen[bytes]:
    """A server whose answers nobody reads."""
    argv, env = [sys.executable, *(words or ("-m", "training_monitor")), "mcp"], {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)


DISCOVER = on_line(method="tools/list", params={"_meta": META}) + b"\n"


def test_the_server_ends_when_its_client_is_gone() -> None:
    process = start_raw()
    assert process.stdin and process.stdout
    process.stdout.close()
    process.stdin.write(DISCOVER)
    process.stdin.flush()
    assert process.wait(SECONDS) == 0
    process.stdin.close()


def test_a_client_that_does_not_read_is_not_read_from_and_sigterm_ends_it() -> None:
    process = start_raw()
    assert process.stdin and process.stdout
    os.set_blocking(process.stdin.fileno(), False)
    written, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            written += os.write(process.stdin.fileno(), DISCOVER)
        except BlockingIOError:  # both pipes are full, or the server is only slow
            time.sleep(0.2)
            if _is_blocked(process.pid):
                break
    assert _is_blocked(process.pid) and written < 10_000_000
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == -signal.SIGTERM
    process.stdin.close()
    process.stdout.close()


def _is_blocked(pid: int) -> bool:
    """Whether the server waits for its reader."""
    return "pipe_write" in Path(f"/proc/{pid}/wchan").read_text() or _state(pid) == "S"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
