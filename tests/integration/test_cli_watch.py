"""`watch`, `stop` and `notify` as they are typed: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.commands import run_command as cli
from tests.integration.conftest import Place, Surroundings, kill, wait_until
from tests.loopback.messaging import WEBHOOK_SECRET, Services, refuse
from tests.requirements import require
from training_monitor import TrainingWatcher
from training_monitor.core.outcomes import TerminationPlan
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.supervision.terminate import Termination

ROOT = Path(__file__).parents[2]
STEPS = "echo $$ >pid; i=0; while [ $i -lt {steps} ]; do i=$((i+1)); echo step $i/40 loss 0.$i; sleep 0.05; done"


@dataclass
class Run:
    """A training on this machine, with a log and a pid file."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def options(self) -> tuple[str, ...]:
        return "--log", str(self.folder / "log"), "--pid-file", str(self.folder / "pid")


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[object]:
    runs: list[Run] = []

    def begin(steps: int, after: str = "sleep 300") -> Run:
        folder = surroundings.folder / f"run {len(runs)}"
        folder.mkdir()
        with open(folder / "log", "wb") as log:
            script = f"{STEPS.format(steps=steps)}; {after}"
            process = subprocess.Popen(["sh", "-c", script], cwd=folder, stdout=log, stderr=log, start_new_session=True)
        assert wait_until(lambda: (folder / "log").stat().st_size > 0)
        runs.append(Run(folder, process))
        return runs[-1]

    yield begin
    for run in runs:
        kill(run.process.pid)
        run.process.wait()


def test_one_look_says_where_the_run_is(start: object, surroundings: Surroundings) -> None:
    run = start(3)  # type: ignore[operator]
    assert wait_until(lambda: "step 3" in (run.folder / "log").read_text())
    done = cli("watch", "local", *run.options, "--once")
    assert done.returncode == 0 and "running  [#...............]   8%  step 3/40  loss 0.3" in done.stdout
    status = json.loads(cli("watch", "local", *run.options, "--once", "--json").stdout)
    assert status["is_running"] is True and status["step"] == 3 and status["totals"]["last_loss"] == 0.3
    assert len(status["loss_analysis"]) == 4 and status["loss"] == 0.3
    assert status["stall"]["reason"] == "Insufficient samples (2/4)"


def test_a_run_is_found_by_its_pid(start: object) -> None:
    run = start(3)  # type: ignore[operator]
    assert wait_until(lambda: "step 3" in (run.folder / "log").read_text())
    done = cli("watch", "local", str(run.process.pid), "--once")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith("running  [#...............]   8%  step 3/40  loss 0.3")
    done = cli("stop", "local", str(2**22 + 1))  # more than any PID
    assert done.returncode == 2 and done.stderr.startswith("error: no process")


def test_what_is_not_there_is_not_watched(surroundings: Surroundings) -> None:
    done = cli("watch", "local", "no-such-training")
    assert done.returncode == 2 and "no training 'no-such-training'" in done.stderr and not done.stdout


