"""auto_restart against a target in memory: when it restarts, from where, how often, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import Behaviour, FakeClock, FakeJobs, FakeTransport
from training_monitor.models import Event
from training_monitor.reports import RestartReport
from training_monitor.store import Store
from training_monitor.supervise.restart import auto_restart

COMMAND = {"command": "python train.py", "env": {"SEED": "1"}}


class Bench:
    """A target, a clock, a store and what the supervisor said."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "state")
        self.clock = FakeClock()
        self.jobs = FakeJobs(self.clock)
        self.transport = FakeTransport(self.jobs.answer)
        self.events: list[Event] = []

    def restart(self, **changes: Any) -> RestartReport:
        options: dict[str, Any] = {"job_config": COMMAND, "store": Store(self.folder), "on_event": self.events.append}
        options |= {"transport": self.transport, "clock": self.clock} | changes
        return auto_restart("local", "run", "/checkpoints", **options)

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]

    def resumed_from(self) -> list[str | None]:
        return [job.env.get("RESUME_FROM_CHECKPOINT") for job in self.jobs.starts]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("random.random", lambda: 0.0)
    return Bench(tmp_path)


def test_a_job_that_succeeds_the_first_time_is_never_restarted(bench: Bench) -> None:
    report = bench.restart()
    assert (report["success"], report["reason"], report["total_retries"]) == (True, "completed", 0)
    assert report["final_step"] == 300 and report["job_id"] == "process:run-attempt-1"
    assert [job.command for job in bench.jobs.starts] == ["python train.py"]
    assert bench.jobs.starts[0].env == {"SEED": "1"}
