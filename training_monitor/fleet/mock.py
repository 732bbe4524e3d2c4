"""MockFleet: a fleet of made-up trainings that needs no machine and no network, moves, and shows every state.

Only the rows of the account and the readings of members are made up, from their numbers and the time; they are
scheduled, judged, billed and kept like those of a real fleet. Times are seconds since its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import cos, exp, inf, nan, pi, sin
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import TargetUnreachable, TrainingMonitorError
from training_monitor.core.models import Gpu, JobStatus, Progress
from training_monitor.core.values import Observation, TrainingStatus
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.fleet import ACCOUNT, ACTIONS, DEFAULT_CONFIG, Account, FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.metrics import KEPT_LOGS
from training_monitor.fleet.rows import Seen
from training_monitor.fleet.values import FleetAlert, FleetSample, MemberSpec, TargetReading
from training_monitor.supervision.watch_state import NOT_STALLING
from training_monitor.verdict.judge import judge

# The first twelve members play one each; most of the others are healthy. `finished` still costs money, the price of
# `full` rises, and `silent` is only known to run.
SCENARIOS = tuple("healthy starting hanging exited finished nan idle unreachable full stopped silent lost".split())
GROUPS = ("llama", "vision", "lora")
GPUS = (  # name, price per hour, memory in MB, power limit in watts
    ("RTX 4090", 0.467, 24_564.0, 450.0),
    ("RTX 3090", 0.287, 24_576.0, 350.0),
    ("A100", 1.234, 81_920.0, 400.0),
    ("H100", 2.49, 81_559.0, 700.0),
    ("RTX A6000", 0.52, 49_140.0, 300.0),
)
# Since when a machine has which status; before that, it runs.
STATUSES = {
    "starting": ((-inf, "created"), (8.0, "loading"), (20.0, "running")),
    "exited": ((-300.0, "exited"),),
    "stopped": ((-1800.0, "stopped"),),
    "lost": ((25.0, "lost"),),
}
HUNG_AT, NAN_AT, UNREACHABLE_AT, DEARER_AT = -1240.0, -60.0, -130.0, 40.0
EPOCHS, LINE_SECONDS, SETUP_SECONDS, ACT_SECONDS = 3, 10.0, 240.0, 2.0
PAST_STEP, PAST_LOOKS, MOST_WITH_PAST = 120.0, 60, 50
FIRST_ID, DEFAULT_COUNT = 30_007_001, 12
_STOPPED = {"actual_status": "exited", "intended_status": "stopped", "storage_total_cost": 0.02}
_HIDDEN: dict[int, dict[str, Any]] = {number: {**_STOPPED, "id": number} for number in (-1, -2)}  # not members
_DONE = {  # by action: the status after it, and kind and text of its alert
    "stop": ("stopped", "stopped", "it is stopped; its disk still costs money"),
    "destroy": ("lost", "destroyed", "it was destroyed"),
    "start": ("running", "started", "its start was requested; billing resumes"),
    "reboot": ("running", "rebooted", "it has shut down and is starting again"),
}


def mock_groups() -> dict[str, list[str]]:
    """Return the keys of the members that are made up by default, by their groups."""
    keys = [f"vast://{FIRST_ID + number}" for number in range(DEFAULT_COUNT)]
    return {group: keys[first :: len(GROUPS)] for first, group in enumerate(GROUPS)}


def _noise(first: float, second: float, third: float = 0.0) -> float:
    """Return a pseudo-random number in [0, 1), the same for the same arguments."""
    return (sin(12.9898 * first + 78.233 * second + 37.719 * third) * 43758.5453) % 1.0


class MockMember:
    """A machine, and its training, which began at `begun` and does `total_steps` at `speed` per second."""

    def __init__(self, number: int, instance: int) -> None:
        """Make the member with that number. Member 0 completes an epoch after 40 s, so that this is seen soon."""
        self.number, self.instance = number, instance
        other = number // 4 % len(SCENARIOS) if number % 4 == 3 else 0
        self.scenario = SCENARIOS[number if number < len(SCENARIOS) else other]
        group = GROUPS[number % len(GROUPS)]
        self.spec = MemberSpec(f"vast://{instance}", name=f"{group}-{number:02d}", groups=(group,))
        duration = 3600.0 * (1.0 + 7.0 * _noise(0, number, 3)) if number else 14_400.0
        done = 0.05 + 0.85 * _noise(0, number, 4) if number else 2 / EPOCHS - 40.0 / duration
        latest = -3000.0 if self.scenario in ("hanging", "exited", "stopped") else 0.0
        self.begun = {"starting": 20.0, "finished": -900.0 - duration}.get(self.scenario, min(latest, -done * duration))
        self.speed = (0.5 + 4.0 * _noise(0, number, 5)) * (0.2 if self.scenario == "idle" else 1.0)
        self.total_steps = max(EPOCHS, int(self.speed * duration))
        self.gpus = 8 if number % 7 in (3, 5) else 1

    def row(self, at: float, epoch: float, ended: str | None) -> dict[str, Any]:
        """Return the instance's row in vast.ai's format; `ended` is its status after an action."""
        past = [word for since, word in STATUSES.get(self.scenario, ()) if at >= since] or ["running"]
        status, (gpu, price, *_) = ended or past[-1], GPUS[self.instance % len(GPUS)]
        gpus, is_full = self.gpus, self.scenario == "full"
        return {
            "id": self.instance, "ssh_host": "ssh5.vast.ai", "ssh_port": 10_000, "gpu_name": gpu, "num_gpus": gpus,
            "actual_status": status, "intended_status": "stopped" if status == "stopped" else "running",
            "status_msg": "Error: the container was killed (out of memory)" if status == "exited" else None,
            "disk_util": 96.4 if is_full else 20.0 + 50.0 * _noise(self.number, 11),
            "mem_limit": 100.0, "mem_usage": 20.0 + 50.0 * _noise(self.number, 13),
            "dph_total": price * gpus * (1.08 if is_full and at >= DEARER_AT else 1.0),
            "storage_total_cost": 0.012, "start_date": epoch + self.begun - SETUP_SECONDS,
        }  # fmt: skip

    def look(self, at: float, epoch: float) -> TargetReading:
        """Return a look at its training."""
        hangs, progress, now = self.scenario == "hanging" and at > HUNG_AT, self._progress(at), epoch + at
        status, runs = JobStatus.SUCCEEDED if progress.finished else JobStatus.RUNNING, not progress.finished
        wave = _noise(self.number, at // LINE_SECONDS, 8)
        use = 100.0 if hangs else round(2.0 + 4.0 * wave if self.scenario == "idle" else 85.0 + 14.0 * wave, 1) * runs
        power = 0.24 if hangs else 0.2 + 0.007 * use
        seen = Observation(
            now, progress.step, progress.total_steps, None, progress.steps_per_second, progress.loss,
            gpu_utilization=use, gpu_power_fraction=power, status=status, is_running=runs, finished=progress.finished,
            runtime=at - self.begun, step_age=at - HUNG_AT if hangs else at % LINE_SECONDS,
            step_interval=LINE_SECONDS, step_time=1.0 / self.speed,
        )  # fmt: skip
        *_, memory, watts = GPUS[self.instance % len(GPUS)]
        gpus = tuple(
            Gpu(
                number, utilization=round(use * (1.0 - 0.06 * number), 1), temperature_celsius=40.0 + 0.3 * use,
                memory_total_mb=memory, memory_used_mb=memory * (0.55 + 0.35 * _noise(self.number, 12)),
                power_draw_watts=watts * power, power_limit_watts=watts,
            )
            for number in range(self.gpus)
        )  # fmt: skip
        told = TrainingStatus(
            runs, progress, NOT_STALLING, None, "", now, status, runtime=seen.runtime, verdict=judge([seen], now=now)
        )
        return TargetReading(now, told, gpus)

    def _progress(self, at: float) -> Progress:
        at = min(at, HUNG_AT) if self.scenario == "hanging" else at
        step = min(self.total_steps, int(self.speed * max(0.0, at - self.begun)))
        share, wave = step / self.total_steps, _noise(self.number, step)
        loss, is_nan = round(0.64 + 2.3 * exp(-3.0 * share) + 0.12 * wave, 4), self.scenario == "nan" and at > NAN_AT
        return Progress(
            step=step, total_steps=self.total_steps, loss=nan if is_nan else loss, finished=share == 1.0 or None,
            epoch=float(min(EPOCHS, 1 + int(share * EPOCHS))), total_epochs=EPOCHS, epochs_done=share * EPOCHS,
            learning_rate=5e-5 * (1.0 + cos(pi * share)), grad_norm=round(0.4 + 0.5 * _noise(self.number, step, 6), 3),
            steps_per_second=None if share == 1.0 else self.speed * (0.95 + 0.1 * wave),
        )  # fmt: skip

    def log(self, at: float, after: float) -> tuple[str, ...]:
        """Return the last lines of its log, one every ten seconds."""
        newest = min(at, self.begun + self.total_steps / self.speed + LINE_SECONDS) // LINE_SECONDS
        times = (LINE_SECONDS * (newest - count) for count in reversed(range(KEPT_LOGS)))
        return tuple(_line(self._progress(each)) for each in times if each > after and each >= self.begun)


def _line(seen: Progress) -> str:
    if seen.finished:
        return f"Training complete: {seen.step} steps, Loss = {seen.loss:.4f}"
    step, speed = f"Epoch {seen.epoch:.0f}/{EPOCHS} | Step {seen.step}", f"{seen.steps_per_second:.3f} it/s"
    rest = f"lr {seen.learning_rate:.2e} | grad_norm {seen.grad_norm:.3f} | {speed}"
    return f"{step}/{seen.total_steps} | Loss = {seen.loss:.4f} | {rest}"


class MockFleet(FleetMonitor):
    """A simulated fleet of trainings. The first members have a simulated history of two hours.

    Args:
        instance_ids: the IDs of the members; empty: `count` generated IDs.
        config: thresholds, rules, budget and interval; the groups of the configuration are not used.
        history: where samples are stored, such as `mock_history()`. The simulated history of new members is stored too.
            None: nothing is stored.
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
    ) -> None:
        numbers = dict.fromkeys(instance_ids or range(FIRST_ID, FIRST_ID + count))
        self._made = [MockMember(number, each) for number, each in enumerate(numbers)]
        self._began, self._logs_after = clock.time(), -inf
        self._pending: dict[str, tuple[str, float]] = {}  # an action, and when it takes effect, epoch seconds
        self._ended: dict[str, str] = {}  # by an action: stopped, or lost
        super().__init__([each.spec for each in self._made], config=config, history=history, clock=clock)
        self._play_past(history)
        self.ask_all()

    def _play_past(self, history: History | None) -> None:
        """Look at the first members as if for two hours, and store that of those that are new to a history."""
        rounds = list[dict[str, FleetSample]]()
        for at in (PAST_STEP * number for number in range(-PAST_LOOKS, 0)):
            now = self._began + at
            made = [each for each in self._made[:MOST_WITH_PAST] if at >= each.begun - SETUP_SECONDS]
            self._make_up(made, at)
            members = [self._members[each.spec.key] for each in made]
            samples = {member.key: member.sample(member.metrics(now), now) for member in members}
            rounds.append({key: sample for key, (sample, is_new) in samples.items() if is_new})
        if history is not None:
            with suppress(TrainingMonitorError):  # the next samples are not stored either, and that is an alert
                known = {each.key for each in history.members()}
                history.add_past([{key: each[key] for key in each.keys() - known} for each in rounds])

    def clear_logs(self) -> None:
        """Discard the log lines so far, and show only new ones."""
        self._logs_after = self.clock.time() - self._began
        super().clear_logs()

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Begin an action on members. Each action takes two seconds."""
        for key in keys:
            if action in _DONE and key in self._members and key not in self._pending and self._ended.get(key) != "lost":
                self._members[key].ending = action if action in ACTIONS else None
                self._pending[key] = action, self.clock.time() + ACT_SECONDS
            else:
                why = (
                    "another action on this member is in progress"
                    if key in self._pending
                    else f"cannot {action} this member"
                )
                self._record.add(FleetAlert(self.clock.time(), key, "refused", why, "error"), self._members.get(key))
        self._ask_after(ACT_SECONDS)
        self._tell_listeners()

    def shell_command(self, key: str) -> list[str]:
        raise TrainingMonitorError("a simulated machine has no shell")

    def keys(self) -> list[str]:
        """Return a single key, because all members are updated together."""
        return [ACCOUNT]

    def look(self, key: str) -> None:
        """Finish the pending actions, and simulate the listing and a look at each member."""
        now = self.clock.time()
        for each in [each for each, (_, due) in self._pending.items() if now >= due]:
            self._ended[each], kind, text = _DONE[self._pending.pop(each)[0]]
            self._record.add(FleetAlert(now, each, kind, text, "info"), self._members[each])
        self._make_up(self._made, now - self._began)

    def _make_up(self, made: Sequence[MockMember], at: float) -> None:
        rows = {each.instance: each.row(at, self._began, self._ended.get(each.spec.key)) for each in made}
        gone = frozenset(number for number, row in rows.items() if row["actual_status"] == "lost")
        there = {number: row for number, row in rows.items() if number not in gone}
        assert self._lister
        self._lister.account = account = Account(
            {**there, **_HIDDEN}, gone, self._began + at, credit=4.0 * len(self._made)
        )
        for each in made:
            member, runs = self._members[each.spec.key], rows[each.instance]["actual_status"] == "running"
            member.listed = account.about(each.instance, member.listed)
            if runs and each.scenario == "unreachable" and at >= UNREACHABLE_AT:
                member.fail(TargetUnreachable("ssh: no answer within 15 s"), self._began + at)
            elif runs and each.scenario != "silent":
                member.seen = Seen(each.look(at, self._began), each.log(at, self._logs_after))
