"""Containers: what Docker prints that Podman does not, as recorded (docs.docker.com, and Docker 28.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes import FakeTransport
from training_monitor.core.errors import AccessDenied, SettingsError, TargetNotFound
from training_monitor.core.results import CommandResult
from training_monitor.targets.kinds.container import DockerTarget
from training_monitor.targets.pods import describe_end, outlived_kill
from training_monitor.targets.target import parse_target
from training_monitor.verdict.failure import classify_failure

STATE: dict[str, object] = dict.fromkeys(("Running", "Paused", "Restarting", "Dead"), False) | {
    "OOMKilled": True,
    "Status": "exited",
}
STATE |= {"Pid": 0, "ExitCode": 137, "Error": ""}
STATE |= {"StartedAt": "2030-05-01T10:00:00.123456789Z", "FinishedAt": "2030-05-01T10:20:30.5Z"}


def answers(stdout: str = "", stderr: str = "", exit_code: int = 0) -> FakeTransport:
    transport = FakeTransport(lambda script: ("", 0))
    transport.register(["docker"], lambda words, input: CommandResult(words, exit_code, stdout, stderr, 0.1))
    return transport


def ending_of(**state: Any) -> Any:
    return DockerTarget("t1").read_standing(answers(json.dumps(STATE | state)))


def test_a_container_has_ended_as_its_state_says() -> None:
    end = ending_of()
    assert (end.phase, end.terminated, end.exit_code, end.terminated_at) == ("Failed", "OOMKilled", 137, 1903861230.5)
    assert describe_end(end).startswith("container t1 is Failed: OOMKilled (exit code 137")
    assert classify_failure("", exit_code=137, pod=end).category == "host_oom"
    end = ending_of(OOMKilled=False, ExitCode=0, FinishedAt="0001-01-01T00:00:00Z")
    assert (end.phase, end.terminated, end.terminated_at) == ("Succeeded", "Completed", None)
    assert ending_of(ExitCode="x").exit_code is None and ending_of(ExitCode=True).exit_code is None
    end = ending_of(ExitCode=0)  # OOMKilled, as one of its processes was
    assert (end.phase, end.terminated) == ("Succeeded", "OOMKilled") and outlived_kill(end)
    ready = ending_of(Status="initialized", ExitCode=0)  # by podman init
    assert (ready.phase, ready.resume) == ("Pending", "docker start t1")
    paused = ending_of(Status="paused")
    assert (paused.phase, paused.exit_code, paused.resume) == ("Suspended", None, "docker unpause t1")
    created = ending_of(Status="created", ExitCode=0)
    assert (created.phase, created.resume) == ("Pending", "docker start t1")
    again = ending_of(Status="restarting", OOMKilled=False, ExitCode=1)
    assert describe_end(again).startswith("container t1 is Pending: Error (exit code 1, at ")
    refused = ending_of(Status="created", OOMKilled=False, ExitCode=128, Error="could not select device driver")
    assert (refused.phase, refused.message) == ("Failed", "could not select device driver")
    for status in ("running", "removing", None, 7):
        assert ending_of(Status=status) is None
    for text in ["", "[]", "null", "{", "[" * 5000]:
        assert DockerTarget("t1").read_standing(answers(text)) is None


def test_lines_of_both_outputs_are_in_the_order_of_their_times() -> None:
    out = "2030-05-01T10:00:00.1Z step 1\n2030-05-01T10:00:00.3Z step 2\n"
    read = DockerTarget("t1").read_output(answers(out, "2030-05-01T10:00:00.2Z warning\n"))
    assert [line.split(" ", 1)[1] for line in read.splitlines()] == ["step 1", "warning", "step 2"]


def test_a_refusal_is_an_error_of_its_kind() -> None:
    for said, kind in [
        ("Error response from daemon: No such container: t1", TargetNotFound),
        ("permission denied while trying to connect to the Docker daemon socket at unix:///", AccessDenied),
    ]:
        with pytest.raises(kind) as caught:
            DockerTarget("t1").read_standing(answers(stderr=said, exit_code=1))
        assert caught.value.hint


def test_the_list_takes_names_and_is_no_container() -> None:
    listed = DockerTarget("").list_targets(answers("train\nalias,other\n--rm\n$(id)\n\n"))
    assert [str(each) for each in listed] == ["docker://train", "docker://alias"]
    with pytest.raises(SettingsError, match="one of these running containers: train"):
        DockerTarget("").connect(answers("train\n"))
    for text in ["docker://-it", "docker://a b", "docker://$(id)", "docker://-oX=y/t1", "docker://a/b/c"]:
        with pytest.raises(SettingsError):
            parse_target(text)
