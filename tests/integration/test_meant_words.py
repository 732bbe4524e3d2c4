"""What people type for a training on this machine: its script, its PID, a word without a target."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, kill, wait_until
from tests.requirements import require

SCRIPT = (
    "import time\nfor step in range(1000):\n    print(f'step {step}/1000 loss 0.5', flush=True)\n    time.sleep(0.1)\n"
)
NAME = f"plain-{os.getpid()}.py"  # other tests run on this machine too
ELSEWHERE = {"KUBECONFIG": "/dev/null"}  # no cluster is known here


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A program on the CPU whose name says nothing of training."""
    (folder / NAME).write_text(SCRIPT)
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen([sys.executable, NAME], stdout=out, stdin=subprocess.DEVNULL, cwd=folder)
    wait_until(lambda: (folder / "out").stat().st_size > 50)
    return process


@pytest.fixture
def plain(surroundings: Surroundings) -> Iterator[subprocess.Popen[bytes]]:
    process = start(surroundings.folder)
    yield process
    kill(process.pid)
    process.wait()


def test_a_program_that_looks_like_none_is_a_training_when_it_is_named(plain: subprocess.Popen[bytes]) -> None:
    for named in (("local", NAME), ("local", str(plain.pid)), (NAME,)):
        done = run_command("check", *named, "--json", **ELSEWHERE)
        [job] = json.loads(done.stdout)["jobs"]
        assert (job["pid"], job["state"], job["total_steps"]) == (plain.pid, "running", 1000), done
        assert ("responds: assuming pid" in done.stderr) == (len(named) == 1)


WORD_ALONE = {  # and what each command says of it
    "why": "rank",
    "wait": "finished was not met within 2s",
    "logs": "/1000 loss",
}


def test_a_word_alone_is_a_training_of_this_machine_for_commands_that_read(plain: subprocess.Popen[bytes]) -> None:
    for command, said in WORD_ALONE.items():
        done = run_command(command, NAME, *(["--timeout", "2"] if command == "wait" else []), **ELSEWHERE)
        assert said in done.stdout, done
        assert done.stderr.startswith(f"no target {NAME} responds: assuming pid {plain.pid} on this machine"), done


def test_whoever_asks_is_not_what_a_word_means(surroundings: Surroundings) -> None:
    """The name is an argument of the command, and of the shell that runs it."""
    line = f"{sys.executable} -m training_monitor check no-such-{NAME}; exit $?"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env={**os.environ, **ELSEWHERE})
    assert done.returncode == 3 and "taken for" not in done.stderr, done


def test_without_its_name_it_is_not_listed(plain: subprocess.Popen[bytes]) -> None:
    jobs = json.loads(run_command("check", "local", "--json").stdout)["jobs"]
    assert plain.pid not in [job["pid"] for job in jobs]


def test_commands_that_act_never_guess_and_a_word_of_nothing_stays_an_error(plain: subprocess.Popen[bytes]) -> None:
    for words in (
        ("stop", NAME),
        ("stop", NAME, "--upload", "hf:me/x"),
        ("watch", NAME, "--once"),
        ("check", "no-such-7351.py"),
    ):
        done = run_command(*words, **ELSEWHERE)
        assert done.returncode == 3 and "taken for" not in done.stderr, done
    assert plain.poll() is None


def test_a_word_that_fits_several_is_an_error_that_names_them(
    plain: subprocess.Popen[bytes], surroundings: Surroundings
) -> None:
    second = start(surroundings.folder)
    try:
        done = run_command("check", NAME, **ELSEWHERE)
        assert done.returncode == 2 and str(plain.pid) in done.stderr and str(second.pid) in done.stderr, done
    finally:
        kill(second.pid)
        second.wait()


def test_the_path_of_a_script_means_the_training_that_runs_it(
    plain: subprocess.Popen[bytes], surroundings: Surroundings, tmp_path: Path
) -> None:
    path = str(surroundings.folder / NAME)
    for words in (("check", path), ("check", "local", os.path.relpath(path)), ("logs", path)):
        assert "step" in (done := run_command(*words, **ELSEWHERE)).stdout and "/1000" in done.stdout, done
    (tmp_path / "other").mkdir()
    for name, said in (
        (NAME, "another script with this name is running: pid "),
        ("no-such-7351.sh", "no training is running "),
    ):
        other = tmp_path / "other" / name
        other.write_text(SCRIPT)
        done = run_command("check", str(other), **ELSEWHERE)
        assert done.returncode == 2 and not done.stdout and said in done.stderr, done


def test_a_shell_script_means_the_training_that_it_starts(surroundings: Surroundings, tmp_path: Path) -> None:
    script, log = surroundings.folder / f"run-{os.getpid()}.sh", surroundings.folder / "out"
    (surroundings.folder / NAME).write_text(SCRIPT)
    script.write_text(f"{sys.executable} {NAME} > out\nexit 0\n")
    started = subprocess.Popen(["sh", str(script)], cwd=surroundings.folder, start_new_session=True)
    try:
        assert wait_until(lambda: log.exists() and log.stat().st_size > 50)
        [job] = json.loads(run_command("check", "local", str(script), "--json").stdout)["jobs"]
        assert (job["pid"], job["log"], job["state"]) == (started.pid, str(log), "running")
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def test_a_file_that_is_not_text_is_refused_as_a_log(tmp_path: Path) -> None:
    weights = tmp_path / "model.pt"
    weights.write_bytes(bytes(range(256)) * 100 + b"\nstep 5/10 loss 0.5\n")
    for command in ("check", "logs", "wait", "status"):
        done = run_command(command, "local", str(weights))
        assert done.returncode in (2, 3) and not done.stdout and f"{weights} is not a text file" in done.stderr, done


def test_a_name_of_no_job_is_reported_as_such_on_a_machine_without_ray() -> None:
    for command in ("status", "stop", "logs"):
        done = run_command(command, "local", "no-such-7351", PATH="/usr/sbin:/usr/bin:/bin")
        assert done.returncode == 2 and "no training 'no-such-7351'" in done.stderr and "Ray" not in done.stderr, done


def test_a_training_in_tmux_is_read_from_its_pane(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX_TMPDIR", str(surroundings.sockets))
    tmux = [require("tmux"), "-f", "/dev/null"]
    (surroundings.folder / NAME).write_text(SCRIPT)
    words = ["new-session", "-d", "-x", "90", "-y", "20", "-c", str(surroundings.folder)]
    subprocess.run([*tmux, *words, sys.executable, NAME], check=True)
    try:
        assert wait_until(lambda: check_step(NAME) > 25, 20)  # more than the pane has lines
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def check_step(name: str) -> int:
    jobs = json.loads(run_command("check", "local", name, "--json").stdout).get("jobs") or [{}]
    return int(jobs[0].get("step") or 0)
