"""State of the terminal after a full-screen display has ended: modes, cursor, mouse and echo are restored."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.terminals import Terminal, python

NAMES = "INT TERM HUP QUIT ABRT ALRM USR1 USR2 XCPU VTALRM PROF TRAP SYS POLL PWR STKFLT"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # by these themselves
SIGNALS = [getattr(signal, f"SIG{name}") for name in NAMES.split()]
VAST = ("-m", "training_monitor", "vast", "--mock")
WATCH = ("-m", "training_monitor", "watch", "local", "--log", "log", "--pid-file", "pid", "--interval", "1")
FLEET_OF_TARGETS = ("-m", "training_monitor", "fleet", "local#log")
TOP = ("-m", "training_monitor", "top", "progress")
CHILD = """
import os, signal, sys, threading
from training_monitor.ui.kit import terminal as kit
how = sys.argv[1]
with kit.open_terminal() as terminal:
    if how == "drawing":
        terminal.draw((((object(), ""),),))
    terminal.draw(((("it is here", ""),),))
    while (names := terminal.keys(1.0)) is not None:
        if "x" in names:
            break
    if how == "error":
        raise ZeroDivisionError
    if how == "exit":
        sys.exit(7)
    if how == "memory":
        raise MemoryError
    if how == "thread":
        threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGQUIT)).start()
        while True:
            terminal.keys(1.0)
    if how == "closing":
        try:
            raise ZeroDivisionError
        finally:
            os.kill(os.getpid(), signal.SIGQUIT)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    found: list[Terminal] = []

    (tmp_path / "log").write_text("".join(f"step {step}/40 loss 0.5\n" for step in range(1, 6)))
    (tmp_path / "pid").write_text(str(os.getpid()))
    (tmp_path / "progress" / "my-run").mkdir(parents=True)
    document = {"status": "FINISHED", "start_time": 1.0, "metadata": {"pid": 7}}
    (tmp_path / "progress" / "my-run" / "progress.json").write_text(json.dumps(document))

    def begin(*words: str) -> Terminal:
        environ = {"TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
        found.append(Terminal(*python(*words), environ=environ, folder=tmp_path))
        return found[-1]

    yield begin
    for each in found:
        each.close()


SCREENS = [(VAST, "PROGRESS"), (FLEET_OF_TARGETS, "PROGRESS"), (WATCH, "last step"), (TOP, "my-run")]
every_screen = pytest.mark.parametrize(("command", "shown"), SCREENS, ids=["vast", "fleet", "watch", "top"])


def _is_taken(terminal: Terminal) -> bool:
    return terminal.modes() == {"1049": "h", "25": "l", "1000": "h", "1006": "h", "1": "h", "keypad": "="}


# Every screen meets each way to end, and a small program each signal, by which it ends as it likes.
SMALL = ("child.py", "", "signals")
ENDINGS = [(SMALL, "it is here", number) for number in SIGNALS]
ENDINGS += [(*screen, number) for screen, number in zip(SCREENS, (signal.SIGQUIT, signal.SIGTERM) * 2)]
ENDINGS += [(TOP, "my-run", number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)]


@pytest.mark.parametrize(
    ("command", "shown", "number"), ENDINGS, ids=[f"{command[2]} {number.name}" for command, _, number in ENDINGS]
)
def test_a_signal_leaves_the_terminal_and_ends_with_its_status(
    start: Callable[..., Terminal], tmp_path: Path, command: tuple[str, ...], shown: str, number: int
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    screen = start(*command)
    screen.shows(shown)
    assert _is_taken(screen) and not screen.is_as_before()
    if number == signal.SIGQUIT:
        screen.press("\x1c")
    else:
        os.kill(screen.pid, number)
    status = screen.ended()
    if command != SMALL:
        assert status == number if number in ENDS else os.WEXITSTATUS(status) == 128 + number
    assert screen.is_as_before(), (screen.modes(), screen.output[-500:])
    assert not [*tmp_path.glob("core*")]


@pytest.mark.parametrize(
    ("how", "status"), [("error", 1), ("exit", 7), ("memory", 1), ("drawing", 1), ("thread", None), ("closing", None)]
)
def test_an_error_leaves_the_terminal(
    start: Callable[..., Terminal], tmp_path: Path, how: str, status: int | None
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    screen = start("child.py", how)
    if how != "drawing":
        screen.shows("it is here")
        screen.press("x")
    ended = screen.ended()
    assert status is None or (os.WIFEXITED(ended) and os.WEXITSTATUS(ended) == status), screen.output
    assert not os.WCOREDUMP(ended)
    assert screen.is_as_before(), (screen.modes(), screen.output[-500:])


@pytest.mark.parametrize(("command", "shown"), SCREENS[2:], ids=["watch", "top"])
def test_many_signals_at_once_leave_the_terminal(
    start: Callable[..., Terminal], command: tuple[str, ...], shown: str
) -> None:
    for number in (0, 4) if command == TOP else [2]:
        screen = start(*command)
        screen.shows(shown)
        screen.press("\x03\x03")
        for _ in range(60):
            time.sleep(0.0005 * number)
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(screen.pid, signum)  # works until the parent waits for it
        screen.ended()
        assert screen.is_as_before(), (screen.modes(), screen.output[-500:])


SHELL = """
import os, signal, sys
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
while os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]):
    pass
"""


@every_screen
def test_a_stopped_screen_leaves_the_terminal_and_takes_it_again(
    start: Callable[..., Terminal], command: tuple[str, ...], shown: str
) -> None:
    """A small shell starts it, without which nothing is stopped by its key."""
    screen = start("-c", SHELL, *command)
    screen.shows(shown)
    [child] = map(int, Path(f"/proc/{screen.pid}/task/{screen.pid}/children").read_text().split())
    screen.press("\x1a")
    screen.stopped(child)
    assert screen.is_as_before(), screen.modes()
    for number in (signal.SIGTSTP, signal.SIGSTOP):  # there is no notice of the second one
        screen.output = b""
        os.kill(child, signal.SIGCONT)
        screen.shows("\x1b[?1049h", shown)
        screen.wait(lambda: _is_taken(screen))
        os.kill(child, number)
        screen.stopped(child)
        assert screen.is_as_before() == (number == signal.SIGTSTP)
    os.kill(child, signal.SIGCONT)
    screen.wait(lambda: screen.text().count(shown) == 2)
    screen.press("q")
    screen.ended()
    assert screen.is_as_before()


@pytest.mark.parametrize("keys", ["\x03", "\x1c\x1c\x03"])
def test_keys_that_end_the_demo_leave_neither_its_training_nor_its_folder(
    start: Callable[..., Terminal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    screen = start("-m", "training_monitor", "demo")
    screen.shows("attempt 1", "[#")
    screen.press(keys)
    status = screen.ended()
    assert status == signal.SIGINT or os.WEXITSTATUS(status) == 131, screen.output[-500:]
    assert screen.is_as_before() and os.listdir(tmp_path / "temporary") == []
    assert not [each for each in Path("/proc").glob("[0-9]*") if str(tmp_path / "temporary") in command_of(each)]


def command_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
