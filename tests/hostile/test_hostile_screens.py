"""Hostile text on the terminal screens, wherever a text is shown: all output is inspected.

Nothing but the kit's own sequences steers the terminal, nothing that lies is among the text, and no line goes beyond
the last column, by the widths of the C library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.terminals import OWN, Cells, Terminal, python
from tests.hostile.texts import HOSTILE, harm_in
from tests.hostile.tries import tried
from tests.integration.screens import ROOT

FLEET = """
from dataclasses import replace
from training_monitor.core.values import Verdict
from training_monitor.fleet.mock import MockFleet
from training_monitor.fleet.values import FleetAlert
from training_monitor.ui.fleet.app import run_fleet
from tests.hostile.texts import HOSTILE
from tests.unit.ui.snapshots import NOW, SNAPSHOT, member

TEXTS = [f"{number}{text}{number}" for number, text in enumerate(HOSTILE)] + HOSTILE
def row(number, text):
    verdict = Verdict(text, "failed", text, NOW, text, text, remedies=(text, text))
    return member(number, name=text, gpu_type=text, status=text, message=text, error=text, key=f"k{number}{text}",
        instance_id=text, groups=(text, "all"), recent_logs=[text, text * 3], job_status=text, extra={text: 1.0},
        stale_since=NOW - 5 if number % 2 else None, verdict=verdict)
ROWS = tuple(row(number, text) for number, text in enumerate(TEXTS))
ALERTS = tuple(FleetAlert(NOW, ROWS[n].key, text, text, text) for n, text in enumerate(TEXTS))
class Hostile(MockFleet):
    looks = 0
    def snapshot(self):
        self.looks += 1
        text = TEXTS[self.looks % len(TEXTS)]
        return replace(SNAPSHOT, rows=ROWS, alerts=ALERTS, error=text, groups=("all", text))
    def act(self, action, keys):
        pass
run_fleet(Hostile(), title="vast" + "".join(HOSTILE))
"""
TOP = """
import os
from dataclasses import replace
from training_monitor.core.values import Verdict
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.local_runs import LocalRuns
from training_monitor.runs.values import Message, Variable
from training_monitor.ui.top.app import run_top
from tests.hostile.texts import HOSTILE
from tests.unit.ui.top_runs import NOW, SNAPSHOT, node, row

with open("out.log", "wb") as file:
    for number, text in enumerate(HOSTILE):
        file.write(f"{number}{text}{number}\\n{text}\\n".encode(errors="replace"))
TEXTS = [f"{number}{text}{number}" for number, text in enumerate(HOSTILE)]
def hostile(number, text):
    process = node("P", 0, 4000 + number, text, state=text)
    kinds = enumerate(("str", "float", text))
    changed = {name: text for name in "phase script wandb_url error_message error folder stderr_path".split()}
    changed |= {"path": f"{number}.json", "stdout_path": os.path.abspath("out.log"), "process": process.identity}
    changed["metrics"] = {text: text, "note": text}
    changed["variables"] = tuple(Variable(f"{n}{text}", text, kind, text, text, text) for n, kind in kinds)
    verdict = Verdict("stalled", "failed", text, NOW, text, text, remedies=(text,))
    return row(text, changed, reason=text, tree=(process, node("T", 1, 5000 + number, text)), verdict=verdict)
ROWS = tuple(hostile(number, text) for number, text in enumerate(TEXTS))
class Hostile(RunCollector):
    looks = 0
    def snapshot(self):
        self.looks += 1
        text = TEXTS[self.looks % len(TEXTS)]
        return replace(SNAPSHOT, rows=ROWS, where=text, error=text, machine_error=text, gpu_error=text)
    def messages(self):
        return tuple(Message(NOW, text) for text in TEXTS)
