"""The command line on this machine and in a pod: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.commands import PYTHON, run_command as cli, run_on_a_terminal
from tests.integration.conftest import Place, Surroundings, wait_until
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.requirements import require
from training_monitor import JobStatus, start_process_job
from training_monitor.jobs import look_at_job
from training_monitor.jobs.jobs import JobView

ROOT = Path(__file__).parents[2]
GPU_ROW = "{}, GPU-{}, NVIDIA H100 80GB HBM3, {}, 40, 60000, 81559, {}, 700.00, 60, Disabled"
HOSTILE = ["'; rm -rf x; '", '"$(touch hacked)"', "a/../b", "x\ny", "-h; ls", "späce ☃"]


def environ(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def give_gpus(place: Place, *utilizations: int, watts: int = 500) -> None:
    """An nvidia-smi that prints rows in the real one's form."""
    rows = "\n".join(GPU_ROW.format(n, n, percent, watts) for n, percent in enumerate(utilizations))
    tool = place.surroundings.tools / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\ncase $1 in --query-gpu*) cat <<END\n{rows}\nEND\n;; *) echo 77, python, GPU-0, 512;; esac\n"
    )
    tool.chmod(0o755)


def start(command: str, name: str, until: Callable[[JobView], bool]) -> str:
    """A job of this machine."""
    job_id = start_process_job("local", command, name)
    assert wait_until(lambda: until(look_at_job("local", job_id)))
    return job_id


@pytest.fixture
def job(local: Place) -> str:
    """A job that has printed three steps and waits."""
    command = "for i in 1 2 3; do echo step $i/9 loss=0.$i; done; sleep 600"
    return start(command, "steps", lambda job: job.progress.step == 3)


def test_every_command_that_reads_reports_a_running_job(job: str) -> None:
    done = cli("status", "local", job)
    assert done.returncode == 0 and f"{job} RUNNING step 3/9" in done.stdout and done.stderr == ""
    assert json.loads(cli("status", "local", job, "--json").stdout)["jobs"][0]["step"] == 3
    done = cli("status", "local")
    assert done.returncode == 0 and job in done.stdout and "RUNNING" in done.stdout
    assert [cli("check", "local", name, "--field", "step").stdout for name in (job, "steps")] == ["3\n"] * 2
    assert json.loads(cli("check", "local", job, "--json").stdout)["jobs"][0]["total_steps"] == 9
    assert cli("logs", "local", job, "--tail", "2").stdout == "step 2/9 loss=0.2\nstep 3/9 loss=0.3\n"
    command = f"{PYTHON} -m training_monitor logs local {job} | true"  # a reader that leaves early
    env = environ(PYTHONUNBUFFERED="")
    assert subprocess.run(["sh", "-c", command], env=env, text=True, capture_output=True, timeout=60).stderr == ""


def test_a_field_or_a_name_that_there_is_not_is_wrong_use(job: str) -> None:
    done = cli("check", "local", job, "--field", "stp")
    assert done.returncode == 2 and "got 'stp', expected step" in done.stderr
    done = cli("logs", "local", "process:stepz")
    assert done.returncode == 2 and "no training 'stepz'; similar names: steps" in done.stderr


def test_status_of_a_failed_job_names_the_root_of_its_failure(local: Place) -> None:
    words = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    command = f"echo '{words}'; echo 'Watchdog caught collective operation timeout'; exit 1"
    job_id = start(command, "oom", lambda job: job.status is JobStatus.FAILED)
    done = cli("status", "local", job_id)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and "exit code 1" in lines[0]
    assert lines[1:] == [f"  failed: {words.removeprefix('[rank1]: ')}", "  kind of failure: cuda_oom (user)"]
    found = json.loads(cli("status", "local", job_id, "--json").stdout)["jobs"][0]["failure"]
    assert (found["category"], found["action"], found["rank"]) == ("cuda_oom", "stop", 1)
    piped = start(f"echo step 3/9 loss=1; echo '{words}' | cat", "piped", lambda job: job.status is JobStatus.SUCCEEDED)
    assert cli("status", "local", piped).returncode == cli("check", "local", piped).returncode == 3


def test_step_of_a_job_that_printed_none_is_unknown(local: Place) -> None:
    job_id = start_process_job("local", "sleep 60", "quiet")
    assert "the log is empty" in cli("logs", "local", job_id).stderr
    done = cli("check", "local", job_id, "--field", "step")
    assert done.returncode == 3 and done.stdout == "" and "its step is unknown" in done.stderr


