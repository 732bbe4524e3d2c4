"""auto_restart on the real Ray, through the real kubectl and a loopback Kubernetes API."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import MARK, Surroundings, wait_until
from tests.integration.ray_head import RayHead, running_ray
from tests.loopback.kubernetes import KubernetesApi, Pod
from training_monitor import (
    Event,
    auto_restart,
    check_job_status,
    get_job_logs,
    list_jobs,
    stop_job,
    submit_job_with_resume,
)
from training_monitor.cli import demo_training
from training_monitor.reports import RestartReport

HEAD = "verl-head-pgbtb"
LABELS = {"ray.io/cluster": "verl", "ray.io/node-type": "head"}


@pytest.fixture
def head(ray: RayHead, kube: KubernetesApi, surroundings: Surroundings) -> Pod:
    return kube.add_pod(HEAD, labels=LABELS, env={**ray.environ, MARK: surroundings.mark})


def training(folder: Path, **options: Any) -> dict[str, Any]:
    """A real training of 60 steps that crashes at 25 and hangs at 45, unless told otherwise."""
    given = {"output": folder, "steps": 60, "step-seconds": 0.03, "save-every": 10, "crash-at": 25, "hang-at": 45}
    words = " ".join(f"--{name} {value}" for name, value in {**given, **options}.items())
    return {"entrypoint": f"{sys.executable} {demo_training.__file__} {words}", "resume_argument": "--resume"}


class Supervision(threading.Thread):
    """auto_restart in a thread, with short times; notes its events and how many jobs of the name ran at once."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any] | None, **options: Any) -> None:
        super().__init__(daemon=True)
        self.job_name, self.events, self.result, self.most = name, list[Event](), None, 0
        self._call: Callable[[], RestartReport] = lambda: auto_restart(
            HEAD, name, str(folder), 5, 0.3, 3, 0.5, config, on_event=self.note, **options
        )
        self.start()

    def note(self, event: Event) -> None:
        self.events.append(event)
        if event.kind != "unreachable":
            views = [view for view in list_jobs(str(self.where)) if view.job_id.startswith(f"{self.job_name}-attempt")]
            self.most = max(self.most, sum(view.status in ("RUNNING", "PENDING") for view in views))

    where: str = HEAD

    def run(self) -> None:
        self.result = self._call()

    def end(self) -> RestartReport:
        self.join(90)
        assert self.result, self.events
        return self.result

    def kinds(self) -> set[str]:
        return {event.kind for event in self.events}


def test_a_training_that_crashes_and_hangs_is_restarted_from_its_checkpoints(head: Pod, tmp_path: Path) -> None:
    supervision = Supervision("crashes", tmp_path / "out", training(tmp_path / "out"))
    result = supervision.end()
    assert result["success"] and result["reason"] == "completed" and result["final_step"] == 60
    assert result["total_retries"] == 2 and result["job_id"] == "crashes-attempt-3"
    resumed = [(Path(attempt["checkpoint"] or "none").name, attempt["status"]) for attempt in result["attempts"]]
    assert resumed == [("none", "FAILED"), ("step_20", "STALLED"), ("step_40", "SUCCEEDED")]
    assert "step_25" in result["attempts"][1]["refused_checkpoints"][0]
    assert result["steps_lost"] == 10 and 0 < (result["goodput"] or 0) < 1
    assert supervision.most == 1 and {"started", "detected", "refused", "waiting", "stopped"} <= supervision.kinds()
    assert check_job_status(HEAD, "crashes-attempt-2") == "STOPPED"


def test_a_job_that_a_person_stopped_stays_stopped(head: Pod, tmp_path: Path) -> None:
    supervision = Supervision("person", tmp_path / "out", training(tmp_path / "out", steps=9999))
    assert wait_until(lambda: "progress" in supervision.kinds(), 30)
    stop_job(HEAD, "person-attempt-1")
    result = supervision.end()
    assert not result["success"] and result["reason"].startswith("stopped") and result["total_retries"] == 0
    again = auto_restart(HEAD, "person", str(tmp_path / "out"), check_interval=0.5)
    assert again["reason"].startswith("stopped") and len(list_jobs(HEAD)) >= 1
    assert check_job_status(HEAD, "person-attempt-2") == "UNKNOWN"


def test_without_a_configuration_the_latest_job_of_the_name_is_adopted_or_resumed(head: Pod, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = training(out, **{"hang-at": 0})
    config["runtime_env"] = {"env_vars": {"WORD": "kept"}}
    config["entrypoint"] = f"echo $WORD && {config['entrypoint']}"
    submit_job_with_resume(HEAD, None, config, job_name="latest")
    result = Supervision("latest", out, None).end()
    assert result["success"] and result["job_id"] == "latest-attempt-2" and result["total_retries"] == 1
    assert result["attempts"][1]["checkpoint"] == f"{out}/step_20"
    log = get_job_logs(HEAD, "latest-attempt-2", 1000)
    assert "kept\n" in log and f"--resume {out}/step_20" in log


def test_an_api_server_that_is_away_costs_no_restart(head: Pod, kube: KubernetesApi, tmp_path: Path) -> None:
    options = {"steps": 150, "crash-at": 0, "hang-at": 0}
    supervision = Supervision("outage", tmp_path / "out", training(tmp_path / "out", **options))
    assert wait_until(lambda: "progress" in supervision.kinds(), 30)
    kube.stop()
    assert wait_until(lambda: "unreachable" in supervision.kinds(), 20)
    kube.start()
    result = supervision.end()
    assert result["success"] and result["total_retries"] == 0 and "reached" in supervision.kinds()


def test_a_replaced_head_pod_is_followed(head: Pod, ray: RayHead, kube: KubernetesApi, tmp_path: Path) -> None:
    options = {"steps": 200, "crash-at": 0, "hang-at": 0}
    supervision = Supervision("replaced", tmp_path / "out", training(tmp_path / "out", **options))
    assert wait_until(lambda: "progress" in supervision.kinds(), 30)
    supervision.where = "verl-head-new42"
    environ = dict(head.env)
    kube.remove_pod(HEAD)
    kube.add_pod("verl-head-new42", labels=LABELS, env=environ)
    result = supervision.end()
    assert result["success"] and result["total_retries"] == 0 and "moved" in supervision.kinds()


@pytest.fixture(scope="module")
def guarded_ray() -> Iterator[RayHead]:
    with running_ray(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 40) as head:
        yield head


def test_a_dashboard_that_wants_a_token_gets_it(guarded_ray: RayHead, kube: KubernetesApi, tmp_path: Path) -> None:
    pod = kube.add_pod(HEAD, env=guarded_ray.environ)
    job_id = submit_job_with_resume(HEAD, None, {"entrypoint": "echo step 1"}, job_name="token")
    assert wait_until(lambda: check_job_status(HEAD, job_id) == "SUCCEEDED", 40)
    token = tmp_path / "token"
    token.write_text("a" * 40 + "\n")
    del pod.env["RAY_AUTH_TOKEN"]
    pod.env["RAY_AUTH_TOKEN_PATH"] = str(token)
    assert check_job_status(HEAD, job_id) == "SUCCEEDED"
    token.write_text("b" * 40)
    assert check_job_status(HEAD, job_id) == "UNKNOWN"
    with pytest.raises(Exception, match="refused access"):
        get_job_logs(HEAD, job_id)
