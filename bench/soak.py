"""What grows while everything goes wrong for an hour: memory, threads, files, processes, the state file, objects.

    python3 -m bench.soak [--minutes 60] [--members 200] [--seed 1] [--interval 2] [--json FILE] [--trace]

One process uses the package while seeded faults happen: a FleetMonitor over machines in memory, some of which are
rented and destroyed all the time; and, with real processes, a streamed log, a supervised script, a history, an outbox
before an HTTP service, a state file that another process locks, the collector of `top`, and the commands of
`bench/soak_commands.py`. The calendar of the fleet
and of the history runs SPEED times as fast as the clock, so that what is kept for hours is full within minutes.

What is remembered of the shapes of lines is full from the beginning. Every ten seconds a sample is taken;
`bench/soak_series.py` says what counts as growth. Runs shorter than SETTLED minutes are not judged. Exits with 1 if
anything grows, fails or is left behind. --trace names the lines that took the memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from dataclasses import replace

from bench.soak_commands import started, use  # noqa: E402
from bench.soak_samples import MARK, Samples, marked, resident, take_sample, zombies  # noqa: E402
from bench.soak_series import as_curves, as_table, series_of, shown_in  # noqa: E402
from bench.top import write_run  # noqa: E402
from tests.loopback.messaging import (  # noqa: E402
    Fault,
    Services,
    break_off,
    close_at_once,
    drip,
    hang,
    refuse,
)
from tests.unit.fleet.fleet_world import Machine, World, row, unreachable  # noqa: E402
from training_monitor.core.clock import SystemClock
from training_monitor.core.errors import CommandTimedOut, TrainingMonitorError
from training_monitor.core.long_running import prepare_for_long
from training_monitor.core.models import Event
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.history import FIELDS, History
from training_monitor.fleet.values import FleetSample
from training_monitor.logs.shapes import MOST_SHAPES
from training_monitor.logs.totals import LogTotals
from training_monitor.notify import Webhook
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.local_runs import LocalRuns
from training_monitor.supervision.restart import auto_restart
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.targets import transport
from training_monitor.verdict.failure import classify_failure
from training_monitor.verdict.restart import RestartPolicy

SPEED = 30.0  # of the calendar
KEPT_DAYS = 0.04  # of the fleet's history: two minutes of the run
SETTLED = 8.0  # minutes, from which on a run is judged
SPACING = 10.0  # seconds between two samples, at most
FATES = {
    "finish": "for i in 1 2 3; do echo step $i/3 loss 0.5; sleep 0.1; done",
    "crash": "echo step 1/3; echo Traceback; exit 1",
    "hang": "echo step 1/3; sleep 300",
    "kill": "sleep 0.3; kill -9 $$",
}
LOCK = "import sqlite3, sys, time; sqlite3.connect(sys.argv[1]).execute('BEGIN IMMEDIATE'); time.sleep(1)"


# ---------------------------------------------------------------- the fleet


class Calendar(SystemClock):
    """The real clock, with a calendar that is fast."""

    def __init__(self, speed: float = SPEED) -> None:
        self._speed, self._since, self._day = speed, time.monotonic(), time.time()

    @property
    def elapsed(self) -> float:
        return self._speed * (time.monotonic() - self._since)

    def time(self) -> float:
        return self._day + self.elapsed


class FaultyWorld(World):
    """Machines that are rented and destroyed, and that answer late, wrongly or never."""

    def __init__(self, members: int, soak: Soak) -> None:
        super().__init__()
        self.clock, self.soak, self.random = Calendar(), soak, soak.random("world")  # type: ignore[assignment]
        self.said = deque(maxlen=10)  # type: ignore[assignment]
        self.members, self.newest, self.steps = members, 0, Counter[str]()
        for _ in range(members):
            self.rent()

    def rent(self) -> None:
        self.newest += 1
        self.machines[f"vast-{self.newest}"] = Machine(scripts=deque(maxlen=1))  # type: ignore[arg-type]
        self.rows[self.newest] = row(self.newest, start_date=self.clock.time())

    def end(self) -> None:
        """Destroy a machine, but never the oldest ones: a member that is not renewed grows for 240 looks."""
        number = self.random.choice(sorted(self.rows)[self.members // 20 :])
        del self.rows[number], self.machines[f"vast-{number}"], self.steps[f"vast-{number}"]

    def trouble(self) -> None:
        """Let the account change between two listings, by fewer instances than a fleet asks for one by one."""
        self.lying = None
        if self.random.random() < 0.3:
            hidden = self.random.choice(list(self.rows))
            self.lying = [each for number, each in self.rows.items() if number != hidden]
        for _ in range(self.random.randint(1, 3)):
            self.end()
        while len(self.rows) < self.members:
            self.rent()

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        names = [word.partition("=")[2] for word in argv if word.startswith("HostKeyAlias=")]
        chance = self.random.random()
        if chance < 0.002:
            self.soak.wait(min(timeout, 2.0))
            raise CommandTimedOut(f"no answer within {timeout:g} s")
        if chance < 0.02 or names and names[0] not in self.machines:
            raise unreachable()
        if names:
            self.train(names[0])
        elif list(argv[1:3]) == ["show", "instances"]:
            self.trouble()
        result = super().run(argv, timeout=timeout, input=input)
        self.soak.counts["looks"] += 1
        return result if chance > 0.04 else replace(result, stdout=self.spoil(result.stdout))

    def spoil(self, answer: str) -> str:
        """Cut an answer, or mix something into it."""
        at = self.random.randrange(len(answer) + 1)
        return answer[:at] + self.random.choice(["", "\0\ufffd" * 50, "{", answer[:at]])

    def train(self, name: str) -> None:
        """Let a training go on, and its log grow, shrink, jump or say nan."""
        machine = self.machines[name]
        self.steps[name] += self.random.randint(1, 9)
        loss: float | str = 2 / self.steps[name]
        match self.random.randrange(300) if len(machine.log) < 20_000 else 0:
            case 0:
                machine.log = machine.log[-200:]
            case 1:
                machine.log, machine.inode = "", machine.inode + 1
            case 2:
                self.steps[name] = self.random.randrange(90_000)
            case 3:
                loss = "nan"
            case 4:
                machine.pid = self.random.choice([None, 100, 101])
        machine.log += f"step {self.steps[name]}/100000 loss {loss}\n"


class QuickFleet(FleetMonitor):
    """A fleet whose rounds follow the clock, and whose limits the calendar."""

    longest_backoff = 10.0

    def __init__(self, interval: float, world: FaultyWorld, **more: Any) -> None:
        config = FleetConfig(interval=max(1.0, SPEED * interval))
        super().__init__(whole_account=True, config=config, transport=world, clock=world.clock, **more)
        self.interval = self._schedule.interval = interval


@contextlib.contextmanager
def threads_that_fail(chance: float, soak: Soak) -> Iterator[None]:
    """Let the machine have no thread for a look, or to read the output of a program, now and then."""
    start, random = threading.Thread.start, soak.random("threads")

    def fail(thread: threading.Thread) -> None:
        is_ours = thread.name == "training_monitor look" or type(thread).__module__ == transport.__name__
        if is_ours and random.random() < chance:
            soak.counts["threads refused"] += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = fail  # type: ignore
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


# ---------------------------------------------------------------- what runs beside it


class Over(Exception):
    """The end of the run, said by a callback."""


class Soak:
    """One run: its folder, its end, and what happened in it."""

    def __init__(self, folder: Path, seed: int, members: int, interval: float) -> None:
        self.folder, self.seed, self.members, self.interval = folder, seed, members, interval
        self.store = Store(str(folder / "state"))
        self.ended, self.counts = threading.Event(), Counter[str]()
        self.defects: list[str] = []
        self.commands: Mapping[str, subprocess.Popen[str]] = {}
        self.outbox: Outbox | None = None
        self.told_at = 0.0

    def random(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def wait(self, seconds: float) -> bool:
        return self.ended.wait(seconds)

    def tell(self, notice: Notice) -> None:
        """Post some of the fleet's alerts."""
        if self.outbox and time.monotonic() - self.told_at > 0.5:
            self.told_at = time.monotonic()
            self.outbox.post(notice)


