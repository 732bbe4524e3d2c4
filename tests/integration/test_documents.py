"""Every example runs, and every snippet of the documents, against the loopback Kubernetes API."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import PYTHON, run_command, run_script
from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.integration.service_world import NVIDIA_SMI
from tests.loopback.kubernetes import KubernetesApi
from tests.loopback.ray_dashboard import RayDashboard
from training_monitor import start_process_job
from training_monitor.cli import demo_training

ROOT = Path(__file__).parents[2]
PAGES = sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs/training_service.md"})  # which rents machines
SKILL = [ROOT / "SKILL.md", *sorted((ROOT / "training_monitor" / "agents" / "skill" / "references").glob("*.md"))]
DOCUMENTS = [ROOT / "README.md", *SKILL, *PAGES]
HEAD, WORKER = "training-head-abc123", "training-worker-def456"
FENCE = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(kind: str) -> list[object]:
    """Each once, by the first page that has it."""
    texts = {
        found.group(2): f"{document.name}-{number}"
        for document in reversed(DOCUMENTS)
        for number, found in enumerate(FENCE.finditer(document.read_text()))
        if found.group(1) == kind
    }
    return [pytest.param(text, id=name) for text, name in texts.items()]


@pytest.fixture(autouse=True)
def folder(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(surroundings.folder)


@pytest.fixture
def cluster(kube: KubernetesApi, surroundings: Surroundings) -> Iterator[KubernetesApi]:
    """The pods that the documents name, a Ray dashboard in the head, and a training script in this folder."""
    (surroundings.tools / "training-monitor").write_text(f'#!/bin/sh\nexec {PYTHON} -m training_monitor "$@"\n')
    (surroundings.tools / "training-monitor").chmod(0o755)
    arguments = "'--output', 'checkpoints', '--step-seconds', '0', '--steps', '40', '--crash-at', '0', '--hang-at', '0'"
    real = f"runpy.run_path({demo_training.__file__!r}, run_name='__main__')"
    script = f"import runpy, sys\nsys.argv[1:1] = [{arguments}]\n{real}\n"
    (surroundings.folder / "checkpoints" / "my-training").mkdir(parents=True)
    (surroundings.folder / "progress").mkdir()
    with RayDashboard() as dashboard:
        dashboard.add_job("my-training-attempt-1", "SUCCEEDED", "step 40/40 loss=0.1\n")
        for name in (HEAD, WORKER):
            root = surroundings.folder / name
            environ = {"RAY_API_SERVER_ADDRESS": dashboard.address, "PATH": os.environ["PATH"]}
            environ |= {"RAY_TMPDIR": str(root), "TRAINING_MONITOR_TEST": surroundings.mark}
            kube.add_pod(name, root=root, env=environ)
            (root / "train.py").write_text(script)
        (surroundings.folder / "train.py").write_text(script)
        yield kube


def here(text: str, surroundings: Surroundings) -> str:
    """The snippet with its checkpoint folder moved to where a test may write."""
    return text.replace("/checkpoints/", f"{surroundings.folder}/checkpoints/")


def run(surroundings: Surroundings, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, cwd=surroundings.folder, env=environ, text=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("snippet", snippets("bash"))
def test_every_shell_snippet_runs(snippet: str, cluster: KubernetesApi, surroundings: Surroundings) -> None:
    for line in here(snippet, surroundings).strip().splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "training-monitor" and not set("|&;<>*~$`") & set(line):
            done = run_command(*words[1:])
        else:
            done = run(surroundings, "sh", "-c", line.replace("python3 -m", f"{PYTHON} -m"))
        # `why` without a name depends on the trainings of other tests on this machine
        if any(words in done.stderr for words in ("expected exactly one; select one by", "no training was found")):
            continue
        assert "Traceback" not in done.stderr and done.returncode in (0, 1, 3), (line, done.stdout, done.stderr)
        if (" run " in line or " restart " in line) and "slurm://" not in line:  # there is no cluster here
            assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert done.stdout or "gpu" in line or "checkpoints" in line or done.stderr == "no notices\n"


@pytest.mark.parametrize("snippet", snippets("python"))
def test_every_python_snippet_runs(snippet: str, cluster: KubernetesApi, surroundings: Surroundings) -> None:
    text = here(snippet, surroundings)
    done = run(surroundings, sys.executable, "-c", text) if "TrainingMonitor(" in text else run_script(text)
    assert done.returncode == 0, done.stderr
    assert "auto_restart" not in snippet or "True" in done.stdout and "completed" in done.stdout


CALLS_OF_THE_RAY_SKILL = """
from training_monitor.src.monitor import auto_restart, check_efa_utilization, check_gpu_utilization, check_job_status
from training_monitor.src.monitor import detect_stall, find_latest_checkpoint, get_current_step, get_training_health
from training_monitor.src.monitor import monitor_job, print_training_health, submit_job_with_resume
from training_monitor.src.monitor import verify_ray_resources

