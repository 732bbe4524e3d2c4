"""Trainings that do not exist: what their machines and logs would show at any time. Pure, and the same for a seed.

Each plays one scenario. The first twelve members of a fleet play one each, so that all states are seen; of the others
most are healthy. Times are seconds since the fleet was begun; negative ones are before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import cos, exp, nan, pi, sin
from typing import Any

from training_monitor.models import Gpu, JobStatus, Progress
from training_monitor.parse.training_log import parse_progress
from training_monitor.policy.cost import HOUR
from training_monitor.policy.fleet_rows import Billed
from training_monitor.policy.fleet_values import FleetEntry, TargetReading
from training_monitor.policy.gpu_load import power_fraction
from training_monitor.policy.judge import judge
from training_monitor.policy.training_metrics import KEPT_LOGS
from training_monitor.verdicts import LossAnalysis, Observation, StallAnalysis
from training_monitor.watching import TrainingStatus

SCENARIOS = (
    "healthy",
    "starting",  # created, from 8 s on loading, from 20 s on running
    "hanging",
    "exited",
    "finished",  # and its machine still costs
    "nan",
    "idle",
    "unreachable",
    "full",  # its disk, and from 40 s on it costs more
    "stopped",
    "silent",  # nothing is known but that its machine runs
    "lost",  # from 25 s on
)
GPUS = (
    ("RTX 4090", 24_564.0, 0.467),
    ("RTX 3090", 24_576.0, 0.287),
    ("A100", 81_920.0, 1.234),
    ("H100", 81_559.0, 2.49),
    ("RTX A6000", 49_140.0, 0.52),
)
EPOCHS = 3
LOADING_AT, RUNNING_AT, LOST_AT, DEARER_AT = 8.0, 20.0, 25.0, 40.0
HUNG_AT, EXITED_AT, FINISHED_AT, UNREACHABLE_AT, STOPPED_AT = -1240.0, -300.0, -900.0, -130.0, -1800.0
LINE_SECONDS = 10.0
SETUP_SECONDS = 240.0
_DEARER = 1.08
_ENDS = {"hanging": HUNG_AT, "exited": EXITED_AT, "stopped": STOPPED_AT, "lost": LOST_AT}
_SHARE_HEALTHY = 0.75
_DISK_GB, _RAM_GB = 200.0, 128.0


@dataclass(frozen=True, slots=True)
class MockMember:
    """One member: its machine, and a training that began at `begun` and makes `total_steps` at `speed` a second."""

    entry: FleetEntry
    number: int
    instance_id: int
    scenario: str
    name: str
    begun: float
    speed: float
    total_steps: int

    @property
    def rented(self) -> float:
        return self.begun - SETUP_SECONDS if self.scenario != "starting" else -60.0


@dataclass(frozen=True, slots=True)
class MockAct:
    """What somebody has done with a member: `action` stop | destroy, which shows from `at` on."""

    action: str
    at: float


@dataclass(frozen=True, slots=True)
class MockLook:
    """All that there is of a member at one time: the arguments of `metrics_of`."""

    row: Mapping[str, Any]
    listed_at: float
    reading: TargetReading | None
    logs: tuple[str, ...] = ()
    error: str | None = None
    stale_since: float | None = None
    lost: bool = False
    billed: Billed | None = None


def make_member(number: int, instance_id: int, seed: int) -> MockMember:
    """The member of that number. Its first one ends an epoch after 40 s, so that this is seen soon."""
    chance, odd = _noise(seed, number, 1.0), SCENARIOS[int(_noise(seed, number, 2.0) * len(SCENARIOS))]
    scenario = SCENARIOS[number] if number < len(SCENARIOS) else "healthy" if chance < _SHARE_HEALTHY else odd
    duration = 3600.0 * (1.0 + 7.0 * _noise(seed, number, 3.0))
    done = 0.05 + 0.85 * _noise(seed, number, 4.0)
    if number == 0:
        duration, done = 7200.0, 2 / EPOCHS - 40.0 / 7200.0
    begun = {"starting": RUNNING_AT, "finished": FINISHED_AT - duration}.get(scenario, -done * duration)
    begun = min(begun, _ENDS.get(scenario, begun) - 1200.0) if scenario in _ENDS else begun
    speed = (0.5 + 4.0 * _noise(seed, number, 5.0)) * (0.2 if scenario == "idle" else 1.0)
    group = ("llama", "vision", "lora")[number % 3]
    return MockMember(
        entry=FleetEntry(f"vast://{instance_id}", groups=(group,)),
        number=number,
        instance_id=instance_id,
        scenario=scenario,
        name=f"{group}-{number:02d}",
        begun=begun,
        speed=speed,
        total_steps=max(EPOCHS, int(speed * duration)),
    )


def look_at(member: MockMember, at: float, epoch: float, act: MockAct | None = None, *, logs_after: float) -> MockLook:
    """What is seen of a member at a time.

    Args:
        member: of the fleet.
        at: seconds since the fleet was begun.
        epoch: when that was, epoch seconds.
        act: what somebody has done with it.
        logs_after: lines written before that are not shown.
    """
    act = act if act and at >= act.at else None
    status = _status(member, at, act)
    ended = min(_ENDS.get(member.scenario, at), act.at if act else at, at)
    billed = _billed(member, at, ended, epoch)
    if status == "lost":
        row = _row(member, ended, epoch, "running")
        reading = _reading(member, ended, ended, epoch)
        return MockLook(row, epoch + ended, reading, _lines(member, ended, logs_after), lost=True, billed=billed)
    row = _row(member, at, epoch, status)
    if status in ("created", "loading"):
        return MockLook(row, epoch + at, None)
    if member.scenario == "unreachable" and at >= UNREACHABLE_AT and not act:
        since, reading = epoch + UNREACHABLE_AT, _reading(member, UNREACHABLE_AT, UNREACHABLE_AT, epoch)
        lines = _lines(member, UNREACHABLE_AT, logs_after)
        return MockLook(row, epoch + at, reading, lines, "ssh: no answer within 15 s", since)
    reading = _reading(member, ended, at, epoch)
    return MockLook(row, epoch + at, reading, _lines(member, ended, logs_after), billed=billed)


def _status(member: MockMember, at: float, act: MockAct | None) -> str:
    if act or (member.scenario == "lost" and at >= LOST_AT):
        return "stopped" if act and act.action == "stop" else "lost"
    if member.scenario == "starting" and at < RUNNING_AT:
        return "created" if at < LOADING_AT else "loading"
    ended = {"exited": EXITED_AT, "stopped": STOPPED_AT}.get(member.scenario)
    return member.scenario if ended is not None and at >= ended else "running"


def _billed(member: MockMember, at: float, ended: float, epoch: float) -> Billed | None:
    """What it came to before its price changed, or it ended."""
    first = min(ended, DEARER_AT) if member.scenario == "full" else ended
    if first >= at:
        return None
    until = ended if ended < at else first
    seconds = first - member.rented + _DEARER * (until - first)
    return Billed(_price(member) * seconds / HOUR, epoch + until)


def _price(member: MockMember) -> float:
    """Dollars per hour, at first."""
    return GPUS[member.instance_id % len(GPUS)][2] * (7.6 if member.number % 7 == 3 else 1.0)


def _row(member: MockMember, at: float, epoch: float, status: str) -> dict[str, Any]:
    """The instance, as vast.ai lists it."""
    name, memory_mb, _ = GPUS[member.instance_id % len(GPUS)]
    dearer = _DEARER if member.scenario == "full" and at >= DEARER_AT else 1.0
    gpu = _gpu_percent(member, at) if status == "running" and member.scenario != "silent" else None
    fill = 96.4 if member.scenario == "full" else 20.0 + 50.0 * _noise(member.number, 11.0)
    return {
        "id": member.instance_id,
        "label": f"training_monitor/mock/{member.name}/1",
        "actual_status": status,
        "intended_status": "stopped" if status == "stopped" else "running",
        "status_msg": "Error: the container was killed (out of memory)" if status == "exited" else None,
        "gpu_name": name,
        "num_gpus": 8 if member.number % 7 == 3 else 1,
        "gpu_totalram": memory_mb,
        "gpu_util": gpu,
        "vmem_usage": None if gpu is None else memory_mb / 1024 * (0.55 + 0.35 * _noise(member.number, 12.0)),
        "gpu_temp": None if gpu is None else 40.0 + 0.3 * gpu,
        "disk_space": _DISK_GB,
        "disk_usage": _DISK_GB * (fill + 1.2 * (1.0 - exp(-max(0.0, at) / 3600.0))) / 100.0,
        "mem_limit": _RAM_GB,
        "mem_usage": _RAM_GB * (0.2 + 0.5 * _noise(member.number, 13.0)),
        "dph_total": _price(member) * dearer,
        "storage_total_cost": 0.012,
        "start_date": epoch + member.rented,
    }


# ---------------------------------------------------------------- the training


def _reading(member: MockMember, at: float, seen_at: float, epoch: float) -> TargetReading | None:
    """A look at `seen_at` at a training that has come to where it was at `at`."""
    if member.scenario == "silent":
        return None
    progress, ran = _progress(member, at), at - member.begun
    hangs = member.scenario == "hanging" and seen_at > HUNG_AT
    percent = _gpu_percent(member, seen_at)
    memory = 1000.0
    gpu = Gpu(
        index=0,
        utilization=percent,
        memory_used_mb=memory * (0.55 + 0.35 * _noise(member.number, 12.0)),
        memory_total_mb=memory,
        power_draw_watts=400.0 * (0.24 if hangs else 0.2 + 0.007 * percent),
        power_limit_watts=400.0,
        temperature_celsius=40.0 + 0.3 * percent,
    )
    observation = Observation(
        timestamp=epoch + seen_at,
        step=progress.step,
        total_steps=progress.total_steps,
        steps_per_second=progress.steps_per_second,
        loss=progress.loss,
        gpu_utilization=gpu.utilization,
        gpu_power_fraction=power_fraction(gpu),
        status=JobStatus.SUCCEEDED if progress.finished else JobStatus.RUNNING,
        is_running=not progress.finished,
        finished=progress.finished,
        runtime=ran,
        step_age=seen_at - HUNG_AT if hangs else seen_at % LINE_SECONDS,
        step_interval=LINE_SECONDS,
        step_time=1.0 / member.speed,
    )
    verdict = judge([observation], now=observation.timestamp)
    status = TrainingStatus(
        is_running=observation.is_running,
        progress=progress,
        stall=verdict.stall or StallAnalysis(False, None, "none", verdict.reason, "continue"),
        checkpoints=None,
        recent_output="",
        timestamp=observation.timestamp,
        status=observation.status,
        loss=LossAnalysis("nan", "the loss is nan", nan, 1.9) if member.scenario == "nan" else None,
        runtime=ran,
        verdict=verdict,
    )
    return TargetReading(observation.timestamp, status, (gpu,))


@lru_cache(maxsize=16_384)
def _progress(member: MockMember, at: float) -> Progress:
    """What its log shows, by the reader that reads real ones."""
    seen = _made(member, at)
    if seen.step is None:
        return seen
    begun = f"Num epochs = {EPOCHS}\nTotal optimization steps = {member.total_steps}\n"
    return parse_progress("\n".join((begun, _step_line(seen), _finished_line(seen) if seen.finished else "")))


def _made(member: MockMember, at: float) -> Progress:
    """How far it came."""
    ran = max(0.0, at - member.begun)
    if member.scenario == "silent":
        return Progress()
    step = min(member.total_steps, int(member.speed * (ran + 4.0 * sin(ran / 37.0 + member.number) + 4.0)))
    share = step / member.total_steps
    finished = share >= 1.0
    loss = 0.7 + 2.3 * exp(-3.0 * share) + 0.12 * (_noise(member.number, step) - 0.5)
    return Progress(
        step=step,
        total_steps=member.total_steps,
        epoch=float(min(EPOCHS, 1 + int(share * EPOCHS))),
        total_epochs=EPOCHS,
        loss=nan if member.scenario == "nan" and at > -60.0 else round(loss, 4),
        learning_rate=1e-4 * (1.0 + cos(pi * share)) / 2.0,
        grad_norm=round(0.4 + 0.5 * _noise(member.number, step, 6.0), 3),
        steps_per_second=None if finished else member.speed * (1.0 + 4.0 / 37.0 * cos(ran / 37.0 + member.number)),
        finished=finished or None,
    )


def _gpu_percent(member: MockMember, at: float) -> float:
    if member.scenario == "hanging" and at > HUNG_AT:
        return 100.0
    if _progress(member, at).finished:
        return 0.0
    wave = _noise(member.number, at // LINE_SECONDS, 8.0)
    return round(2.0 + 4.0 * wave if member.scenario == "idle" else 85.0 + 14.0 * wave, 1)


def _lines(member: MockMember, at: float, after: float) -> tuple[str, ...]:
    """The last lines of its log, one every ten seconds."""
    if member.scenario == "silent":
        return ()
    newest = min(at, member.begun + member.total_steps / member.speed + LINE_SECONDS) // LINE_SECONDS
    times = (LINE_SECONDS * (newest - count) for count in reversed(range(KEPT_LOGS)))
    return tuple(_line(member, each) for each in times if each > after and each >= member.begun)


@lru_cache(maxsize=16_384)
def _line(member: MockMember, at: float) -> str:
    seen = _made(member, at)
    return _finished_line(seen) if seen.finished else _step_line(seen)


def _step_line(seen: Progress) -> str:
    speed = "" if seen.steps_per_second is None else f" | {seen.steps_per_second:.3f} it/s"
    return (
        f"Epoch {seen.epoch:.0f}/{EPOCHS} | Step {seen.step}/{seen.total_steps} | Loss = {seen.loss:.4f}"
        f" | lr {seen.learning_rate:.2e} | grad_norm {seen.grad_norm:.3f}{speed}"
    )


def _finished_line(seen: Progress) -> str:
    return f"Training complete: {seen.step} steps, Loss = {seen.loss:.4f}"


def _noise(first: float, second: float, third: float = 0.0) -> float:
    """Something between 0 and 1 that looks like chance, and is always the same for the same numbers."""
    return (sin(12.9898 * first + 78.233 * second + 37.719 * third) * 43758.5453) % 1.0
