"""A log followed line by line on real targets, while connections break, servers hang up and files are rotated."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.conftest import Place, SshServer, Surroundings, kill, pids, wait_until
from tests.loopback.kubernetes import KubernetesApi
from training_monitor import TrainingWatcher, start_process_job, stop_job, watch_training
from training_monitor.core.errors import InvalidTransition
from training_monitor.core.values import WatchedJob
from training_monitor.logs import LogUpdate

KINDS = ("over_ssh",)  # of targets: what a shell does is the same on all
WRITER = """
i=0
while [ $i -lt {count} ]; do
  i=$((i+1)); echo "step $i/{count} loss 0.5 ±"; sleep 0.04
done
"""


@dataclass
class Heard:
    """What a stream delivered."""

    lines: list[str] = field(default_factory=list)

    def __call__(self, update: LogUpdate) -> None:
        self.lines.append(update.line)

    def steps(self) -> list[int]:
        return [int(line.split()[1].partition("/")[0]) for line in self.lines]


@contextmanager
def streaming(watcher: TrainingWatcher, callback: Callable[[LogUpdate], None]) -> Iterator[None]:
    stop = watcher.start_streaming(callback)
    try:
        yield
    finally:
        stop()


def cut_ssh(surroundings: Surroundings) -> None:
    """Every ssh client and control master of this test is killed, without a goodbye."""
    for pid in pids():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if command.startswith(b"ssh") and str(surroundings.sockets).encode() in command:
                os.kill(pid, signal.SIGKILL)


def test_three_lost_connections_lose_and_repeat_no_line(
    over_ssh: Place, sshd: SshServer, surroundings: Surroundings
) -> None:
    heard = Heard()
    job = start_process_job(over_ssh.address, WRITER.format(count=120), "writer")
    with streaming(TrainingWatcher(over_ssh.address, job), heard):
        for part in range(3):
            assert wait_until(lambda part=part: len(heard.lines) > 25 * (part + 1), 30)
            if part == 2:  # and for a while no connection can be had
                sshd.stop()
            cut_ssh(surroundings)
        time.sleep(1)
        sshd.start()
        assert wait_until(lambda: len(heard.lines) >= 120, 60)
    assert heard.steps() == list(range(1, 121))


def test_lines_come_once_each_from_a_pod_whose_server_hangs_up_in_every_way(in_pod: Place, kube: KubernetesApi) -> None:
    heard = Heard()
    job = start_process_job(in_pod.address, WRITER.format(count=150), "writer")

    def restart() -> None:
        kube.stop()
        kube.start()

    with streaming(TrainingWatcher(in_pod.address, job), heard):
        for part, hang_up in enumerate([kube.end_execs, restart, kube.end_execs]):
            assert wait_until(lambda part=part: len(heard.lines) > 25 * (part + 1), 30)
            hang_up()
        assert wait_until(lambda: len(heard.lines) >= 150, 60)
    assert heard.steps() == list(range(1, 151))


def test_a_rotated_and_a_truncated_log_are_followed(target: Place, tmp_path: Path) -> None:
    log, lines = tmp_path / "train log.txt", list[str]()
    log.write_text("step 1\n")
    watcher = TrainingWatcher(target.address, {"log_file": str(log)})
    with streaming(watcher, lambda update: lines.append(update.line)):
        assert wait_until(lambda: lines == ["step 1"])
        with log.open("a") as opened:
            opened.write("step 2\nstep")
        assert wait_until(lambda: lines[-1] == "step 2")
        with log.open("a") as opened:
            opened.write(" 3\n")
        log.rename(tmp_path / "train log.txt.1")
        log.write_text("step 4\n")
        assert wait_until(lambda: lines[-1] == "step 4")
        log.write_text("5\n")
        assert wait_until(lambda: lines[-1] == "5")
    assert lines == ["step 1", "step 2", "step 3", "step 4", "5"]


def test_lines_written_to_a_rotated_log_are_not_lost(target: Place, tmp_path: Path) -> None:
    log, lines = tmp_path / "log", list[str]()
    log.write_text("step 1\n")
    with streaming(TrainingWatcher(target.address, {"log_file": str(log)}), lambda update: lines.append(update.line)):
        assert wait_until(lambda: lines == ["step 1"])
        with log.open("a") as old:
            log.rename(tmp_path / "log.1")
            log.touch()
            for number in range(2, 5):
                time.sleep(0.4)
                old.write(f"step {number}\n")
                old.flush()
            log.write_text("step 6\n")
            old.write("step 5\n")
        assert wait_until(lambda: lines[-1] == "step 6", 20)
    assert lines == [f"step {number}" for number in range(1, 7)]


def test_an_unfinished_last_line_decides_the_end(local: Place, tmp_path: Path) -> None:
    log, pid, lines = tmp_path / "log", tmp_path / "pid", list[str]()
    script = f"echo $$ >{pid}; echo step 1/9; sleep 1; printf 'RuntimeError: CUDA error: device-side assert triggered'"
    with log.open("wb") as opened, subprocess.Popen(["sh", "-c", script], stdout=opened) as process:
        assert wait_until(pid.exists)
        watcher = TrainingWatcher("local", {"log_file": str(log), "pid_file": str(pid)}, {"poll_interval": 0.5})
        report = watch_training(watcher, on_line=lambda update: lines.append(update.line))
        process.wait()
    assert report is not None and report.end == "failed" and "device-side assert" in report.reason
    assert lines == ["step 1/9", "RuntimeError: CUDA error: device-side assert triggered"]


@pytest.mark.parametrize(
    ("last", "end"),
    [
        ("echo step 9/9; echo Training complete", "finished"),
        (
            "echo 'Traceback (most recent call last):'; echo 'RuntimeError: CUDA error: misaligned address'; exit 1",
            "failed",
        ),
    ],
    ids=["complete", "traceback"],
)
def test_an_end_that_the_log_tells_is_seen_long_before_the_next_look(
    target: Place, tmp_path: Path, last: str, end: str
) -> None:
    log, pid, lines, stopping = tmp_path / "log", tmp_path / "pid", list[str](), threading.Event()
    go_on, script = tmp_path / "go on", 'echo $$ >"$1"; echo step 8/9; while [ ! -e "$2" ]; do sleep 0.1; done; '
    too_late = threading.Timer(240, stopping.set)
    too_late.start()

    def hear(update: LogUpdate) -> None:
        lines.append(update.line)

    with log.open("wb") as opened, subprocess.Popen(["sh", "-c", script + last, "sh", pid, go_on], stdout=opened):
        assert wait_until(pid.exists)
        watcher = TrainingWatcher(
            target.address, {"log_file": str(log), "pid_file": str(pid)}, {"poll_interval": 3600.0}
        )
        report = watch_training(watcher, on_line=hear, on_status=lambda status: go_on.touch(), stopping=stopping)
    too_late.cancel()
    assert report is not None and report.end == end and lines[0] == "step 8/9" and len(lines) == 3


def test_a_log_that_is_not_there_yet_is_followed_from_its_beginning(local: Place, tmp_path: Path) -> None:
    log, lines = tmp_path / "log", list[str]()
    with streaming(TrainingWatcher("local", {"log_file": str(log)}), lambda update: lines.append(update.line)):
        time.sleep(0.3)
        log.write_text("step 1\nstep 2\n")
        assert wait_until(lambda: lines == ["step 1", "step 2"], 20)


def test_megabytes_at_once_come_whole(local: Place, tmp_path: Path) -> None:
    log, lines = tmp_path / "log", list[str]()
    log.write_text("first\n")
    with streaming(TrainingWatcher("local", {"log_file": str(log)}), lambda update: lines.append(update.line)):
        assert wait_until(lambda: lines == ["first"])
        with log.open("a") as opened:
            opened.writelines(f"{number} {'x' * 4000}\n" for number in range(600))
        assert wait_until(lambda: len(lines) == 601, 60)
    assert [line.split()[0] for line in lines[1:]] == [str(number) for number in range(600)]


def test_a_progress_bar_redrawn_on_one_line_gives_every_redraw_once(local: Place, tmp_path: Path) -> None:
    log, seen = tmp_path / "log", list[tuple[str, int | None]]()
    log.write_text("")
    watcher = TrainingWatcher("local", {"log_file": str(log)})
    with streaming(watcher, lambda update: seen.append((update.line, update.progress.step))):
        for step in range(1, 6):
            with log.open("a") as opened:
                opened.write(f"\r{step * 20}%|█ | {step}/5 [00:0{step}<00:01, 1.00it/s, loss=0.{step}]")
        with log.open("a") as opened:
            opened.write("\n")
        assert wait_until(lambda: len(seen) == 5)
    assert [step for _, step in seen] == [1, 2, 3, 4, 5]


def test_a_callback_that_raises_does_not_end_the_stream(local: Place, tmp_path: Path) -> None:
    log, lines = tmp_path / "log", list[str]()
    log.write_text("one\ntwo\nthree\n")

    def callback(update: LogUpdate) -> None:
        lines.append(update.line)
        raise ValueError("mine")

    with streaming(TrainingWatcher("local", {"log_file": str(log)}), callback):
        assert wait_until(lambda: len(lines) == 3)


def test_a_callback_can_end_the_stream(target: Place, tmp_path: Path) -> None:
    log, done = tmp_path / "log", threading.Event()
    log.write_text("one\n")
    watcher = TrainingWatcher(target.address, {"log_file": str(log)})

    def callback(update: LogUpdate) -> None:
        watcher.stop_streaming()
        done.set()

    watcher.start_streaming(callback)
    assert done.wait(20)
    assert wait_until(lambda: not [line for line in target.surroundings.processes().values() if "sh -s" in line], 20)


def test_a_second_stream_of_a_watcher_is_refused_until_the_first_is_ended(local: Place, tmp_path: Path) -> None:
    watcher = TrainingWatcher("local", {"log_file": str(tmp_path / "log")})
    with streaming(watcher, lambda update: None), pytest.raises(InvalidTransition):
        watcher.start_streaming(lambda update: None)
    with streaming(watcher, lambda update: None):
        pass


def test_what_was_streamed_is_not_streamed_again_by_the_next_process(local: Place, tmp_path: Path) -> None:
    log, lines = tmp_path / "log", list[str]()
    log.write_text("one\n")
    for new in ("two", "three"):
        watcher = TrainingWatcher("local", {"log_file": str(log)})
        with streaming(watcher, lambda update: lines.append(update.line)):
            with log.open("a") as opened:
                opened.write(f"{new}\n")
            assert wait_until(lambda new=new: lines and lines[-1] == new)
    assert lines == ["one", "two", "three"]


def followers(log: Path, program: str) -> list[int]:
    """The processes that follow a log on the target: `tail -s …`, or `sh -s` with it as its file 4."""
    found = []
    for pid in pids():
        with suppress(OSError):
            files = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.name in "34"]
            if str(log) in files and f"{program}\0-s\0" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


@pytest.fixture(params=["tail", "sh"])
def waits_by(request: pytest.FixtureRequest, local: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    """What waits on the target for what is written: GNU tail, or a shell where another tail is."""
    if request.param != "tail":
        tool = local.surroundings.tools / "tail"
        tool.write_text('#!/bin/sh\n[ "$1" != --version ] || exit 1\nexec /usr/bin/tail "$@"\n')
        tool.chmod(0o755)
    return str(request.param)


def test_a_silent_connection_is_given_up_and_opened_again(
    local: Place, tmp_path: Path, waits_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training_monitor.logs.following.SILENT_SECONDS", 1.0)
    monkeypatch.setattr("training_monitor.supervision.watcher.TICK_SECONDS", 0.1)
    log, lines = tmp_path / "log", list[str]()
    log.write_text("one\n")
    with streaming(TrainingWatcher("local", {"log_file": str(log)}), lambda update: lines.append(update.line)):
        assert wait_until(lambda: lines == ["one"])
        for number in range(2):
            assert wait_until(lambda: followers(log, waits_by))
            os.kill(followers(log, waits_by)[0], signal.SIGSTOP)
            with log.open("a") as opened:
                opened.write(f"{number}\n")
            assert wait_until(lambda number=number: lines[-1] == f"{number}", 20)
    assert lines == ["one", "0", "1"]


def test_a_silent_log_is_read_by_one_connection(local: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_monitor.logs.following.SILENT_SECONDS", 0.3)
    monkeypatch.setattr("training_monitor.supervision.watcher.TICK_SECONDS", 0.1)
    log, lines = tmp_path / "log", list[str]()
    log.write_text("one\n")
    with streaming(TrainingWatcher("local", {"log_file": str(log)}), lambda update: lines.append(update.line)):
        assert wait_until(lambda: followers(log, "tail"))
        before = followers(log, "tail")
        time.sleep(1.5)
        assert followers(log, "tail") == before


def test_on_the_target_one_program_waits_and_none_is_started(local: Place, tmp_path: Path) -> None:
    log, heard = tmp_path / "log", list[str]()
    log.write_text("one\n")
    with streaming(TrainingWatcher("local", {"log_file": str(log)}), lambda update: heard.append(update.line)):
        assert wait_until(lambda: followers(log, "tail"))
        before = {pid for pid, line in local.surroundings.processes().items() if "tail" in line}
        with log.open("a") as opened:
            opened.write("two\n")
        assert wait_until(lambda: heard == ["one", "two"])
        after = {pid: line for pid, line in local.surroundings.processes().items() if "tail" in line}
    assert after.keys() == before and len(after) == 2, after  # the other is `timeout`


def test_a_process_job_is_polled_and_stopped(target: Place) -> None:
    job = start_process_job(target.address, f"echo step 1/9; sleep 300 & {shlex.join(['sleep', '301'])}", "sleeper")
    watcher = TrainingWatcher(target.address, job)
    assert wait_until(lambda: watcher.poll().progress.step == 1)
    assert watcher.poll().is_running is True
    assert watcher.stop_training(0.5) is True
    assert watcher.poll().is_running is False
    stop_job(target.address, job)


def test_nobody_is_left_when_the_watching_process_is_killed(local: Place, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n")
    code = (
        "import time; from training_monitor import TrainingWatcher\n"
        f"TrainingWatcher('local', {{'log_file': {str(log)!r}}}).start_streaming(lambda u: print(u.line, flush=True))\n"
        "time.sleep(100)"
    )
    watching = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert watching.stdout and watching.stdout.readline() == "one\n"
    kill(watching.pid)
    watching.wait()
    watching.stdout.close()
    assert wait_until(lambda: not [line for line in local.surroundings.processes().values() if "sh -s" in line], 30)


@pytest.mark.parametrize("streams", [False, True], ids=["asked", "streamed"])
def test_lines_that_were_there_before_are_no_steps_made_now(local: Place, streams: bool) -> None:
    log = local.folder / "train.log"
    log.write_text("".join(f"step {step}/100 loss {1 / step:.4f}\n" for step in range(1, 61)))
    old = time.time() - 900
    os.utime(log, (old, old))
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            watcher = TrainingWatcher("local", WatchedJob(log_file=str(log), pid=process.pid))
            with streaming(watcher, lambda update: None) if streams else nullcontext():
                statuses = [watcher.poll(), watcher.poll()]
            states = [(each.verdict.state, each.step) for each in statuses if each.verdict]
            assert states == [("stalled", 60)] * 2, [each.verdict for each in statuses]
            silence = statuses[-1].verdict and statuses[-1].verdict.seconds_without_step
            assert silence is not None and silence > 890
        finally:
            process.kill()


def test_the_first_verdict_of_a_resumed_watch_is_of_the_present_log(local: Place) -> None:
    log = local.folder / "train.log"
    for last in (60, 900):
        with log.open("a") as file:
            file.write(f"step {last}/1000 loss 0.5\n")
        watcher = TrainingWatcher("local", {"log_file": str(log)})
        with streaming(watcher, lambda update: None):
            first = watcher.poll()
        assert first.step == last and first.verdict and f"step {last} of 1000" in first.verdict.reason
