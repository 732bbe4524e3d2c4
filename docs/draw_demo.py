"""Draw docs/demo.svg from a real run of the demo: `python3 docs/draw_demo.py`."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

WIDTH = 104  # characters
NO_BREAK = "\u00a0"  # SVG takes several spaces for one
ROOT = Path(__file__).parents[1]
COLORS = {"detected": "#ff7b72", "refused": "#e3b341", "stopping": "#e3b341", "stopped": "#e3b341"}
COLORS |= {"started": "#79c0ff", "finished": "#56d364"}


def run_demo() -> list[str]:
    """The lines of one run, without those of progress, and with its temporary folder left out."""
    command, environ = [sys.executable, "-m", "training_monitor", "demo"], os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    text = re.sub(r"/\S*/training-monitor-demo-[^/\s]*/checkpoints", "…", done.stdout)
    events = [line for line in text.splitlines() if re.match(r" *[\d.]+s  (?!attempt|waiting)", line)]
    return ["$ training-monitor demo", "", *events, "", text.splitlines()[-1]]


def draw(lines: list[str]) -> str:
    """The lines as a picture of a terminal."""
    width, height = 20 + 7.25 * WIDTH, 44 + 19 * len(lines)
    rows = "\n".join(
        f'<text x="14" y="{48 + 19 * number}" fill="{_color(line)}">{html.escape(_cut(line))}</text>'
        for number, line in enumerate(lines)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}"
  font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="12">
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="5" fill="#ff5f56"/><circle cx="38" cy="18" r="5" fill="#ffbd2e"/>
<circle cx="56" cy="18" r="5" fill="#27c93f"/>
{rows}
</svg>
"""


def _cut(line: str) -> str:
    return (line if len(line) <= WIDTH else line[: WIDTH - 1] + "…").replace(" ", NO_BREAK)


def _color(line: str) -> str:
    return next((color for word, color in COLORS.items() if f"s  {word}" in line), "#c9d1d9")


if __name__ == "__main__":
    (ROOT / "docs" / "demo.svg").write_text(draw(run_demo()), encoding="utf-8")
