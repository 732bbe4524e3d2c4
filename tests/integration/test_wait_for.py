"""`wait --for` on real targets: what ends it, lost connections, killed callers, and awaiting it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import PYTHON, run_command as cli, run_on_a_terminal
from tests.integration.conftest import Place, SshServer, Surroundings, wait_until
from tests.integration.test_target_checkpoints import cut, write_checkpoint
from training_monitor import check_training, continue_wait, start_process_job, wait_for
from training_monitor.core.outcomes import WaitReport
from training_monitor.core.store import Store
from training_monitor.jobs import look_at_job, stop_job
from training_monitor.supervision.kept_waits import load_wait

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "training_monitor" / "cli" / "demo_training.py"
STEPS = "for i in $(seq 1 {count}); do echo step $i/{total} loss=0.5; sleep 0.05; done; {then}"


def start_steps(place: Place, name: str, *, count: int = 1200, total: int = 1200, then: str = "sleep 600") -> str:
    """A job that makes steps, twenty a second."""
    job = start_process_job(place.address, STEPS.format(count=count, total=total, then=then), name)
    assert wait_until(lambda: look_at_job(place.address, job).progress.step)
    return job


def wait_command(*argv: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "training_monitor", "wait", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def has_begun(handle: str) -> bool:
    state = load_wait(Store(), handle)
    return state is not None and state.has_begun


class Waiter(threading.Thread):
    """Somebody who waits beside the test; `stopping` ends that."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(daemon=True)
        self.given, self.options = given, options
        self.said: list[str] = []
        self.stopping = threading.Event()
        self.report: WaitReport | None = None

    def run(self) -> None:
        options = {"interval": 0.2, "stopping": self.stopping, "on_look": self.said.append} | self.options
        self.report = wait_for(*self.given, **options)

    def has_looked(self, times: int = 1) -> bool:
        """Whether it has looked so often since now."""
        before = len(self.said)
        return wait_until(lambda: len(self.said) >= before + times)

    def result(self) -> WaitReport:
        self.join(120)
        assert self.report, self.said[-3:]
        return self.report


