"""The screen of a fleet in a real terminal (tmux): every key, every end, every size."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import pids, wait_until
from tests.integration.screens import Screen

COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
# A made-up fleet that writes down what it is asked to do, and one of text that means harm.
SCRIPT = """
import os, sys
from dataclasses import replace
from pathlib import Path
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.fleet.mock import MockFleet
from training_monitor.ui.fleet.app import run_fleet
from tests.unit.ui.snapshots import HOSTILE, SNAPSHOT, member

class Fleet(MockFleet):
    snapshots = 0
    def _write(self, *words):
        with open("asked", "a") as file:
            print(*words, file=file)
    def refresh(self):
        self._write("refresh")
        super().refresh()
    def clear_logs(self):
        self._write("clear")
        super().clear_logs()
    def act(self, action, keys):
        self._write(action, *keys)
        super().act(action, keys)
    def shell_command(self, key):
        return ["sh", "-c", "echo on $0; stty -g > of_shell; read word; echo $word > typed; exit 3", key]
    def close(self):
        self._write("close")
        super().close()

class Broken(Fleet):
    def snapshot(self):
        self.snapshots += 1
        if self.snapshots > 2 and Path("break").exists():
            raise ZeroDivisionError("broken on purpose")
        return super().snapshot()

class Hostile(Fleet):
    def snapshot(self):
        rows = [member(number, name=text, gpu_type=text, message=text) for number, text in enumerate(HOSTILE)]
        return replace(SNAPSHOT, rows=tuple(rows))

Path("pid").write_text(str(os.getpid()))
kind = {"broken": Broken, "hostile": Hostile}.get(sys.argv[1], Fleet)
try:
    run_fleet(kind(), title="vast", read_only="read-only" in sys.argv)
except TrainingMonitorError as error:
    print("error:", error)
    sys.exit(2)
except KeyboardInterrupt as interrupt:
    sys.exit(128 + (interrupt.args[0] if interrupt.args else 2))
"""


class FleetScreen(Screen):
    """The screen of one of the fleets above; its folder also gets `pid` and `asked`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "fleet.py").write_text(SCRIPT)

    def start(self, size: str, *command: str, before: str = "", then: str = "", **environ: str) -> None:
        command = (sys.executable, "fleet.py", *(command or ("mock",)))
        super().start(size, *command, before=before, then=then, **environ)

    def in_order(self) -> None:
        """Wait for the fleet, sort it by id, and go to its first member."""
        self.shows(r"^> \w+-\d\d ")
        self.press("s", "i", "g")
        self.shows("^> llama-00")

    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[FleetScreen]:
    found = FleetScreen(tmp_path)
    yield found
    found.tmux("kill-server")


def test_read_only_offers_no_change_and_refuses_it(screen: FleetScreen) -> None:
    screen.start("200x60", "mock", "read-only")
    screen.shows("read-only", r"m compare")
    assert "destroy" not in screen.text()
    for key in ("x", "D"):
        screen.press(key)
        screen.shows(f"read-only: {key} would")
    screen.press("?")
    screen.shows("clear the log lines")
    assert "destroy" not in screen.text()
    screen.press("q")
    screen.ended(0)
    assert screen.asked() == ["close"]


def test_it_follows_the_size_of_the_terminal(screen: FleetScreen) -> None:
    screen.start("80x24")
    screen.in_order()
    screen.press("Down", "Down")
    for size, shown in (("40x10", "^> lora-02"), ("30x8", "too small: 40x10"), ("5x2", "too"), ("200x60", "STEPS/S")):
        width, height = size.split("x")
        screen.tmux("resize-window", "-x", width, "-y", height)
        screen.shows(shown)
        assert len(screen.text().splitlines()) <= int(height)
    screen.tmux("resize-window", "-x", "80", "-y", "24")
    screen.hides("STEPS/S")
    screen.shows("^ vast", "^> lora-02", r"^q quit")
    screen.press("q")
    screen.shows("status=0")


@pytest.mark.parametrize("size", ["2x1", "300x100"])
def test_it_starts_in_any_size(screen: FleetScreen, size: str) -> None:
    screen.start(size)
    assert wait_until(
        lambda: screen.tmux("display-message", "-p", "#{alternate_on}") == "1\n" and screen.text().strip()
    )
    screen.press("Down", "Enter", "Escape", "?", "q")
    screen.given_back()
    assert screen.asked() == ["close"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_and_gives_the_terminal_back(screen: FleetScreen, name: str) -> None:
    screen.start("80x24")
    screen.in_order()
    number = signal.Signals[name]
    os.kill(screen.pid(), number)
    screen.ended(128 + number)
    assert screen.asked() == ["close"]
    assert "Traceback" not in screen.text()


def test_a_crash_gives_the_terminal_back_and_can_be_read(screen: FleetScreen) -> None:
    screen.start("80x24", "broken")
    screen.in_order()
    assert COLOURS.search(screen.tmux("capture-pane", "-p", "-e"))
    (screen.folder / "break").touch()
    screen.ended(1)
    screen.shows("ZeroDivisionError: broken on purpose")
    assert screen.asked() == ["close"]


@pytest.mark.parametrize("before", ["", "trap '' HUP;"], ids=["hangup", "nohup"])
def test_it_ends_with_its_terminal(screen: FleetScreen, before: str) -> None:
    screen.start("80x24", before=before)
    screen.in_order()
    pid = screen.pid()
    screen.tmux("kill-server")
    assert wait_until(lambda: pid not in pids())


def test_in_the_c_locale_all_is_ascii(screen: FleetScreen) -> None:
    screen.start("80x24", LANG="C", LC_ALL="")
    screen.in_order()
    screen.shows(r"^-- llama-00 30007001")
    assert screen.text().isascii()
    screen.press("Enter")
    screen.shows("^state")
    assert screen.text().isascii()
    screen.press("q")
    screen.ended(0)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "vt100"}], ids=["no-color", "vt100"])
