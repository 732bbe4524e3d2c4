"""Simulated polling traces of training jobs, healthy and faulty, as a watcher sees them (seeded).

A `Job` lives on its own clock: it makes steps with jitter, prints a line every few steps, pauses for evaluations,
checkpoints and compilations, and leaves behind what its log, its GPUs and its processes looked like at any moment.
`watch` then looks at it from time to time. GPUs are seen of two jobs in three, processes, files and the ages of log and
step of every other one. Each family is a function that lets a job live; a faulty one returns when its fault began.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from training_monitor import Observation

MINUTE, HOUR = 60.0, 3600.0
Range = tuple[float, float]
# mode -> (what its GPUs show, cores its processes take beside one for each rank that works, bytes written per second)
MODES: dict[str, tuple[str, Range, Range]] = {
    "busy": ("busy", (1.0, 6.0), (0.0, 2e4)),
    "starved": ("starved", (1.0, 8.0), (0.0, 2e4)),
    "throttled": ("throttled", (1.0, 6.0), (0.0, 2e4)),
    "eval": ("eval", (1.0, 6.0), (0.0, 2e4)),
    "CPU eval": ("idle", (0.7, 12.0), (0.0, 2e4)),
    "save": ("idle", (0.1, 1.0), (2e6, 8e8)),
    "spinning save": ("spin", (1.0, 8.0), (2e6, 8e8)),
    "load": ("idle", (0.4, 8.0), (0.0, 1e3)),
    "compile": ("compile", (1.0, 16.0), (0.0, 1e6)),
    "CPU starved": ("idle", (0.03, 0.2), (0.0, 300.0)),
    "idle": ("idle", (0.0, 0.15), (0.0, 300.0)),
    "suspended": ("idle", (0.0, 0.0), (0.0, 0.0)),
    "disk": ("idle", (0.0, 0.05), (0.0, 0.0)),
    "spin": ("spin", (1.0, 8.0), (0.0, 300.0)),
}
Slower = Callable[[float], float]


@dataclass
class Trace:
    """What a watcher saw of one job; `fault_at` is when the job went wrong (epoch seconds), None if it never did."""

    family: str
    seed: str
    poll_interval: float
    fault_at: float | None
    samples: list[Observation]


class Job:
    """A simulated training job, read every `poll` seconds or so. Times are wall-clock seconds since its launch."""

    def __init__(self, rng: Random, poll: float, span: float) -> None:
        self.rng, self.poll, self.span = rng, poll, span
        self.launched = 1_700_000_000.0 + rng.randrange(10**6)
        self.has_gpu, self.has_power, self.gpu_holes = rng.random() < 0.65, rng.random() < 0.85, rng.choice((0, 0, 0.1))
        self.util, self.power = rng.choice(((98, 0.85), (95, 0.7), (97, 0.6), (75, 0.6), (50, 0.45)))
        self.spin_power = rng.uniform(0.16, 0.29)
        self.has_size, self.has_loss, self.has_total = rng.random() < 0.7, rng.random() < 0.8, rng.random() < 0.7
        self.meter = rng.choices(("tqdm", "mean", "none"), (50, 15, 35))[0]  # how the printed speed is smoothed
        self.prints_phase, self.line_bytes = rng.random() < 0.2, rng.randint(60, 300)
        self.sigma, self.drift = rng.uniform(0.01, 0.1), 0.0
        self.now, self.step, self.seen, self.size = 0.0, 0, None, rng.randint(500, 50_000)  # seen: newest step printed
        self.pace, self.lag, self.meter_from = 0.0, 0.0, (0.0, 0)
        self.lines, self.modes, self.gaps = [], [], []  # what was logged, what it did, no polls
        self.has_process = rng.random() < 0.5
        self.used, self.process_from, self.saved, self.file_times = (0.0, 0.0), 0.0, rng.random() < 0.5, [0.0]
        self.sleeps, self.jumps, self.lost = [], [], None  # when it slept, of the watcher's clock, a GPU
        self.first_look: float | None = None
        self.readable = True  # whether its lines show a step that can be read
        self.epoch_steps, self.step_lines = None, [(0.0, None)]
        self.knows_rates, self.told_best = rng.random() < 0.5, rng.lognormvariate(0, 0.05)
        self.enter("compile")
        self.shape(0.05, 120.0 if rng.random() < 0.1 else 20.0)
        self.write(0.0)

    def shape(self, low: float, high: float, apart: float = 120.0, sparse: Range | None = None) -> None:
        """Draw a step time between `low` and `high` and a logging interval whose lines are at most `apart` seconds
        apart (or a step), or so many seconds as `sparse` says; the total is work for at least 1.5 times `span`."""
        self.step_time = math.exp(self.rng.uniform(math.log(low), math.log(high)))
        fitting = [count for count in (1, 1, 1, 2, 5, 10, 20, 25, 50, 100) if count * self.step_time <= apart] or [1]
        self.every = round(self.rng.uniform(*sparse) / self.step_time) if sparse else self.rng.choice(fitting)
        self.total = int(self.span / self.step_time * self.rng.uniform(1.5, 8)) + 10

    def enter(self, mode: str) -> None:
        """Begin to do something else; remember the CPU time and bytes used until then, and the rates from then on."""
        if self.modes:
            begin, last, (cores, written), (cpu, size) = self.modes[-1]
            self.used = (cpu + cores * (self.now - begin), size + written * (self.now - begin))
            if "save" in last:
                self.file_times.append(self.now)
        _, cores, written = MODES[mode]
        self.modes.append((self.now, mode, (self.rng.uniform(*cores), self.rng.uniform(*written)), self.used))

    def write(self, when: float, phase: str | None = None, heartbeat: bool | None = None) -> None:
        """Remember what the log says from `when` on, and whether its last lines only repeat."""
        eta = rate = loss = None
        if self.meter != "none" and self.pace > 0 and self.seen is not None:
            rate = round(1 / self.pace, 2) if self.pace < 1 else 1 / round(self.pace, 2)
            eta = float(int((self.total - self.seen) * self.pace)) if self.has_total else None
        if self.has_loss and self.seen:
            loss = round(1 + 3 * math.exp(-3 * self.seen / self.total) + self.rng.gauss(0, 0.05), 4)
        total = self.total if self.has_total and self.seen is not None else None
        said = {"step": self.seen, "total_steps": total, "eta_seconds": eta, "steps_per_second": rate, "loss": loss}
        said |= {"phase": phase if self.prints_phase else None, "heartbeat": heartbeat}
        if self.epoch_steps and self.seen is not None:
            said |= {"step": None, "total_steps": None, "epoch": round(self.seen / self.epoch_steps, 2)}
        if self.seen is not None and self.seen != self.step_lines[-1][1]:
            self.step_lines.append((when, self.seen))
        if not self.readable:
            said |= dict.fromkeys(("step", "total_steps", "eta_seconds", "loss")) | {"heartbeat": False}
        self.lines.append((when, {**said, "log_size": self.size if self.has_size else None}))

    def train(self, seconds: float, slower: float | Slower = 1.0, mode: str = "busy") -> None:
        """Make steps for about `seconds`, or until the total. `slower` multiplies the step time: a number, or a
        function of the seconds trained so far in this call. A job that has not begun is started first."""
        if not self.now:
            self.start()
        begin, rng = self.now, self.rng
        self.enter(mode)
        while self.now < begin + seconds and self.step < self.total:
            each = self.step_time * (slower(self.now - begin) if callable(slower) else slower)
            count = min(max(1, int(self.poll / 4 / each)), self.total - self.step)
            self.drift = 0.97 * self.drift + rng.gauss(0, 0.01)
            sigma = self.sigma / math.sqrt(count)
            self.advance(count, each * rng.lognormvariate(self.drift - sigma**2 / 2, sigma))

    def advance(self, count: int, each: float) -> None:
        """Make `count` steps of `each` seconds; print the newest line that is due among them."""
        begin, first = self.now, self.step
        self.now, self.step = begin + count * each, first + count
        if self.meter == "mean":
            self.pace = (self.now - self.meter_from[0]) / max(1, self.step - self.meter_from[1])
        else:  # tqdm: exponential smoothing by 0.3 a step; a pause counts towards the step after it
            start = self.pace + 0.3 * (each + self.lag - self.pace) if self.pace else each + self.lag
            self.pace = each + (start - each) * 0.7 ** (count - 1)
        self.lag = 0.0
        printed = self.step // self.every - first // self.every
        if printed or self.step == self.total:
            self.seen = self.total if self.step == self.total else self.step // self.every * self.every
            self.size += max(1, printed) * self.line_bytes
            self.write(begin + (self.seen - first) * each)

    def pause(
        self,
        seconds: float,
        mode: str,
        phase: str | None = None,
        chatter: float | None = None,
        heartbeat: bool | None = None,
    ) -> None:
        """Make no step for `seconds`; something else is written to the log about every `chatter` seconds."""
        self.enter(mode)
        if phase and self.prints_phase:
            self.size += self.line_bytes
            self.write(self.now, phase)
        when = self.now
        while chatter and (when := when + self.rng.expovariate(1 / chatter)) < self.now + seconds:
            self.size += self.rng.randint(80, 400)
            self.write(when, phase, heartbeat)
        self.now += seconds
        self.lag += seconds

    def start(self, seconds: float | None = None) -> None:
        """The time before the first step, a minute or so unless told; for a third, an empty bar stands there."""
        if self.rng.random() < 0.3:
            self.seen = self.step
            self.write(self.now, "startup")
        chatter = self.rng.choice((None, 20.0, 90.0))
        self.pause(seconds or self.rng.uniform(15, 120), "compile", self.rng.choice(("startup", "compile")), chatter)
        self.pace, self.lag, self.meter_from = 0.0, 0.0, (self.now, self.step)

    def mode_at(self, when: float) -> tuple[float, str, Range, Range]:
        return self.modes[bisect_right(self.modes, when, key=lambda entry: entry[0]) - 1]

    def processes(self, when: float) -> dict[str, object]:
        """What its processes and its files show at `when`; empty where nobody sees them."""
        if not self.has_process:
            return {}
        begin, mode, (cores, written), (cpu, size) = self.mode_at(when)
        ends = [*(each[0] for each in self.modes[1:]), when]
        starved = [min(end, when) - each[0] for each, end in zip(self.modes, ends) if each[1] == "CPU starved"]
        began = self.process_from if when >= self.process_from else 0.0
        asleep = sum(max(0.0, min(end, when) - start) for start, end in self.sleeps)
        said_at = self.lines[bisect_right(self.lines, when, key=lambda line: line[0]) - 1][0]
        step_at, step = self.step_lines[bisect_right(self.step_lines, when, key=lambda line: line[0]) - 1]
        saved_at = self.file_times[bisect_right(self.file_times, when) - 1]
        values: dict[str, object] = {
            "is_running": True,
            "process": f"17 {began:.0f} boot",
            "runtime": when - began,
            "boot": "boot",
            "awake_seconds": 5000.0 + when - asleep,
            "cpu_seconds": cpu + cores * (when - begin),
            "written_bytes": int(size + written * (when - begin)),
            "delay_seconds": 0.8 * sum(seconds for seconds in starved if seconds > 0),
            "cpu_cores": cores,
            "suspended": (17,) if mode == "suspended" else (),
            "write_rate": written,
            "blocked": int(mode == "disk" or self.rng.random() < 0.02),
            "compilers": self.rng.randint(0, 6) if mode == "compile" else 0,
            "log_age": when - said_at,
            "step_age": when - step_at if step is not None else None,
            "file_age": 0.0 if "save" in mode else when - saved_at if self.saved and saved_at else None,
        }
        if self.knows_rates and len(self.step_lines) > 5:
            values |= {"step_interval": self.every * self.step_time, "step_time": self.step_time * self.told_best}
            values["logged_speed"] = 1 / self.pace if self.pace > 0 else None
        return values

    def gpu(self, when: float) -> tuple[float | None, float | None]:
        """Utilization in percent and the share of the power limit drawn, read at `when`; None where unread."""
        rng, mode = self.rng, MODES[self.mode_at(when)[1]][0]
        if not self.has_gpu or rng.random() < self.gpu_holes:
            return None, None
        if mode == "busy" and rng.random() < 0.03:  # read between two kernels
            mode = "starved"
        util, power = {
            "busy": (rng.gauss(self.util, 3), rng.gauss(self.power, 0.04)),
            "eval": (rng.uniform(60, 100), rng.uniform(0.35, 0.75)),
            "idle": (rng.choice((0, 0, 0, 1, 2)), rng.uniform(0.08, 0.14)),
            "compile": (rng.choice((0, 0, 0, 0, 5, 30)), rng.uniform(0.1, 0.2)),
            "spin": (rng.choice((99, 100, 100)), rng.gauss(self.spin_power, 0.01)),
            "starved": (rng.uniform(5, 45), rng.uniform(0.2, 0.45)),
            "throttled": (rng.uniform(95, 100), self.power * rng.uniform(0.5, 0.7)),
        }[mode]
        power = round(min(1.0, max(0.05, power)), 3)
        return float(round(min(100.0, max(0.0, util)))), power if self.has_power else None


def watch(job: Job, when: float) -> Iterator[Observation]:
    """Look at the job about every `job.poll` seconds from `when` on, but not within `job.gaps`, until it ends."""
    while when < job.now:
        if not any(start <= when < end for start, end in job.gaps):
            _, said = job.lines[bisect_right(job.lines, when, key=lambda line: line[0]) - 1]
            util, power = job.gpu(when)
            jump = sum(seconds for since, seconds in job.jumps if when >= since)
            errors = ("GPU 3 fell off the bus",) if job.lost is not None and when >= job.lost else ()
            yield Observation(
                job.launched + when + jump,
                gpu_utilization=util,
                gpu_power_fraction=power,
                gpu_errors=errors,
                **said,
                **job.processes(when),
            )
        when += job.poll + abs(job.rng.gauss(0, 0.02 * job.poll))


def plain(job: Job, slower: float | Slower = 1.0, sigma: float | None = None, **shape: object) -> None:
    """An uneventful life, of another jitter and other step times where told."""
    job.shape(**shape) if shape else None
    job.sigma = sigma or job.sigma
    job.train(job.span, slower)


def cycle(job: Job, seconds: float, every: Range, pause: Range, mode: str, phase: str | None = None) -> None:
    """Train, interrupted by pauses; both have lengths that are drawn once (minutes) and vary around that."""
    end, chatter = job.now + seconds, job.rng.choice((None, 20.0, 60.0)) if mode == "eval" else None
    usual, length = job.rng.uniform(*every), job.rng.uniform(*pause)
    while job.now < end:
        job.train(usual * job.rng.uniform(0.9, 1.1) * MINUTE)
        job.pause(min(pause[1], max(pause[0], length * job.rng.uniform(0.7, 1.4))) * MINUTE, mode, phase, chatter)
    job.train(2 * job.poll)


def ramp(low: float, high: float, seconds: float) -> Slower:
    """Step times that go from `low` to `high` times the usual within `seconds`."""
    return lambda trained: low + (high - low) * min(1.0, trained / seconds)


def hiccups(job: Job, seconds: float | None = None) -> None:
    """Single steps, one in 60 at most, that take 10 to 20 times as long, GPUs idle meanwhile."""
    job.shape(0.05, 20.0)
    step = job.step_time / MINUTE
    cycle(job, seconds or job.span, (2 + 60 * step, 20 + 60 * step), (9 * step, 19 * step), "load")


def epochs(job: Job) -> None:
    """A validation after each epoch; with every other job, the bar and its step begin anew with the epoch."""
    anew, steps = job.rng.random() < 0.5, max(3 * job.every, int(job.rng.uniform(8, 40) * MINUTE / job.step_time))
    while job.now < job.span:
        if anew:
            job.step, job.total, job.pace, job.lag, job.meter_from = 0, steps, 0.0, 0.0, (job.now, 0)
        job.train(HOUR * 9 if anew else steps * job.step_time)
        job.pause(job.rng.uniform(1, 6) * MINUTE, "eval", "evaluation", job.rng.choice((None, 30.0)))


def restart(job: Job) -> None:
    """Back to a checkpoint, then a start-up; the log goes on from its last line, or from the old step, or anew."""
    job.train(job.span * job.rng.uniform(0.4, 0.7))
    job.step, shown, job.pace = int(job.step * job.rng.uniform(0.5, 0.95)), job.rng.choice("lon"), 0.0
    job.process_from = job.now
    if shown != "l":
        job.seen, job.size = (None, 200) if shown == "n" else (job.step, job.size + 500)
        job.write(job.now, "startup")
    job.start(job.rng.uniform(1, 10) * MINUTE)
    job.train(job.span / 2)


def silent(job: Job, every: Range, pause: Range, mode: str, **sees: bool) -> None:
    """Pauses that no line of the log explains; `sees` sets what is seen of the job."""
    job.prints_phase = False
    for name, value in sees.items():
        setattr(job, name, value)
    job.shape(0.05, 10.0, apart=60.0)
    cycle(job, job.span, every, pause, mode)


def printed(job: Job, *pauses: object) -> None:
    """Pauses, after each of which the printed ETA jumps."""
    job.has_total, job.meter = True, job.rng.choice(("tqdm", "mean"))
    cycle(job, job.span, *pauses)


def slow_patch(job: Job) -> None:
    """Some minutes in which steps take up to three times as long, such as on a shared file system."""
    job.has_total, job.meter = True, job.rng.choice(("tqdm", "mean"))
    job.shape(0.05, 10.0, apart=60.0)
    while job.now < job.span:
        job.train(job.rng.uniform(15, 50) * MINUTE)
        job.train(job.rng.uniform(1.5, 4.5) * MINUTE, job.rng.uniform(1.5, 3), "starved")
    job.train(10 * MINUTE)


def slow_first_steps(job: Job) -> None:
    """The first steps take many times as long: compilations, cold caches, tuned kernels."""
    job.has_total, job.meter = True, job.rng.choice(("tqdm", "mean"))
    job.shape(0.5, 10.0, apart=60.0)
    job.train(job.step_time * job.rng.uniform(20, 100), job.rng.uniform(3, 10))
    job.train(job.span)


def jitter(job: Job) -> None:
    """Steps of which each takes between 0.6 and 1.7 times the usual: a factor of three."""
    job.has_total, job.meter = True, job.rng.choice(("tqdm", "mean"))
    job.shape(2.0, 20.0, apart=60.0)
    plain(job, sigma=0.28)


def bar_at_zero(job: Job) -> None:
    """An empty bar stands there for minutes before the first step."""
    job.has_total, job.seen = True, 0
    job.write(job.now)
    job.pause(job.rng.uniform(3, 20) * MINUTE, job.rng.choice(("load", "idle")))
    job.pace, job.lag, job.meter_from = 0.0, 0.0, (job.now, 0)
    job.train(job.span)


def starved_of_cpu(job: Job) -> None:
    """It compiles or evaluates on a machine whose processors others take."""
    job.has_process, job.prints_phase = True, False
    job.shape(0.05, 10.0, apart=60.0)
    cycle(job, job.span, (15, 40), (3, 12), "CPU starved")


def suspended(job: Job) -> None:
    """A person suspends it, and continues it later."""
    job.has_process = True
    job.train(job.span / 2)
    job.pause(job.rng.uniform(5, 60) * MINUTE, "suspended")
    job.train(job.span / 2)


def batches(job: Job) -> None:
    """A counter of batches without a total, which begins anew with each epoch."""
    job.has_total, job.meter = False, "none"
    while job.now < job.span:
        job.step, job.seen = 0, None
        job.train(job.rng.uniform(5, 40) * MINUTE)


def unreadable(job: Job, until: float = 0.0) -> None:
    """Lines that show news, but no step that can be read, from `until` minutes on."""
    job.has_size = True
    job.shape(0.05, 5.0, apart=20.0)
    job.train(until * MINUTE) if until else None
    job.readable = False
    job.train(job.span)


def hang_with_heartbeat(job: Job, seconds: Range | None = None) -> float:
    """Heartbeats, retries or uptimes go on being printed."""
    job.has_size, job.prints_phase = True, False
    if seconds:
        job.poll = 30.0
        job.shape(0.5, 2.0, apart=20.0)
        job.train(job.rng.uniform(*seconds))
    else:
        job.train(job.rng.uniform(20, 60) * MINUTE)
    begun = job.now
    mode = job.rng.choice(("idle", "idle", "spin"))
    job.pause(job.rng.uniform(60, 150) * MINUTE, mode, chatter=job.rng.choice((1.0, 10.0, 30.0, 60.0)), heartbeat=True)
    return begun


def rotating(job: Job) -> None:
    """Its log begins anew every half hour or so; a look may find no step in it."""
    job.has_size = True
    while job.now < job.span:
        job.train(job.rng.uniform(20, 40) * MINUTE)
        shown, job.seen, job.size = job.seen, None, 0
        job.write(job.now)
        job.seen = shown


def jumping(job: Job) -> None:
    """The watcher's clock is set, forward or back."""
    for _ in range(3):
        job.train(job.span / 4)
        job.jumps.append((job.now, job.rng.choice((-1, 1)) * job.rng.uniform(2, 90) * MINUTE))
    job.train(job.span / 4)