@contextmanager
def waiting(*given: Any, **options: Any) -> Iterator[Waiter]:
    waiter = Waiter(*given, **options)
    waiter.start()
    try:
        assert wait_until(lambda: waiter.said or not waiter.is_alive())
        yield waiter
    finally:
        waiter.stopping.set()
        waiter.join(60)


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON document of an answer that says nothing else."""
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---------------------------------------------------------------- what ends it, on targets in turn


@pytest.mark.parametrize("target", ["local"], indirect=True)
def test_a_step_ends_it_with_one_document_and_nothing_else(target: Place) -> None:
    job = start_steps(target, "steps")
    done = cli("wait", target.address, job, "--for", "failed", "--for", "step=20", "--interval", "0.2", "--json")
    found = document(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert [found[key] for key in ("outcome", "condition", "verdict", "state")] == ["met", "step=20", "ok", "running"]
    assert found["step"] >= 20 and found["total_steps"] == 1200 and found["loss"] == 0.5 and found["job_id"] == job
    assert found["reason"] == f"reached step {found['step']} of 1200"
    assert found["schema"] == "training_monitor.wait/1"
    [checked] = check_training(target.address, job)["jobs"]
    shared = {"verdict", "state", "reason", "step", "total_steps", "epoch", "loss", "name", "job_id", "checkpoint"}
    assert shared | {"errors"} <= set(found) & set(checked)


@pytest.mark.parametrize("target", ["in_pod"], indirect=True)
def test_a_new_line_ends_it_and_is_told_harmless(target: Place) -> None:
    then = r"printf 'acc=0.93 \033]0;owned\007token=hf_AbCdEfGhIjKlMnOp\n'; sleep 600"
    job = start_steps(target, "lines", count=100, then=then)
    words = ("--for", r"log=acc=0\.9", "--interval", "1", "--timeout", "60", "--json")
    done = cli("wait", target.address, job, *words)
    assert done.returncode == 0 and document(done)["line"].startswith("acc=0.93")
    assert "hf_AbC" not in done.stdout and "\x1b" not in document(done)["reason"]
    done = cli("wait", target.address, job, "--for", r"log=acc=0\.9", "--interval", "0.2", "--timeout", "1")
    assert done.returncode == 3 and "was not met within" in done.stdout  # it was there before


@pytest.mark.parametrize("target", ["over_ssh"], indirect=True)
def test_a_checkpoint_ends_it_once_it_is_complete(target: Place) -> None:
    runs, job = target.folder / "runs", start_steps(target, "saves")
    write_checkpoint(runs / "checkpoint-100")
    with waiting(target.address, job, ("checkpoint",), checkpoint_dir=str(runs)) as waiter:
        (runs / "checkpoint-200").mkdir()
        write_checkpoint(runs / "unfinished")
        weights = runs / "unfinished" / "model.safetensors"
        whole = weights.read_bytes()
        cut(weights, len(whole) // 2)
        (runs / "unfinished").rename(runs / "checkpoint-300")
        assert waiter.has_looked(4) and waiter.report is None
        (runs / "checkpoint-300" / "model.safetensors").write_bytes(whole)
        report = waiter.result()
    assert report.condition == "checkpoint" and report.checkpoint
    assert (report.checkpoint.path, report.checkpoint.step) == (f"{runs}/checkpoint-300", 300)


# ---------------------------------------------------------------- on this machine


@pytest.mark.parametrize(
    ("then", "condition", "status"), [("exit 0", "finished", 0), ("exit 3", "failed", 1), ("exit 3", "finished", 1)]
)
def test_the_exit_status_says_whether_what_was_waited_for_is_good(
    local: Place, then: str, condition: str, status: int
) -> None:
    job = start_steps(local, "ends", count=5, total=5, then=then)
    done = cli("wait", "local", job, "--for", condition, "--interval", "0.2")
    assert done.returncode == status and done.stdout.count("\n") == 1 and done.stderr == ""


def test_a_call_that_leaves_early_is_continued_by_its_handle(local: Place) -> None:
    job = start_steps(local, "long")
    words = ("wait", "local", job, "--leave-after", "0.5", "--interval", "0.2", "--json")
    for more in ((), ("--handle", "mine")):  # a new wait in both cases
        left = cli(*words, *more)
        found = document(left)
        assert (left.returncode, found["outcome"], found["conditions"]) == (3, "interrupted", ["finished"])
    assert found["handle"] == "mine"
    again = document(cli("wait", "--handle", "mine", "--leave-after", "0.5", "--json"))
    assert again["outcome"] == "interrupted" and again["seconds"] > found["seconds"] + 0.5
    stop_job("local", job)
    ended = cli("wait", "--handle", "mine", "--leave-after", "1m", "--json")
    assert (ended.returncode, document(ended)["outcome"]) == (1, "missed")


def test_the_folder_of_the_checkpoints_is_found(local: Place) -> None:
    out = local.folder / "out"
    words = f"{PYTHON} {shlex.quote(str(TRAINING))} --output {out} --steps 4000 --step-seconds 0.05 --save-every 20"
    job = start_process_job("local", words, "saves")
    assert wait_until(lambda: list(out.glob("*20*")))
    done = cli("wait", "local", job, "--for", "checkpoint", "--interval", "0.5", "--json")
    found = document(done)
    assert done.returncode == 0 and found["checkpoint"]["path"].startswith(str(out)) and found["checkpoint"]["complete"]


def test_wrong_use_is_told_and_nothing_is_kept(local: Place) -> None:
    log = local.folder / "train.log"
    log.write_text("step 1/9\n")
    for words, said in (
        (("--for", "log=loss=(nan"), "unterminated subpattern at position 5"),
        (("--for", "log=(a+)+"), "forever"),
        (("--for", "step=many"), "finished, failed, stalled, step=N"),
        (("--for", "checkpoint"), "checkpoint_dir: got nothing"),
        (("--for", "finished", "--handle", "a b"), "handle"),
        (("--for", "finished", "--checkpoint-dir", "/c"), "--for checkpoint as well"),
        (("--handle", "nobody"), "--for"),
    ):
        done = cli("wait", "local", str(log), *words, "--json")
        assert done.returncode == 2 and said in document(done)["error"] and said in done.stderr, (words, done)
    assert json.loads(cli("wait", "--list", "--json").stdout)["waits"] == []


def test_a_supervised_training_is_waited_for_over_its_attempts(local: Place) -> None:
    out = local.folder / "out"
    train = [sys.executable, str(TRAINING), "--output", str(out), "--step-seconds", "0.05", "--steps", "60"]
    train += ["--save-every", "10", "--crash-at", "30"]
    options = ["--checkpoint-dir", str(out), "--name", "again", "--resume-argument=--resume", "--retry-delay", "1"]
    command = [sys.executable, "-m", "training_monitor", "run", *options, "--interval", "0.3", "--", *train]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ) as supervisor:
        try:
            assert wait_until(lambda: (local.jobs / "again-attempt-1").exists())
            done = cli("wait", "local", "again", "--for", "finished", "--interval", "0.3", "--json")
        finally:
            supervisor.terminate()
    found = document(done)
    assert (done.returncode, found["condition"], found["job_id"]) == (0, "finished", "process:again-attempt-2")


# ---------------------------------------------------------------- lost connections, killed callers


def test_a_lost_connection_ends_nothing_and_is_told(over_ssh: Place, sshd: SshServer) -> None:
    job = start_steps(over_ssh, "far", count=100, total=100, then="exit 0")
    with waiting(over_ssh.address, job, ("finished",), timeout=300) as waiter:
        sshd.stop()
        over_ssh.disconnect()
        assert wait_until(lambda: any("cannot be reached" in said for said in waiter.said))
        time.sleep(2)
        sshd.start()
        report = waiter.result()
    assert (report.outcome, report.condition) == ("met", "finished") and report.unseen_seconds >= 2
    assert "the training could not be observed" in report.reason


@pytest.mark.parametrize("target", ["over_ssh"], indirect=True)
def test_a_caller_that_was_killed_misses_nothing(target: Place) -> None:
    """Neither the line and the checkpoint that came meanwhile, nor in which order they came."""
    runs, job = target.folder / "runs", start_steps(target, "misses")
    write_checkpoint(runs / "checkpoint-1")
    words = [target.address, job, "--for", "log=needle", "--for", "checkpoint", "--checkpoint-dir", str(runs)]
    words += ["--interval", "0.2", "--handle", "mine", "--json"]
    with wait_command(*words) as command:
        assert wait_until(lambda: has_begun("mine"))
        command.send_signal(signal.SIGKILL)
        assert command.communicate(timeout=60)[0] == ""
    write_checkpoint(runs / "checkpoint-2")
    done = cli("wait", "--handle", "mine", "--json")
    found = document(done)
    assert (done.returncode, found["condition"], found["checkpoint"]["step"]) == (0, "checkpoint", 2)
    assert found["unseen_seconds"] > 0 and found["seconds"] >= found["unseen_seconds"]
    for again in (cli("wait", "--handle", "mine", "--json"), cli("wait", *words)):
        assert again.returncode == 0 and again.stdout == done.stdout


def test_a_line_of_megabytes_ago_is_found_when_the_wait_is_taken_up(local: Place) -> None:
    log = local.folder / "train.log"
    log.write_text("step 1/9000\n")
    with waiting("local", str(log), ("log=needle",), handle="mine", stagnation_threshold=1e6) as waiter:
        pass
    assert waiter.result().outcome == "interrupted"
    with log.open("a") as file:
        file.write("needle at the beginning\n" + "step 2/9000 loss 0.5 and more\n" * 200_000)
    assert log.stat().st_size > 5_000_000
    report = continue_wait("mine")
    assert (report.condition, report.line, report.errors) == ("log=needle", "needle at the beginning", ())


def test_two_callers_of_one_handle_get_one_result(local: Place) -> None:
    job = start_steps(local, "both", count=100)
    words = ["local", job, "--for", "step=60", "--interval", "0.2", "--handle", "mine", "--json"]
    with wait_command(*words) as first, wait_command(*words) as second:
        outputs = {each.communicate(timeout=120) for each in (first, second)}
    assert len(outputs) == 1 and (first.returncode, second.returncode) == (0, 0)
    [(out, err)] = outputs
    assert json.loads(out)["condition"] == "step=60" and err == ""


def test_ctrl_c_says_how_to_go_on(local: Place) -> None:
    job = start_steps(local, "left")
    with wait_command("local", job, "--for", "finished", "--interval", "0.2", "--handle", "mine") as command:
        assert wait_until(lambda: has_begun("mine"))
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
    assert command.returncode == -signal.SIGINT and out == "" and "training-monitor wait --handle mine" in err
    assert look_at_job("local", job).progress.step


def test_a_terminal_is_told_once_what_is_waited_for(local: Place) -> None:
    job = start_steps(local, "shown")
    done = run_on_a_terminal("wait", "local", job, "--for", "step=100", "--interval", "0.2")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2
    assert lines[0].startswith("waiting (handle ") and "process:shown: reached step" in lines[1]


# ---------------------------------------------------------------- awaiting it


def test_a_check_and_a_wait_can_be_awaited_side_by_side(local: Place) -> None:
    job = start_steps(local, "awaited")

    async def main() -> tuple[Any, WaitReport, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        checked = asyncio.to_thread(check_training, "local", job)
        waited = asyncio.to_thread(wait_for, "local", job, ("step=40",), interval=0.2)
        found = await asyncio.gather(checked, waited)
        ticking.cancel()
        return *found, ticks

    report, ended, ticks = asyncio.run(main())
    assert report["jobs"][0]["job_id"] == job and ended.condition == "step=40" and ticks > 10


def test_an_awaited_wait_that_is_cancelled_ends_its_thread_and_can_be_taken_up(local: Place) -> None:
    job = start_steps(local, "cancelled", count=200)
    ended = threading.Event()

    async def await_training(seconds: float) -> WaitReport:
        stopping = threading.Event()

        def work() -> WaitReport:
            try:
                return wait_for("local", job, ("step=100",), handle="mine", interval=0.2, stopping=stopping)
            finally:
                ended.set()

        try:
            return await asyncio.wait_for(asyncio.to_thread(work), seconds)
        finally:
            stopping.set()

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(await_training(1.0))  # it returns only when the thread has ended
    assert ended.is_set()
    assert asyncio.run(await_training(120.0)).condition == "step=100"


def test_the_document_shows_what_works(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the section on asyncio, with a training on this machine in place of the one it names."""
    page = (ROOT / "docs" / "python.md").read_text()
    [program] = re.findall(r"```python\n(import asyncio\n.*?)```", page, re.DOTALL)
    job = start_steps(local, "my-training", count=60)
    program = program.replace('"training-head-abc123", "my-training"', f'"local", "{job}"').replace(
        "step=1000", "step=40"
    )
    assert program.count("process:my-training") == 2
    said: list[object] = []
    exec(compile(program, "python.md", "exec"), {"print": lambda *words: said.extend(words)})
    assert "step=40" in said


def test_nothing_is_left_behind(local: Place, surroundings: Surroundings) -> None:
    job = start_steps(local, "clean", count=20, total=20, then="exit 0")
    before = threading.active_count()
    assert wait_for("local", job, interval=0.2).condition == "finished"
    assert wait_until(lambda: threading.active_count() <= before)
    assert wait_until(lambda: not surroundings.processes())
