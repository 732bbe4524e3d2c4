"""Draw the terminal pictures of README.md: `python3 docs/draw_terminal.py` (minutes; needs tmux, root and Linux).

docs/hang.svg: `check` and `why`, asked about a training of four real processes that hangs. docs/vast.svg: the screen
of rented machines, with made-up ones. Both are what tmux showed, in its colors.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.integration import roll_call_training as training  # noqa: E402
from tests.integration.screens import Screen  # noqa: E402
from training_monitor.ui.kit.text import cells  # noqa: E402

COLUMNS = 62  # of the picture that must be legible on a phone
CELL, LINE = 7.83, 18  # pixels of a character of 13 px and of a line
COLORS = ("#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#c9d1d9")
NO_BREAK = "\u00a0"  # SVG takes several spaces for one
STEPS = 1200  # until a rank waits for its data
PATIENCE = 1800.0  # seconds until `check` is sure


def draw(screen: Screen, name: str) -> None:
    """Write what the screen shows above its first empty line to a picture."""
    lines = screen.tmux("capture-pane", "-p", "-e").rstrip().partition("\n\n")[0].split("\n")
    width = int(screen.tmux("display-message", "-p", "#{pane_width}"))
    rows = "\n".join(
        f'<text x="14" y="{48 + LINE * number}">{"".join(_spans(line))}</text>' for number, line in enumerate(lines)
    )
    picture = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {28 + CELL * width:g} {52 + LINE * len(lines)}"
  font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="5" fill="#ff5f56"/><circle cx="38" cy="18" r="5" fill="#ffbd2e"/>
<circle cx="56" cy="18" r="5" fill="#27c93f"/>
{rows}
</svg>
"""
    (ROOT / "docs" / name).write_text(picture, encoding="utf-8")


def _spans(line: str) -> Iterator[str]:
    """Text with the colors of its escape sequences (ECMA-48, SGR) as SVG; the place of each part is given in pixels."""
    codes, column = list[int](), 0
    for index, part in enumerate(re.split(r"\x1b\[([\d;]*)m", line)):
        if index % 2:
            codes = [] if part in ("", "0", "39") else codes + [int(each) for each in part.split(";") if each]
        elif part:
            colors = [COLORS[code % 10] for code in codes if code // 10 in (3, 9)]
            color = COLORS[0] if 2 in codes else (colors or COLORS)[-1]
            bold = ' font-weight="bold"' if 1 in codes or 7 in codes else ""
            for piece in re.split(r"([\u2600-\U0010ffff])", part):  # the pictures among the signs take two cells
                text = html.escape(piece).replace(" ", NO_BREAK)
                yield f'<tspan x="{14 + CELL * column:g}" fill="{color}"{bold}>{text}</tspan>' if piece else ""
                column += cells(piece)


def draw_hang(folder: Path) -> None:
    """Let a rank hang, and ask `check` until it is sure, then `why`."""
    training.ODD_STEP = STEPS
    plan = training.Plan(world=4, odd={1: "pipe"}, steps=5000, python="/usr/bin/python3")
    with training.separate_processes("gpu1") as (enter, proc):
        machine = training.Machine(enter=enter, proc=proc)
        hung, screen = training.Training(plan, folder / "lora", [machine]), Screen(folder)
        with training.running(hung):
            hung.wait_until_ready()
            settings = {
                "TRAINING_MONITOR_STATE_DIR": str(folder / "state"),
                "PATH": f"{Path(sys.executable).parent}:/bin",
            }
            screen.start(f"{COLUMNS}x30", *enter, f"--wdns={folder}", "env", "PS1=$ ", "sh", **settings)
            _until(screen, "STALLED", "clear; training-monitor check")
            screen.type("clear; PS1='$ '\n")
            time.sleep(1)
            for command in ("training-monitor check", "training-monitor why"):
                screen.type(f"{command}\n")
                screen.shows("confidence" if "why" in command else r"^\$$")
                time.sleep(5)
            draw(screen, "hang.svg")
            screen.tmux("kill-server")


def _until(screen: Screen, word: str, command: str) -> None:
    end = time.monotonic() + PATIENCE
    while word not in screen.text() and time.monotonic() < end:
        screen.type(f"{command}\n")
        time.sleep(20)


def draw_vast(folder: Path) -> None:
    """Show made-up rented machines."""
    screen = Screen(folder)
    screen.start("100x18", sys.executable, "-m", "training_monitor", "vast", "--mock", "--no-history")
    screen.shows("PROGRESS")
    time.sleep(25)  # until some have values
    draw(screen, "vast.svg")
    screen.tmux("kill-server")


if __name__ == "__main__":
    for each in (draw_vast, draw_hang):
        with tempfile.TemporaryDirectory(prefix="runs-") as scratch:
            each(Path(scratch))
