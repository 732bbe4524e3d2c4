"""A look at a Ray job, whose status and log are asked for side by side."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import FakeTransport, is_call
from training_monitor import JobStatus
from training_monitor.jobs import look_at_job

FAILED = (Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0" / "cli_rest_bad1.json").read_text()
EARLY, LATE = "step 24/60 loss=0.1\n", "step 24/60 loss=0.1\nRuntimeError: CUDA error: uncorrectable ECC error\n"


def ray(age: int, *logs: str | None) -> FakeTransport:
    """Where a job has failed, and its log is one text after the other, written to `age` seconds before it is read."""
    left = list(logs)

    def answer(script: str) -> tuple[str, int]:
        if not is_call(script, "ray_log"):
            return f"{FAILED}\nhttp 200\n", 0
        text = left.pop(0)
        return ("cli\nno\nray exit 1\n", 0) if text is None else (f"file {len(text)} {9000 - age} 9000\n{text}", 0)

    return FakeTransport(answer)


def test_the_last_words_of_a_job_that_has_just_failed_are_read_after_its_status() -> None:
    transport = ray(0, EARLY, LATE)
    view = look_at_job("local", "bad1", transport=transport)
    assert (view.status, view.log_tail, view.progress.step) == (JobStatus.FAILED, LATE, 24)
    assert len(transport.asked) == 2


def test_a_job_that_failed_long_ago_takes_one_round_trip() -> None:
    transport = ray(3600, LATE)
    assert look_at_job("local", "bad1", transport=transport).log_tail == LATE
    assert len(transport.asked) == 1


def test_what_was_read_first_stays_when_the_log_cannot_be_read_again() -> None:
    view = look_at_job("local", "bad1", transport=ray(0, EARLY, None))
    assert (view.status, view.log_tail, view.log_known) == (JobStatus.FAILED, EARLY, True)