def watch_fleet(soak: Soak) -> None:
    """Watch an account in which machines come and go."""
    world, random = FaultyWorld(soak.members, soak), soak.random("fleet")
    history = History(soak.store, keep_days=KEPT_DAYS)
    with threads_that_fail(0.01, soak):
        fleet = QuickFleet(soak.interval, world, history=history, tell=soak.tell, store=soak.store)
        with contextlib.closing(fleet):
            fleet.start()
            while not soak.wait(soak.interval / 4):
                fleet.snapshot()
                if random.random() < 0.02:
                    fleet.clear_logs()


def follow_log(soak: Soak) -> None:
    """Stream a log that is rotated, cut and deleted, while its `tail` is killed."""
    log, random, step = soak.folder / "training.log", soak.random("log"), 0

    def hear(update: object) -> None:
        soak.counts["lines"] += 1

    while not soak.ended.is_set():
        watcher = TrainingWatcher("local", {"log_file": str(log)}, {"poll_interval": 2.0}, store=soak.store)
        stop, until = watcher.start_streaming(hear), time.monotonic() + random.uniform(5, 30)
        while time.monotonic() < until and not soak.wait(0.1):
            step += 1
            with log.open("a") as file:
                file.write(f"step {step}/1000000 loss {random.random():.3f}\n" * random.randint(1, 20))
            spoil_log(log, random, soak)
        stop()


