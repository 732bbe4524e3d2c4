"""Watching a job without acting on it: what ends the watch, what does not, and what a look amounts to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import Behaviour, FakeClock, FakeJobs, FakeStream, FakeTransport, FakeVast
from training_monitor.core.clock import SystemClock
from training_monitor.core.errors import JobNotFound, SettingsError
from training_monitor.core.models import JobView
from training_monitor.core.reports import MonitorReport
from training_monitor.core.results import CommandResult
from training_monitor.core.values import WatchedJob
from training_monitor.supervision.monitor import JobMonitor, detect_stall, monitor_job, start_background_monitor

JOB = "process:job"


class Watched:
    """A job in memory, and the functions of the module pointed at it."""

    def __init__(self, behaviour: Behaviour, *, started: float = 0.0) -> None:
        self.clock = FakeClock()
        self.jobs = FakeJobs(self.clock)
        self.job = self.jobs.add("job", behaviour, started=started)
        self.transport = FakeTransport(self.jobs.answer)

    @property
    def reach(self) -> dict[str, Any]:
        return {"transport": self.transport, "clock": self.clock}

    def watch(self, job_id: str = JOB, **options: Any) -> MonitorReport:
        return monitor_job("local", job_id, **(self.reach | options))

    def monitor(self, **options: Any) -> JobMonitor:
        return JobMonitor("local", JOB, **(self.reach | options))

    def stalls(self, **options: Any) -> bool:
        return detect_stall("local", JOB, **(self.reach | options))


# ---------------------------------------------------------------- monitor_job


def test_a_job_is_watched_until_it_succeeds_and_every_look_and_change_is_handed_over() -> None:
    changes, views = list[tuple[str, str | None]](), list[JobView]()
    report = Watched(Behaviour(total=100)).watch(
        check_interval=30, on_status_change=lambda new, old: changes.append((new, old)), on_view=views.append
    )
    assert (report["status"], report["final_step"], report["job_id"]) == ("SUCCEEDED", 100, JOB)
    assert report["duration"] == 120 and report["reason"] == "exit code 0"
    assert changes == [("RUNNING", None), ("SUCCEEDED", "RUNNING")]
    assert [view.progress.step for view in views] == [None, 30, 60, 90, 100]


def test_a_job_is_watched_until_it_fails_and_its_cause_is_given() -> None:
    report = Watched(Behaviour(crash_after=70, exit_code=137)).watch()
    assert (report["status"], report["final_step"]) == ("FAILED", 70)
    assert report["reason"] == "failed at step 70 of 300: exit code 137 (SIGKILL)"


def test_a_job_that_a_person_stops_ends_as_stopped() -> None:
    watched = Watched(Behaviour())
    watched.clock.at(70, watched.jobs.stop_by_person)
    report = watched.watch()
    assert (report["status"], report["reason"]) == ("STOPPED", "stopped by a person")


def test_a_job_that_stalls_ends_the_watch_once_and_is_left_running() -> None:
    watched, stalls = Watched(Behaviour(hang_after=100)), []
    report = watched.watch(stagnation_threshold=300, on_stall=lambda: stalls.append(watched.clock.elapsed))
    assert report["status"] == "STALLED" and report["final_step"] == 100
    assert report["reason"] == "no step for 5m20s, limit 5m20s"
    assert stalls == [420] and report["duration"] == 420
    assert watched.jobs.running() == [watched.job]


def test_a_watch_ends_when_its_time_is_over_and_the_job_goes_on() -> None:
    watched = Watched(Behaviour(total=10_000))
    report = watched.watch(check_interval=30, timeout=100)
    assert (report["status"], report["duration"], report["final_step"]) == ("TIMEOUT", 100, 100)
    assert report["reason"] == "still RUNNING after 100 s"
    assert watched.jobs.running() == [watched.job]


def test_an_outage_ends_nothing_and_is_no_stall() -> None:
    watched = Watched(Behaviour(total=1000))
    watched.jobs.unreachable(100, 700)
    report = watched.watch(stagnation_threshold=60)
    assert (report["status"], report["final_step"]) == ("SUCCEEDED", 1000)


def test_a_job_that_vanishes_later_is_unknown_after_two_looks() -> None:
    watched = Watched(Behaviour(total=1000))
    watched.clock.at(100, watched.jobs.lose_everything)
    report = watched.watch()
    assert (report["status"], report["final_step"], report["duration"]) == ("UNKNOWN", 90, 150)
    assert "no job" in report["reason"]


def test_the_end_of_a_process_is_looked_at_at_once_when_the_target_tells_it() -> None:
    class Telling(FakeTransport):
        def stream(self, argv: Any, *, input: str | None = None) -> FakeStream:
            class Ended(FakeStream):
                def chunks(self) -> Iterator[bytes]:
                    return iter([b"waiting\nend", b"ed\n"])

            return Ended()

    class Patient(FakeClock):
        def wait(self, event: threading.Event, seconds: float) -> bool:
            assert event.wait(30), "the watch never told the end"
            return super().wait(event, seconds)

    clock = Patient()
    jobs = FakeJobs(clock)
    jobs.add("job", Behaviour(total=1000))
    views: list[JobView] = []

    def look(view: JobView) -> None:
        views.append(view)
        if len(views) == 1:
            jobs.stop_by_person()

    report = monitor_job("local", JOB, 600, on_view=look, transport=Telling(jobs.answer), clock=clock)
    assert report["status"] == "STOPPED" and report["duration"] == 0 and len(views) == 2


class Streams(FakeTransport):
    """A transport that notes the scripts it holds connections for, which say nothing."""

    def stream(self, argv: Any, *, input: str | None = None) -> FakeStream:
        self.streamed.append(input)
        return FakeStream()


def test_the_end_of_a_job_is_followed_by_its_id_whatever_its_name_is() -> None:
    watched = Watched(Behaviour(total=100))
    transport = Streams(watched.jobs.answer)
    monitor_job("local", WatchedJob(job_id=JOB, name="llama"), transport=transport, clock=watched.clock)
    assert transport.streamed and all("llama" not in (script or "") for script in transport.streamed)


def test_an_instance_that_has_moved_is_asked_at_its_new_address() -> None:
    class Moving(FakeVast):
        port = 22

        def run(self, words: tuple[str, ...], program: str | None) -> CommandResult:
            found = super().run(words, program)
            return replace(found, stdout=found.stdout.replace("22", str(self.port)))

    watched, vast = Watched(Behaviour(total=300)), Moving()
    transport = Streams(watched.jobs.answer)

    def ssh(words: tuple[str, ...], program: str | None) -> CommandResult:
        if str(vast.port) in words:
            return transport.answer_all(words, program)
        return CommandResult(words, 255, "", "ssh: connect to host 1.2.3.4: Connection refused", 0.0)

    transport.register(["ssh"], ssh)
    watched.clock.at(100, lambda: setattr(vast, "port", 2222))
    report = monitor_job("vast://7", JOB, transport=vast.attach(transport), clock=watched.clock)
    assert (report["status"], report["final_step"]) == ("SUCCEEDED", 300)


def test_a_look_that_fails_is_not_handed_over() -> None:
    watched, views = Watched(Behaviour(total=300)), list[JobView]()
    watched.jobs.unreachable(100, 250)
    watched.watch(on_view=views.append)
    assert [view.progress.step for view in views] == [None, 30, 60, 90, 270, 300]


def test_an_update_tells_status_and_times_and_the_summary_speed_and_eta() -> None:
    watched = Watched(Behaviour(total=1000))
    monitor = watched.monitor()
    nothing = {"total_steps": None, "avg_throughput": None, "eta_seconds": None}
    assert monitor.update()["current_step"] is None and monitor.get_progress_summary() == nothing
    watched.clock.sleep(30)
    found = monitor.update()
    assert (found["status"], found["current_step"]) == ("RUNNING", 30)
    assert (found["runtime"], found["time_since_last_step"], found["throughput"]) == (30, 0, None)
    assert monitor.get_progress_summary() == nothing | {"total_steps": 1000}
    watched.clock.sleep(100)
    monitor.update()
    assert monitor.get_progress_summary() == {"total_steps": 1000, "avg_throughput": 1.0, "eta_seconds": 870.0}


def test_a_monitor_sees_a_stall_only_between_the_threshold_and_the_end() -> None:
    watched = Watched(Behaviour(hang_after=60))
    monitor, seen = watched.monitor(), {}
    assert not monitor.is_stalled(0.001)
    for _ in range(10):
        monitor.update()
        seen[watched.clock.elapsed] = monitor.is_stalled(100)
        watched.clock.sleep(30)
    assert [when for when, stalled in seen.items() if stalled] == [180, 210, 240, 270]
    assert monitor.stall_reason(100) == "no step for 3m30s, limit 1m40s"
    watched.jobs.stop_by_person()
    watched.clock.sleep(500)
    monitor.update()
    assert not monitor.is_stalled(0.001)


# ---------------------------------------------------------------- detect_stall


@pytest.mark.parametrize(("started", "stalled"), [(-301.0, False), (-1190.0, False), (-1201.0, True)])
def test_before_the_first_step_a_silent_job_has_four_times_as_long(started: float, stalled: bool) -> None:
    watched = Watched(Behaviour(quiet=True, save_every=None, hang_after=1.0), started=started)
    assert watched.stalls(stagnation_threshold=300, sample_duration=1) is stalled
    watched = Watched(Behaviour(quiet=True, save_every=None, hang_after=1.0), started=started)
    report = watched.watch(stagnation_threshold=300, check_interval=1, timeout=2)
    assert (report["status"] == "STALLED") is stalled


@pytest.mark.parametrize(
    ("does", "started", "stalls", "looks"),
    [
        (Behaviour(hang_after=100), -500, True, 1),
        (Behaviour(hang_after=100), -200, False, 1),
        (Behaviour(total=10_000), -500, False, 1),
        (Behaviour(total=10_000, quiet=True, save_every=None), -500, False, 2),
        (Behaviour(crash_after=10), -5000, False, 1),
    ],
    ids=["silent for long enough", "silent, not yet", "makes steps", "the first look does not tell", "has ended"],
)
def test_a_job_is_looked_at_twice_only_if_one_look_does_not_tell(
    does: Behaviour, started: float, stalls: bool, looks: int
) -> None:
    watched = Watched(does, started=started)
    assert watched.stalls(stagnation_threshold=300, sample_duration=60) is stalls
    assert watched.clock.slept == [60] * (looks - 1) and len(watched.transport.asked) == looks


def test_a_silence_that_has_reached_the_threshold_at_a_later_look_is_a_stall() -> None:
    watched = Watched(Behaviour(hang_after=100), started=-200)
    assert not watched.stalls(stagnation_threshold=150)
    watched.clock.sleep(60)
    assert watched.stalls(stagnation_threshold=150)


def test_a_stall_of_nothing_is_an_error() -> None:
    with pytest.raises(JobNotFound):
        detect_stall("local", "process:nowhere", **Watched(Behaviour()).reach)


# ---------------------------------------------------------------- start_background_monitor


def test_a_background_monitor_calls_back_and_shows_no_line_of_the_log() -> None:
    watched, reports = Watched(Behaviour(total=100)), []
    named = WatchedJob(job_id=JOB, name="llama")
    thread: Any = start_background_monitor("local", named, 30, reports.append, **watched.reach)
    thread.join(30)
    assert not thread.is_alive() and thread.daemon and thread.job_id == "llama"
    assert thread.result["status"] == "SUCCEEDED" and thread.error is None
    assert reports == [thread.result]
    assert thread.verdict and thread.verdict.state == "finished" and thread.observations[-1].step == 100
    asked = len(watched.transport.asked)
    for shown in (repr(thread), thread._repr_html_()):
        assert "finished" in shown and "llama" in shown and "step" in shown and "loss=" not in shown
        assert "SUCCEEDED: exit code 0" in shown and "\n" not in repr(thread)
    assert len(watched.transport.asked) == asked, "showing it asks nothing"


@pytest.mark.parametrize(("job", "error"), [("process:nowhere", JobNotFound), ("process:a/b", SettingsError)])
def test_a_background_monitor_keeps_the_error_and_does_not_call_back(job: str, error: type[Exception]) -> None:
    watched, reports = Watched(Behaviour()), []
    thread: Any = start_background_monitor("local", job, 30, reports.append, **watched.reach)
    thread.join(30)
    assert isinstance(thread.error, error) and thread.result is None and reports == []


def test_a_background_monitor_that_has_not_looked_knows_nothing() -> None:
    gate = threading.Event()
    transport = FakeTransport(lambda script: (gate.wait(60), ("", 0))[1])
    thread = start_background_monitor("local", JOB, 30, transport=transport)
    assert "unknown (unknown): not checked yet" in repr(thread) and thread.verdict is None
    assert "unknown" in thread._repr_html_() and "watching" in repr(thread)
    thread.stop()
    gate.set()
    thread.join(60)


def test_a_background_monitor_that_is_stopped_leaves_the_job_running() -> None:
    watched, looked = Watched(Behaviour(total=10**9)), threading.Event()
    clock = SystemClock()
    thread = start_background_monitor(
        "local", JOB, 3600, on_view=lambda view: looked.set(), transport=watched.transport, clock=clock
    )
    assert looked.wait(60)
    thread.stop()
    thread.join(60)
    assert not thread.is_alive() and thread.result is None and thread.error is None
    assert watched.jobs.running() == [watched.job] and "stopped" in repr(thread)
