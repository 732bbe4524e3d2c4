"""MockFleet: a fleet of made-up trainings that needs no machine and no network, moves, and shows every state.

Only the rows of the account and the readings of members are made up, from time and seed; they are scheduled, judged,
billed and kept like those of a real fleet. The first twelve members play one scenario each; most of the others are
healthy. Times are seconds since the start of the fleet; negative ones are before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import cos, exp, inf, nan, pi, sin
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import TargetUnreachable, TrainingMonitorError
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import Gpu, JobStatus, Progress
from training_monitor.core.values import Observation, TrainingStatus
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import ACCOUNT, DEFAULT_CONFIG, Account, FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.metrics import KEPT_LOGS
from training_monitor.fleet.rows import Seen
from training_monitor.fleet.values import FleetAlert, FleetSample, MemberSpec, TargetReading
from training_monitor.judging.gpu_load import power_fraction
from training_monitor.judging.judge import judge
from training_monitor.watch.state import NOT_STALLING

# `finished` still costs money, the price of `full` rises, and `silent` is only known to run.
SCENARIOS = tuple("healthy starting hanging exited finished nan idle unreachable full stopped silent lost".split())
GROUPS = ("llama", "vision", "lora")
GPUS = (("RTX 4090", 0.467), ("RTX 3090", 0.287), ("A100", 1.234), ("H100", 2.49), ("RTX A6000", 0.52))
EPOCHS = 3
RUNNING_AT, HUNG_AT, FINISHED_AT, NAN_AT, UNREACHABLE_AT, DEARER_AT = 20.0, -1240.0, -900.0, -60.0, -130.0, 40.0
# Since when a machine has which status; before that, it runs.
STATUSES: dict[str, tuple[tuple[float, str], ...]] = {
    "starting": ((-inf, "created"), (8.0, "loading"), (RUNNING_AT, "running")),
    "exited": ((-300.0, "exited"),),
    "stopped": ((-1800.0, "stopped"),),
    "lost": ((25.0, "lost"),),
}
LINE_SECONDS, SETUP_SECONDS, ACT_SECONDS = 10.0, 240.0, 2.0
PAST_STEP, PAST_LOOKS = 120.0, 60
DEFAULT_COUNT, MOST_WITH_PAST = 12, 50  # members
FIRST_ID = 30_007_001
CREDIT_PER_MEMBER = 4.0  # dollars
_SHARE_HEALTHY = 0.75
_STOPPED = {"actual_status": "exited", "intended_status": "stopped", "storage_total_cost": 0.02}
_HIDDEN: dict[int, dict[str, Any]] = {number: {**_STOPPED, "id": number} for number in (-1, -2)}  # not members
_DONE = {"stop": ("stopped", "it is stopped; its disk goes on costing"), "destroy": ("destroyed", "it is destroyed")}


@dataclass(frozen=True, slots=True)
class MockMember:
    """One member: its machine, and a training that began at `begun` and does `total_steps` at `speed` per second."""

    spec: MemberSpec
    number: int
    instance: int
    scenario: str
    begun: float
    speed: float
    total_steps: int


def make_member(number: int, instance: int, seed: int) -> MockMember:
    """Make the member with that number. Member 0 completes an epoch after 40 s, so that this is seen soon."""
    chance, odd, longer, done, fast = (_noise(seed, number, each) for each in (1.0, 2.0, 3.0, 4.0, 5.0))
    others = "healthy" if chance < _SHARE_HEALTHY else SCENARIOS[int(odd * len(SCENARIOS))]
    scenario = SCENARIOS[number] if number < len(SCENARIOS) else others
    duration, done = 3600.0 * (1.0 + 7.0 * longer), 0.05 + 0.85 * done
    if number == 0:
        duration, done = 14_400.0, 2 / EPOCHS - 40.0 / 14_400.0
    begun = {"starting": RUNNING_AT, "finished": FINISHED_AT - duration}.get(scenario, -done * duration)
    if scenario in ("hanging", "exited", "stopped"):
        begun = min(begun, -3000.0)
    speed = (0.5 + 4.0 * fast) * (0.2 if scenario == "idle" else 1.0)
    group = GROUPS[number % len(GROUPS)]
    spec = MemberSpec(f"vast://{instance}", name=f"{group}-{number:02d}", groups=(group,))
    return MockMember(spec, number, instance, scenario, begun, speed, max(EPOCHS, int(speed * duration)))


def mock_groups() -> dict[str, list[str]]:
    """Return the keys of the members that are made up by default, by their groups."""
    specs = [make_member(number, FIRST_ID + number, 0).spec for number in range(DEFAULT_COUNT)]
    return {group: [spec.key for spec in specs if group in spec.groups] for group in GROUPS}


def _status(member: MockMember, at: float) -> str:
    return next((word for since, word in reversed(STATUSES.get(member.scenario, ())) if at >= since), "running")


def _row(member: MockMember, at: float, epoch: float, status: str) -> dict[str, Any]:
    """Return the instance's row in vast.ai's format."""
    gpu, price = GPUS[member.instance % len(GPUS)]
    gpus, is_full = 8 if member.number % 7 == 3 else 1, member.scenario == "full"
    return {
        "id": member.instance,
        "actual_status": status,
        "intended_status": "stopped" if status == "stopped" else "running",
        "status_msg": "Error: the container was killed (out of memory)" if status == "exited" else None,
        "ssh_host": "ssh5.vast.ai",
        "ssh_port": 10_000 + member.number,
        "gpu_name": gpu,
        "num_gpus": gpus,
        "disk_util": 96.4 if is_full else 20.0 + 50.0 * _noise(member.number, 11.0),
        "mem_limit": 100.0,
        "mem_usage": 20.0 + 50.0 * _noise(member.number, 13.0),
        "dph_total": price * gpus * (1.08 if is_full and at >= DEARER_AT else 1.0),
        "storage_total_cost": 0.012,
        "start_date": epoch + member.begun - SETUP_SECONDS,
    }


# ---------------------------------------------------------------- the training


def _reading(member: MockMember, at: float, epoch: float) -> TargetReading:
    """Return a look at a training."""
    hangs = member.scenario == "hanging" and at > HUNG_AT
    progress = _progress(member, at)
    wave = _noise(member.number, at // LINE_SECONDS, 8.0)
    percent = 100.0 if hangs else 2.0 + 4.0 * wave if member.scenario == "idle" else 85.0 + 14.0 * wave
    percent = 0.0 if progress.finished else round(percent, 1)
    gpu = Gpu(
        index=0,
        utilization=percent,
        memory_used_mb=550.0 + 350.0 * _noise(member.number, 12.0),
        memory_total_mb=1000.0,
        power_draw_watts=400.0 * (0.24 if hangs else 0.2 + 0.007 * percent),
        power_limit_watts=400.0,
        temperature_celsius=40.0 + 0.3 * percent,
    )
    observation = Observation(
        timestamp=epoch + at,
        step=progress.step,
        total_steps=progress.total_steps,
        steps_per_second=progress.steps_per_second,
        loss=progress.loss,
        gpu_utilization=gpu.utilization,
        gpu_power_fraction=power_fraction(gpu),
        status=JobStatus.SUCCEEDED if progress.finished else JobStatus.RUNNING,
        is_running=not progress.finished,
        finished=progress.finished,
        runtime=at - member.begun,
        step_age=at - HUNG_AT if hangs else at % LINE_SECONDS,
        step_interval=LINE_SECONDS,
        step_time=1.0 / member.speed,
    )
    status = TrainingStatus(
        is_running=observation.is_running,
        progress=progress,
        stall=NOT_STALLING,
        checkpoints=None,
        recent_output="",
        timestamp=observation.timestamp,
        status=observation.status,
        runtime=observation.runtime,
        verdict=judge([observation], now=observation.timestamp),
    )
    return TargetReading(observation.timestamp, status, (gpu,))


def _progress(member: MockMember, at: float) -> Progress:
    if member.scenario == "hanging":
        at = min(at, HUNG_AT)
    step = min(member.total_steps, int(member.speed * max(0.0, at - member.begun)))
    share, wave = step / member.total_steps, _noise(member.number, step)
    loss = round(0.64 + 2.3 * exp(-3.0 * share) + 0.12 * wave, 4)
    return Progress(
        step=step,
        total_steps=member.total_steps,
        epoch=float(min(EPOCHS, 1 + int(share * EPOCHS))),
        total_epochs=EPOCHS,
        loss=nan if member.scenario == "nan" and at > NAN_AT else loss,
        learning_rate=1e-4 * (1.0 + cos(pi * share)) / 2.0,
        grad_norm=round(0.4 + 0.5 * _noise(member.number, step, 6.0), 3),
        steps_per_second=None if share == 1.0 else member.speed * (0.95 + 0.1 * wave),
        finished=share == 1.0 or None,
        epochs_done=share * EPOCHS,
    )


def _lines(member: MockMember, at: float, after: float) -> tuple[str, ...]:
    """Return the last lines of its log, one every ten seconds."""
    newest = min(at, member.begun + member.total_steps / member.speed + LINE_SECONDS) // LINE_SECONDS
    times = (LINE_SECONDS * (newest - count) for count in reversed(range(KEPT_LOGS)))
    return tuple(_line(_progress(member, each)) for each in times if each > after and each >= member.begun)


def _line(seen: Progress) -> str:
    if seen.finished:
        return f"Training complete: {seen.step} steps, Loss = {seen.loss:.4f}"
    return (
        f"Epoch {seen.epoch:.0f}/{EPOCHS} | Step {seen.step}/{seen.total_steps} | Loss = {seen.loss:.4f}"
        f" | lr {seen.learning_rate:.2e} | grad_norm {seen.grad_norm:.3f} | {seen.steps_per_second:.3f} it/s"
    )


def _noise(first: float, second: float, third: float = 0.0) -> float:
    """Return a pseudo-random number in [0, 1), the same for the same arguments."""
    return (sin(12.9898 * first + 78.233 * second + 37.719 * third) * 43758.5453) % 1.0


class MockFleet(FleetMonitor):
    """A fleet of made-up trainings, whose first members have a past of two hours.

    Args:
        instance_ids: the ids of its members; empty: `count` generated ones.
        config: thresholds, rules, budget and interval; its groups are not used.
        history: stores its samples, such as `mock_history()`, and the past of members that are new to it; None: they
            are not stored.
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
        self._made = [make_member(number, each, seed) for number, each in enumerate(numbers)]
        self._began, self._logs_after = clock.time(), -inf
        self._pending: dict[str, tuple[str, float]] = {}  # the action, and when it takes effect
        self._ended: dict[str, str] = {}  # stopped, or lost
        super().__init__([each.spec for each in self._made], config=config, history=history, clock=clock)
        self._play_past(history)
        self.ask_all()

    def _play_past(self, history: History | None) -> None:
        """Look at the first members as if for two hours, and store that of those that are new to a history."""
        rounds = list[dict[str, FleetSample]]()
        for at in (PAST_STEP * number for number in range(-PAST_LOOKS, 0)):
            made = [each for each in self._made[:MOST_WITH_PAST] if at >= each.begun - SETUP_SECONDS]
            self._make_up(made, at)
            members = [self._members[each.spec.key] for each in made]
            now = self._began + at
            samples = {member.key: member.sample(member.metrics(now), now) for member in members}
            rounds.append({key: sample for key, (sample, is_new) in samples.items() if is_new})
        if history is not None:
            with suppress(TrainingMonitorError):  # the next samples are not stored either, and that is an alert
                known = {each.key for each in history.members()}
                history.add_past([{key: each[key] for key in each.keys() - known} for each in rounds])

    # ------------------------------------------------------------ called by screens

    def clear_logs(self) -> None:
        """Show only lines that are written from now on."""
        self._logs_after = self._elapsed()
        super().clear_logs()

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Begin to `stop` or `destroy` members, which takes two seconds."""
        for key in keys:
            if action in _DONE and key in self._members and key not in self._pending and self._ended.get(key) != "lost":
                self._members[key].ending = action
                self._pending[key] = action, self._elapsed() + ACT_SECONDS
            else:
                why = "something else is being done to it" if key in self._pending else f"nobody can {action} it"
                self._record.add(FleetAlert(self.clock.time(), key, "refused", why, "error"), self._members.get(key))
        self._ask_after(ACT_SECONDS)
        self._tell_listeners()

    # ------------------------------------------------------------ looks

    def keys(self) -> list[str]:
        """Return one key: all members are looked at together."""
        return [ACCOUNT]

    def look(self, key: str) -> None:
        """Finish what was begun, and make up the listing and a look at each member."""
        at = self._elapsed()
        for each, (action, due) in list(self._pending.items()):
            if at >= due:
                del self._pending[each]
                self._ended[each] = "stopped" if action == "stop" else "lost"
                kind, text = _DONE[action]
                self._record.add(FleetAlert(self._began + at, each, kind, text, "info"), self._members[each])
        self._make_up(self._made, at)

    def _make_up(self, made: Sequence[MockMember], at: float) -> None:
        """Make up what a listing and a look show of members at a time."""
        statuses = {each.instance: self._ended.get(each.spec.key) or _status(each, at) for each in made}
        gone = frozenset(number for number, status in statuses.items() if status == "lost")
        there = (each for each in made if each.instance not in gone)
        rows = {each.instance: _row(each, at, self._began, statuses[each.instance]) for each in there}
        account = Account({**rows, **_HIDDEN}, gone, self._began + at, credit=CREDIT_PER_MEMBER * len(self._made))
        assert self._lister
        self._lister.account = account
        for each in made:
            member = self._members[each.spec.key]
            member.listed = account.about(each.instance, member.listed)
            if statuses[each.instance] != "running" or each.scenario == "silent":
                continue
            if each.scenario == "unreachable" and at >= UNREACHABLE_AT:
                member.fail(TargetUnreachable("ssh: no answer within 15 s"), self._began + at)
            else:
                member.seen = Seen(_reading(each, at, self._began), _lines(each, at, self._logs_after))

    def _elapsed(self) -> float:
        return self.clock.time() - self._began
