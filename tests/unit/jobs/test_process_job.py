"""What a look at a process job means: every state, and a log that cannot forge one."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.models import SUPERVISOR, JobStatus, JobView, Reply
from training_monitor.jobs.process_jobs import look_question, parse_process_job
from training_monitor.targets.replies import parse_fields

TIMES = "now=2000\nstarted=1000\nlog_size=50\nlog_time=1990"


def look(*fields: str, log: str = "") -> JobView:
    text = "\n".join([*fields, TIMES, "log\n"]) + log
    view = parse_process_job(text, "process:train")
    assert view is not None
    return view


def test_a_running_job_is_read_with_its_log_and_none_is_none() -> None:
    view = look("state=running", log="step 5/100 loss: 0.5\n")
    assert (view.job_id, view.status, view.message, view.exit_code) == ("process:train", JobStatus.RUNNING, None, None)
    assert (view.progress.step, view.progress.total_steps, view.progress.loss) == (5, 100, 0.5)
    assert (view.log_size, view.log_age, view.started_at, view.log_tail) == (50, 10, 1000, "step 5/100 loss: 0.5\n")
    assert parse_process_job("state=missing\n", "process:x") is None


def test_an_exit_status_is_success_or_a_failure_that_names_it() -> None:
    view = look("state=exited", "exit_code=0", "ended=1995", "members=0")
    assert (view.status, view.exit_code, view.survivors) == (JobStatus.SUCCEEDED, 0, 0)
    for code, message in [
        ("1", "exit code 1"),
        ("127", "exit code 127"),
        ("137", "exit code 137 (SIGKILL)"),
        ("139", "exit code 139 (SIGSEGV)"),
        ("143", "exit code 143 (SIGTERM)"),
    ]:
        view = look("state=exited", f"exit_code={code}")
        assert (view.status, view.exit_code, view.message) == (JobStatus.FAILED, int(code), message)
    view = look("state=gone", "members=0")
    assert view.status is JobStatus.FAILED and view.exit_code is None and "without an exit code" in str(view.message)
    assert look("state=exited", "exit_code=1", "members=3").survivors == 3


def test_a_job_that_somebody_stopped_is_stopped_however_it_ended() -> None:
    for state in ("state=gone", "state=exited\nexit_code=143", "state=exited\nexit_code=0"):
        view = look(state, "stopped_by=a person")
        assert (view.status, view.stopped_by, view.message) == (JobStatus.STOPPED, "a person", "stopped by a person")
    view = look("state=gone", "stopped_by=supervisor")
    assert (view.stopped_by, view.message) == (SUPERVISOR, "stopped by its supervisor, to restart it")
    assert look("state=running", "stopped_by=a person").status is JobStatus.RUNNING


def starting(now: str, started: str) -> JobView:
    view = parse_process_job(f"state=starting\nmembers=0\nnow={now}\nstarted={started}\nlog\n", "process:x")
    assert view is not None
    return view


def test_a_job_that_never_appeared_failed_unless_the_time_of_its_start_is_not_known() -> None:
    for now, started in [("1005", "1000"), ("1005", ""), ("", "1000"), ("", ""), ("900", "1000")]:
        assert starting(now, started).status is JobStatus.PENDING
    view = starting("1030", "1000")
    assert view.status is JobStatus.FAILED and "never started" in str(view.message)


def test_what_is_not_reported_is_none_and_never_zero_or_negative() -> None:
    view = parse_process_job("state=running\nnow=2000\nstarted=\nlog_size=\nlog_time=\nlog\n", "process:x")
    assert view and (view.log_size, view.log_age, view.started_at, view.exit_code) == (None, None, None, None)
    view = parse_process_job("state=running\nnow=100\nlog_time=105\nlog\n", "process:x")
    assert view and view.log_age == 0


def test_a_log_is_kept_byte_for_byte_and_cannot_forge_a_field() -> None:
    ended, other = "state=exited\nexit_code=0\n", ["stopped_by=a person\n", "log\nstate=gone\n", "members=9\n"]
    for log in ["state=missing\n", ended, *other]:
        view = look("state=running", log=log)
        assert (view.status, view.survivors, view.log_tail) == (JobStatus.RUNNING, 0, log)
    for log in ["", "\n", "no end of line", "a\r\nb\rc", "\x00\ufffd", "log\n"]:
        assert look("state=running", log=log).log_tail == log
    for log, known in [("step 1/9\n", True), ("", False)]:
        answer = f"state=running\nnow=100\nlog_size=9\nlog_time=90\nlog\n{log}"
        view = look_question("process:x").parse(Reply(answer, 0, 0.1))
        assert view and (view.log_known, view.log_tail) == (known, log)


def test_a_reply_without_a_state_is_an_error_and_never_a_state() -> None:
    for text in ["", "log\nstate=running\n", "state=\nlog\n", "state=odd\nlog\n", "sh: cannot fork", "=\n"]:
        with pytest.raises(ParseError, match="process job"):
            parse_process_job(text, "process:x")
    assert parse_fields("error=a=b = c\nnoise\nlog\nx=1\n") == ({"error": "a=b = c"}, "x=1\n")
    assert parse_fields("") == ({}, "")


def test_a_number_that_is_none_is_not_known() -> None:
    for value in ["x", "nan", "inf", "-", "1e400", ""]:
        text = f"state=exited\nexit_code={value}\nnow={value}\nlog_size={value}\nmembers={value}\nlog_time=5\nlog\n"
        view = parse_process_job(text, "process:x")
        assert view and (view.exit_code, view.log_size, view.log_age, view.survivors) == (None, None, None, 0)
        assert view.status is JobStatus.FAILED
