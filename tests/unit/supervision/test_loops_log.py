"""What auto_restart and monitor_job log by themselves, and when they print nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes import Behaviour, FakeClock, FakeJobs, FakeTransport
from tests.unit.supervision.test_auto_restart import Bench
from training_monitor.core.logger import get_logger, setup_logging
from training_monitor.supervision.monitor import monitor_job

LINE = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO run: .+")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("random.random", lambda: 0.0)
    monkeypatch.setattr(get_logger(), "handlers", [])
    for name in ("LEVEL", "FILE"):
        monkeypatch.delenv(f"TRAINING_MONITOR_LOG_{name}", raising=False)
    return Bench(tmp_path)


@contextmanager
def no_logging() -> Iterator[None]:
    """Without the handlers that pytest adds for each test."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = handlers


def watch(**options: object) -> None:
    clock = FakeClock()
    jobs = FakeJobs(clock)
    jobs.add("job", Behaviour(total=60))
    monitor_job("local", "process:job", transport=FakeTransport(jobs.answer), clock=clock, **options)  # type: ignore[arg-type]


def test_each_event_is_a_line_on_stdout_with_its_time(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.jobs.behaviours = [Behaviour(crash_after=50, last_words="RuntimeError: \x1b[31mred \x07bell"), Behaviour()]
    with no_logging():
        bench.restart(on_event=None)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert (
        any("run-attempt-1 started" in line for line in lines) and "red" in out and lines[-1].endswith("run: completed")
    )
    assert any("step 30/300" in line for line in lines) and "\x1b" not in out and "\x07" not in out
    assert not [each for each in get_logger().handlers if not isinstance(each, logging.NullHandler)]


def test_the_looks_of_monitor_job_are_lines_too(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        watch()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("INFO process:job: RUNNING step 30/60") for line in lines), lines
    assert "process:job: SUCCEEDED" in lines[-1]


def test_whoever_hears_the_events_gets_no_lines(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        bench.restart()
        watch(on_view=lambda view: None)
        watch(on_status_change=lambda new, old: None)
    assert capsys.readouterr().out == ""


def test_the_level_and_the_file_of_the_environment_are_obeyed(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_LOG_LEVEL", "WARNING")
    with no_logging():
        bench.restart(on_event=None)
    assert capsys.readouterr().out == ""
    monkeypatch.delenv("TRAINING_MONITOR_LOG_LEVEL")
    monkeypatch.setenv("TRAINING_MONITOR_LOG_FILE", str(tmp_path / "log"))
    bench.jobs.jobs.clear()
    with no_logging():
        bench.restart()
    assert "run: completed" in (tmp_path / "log").read_text() and capsys.readouterr().out == ""


def test_a_configured_logging_is_left_as_it_is(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [handler] = setup_logging(log_file=str(tmp_path / "own")).handlers
    with no_logging():
        bench.restart(on_event=None)
    assert "run: completed" in (tmp_path / "own").read_text() and capsys.readouterr().out == ""
    assert get_logger().handlers == [handler]
    get_logger().removeHandler(handler)
    handler.close()


def test_two_loops_at_once_share_the_lines(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.clock.at(100, watch)
    with no_logging():
        bench.restart(on_event=None)
    out = capsys.readouterr().out
    assert out.count("process:job: SUCCEEDED: ") == 1 and out.endswith("run: completed\n")
