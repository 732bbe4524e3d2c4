"""Write docs/advice.md: what to try after each recorded message of an outside tool.

python3 docs/write_advice.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from training_monitor.core.advice import ADVICE as OF_TOOLS, find_advice  # noqa: E402
from training_monitor.core.units import plural  # noqa: E402
from training_monitor.notify.channels import CHANNELS, classes_of  # noqa: E402

PAGE = ROOT / "docs" / "advice.md"
ANSWERS = ROOT / "tests" / "recorded" / "advice" / "answers.jsonl"
HEAD = """# What to try when another tool fails

When kubectl, ssh, vastai or a messaging service fails, training-monitor quotes the tool's message in its own error. If
the message matches a pattern in this table, the error also suggests a fix. If a program exceeds its time
limit, training-monitor stops the program, and searches the output that it has printed for these patterns.

In the first column, `questions` stands for prompts that wait for input, and `programs` stands for any program.

"""
ADVICE = OF_TOOLS | {name: rows for name in CHANNELS if (rows := classes_of(name)[0].advice)}
MOST_SHOWN = 110  # characters of an answer


def write_advice() -> str:
    """Return the page."""
    answers = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    rows = sum(map(len, ADVICE.values()))
    lines = [f"{plural(rows, 'pattern')}, tested with {plural(len(answers), 'recorded message')}:", ""]
    lines += ["| source | message | suggestion |", "|---|---|---|"]
    lines += [f"| {each['tool']} | `{shown(each)}` | {each['hint']} |" for each in answers]
    return HEAD + "\n".join(lines) + "\n"


def shown(answer: dict[str, str]) -> str:
    """Return the deciding line of a message, shortened."""
    advised = find_advice(answer["said"], ADVICE[answer["tool"]])
    assert advised
    line = advised.line.replace("|", "/").replace("`", "'")
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}…"


if __name__ == "__main__":
    PAGE.write_text(write_advice(), encoding="utf-8")
