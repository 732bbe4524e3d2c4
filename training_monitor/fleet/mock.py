"""MockFleet: a fleet of made-up trainings that needs no machine and no network, moves, and shows every state.

Only the readings of its members are made up; they are scheduled, judged and summed up like those of a real fleet. What
a member's machine and log show is a function of time and seed. The first twelve members play one scenario each; most of
the others are healthy. Times are seconds since the start of the fleet; negative ones are before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from math import cos, exp, inf, nan, pi, sin
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import Gpu, JobStatus, Progress
from training_monitor.core.values import LossAnalysis, Observation, StallAnalysis, TrainingStatus
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import ACCOUNT, DEFAULT_CONFIG, Account, FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.metrics import KEPT_LOGS
from training_monitor.fleet.rows import Billed, Listed, Seen, metrics_of
from training_monitor.fleet.values import FleetAlert, FleetSample, MemberSpec, TargetReading, sample_of
from training_monitor.judging.gpu_load import power_fraction
from training_monitor.judging.judge import judge
from training_monitor.logs.training_log import parse_progress
from training_monitor.vast.cost import HOUR, cost_per_hour

SCENARIOS = (
    "healthy",
    "starting",  # created, loading after 8 s, running after 20 s
    "hanging",
    "exited",
    "finished",  # but its machine still costs money
    "nan",
    "idle",
    "unreachable",
    "full",  # its disk is full, and its price rises after 40 s
    "stopped",
    "silent",  # only known to run
    "lost",  # after 25 s
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
FIRST_ID = 30_007_001
ACT_SECONDS = 2.0
RECENT_SECONDS, RECENT_STEP = 7200.0, 30.0
DEFAULT_COUNT, MOST_WITH_PAST = 12, 50  # members
CREDIT_PER_MEMBER = 4.0  # dollars
_STOPPED = {"actual_status": "exited", "intended_status": "stopped", "storage_total_cost": 0.02}
_HIDDEN: dict[int, dict[str, Any]] = {-1: {**_STOPPED, "id": -1}, -2: {**_STOPPED, "id": -2}}  # not members
_DONE = {"stop": ("stopped", "it is stopped; its disk goes on costing"), "destroy": ("destroyed", "it is destroyed")}


@dataclass(frozen=True, slots=True)
class MockMember:
    """One member: its machine, and a training that began at `begun` and does `total_steps` at `speed` per second."""

    spec: MemberSpec
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
    """A user's action on a member: `action` stop | destroy, which takes effect at `at`."""

    action: str
    at: float


def make_member(number: int, instance_id: int, seed: int) -> MockMember:
    """Make the member with that number. Member 0 completes an epoch after 40 s, so that this is seen soon."""
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
        spec=MemberSpec(f"vast://{instance_id}", groups=(group,)),
        number=number,
        instance_id=instance_id,
        scenario=scenario,
        name=f"{group}-{number:02d}",
        begun=begun,
        speed=speed,
        total_steps=max(EPOCHS, int(speed * duration)),
    )


def mock_groups() -> dict[str, list[str]]:
    """Return the keys of the members that are made up by default, by their groups."""
    groups: dict[str, list[str]] = {}
    for number in range(DEFAULT_COUNT):
        spec = make_member(number, FIRST_ID + number, 0).spec
        for group in spec.groups:
            groups.setdefault(group, []).append(spec.key)
    return groups


def look_at(
    member: MockMember, at: float, epoch: float, act: MockAct | None = None, *, logs_after: float
) -> tuple[Listed, Seen]:
    """Return what a listing and a look show of a member at a time.

    Args:
        member: of the fleet.
        at: seconds since the start of the fleet.
        epoch: the start of the fleet, epoch seconds.
        act: the user's action on it.
        logs_after: lines written before that are not shown.
    """
    act = act if act and at >= act.at else None
    status = _status(member, at, act)
    ended = min(_ENDS.get(member.scenario, at), act.at if act else at, at)
    paid_until = act.at if act and member.scenario == "hanging" else ended  # its machine did not hang
    billed = _billed(member, at, paid_until, epoch)
    if status == "lost":
        reading, lines = _reading(member, ended, ended, epoch), _lines(member, ended, logs_after)
        row = _row(member, ended, epoch, "running")
        return Listed(row, epoch + ended, lost=True, billed=billed), Seen(reading, lines)
    listed = Listed(_row(member, at, epoch, status), epoch + at, billed=billed)
    if status in ("created", "loading"):
        return listed, Seen()
    if member.scenario == "unreachable" and at >= UNREACHABLE_AT and not act:
        since, reading = epoch + UNREACHABLE_AT, _reading(member, UNREACHABLE_AT, UNREACHABLE_AT, epoch)
        return listed, Seen(reading, _lines(member, UNREACHABLE_AT, logs_after), "ssh: no answer within 15 s", since)
    return listed, Seen(_reading(member, ended, at, epoch), _lines(member, ended, logs_after))