def spoil_log(log: Path, random: random.Random, soak: Soak) -> None:
    match random.randrange(100):
        case 0:
            log.replace(f"{log}.1")
        case 1:
            os.truncate(log, 0)
        case 2:
            log.unlink()
        case 3:
            for pid in marked():
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_bytes() == b"tail\n":
                        os.kill(pid, signal.SIGKILL)
                        soak.counts["tails killed"] += 1


def supervise(soak: Soak) -> None:
    """Supervise a script that finishes, crashes, hangs or is killed, again and again."""
    random, fate = soak.random("restart"), soak.folder / "fate"

    def draw() -> None:
        fate.write_text(random.choice([*FATES.values(), FATES["finish"]]))

    def hear(event: Event) -> None:
        soak.counts["attempts"] += event.kind == "started"
        look(None)
        draw()

    def look(error: object) -> None:
        if soak.ended.is_set():
            raise Over

    while not soak.ended.is_set():
        draw()
        with contextlib.suppress(Over):
            auto_restart(
                *("local", "soak", None),
                policy=RestartPolicy(2, 0.1, stagnation_threshold=0.5, check_interval=0.3, keep_attempts=3),
                job_config={"command": f". {fate}"},
                store=soak.store,
                on_event=hear,
                on_look=look,
            )


def write_history(soak: Soak) -> None:
    """Write half a day of twenty members in a minute, which is packed, thinned and forgotten."""
    history, random = History(Store(str(soak.folder / "state" / "archive")), keep_days=1.2), soak.random("history")
    clock = Calendar(720.0)
    while not soak.wait(0.1):
        values = {name: random.random() for name in FIELDS}
        names = [f"ssh://gpu{number}" for number in range(20) if random.random() < 0.9]
        history.add({name: FleetSample(clock.time(), values, "running") for name in names})
        soak.counts["samples"] += len(names)
        if random.random() < 0.01:
            history.read("ssh://gpu1", 0.0)


def post_notices(soak: Soak) -> None:
    """Post to a service that refuses, hangs, drops and drips."""
    random, number = soak.random("outbox"), 0
    faults: list[Fault] = [refuse(500), refuse(400), hang, break_off, close_at_once, drip]
    with Services() as services:
        while not soak.ended.is_set():
            refuses = random.random() < 0.2
            url = "http://127.0.0.1:9/refused" if refuses else services.webhook
            with Outbox(TrainingNotifier([Webhook(url)], timeout=1.0), soak.store) as outbox:
                soak.outbox, until = None if refuses else outbox, time.monotonic() + random.uniform(5, 20)
                while time.monotonic() < until and not soak.wait(4.0 if refuses else 0.3):  # each try takes three
                    number += 1
                    outbox.post(Notice("soak", "A notice", text="of nothing", job_id="soak", generation=number))
                    if random.random() < 0.1 and not services.faults:
                        services.faults.append(random.choice(faults))
                soak.outbox = None
            soak.counts["requests"] += len(services.asked)
            services.asked.clear()


