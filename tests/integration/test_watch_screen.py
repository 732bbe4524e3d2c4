"""The screen of `watch` in a real terminal (tmux), over trainings that write, stall, fail, end and are killed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import Place, SshServer, Surroundings, kill, wait_until
from tests.integration.screens import Screen
from training_monitor.cli.demo_training import new_weights, save_checkpoint

# It writes into its log what it reads, and ends with the status that is its last line.
TRAINING = 'echo $$ >pid; {first} while read -r line; do case $line in exit*) $line;; esac; echo "$line"; done'


GOES_ON = "trap : INT;"  # the shell around it, when Ctrl-C is pressed


@dataclass
class Training:
    """A training on this machine that does what the test tells it, with a log, a pid file and a checkpoint folder."""

    folder: Path
    process: subprocess.Popen[str]

    @property
    def options(self) -> tuple[str, ...]:
        return "--log", str(self.folder / "log"), "--pid-file", str(self.folder / "pid")

    def write(self, *lines: str) -> None:
        """Let it write these lines."""
        assert self.process.stdin
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()
        if lines[-1].startswith("exit"):
            self.process.wait(60)
            return
        assert wait_until(lambda: lines[-1] in (self.folder / "log").read_text())


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[Callable[..., Training]]:
    found: list[Training] = []

    def begin(first: str = "") -> Training:
        folder = surroundings.folder / "run"
        folder.mkdir()
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(
                ["sh", "-c", TRAINING.format(first=first)],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        found.append(Training(folder, process))
        found[-1].write(*(f"step {step}/40 loss {1 / step:.3f}" for step in range(1, 6)))
        return found[-1]

    yield begin
    for each in found:
        kill(each.process.pid)
        each.process.wait()


class WatchScreen(Screen):
    """`training-monitor watch`, of a training on this machine or on another target."""

    def watch(
        self, training: Training, *options: str, target: str = "local", size: str = "118x40", **environ: str
    ) -> None:
        """Start it, and wait until it has looked."""
        words = (sys.executable, "-m", "training_monitor", "watch", target, *training.options, *options)
        self.start(size, *words, before=GOES_ON, **environ)
        self.shows(r"seen \S+ ago", r"step 5/40")


@pytest.fixture
def screen(surroundings: Surroundings) -> Iterator[WatchScreen]:
    (surroundings.folder / "screen").mkdir()
    found = WatchScreen(surroundings.folder / "screen")
    yield found
    found.tmux("kill-server")


# ---------------------------------------------------------------- what is shown


@pytest.mark.parametrize("size", ["80x24", "200x60"])
def test_all_that_is_known_is_on_the_screen(start: Callable[..., Training], screen: WatchScreen, size: str) -> None:
    training = start()
    output = training.folder / "out"
    output.mkdir()
    save_checkpoint(output, new_weights(), 4)
    save_checkpoint(output, new_weights(), 5)
    file = output / "step_5" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    screen.watch(training, "--output-dir", str(output), "--interval", "5", size=size)  # the second look tells the CPU
    screen.shows(
        r"run/log +local +seen \d+s ago +next check in",
        "^── RUNNING",
        "^verdict +",
        "^last step +.* ago",
        r"^progress +\[.* 12.5 % +step 5/40",
        "^pace .*steps/s +ETA",
        "^loss +0.2000",
        "^GPU",
        rf"^process +pid {training.process.pid} +running +CPU \S+ % +memory \d.* +1 process",
        "since .*ago|since ..:..:.. ",
        "^checkpoint +step 4, .* old, .*, complete",
        "^ +step 5, .* incomplete",
        "^── log ─",
        "^step 5/40 loss 0.200",
    )
    training.write("step 6/40 loss 0.100")
    screen.shows(r"15.0 % +step 6/40", "^loss +0.1000", "^step 6/40 loss 0.100")
    screen.press("q")
    screen.ended(130)


def test_a_small_screen_shows_the_worst_and_scrolls_to_the_rest(
    start: Callable[..., Training], screen: WatchScreen
) -> None:
    screen.watch(start(), size="40x10")
    screen.shows("^── RUNNING", "^verdict", "^last step", "more line|more …|more l")
    for _ in range(30):
        screen.press("Down")
    screen.shows("^step 5/40 loss 0.200")
    screen.press("Home")
    screen.shows("^verdict")
    screen.tmux("resize-window", "-x", "118", "-y", "40")
    screen.shows("^verdict", "^process", "^step 5/40 loss 0.200", "e events  . help")
    screen.tmux("resize-window", "-x", "30", "-y", "5")
    screen.shows("too small: 40x10")
    screen.press("q")
    screen.ended(130)


def test_every_page_is_reached_and_left(start: Callable[..., Training], screen: WatchScreen) -> None:
    training = start()
    screen.watch(training, size="80x24")
    training.write(*(f"step {step}/40 loss 0.1" for step in range(6, 36)))
    screen.press("l")
    screen.shows("^── log  lines 16 to 35 of 35 lines  following", "^step 35/40")
    screen.press("Up", "PPage")
    screen.shows("^── log  lines 1 to .*End follows it", "^step 1/40")
    training.write("step 36/40 loss 0.1")
    screen.shows("of 36 lines  End follows it", "^step 1/40")
    screen.press("End")
    screen.shows("following", "^step 36/40")
    screen.press("e")
    screen.shows("^── . events?, newest first", "milestone|50 ?%|75 ?%|Progress")
    screen.press("?")
    screen.shows("^── keys", "show only the log, and scroll it")
    screen.press("Escape")
    screen.shows("^verdict")
    screen.press("C-c")
    screen.ended(130)


def test_no_color_and_missing_unicode_are_respected(start: Callable[..., Training], screen: WatchScreen) -> None:
    screen.watch(start(), NO_COLOR="1", TRAINING_MONITOR_ASCII="1")
    screen.shows("^-- RUNNING", r"^last step +\[")
    assert screen.text().isascii()
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", screen.tmux("capture-pane", "-p", "-e"))
    screen.press("q")
    screen.ended(130)


@pytest.mark.parametrize(("options", "environ"), [(("--plain",), {}), ((), {"TERM": "nobodys-terminal"})])
def test_one_line_is_drawn_where_no_screen_is_wanted(
    start: Callable[..., Training], screen: WatchScreen, options: tuple[str, ...], environ: dict[str, str]
) -> None:
    training = start()
    words = (sys.executable, "-m", "training_monitor", "watch", "local", *training.options, *options)
    screen.start("118x40", *words, before=GOES_ON, **environ)
    screen.shows(r"^ +\d+\.\ds  \[##\.+\]  12%  step 5/40  loss 0.2")
    assert bool(environ) is ("no screen: TERM='nobodys-terminal' is an unknown terminal type" in screen.text())
    assert "verdict" not in screen.text()
    screen.press("C-c")
    screen.shows("interrupted; nothing was stopped", "status=130")


def test_in_the_background_it_draws_a_line_and_is_not_stopped(
    start: Callable[..., Training], screen: WatchScreen
) -> None:
    training = start()
    words = (sys.executable, "-m", "training_monitor", "watch", "local", *training.options, "--interval", "1")
    screen.start("118x40", "sh", "-mc", f"{shlex.join(words)} & wait")
    screen.shows(r"12%  step 5/40  loss 0.2")
    training.write(*(f"step {step}/40 loss 0.1" for step in range(6, 41)), "exit 0")
    screen.shows("finished at step 40 of 40")


# ---------------------------------------------------------------- leaving


@pytest.mark.parametrize(
    ("key", "said"),
    [("q", "^the screen was closed; nothing was stopped"), ("C-c", "^interrupted; nothing was stopped")],
)
def test_leaving_stops_nothing(start: Callable[..., Training], screen: WatchScreen, key: str, said: str) -> None:
    training = start()
    screen.watch(training, "--terminate")
    screen.press(key)
    screen.shows(said)
    screen.ended(130)
    assert ("interrupted" in screen.text()) is (key == "C-c")
    assert training.process.poll() is None
    words = (sys.executable, "-m", "training_monitor", "watch", "local", *training.options, "--terminate")
    again = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert again.stdout and "step 5/40" in again.stdout.readline(), "its claim was let go"
    again.send_signal(signal.SIGINT)
    assert "nothing was stopped" in again.communicate(timeout=60)[1] and training.process.poll() is None


def test_what_cannot_be_watched_is_said_after_the_screen(
    start: Callable[..., Training], screen: WatchScreen, surroundings: Surroundings
) -> None:
    words = (sys.executable, "-m", "training_monitor", "watch", "local", "--job", "process:nothing")
    screen.start("118x40", *words)
    screen.shows("error: local: no training 'nothing'")
    screen.ended(2)


def test_a_finished_training_closes_the_screen(start: Callable[..., Training], screen: WatchScreen) -> None:
    training = start()
    screen.watch(training, "--interval", "1")
    training.write(*(f"step {step}/40 loss 0.1" for step in range(6, 41)), "exit 0")
    screen.shows(r"^ +\d+\.\ds +finished ", "^finished at step 40 of 40")
    screen.ended(0)


def test_a_failed_or_killed_training_closes_the_screen_with_its_evidence(
    start: Callable[..., Training], screen: WatchScreen
) -> None:
    training = start()
    screen.watch(training, "--interval", "1")
    training.write("RuntimeError: CUDA error: an illegal memory access was encountered")
    os.killpg(training.process.pid, signal.SIGKILL)
    screen.shows("^failed at step 5.*illegal memory access")
    screen.ended(1)


# ---------------------------------------------------------------- stalls and terminations

SOON = ("--interval", "1", "--stall-after", "1", "--stop-grace", "3")


def test_a_stall_is_shown_with_its_silence_and_limit(start: Callable[..., Training], screen: WatchScreen) -> None:
    training = start()
    screen.watch(training, *SOON, "--grace-period", "1h", "--terminate")
    screen.shows("^── STALLED", r"^last step +\[█{20}\]  .* ago, limit ", "ETA -", "Training Stall Detected")
    screen.shows(r"it will be stopped at (..:..:..|..-.. ..:..), in (1h00m|59m(..s)?) unless it makes progress")
    for step in range(6, 12):
        training.write(f"step {step}/40 loss 0.1")
    screen.hides("STALLED")
    screen.shows("^── RUNNING", "Training Recovered|recovered|resumed")
    screen.press("q")
    screen.ended(130)


def test_a_termination_is_shown_step_by_step_and_ends_the_screen(
    start: Callable[..., Training], screen: WatchScreen
) -> None:
    training = start(first="trap '' TERM;")
    screen.watch(training, *SOON, "--grace-period", "1", "--terminate", "--terminate-busy")
    screen.shows("^ending it +stopping +> inventory", "^── events", "stopping +stopping ")
    screen.shows("^terminated at step 5", "processes: none of its processes is left", r"^ +\d+\.\ds +stopped ")
    screen.ended(1)
    assert training.process.wait(60) == -signal.SIGKILL


def test_an_interrupted_termination_says_how_it_goes_on(start: Callable[..., Training], screen: WatchScreen) -> None:
    training = start(first="trap '' TERM;")
    options = (*SOON, "--stop-grace", "8", "--grace-period", "1", "--terminate", "--terminate-busy")
    screen.watch(training, *options)
    screen.shows("^ending it +stopping")
    screen.press("q")
    screen.shows("interrupted while the training was being stopped: repeat the command to continue")
    screen.ended(130)
    screen.tmux("kill-server")
    words = (sys.executable, "-m", "training_monitor", "watch", "local", *training.options, *options)
    done = subprocess.run(words, capture_output=True, text=True)
    assert "none of its processes is left" in done.stdout and training.process.wait(60)


# ---------------------------------------------------------------- another machine


def test_a_target_that_gives_no_answer_is_grey_until_it_answers_again(
    over_ssh: Place, sshd: SshServer, start: Callable[..., Training], screen: WatchScreen
) -> None:
    training = start()
    screen.watch(training, "--interval", "2", target=over_ssh.address)
    screen.shows(rf"pid {training.process.pid} +running")
    sshd.stop()
    over_ssh.disconnect()
    screen.shows(
        r"^stale since \d\d:\d\d:\d\d: ",
        r"^no response for \d+s, trying again",
        "^── [A-Z]+ when last seen",
        "step 5/40",
    )
    screen.shows("unreachable +cannot reach the target: ")
    training.write("step 6/40 loss 0.1")
    sshd.start()
    screen.shows("^── [A-Z]+ (for|─)", "step 6/40 loss 0.1", "reached .* responds again after")
    screen.hides("no response for")
    screen.press("q")
    screen.ended(130)
    assert training.process.poll() is None