def _status(member: MockMember, at: float, act: MockAct | None) -> str:
    if act or (member.scenario == "lost" and at >= LOST_AT):
        return "stopped" if act and act.action == "stop" else "lost"
    if member.scenario == "starting" and at < RUNNING_AT:
        return "created" if at < LOADING_AT else "loading"
    ended = {"exited": EXITED_AT, "stopped": STOPPED_AT}.get(member.scenario)
    return member.scenario if ended is not None and at >= ended else "running"


def _billed(member: MockMember, at: float, ended: float, epoch: float) -> Billed | None:
    """Return the cost before its price changed, or before it ended."""
    first = min(ended, DEARER_AT) if member.scenario == "full" else ended
    if first >= at:
        return None
    until = ended if ended < at else first
    seconds = first - member.rented + _DEARER * (until - first)
    return Billed(_price(member) * seconds / HOUR, epoch + until)


def _price(member: MockMember) -> float:
    """Return the initial price in dollars per hour."""
    return GPUS[member.instance_id % len(GPUS)][2] * (7.6 if member.number % 7 == 3 else 1.0)


def _row(member: MockMember, at: float, epoch: float, status: str) -> dict[str, Any]:
    """Return the instance's row in vast.ai's format."""
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
        "ssh_host": "ssh5.vast.ai",
        "ssh_port": 10_000 + member.number,
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
    """Return a look at `seen_at` at a training whose progress is that of `at`."""
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
    """Return the progress as the real parser reads it from the log."""
    seen = _made(member, at)
    if seen.step is None:
        return seen
    begun = f"Num epochs = {EPOCHS}\nTotal optimization steps = {member.total_steps}\n"
    return parse_progress("\n".join((begun, _step_line(seen), _finished_line(seen) if seen.finished else "")))


def _made(member: MockMember, at: float) -> Progress:
    """Return the made-up progress."""
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
    """Return the last lines of its log, one every ten seconds."""
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
    """Return a pseudo-random number in [0, 1), the same for the same arguments."""
    return (sin(12.9898 * first + 78.233 * second + 37.719 * third) * 43758.5453) % 1.0