def test_logs_say_when_they_are_cut_and_cannot_steer_the_terminal(local: Place) -> None:
    colours = r"printf '\033]0;owned\007\033[2Jred\033[31m \302\233 end\n'"
    job_id = start(f"seq 1 20000; {colours}; sleep 60", "long", lambda job: job.log_tail.endswith("end\n"))
    assert "older lines" in cli("logs", "local", job_id, "--tail", "20000").stderr
    done = cli("logs", "local", job_id, "--tail", "100")
    assert done.stderr == "" and "red" in done.stdout and not set("\x1b\x07\x9b") & set(done.stdout)


def test_logs_that_cannot_be_read_are_unknown_and_not_empty(local: Place) -> None:
    words = [PYTHON, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as it:
        try:
            done = cli("logs", "local", str(it.pid))
        finally:
            it.kill()
    assert done.returncode == 3 and f"pid {it.pid}: its output cannot be read" in done.stderr
    assert "only its user may see in which one. Try: run this as its user, or" in done.stderr


def test_stall_is_1_when_silent_and_0_when_not(job: str) -> None:
    assert cli("check", "local", job, "--stall-after", "300", "--sample", "0").returncode == 0
    time.sleep(2.1)
    done = cli("check", "local", job, "--stall-after", "2")
    assert done.returncode == 1 and done.stdout.startswith("STALLED ")


def test_wait_says_why_it_returned(job: str) -> None:
    done = cli("wait", "local", job, "--timeout", "0.5", "--interval", "0.2", "--json")
    assert done.returncode == 3 and json.loads(done.stdout)["outcome"] == "timeout"
    done = cli("wait", "local", start_process_job("local", "echo step 5; sleep 0.5", "ends"))
    assert done.returncode == 0 and "finished" in done.stdout and "step 5" in done.stdout


def test_stop_ends_the_job_and_says_so(job: str) -> None:
    done = cli("stop", "local", job, "--stop-grace", "1")
    assert done.returncode == 0 and f"{job} has ended (STOPPED)" in done.stdout
    assert cli("status", "local", job).returncode == 1


@pytest.mark.parametrize("whose", ["training", "shell"])
def test_stop_by_a_pid_stops_its_job(local: Place, whose: str) -> None:
    script = local.folder / "train.py"
    script.write_text(
        "import time\nfor n in range(3000):\n    print(f'step {n}/3000 loss 0.5', flush=True)\n    time.sleep(0.1)"
    )
    pid = "$!" if whose == "training" else "$$"
    job_id = start(f"{PYTHON} {script} & echo pid {pid}; wait", f"by-{whose}", lambda job: "step 3" in job.log_tail)
    pid = look_at_job("local", job_id).log_tail.split()[1]
    done = cli("stop", "local", pid, "--stop-grace", "1")
    assert done.returncode == 0 and f"{job_id} has ended (STOPPED)" in done.stdout, done
    assert look_at_job("local", job_id).stopped_by == "a person"  # so that no supervisor restarts it


def test_stop_by_the_pid_of_a_program_beside_a_training_stops_that_alone(local: Place) -> None:
    job_id = start("sleep 300 & echo pid $!; sleep 301; true", "beside", lambda job: "pid" in job.log_tail)
    done = cli("stop", "local", look_at_job("local", job_id).log_tail.split()[1], "--stop-grace", "1")
    assert done.returncode == 0 and look_at_job("local", job_id).status is JobStatus.RUNNING, done


def test_gpu_prints_a_line_each_and_is_unknown_without_nvidia_smi(local: Place) -> None:
    done = cli("gpu", "local")
    assert done.returncode == 3 and "nvidia-smi was not found" in done.stderr
    assert json.loads(cli("gpu", "local", "--json").stdout)["gpu_count"] is None
    give_gpus(local, 100, 3)
    done = cli("gpu", "local")
    assert done.returncode == 0 and done.stdout.count("H100") == 2
    assert "100 %" in done.stdout and "pid 77" in done.stdout
    assert len({line.index("%") for line in done.stdout.splitlines() if line.startswith("GPU")}) == 1
    lost = "Unable to determine the device handle for GPU0: 0000:05:00.0: Unknown Error"
    (local.surroundings.tools / "nvidia-smi").write_text(f"#!/bin/sh\necho '{lost}'; echo No devices were found\n")
    done = cli("gpu", "local")
    assert done.returncode == 1 and "No devices" not in done.stdout + done.stderr


def test_health_is_0_1_or_3_by_its_verdict(local: Place, job: str) -> None:
    (local.folder / "checkpoints").mkdir()
    asked = ("health", "local", "--checkpoint-dir", str(local.folder / "checkpoints"), "--job", job)
    assert cli(*asked).returncode == 3
    give_gpus(local, 97, 95)
    done = cli(*asked)
    assert done.returncode == 0 and "health: OK" in done.stdout, done.stdout
    give_gpus(local, 0, 1)
    done = cli(*asked)
    assert done.returncode == 1 and "although the job is RUNNING" in done.stdout
    report = json.loads(cli(*asked, "--json").stdout)
    assert report["verdict"] == "failed" and len(report["issues"]) == len(report["remedies"])
    give_gpus(local, 100, 100, watts=90)
    assert "ranks are waiting in a collective" in cli(*asked).stdout


def test_health_of_a_pod_that_does_not_exist_is_failed(kube: KubernetesApi) -> None:
    done = cli("health", "nope", "--checkpoint-dir", "/c")
    assert done.returncode == 1 and "pod nope does not exist" in done.stdout


def test_checkpoints_are_marked(local: Place) -> None:
    folder = local.folder / "my checkpoints"
    for step, size in ((100, 30), (200, 0)):
        (folder / f"step_{step}").mkdir(parents=True)
        (folder / f"step_{step}" / "model.pt").write_bytes(b"\x80\x02." * size)
    done = cli("checkpoints", "local", str(folder))
    assert done.returncode == 0
    assert [line[0] for line in done.stdout.splitlines()] == ["*", "!"] and "empty file" in done.stdout
    missing = cli("checkpoints", "local", str(local.folder / "none"))
    assert missing.returncode == 1 and "none: no such folder" in missing.stderr
    assert f"{ROOT}/README.md: not a directory" in cli("checkpoints", "local", f"{ROOT}/README.md").stderr


def test_a_hostile_job_id_is_only_a_name(local: Place) -> None:
    for name, command in zip(HOSTILE, ("status", "logs", "stop") * 2):
        for given in (name, f"process:{name}"):
            done = cli(command, "local", "--", given)
            assert done.returncode in (1, 2, 3) and "Traceback" not in done.stderr and done.stderr.startswith("error:")
        assert done.returncode == 2 and "process:NAME" in done.stderr
    assert not list(local.folder.glob("**/hacked"))


def test_a_forbidden_pod_is_unknown(pod: Pod, kube: KubernetesApi) -> None:
    kube.forbidden = {"create pods/exec"}
    done = cli("status", "head", "process:x")
    assert done.returncode == 3 and "forbidden" in done.stderr and "can-i" in done.stderr


def test_a_missing_tool_is_named(surroundings: Surroundings) -> None:
    done = cli("status", "head", "process:x", PATH=str(surroundings.tools))
    assert done.returncode == 3 and "kubectl is not installed" in done.stderr


def test_a_missing_pod_is_unknown_and_says_what_to_try_also_as_json(kube: KubernetesApi) -> None:
    done = cli("status", "nope", "process:x", "--json")
    assert done.returncode == 3 and 'pods "nope" not found' in done.stderr and "Try:" in done.stderr
    said = json.loads(done.stdout)
    assert said["kind"] == "TargetNotFound" and said["hint"]


@pytest.mark.parametrize("wrong", [[], ["nonsense"], ["status"], ["status", "a b"], ["status", "ssh://"], ["run"],
                                   ["run", "--checkpoint-dir", "c"],
                                   ["wait", "head", "j", "--timeout", "-1"], ["gpu", "k8s://"], ["health", "ssh://"],
                                   ["logs", "head", "j", "--tail", "x"], ["status", "head", " "]])  # fmt: skip
def test_wrong_use_is_2(wrong: list[str]) -> None:
    done = cli(*wrong)
    assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr and "_count" not in done.stderr


def test_an_unknown_option_shows_the_usage_of_its_command() -> None:
    done = cli("checkpoints", "local", "c", "--nope")
    assert done.returncode == 2 and "usage: training-monitor checkpoints" in done.stderr and "--nope" in done.stderr


def test_without_a_kubeconfig_kubectl_is_quoted_once_and_without_its_own_log(surroundings: Surroundings) -> None:
    require("kubectl")
    done = cli("health", "head", "--checkpoint-dir", "c", KUBECONFIG=str(surroundings.tools / "none"))
    said = done.stdout + done.stderr
    assert done.returncode == 3 and "memcache.go" not in said and "set KUBECONFIG" in said
    assert said.count("localhost:8080 was refused") == 1


def test_health_names_a_checkpoint_folder_that_is_not_there(surroundings: Surroundings) -> None:
    done = cli("health", "local", "--checkpoint-dir", "/nowhere", "--json")
    assert "no folder /nowhere" in json.loads(done.stdout)["issues"]


def test_colour_is_for_terminals_and_respects_no_color(surroundings: Surroundings) -> None:
    assert "\x1b[3" in run_on_a_terminal("doctor").stdout
    assert "\x1b[" not in run_on_a_terminal("doctor", NO_COLOR="1").stdout + cli("doctor").stdout


def test_doctor_says_what_works_and_what_to_do(kube: KubernetesApi, pod: Pod) -> None:
    done = cli("doctor", "head", "local", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["kubectl exec"]["state"] == "ok" and checks["head"]["state"] == "ok"
    assert checks["local"]["found"].startswith("Linux")
    assert re.search(r"kubectl v1\.", checks["kubectl"]["found"]) and checks["kubectl"]["remedy"] == ""
    kube.forbidden = {"create pods/exec"}
    done = cli("doctor", "head")
    assert done.returncode == 1 and "permission for the verb create on pods/exec" in done.stdout


def test_run_keeps_a_command_in_a_pod_going(pod: Pod) -> None:
    command = "n=$(cat count 2>/dev/null || echo 0); echo $((n+1)) >count; echo step $n/1; [ $n -ge 1 ]"
    options = ["--checkpoint-dir", "none", "--retry-delay", "0.1", "--interval", "1", "--name", "counted"]
    done = cli("run", "--target", "head", *options, "--", command)
    assert done.returncode == 0 and "1 restart" in done.stdout and "Training finished" in done.stdout, done.stdout
    assert "Ctrl-C leaves it running" in done.stderr


def test_a_command_in_a_pod_that_ended_and_was_stopped_is_not_started_again(pod: Pod, tmp_path: Path) -> None:
    words = "run --target head --name again --checkpoint-dir c --retry-delay 30 --interval 1 -- sh -c".split()
    command = [sys.executable, "-m", "training_monitor", *words, "echo step 1/9; exit 3"]
    with subprocess.Popen(command, env=environ(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert wait_until((Path(pod.env["TRAINING_MONITOR_JOBS_DIR"]) / "again-attempt-1" / "exit_code").exists)
        stopped = cli("stop", "head", "again")
        assert stopped.returncode == 0 and "again-attempt-1 had already ended (FAILED)" in stopped.stdout
        out, err = child.communicate(timeout=30)
    assert child.returncode == 1 and "stopped: by a person" in out
    assert "again-attempt-2" not in cli("status", "head").stdout
    assert "exit code 3" in out and "logs head process:again-attempt-1" in out
    assert "supervising again on head" in err


def test_a_run_that_sigterm_ends_says_what_is_left(pod: Pod, kube: KubernetesApi) -> None:
    words = "run --target head --name termed --checkpoint-dir c --interval 1 -- sleep 600".split()
    command = [sys.executable, "-m", "training_monitor", *words]
    with subprocess.Popen(command, env=environ(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout and "started" in child.stdout.readline()
        begun = len(kube.execs)
        assert wait_until(lambda: len(kube.execs) > begun + 1)  # it has seen it run
        child.terminate()
        _, err = child.communicate(timeout=30)
    assert (
        child.returncode == -signal.SIGTERM
        and "keeps running, without supervision" in err
        and shlex.join(words[:4]) in err
    )
    assert cli("stop", "head", "process:termed").returncode == 0


def test_jobs_that_cannot_be_listed_are_unknown(surroundings: Surroundings) -> None:
    done = cli("status", "local", TRAINING_MONITOR_JOBS_DIR=str(ROOT / "README.md"))
    assert done.returncode == 3 and "is not a folder" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGABRT, None])
def test_a_demo_that_is_ended_leaves_nothing_behind(number: signal.Signals | None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training_monitor", "demo"]
    env = environ(TMPDIR=str(tmp_path))
    with subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout and child.stderr
        while "started" not in child.stdout.readline():
            assert child.poll() is None
        if number:
            child.send_signal(number)
        child.stdout.close()
        said = child.stderr.read()
        expected = -number if number is signal.SIGTERM else 128 + (number or signal.SIGPIPE)
        assert child.wait(30) == expected and "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run(["pgrep", "-f", str(tmp_path)], stdout=subprocess.DEVNULL).returncode == 1


def test_the_demo_shows_a_live_line_on_a_terminal_and_leaves_nothing_when_interrupted(tmp_path: Path) -> None:
    tmux = [require("tmux"), "-S", str(tmp_path / "socket")]
    demo = f"PYTHONPATH={shlex.quote(str(ROOT))} {PYTHON} -m training_monitor demo"
    command = f"trap : INT; {demo}; echo status=$?; sleep 60"  # without it, the shell ends by the signal too
    subprocess.run([*tmux, "new-session", "-d", "-x", "100", "-y", "30", command], check=True)

    def screen() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], text=True, capture_output=True).stdout

    try:
        assert wait_until(lambda: "steps/s" in screen() and "[###" in screen()), screen()
        assert len(re.findall(r"attempt \d  \[", screen())) == 1
        subprocess.run([*tmux, "send-keys", "C-c"], check=True)
        assert wait_until(lambda: "status=130" in screen()), screen()
        assert "the demo was interrupted" in screen() and "Traceback" not in screen()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
