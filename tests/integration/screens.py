"""A screen in a real terminal: tmux starts it, presses its keys, and says what is shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.integration.conftest import MARK, wait_until
from tests.requirements import require

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds until what is expected must be there, on a machine that has much else to do


class Screen:
    """A tmux session of one window in which a command runs; its folder gets `before` and `after`, the terminal's modes.

    tmux itself and the shell around the command do not carry MARK: what still does when the command has ended is what
    the command left behind. A Ctrl-C that comes when the command has ended already does no harm.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tmux = [require("tmux"), "-u", "-S", str(folder / "socket")]

    def tmux(self, *words: str) -> str:
        plain = {name: value for name, value in os.environ.items() if name not in (MARK, "TMUX")}
        return subprocess.run([*self._tmux, *words], text=True, capture_output=True, timeout=60, env=plain).stdout

    def start(self, size: str, *command: str, before: str = "", then: str = "", **environ: str) -> None:
        """Run a command; `before` and `then` are for the shell around it, `environ` for the command alone."""
        width, height = size.split("x")
        settings = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT), **environ}
        settings |= {MARK: os.environ[MARK]} if MARK in os.environ else {}
        env = shlex.join(["env", "-u", "NO_COLOR", *(f"{name}={value}" for name, value in settings.items())])
        run = f"{env} {shlex.join(command)}"
        shell = f"{before} stty -g > before; {run}; {then} echo status=$?; trap '' INT; stty -g > after; exec sleep 600"
        folder = ["-c", str(self.folder)]
        self.tmux("new-session", "-d", "-x", width, "-y", height, *folder, shlex.join(["sh", "-c", shell]))

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", "--", text)

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, *patterns: str, seconds: float = PATIENCE) -> None:
        """Wait until all patterns are on the screen."""
        assert wait_until(lambda: _has_all(self.text(), patterns), seconds), (
            f"{patterns} not on the screen:\n{self.text()}"
        )

    def hides(self, pattern: str, seconds: float = PATIENCE) -> None:
        """Wait until a pattern is not on the screen."""
        assert wait_until(lambda: not re.search(pattern, self.text(), re.M), seconds), (
            f"{pattern} still in\n{self.text()}"
        )

    def ended(self, status: int) -> None:
        """Wait for its end, and see that the terminal is as it was."""
        self.shows(f"status={status}$")
        self.given_back()
        assert self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{keypad_cursor_flag}") == "0 1 0\n"

    def given_back(self) -> None:
        """Wait until the shell has written the terminal's modes again, and see that they are as they were."""
        after = self.folder / "after"
        assert wait_until(lambda: after.exists() and after.read_text(), PATIENCE)
        assert after.read_text() == (self.folder / "before").read_text()


def _has_all(text: str, patterns: tuple[str, ...]) -> bool:
    return all(re.search(each, text, re.M) for each in patterns)
