"""One training in memory whose life is a list of stages, and every way to ask what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes import EPOCH, TRAINING, FakeClock, FakeJob, FakeTraining, FakeTransport, gpu_answer, is_call, read_call
from tests.unit.fleet.fleet_world import MEMORY, TABLE
from training_monitor.core.store import Store
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.values import MemberSpec
from training_monitor.look.check import check_training, judge_jobs
from training_monitor.look.health_report import get_training_health
from training_monitor.supervision.monitor import JobMonitor
from training_monitor.supervision.watcher import TrainingWatcher

JOB = f"process:{TRAINING}"
GPUS = {"busy": gpu_answer(97, 560), "idle": gpu_answer(0, 70), "spinning": gpu_answer(97, 90), None: ""}


@dataclass(frozen=True)
class Stage:
    """`cores` of CPU and `writes` bytes a second are those of its processes; None: no target tells them."""

    seconds: float
    pace: float = 1.0
    gpus: str | None = "busy"
    cores: float | None = 9.0
    writes: float = 1000.0


@dataclass
class StagedJob(FakeJob):
    """A job that lives through its stages; it exits with `ends` after the last one, unless that is None."""

    stages: Sequence[Stage] = ()
    ends: int | None = None
    says: Callable[[float], str] | None = None  # its log's end at a moment, instead of what it usually prints

    def at(self, now: float) -> tuple[Stage, float, float, float, float]:
        """(The stage at a moment; by then: steps, when the last one was made, CPU seconds, bytes written)."""
        begin, steps, made, cpu, written = self.started, 0.0, self.started, 0.0, 0.0
        stage = self.stages[0]
        for number, stage in enumerate(self.stages):
            is_last = number == len(self.stages) - 1
            spent = max(0.0, now - begin if is_last and self.ends is None else min(now - begin, stage.seconds))
            if stage.pace and spent:
                steps, made = steps + spent * stage.pace, begin + spent
            cpu, written = cpu + spent * (stage.cores or 0.0), written + spent * stage.writes
            begin += spent
            if begin >= now:
                break
        return stage, steps, made, cpu, written

    def step(self, now: float) -> int:
        return min(self.behaviour.total, int(self.at(now)[1]))

    def exit(self, now: float) -> tuple[int, float] | None:
        ended = self.started + sum(each.seconds for each in self.stages)
        if self.stopped_at is not None and self.stopped_at <= now:
            return 143, self.stopped_at
        return (self.ends, ended) if self.ends is not None and ended <= now else None

    def log(self, now: float) -> tuple[str, float]:
        return self.says(now) if self.says else super().log(now)[0], self.at(now)[2]


@dataclass
class OneRun(FakeTraining):
    """The target of that job, which tells of its processes and its log's age as well."""

    stages: Sequence[Stage] = ()
    ends: int | None = None
    total: int = 100_000
    says: Callable[[float], str] | None = None

    def __post_init__(self) -> None:
        does = self.does.__class__(total=self.total, save_every=None, last_words=self.does.last_words)
        self.does = does
        self.jobs[TRAINING] = StagedJob(
            TRAINING, "somebody", "train", {}, self.now, 0, does, stages=self.stages, ends=self.ends, says=self.says
        )

    @property
    def job(self) -> StagedJob:
        found = self.training
        assert isinstance(found, StagedJob)
        return found

    def answer(self, script: str) -> tuple[str, int]:
        self.gpus = GPUS[self.job.at(self.now)[0].gpus]
        if (call := read_call(script)) and call.subject == "evidence":
            return self._evidence(call.given["seconds"] != "0"), 0
        if is_call(script, "host", "show_log_host"):
            return f"{MEMORY}--\n{TABLE}--\n/jobs/{TRAINING}/log", 0
        try:
            return super().answer(script)
        except AssertionError:
            return "", 127  # what a health report asks besides

    def _evidence(self, is_sampled: bool) -> str:
        stage, _, _, cpu, written = self.job.at(self.now)
        if stage.cores is None:
            return "end\n"
        head = f"boot=b\nhz=100\nawake={int(100 * (1000 + self.now - EPOCH))}\noom=0\n"
        up = 1000.0 + self.now - EPOCH
        if self.job.exit(self.now):
            return f"{head}roots=\nup={up:.2f}\ntable=read\nend\n"

        def process(later: float) -> str:
            ticks, wrote = int(100 * (cpu + later * (stage.cores or 0.0))), int(written + later * stage.writes)
            return f"proc 100 S 1 1 1 {ticks} 0 0 0 100000 python3\n/proc/100/io:wchar: {wrote}\n"

        again = f"again={up + 0.5:.2f}\n{process(0.5)}" if is_sampled else ""
        return f"{head}roots=100\nup={up:.2f}\ntable=read\n{process(0.0)}{again}end\n"

    def _print_steps(self) -> None:
        """Its log, to which what it says was appended whenever that is another text."""
        if self.says is None:
            super()._print_steps()
        elif not self.log.endswith(said := self.says(self.now)):
            self.log += said

    def _read_log(self, script: str) -> str:
        age = int(self.now - self.job.at(self.now)[2])
        return super()._read_log(script).replace("\nlog\n", f"\nage={age}\nlog\n", 1)


@dataclass
class Asked:
    """One run, a store of its own, and all ways to ask what it does, each of which names a state."""

    folder: Path
    stages: Sequence[Stage]
    ends: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.run = OneRun(self.clock, stages=self.stages, ends=self.ends, **self.options)
        self.transport = FakeTransport(self.run.answer)
        self.store = Store(str(self.folder / "state"))
        self.given: dict[str, Any] = {"transport": self.transport, "clock": self.clock}
        self.fleet = FleetMonitor([MemberSpec("local", JOB)], store=self.store, **self.given)
        self.ways: dict[str, Callable[[], str]] = {
            "check": self._check,
            "stall": partial(self._check, stagnation_threshold=300.0),
            "status": self._status,
            "list": lambda: judge_jobs("local", store=self.store, **self.given)[0][0][1].state,
            "watch": self._watch,
            "fleet": self._fleet,
            "health": self._health,
        }

    def _check(self, **more: Any) -> str:
        report = check_training("local", JOB, store=self.store, **self.given, **more)
        return str(report["jobs"][0]["state"])

    def _status(self) -> str:
        monitor = JobMonitor("local", JOB, store=self.store, **self.given)
        monitor.update()
        return monitor.verdict().state

    def _watch(self) -> str:
        verdict = TrainingWatcher("local", JOB, store=self.store, **self.given).poll().verdict
        assert verdict
        return verdict.state

    def _fleet(self) -> str:
        [row] = self.fleet.update_all_metrics().values()
        return row.verdict.state if row.verdict else "none"

    def _health(self) -> str:
        job = get_training_health("local", None, job_id=JOB, store=self.store, **self.given)["job"]
        assert job
        return job["state"]

    def look(self, seconds: float, way: str, every: float = 30.0) -> list[str]:
        """Ask in one way for so long; the states it named."""
        states = []
        for _ in range(round(seconds / every)):
            self.clock.sleep(every)
            states.append(self.ways[way]())
        return states

    def all_ways(self) -> dict[str, str]:
        """The state that each way names now."""
        return {name: ask() for name, ask in self.ways.items()}