def test_a_run_that_nobody_can_see_is_unknown(surroundings: Surroundings) -> None:
    done = cli("watch", "local", "--log", "/no/such/log", "--once")
    assert done.returncode == 3 and "unknown whether it is running" in done.stdout
    assert "no sign of activity" in done.stdout and "no such log" in done.stdout


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--log", "x", "--interval", "0"], "poll_interval"),
        (["--log", "x", "--soft-limit", "9", "--hard-limit", "5"], "soft_limit"),
        (["--log", "x", "--destroy"], "--terminate"),
        (["--log", "x", "--terminate"], "pid_file"),
        (["--log", "x", "--terminate", "--upload", "nowhere"], "hf:OWNER/NAME"),
        (["--log", "x", "--pid-file", "y", "--terminate", "--upload", "hf:a/b"], "output_dir"),
        (["--job", "process:x", "--pid-file", "y"], "pid_file"),
        (["--log", "x", "--job", "y"], "not allowed with"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_done(
    argv: list[str], words: str, surroundings: Surroundings
) -> None:
    done = cli("watch", "local", *argv)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_a_watched_run_is_shown_to_its_end_in_plain_lines(start: object) -> None:
    run = start(40, "exit 0")  # type: ignore[operator]
    done = cli("watch", "local", *run.options, "--stream", "--interval", "0.5")
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout and "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1] == "finished at step 40 of 40"


@pytest.mark.parametrize("way", ["--stream", "--poll"])
def test_a_log_that_is_not_there_yet_is_named_once(start: object, way: str) -> None:
    run = start(2)  # type: ignore[operator]
    log = run.folder / "later"
    words = ["watch", "local", "--log", str(log), *run.options[2:], "--plain", way, "--interval", "0.2"]
    command = [sys.executable, "-m", "training_monitor", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as watching:
        assert watching.stdout
        first = watching.stdout.readline()
        assert f"waiting     log {log} does not exist yet" in first, first
        time.sleep(1)  # for further looks
        log.write_text("step 7/40 loss 0.1\n")
        lines = [first]
        while "step 7/40" not in lines[-1]:
            lines.append(watching.stdout.readline())
            assert lines[-1], lines
        watching.send_signal(signal.SIGINT)
    assert sum("does not exist yet" in line for line in lines) == 1


def test_every_line_is_an_object_with_json(start: object) -> None:
    run = start(40, "exit 0")  # type: ignore[operator]
    done = cli("watch", "local", *run.options, "--stream", "--interval", "0.5", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [row["step"] for row in rows if row["kind"] == "line"]
    assert lines == list(range(1, 41)) and rows[-1]["kind"] == "result" and rows[-1]["end"] == "finished"


def test_a_run_that_fails_is_named_with_its_evidence(start: object) -> None:
    run = start(2, "echo 'RuntimeError: CUDA error: an illegal memory access was encountered'; exit 1")  # type: ignore[operator]
    done = cli("watch", "local", *run.options, "--poll", "--interval", "0.2")
    assert done.returncode == 1 and "failed at step 2" in done.stdout and "illegal memory access" in done.stdout


def test_an_interrupted_watch_leaves_the_run_alone(start: object) -> None:
    run = start(2)  # type: ignore[operator]
    command = [sys.executable, "-m", "training_monitor", "watch", "local", *run.options, "--poll", "--terminate"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert watching.stdout and watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=20)
    assert watching.returncode == -signal.SIGINT and "nothing was stopped" in said and run.process.poll() is None


def test_stop_ends_a_run_and_says_what_is_left(start: object, surroundings: Surroundings) -> None:
    run = start(2, "sleep 301 & sleep 302")  # type: ignore[operator]
    done = cli("stop", "local", *run.options[1:], "--output-dir", str(run.folder), "--stop-grace", "0.5")
    assert done.returncode == 0 and "none of its processes is left" in done.stdout, done.stderr
    assert run.process.wait(10) == -signal.SIGTERM
    assert not [line for line in surroundings.processes().values() if "sleep 30" in line]


def test_stop_without_anything_that_tells_the_processes_is_refused(start: object) -> None:
    run = start(2)  # type: ignore[operator]
    done = cli("stop", "local", run.options[1])
    assert done.returncode == 2 and "pid_file" in done.stderr and run.process.poll() is None


def test_a_live_line_with_a_bar_is_drawn_on_a_terminal(start: object, tmp_path: Path) -> None:
    run = start(40)  # type: ignore[operator]
    tmux = [require("tmux"), "-S", str(tmp_path / "socket")]
    words = [sys.executable, "-m", "training_monitor", "watch", "local", *run.options, "--plain", "--interval", "1"]
    subprocess.run([*tmux, "new-session", "-d", "-x", "100", "-y", "30", shlex.join(words)], check=True, cwd=ROOT)

    def screen() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], text=True, capture_output=True).stdout

    try:
        assert wait_until(lambda: "[################] 100%  step 40/40" in screen(), 20), screen()
        assert screen().count("step 40/40") == 1
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def test_notices_are_proved_sent_and_listed(surroundings: Surroundings) -> None:
    assert cli("notify", "--test").returncode == 2
    with Services() as services:
        configured = {"TRAINING_MONITOR_SLACK_WEBHOOK": services.slack_webhook}
        proved = cli("notify", "--test", **configured)
        assert (proved.returncode, proved.stdout) == (0, "slack: ok\n"), proved.stderr
        services.faults = [refuse(404, "no_service")]
        refused = cli("notify", "--test", **configured)
        assert refused.returncode == 1 and "slack: " in refused.stdout and "try:" in refused.stdout
        services.faults = [refuse(404, "no_service")]
        only_listed = cli("notify", "hello", "--json", **configured)
        assert (only_listed.returncode, json.loads(only_listed.stdout)["success"]) == (1, False)
        assert cli("notify", "hello", "--job", "mine", **configured).returncode == 0
        assert WEBHOOK_SECRET not in refused.stdout + refused.stderr
    listed = json.loads(cli("notify", "--list", "--json").stdout)
    assert "hello" in json.dumps(listed)


def test_settings_of_all_runs_and_of_one_come_from_the_settings_file(start: object, tmp_path: Path) -> None:
    run = start(2)  # type: ignore[operator]
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"monitoring": {"poll_interval": 5, "jobs": {"mine": {"min_samples": 9}}}}))
    environ = {"TRAINING_MONITOR_SETTINGS": str(settings)}
    done = cli("watch", "local", *run.options, "--name", "mine", "--once", "--json", **environ)
    assert json.loads(done.stdout)["stall"]["reason"] == "Insufficient samples (1/9)"
    settings.write_text(json.dumps({"monitoring": {"pol_interval": 5}}))
    wrong = cli("watch", "local", *run.options, "--once", **environ)
    assert wrong.returncode == 2 and "pol_interval" in wrong.stderr and "poll_interval" in wrong.stderr