def by_epochs(job: Job) -> None:
    """Dict lines without a step: the fraction of epochs and the loss."""
    job.shape(0.05, 10.0, apart=60.0)
    job.has_loss, job.epoch_steps = True, max(1, job.total // job.rng.randint(2, 20))


def lost_gpu(job: Job) -> float:
    job.lost = job.rng.uniform(20, 60) * MINUTE
    job.has_gpu = job.has_power = True
    job.train(job.lost)
    job.lost = job.now
    job.pause(job.rng.uniform(60, 150) * MINUTE, "spin")
    return job.lost


def hang_across_gaps(job: Job) -> float:
    """A hang that is watched with breaks of some minutes."""
    begun = hang(job, job.rng.choice(("idle", "spin")), gpu=True)
    when = begun + job.rng.uniform(0, 5) * MINUTE
    while when < job.now:
        pause = 3 * job.poll + job.rng.uniform(1, 6) * MINUTE
        job.gaps.append((when, when + pause))
        when += pause + job.rng.uniform(2, 8) * MINUTE
    return begun


def hang_before(job: Job) -> float:
    """It hung before anybody looked; the log and the processes tell since when."""
    job.has_process = job.knows_rates = True
    begun = hang(job, job.rng.choice(("idle", "spin")))
    job.first_look = begun + job.rng.uniform(11, 40) * MINUTE
    return job.first_look


def hang_by_epochs(job: Job) -> float:
    by_epochs(job)
    return hang(job, "idle")


def slow_from_the_start(job: Job) -> float:
    """It became slow before anybody looked; its log tells how fast it was."""
    job.has_process = job.knows_rates = True
    job.shape(0.05, 10.0)
    job.train(job.rng.uniform(20, 60) * MINUTE)
    job.first_look = job.now + job.rng.uniform(0, 30) * MINUTE
    job.train(job.span, job.rng.uniform(2.5, 5), "throttled")
    return job.first_look


def flat_eta(job: Job) -> float:
    """Ever fewer steps, so that what is left always takes as long."""
    job.has_total, job.meter = True, job.rng.choice(("tqdm", "mean"))
    job.shape(0.05, 10.0, apart=60.0)
    healthy, left = job.rng.uniform(20, 60) * MINUTE, job.rng.uniform(1, 3) * HOUR
    job.total = int((healthy + left) / job.step_time)
    job.train(healthy)
    begun = job.now
    job.train(2 * left, lambda trained: math.exp(trained / left))
    return begun


def finished(job: Job) -> None:
    job.has_total, job.total = True, int(job.span * job.rng.uniform(0.3, 0.8) / job.step_time) + 2
    plain(job)
    job.pause(job.rng.uniform(30, 120) * MINUTE, "idle")


def unwatched(job: Job, times: int, low: float, high: float, asleep: bool = False) -> None:
    """Up to `times` times nobody looks, for `low` to `high` minutes; the job goes on, or sleeps with its watcher."""
    stretch, job.span = job.span / times**0.5, job.span + times * high * MINUTE
    job.shape(0.05, 20.0)
    for _ in range(job.rng.randint(1, times)):
        job.train(stretch * job.rng.uniform(0.4, 0.7))
        job.gaps.append((job.now, job.now + job.rng.uniform(low, high) * MINUTE))
        job.sleeps += [job.gaps[-1]] if asleep else []
        (job.pause if asleep else job.train)(job.gaps[-1][1] - job.now, mode="idle" if asleep else "busy")
    job.train(stretch / 2)


def fault(job: Job, end: Callable[[], None]) -> float:
    """A healthy time of 20 to 60 minutes, at times with pauses, then `end`; returns when that began."""
    seconds, habit = job.rng.uniform(20, 60) * MINUTE, job.rng.choice(("", "", "evaluation", "checkpoint", "hiccups"))
    if habit == "hiccups":
        hiccups(job, seconds)
    elif not habit:
        job.train(seconds)
    else:
        cycle(job, seconds, (12, 25), (0.5, 5), "eval" if habit == "evaluation" else "save", habit)
    begun = job.now
    end()
    job.now = min(job.now, begun + 3 * HOUR)  # nobody waits for the end of the last step
    return begun


def hang(job: Job, mode: str, gpu: bool | None = None, chatter: float | None = None) -> float:
    """No step any more. One hang in ten begins within what the log calls a checkpoint or an evaluation."""
    job.has_gpu, job.has_power = (job.has_gpu if gpu is None else gpu), job.has_power or mode == "spin"
    job.has_size = job.has_size or gpu is False or chatter is not None
    phase = job.rng.choice(("checkpoint", "evaluation")) if job.rng.random() < 0.1 else None
    job.prints_phase = job.prints_phase or phase is not None
    return fault(job, lambda: job.pause(job.rng.uniform(60, 150) * MINUTE, mode, phase, chatter))


def hang_at_start(job: Job) -> float:
    """Never a first step; the fault begins when a start-up of ordinary length (3 to 15 minutes) would have ended."""
    job.start(job.rng.uniform(3, 15) * MINUTE)
    job.pause(job.rng.uniform(60, 120) * MINUTE, job.rng.choice(("idle", "compile", "spin")))
    return job.meter_from[0]  # where `start` ended


def slowdown(job: Job, slower: float | Slower) -> float:
    """Step times `slower` times as long, or unbounded: twice as long every 12 to 25 minutes."""
    mode = job.rng.choice(("starved", "throttled", "busy"))
    return fault(job, lambda: job.train(job.rng.uniform(75, 180) * MINUTE, slower, mode))


SEEN = {"has_gpu": True, "has_process": True}
FAMILIES: dict[str, Callable[[Job], float | None]] = {
    "steady": plain,
    "jittery": lambda job: plain(job, sigma=job.rng.uniform(0.25, 0.5)),
    "evaluation pauses": lambda job: cycle(job, job.span, (10, 50), (2, 10), "eval", "evaluation"),
    "checkpoint saves": lambda job: cycle(job, job.span, (10, 60), (1, 8), "save", "checkpoint"),
    "recompilations": lambda job: cycle(job, job.span, (5, 60), (0.5, 4), "compile", "compile"),
    "long start-up": lambda job: (job.start(job.rng.uniform(3, 15) * MINUTE), plain(job))[1],
    "sparse logging": lambda job: plain(job, low=0.05, high=5.0, sparse=(3 * MINUTE, 10 * MINUTE)),
    "very slow steps": lambda job: plain(job, low=60.0, high=240.0, apart=60.0),
    "longer sequences": lambda job: plain(job, ramp(1, job.rng.uniform(1.2, 1.4), job.span * 0.7)),
    "warm-up spike": lambda job: plain(job, ramp(0.1, 1, job.rng.uniform(30, 180))),
    "data hiccups": hiccups,
    "epochs": epochs,
    "restart": restart,
    "finished": finished,
    "watcher slept": lambda job: unwatched(job, 1, 60, 480),
    "polls missing": lambda job: unwatched(job, 3, 5, 40),
    "machine slept": lambda job: unwatched(job, 1, 20, 300, asleep=True),
    "silent evaluation": lambda job: silent(job, (20, 40), (3, 9), "CPU eval", **SEEN),
    "the same, GPUs only": lambda job: silent(job, (20, 40), (3, 9), "CPU eval", has_gpu=True, has_process=False),
    "silent first save": lambda job: silent(job, (20, 60), (5, 9), "save", **SEEN),
    "save, ranks spin": lambda job: silent(job, (15, 60), (2, 9), "spinning save", has_power=True, **SEEN),
    "one rank evaluates": lambda job: silent(job, (15, 40), (3, 12), "eval", has_gpu=True),
    "compilation": lambda job: silent(job, (15, 60), (3, 12), "compile", **SEEN),
    "epochs only": lambda job: (by_epochs(job), plain(job))[1],
    "rotating log": rotating,
    "clock jumps": jumping,
    "printed ETA, evaluations": lambda job: printed(job, (10, 50), (2, 10), "eval", "evaluation"),
    "printed ETA, saves": lambda job: printed(job, (10, 60), (1, 8), "save", "checkpoint"),
    "jitter of 3x": jitter,
    "slow patch": slow_patch,
    "slow first steps": slow_first_steps,
    "start-up bar at 0": bar_at_zero,
    "starved of CPU": starved_of_cpu,
    "suspended": suspended,
    "batches without total": batches,
    "unreadable log": unreadable,
    "unreadable after steps": lambda job: unreadable(job, job.rng.uniform(10, 30)),
    "hang, GPUs idle": lambda job: hang(job, "idle", gpu=True),
    "hang, GPUs spin": lambda job: hang(job, "spin", gpu=True),
    "hang, no GPU reading": lambda job: hang(job, "idle", gpu=False),
    "hang, log grows": lambda job: hang(job, "idle", chatter=job.rng.uniform(60, 600)),
    "hang at start-up": hang_at_start,
    "hang, disk": lambda job: (setattr(job, "has_process", True), hang(job, "disk"))[1],
    "hang, a GPU lost": lost_gpu,
    "hang, heartbeat": hang_with_heartbeat,
    "hang, heartbeat, early": lambda job: hang_with_heartbeat(job, (90.0, 200.0)),
    "hang, epochs only": hang_by_epochs,
    "hang, gaps": hang_across_gaps,
    "hang before first look": hang_before,
    "slowdown 2x": lambda job: slowdown(job, job.rng.uniform(2.0, 2.2)),
    "slowdown 3x": lambda job: slowdown(job, job.rng.uniform(2.85, 3.3)),
    "slowdown 5x": lambda job: slowdown(job, job.rng.uniform(4.75, 5.5)),
    "slowdown unbounded": lambda job: slowdown(job, partial(pow, 2 ** (1 / job.rng.uniform(12, 25) / MINUTE))),
    "slow for good": lambda job: (job.train(20 * MINUTE), job.train(6 * HOUR, 3.0), 20 * MINUTE)[2],
    "slow from the start": slow_from_the_start,
    "ETA flat": flat_eta,
}


def generate(seed: int = 0, families: str = "", count: int = 15) -> Iterator[Trace]:
    """`count` traces of each family whose name matches `families`; each depends on its own seed alone."""
    for name, live in FAMILIES.items():
        broken = name.startswith(("hang", "slow", "ETA")) and name not in ("slow patch", "slow first steps")
        for number in range(count if re.search(families, name) else 0):
            rng = Random(f"{seed}/{name}/{number}")
            poll = rng.uniform(*rng.choice(((30, 30), (60, 60), (30, 60), (30, 60), (5, 30), (60, 120))))
            job = Job(rng, poll, HOUR * (5 if broken else min(6 if poll > 15 else 2, 1 + rng.expovariate(0.7))))
            fault_at = live(job)
            first = rng.uniform(0, 30 if "start-up" in name else 300) if job.first_look is None else job.first_look
            samples = list(watch(job, first))
            yield Trace(name, f"{seed}/{number}", poll, job.launched + fault_at if broken else None, samples)