run_top(Hostile(LocalRuns("."), where="."), read_only=False, title="top" + "".join(HOSTILE))
"""
WATCH = """
from dataclasses import replace
from training_monitor.core.models import Checkpoint, Event
from training_monitor.core.values import Verdict
from training_monitor.ui.kit.loop import run_beside
from training_monitor.ui.kit.terminal import terminal_glyphs
from training_monitor.ui.watch.app import APP, WatchSession
from training_monitor.ui.watch.view import ProcessFacts, WatchView
from training_monitor.supervision.watcher import TrainingWatcher
from tests.hostile.texts import HOSTILE
from tests.unit.ui.watched import NOW, RUNNING, STATUS, gpu

TEXTS = [f"{number}{text}{number}" for number, text in enumerate(HOSTILE)] + HOSTILE
class Hostile(WatchSession):
    looks = 0
    def look(self, view):
        self.looks += 1
        text = TEXTS[self.looks % len(TEXTS)]
        verdict = Verdict(text or "x", text, text, NOW - 5, text, text, 5.0, 50.0, (text, text))
        checkpoints = (Checkpoint(text, 1, None, True), Checkpoint(text, 2, None, None, text))
        status = replace(STATUS, verdict=verdict, errors=(text,), checkpoints=checkpoints)
        events = tuple((NOW, Event(each, each)) for each in TEXTS)
        return RUNNING._replace(training=text, target=text, status=status, gpus=(gpu(0, name=text), gpu(1, error=text)),
            process=ProcessFacts(command=text), lines=(*TEXTS, *(text * 3 for text in TEXTS)), partial=text,
            events=events, error=text if self.looks % 2 else None), view