def test_an_upload_that_cannot_be_says_why(surroundings: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("weights")
    environ = {"HF_TOKEN": "", "HF_HOME": str(tmp_path), "HOME": str(tmp_path)}
    no_token = cli("upload", "local", str(tmp_path / "model"), "hf:me/model", **environ)
    assert no_token.returncode == 1 and "no token on the target" in no_token.stderr
    missing = cli("upload", "local", str(tmp_path / "nothing"), "hf:me/model", "--json")
    assert missing.returncode == 1 and json.loads(missing.stdout)["verified"] is False
    assert cli("upload", "local", str(tmp_path / "model"), "ftp://x").returncode == 2


def test_a_host_that_cannot_be_asked_is_unknown(local: Place) -> None:
    begun = time.monotonic()
    done = cli("watch", "ssh://nobody@127.0.0.1:1", "--log", "x", "--once")
    assert done.returncode == 3 and "refused" in done.stderr and time.monotonic() - begun < 30


def test_an_interrupted_stop_goes_on_where_its_target_answers_no_more(surroundings: Surroundings) -> None:
    target, job, store = "ssh://me@127.0.0.1:1", WatchedJob(pid=77), Store()
    refused = cli("stop", target, "train.py", "--notify")
    assert refused.returncode == 3 and "continuing with" not in refused.stderr, refused
    store.save_run(f"found on {target}: train.py", job, finished=False)
    key = f"terminate {TrainingWatcher(target, job, store=store).about}"
    begun = Termination(key, TerminationPlan("Ended by hand"), 0.0, "destroying", stopped=True)
    store.save_run(key, begun, finished=False)
    done = cli("stop", target, "train.py", "--notify", "--json")
    assert done.returncode == 0 and "continuing with pid 77" in done.stderr, done
    assert json.loads(done.stdout)["stopped"] is True
