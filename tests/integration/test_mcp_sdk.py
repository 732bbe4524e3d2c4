"""The official SDK's clients list and call every tool, in both eras, about loopback machines.

The client of the SDK checks each answer against the output schema of its tool.
"""

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
from tests.mcp_clients import python_of
from training_monitor.agents.mcp import reads
from training_monitor.agents.mcp.tools import make_tools
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
        [str(python_of(version)), str(PROGRAM)],
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
    reads = [
        ["check_training", {}],
        ["check_training", {"target": "local", "what": job, "stall_after": 600}],
        ["check_training", {"target": pod.name}],
        ["explain_training", {"target": "local", "what": job, "also": ["local"], "timeout": 10, "stacks": True}],
        ["list_jobs", {}],
        ["list_jobs", {"target": pod.name}],
        ["job_status", {"target": "local", "job": job}],
        ["job_logs", {"target": "local", "job": job, "tail": 3}],
        ["check_health", {"target": pod.name, "pods": [pod.name]}],
        ["check_gpus", {}],
        ["check_efa", {"target": pod.name}],
        ["check_ray_resources", {"target": "local"}],
        ["list_checkpoints", {"target": "local", "directory": str(checkpoints.parent)}],
        ["look_at_training", {"target": "local", "log": str(log)}],
        ["list_fleet", {"targets": ["local"]}],
        ["list_vast", {"mock": True}],
        ["list_runs", {"folder": str(runs)}],
        ["show_history", {}],
        ["compare_runs", {}],
        ["cost_by_day", {"since": "2d"}],
        ["list_instances", {}],
        ["list_offers", {"max_price": 5, "limit": 2}],
        ["show_credits", {}],
        ["check_ssh_key", {}],
        ["list_queue", {"ended": True}],
        ["show_queued", {"job": "nothing"}],
        ["plan_sweep", {}],
        ["list_notices", {}],
        ["check_dataset", {"path": str(images)}],
        ["run_doctor", {"targets": ["local"]}],
        ["check_config", {}],
        ["classify_failure", {"text": "CUDA out of memory", "exit_code": 1}],
        ["read_log", {"text": "step 5/10"}],
        ["list_work", {}],
        ["work_status", {"handle": "process:mcp-wait-nothing"}],
        ["stop_wait", {"handle": "process:mcp-wait-nothing"}],
        ["start_wait", {"target": "local", "what": job, "conditions": ["step=9000"], "timeout": "1s", "name": "short"}],
    ]
    acts = [
        ["stop_work", {"handle": "process:mcp-wait-short"}],
        ["stop_job", {"target": "local", "job": job}],
        ["terminate_training", {"target": "local", "what": job}],
        ["upload_checkpoint", {"target": "local", "path": str(log), "destination": "hf:a/b"}],
        ["run_training", {"command": ["python3", "train.py"]}],
        ["restart_training", {"target": pod.name, "job_name": "x"}],
        ["watch_training", {"target": "local", "what": job}],
        ["launch_training", {"id": "a", "more": ["--name=a"]}],
        ["run_worker", {}],
        ["cancel_queued", {"job": "a"}],
        ["sweep_instances", {}],
        ["send_notice", {"message": "hello"}],
        ["test_channels", {}],
        ["setup_ssh_key", {}],
    ]
    return [*reads, *acts]


NOT_THERE = {"show_queued": "JobNotFound", "work_status": "JobNotFound", "stop_wait": "JobNotFound"}
ERRORS = {**NOT_THERE, "check_ssh_key": "TrainingMonitorError"}  # of the home folder of tests, which has no key


READS = [function.__name__ for function in reads.READS]
MARKS = {"caution", "left_out", "to_see_it"}


@pytest.mark.parametrize(
    ("version", "mode", "spoken"),
    [("1.30.*", "handshake", "2025-11-25"), ("2.3.*", "handshake", "2025-11-25"), ("2.3.*", "stateless", "2026-07-28")],
)
def test_every_tool_is_listed_and_called(
    calls: list[list[Any]], tmp_path: Path, version: str, mode: str, spoken: str
) -> None:
    found = ask_sdk(version, mode, calls, "--allow-write", "--read-under", str(tmp_path))
    assert found["version"] == spoken
    assert {tool["name"] for tool in found["tools"]} == {name for name, _ in calls} == set(make_tools(allow_write=True))
    for answer in found["answers"]:
        name = answer["tool"]
        assert "raised" not in answer, answer
        document = answer["structuredContent"]
        assert document["caution"] and len(json.dumps(document)) <= 8000 and answer["content"][0]["text"]
        if name in ERRORS:
            assert answer["isError"] and document["kind"] == ERRORS[name], answer
        else:
            assert not answer["isError"], answer
        if "confirm" in document:
            assert document["done"] is False
    told = {answer["tool"]: answer["structuredContent"] for answer in found["answers"]}
    described = {tool["name"]: set(tool["outputSchema"]["properties"]) for tool in found["tools"]}
    missing = {name: described[name] - set(told[name]) - MARKS for name in READS if name not in ERRORS}
    assert {name: names for name, names in missing.items() if names} == {"show_credits": {"account", "movements"}}
    assert told["job_status"]["jobs"][0]["status"] == "RUNNING"
    assert told["job_logs"]["text"].count("step") == 3
    assert [row["instance_id"] for row in told["list_instances"]["instances"]] == [7]
    assert told["list_offers"]["found"] == 1 and told["check_dataset"]["is_valid"] is True
    assert told["start_wait"]["handle"] == "process:mcp-wait-short"
