"""Tools of the MCP server about real trainings: long work that survives the server, acts, and bounded answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Pod, Surroundings, wait_until
from tests.integration.roll_call_training import Plan, Training, running
from tests.mcp_client import Client
from training_monitor.agents.mcp.calls import CURRENT, Call
from training_monitor.agents.mcp.table import Action
from training_monitor.cli.commands.mcp import open_tools
from training_monitor.jobs.jobs import check_job_status, list_jobs
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.jobs.stopping import stop_job

TRAINING = 'for i in $(seq 1 9000); do echo "step $i/9000 loss 0.5"; sleep 0.2; done'
TOOLS = open_tools(allow_write=False)


@pytest.fixture
def training(surroundings: Surroundings) -> Iterator[str]:
    job = start_process_job("local", TRAINING, "trains")
    assert wait_until(lambda: check_job_status("local", job) == "RUNNING")
    yield job


def document(result: Any) -> Any:
    assert not result["isError"], result
    return result["structuredContent"]


def test_a_wait_answers_within_a_minute_and_is_continued_by_its_handle_on_another_server(training: str) -> None:
    with Client() as first:
        asked = first.request("tools/call", name="wait", arguments={"what": training, "handle": "mine"})
        assert wait_until(lambda: document(first.call("wait", list=True))["waits"])
        first.note("notifications/cancelled", requestId=asked)  # its client did not have the patience
        begun = document(first.call("wait", what=training, conditions=["log=step 50/"], timeout="10m"))
        assert (begun["outcome"], begun["line"]) == ("met", "step 50/9000 loss 0.5")
    with Client(version="2025-11-25") as second:
        kept = {each["handle"]: each for each in document(second.call("wait", list=True))["waits"]}
        assert set(kept) == {"mine", begun["handle"]} and kept["mine"]["result"] is None
        stop_job("local", training)
        ended = document(second.call("wait", handle="mine"))
        assert (ended["outcome"], ended["state"], ended["job_id"]) == ("missed", "stopped", training)
        assert ended["exit_status"] == 1 and ended["seconds"] > begun["seconds"] > 0
        assert document(second.call("wait", handle="mine"))["reason"] == ended["reason"]


def test_a_wait_that_is_not_over_says_how_it_goes_on(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLS["wait"]._row.actions, "", Action("wait --leave-after=1", "what handle"))
    CURRENT.set(Call())
    told = document(TOOLS["wait"].call({"what": training}))
    assert told["outcome"] == "interrupted" and told["verdict"] == "ok" and told["exit_status"] == 3
    again = document(TOOLS["wait"].call({"handle": told["handle"]}))
    assert again["handle"] == told["handle"] and again["seconds"] > told["seconds"]


def test_a_cancelled_wait_ends_its_process_and_is_kept(training: str, surroundings: Surroundings) -> None:
    with Client() as client:
        asked = client.request("tools/call", name="wait", arguments={"what": training, "handle": "mine"})
        waiting = lambda: any("leave-after" in line for line in surroundings.processes().values())  # noqa: E731
        assert wait_until(waiting)
        client.note("notifications/cancelled", requestId=asked)
        assert wait_until(lambda: not waiting(), 10)
        assert check_job_status("local", training) == "RUNNING" and not client.noise


def test_a_job_is_stopped_only_with_confirm(training: str) -> None:
    with Client("--allow-write") as client:
        words = {"target": "local", "job": training}
        asked = document(client.call("stop", **words))
        assert asked["done"] is False and training in asked["would"]
        assert check_job_status("local", training) == "RUNNING"
        done = document(client.call("stop", **words, confirm=True))
        assert done["done"] is True and done["status"] == "STOPPED"
        assert check_job_status("local", training) == "STOPPED"


def test_a_supervised_training_is_started_once_and_survives_the_server_and_the_end_of_its_supervision(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    words = {"action": "run", "command": ["sh", "-c", TRAINING], "name": "kept", "checkpoint_dir": str(tmp_path)}
    job = "process:kept-attempt-1"
    with Client("--allow-write") as client:
        started = document(client.call("start", **words, confirm=True))
        assert started["status"] == "RUNNING" and started["done"] is True
        assert check_job_status("local", job) == "RUNNING"
    with Client("--allow-write") as client:
        handle = started["handle"]
        assert document(client.call("start", **words, confirm=True))["handle"] == handle
        [seen] = document(client.call("check", what=handle))["jobs"]
        assert seen["state"] in ("running", "starting"), seen
        assert f"{job} started" in document(client.call("logs", target="local", job=handle))["text"]
        document(client.call("stop", target="local", job=handle, confirm=True))
        assert check_job_status("local", handle) == "STOPPED" and check_job_status("local", job) == "RUNNING"


def test_what_fails_at_its_start_is_told_at_once(surroundings: Surroundings) -> None:
    with Client("--allow-write") as client:
        words = {"action": "watch", "target": "local", "what": "process:nothing", "confirm": True}
        failed = client.call("start", **words)
        assert failed["isError"] and failed["structuredContent"]["kind"] == "JobNotFound", failed
        first = document(client.call("start", action="run", command=["true"], name="short", confirm=True))["handle"]
        assert wait_until(lambda: check_job_status("local", first) == "SUCCEEDED")
        again = document(client.call("start", action="run", command=["true"], name="short", confirm=True))["handle"]
        assert first.endswith("-1") and again.endswith("-2")  # the first one has ended


def supervisors() -> list[str]:
    return [each.status.value for each in list_jobs("local") if each.job_id.startswith("process:mcp-")]


@pytest.mark.parametrize(("is_cancelled", "status"), [(True, "STOPPED"), (False, "RUNNING")])
def test_a_start_is_stopped_by_its_cancellation_and_not_by_the_end_of_the_server(
    surroundings: Surroundings, is_cancelled: bool, status: str
) -> None:
    with Client("--allow-write") as client:
        arguments = {"action": "run", "command": ["sh", "-c", TRAINING], "name": "kept", "confirm": True}
        asked = client.request("tools/call", name="start", arguments=arguments)
        assert wait_until(lambda: supervisors() == ["RUNNING"])
        if is_cancelled:
            client.note("notifications/cancelled", requestId=asked)
            assert wait_until(lambda: supervisors() == ["STOPPED"]) and not client.noise
    assert supervisors() == [status]


def test_the_end_of_a_long_log_fits_and_more_is_told_when_asked_for(surroundings: Surroundings) -> None:
    job = start_process_job("local", 'for i in $(seq 1 3000); do echo "step $i/3000 loss 0.5"; done', "prints")
    assert wait_until(lambda: check_job_status("local", job) == "SUCCEEDED")
    with Client() as client:
        short = document(client.call("logs", target="local", job=job, tail=2500))
        assert len(json.dumps(short)) <= 8000 and "step 3000/3000" in short["text"]
        assert short["left_out"][0]["at"] == "text" and "max_characters" in short["to_see_it"]
        long = document(client.call("logs", target="local", job=job, tail=2500, max_characters=200_000))
        assert "left_out" not in long and long["text"].count("\n") == 2500


def test_fifteen_looks_side_by_side(training: str, pod: Pod) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("check", {"what": training}), ("health", {"target": pod.name})]
    calls += [("logs", {"target": "local", "job": training})] * 13
    with Client() as client:
        asked = [client.request("tools/call", name=name, arguments=arguments) for name, arguments in calls]
        told = {each["id"]: each["result"] for each in (client.read(300.0) for _ in asked)}
        assert set(told) == set(asked) and not any(each["isError"] for each in told.values())
        targets = [told[number]["structuredContent"]["target"] for number in asked]
        assert targets == ["local", "k8s://default/head"] + ["local"] * 13


def test_a_hang_is_explained_in_a_short_answer_and_with_all_stacks_when_asked_for(surroundings: Surroundings) -> None:
    hung = Training(Plan(odd={2: "pipe"}, with_monitor=True), surroundings.folder / "hung")
    with Client() as client, running(hung):
        hung.wait_until_ready()
        words = {"target": "local", "what": str(hung.members[0].pid)}
        result = client.call("why", **words)
        told = document(result)
        assert [each["rank"] for each in told["culprits"]] == [2] and told["confidence"] == "high"
        assert "left_out" not in told and [each["rank"] for each in told["ranks"]] == [0, 1, 2, 3]
        assert all(each["where"] and not each["stacks"] for each in told["ranks"])
        line = result["content"][0]["text"]
        assert line.startswith("confidence high: 3 of 4 ranks wait in") and "load_batch" in line
        told = document(client.call("why", **words, stacks=True, max_characters=1_000_000))
        assert all(each["stacks"] for each in told["ranks"])
