"""Random walks over the screens of `top`: runs, processes and the terminal's size change under the keys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from tests.sweeps import READ_ONLY, WITH_NAN, Shot, Walk, random_walk
from tests.unit.ui.random_fleet import NOT_FINITE, any_size, any_text
from tests.unit.ui.top_runs import NOW, SNAPSHOT, node, row
from tests.unit.ui.top_screens import TABLES, render_top, update
from training_monitor.core.values import Verdict
from training_monitor.runs.values import (
    RUNNING,
    STATUSES,
    UNKNOWN,
    Estimate,
    Message,
    MetricHistory,
    RunRow,
    RunsSnapshot,
    TreeRow,
    Usage,
    Variable,
)
from training_monitor.targets.proc_stat import Identity
from training_monitor.ui.kit.text import ASCII, UNICODE
from training_monitor.ui.top.view import Command, Pane, TopView
from training_monitor.verdict.judge import STATES, VERDICTS

RunsShot = Shot[TopView, RunsSnapshot]
ODD_KEYS = ["f12", "", "\x01", "\x1b", "ctrl-z", "insert", *"0123456789äxXqjk漢\u0301"]
NUMBERS = [None, None, 0.0, 0.5, 12.345, 99.97, 1e-300, 5e-324, 1e300]
WHOLES = [None, 0, 1, 700, 10**18, 2**63 - 1]
TIMES = [None, NOW, NOW - 5, NOW - 1e6, NOW + 60, 0.0, 2e11]
SCALARS = [None, True, 0, -5, 0.25, 1e300, -1e-300, 10**18, "nan", "-inf", ""]
DETOURS = [
    ["escape", "escape", "escape"],
    ["escape", "home", "k", "down", "down", "enter", *"yes"],
    ["escape", "l", "enter"],
    ["escape", "escape", "end", "c", *"yes"],
    ["escape", "escape", "escape", "s", "s", "c", *"yes", "enter"],
    ["escape", "escape", "e", "enter", *"12"],
    ["escape", "o", "tab", "right", "/", *"run", "enter", "b", *"x", "enter", ":", *"5", "enter"],
    ["T", "down", "down", "k"],
    ["escape", "escape", "f", *"ru"],
    ["escape", "escape", "m"],
    ["escape", "escape", "e", "enter", "ctrl-u", *"12", "enter"],
]


# ---------------------------------------------------------------- what is walked over


def an_identity(rng: random.Random, number: int) -> Identity:
    """One of a few processes, now and then a later one with the same pid."""
    return Identity(4000 + number, rng.choice([100, 100, 100, 200]), "gpu-1", "5b0c", "pid:[4026531836]")


def a_tree(rng: random.Random, root: Identity) -> tuple[TreeRow, ...]:
    """A process with threads and processes below it, among them those of other runs."""
    below = rng.sample(range(10), rng.randint(0, 4))
    used: dict[str, Any] = {name: rng.choice(NUMBERS) for name in ("cpu_percent", "gpu_mib")}
    rows = [replace(node("P", 0, 1, any_text(rng), **used), identity=root)]
    for number in below:
        if number == root.pid - 4000:
            continue
        rows.append(replace(node("P", rng.randint(1, 40), 1, any_text(rng)), identity=an_identity(rng, number)))
        rows += [node("T", 2, 9000 + number, any_text(rng))] if rng.random() < 0.4 else []
    return tuple(rows)


def a_run(rng: random.Random, number: int, numbers: Sequence[float | None]) -> RunRow:
    """The run of that number as it may be seen once; whatever it shows, its path stays the same."""
    spans = ("run", "epoch_time", "training", "validation")
    wholes = "epoch total_epochs batch total_batches validation_batch total_validation_batches step".split()
    texts = "phase error_message script wandb_url error stdout_path stderr_path".split()
    names = rng.sample("abcdefgh", 3)
    changed: dict[str, Any] = {name: Estimate(*rng.choices(numbers, k=4)) for name in spans}
    changed |= {name: rng.choice(WHOLES) for name in wholes}
    changed |= {name: rng.choice([None, any_text(rng)]) for name in texts}
    changed |= {name: rng.choice(TIMES) for name in ("ended_at", "updated_at", "step_at")}
    changed["metrics"] = {rng.choice(["loss", any_text(rng)]): rng.choice([*SCALARS, any_text(rng)]) for _ in range(3)}
    count = rng.choice([0, 1, 5, 64])
    changed["history"] = {"loss": MetricHistory(tuple(range(count)), tuple(rng.choices(numbers, k=count)))}
    changed["folder"] = rng.choice([None, "/data/" + any_text(rng)])
    changed = {name: value for name, value in changed.items() if rng.random() < 0.5}
    kinds = [
        rng.choice([("float", 0.5), ("int", 3), ("bool", True), ("str", any_text(rng)[:1000]), ("str", None)])
        for _ in names
    ]
    pending = rng.choice([None, any_text(rng)[:1000]])
    process = rng.choice([None, *[an_identity(rng, number)] * 5])
    status = rng.choice([RUNNING, RUNNING, RUNNING, UNKNOWN, *STATUSES])
    is_seen = status == RUNNING and process is not None and rng.random() < 0.8
    base = row(
        f"run-{number}",
        {
            **changed,
            "variables": tuple(Variable(name, v, kind, None, None, pending) for name, (kind, v) in zip(names, kinds)),
            "process": process,
            "started_at": NOW - 3600 * rng.choice([1, 1, 1, 2]),
            "status": status if status != UNKNOWN else RUNNING,
        },
        status=status,
        reason=rng.choice(["", any_text(rng)]),
        is_alive=rng.choice([True, None]) if status == RUNNING else rng.choice([None, False]),
        tree=a_tree(rng, process) if is_seen and process else (),
        verdict=a_verdict(random.Random(number), numbers),
        **{name: rng.choice(numbers) for name in ("cpu_percent", "gpu_mib", "eta_seconds", "rate", "quiet_seconds")},
        **{name: rng.choice(WHOLES) for name in ("rss_bytes", "processes", "threads")},
    )
    return replace(base, run=replace(base.run, name=any_text(rng))) if number % 4 == 3 else base


def a_verdict(rng: random.Random, numbers: Sequence[float | None]) -> Verdict:
    return Verdict(
        rng.choice(STATES),
        rng.choice(VERDICTS),
        any_text(rng),
        seconds_without_step=rng.choice(numbers),
        remedies=(any_text(rng),),
    )


def some_runs(rng: random.Random, before: RunsSnapshot, selected: str, numbers: Sequence[float | None]) -> RunsSnapshot:
    """The folder a moment later: runs left, came, ended, began again, often the selected one."""
    digits = [int(char) for char in selected if char.isdigit()]
    there = {each.run.path: each for each in before.rows if rng.random() < 0.9}
    for _ in range(rng.randint(0, 4)):
        each = a_run(rng, rng.choice([*digits, rng.randrange(10), rng.randrange(10)]), numbers)
        there[each.run.path] = each
    usage = Usage(*(rng.choice(numbers) for _ in range(6)))  # type: ignore[arg-type]
    return RunsSnapshot(
        tuple(there.values()) if rng.random() < 0.95 else (),
        rng.choice([usage, SNAPSHOT.usage]),
        before.timestamp + 2,
        before.where,
        error=rng.choice([None, None, any_text(rng)]),
        stale_since=rng.choice(TIMES),
        machine_error=rng.choice([None, any_text(rng)]),
        gpu_error=rng.choice([None, any_text(rng)]),
        is_refreshing=rng.random() < 0.5,
    )


def some_panes(rng: random.Random) -> tuple[Pane, ...]:
    """What is read of stdout and stderr now."""
    size = rng.choice(WHOLES)
    lines = tuple(any_text(rng) for _ in range(rng.randint(0, 60)))
    pane = Pane("stdout", rng.choice([None, "/out"]), lines, rng.choice(WHOLES), size, rng.random() < 0.5)
    other = Pane("stderr", "/err", (), None, None, True, any_text(rng), any_text(rng))
    return rng.choice([(), (pane, other)])


def keys_to_press(rng: random.Random, view: TopView) -> list[str]:
    """The next keys: of this screen or any other, odd ones, a click, a pasted text; in a question often its answer."""
    if view.screen == "confirm" and rng.random() < 0.5:
        phrase = view.phrase
        typed = rng.choice([phrase, phrase, phrase, phrase, "no", phrase.title(), f"{phrase}s", ""])
        return ["ctrl-u", *typed, *(["enter"] if rng.random() < 0.8 else [])]
    if view.screen == "edit" and rng.random() < 0.4:
        return ["ctrl-u", *rng.choice(["12", "0.5", "true", "漢", ""]), "enter"]
    screen = view.screen if rng.random() < 0.8 else rng.choice([*TABLES])
    name = rng.choice([name for key in TABLES[screen] for name in key.names])
    click = f"click {rng.randint(0, 130)} {rng.randint(0, 30)}"
    pasted = ["enter" if char == "\n" else char for char in any_text(rng)[:50]]
    return rng.choices([[name], [rng.choice(ODD_KEYS)], [click], pasted, rng.choice(DETOURS)], [8, 1, 1, 0.3, 2])[0]


# ---------------------------------------------------------------- the walks


@cache
def walk(seed: int) -> Walk[TopView, RunsSnapshot, Command]:
    rng = random.Random(seed)
    numbers = NUMBERS + NOT_FINITE if seed in WITH_NAN else NUMBERS

    def later(shot: RunsShot, view: TopView, presses: object) -> RunsShot:
        snapshot = shot.snapshot
        if rng.random() < 0.4 and not view.paused:
            snapshot = some_runs(rng, snapshot, view.selected.path, numbers)
        panes = some_panes(rng) if view.screen in ("output", "search") else ()
        if rng.random() < 0.2:
            message = Message(rng.choice([NOW, 0.0, 2e11]), any_text(rng))
            view = replace(view, messages=(*view.messages, message)[-9:])
        size = any_size(rng) if rng.random() < 0.15 else shot.size
        return replace(shot, view=replace(view, panes=panes), snapshot=snapshot, size=size)

    view = TopView(any_text(rng), seed in READ_ONLY, ASCII if seed % 2 else UNICODE)
    shot = Shot(view, replace(SNAPSHOT, rows=SNAPSHOT.rows[:-1]), (80, 24), render_top)
    return random_walk(shot, partial(keys_to_press, rng), update, later)