class MockFleet(FleetMonitor):
    """A fleet of made-up trainings.

    Args:
        instance_ids: the ids of its members; empty: `count` generated ones.
        config: thresholds, rules, budget and interval; its groups are not used.
        history: stores its samples, such as `mock_history()`, beginning with the last two hours of members that are new
            to it; None: they are not stored.
        seed: of the made-up values.
    """

    most_threads = 0

    def __init__(
        self,
        instance_ids: Sequence[int] = (),
        *,
        count: int = DEFAULT_COUNT,
        config: FleetConfig = DEFAULT_CONFIG,
        history: History | None = None,
        clock: Clock = SYSTEM_CLOCK,
        seed: int = 0,
    ) -> None:
        numbers = dict.fromkeys(instance_ids or range(FIRST_ID, FIRST_ID + count))
        made = [make_member(number, each, seed) for number, each in enumerate(numbers)]
        self._made = {each.spec.key: each for each in made}
        self._began, self._logs_after = clock.time(), -inf
        self._pending: dict[str, MockAct] = {}
        self._done: dict[str, MockAct] = {}
        self._recent: dict[str, dict[float, FleetSample]] = {}
        super().__init__([each.spec for each in made], config=config, history=history, clock=clock)
        if history is not None:
            self._keep_past(history)
        self.ask_all()

    # ------------------------------------------------------------ called by screens

    def refresh(self) -> None:
        """Look at once, also while paused; in the caller's thread if not started yet."""
        if self._thread:
            super().refresh()
        else:
            self.ask_all()

    def clear_logs(self) -> None:
        """Show only lines that are written from now on."""
        self._logs_after = self._elapsed()
        super().clear_logs()

    def recent(self, key: str) -> tuple[FleetSample, ...]:
        """Return the made-up samples of a member for the last two hours, oldest first."""
        if key not in self._made:
            return ()
        made, known = self._made[key], self._recent.get(key, {})
        samples = {at: known.get(at) or self._sample(made, at) for at in self._times(made)}
        self._recent[key] = samples
        return tuple(samples.values())

    def recent_losses(self, key: str) -> list[float | None]:
        """Return the losses of these samples."""
        made = self._made.get(key)
        if made is None:
            return []
        act, newest = self._done.get(key), self._view.timestamp - self._began
        ended = min(_ENDS.get(made.scenario, newest), act.at if act else newest)
        return [None if at < made.begun else _made(made, min(at, ended)).loss for at in self._times(made)]

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Begin to `stop` or `destroy` members, which takes two seconds."""
        for key in keys:
            self._begin(action, key)
        self._ask_after(ACT_SECONDS)
        self._tell_listeners()

    # ------------------------------------------------------------ looks

    def keys(self) -> list[str]:
        """Return one key: all members are looked at together."""
        return [ACCOUNT]

    def look(self, key: str) -> None:
        """Make up the listing and a look at each member."""
        at = self._elapsed()
        self._finish_acts(at)
        for each, made in self._made.items():
            member = self._members[each]
            member.listed, member.seen = look_at(
                made, at, self._began, self._done.get(each), logs_after=self._logs_after
            )
        members = self._members.values()
        rows = {each.listed.row["id"]: each.listed.row for each in members if each.listed.row and not each.listed.lost}
        spent = sum(cost_per_hour(row) or 0.0 for row in rows.values()) * at / HOUR
        credit = max(0.0, CREDIT_PER_MEMBER * len(members) - spent)
        assert self._lister
        self._lister.account = Account({**rows, **_HIDDEN}, listed_at=self._began + at, credit=credit)

    def _keep_past(self, history: History) -> None:
        """Store the last two hours of members that are new to a history."""
        with suppress(TrainingMonitorError):  # the next samples are not stored either, and that is an alert
            known = {each.key for each in history.members()}
            rounds: dict[float, dict[str, FleetSample]] = {}
            for key in [key for key in self._made if key not in known][:MOST_WITH_PAST]:
                for sample in self.recent(key):
                    rounds.setdefault(sample.timestamp, {})[key] = sample
            history.add_past(rounds.values())

    def _elapsed(self) -> float:
        return self.clock.time() - self._began

    def _begin(self, action: str, key: str) -> None:
        """Accept an action, or report why it is refused."""
        act = self._done.get(key)
        is_gone = act is not None and act.action == "destroy"
        if action in _DONE and key in self._made and key not in self._pending and not is_gone:
            self._members[key].ending = action
            self._pending[key] = MockAct(action, self._elapsed() + ACT_SECONDS)
            return
        why = "something else is being done to it" if key in self._pending else f"nobody can {action} it"
        self._record.add(FleetAlert(self.clock.time(), key, "refused", why, "error"), self._members.get(key))

    def _finish_acts(self, at: float) -> None:
        """Report the actions completed by then."""
        for key in [key for key in list(self._pending) if self._pending[key].at <= at]:
            self._done[key] = self._pending.pop(key)
            kind, text = _DONE[self._done[key].action]
            self._record.add(FleetAlert(self._began + at, key, kind, text, "info"), self._members[key])

    def _times(self, made: MockMember) -> list[float]:
        """Return when its samples are, in seconds since the start of the fleet: regularly, and now."""
        newest = self._view.timestamp - self._began
        first = max(newest - RECENT_SECONDS, made.rented) // RECENT_STEP + 1
        times = [RECENT_STEP * count for count in range(int(first), int(newest // RECENT_STEP) + 1)]
        return times if times[-1:] == [newest] else [*times, newest]

    def _sample(self, made: MockMember, at: float) -> FleetSample:
        listed, seen = look_at(made, at, self._began, self._done.get(made.spec.key), logs_after=inf)
        when = self._began + at
        return sample_of(metrics_of(made.spec, listed, seen, when), when)