def lock_state(soak: Soak) -> None:
    """Let another process hold the state file for a second."""
    random = soak.random("lock")
    while not soak.wait(random.uniform(5, 15)):
        subprocess.run([sys.executable, "-S", "-c", LOCK, soak.store.path], check=False, stderr=subprocess.DEVNULL)
        soak.counts["locks"] += 1


def look_at_runs(soak: Soak) -> None:
    """Look as `top` does at runs that come and go, and of which some cannot be read."""
    random, folder = soak.random("runs"), soak.folder / "runs"
    folder.mkdir()
    collector = RunCollector(LocalRuns(folder), interval=1.0, where="soak")
    collector.start()
    step = 0
    while not soak.wait(0.1):
        step += 1
        path = folder / f"run-{random.randrange(30)}"
        if path.exists() and random.random() < 0.4:
            shutil.rmtree(path)
            continue
        path.mkdir(exist_ok=True)
        write_run(str(folder), int(path.name[4:]), step, random.choice([os.getpid(), *marked()[:5], 2**22]))
        if random.random() < 0.2:
            os.truncate(next(path.iterdir()), random.randrange(500))
        soak.counts["runs written"] += 1
        collector.snapshot()
    collector.close()


def run_commands(soak: Soak) -> None:
    """Let commands run that look at a training for long."""
    folder = soak.folder / "commands"
    folder.mkdir(exist_ok=True)
    with started(folder) as soak.commands:
        soak.counts["questions to commands"] += use(soak.commands, folder, soak.ended)


WORKERS: tuple[Callable[[Soak], None], ...] = (
    watch_fleet,
    follow_log,
    supervise,
    write_history,
    post_notices,
    lock_state,
    look_at_runs,
    run_commands,
)


def keep_going(work: Callable[[Soak], None], soak: Soak) -> None:
    """Do the work until the end, again after an error that its caller would have to expect."""
    while not soak.ended.is_set():
        try:
            work(soak)
        except TrainingMonitorError as error:
            soak.counts[f"{work.__name__}: {type(error).__name__}"] += 1
            soak.wait(0.5)
        except Exception:
            soak.defects.append(f"{work.__name__} failed: {traceback.format_exc()}")
            soak.wait(5.0)


# ---------------------------------------------------------------- a run


def fill_shapes() -> None:
    """Read more kinds of lines than are remembered: spoilt answers would take an hour to bring as many."""
    words = ("".join(chr(ord("a") + int(digit)) for digit in str(number)) for number in range(MOST_SHAPES + 100))
    lines = [f"step 1/100 loss 0.5 epoch 1/3 saved {word} {word}_error: {word}=0.25\n" for word in words]
    LogTotals().feed("".join(lines))
    for first in range(0, len(lines), 100):
        classify_failure("".join(lines[first : first + 100]))


