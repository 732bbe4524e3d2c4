"""What many threads print at once comes out line by line, and a signal in the midst of it holds nobody up."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable

import pytest

from tests.fakes import FakeClock
from training_monitor.cli.live import LiveDisplay, LiveLine, Waiting
from training_monitor.cli.output import (
    complain,
    hint,
    interrupted_status,
    print_json,
    print_table,
    put,
    put_masked,
    put_report,
    say,
    wrapped,
)
from training_monitor.cli.rented_jobs import ServiceDisplay
from training_monitor.core import masking
from training_monitor.core.models import Event, JobStatus, JobView, Progress, RunOutcome
from training_monitor.ui.kit.text import cells

THREADS, LINES = 8, 40
JSON_ARGS = Namespace(subcommand="run", json=True)


class YieldingStream(io.StringIO):
    """A stream on which another thread runs after each write, as on a pipe with a slow reader."""

    def write(self, text: str) -> int:
        written = super().write(text)
        time.sleep(0)
        return written


class InterruptedStream(io.StringIO):
    """A stream whose first write is interrupted by Ctrl-C, or finds that nobody reads any more."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._errors = [error]

    def write(self, text: str) -> int:
        if self._errors:
            raise self._errors.pop()
        return super().write(text)


def in_threads(act: Callable[[int], None]) -> None:
    """Let `act` run in many threads at once, which begin together."""
    together = threading.Barrier(THREADS)

    def run(number: int) -> None:
        together.wait()
        for line in range(LINES):
            act(number * LINES + line)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def listen(monkeypatch: pytest.MonkeyPatch, name: str = "stdout") -> io.StringIO:
    """What is printed from now on; not a fixture, for pytest puts its own streams back before a test is called."""
    stream = YieldingStream()
    monkeypatch.setattr(sys, name, stream)
    return stream


def test_documents_and_complaints_of_many_threads_have_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = listen(monkeypatch)
    in_threads(lambda number: print_json(JSON_ARGS, {"number": number, "text": "x\ny" * 50}))
    rows = [json.loads(line) for line in stdout.getvalue().splitlines()]
    assert sorted(row["number"] for row in rows) == list(range(THREADS * LINES))
    stderr = listen(monkeypatch, "stderr")
    in_threads(lambda number: (complain if number % 2 else hint)(f"line {number}"))
    wanted = {f"{'error: ' if number % 2 else ''}line {number}" for number in range(THREADS * LINES)}
    assert set(stderr.getvalue().splitlines()) == wanted


def test_lines_events_and_plain_live_lines_of_many_threads_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = listen(monkeypatch)
    live = LiveLine(0.0, FakeClock())

    def act(number: int) -> None:
        says = (say, live.draw, lambda text: live.print_event(Event("reached", text)))
        says[number % 3](f"line {number} end")

    in_threads(act)
    lines = stdout.getvalue().splitlines()
    whole = [re.fullmatch(r"(?:   0\.0s  (?:reached     )?)?line (\d+) end", line) for line in lines]
    assert sorted(int(line[1]) for line in whole if line) == list(range(THREADS * LINES))


@pytest.mark.parametrize("error", [KeyboardInterrupt(15), BrokenPipeError()])
def test_a_line_that_is_interrupted_keeps_no_later_one_back(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    stream = InterruptedStream(error)
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(type(error)):
        say("one")
    other = threading.Thread(target=say, args=("two",), daemon=True)
    other.start()
    other.join(10.0)
    assert stream.getvalue() == "two\n"


def test_a_diagnostic_does_not_wait_for_a_result_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = listen(monkeypatch, "stderr")
    writing, released = threading.Event(), threading.Event()

    class StuckStream(io.StringIO):
        def write(self, text: str) -> int:
            writing.set()
            released.wait()
            return super().write(text)

    stuck = StuckStream()
    monkeypatch.setattr(sys, "stdout", stuck)
    thread = threading.Thread(target=say, args=("result",), daemon=True)
    thread.start()
    assert writing.wait(10.0)
    hint("interrupted")
    said = stuck.getvalue()
    released.set()
    thread.join(10.0)
    assert (said, stderr.getvalue()) == ("", "interrupted\n")
    assert stuck.getvalue() == "result\n"


def test_a_live_line_on_a_terminal_is_replaced_by_an_event_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    clock = FakeClock()
    live = LiveLine(1.0, clock)
    clock.sleep(2.5)
    live.print_event(Event("reached", "step\x1b[2J 5\r"))
    assert written == ["\r\x1b[K   2.5s  reached     step 5\n\n"]


def test_lines_break_between_words_on_a_terminal_and_nowhere_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "its processes do not compute\nlog /runs/a-folder-with-a-long-name/train.log"
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert wrapped(text, 2) == text.replace("\n", "\n  ")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "24")
    assert wrapped(text, 2).split("\n  ") == [
        "its processes do not", "compute", "log", "/runs/a-folder-with-a-long-name/train.log",
    ]  # fmt: skip
    assert wrapped("step 9/90  loss 0.9  4 steps/s", 2) == "step 9/90  loss 0.9\n  4 steps/s"
    on_terminal(monkeypatch, 20)
    assert wrapped("  a  b") == "  a  b"
    assert wrapped("漢字漢字漢字 漢字漢字") == "漢字漢字漢字\n漢字漢字"
    assert wrapped(f"see {'x' * 30} and", 2) == f"see\n  {'x' * 30}\n  and"