head, job = "training-head-abc123", "my-training-attempt-1"
gpus = check_gpu_utilization(head)
assert gpus["healthy"] and (gpus["gpu_count"], gpus["gpu_utilizations"], gpus["avg_utilization"]) == (1, [90], 90)
rays = verify_ray_resources(head)
print(f"{rays['gpus_used']}/{rays['gpus_available']} GPUs, {rays['cpus_used']}/{rays['cpus_available']} CPUs")
efa = check_efa_utilization(head)
if not efa["efa_active"]:
    print(efa["transport"])
report = get_training_health(head_pod=head, checkpoint_dir="checkpoints", all_pods=[head, "training-worker-def456"])
print_training_health(report)
print(f"{report['healthy']} {report['gpu']['avg_utilization']:.0f} {report['efa']['transport']} {report['issues']}")
print(report["checkpoints"]["latest_step"])
assert (check_job_status(head, job), check_job_status(head, "nope")) == ("SUCCEEDED", "UNKNOWN")
assert (get_current_step(head, job), get_current_step(head, "nope")) == (40, None)
assert detect_stall(head_pod=head, job_id=job, stagnation_threshold=300) is False
ended = monitor_job(head_pod=head, job_id=job, check_interval=30, timeout=60)
assert (ended["status"], ended["final_step"]) == ("SUCCEEDED", 40) and ended["duration"] >= 0
print(find_latest_checkpoint("checkpoints"))
assert callable(submit_job_with_resume)  # test_ray.py submits to a real Ray
result = auto_restart(
    head_pod=head, job_name="my-training", checkpoint_dir="checkpoints", max_retries=10, retry_delay=60,
    stagnation_threshold=600, check_interval=30,
)
assert result["success"] and (result["final_step"], result["total_retries"]) == (40, 0), result
"""


def test_the_calls_of_the_ray_skill_work_under_its_module_name(
    cluster: KubernetesApi, surroundings: Surroundings
) -> None:
    (surroundings.tools / "nvidia-smi").write_text(NVIDIA_SMI)
    (surroundings.tools / "nvidia-smi").chmod(0o755)
    done = run_script(CALLS_OF_THE_RAY_SKILL)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_health_example_prints_a_verdict(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    done = run_script(str(ROOT / "examples/health_report.py"), HEAD, "checkpoints", WORKER)
    assert done.returncode == 3, done.stderr
    assert "UNKNOWN" in done.stdout and "nvidia-smi was not found" in done.stdout and "4/4 GPUs" in done.stdout


def test_the_restart_example_finishes_a_command_in_a_pod(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    example, command = str(ROOT / "examples/auto_restart.py"), f"{PYTHON} train.py"
    done = run_script(example, HEAD, "example", "checkpoints", command)
    assert done.returncode == 0 and "Training completed at step 40" in done.stdout, done.stdout + done.stderr


def test_the_restart_example_takes_a_ray_job_as_ray_remembers_it(
    cluster: KubernetesApi, surroundings: Surroundings
) -> None:
    done = run_script(str(ROOT / "examples/auto_restart.py"), HEAD, "my-training", "checkpoints")
    assert done.returncode == 0 and "Training completed" in done.stdout, done.stdout + done.stderr


def test_the_background_example_reports_the_end(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    job_id = start_process_job(HEAD, "echo step 7/7; sleep 1", "short")
    done = run_script(str(ROOT / "examples/background_monitor.py"), HEAD, job_id)
    assert f"Job {job_id} ended: SUCCEEDED at step 7" in done.stdout, done.stdout + done.stderr


def test_the_custom_example_restarts_from_a_checkpoint(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    crash = f"{PYTHON} train.py --crash-at 30"
    job_id = start_process_job(HEAD, crash, "custom")
    example, command = str(ROOT / "examples/custom_restart.py"), f"{PYTHON} train.py --resume {{checkpoint}}"
    done = run_script(example, HEAD, job_id, "checkpoints", command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "custom-attempt-1 from checkpoints/step_20" in done.stdout and "successfully" in done.stdout


def test_the_watch_example_shows_a_run_on_an_ssh_host(surroundings: Surroundings, sshd: SshServer) -> None:
    files = [str(surroundings.folder / name) for name in ("log", "pid", "out")]
    training = "echo $$ >pid; for step in 1 2 3 4 5; do echo step $step/5 loss 0.$step; sleep 0.5; done"
    with subprocess.Popen(["sh", "-c", f"{{ {training}; }} >log"], cwd=surroundings.folder) as process:
        assert wait_until(lambda: os.path.exists(files[1]))
        done = run_script(str(ROOT / "examples/watch_and_save.py"), sshd.address, *files)
        process.wait()
    assert done.returncode == 0 and "step 5/5 loss 0.5" in done.stdout and "finished: " in done.stdout, done.stderr


def test_the_progress_example_is_seen_to_its_end(surroundings: Surroundings) -> None:
    done = run(surroundings, sys.executable, str(ROOT / "examples/progress_in_a_script.py"), "2", "0.001")
    assert done.returncode == 0 and "epoch 2: loss" in done.stdout, done.stderr
    seen = run_command("top", str(surroundings.folder / "progress"), "--once")
    assert "FINISHED" in seen.stdout and "2/2" in seen.stdout, seen.stdout


AGENT = ROOT / "examples" / "agent_loop.py"


def test_the_agent_follows_a_training_to_its_end(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    job_id = start_process_job(HEAD, f"{PYTHON} train.py --step-seconds 0.1", "followed")
    done = run_script(str(AGENT), HEAD, job_id)
    assert done.returncode == 0 and "ok: finished at step 40" in done.stdout, done.stdout + done.stderr


def test_the_agent_leaves_a_failure_to_people(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    crash = "echo step 3/40; echo 'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB' >&2; exit 1"
    job_id = start_process_job(HEAD, crash, "crashed")
    done = run_script(str(AGENT), HEAD, job_id)
    assert done.returncode == 1 and "cuda_oom" in done.stdout, done.stdout + done.stderr


def test_the_agent_takes_no_answer_for_no_verdict(surroundings: Surroundings, sshd: SshServer, tmp_path: Path) -> None:
    sshd.stop()
    impatient = tmp_path / "agent_loop.py"
    impatient.write_text(AGENT.read_text().replace("PAUSE = 5", "PAUSE = 0").replace("IN_A_ROW = 10", "IN_A_ROW = 2"))
    done = run_script(str(impatient), sshd.address, "train")
    assert done.returncode == 3 and done.stdout.count("unknown: ") == 2, done.stdout + done.stderr


def test_the_stuck_example_tells_the_state_of_a_job(cluster: KubernetesApi, surroundings: Surroundings) -> None:
    done = run_script(str(ROOT / "examples/is_it_stuck.py"), HEAD, "my-training-attempt-1")
    assert done.returncode == 0 and "my-training-attempt-1 is finished: finished" in done.stdout, done.stderr


EXAMPLES = ["agent_loop", "auto_restart", "background_monitor", "custom_restart", "health_report", "is_it_stuck"]
EXAMPLES += ["rent_and_train", "watch_and_save"]


def test_an_example_without_arguments_says_what_it_needs() -> None:
    for name in EXAMPLES:
        for words in ([], ["--help"]):
            done = run_script(str(ROOT / f"examples/{name}.py"), *words)
            assert f"python3 examples/{name}.py" in done.stderr and done.returncode in (1, 2), done
