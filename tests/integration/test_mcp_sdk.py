"""The official SDK's clients list and call every tool, in both eras, about loopback machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.images import png
from tests.integration.conftest import Pod, Surroundings, wait_until
from tests.loopback.vast import VastApi
from tests.mcp_client import ROOT
from tests.old_tools import program_of
from training_monitor.agents.mcp import table
from training_monitor.cli.commands.mcp import open_tools
from training_monitor.jobs.jobs import check_job_status
from training_monitor.jobs.process_jobs import start_process_job

PROGRAM = Path(__file__).with_name("mcp_sdk_client.py")
SECONDS = 400.0
TRAINING = 'for i in $(seq 1 9000); do echo "step $i/9000 loss 0.5"; sleep 0.5; done'


def ask_sdk(version: str, mode: str, calls: list[list[Any]], *options: str) -> Any:
    command = [sys.executable, "-m", "training_monitor", "mcp", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = {"command": command, "mode": mode, "calls": calls, "environment": environment}
    done = subprocess.run(
        [str(program_of("mcp", version)), str(PROGRAM)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture
def calls(surroundings: Surroundings, vast: VastApi, pod: Pod, tmp_path: Path) -> list[list[Any]]:
    """A call of every tool; acts without `confirm`."""
    vast.add_instance(7)
    vast.add_offer(70)
    job = start_process_job("local", TRAINING, "trains")
    wait_until(lambda: check_job_status("local", job) == "RUNNING")
    images, runs, checkpoints = (tmp_path / name for name in ("images", "runs", "checkpoints/step-5"))
    for folder in (images, runs, checkpoints):
        folder.mkdir(parents=True)
    for number in range(10):
        (images / f"{number}.png").write_bytes(png(600, 600))
    log = tmp_path / "train.log"
    log.write_text("step 5/10 loss 0.5\n")
    looks = [
        ["check", {}],
        ["check", {"what": job, "stall_after": 600}],
        ["check", {"target": pod.name}],
        ["check", {"what": str(log)}],
        ["why", {"what": job, "also": ["local"], "timeout": "10s", "stacks": True}],
        ["health", {"target": pod.name, "pods": [pod.name]}],
        ["health", {"target": pod.name, "only": "efa"}],
        ["health", {"target": "local", "only": "ray"}],
        ["logs", {"target": "local", "job": job, "tail": 3}],
        ["wait", {"what": job, "conditions": ["step=2"]}],
        ["wait", {"list": True}],
        ["fleet", {"targets": ["local"]}],
        ["history", {}],
        ["history", {"compare": True}],
        ["history", {"cost": True, "since": "2d"}],
        ["runs", {"folder": str(runs)}],
        ["checkpoints", {"target": "local", "directory": str(checkpoints.parent)}],
        ["doctor", {"targets": ["local"]}],
        ["rentals", {"action": "trainings"}],
        ["rentals", {"action": "instances"}],
        ["rentals", {"action": "offers", "max_price": 5, "limit": 2}],
        ["rentals", {"action": "credits"}],
        ["rentals", {"action": "queue", "all": True}],
        ["rentals", {"action": "unneeded"}],
        ["rentals", {"action": "dataset", "path": str(images)}],
    ]
    acts = [
        ["start", {"action": "run", "command": ["python3", "train.py"]}],
        ["start", {"action": "restart", "target": pod.name, "job_name": "x"}],
        ["start", {"action": "watch", "target": "local", "what": job}],
        ["stop", {"target": "local", "job": job}],
        ["upload", {"target": "local", "path": str(log), "destination": "hf:a/b"}],
        ["notify", {"message": "hello"}],
        ["notify", {"test": True}],
        ["rent", {"action": "launch", "id": "a", "name": "a"}],
        ["rent", {"action": "worker"}],
        ["rent", {"action": "cancel", "job": "a"}],
        ["rent", {"action": "sweep"}],
        ["rent", {"action": "setup_keys"}],
    ]
    refused = [
        ["rentals", {"action": "queue", "job": "nothing"}],
        ["rentals", {"action": "keys"}],  # the home folder of tests has no key
        ["wait", {"handle": "nothing"}],
        ["start", {"action": "watch", "target": "local", "what": "--once"}],
    ]
    return [*looks, *acts, *refused]


REFUSED = ["JobNotFound", "TrainingMonitorError", "JobNotFound", "SettingsError"]
ACTS = {row.name for row in table.ACTS}


@pytest.mark.parametrize(
    ("version", "mode", "spoken", "has_every_call"),
    [("1.30.*", "handshake", "2025-11-25", False), ("2.3.*", "stateless", "2026-07-28", True)],
)
def test_every_tool_is_listed_and_called(
    calls: list[list[Any]], tmp_path: Path, version: str, mode: str, spoken: str, has_every_call: bool
) -> None:
    """The older SDK makes the first call of each tool, and those that are refused."""
    if not has_every_call:
        calls = [*{name: [name, words] for name, words in reversed(calls)}.values()][::-1] + calls[-len(REFUSED) :]
    found = ask_sdk(version, mode, calls, "--allow-write", "--read-under", str(tmp_path))
    assert found["version"] == spoken
    assert [tool["name"] for tool in found["tools"]] == list(open_tools(allow_write=True))
    assert {name for name, _ in calls} == {tool["name"] for tool in found["tools"]}
    for answer in found["answers"]:
        assert "raised" not in answer, answer
        document = answer["structuredContent"]
        assert document["caution"] and len(json.dumps(document)) <= 8000 and answer["content"][0]["text"]
        assert answer["isError"] or answer["tool"] not in ACTS or document["done"] is False, answer
    refused = [answer["structuredContent"]["kind"] for answer in found["answers"] if answer["isError"]]
    assert refused == REFUSED, [answer for answer in found["answers"] if answer["isError"]]
    told = {json.dumps(asked): answer["structuredContent"] for asked, answer in zip(calls, found["answers"])}
    by = {(name, words.get("action", "")): told[json.dumps([name, words])] for name, words in calls}
    assert by["logs", ""]["text"].count("step") == 3
    if not has_every_call:
        return
    assert [row["instance_id"] for row in by["rentals", "instances"]["instances"]] == [7]
    assert by["rentals", "offers"]["found"] == 1 and by["rentals", "dataset"]["is_valid"] is True