def show_steps(monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, int | None]) -> list[str]:
    stdout = listen(monkeypatch)
    display = LiveDisplay(Namespace(subcommand="run", json=False))
    for job, step in steps:
        display.show(Event("progress", "", job, view=JobView(job, JobStatus.RUNNING, progress=Progress(step=step))))
    return stdout.getvalue().splitlines()


def test_the_first_known_step_is_printed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = show_steps(monkeypatch, ("first", None), ("first", 3), ("first", 9), ("second", 12))
    assert [line.split()[-1] for line in told] == ["?", "3", "12"]


def test_what_is_put_is_neither_buffered_nor_masked_twice_and_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdout = listen(monkeypatch)
    say("\x1b[31mred\x1b[0m \x07bell \u202eturned")
    assert stdout.getvalue() == "red ?bell turned\n"
    stdout = listen(monkeypatch)
    monkeypatch.setattr(masking._Known, "values", ("12345678",))
    put("cost 0.12345678\n")
    put_masked("cost 0.12345678\n")
    assert stdout.getvalue() == "cost 0.***\ncost 0.12345678\n"
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))  # type: ignore[type-var]
    put("a line\nand a part")
    assert raw.getvalue() == b"a line\nand a part"


def test_an_event_as_json_tells_by_a_key_how_the_run_ended(capsys: pytest.CaptureFixture[str]) -> None:
    LiveDisplay(JSON_ARGS).show(Event("finished", "stopped: by alice", outcome=RunOutcome.STOPPED))
    ServiceDisplay(JSON_ARGS).event(Event("finished", "completed", "demo-1", outcome=RunOutcome.COMPLETED))
    ended = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["kind"], each["outcome"]) for each in ended] == [("finished", "stopped"), ("finished", "completed")]


@pytest.mark.parametrize(
    ("said", "status"), [((), 130), ((15,), 143), (("no longer watching a, which keeps running",), 130)]
)
def test_an_interrupt_is_the_status_of_its_signal(said: tuple[object, ...], status: int) -> None:
    assert interrupted_status(KeyboardInterrupt(*said)) == status


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> io.StringIO:
    stdout = listen(monkeypatch)
    monkeypatch.setattr(stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    return stdout


def test_report_continues_below_text_behind_label(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = on_terminal(monkeypatch, 40)
    put_report("  Ray          no dashboard and no answer of ray\n  ! GPU 2 idle with memory in use by others")
    assert stdout.getvalue().splitlines() == [
        "  Ray          no dashboard and no",
        "               answer of ray",
        "  ! GPU 2 idle with memory in use by",
        "    others",
    ]


def test_table_columns_align_wide_characters_and_names_keep_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = on_terminal(monkeypatch, 26)
    rows = [("訓練🚀", "1"), (f"vast://{'0' * 30}7", "2"), (f"no {'method ' * 9}", "3")]
    print_table(("NAME", "N"), rows, gives_way=(0,))
    lines = stdout.getvalue().splitlines()
    assert {cells(line[: line.rindex(line[-1])]) for line in lines} == {25}
    assert lines[2].split()[0].endswith("07") and lines[3].split("  ")[0].endswith("…")


def test_each_silence_is_told_until_there_is_news() -> None:
    clock, told = FakeClock(), list[str]()
    waiting = Waiting(told.append, every=30, clock=clock)
    waiting.on("market", "asking vast.ai")
    for _ in range(9):
        clock.sleep(10)
        waiting.look()
    assert told == [f"asking vast.ai: no update for {time}" for time in ("30s", "1m", "1m30s")]
    waiting.on("market", "asking vast.ai")
    clock.sleep(29)
    waiting.look()
    waiting.end("market")
    clock.sleep(60)
    waiting.look()
    assert len(told) == 3


def test_what_is_over_when_it_is_asked_for_is_not_told_again() -> None:
    clock, told = FakeClock(), list[str]()
    states = iter(["job-1 is training", None])
    waiting = Waiting(told.append, every=30, clock=clock)
    waiting.on("job-1", lambda: next(states))
    for _ in range(4):
        clock.sleep(30)
        waiting.look()
    assert told == ["job-1 is training: no update for 30s"]
