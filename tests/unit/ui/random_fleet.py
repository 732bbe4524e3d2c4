"""Random walks over the fleet's screens: the fleet and the terminal's size change under the keys."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from tests.sweeps import READ_ONLY, WITH_NAN, Press, Shot, Walk, random_walk
from tests.unit.ui.fleet_screens import TABLES, render, update
from tests.unit.ui.snapshots import HOSTILE, NOW, ROWS, SNAPSHOT, member
from training_monitor.core.values import LossAnalysis, Verdict
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSnapshot, FleetSummary
from training_monitor.ui.fleet.view import FleetView, follow
from training_monitor.ui.kit.text import ASCII, UNICODE
from training_monitor.ui.kit.view import Do, Frame
from training_monitor.verdict.judge import STATES, VERDICTS

FleetShot = Shot[FleetView, FleetSnapshot]
FleetPress = Press[FleetView, FleetSnapshot, Do]
ACTIONS = {"x": "stop", "D": "destroy", "U": "start", "R": "reboot"}
ANSWERS = ("stopped", "destroyed", "gone", "failed", "refused")
FIXED = [(40, 10), (40, 14), (41, 11), (80, 24), (80, 24), (120, 40), (200, 60), (300, 100)]
TEXTS = [
    *HOSTILE,
    "run-7",
    "vast",
    "healthy 4090",
    "אבג\u0591 12",
    "e\u0301" * 30,
    "漢" * 60,
    "a" * 39 + "漢",
    "--",
    "\n\n",
]
ODD_KEYS = ["f12", "", "\x01", "\x1b", "ctrl-z", "insert", "wheel-up", "wheel-down", "click 0 0", "click 39 9"]
DETOURS = [
    ["escape", "escape"],
    [" ", " ", "m"],
    ["/", "r", "u", "enter"],
    ["escape", "D"],
    ["enter", "x"],
    ["escape", "U"],
    ["escape", "R"],
    ["escape", " ", " ", "D"],
    ["/", *"long" * 12],
]
NUMBERS = [None, None, 0.0, -1.0, 0.5, 12.345, 99.97, 1e-300, 1e300, -1e300]
NOT_FINITE = [float("nan"), float("inf"), -float("inf")]
WHOLES = [None, 0, 1, -5, 700, 10**18]
TIMES = [None, NOW, NOW - 5, NOW - 1e6, NOW + 60, 0.0, -1e300, 1e300]
STATUSES = ["running", "running", "loading", "exited", "stopped", "lost", "unknown", "failed", "succeeded"]
FLOATS = "epoch loss gpu_util memory_util disk_util cost_per_hour total_cost runtime_seconds gpu_power gpu_temperature"
MORE_FLOATS = "ram_util steps_per_second eta_seconds learning_rate grad_norm"


# ---------------------------------------------------------------- what is walked over


def any_text(rng: random.Random) -> str:
    return rng.choice(TEXTS)


def any_size(rng: random.Random) -> tuple[int, int]:
    if rng.random() < 0.7:
        return rng.choice(FIXED)
    return rng.randint(1, 120), rng.randint(1, 40)


def a_member(rng: random.Random, number: int, numbers: Sequence[float | None]) -> TrainingMetrics:
    """The member of that number as it may be seen once; whatever it shows, its key stays the same."""
    changes: dict[str, Any] = {name: rng.choice(numbers) for name in f"{FLOATS} {MORE_FLOATS}".split()}
    changes |= {name: rng.choice(WHOLES) for name in ("total_epochs", "step", "total_steps")}
    changes |= {name: rng.choice(TIMES) for name in ("started_at", "last_updated", "stale_since")}
    changes |= {name: rng.choice([None, any_text(rng)]) for name in ("gpu_type", "job_status", "message", "error")}
    changes |= {name: rng.choice([None, True, False]) for name in ("is_running", "finished")}
    changes["status"] = rng.choice([*STATUSES, any_text(rng)])
    verdict = Verdict(rng.choice(STATES), rng.choice(VERDICTS), any_text(rng), recommendation=any_text(rng))
    changes["verdict"] = rng.choice([None, verdict])
    changes["loss_analysis"] = rng.choice([None, LossAnalysis("spike", any_text(rng), None, None)])
    kept = {name: value for name, value in changes.items() if rng.random() < 0.4}
    logs = deque((any_text(rng) for _ in range(rng.randint(0, 10))), maxlen=10)
    extra = {any_text(rng): rng.choice([value for value in numbers if value is not None])}
    is_odd = number % 5 == 4  # one whose id is not a number
    names = {"name": any_text(rng), "instance_id": any_text(rng) if is_odd else 30007000 + number}
    return member(number, **{**kept, **names, "recent_logs": logs, "extra": extra})


def a_fleet(rng: random.Random, before: FleetSnapshot, numbers: Sequence[float | None]) -> FleetSnapshot:
    """The fleet a moment later: members left, came, changed and stand in another order."""
    there = {row.key: row for row in before.rows if rng.random() < 0.85}
    for _ in range(rng.randint(0, 4)):
        row = a_member(rng, rng.randrange(14), numbers)
        there[row.key] = row
    rows = list(there.values()) if rng.random() < 0.95 else []
    if rng.random() < 0.3:
        rng.shuffle(rows)
    some = [rng.choice(numbers) for _ in range(4)]
    summary = FleetSummary({"error": 3}, some[0] or 0.0, 1, some[1] or 0.0, some[2], some[3], some[0], some[1], 1, 2)
    return replace(
        before,
        timestamp=before.timestamp + rng.choice([0.0, 2.0, 3600.0]),
        rows=tuple(rows),
        summary=rng.choice([summary, SNAPSHOT.summary]),
        groups=rng.choice([("even", "odd"), ("even", "odd"), ("odd", any_text(rng)), ()]),
        refreshing=rng.random() < 0.5,
        listed_at=rng.choice(TIMES),
        error=rng.choice([None, None, any_text(rng)]),
        stale_since=rng.choice(TIMES),
    )


def told(rng: random.Random, snapshot: FleetSnapshot, view: FleetView) -> FleetSnapshot:
    """Sometimes with one alert more, maybe of what came of an act."""
    kind = rng.choice([*ANSWERS, "lost", "nan"])
    key = rng.choice([*(key for key, _ in view.asked), "", "vast://30007001", any_text(rng)])
    alert = FleetAlert(snapshot.timestamp + rng.choice([0.0, 1.0]), key, kind, any_text(rng), rng.choice(["error", ""]))
    return replace(snapshot, alerts=(*snapshot.alerts, alert)[-20:])


def remembered(rng: random.Random, numbers: Sequence[float | None]) -> dict[str, list[FleetSample]]:
    """What was seen of each member: much, little or nothing."""
    names = "step loss gpu_utilization steps_per_second total_cost cost_per_hour".split()
    return {
        f"vast://{30007000 + number}": [
            FleetSample(NOW + 9 * second, {name: rng.choice(numbers) for name in names})
            for second in range(rng.choice([0, 1, 2, 30]))
        ]
        for number in range(14)
    }


def keys_to_press(rng: random.Random, view: FleetView) -> list[str]:
    """The next keys: of this screen, of any screen, odd ones, or a pasted text; in a question often its answer."""
    if view.request is not None and rng.random() < 0.45:
        phrase = view.phrase
        typed = rng.choice([phrase, phrase, phrase, phrase + "x", phrase[:-1], phrase.upper(), ""])
        return ["ctrl-u", *typed, *(["enter"] if rng.random() < 0.7 else [])]
    screen = view.screen if rng.random() < 0.8 else rng.choice([*TABLES])
    names = [name for key in TABLES[screen] for name in key.names]
    pasted = ["enter" if char == "\n" else char for char in any_text(rng)[:50]]
    odd = [rng.choice([*ODD_KEYS, *"0123456789äxXqD漢\u0301"])]
    return rng.choices([[rng.choice(names)], odd, pasted, rng.choice(DETOURS)], [8, 1.5, 0.3, 1.5])[0]


# ---------------------------------------------------------------- the walks


@cache
def walk(seed: int) -> Walk[FleetView, FleetSnapshot, Do]:
    rng = random.Random(seed)
    numbers = NUMBERS + NOT_FINITE if seed in WITH_NAN else NUMBERS
    samples = remembered(rng, numbers)

    def draw(snapshot: FleetSnapshot, view: FleetView, width: int, height: int) -> Frame[FleetView]:
        return render(snapshot, view, width, height, lambda key: samples.get(key, ()))

    def later(shot: FleetShot, view: FleetView, presses: Sequence[FleetPress]) -> FleetShot:
        asked = [command.name for press in presses for command in press.commands]
        pauses = [name == "pause" for name in asked if name in ("pause", "resume")]
        snapshot = replace(shot.snapshot, paused=pauses[-1]) if pauses else shot.snapshot
        snapshot = a_fleet(rng, snapshot, numbers) if rng.random() < 0.35 else snapshot
        snapshot = told(rng, snapshot, view) if rng.random() < 0.2 else snapshot
        size = any_size(rng) if rng.random() < 0.15 else shot.size
        return replace(shot, view=follow(view, snapshot.rows), snapshot=snapshot, size=size)

    view = FleetView(any_text(rng), seed in READ_ONLY, ASCII if seed % 2 else UNICODE)
    shot = Shot(view, replace(SNAPSHOT, rows=ROWS[2:], alerts=()), (80, 24), draw)
    return random_walk(shot, partial(keys_to_press, rng), update, later)