def test_without_colours_health_is_still_told(screen: FleetScreen, environ: dict[str, str]) -> None:
    screen.start("80x24", **environ)
    screen.shows(r"^> \w+-\d\d ", "🔴 stalled", "🟡 running", "❓ unknown")
    assert not COLOURS.search(screen.tmux("capture-pane", "-p", "-e"))
    screen.press("Down", "Up", "End", "q")
    screen.shows("status=0")


@pytest.mark.parametrize(
    ("name", "said"), [("dumb", "does not support moving the cursor"), ("no-such-terminal", "is an unknown")]
)
def test_a_terminal_that_cannot_show_it_is_an_error(screen: FleetScreen, name: str, said: str) -> None:
    screen.start("80x24", TERM=name)
    screen.shows("error: TERM=", said, "--once", "status=2")
    assert not (screen.folder / "asked").exists()


def test_text_that_means_harm_stays_in_its_row(screen: FleetScreen) -> None:
    screen.start("200x60", "hostile")
    screen.shows(r"^>[ *]", r"^q quit")
    lines = screen.text().splitlines()
    assert all(f" {30007000 + number} " in lines[2 + number] for number in range(15))
    assert lines[0].startswith(" vast ") and lines[59].startswith("q quit")
    # tmux agrees on all widths: health stands in one column
    assert all("E1/3 70%" in line and line.rstrip().endswith(" step 700 of 1000, 9 s/step") for line in lines[2:17])


def test_sequences_that_terminfo_does_not_know_are_no_keys_and_no_key_is_lost(screen: FleetScreen) -> None:
    screen.start("80x24")
    screen.in_order()
    with open(screen.tmux("display-message", "-p", "#{pane_tty}").strip(), "w") as terminal:
        terminal.write("\x1b[3;1Hwall: the machine goes down\x1b[5;1H")
    screen.shows("wall: the machine")
    screen.press("C-l")  # what others wrote on the screen goes
    screen.hides("wall: the machine")
    screen.shows("^> llama-00", "^ vast")
    screen.press("?", "Escape", "Down", "Enter", "Escape", "j", "Escape", "NPage", "Escape", "Up")  # all at once
    screen.shows(r"^> \w+-(0[3-9]|1\d)", "^. *NAME ")
    screen.press("Escape", "Home")
    screen.shows("^> llama-00")
    screen.tmux("send-keys", "-H", *"1b 5b 42".split())
    screen.shows("^> vision-01")
    screen.tmux("send-keys", "-H", *"1b 5b 31 3b 35 44 1b 4f 44 1b 5b 32 30 30 7e".split())
    screen.press("j")
    screen.shows("^> lora-02", "^ vast")
    assert "destroy 1 member" not in screen.text()
    screen.press("q")
    screen.ended(0)


def test_a_message_leaves_its_line_to_the_keys_after_some_seconds(screen: FleetScreen) -> None:
    screen.start("80x24")
    screen.shows(r"^> \w+-\d\d ", "^Tab group")
    screen.press("m")
    screen.shows("^first mark two or more members with Space")
    screen.hides("^Tab group")
    screen.shows("^Tab group", seconds=30)


def test_a_shell_gets_the_terminal_and_gives_it_back(screen: FleetScreen) -> None:
    screen.start("80x24")
    screen.in_order()
    screen.press("$")
    screen.shows("^on vast://30007001")
    screen.hides("^> llama-00")
    screen.type("hello")
    screen.press("Enter")
    screen.shows("^> llama-00", "the shell exited with code 3")
    assert (screen.folder / "typed").read_text() == "hello\n"
    assert (screen.folder / "of_shell").read_text() == (screen.folder / "before").read_text()
    screen.press("Down")
    screen.shows("^> vision-01")
    screen.press("$")
    screen.shows("^on vast://30007002")
    screen.press("C-c")
    screen.shows("^> vision-01", "the shell exited with code")
    pid = screen.pid()
    screen.press("q")
    assert wait_until(lambda: pid not in pids())
