"""Tools of the MCP server about real trainings: long work that survives the server, acts, and bounded answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Pod, Surroundings, wait_until
from tests.integration.roll_call_training import Plan, Training, running
from tests.mcp_client import Client
from training_monitor.jobs.jobs import check_job_status
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.jobs.stopping import stop_job

TRAINING = 'for i in $(seq 1 9000); do echo "step $i/9000 loss 0.5"; sleep 0.2; done'


@pytest.fixture
def training(surroundings: Surroundings) -> Iterator[str]:
    job = start_process_job("local", TRAINING, "trains")
    assert wait_until(lambda: check_job_status("local", job) == "RUNNING")
    yield job


def document(result: Any) -> Any:
    assert not result["isError"], result
    return result["structuredContent"]


def status_of(client: Client, handle: str) -> Any:
    return document(client.call("work_status", handle=handle))


def wait_for_end(client: Client, handle: str) -> Any:
    found: list[Any] = []

    def has_ended() -> bool:
        found.append(status_of(client, handle))
        return found[-1]["status"] not in ("PENDING", "RUNNING")

    assert wait_until(has_ended), found[-1]
    return found[-1]


def test_a_wait_survives_its_server_and_tells_the_end(training: str) -> None:
    with Client() as first:
        words = {"target": "local", "what": training, "more": ["--interval=0.2"], "name": "mine"}
        begun = document(first.call("start_wait", **words))
        assert begun["handle"] == "process:mcp-wait-mine"
        assert status_of(first, begun["handle"])["status"] in ("PENDING", "RUNNING")
        assert document(first.call("start_wait", **words))["handle"] == begun["handle"]  # it is taken up again
    with Client(version="2025-11-25") as second:
        assert [each["handle"] for each in document(second.call("list_work"))["work"]] == [begun["handle"]]
        stop_job("local", training)
        ended = wait_for_end(second, begun["handle"])
        assert ended["status"] == "FAILED" and ended["exit_code"] == 1  # as `wait` says of a training that was stopped
        assert ended["result"]["status"] == "STOPPED" and ended["result"]["job_id"] == training


def test_a_wait_can_be_ended_and_the_training_goes_on(training: str) -> None:
    with Client() as client:
        handle = document(client.call("start_wait", target="local", what=training))["handle"]
        assert document(client.call("stop_wait", handle=handle))["status"] == "STOPPED"
        assert check_job_status("local", training) == "RUNNING"


def test_a_job_is_stopped_only_with_confirm(training: str) -> None:
    with Client("--allow-write") as client:
        asked = document(client.call("stop_job", target="local", job=training))
        assert asked["done"] is False and training in asked["would"]
        assert check_job_status("local", training) == "RUNNING"
        done = document(client.call("stop_job", target="local", job=training, confirm=True))
        assert done["done"] is True and done["status"] == "STOPPED"
        assert check_job_status("local", training) == "STOPPED"


def test_a_supervised_training_survives_the_server_and_the_end_of_its_supervision(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    with Client("--allow-write") as client:
        command = ["sh", "-c", TRAINING]
        words = {"command": command, "name": "kept", "more": ["--interval=0.2"], "checkpoint_dir": str(tmp_path)}
        handle = document(client.call("run_training", confirm=True, **words))["handle"]
        job = "process:kept-attempt-1"
        assert wait_until(lambda: any(each["job_id"] == job for each in document(client.call("list_jobs"))["jobs"]))
    with Client("--allow-write") as client:
        assert status_of(client, handle)["status"] == "RUNNING"
        ended = document(client.call("stop_work", handle=handle, confirm=True))
        assert ended["done"] is True and ended["status"] == "STOPPED"
        assert check_job_status("local", job) == "RUNNING"


def test_the_end_of_a_long_log_fits_and_more_is_told_when_asked_for(surroundings: Surroundings) -> None:
    job = start_process_job("local", 'for i in $(seq 1 3000); do echo "step $i/3000 loss 0.5"; done', "prints")
    assert wait_until(lambda: check_job_status("local", job) == "SUCCEEDED")
    with Client() as client:
        short = document(client.call("job_logs", target="local", job=job, tail=2500))
        assert len(json.dumps(short)) <= 8000 and "step 3000/3000" in short["text"]
        assert short["left_out"][0]["at"] == "text" and "max_characters" in short["to_see_it"]
        long = document(client.call("job_logs", target="local", job=job, tail=2500, max_characters=200_000))
        assert "left_out" not in long and long["text"].count("\n") == 2500


def test_a_thousand_looks_side_by_side(training: str, pod: Pod) -> None:
    calls = [("read_log", {"text": "step 1/2"})] * 960
    calls += [("check_training", {"target": "local", "what": training}), ("check_gpus", {"target": pod.name})] * 15
    calls += [("job_status", {"target": "local", "job": training})] * 10
    with Client() as client:
        begun = time.monotonic()
        asked = [client.request("tools/call", name=name, arguments=arguments) for name, arguments in calls]
        answers = [client.read() for _ in asked]
        assert {each["id"] for each in answers} == set(asked)
        told = {each["id"]: each["result"] for each in answers}
        assert not any(each["isError"] for each in told.values())
        verdicts = {told[number]["structuredContent"].get("target") for number in asked[960:]}
        assert "local" in verdicts and time.monotonic() - begun < 600


def test_a_hang_is_explained_in_a_short_answer_and_with_all_stacks_when_asked_for(surroundings: Surroundings) -> None:
    hung = Training(Plan(odd={2: "pipe"}, with_monitor=True), surroundings.folder / "hung")
    with Client() as client, running(hung):
        hung.wait_until_ready()
        words = {"target": "local", "what": str(hung.members[0].pid)}
        result = client.call("explain_training", **words)
        told = document(result)
        assert [each["rank"] for each in told["culprits"]] == [2] and told["confidence"] == "high"
        assert "left_out" not in told and [each["rank"] for each in told["ranks"]] == [0, 1, 2, 3]
        assert all(each["where"] and not each["stacks"] for each in told["ranks"])
        line = result["content"][0]["text"]
        assert line.startswith("confidence high: 3 of 4 ranks wait in") and "load_batch" in line
        told = document(client.call("explain_training", **words, stacks=True, max_characters=1_000_000))
        assert all(each["stacks"] for each in told["ranks"])
