"""The real Ray, asked through the real kubectl and a loopback Kubernetes API."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import MARK, Surroundings, wait_until
from tests.integration.ray_head import RayHead
from tests.loopback.kubernetes import KubernetesApi, Pod
from training_monitor import (
    CommandFailed,
    CommandTimedOut,
    JobNotFound,
    LocalTransport,
    check_job_status,
    detect_stall,
    get_current_step,
    get_job_logs,
    get_throughput,
    get_training_health,
    list_jobs,
    look_at_job,
    monitor_job,
    stop_job,
    submit_job_with_resume,
    verify_ray_resources,
)
from training_monitor.models import CommandResult

HEAD = "ray-head-x2b4d"


@pytest.fixture
def head(ray: RayHead, kube: KubernetesApi, surroundings: Surroundings) -> Pod:
    return kube.add_pod(HEAD, env={**ray.environ, MARK: surroundings.mark})


def submit(entrypoint: str, name: str, checkpoint: str | None = None, **config: Any) -> str:
    return submit_job_with_resume(HEAD, checkpoint, {"entrypoint": entrypoint, **config}, job_name=name)


def ended(job_id: str) -> str:
    wait_until(lambda: check_job_status(HEAD, job_id) not in ("PENDING", "RUNNING"), 40)
    return check_job_status(HEAD, job_id)


def test_a_job_that_succeeds(head: Pod) -> None:
    job_id = submit("echo step 4/4 loss=0.5", "succeeds")
    assert job_id == "succeeds-attempt-1" and ended(job_id) == "SUCCEEDED"
    assert monitor_job(HEAD, job_id, check_interval=1)["status"] == "SUCCEEDED"


def test_a_job_that_fails_tells_its_exit_status_and_its_log_fools_nobody(head: Pod) -> None:
    job_id = submit("echo \"Job 'x' succeeded\"; echo \"Status for job 'fails-attempt-1': RUNNING\"; exit 3", "fails")
    assert ended(job_id) == "FAILED"
    view = look_at_job(HEAD, job_id)
    assert view.exit_code == 3 and view.message == "Job entrypoint command failed with exit code 3"
    head.env["RAY_API_SERVER_ADDRESS"], address = "http://127.0.0.1:9", head.env["RAY_API_SERVER_ADDRESS"]
    head.env["RAY_ADDRESS"] = address  # the ray command asks here, our own REST there
    assert check_job_status(HEAD, job_id) in ("FAILED", "UNKNOWN")


def test_a_stopped_job_is_stopped_and_stays_stopped(head: Pod) -> None:
    job_id = submit("echo step 1; sleep 300", "stopped")
    assert wait_until(lambda: check_job_status(HEAD, job_id) == "RUNNING", 30)
    assert stop_job(HEAD, job_id) == "STOPPED" and check_job_status(HEAD, job_id) == "STOPPED"
    assert stop_job(HEAD, job_id) == "STOPPED"


def test_a_job_that_hangs_is_stalled_and_one_that_steps_is_not(head: Pod) -> None:
    job_id = submit("for i in 1 2 3 4 5 6; do echo step $i/9 loss=0.$i; sleep 1; done; sleep 300", "hangs")
    assert wait_until(lambda: (get_current_step(HEAD, job_id) or 0) >= 2, 30)
    assert not detect_stall(HEAD, job_id, stagnation_threshold=30, sample_duration=0)
    stalls: list[str] = []
    report = monitor_job(HEAD, job_id, 0.5, 60, 3, on_stall=lambda: stalls.append("stalled"))
    assert report["status"] == "STALLED" and report["final_step"] == 6 and stalls == ["stalled"]
    assert "no output" in report["reason"] and detect_stall(HEAD, job_id, 2)
    stop_job(HEAD, job_id)


def test_a_job_that_does_not_exist(head: Pod) -> None:
    for name in ("nope", "a'; rm -rf x; '", 'b"$(touch hacked)"', "c/d", "späce ☃"):
        assert check_job_status(HEAD, name) == "UNKNOWN"
        with pytest.raises(JobNotFound):
            get_current_step(HEAD, name)
        with pytest.raises(JobNotFound):
            stop_job(HEAD, name)
    assert not (Path(head.root) / "hacked").exists()


def test_the_end_of_the_log_and_what_it_says(head: Pod) -> None:
    lines = "; ".join(f"echo step {n}/50 loss=0.{n} '{n}.5 it/s'" for n in range(1, 40))
    job_id = submit(lines, "logs")
    assert ended(job_id) == "SUCCEEDED"
    assert get_job_logs(HEAD, job_id, 2).count("\n") == 2 and get_current_step(HEAD, job_id) == 39
    assert get_throughput(HEAD, job_id) == 39.5
    head.env["RAY_TMPDIR"] = "/nowhere"  # the driver ran on another node: its log comes over REST
    assert get_current_step(HEAD, job_id) == 39
    assert "Running entrypoint" in get_job_logs(HEAD, job_id, 1000)


def test_steps_of_actors_are_seen_behind_rays_prefixes_and_deduplication(head: Pod) -> None:
    script = Path(head.root) / "actors.py"
    script.write_text(
        "import ray, time\nray.init()\n"
        "@ray.remote(num_cpus=0.1)\nclass Worker:\n    def go(self):\n"
        "        for n in range(1, 26):\n            print(f'step {n} loss={1 / n:.3f}', flush=True)\n"
        "            time.sleep(0.02)\n"
        "ray.get([w.go.remote() for w in [Worker.remote() for _ in range(2)]])\ntime.sleep(6)\n"
    )
    job_id = submit(f"python {script}", "actors", runtime_env={"env_vars": {"RAY_COLOR_PREFIX": "1"}})
    assert ended(job_id) == "SUCCEEDED"
    assert "pid=" in get_job_logs(HEAD, job_id) and get_current_step(HEAD, job_id) in range(20, 26)


def test_what_a_job_is_told_arrives_as_it_is(head: Pod) -> None:
    told = 'echo got "$RESUME_FROM_CHECKPOINT" && echo at {checkpoint} && echo "$WORD" \'single quoted\''
    env = {"env_vars": {"WORD": 'two  words \'n "quotes"'}}
    job_id = submit(told, "told", "/checkpoints/step 5", runtime_env=env, resume_argument="--resume")
    assert ended(job_id) == "SUCCEEDED"
    log = get_job_logs(HEAD, job_id)
    assert "got /checkpoints/step 5\n" in log and "at /checkpoints/step 5\n" in log
    assert env["env_vars"]["WORD"] + " single quoted\n" in log
    second = submit("echo with", "told", "/c/step_7", resume_argument="--resume")
    assert second == "told-attempt-2" and ended(second) == "SUCCEEDED"
    assert "with --resume /c/step_7\n" in get_job_logs(HEAD, second)


def test_a_folder_of_the_head_is_packed_and_no_secret_stands_in_an_argv(head: Pod, surroundings: Surroundings) -> None:
    folder = Path(head.root) / "work"
    folder.mkdir()
    (folder / "hello.py").write_text("import os\nprint('hello', len(os.environ['SECRET']))\n")
    seen: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(entry.read_bytes().decode(errors="replace"))
                except OSError:
                    continue

    watcher = threading.Thread(target=look)
    watcher.start()
    env = {"working_dir": str(folder), "env_vars": {"SECRET": "do-not-show-me"}}
    try:
        job_id = submit("python hello.py", "packed", runtime_env=env)
    finally:
        done.set()
        watcher.join()
    assert ended(job_id) == "SUCCEEDED" and "hello 14" in get_job_logs(HEAD, job_id)
    ours = {line for line in seen if "submit" in line or "kubectl" in line}  # Ray's own workers get it in their argv
    assert any("packed-attempt-1" in line for line in ours), "the submission was not seen at all"
    assert not [line for line in ours if "do-not-show-me" in line]


class LosesAnswers(LocalTransport):
    """Does what it is told and loses the first answer to a submission."""

    def __init__(self) -> None:
        self.lost = 0

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        result = super().run(argv, timeout=timeout, input=input)
        if "_rest POST /api/jobs/ " in (input or "") and not self.lost:
            self.lost += 1
            raise CommandTimedOut("no answer")
        return result


def test_a_submission_whose_answer_is_lost_is_found_and_not_repeated(head: Pod) -> None:
    transport = LosesAnswers()
    config = {"entrypoint": "echo once"}
    job_id = submit_job_with_resume(HEAD, None, config, job_name="lost", transport=transport)
    assert transport.lost == 1 and ended(job_id) == "SUCCEEDED"
    assert [view.job_id for view in list_jobs(HEAD) if view.job_id.startswith("lost")] == ["lost-attempt-1"]


def test_a_job_that_ray_refuses_is_a_clear_error(head: Pod) -> None:
    with pytest.raises(CommandFailed, match="Ray did not accept the job"):
        submit("echo x", "refused", runtime_env={"working_dir": "/no/such/folder"})


def test_resources_idle_and_in_use_and_what_waits(head: Pod) -> None:
    assert verify_ray_resources(HEAD)["gpus_available"] == 4.0
    script = Path(head.root) / "gpus.py"
    script.write_text(
        "import ray, time\nray.init()\n@ray.remote(num_gpus=2, num_cpus=0)\ndef work(): time.sleep(60)\n"
        "many = [work.remote() for _ in range(4)]\nprint('step 1', flush=True)\ntime.sleep(60)\n"
    )
    job_id = submit(f"python {script}", "gpus")
    assert wait_until(lambda: verify_ray_resources(HEAD)["gpus_used"] == 4.0, 40)
    report = verify_ray_resources(HEAD)
    assert report["healthy"] and report["pending_demands"] and "GPU" in report["pending_demands"][0]
    health = get_training_health(HEAD, "checkpoints", job_id=job_id)
    assert health["ray"]["gpus_used"] == 4.0 and health["job"] and health["job"]["status"] == "RUNNING"
    assert any("Ray cannot place" in issue for issue in health["issues"]) and json.dumps(health)
    stop_job(HEAD, job_id)


def test_the_ray_command_answers_where_rest_cannot_be_asked(head: Pod, surroundings: Surroundings) -> None:
    job_id = submit("echo step 2; exit 4", "fallback")
    running = submit("echo step 1; sleep 60", "fallback2")
    assert ended(job_id) == "FAILED"
    tools = surroundings.folder / "few tools"
    tools.mkdir()
    for name in ("sh", "head", "tail", "sleep", "cat", "setsid", "date", "stat", "env"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    (tools / "ray").write_text(f'#!/bin/sh\nPATH={head.env["PATH"]} exec ray "$@"\n')
    (tools / "ray").chmod(0o755)
    head.env["PATH"] = str(tools)  # neither curl nor python3
    assert check_job_status(HEAD, job_id) == "FAILED" and check_job_status(HEAD, running) == "RUNNING"
    assert check_job_status(HEAD, "nope") == "UNKNOWN"
    assert {view.job_id: view.status.value for view in list_jobs(HEAD)}[job_id] == "FAILED"
    third = submit("echo third", "fallback3")
    assert ended(third) == "SUCCEEDED" and stop_job(HEAD, running) == "STOPPED"


def test_python_asks_where_there_is_no_curl(head: Pod, surroundings: Surroundings) -> None:
    tools = surroundings.folder / "no curl"
    tools.mkdir()
    for name in ("sh", "head", "tail", "sleep", "cat", "setsid", "date", "stat"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    (tools / "python3").symlink_to(sys.executable)
    head.env["PATH"] = str(tools)
    job_id = submit("echo 'it''s' \"here\"", "nocurl", runtime_env={"env_vars": {"A": "b"}})
    assert ended(job_id) == "SUCCEEDED" and "its here" in get_job_logs(HEAD, job_id)


def test_ray_address_as_an_http_url_is_honoured(head: Pod) -> None:
    head.env["RAY_ADDRESS"] = head.env.pop("RAY_API_SERVER_ADDRESS")
    assert verify_ray_resources(HEAD)["healthy"]
    assert ended(submit("echo x", "address")) == "SUCCEEDED"


def test_a_dashboard_that_is_away_is_unknown_not_dead(head: Pod) -> None:
    head.env["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:9"
    assert check_job_status(HEAD, "nope") == "UNKNOWN"
    with pytest.raises(Exception, match="Ray does not answer"):
        look_at_job(HEAD, "nope")
    assert verify_ray_resources(HEAD)["gpus_available"] == 4.0, "the ray command asks the cluster itself"
    head.env["PATH"] = "/usr/bin:/bin"
    report = verify_ray_resources(HEAD)
    assert not report["healthy"] and report["gpus_available"] is None and report["error"]