session = Hostile(TrainingWatcher("local", {"log_file": "log"}), ends=False, streams=True)
run_beside(APP, session, WatchView(glyphs=terminal_glyphs()), session.refresh.wait)
"""
DOWN, WHEEL = ["\x1b[B"] * 45, ["\x1b[6~"] * 12
TYPED = ["\u202e", "\u200b", "漢", "\u0301", "\u2028", "x", "\ufeff", "\r"]
FLEET_KEYS = (
    *DOWN[:20], "\r", *WHEEL, "\x1b[C", *WHEEL, "\x1b[C", *WHEEL, "\x1b", "!", *WHEEL, "\x1b",
    " ", *DOWN[:3], " ", " ", "v", *WHEEL, "\x1b", "l", *DOWN, "/", *TYPED, "\x1b", "\t", "\t", "\x1b[Z", "s", "s",
    "D", *WHEEL, "\x1b", "x", *TYPED, "\x1b", "?", *WHEEL, "\x1b", "\x1b",
)  # fmt: skip
TOP_KEYS = (
    *DOWN[:20], "\r", *WHEEL, "\x1b", "e", *DOWN[:3], "\r", *TYPED, "\x1b", "\x1b",
    "o", *WHEEL, "\t", "/", *TYPED, "\x1b", "\x1b", "m", *WHEEL, "\x1b", "t", *DOWN, "T", *DOWN,
    "k", *DOWN[:3], "\r", *TYPED, "\x1b", "\x1b", "d", *TYPED, "\x1b", "\x1b", "f", *TYPED, "\x1b",
    "\x1b[C", "\x1b[C", "?", *WHEEL, "\x1b", "\x1b",
)  # fmt: skip
WATCH_KEYS = (*DOWN, "l", *WHEEL, *DOWN, "\x1b[H", *WHEEL, "e", *WHEEL, *DOWN, "?", *WHEEL, "\x1b", *DOWN, "\x1b[F")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    found: list[Terminal] = []

    def begin(*words: str, columns: int = 100, lines: int = 30) -> Terminal:
        environ = {"TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
        found.append(Terminal(*python(*words), folder=tmp_path, environ=environ, columns=columns, lines=lines))
        return found[-1]

    yield begin
    for each in found:
        each.close()


def _look_at(screen: Terminal) -> None:
    """Fail on anything that steers, lies or goes beyond the last column."""
    text = screen.text()
    plain = OWN.sub("", text)
    assert not harm_in(plain.replace("\r", "").replace("\n", "").replace("\b", "")), harm_in(plain)
    assert "\ufffd" not in plain and not any("\udc80" <= char <= "\udcff" for char in plain)
    Cells(screen.columns, screen.lines).write(text)


SMALL, LARGE = (41, 12), (200, 60)


@pytest.mark.parametrize(
    ("script", "keys", "columns", "lines"),
    [
        *((FLEET, FLEET_KEYS, *size) for size in (SMALL, LARGE)),
        (TOP, TOP_KEYS, *SMALL),
        (WATCH, WATCH_KEYS, *SMALL),
    ],
    ids=["small fleet", "large fleet", "small top", "small watch"],
)
def test_no_text_steers_a_screen(
    start: Callable[..., Terminal], script: str, keys: tuple[str, ...], columns: int, lines: int
) -> None:
    screen = start("-c", script, columns=columns, lines=lines)
    screen.shows("\x1b[?1006h")
    screen.read(0.5)
    tried(len(keys))
    for key in keys:
        screen.press(key)
        screen.read(0.06 if key == "\x1b" else 0.02)
    screen.press("\x0c")
    screen.read(0.5)
    screen.press("\x03")
    screen.ended()
    assert len(screen.output) > 20_000 and screen.is_as_before()
    written, screen.output = screen.output, screen.output.partition(b"Traceback")[0]
    _look_at(screen)
    assert b"KeyboardInterrupt" in written


@pytest.mark.parametrize("options", [("--once",), ("--plain", "--interval", "0.2")], ids=["once", "live"])
def test_no_line_of_a_log_steers_what_watch_prints(
    start: Callable[..., Terminal], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """All the texts at once: in the name of the log, in its lines, and in the line that says why it failed."""
    texts = [text.encode(errors="replace") for text in HOSTILE]
    done = subprocess.Popen(["true"])
    done.wait()
    (tmp_path / "pid").write_text(str(done.pid))
    log = tmp_path / ("log" + "".join(HOSTILE[3:6] + ["\x1b[2J\x1b]0;title\x07\x9b31m\n\r\t\x7f"]))
    lines = [b"step %d/40 loss 0.5 %s %s\n" % (step, text, text) for step, text in enumerate(texts, 1)]
    log.write_bytes(b"".join(lines) + b"RuntimeError: CUDA error: %s an illegal memory access\n" % b"".join(texts[3:]))
    screen = start(
        "-m", "training_monitor", "watch", "local", "--log", str(log), "--pid-file", "pid", *options, columns=80
    )
    screen.ended()
    assert b"step " in screen.output and b"RuntimeError" in screen.output, screen.output
    plain = OWN.sub("", screen.text())
    assert not harm_in(plain.replace("\r", "").replace("\n", "")), screen.output
    for line in re.findall(r"\r\x1b\[K([^\r\n]*)", screen.text()):  # the live line must not be longer than the terminal
        Cells(79 if line.startswith("  ") and "[" in line[:30] else 10_000, 1).write(line)


def test_no_text_steers_what_check_prints(tmp_path: Path) -> None:
    log = tmp_path / "a\x1b[2J\n\u202eb.log"
    texts = b"".join(text.encode(errors="replace") for text in HOSTILE)
    log.write_bytes(b"step 1/40 loss 0.5 %s\nRuntimeError: CUDA error: %s\n" % (texts, texts.replace(b"\n", b"")))
    words = (sys.executable, "-m", "training_monitor", "check", "local", str(log))
    environ = {**os.environ, "TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, env=environ)
    assert b"RuntimeError" in done.stdout and not harm_in((done.stdout + done.stderr).decode().replace("\n", "")), done
    assert all(line.startswith((b"  ", b"FAILED", b"UNKNOWN", b"RUNNING")) for line in done.stdout.splitlines()), done
