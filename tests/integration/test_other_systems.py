"""A client that is no Linux: everything that watches elsewhere works, and the target local says what it needs."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Place, SshServer, Surroundings, wait_until
from tests.integration.other_system import OtherSystem
from tests.loopback.kubernetes import Pod
from tests.loopback.ray_dashboard import RayDashboard
from tests.loopback.vast import VastApi
from training_monitor import check_job_status, start_process_job, stop_job

DONE, RUNNING = "process:done", "process:running"
NEEDS = "the target `local` requires Linux's /proc, which this machine (Darwin) does not have"
RUN = "while :; do echo step 3/9 loss=0.25; sleep 0.2; done"


@pytest.fixture
def mac(surroundings: Surroundings) -> Iterator[OtherSystem]:
    system = OtherSystem(surroundings.folder / "mac")
    yield system
    assert system.forget_refused() == [], "a tool was called with what only GNU's takes"


def test_it_is_as_on_a_mac(mac: OtherSystem) -> None:
    script = """
        import os, subprocess, sys
        assert not os.path.exists("/proc/self/stat") and not hasattr(os, "pidfd_open") and sys.platform == "darwin"
        for command, status in (("stat -c %s /", 64), ("date +%s%N", 64), ("date +%s", 0), ("nproc", 127)):
            assert subprocess.run(command, shell=True, capture_output=True).returncode == status, command
    """
    done = mac.run_python("-c", textwrap.dedent(script))
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in mac.forget_refused()] == ["stat", "date"]


@pytest.fixture
def place(over_ssh: Place) -> Iterator[str]:
    """A target that is not this machine, with a job that has ended and one that runs."""
    start_process_job(over_ssh.address, "echo step 7/7 loss=0.5", "done")
    start_process_job(over_ssh.address, RUN, "running")
    assert wait_until(lambda: check_job_status(over_ssh.address, DONE) == "SUCCEEDED")
    yield over_ssh.address
    stop_job(over_ssh.address, RUNNING, grace=0.1)


def of_check(said: Any) -> object:
    return [(job["name"], job["verdict"], job["state"], job["step"], job["loss"]) for job in said["jobs"]]


def of_fleet(said: Any) -> object:
    return [(row["status"], row["step"], row["loss"], row["state"], row["error"]) for row in said["members"]]


def of_health(said: Any) -> object:
    return said["verdict"], said["issues"], [(disk["path"], disk["error"]) for disk in said["disk"]]


def of_doctor(said: Any) -> object:
    """Without what is not the same on another system."""
    return [(check["name"], check["state"]) for check in said["checks"] if check["name"] != "target local"]


def without_ages(text: str) -> str:
    return re.sub(r"[\d.]+s ago", "ago", text)


COMMANDS: dict[str, tuple[tuple[str, ...], Callable[[Any], object] | None]] = {
    "check": (("check", "{}", RUNNING, "--json"), of_check),
    "watch": (("watch", "{}", "--job", DONE, "--once", "--json"), lambda said: (said["status"], said["step"])),
    "status": (("status", "{}", DONE), None),
    "field": (("check", "{}", RUNNING, "--field", "step"), None),
    "logs": (("logs", "{}", DONE), None),
    "health": (("health", "{}", "--json"), of_health),
    "gpu": (("gpu", "{}", "--json"), lambda said: (said["gpu_count"], said["error"])),
    "fleet": (("fleet", f"{{}}#{RUNNING}", "--once", "--json", "--no-history"), of_fleet),
    "wait": (("wait", "{}", DONE, "--timeout", "60", "--json"), lambda said: said["outcome"]),
    "doctor": (("doctor", "{}", "--json"), of_doctor),
}


def test_what_runs_elsewhere_is_watched_as_from_linux(subtests: pytest.Subtests, mac: OtherSystem, place: str) -> None:
    for name, (words, read) in COMMANDS.items():
        with subtests.test(name):
            argv = [word.format(place) for word in words]
            for _ in range(3):  # other trainings of this machine begin, save and end meanwhile
                there, here = mac.run(*argv), run_command(*argv)
                assert "Traceback" not in there.stderr
                texts = [each.stdout for each in (there, here)]
                seen, expected = (read(json.loads(text)) if read else without_ages(text) for text in texts)
                if (there.returncode, seen) == (here.returncode, expected):
                    break
            assert seen and (there.returncode, seen) == (here.returncode, expected), (there.stderr, here.stderr)


def test_a_ray_job_is_watched_as_from_linux(mac: OtherSystem, in_pod: Place, pod: Pod) -> None:
    with RayDashboard() as dashboard:
        dashboard.add_job("llama-attempt-1", "SUCCEEDED", "step 40/40 loss=0.1\n")
        in_pod.set_environment({"RAY_API_SERVER_ADDRESS": dashboard.address})
        for words in (("status", in_pod.address, "llama-attempt-1"), ("health", in_pod.address, "--only", "ray")):
            there, here = mac.run(*words), run_command(*words)
            assert (there.returncode, there.stdout) == (here.returncode, here.stdout)
        assert "SUCCEEDED" in mac.run("status", in_pod.address, "llama-attempt-1").stdout


def test_a_rented_machine_is_watched_as_from_linux(mac: OtherSystem, vast: VastApi, sshd: SshServer) -> None:
    vast.add_instance(7, ssh_host="127.0.0.1", ssh_port=sshd.port, actual_status="running")
    for words in (
        ("vast", "--once", "--json", "--no-history"),
        ("check", "vast://7", "--json"),
        ("rent", "instances", "--json"),
    ):
        there, here = mac.run(*words), run_command(*words)  # the second look may know more: the first is remembered
        assert there.returncode in (0, 1, 3), (there.stdout, there.stderr, here.stderr)
        assert "Traceback" not in there.stderr
        said = json.loads(there.stdout)
        assert said.keys() == json.loads(here.stdout).keys()
        if words[0] == "vast":
            seen = {row["key"]: (row["instance_id"], row["status"], row["error"]) for row in said["members"]}
            assert seen["vast://7"] == (7, "running", None), "beside it may be what others train on this machine"


LOCAL = [
    ("check", "local", "1"),
    ("wait", "local", "1", "--timeout", "5"),
    ("stop", "local", RUNNING),
    ("run", "new", "--no-checkpoints", "--", "true"),
    ("checkpoints", "local", "."),
    ("demo",),
]


def test_the_target_local_says_what_it_needs_and_concludes_nothing(
    subtests: pytest.Subtests, mac: OtherSystem, local: Place
) -> None:
    """Without /proc every process would seem to be gone: waited for, lost, and started a second time."""
    start_process_job("local", RUN, "running")
    for words in LOCAL:
        with subtests.test(" ".join(words)):
            done = mac.run(*words)
            assert done.returncode == 3, (done.stdout, done.stderr)
            assert NEEDS in done.stderr and "Try: use a Linux target" in done.stderr
            assert "Traceback" not in done.stderr
    assert check_job_status("local", RUNNING) == "RUNNING"
    stop_job("local", RUNNING, grace=0.1)


def test_reports_of_the_target_local_are_unknown_there(mac: OtherSystem, local: Place) -> None:
    health, gpus, fleet = (
        json.loads(mac.run(*words, "--json").stdout)
        for words in (("health", "local"), ("gpu", "local"), ("fleet", "local#process:a", "--once", "--no-history"))
    )
    assert health["verdict"] == "unknown" and NEEDS in json.dumps(health)
    assert gpus["healthy"] is False and gpus["busy"] is None and NEEDS in gpus["error"]
    [row] = fleet["members"]
    assert NEEDS in row["error"] and row["step"] is None and row["state"] in (None, "unknown")


def test_containers_of_this_machine_are_reached_there(mac: OtherSystem) -> None:
    script = """
        from training_monitor.targets.target import parse_target
        print(*parse_target("docker://box").connect(None).words(["true"]))
    """
    assert mac.run_python("-c", textwrap.dedent(script)).stdout == "docker exec -i box true\n"


def test_doctor_says_that_this_machine_cannot_be_a_target(mac: OtherSystem) -> None:
    checks = json.loads(mac.run("doctor", "--json").stdout)["checks"]
    [check] = [each for each in checks if each["name"] == "target local"]
    assert check["state"] == "missing" and check["found"] == NEEDS
    assert "target local" not in run_command("doctor").stdout


def test_runs_of_a_folder_are_shown_without_their_processes(mac: OtherSystem, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"status": "training", "epoch": 1}))
    done = mac.run("top", str(tmp_path), "--once")
    assert done.returncode == 0 and "processes cannot be list" in done.stdout and "Traceback" not in done.stderr


def test_the_python_functions_raise_the_same(mac: OtherSystem) -> None:
    script = """
        from training_monitor import TrainingMonitorError, auto_restart, check_training, start_process_job
        calls = [lambda: check_training("local"), lambda: start_process_job("local", "true", "a"),
                 lambda: auto_restart("local", "a", None, job_config={"command": ["true"]})]
        for call in calls:
            try:
                call()
            except TrainingMonitorError as error:
                print(type(error).__name__, error.what)
    """
    done = mac.run_python("-c", textwrap.dedent(script))
    assert done.stdout.splitlines() == [f"LocalFailure {NEEDS}"] * 3, done.stderr
