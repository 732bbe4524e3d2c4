"""Clock changes, suspended machines and full disks: nothing stalls, fails or happens twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import Behaviour, FakeClock, FakeStream
from tests.hostile.disks import fill_up, small_disk
from tests.integration.commands import run_command
from tests.integration.conftest import wait_until
from tests.unit.fleet.fleet_world import Watch
from tests.unit.rent.test_queue import LEASE, REQUEST
from tests.unit.supervision.test_auto_restart import Bench as RestartBench
from tests.unit.supervision.test_watch_training import JOB, SAVE, Bench as WatchBench
from training_monitor.core.errors import LeaseLost
from training_monitor.core.store import Store
from training_monitor.fleet.values import MemberSpec
from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.training_request import JobState, QueuedJob

HOUR = 3600.0
BAD_STATES = {"stalled", "failed", "lost", "slow"}
ROOT = Path(__file__).parents[2]


class HubClock(FakeClock):
    """The clock of this machine, which is set and suspended; the time of the target is that of `there`."""

    def __init__(self, there: FakeClock) -> None:
        super().__init__()
        self.there, self.ahead, self.asleep = there, 0.0, 0.0
        self.suspensions: list[tuple[float, float]] = []  # when, and for how long

    def time(self) -> float:
        return self.there.time() + self.ahead

    def monotonic(self) -> float:
        return self.there.monotonic() - self.asleep

    def at(self, elapsed: float, act: Callable[[], None]) -> None:
        self.there.at(elapsed, act)

    def _pass(self, seconds: float, event: threading.Event | None) -> None:
        self.there._pass(seconds, event)
        if self.suspensions and self.there.elapsed >= self.suspensions[0][0]:
            self.suspend(self.suspensions.pop(0)[1])

    def set(self, elapsed: float, ahead: float) -> None:
        """Set this clock to so many seconds ahead, `elapsed` seconds from the beginning."""
        self.at(elapsed, lambda: setattr(self, "ahead", ahead))

    def suspend(self, seconds: float) -> None:
        self.there.sleep(seconds)
        self.asleep += seconds


JUMPS = ((-HOUR, 0.0), (HOUR, -HOUR), (-90.0, 90.0))


@pytest.mark.parametrize("jumps", JUMPS)
def test_a_watched_training_does_not_stall_because_a_clock_was_set(tmp_path: Path, jumps: tuple[float, float]) -> None:
    bench = WatchBench(tmp_path, Behaviour(total=2000, save_every=100))
    bench.clock = clock = HubClock(bench.clock)
    for number, ahead in enumerate(jumps):
        clock.set(630.0 + 300 * number, ahead)
    report = bench.watch(SAVE)
    assert report is not None and report.end == "finished"
    assert not [event.kind for event in bench.events if "stall" in event.kind]
    assert not {status.verdict.state for status in bench.statuses if status.verdict} & BAD_STATES


def test_a_hard_limit_counts_by_the_clock_of_the_target(tmp_path: Path) -> None:
    bench = WatchBench(tmp_path, Behaviour(total=2000, save_every=100))
    bench.transport.stream = lambda *_, **__: FakeStream()  # type: ignore[method-assign]
    bench.clock = clock = HubClock(bench.clock)
    clock.set(700.0, 24 * HOUR)
    report = bench.watch(SAVE, job=JOB, hard_limit=2 * HOUR)
    assert report is not None and report.end == "finished"


def test_a_watched_training_does_not_stall_because_the_watcher_was_suspended(tmp_path: Path) -> None:
    bench = WatchBench(tmp_path, Behaviour(total=3000, save_every=100))
    bench.clock = clock = HubClock(bench.clock)
    clock.suspensions = [(700.0, HOUR)]
    report = bench.watch(SAVE)
    assert report is not None and report.end == "finished" and not clock.suspensions
    assert not [event.kind for event in bench.events if "stall" in event.kind]
    assert not {status.verdict.state for status in bench.statuses if status.verdict} & BAD_STATES


@pytest.mark.parametrize("jumps", JUMPS)
def test_a_supervised_job_starts_as_often_when_a_clock_is_set(
    tmp_path: Path, jumps: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    bench = RestartBench(tmp_path)
    bench.jobs.behaviours = [Behaviour(crash_after=120), Behaviour()]
    bench.clock = clock = HubClock(bench.clock)
    for number, ahead in enumerate(jumps):
        clock.set(60.0 + 100 * number, ahead)
    report = bench.restart()
    assert (report["success"], report["reason"]) == (True, "completed")
    assert len(bench.jobs.starts) == 2


def test_a_restart_waits_no_longer_because_the_clock_was_set_back(tmp_path: Path) -> None:
    bench = RestartBench(tmp_path)
    bench.jobs.behaviours = [Behaviour(crash_after=120), Behaviour()]
    bench.clock = clock = HubClock(there := bench.clock)
    bench.on("waiting", lambda: setattr(clock, "ahead", -24 * HOUR))
    assert bench.restart()["success"] and len(bench.jobs.starts) == 2 and there.elapsed < HOUR


def test_a_supervised_job_is_not_restarted_because_the_supervisor_was_suspended(tmp_path: Path) -> None:
    bench = RestartBench(tmp_path)
    bench.jobs.behaviours = [Behaviour(total=5000)]
    bench.clock = clock = HubClock(bench.clock)
    clock.suspensions = [(300.0, HOUR)]
    report = bench.restart()
    assert report["success"] and len(bench.jobs.starts) == 1 and not clock.suspensions


def set_watch() -> tuple[Watch, HubClock]:
    """A fleet of this machine, whose clock can be set."""
    hub = HubClock(FakeClock())
    watch = Watch(specs=(MemberSpec("local"),), clock=hub)
    hub.there = watch.world.clock
    return watch, hub


@pytest.mark.parametrize("jumps", JUMPS)
def test_members_of_a_fleet_do_not_stall_because_a_clock_was_set(jumps: tuple[float, float]) -> None:
    levels, (watch, hub) = [], set_watch()
    watch.train(range(1, 60))
    for number, ahead in enumerate(jumps):
        hub.ahead = ahead
        for step in range(60 + 30 * number, 90 + 30 * number):
            watch.train(range(step, step + 1))
            levels.append(watch.level(0))
    assert set(levels) == {"healthy"} and not [kind for kind in watch.told if "stall" in kind]


def test_members_of_a_fleet_do_not_stall_because_this_machine_was_suspended() -> None:
    watch, hub = set_watch()
    watch.train(range(1, 60))
    hub.suspend(HOUR)
    watch.train(range(420, 450))
    assert watch.level(10) == "healthy" and not [kind for kind in watch.told if "stall" in kind]


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_training_of_the_queue_has_one_writer_when_a_clock_is_set(tmp_path: Path, ahead: float) -> None:
    clock = HubClock(FakeClock())
    queue = TrainingQueue(Store(str(tmp_path)), clock=clock)
    queue.submit(REQUEST, "one")
    held = queue.claim("a", LEASE)
    assert held is not None
    for clock.ahead in (ahead, 0.0):
        for worker in "bc":
            queue.claim(worker, LEASE)
        writers = [worker for worker in "abc" if can_write(queue, held, worker)]
        assert len(writers) == 1, (clock.ahead, writers)


def can_write(queue: TrainingQueue, job: QueuedJob, worker: str) -> bool:
    try:
        queue.renew(job.id, worker, LEASE)
        queue.save(replace(job, state=JobState.CHARGING), worker)
    except LeaseLost:
        return False
    return True


# ---------------------------------------------------------------- disks


def command(
    *argv: str, out: str | None = None, within: Sequence[str] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own; `out` is where its stdout goes, `within` the command that starts it."""
    words = [*within, sys.executable, "-m", "training_monitor", *argv]
    places = {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    with open(out or os.devnull, "w") as file:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file if out else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **places, **environ},
            timeout=60,
            check=False,
        )


