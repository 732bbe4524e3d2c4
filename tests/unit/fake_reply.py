"""A bottom transport that answers questions by what their scripts contain, and `kubectl get pods` with given pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.fakes import read_arguments, read_call, read_program
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import Reply
from training_monitor.core.results import CommandResult
from training_monitor.targets.transport import Stream

CALLS = {
    ("gpu", "show"): "gpu",
    ("efa", "show"): "efa",
    ("host", "show_disks"): "disk",
    ("checkpoints", "list_checkpoints"): "checkpoints",
    ("ray_log", "show_log"): "log",
    ("ray_waiting", "show_waiting"): "waiting",
    ("evidence", "look"): "evidence",
}
RAY = {"/api/cluster_status": "resources"}  # other paths are of a job
Said = Mapping[str, "str | Reply"]


def rest(body: str, code: int = 200) -> Reply:
    """What Ray's dashboard answered."""
    return Reply(f"{body}\nhttp {code}\n", 0, 0.1)


def cli(text: str, code: int = 0) -> Reply:
    """What the `ray` command printed."""
    return Reply(f"cli\n{text}\nray exit {code}\n", 0, 0.1)


class FakeTargets:
    """`said` maps a pod (or `*`) to what each question prints there; an error in its place means no answer at all."""

    def __init__(
        self, said: Mapping[str, Said | TrainingMonitorError], pods: list[dict[str, Any]] | TrainingMonitorError
    ) -> None:
        self.said, self.pods, self.calls = said, pods, list[list[str]]()

    def run(self, argv: list[str], *, timeout: float, input: str | None = None) -> CommandResult:
        self.calls.append(list(argv))
        if "get" in argv:
            if isinstance(self.pods, TrainingMonitorError):
                raise self.pods
            wanted = [pod for pod in self.pods if pod["metadata"]["name"] in argv]
            return CommandResult(tuple(argv), 0, json.dumps({"kind": "List", "items": wanted}), "", 0.1)
        assert argv[-2:] == ["sh", "-s"] and input is not None, argv
        pod = argv[argv.index("--") - 1] if "--" in argv else "local"
        said = self.said.get(pod, self.said.get("*"))
        if isinstance(said, TrainingMonitorError):
            raise said
        assert said is not None, argv
        return CommandResult(tuple(argv), 0, _frames(input, said), "", 0.1)

    def stream(self, argv: list[str], *, input: str | None = None) -> Stream:
        raise AssertionError(argv)


def _frames(script: str, said: Said) -> str:
    nonce, scripts = read_program(script)
    text = ""
    for number, body in scripts.items():
        answer = said[_name(body)]
        reply = answer if isinstance(answer, Reply) else Reply(answer, 0, 0.1)
        text += f"\n{nonce} ask {number} 0 {reply.duration}\n{reply.output}\n{nonce} exit {reply.exit_code}\n"
    return f"{text}\n{nonce} close\n"


def _name(script: str) -> str:
    call = read_call(script)
    assert call, script
    if call.subject == "ray":
        return RAY.get(read_arguments(script)[1], "job")
    return CALLS[call.subject, call.function]


def pod_json(name: str, phase: str = "Running", ready: bool = True, **status: Any) -> dict[str, Any]:
    """One pod as `kubectl get pods -o json` gives it."""
    container = {"name": "main", "ready": ready, "restartCount": 0, "state": {"running": {}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": phase, "containerStatuses": [container], **status},
    }
