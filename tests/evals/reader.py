"""A reader of the skill: types only what its pages teach, and concludes what its table says.

What was typed, answered and concluded is a transcript. Those under transcripts/ are of one run; the tests see that a
run of today has the same shape. After a change, write them again: TRAINING_MONITOR_TRANSCRIPTS=1 pytest tests/evals
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from tests.integration.commands import run_command

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "transcripts"
SKILL = (ROOT / "SKILL.md").read_text()
REFERENCES = sorted((ROOT / "training_monitor" / "agents" / "skill" / "references").glob("*.md"))
PAGES = "\n".join([SKILL, *(page.read_text() for page in REFERENCES)])
WRITTEN_AGAIN = "TRAINING_MONITOR_TRANSCRIPTS"
NUMBER = re.compile(r"(?:\d[\d.,]*[dhms]?)+")


def teaches(words: list[str]) -> list[str]:
    """What of a command line the pages do not teach: the command, and its options."""
    is_named = re.search(rf"[`|\s]{words[0]}[\s`]", PAGES)
    return [each for each in words[1:] if each.startswith("--") and each not in PAGES] + words[: 0 if is_named else 1]


def advice(verdict: str, state: str, status: int) -> str:
    """What the first table of the skill tells to do."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in SKILL.splitlines() if line[:3] == "| `"]
    [found] = [
        row[3] for row in rows if len(row) == 4 and row[:2] == [f"`{verdict}`", str(status)] and f"`{state}`" in row[2]
    ]
    return re.sub(r"\[(\w+)\]\([^)]*\)|`", r"\1", found)


class Reader:
    """Args: `shown`: what the transcript says instead of names of this machine."""

    def __init__(self, name: str, shown: dict[str, str]) -> None:
        self.path, self.shown = FOLDER / f"{name}.md", {sys.executable: "python3", **shown}
        self.lines: list[str] = []
        self.status = 0

    def is_asked(self, question: str) -> None:
        self.lines += [f"# {question}", ""]

    def types(self, *words: str) -> Any:
        """Run a command with --json, and return what it answers."""
        unknown = teaches(list(words))
        assert not unknown, f"the skill does not teach {unknown}"
        done = run_command(*words)
        self.status, answer = done.returncode, json.loads(done.stdout)
        text = [*json.dumps(answer, indent=1).splitlines(), *done.stderr.splitlines(), f"exit code {self.status}"]
        command = f"$ training-monitor {shlex.join(words)}"
        self.lines += [*(f"    {line}" for line in (command, *text)), ""]
        return answer

    def concludes(self, conclusion: str) -> None:
        self.lines += [f"Conclusion: {conclusion}"]

    def text(self) -> str:
        text = "\n".join(self.lines) + "\n"
        for here, there in self.shown.items():
            text = text.replace(here, there)
        return text

    def close(self) -> None:
        if os.environ.get(WRITTEN_AGAIN):
            self.path.write_text(self.text())
        assert shape(self.text()) == shape(self.path.read_text()), f"{self.path} is of another version: write it again"


def shape(transcript: str) -> list[str]:
    """Questions, commands, exit codes and conclusions, without numbers."""
    kept = re.findall(r"^(?:#| {4}\$| {4}exit code|Conclusion:).*", transcript, re.MULTILINE)
    return [line if "exit code" in line else NUMBER.sub("N", line) for line in kept]