@contextlib.contextmanager
def running(seed: int, members: int, interval: float) -> Iterator[Soak]:
    """Let all of it run until the end of the block, and leave nothing behind."""
    before, threads_before = dict(os.environ), threading.enumerate()
    with tempfile.TemporaryDirectory(prefix="tm-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ.update({MARK: str(os.getpid()), "XDG_RUNTIME_DIR": name})
        os.environ.update(TRAINING_MONITOR_STATE_DIR=f"{name}/state", TRAINING_MONITOR_JOBS_DIR=f"{name}/jobs")
        soak = Soak(folder, seed, members, interval)
        fill_shapes()
        threads = [threading.Thread(target=keep_going, args=(work, soak), name=work.__name__) for work in WORKERS]
        try:
            for thread in threads:
                thread.start()
            yield soak
        finally:
            soak.ended.set()
            end = time.monotonic() + 20
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            end_processes()
            soak.defects += [f"left behind: {each}" for each in left_behind(threads_before)]
            os.environ.clear()
            os.environ.update(before)


def end_processes() -> None:
    """End all that was started here, and wait for our children among it."""
    end = time.monotonic() + 5
    while (pids := marked()) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def left_behind(before: Collection[threading.Thread], seconds: float = 35.0) -> list[str]:
    """Return the threads, processes and zombies that are still there after some seconds.

    A thread may wait half a minute for the state file, and would write it anew where its folder was removed meanwhile.
    """
    end = time.monotonic() + seconds
    while True:
        threads = [f"thread {each.name}" for each in threading.enumerate() if each not in before]
        found = [*threads, *(f"process {pid}" for pid in marked()), *(["a zombie"] * zombies())]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def sample_until(soak: Soak, seconds: float, samples: Samples) -> None:
    """Take samples for so long, and say once a minute how it goes."""
    begun, spacing, said = time.monotonic(), min(SPACING, seconds / 60), 0
    while (at := time.monotonic() - begun) < seconds:
        sample = {"at": at, **take_sample(soak.folder)}
        sample |= {f"memory of {name}": resident(each.pid) for name, each in soak.commands.items()}
        samples.add(sample)
        if at // 60 > said:
            said = int(at // 60)
            tell_progress(said, sample, soak)
        soak.wait(max(0.0, min(seconds, len(samples) * spacing) - (time.monotonic() - begun)))


def tell_progress(minute: int, sample: Mapping[str, float], soak: Soak) -> None:
    counted = ", ".join(f"{count} {name}" for name, count in soak.counts.items())
    said = f"{sample['memory']:.1f} MB, {sample['threads']:.0f} threads, {sample['objects']:.0f} objects"
    print(f"{minute} min: {said}; {counted}", file=sys.stderr, flush=True)


def report(samples: Sequence[Mapping[str, float]], soak: Soak) -> bool:
    """Print what there is; return whether anything grows."""
    if len(samples) < 2:
        return False
    judged = samples[-1]["at"] >= 60 * SETTLED * 0.95
    series = series_of(samples)
    shown = shown_in(series) if judged else [each for each in series if not each.name.startswith("objects ")]
    print("\n".join(as_table(samples, shown, judged=judged)), end="\n\n")
    print("\n".join(["```", *as_curves(shown), "```"]), end="\n\n")
    counted = ", ".join(f"{count:,} {name}" for name, count in soak.counts.items())
    print(f"In {samples[-1]['at'] / 60:.1f} minutes with {soak.members} members, seed {soak.seed}: {counted}.")
    return judged and any(each.grows() for each in series)


def tell_lines(before: tracemalloc.Snapshot) -> None:
    """Print which lines took memory since then."""
    for each in tracemalloc.take_snapshot().compare_to(before, "lineno")[:25]:
        print(f"{each.size_diff / 1e3:+10.1f} kB {each.count_diff:+8} objects  {each.traceback}")


def interrupt(*_: object) -> None:
    """End the run at the first signal; a second one does not keep it from tidying up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two looks at a member")
    parser.add_argument("--json", metavar="FILE", help="write the samples there")
    parser.add_argument("--trace", action="store_true", help="print which lines took memory since the second quarter")
    given = parser.parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    samples = Samples()
    prepare_for_long()  # as `training-monitor fleet` does
    with running(given.seed, given.members, given.interval) as soak, contextlib.suppress(KeyboardInterrupt):
        seconds = 60 * given.minutes
        if given.trace:
            sample_until(soak, seconds / 2, samples)
            tracemalloc.start()
            soak.wait(seconds / 10)
            began = tracemalloc.take_snapshot()
            soak.wait(seconds * 0.4)
            tell_lines(began)
        else:
            sample_until(soak, seconds, samples)
    taken = samples.all()
    grown = report(taken, soak)
    if given.json:
        Path(given.json).write_text(json.dumps({"samples": taken, "counts": soak.counts}))
    defects = [*dict.fromkeys(soak.defects)]
    if soak.folder.exists():
        defects.append(f"left behind: {soak.folder}")
    print("\n".join(defects), end="\n" * bool(defects), file=sys.stderr)
    return 1 if grown or defects else 0


if __name__ == "__main__":
    sys.exit(main())
