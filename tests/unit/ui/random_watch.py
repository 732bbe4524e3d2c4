"""Random walks over the screen of `watch`: all that is known and the terminal's size change under the keys."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

from tests.sweeps import WITH_NAN, Shot, Walk, random_walk
from tests.unit.ui.random_fleet import NOT_FINITE, any_size, any_text
from tests.unit.ui.watched import CHECKPOINTS, NOW, PROGRESS, RUNNING, STATUS, gpu, render, update
from training_monitor.core.models import Event
from training_monitor.core.values import Verdict
from training_monitor.ui.kit.text import ASCII, UNICODE
from training_monitor.ui.kit.view import Do
from training_monitor.ui.watch.app import APP
from training_monitor.ui.watch.facts import PHASES
from training_monitor.ui.watch.view import ProcessFacts, WatchSnapshot, WatchView
from training_monitor.verdict.judge import STATES, VERDICTS

KEYS = [name for screen in APP.screens.values() for key in screen.keys for name in key.names]
ODD_KEYS = ["f12", "", "\x01", "ctrl-z", "click 3 3", "click 30 9", *"0xZkjgG漢"]
NUMBERS = [None, None, 0.0, 0.5, 12.345, 99.97, 470.0, 1e-300, 5e-324, 1e300]
WHOLES = [None, 0, 1, 700, 10**18]

WatchShot = Shot[WatchView, WatchSnapshot]


def changed(rng: random.Random, before: WatchSnapshot, numbers: list[float | None]) -> WatchSnapshot:
    """The training a moment later: a look, lines, events, an outage, a termination."""
    changes: dict[str, Any] = {"now": before.now + rng.choice([0.2, 1.0, 60.0])}
    if rng.random() < 0.4:
        changes |= a_look(rng, changes["now"], numbers)
    if rng.random() < 0.4:
        new = tuple(any_text(rng) for _ in range(rng.randint(1, 30)))
        lines = (*before.lines, *new)
        dropped = max(0, len(lines) - 60)
        changes |= {"lines": lines[dropped:], "first_line": before.first_line + dropped, "partial": any_text(rng)}
    if rng.random() < 0.2:
        events = tuple((NOW - rng.choice([1.0, 1e5]), Event(any_text(rng), any_text(rng))) for _ in range(3))
        changes["events"] = (*before.events, *events)[-20:]
    if rng.random() < 0.2:
        since = rng.choice([None, changes["now"] - 30])
        changes |= {"failing_since": since, "error": since and any_text(rng), "stale_since": since}
    if rng.random() < 0.1:
        changes["phase"] = rng.choice([None, *PHASES])
    return replace(before, **changes)


def a_look(rng: random.Random, now: float, numbers: list[float | None]) -> dict[str, Any]:
    verdict = Verdict(
        rng.choice(STATES),
        rng.choice(VERDICTS),
        any_text(rng),
        rng.choice([None, now - 60]),
        rng.choice(["none", "low", "high"]),
        seconds_without_step=rng.choice(numbers),
        limit_seconds=rng.choice(numbers),
        remedies=tuple(any_text(rng) for _ in range(rng.randint(0, 4))),
    )
    names = "utilization memory_used_mb memory_total_mb power_draw_watts power_limit_watts temperature_celsius".split()
    gpus = tuple(
        gpu(number, error=rng.choice([None, None, any_text(rng)]), **{name: rng.choice(numbers) for name in names})
        for number in range(rng.choice([0, 1, 8, 64]))
    )
    rates = "loss learning_rate grad_norm steps_per_second tokens_per_second eta_seconds".split()
    return {
        "status": replace(
            STATUS,
            verdict=verdict,
            is_running=rng.choice([True, False, None]),
            timestamp=now,
            checkpoints=rng.choice([None, (), CHECKPOINTS]),
            errors=tuple(any_text(rng) for _ in range(rng.randint(0, 2))),
        ),
        "progress": replace(PROGRESS, step=rng.choice(WHOLES), **{name: rng.choice(numbers) for name in rates}),
        "progress_at": now,
        "gpus": gpus,
        "gpu_error": rng.choice([None, any_text(rng)]),
        "losses": tuple(loss for loss in rng.choices(numbers, k=rng.choice([0, 1, 5, 64])) if loss is not None),
        "process": ProcessFacts(
            rng.choice(WHOLES), rng.choice(numbers), rng.choice(WHOLES), command=rng.choice([None, any_text(rng)])
        ),
        "next_look_at": rng.choice([None, now + 60, now - 5]),
        "ends_at": rng.choice([None, now + 60, now - 5]),
    }


@cache
def walk(seed: int) -> Walk[WatchView, WatchSnapshot, Do]:
    rng = random.Random(seed)
    numbers: list[float | None] = [*NUMBERS, *(NOT_FINITE if seed in WITH_NAN else [])]

    def keys_to_press(view: WatchView) -> list[str]:
        return [rng.choice(ODD_KEYS) if rng.random() < 0.1 else rng.choice(KEYS)]

    def later(shot: WatchShot, view: WatchView, presses: object) -> WatchShot:
        return replace(shot, view=view, snapshot=changed(rng, shot.snapshot, numbers), size=any_size(rng))

    view = WatchView(glyphs=rng.choice([UNICODE, ASCII]))
    return random_walk(Shot(view, RUNNING, any_size(rng), render), keys_to_press, update, later)