@contextmanager
def running_training(folder: Path) -> Iterator[Path]:
    """The log of a training that runs meanwhile."""
    log = folder / "train.log"
    script = f"for n in $(seq 2000); do echo step $n/2000 loss: 0.5 >>'{log}'; sleep 0.2; done"
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        assert wait_until(lambda: log.exists() and log.stat().st_size > 60)
        yield log
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("STATE", "JOBS"):
        monkeypatch.setenv(f"TRAINING_MONITOR_{name}_DIR", str(tmp_path / name.lower()))
    with running_training(tmp_path) as log:
        yield log


def test_a_full_disk_under_the_log_file_changes_no_verdict(training: Path) -> None:
    done = command("check", "local", str(training), "--json", TRAINING_MONITOR_LOG_FILE="/dev/full")
    sound = run_command("check", "local", str(training), "--json")
    assert done.returncode == sound.returncode == 0 and "Traceback" not in done.stderr
    assert json.loads(done.stdout)["verdict"] == "ok"


@pytest.mark.parametrize("words", [("check",), ("check", "--json"), ("logs",)])
def test_a_full_disk_under_stdout_is_no_verdict(training: Path, words: tuple[str, ...]) -> None:
    done = command(words[0], "local", str(training), *words[1:], out="/dev/full")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


def test_a_full_disk_under_the_tables_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    assert run_command("fleet", "local", "--once").returncode in (0, 1, 3)
    for option in ("--csv", "--jsonl"):
        done = run_command("history", "local", option, "/dev/full")
        assert done.returncode in (1, 2, 3) and "Traceback" not in done.stderr, done
        assert "/dev/full" in done.stderr and "No space" in done.stderr


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk without a free byte."""
    with small_disk(tmp_path / "full", "64k") as folder:
        (folder / "out" / "checkpoint-10").mkdir(parents=True)
        (folder / "out" / "checkpoint-10" / "model.pt").write_bytes(b"")
        fill_up(folder)
        yield folder


def test_a_full_disk_under_jobs_starts_none(training: Path, full_disk: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    words = ("run", "--name", "one", "--max-retries", "1", "--retry-delay", "0.1s", "--", "touch", str(started))
    done = run_command(*words, TRAINING_MONITOR_JOBS_DIR=str(full_disk / "jobs"))
    assert done.returncode in (1, 3) and "Traceback" not in done.stderr
    assert "cannot" in done.stderr + done.stdout and str(full_disk) in done.stderr + done.stdout
    assert not started.exists()


def test_a_full_disk_under_checkpoints_hides_none(training: Path, full_disk: Path) -> None:
    done = run_command("checkpoints", "local", str(full_disk / "out"), "--json", TMPDIR=str(full_disk))
    assert "Traceback" not in done.stderr and "checkpoint-10" in done.stdout and json.loads(done.stdout)
