"""What the session of the `watch` screen takes in while `watch_training` looks at a target in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import BUSY, IDLE, Behaviour, FakeClock, FakeTraining, FakeTransport, gpu_answer
from training_monitor.core.errors import TargetUnreachable, TrainingMonitorError
from training_monitor.core.models import Event, Progress
from training_monitor.core.outcomes import TerminationPlan
from training_monitor.core.store import Store
from training_monitor.core.values import LogUpdate, TrainingStatus
from training_monitor.look.evidence import Evidence
from training_monitor.supervision.watch import watch_training
from training_monitor.supervision.watch_state import NOT_STALLING
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.ui.kit.view import Do
from training_monitor.ui.watch.app import KEPT_LINES, KEPT_LOSSES, WatchSession, _cores
from training_monitor.ui.watch.view import WatchSnapshot, WatchView, silence

JOB = {"log_file": "/log", "pid_file": "/pid", "output_dir": "/checkpoints"}
FINISHES = Behaviour(total=500, save_every=100)
HANGS = Behaviour(total=2000, hang_after=600, save_every=100)


class Bench:
    """A training in memory, its watcher and its session, and what the screen would show after each event."""

    def __init__(self, folder: Path, does: Behaviour = FINISHES, *, ends: bool = False, **config: Any) -> None:
        self.clock = FakeClock()
        self.there = FakeTraining(self.clock, does=does, gpus=gpu_answer(BUSY, 500))
        self.transport = FakeTransport(self.there.answer)
        self.ends = ends
        settings = {"poll_interval": 60, "grace_period": 300} | config
        self.watcher = TrainingWatcher(
            "local", JOB, settings, store=Store(str(folder)), transport=self.transport, clock=self.clock
        )
        self.session = WatchSession(self.watcher, ends=ends, streams=False)
        self.shots: list[WatchSnapshot] = []

    @property
    def shown(self) -> WatchSnapshot:
        return self.session.look(WatchView())[0]

    def _status(self, status: TrainingStatus) -> None:
        self.session.status(status)
        self.shots.append(self.shown)

    def _event(self, event: Event) -> None:
        self.session.event(event)
        self.shots.append(self.shown)

    def _looked(self, error: TrainingMonitorError | None) -> None:
        self.session.looked(error)
        self.shots.append(self.shown)

    def watch(self) -> None:
        watch_training(
            self.watcher,
            plan=TerminationPlan(destroy=False) if self.ends else None,
            on_status=self._status,
            on_event=self._event,
            on_look=self._looked,
            refresh=self.session.refresh,
        )

    def line(self, step: int, text: str = "a line", loss: float | None = 0.5) -> None:
        progress = Progress(step=step, total_steps=1000, loss=loss)
        self.session.line(LogUpdate(text, progress, NOT_STALLING, self.clock.time()))


def test_each_look_is_shown_with_the_next_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.shown.status is None and bench.shown.next_look_at is None
    bench.watch()
    looks = [each for each in bench.shots if each.status]
    first, second, last = looks[0], looks[1], looks[-1]
    assert first.status and last.status and last.status.verdict and last.status.verdict.state == "finished"
    assert first.next_look_at == first.now + 5 and second.next_look_at == second.now + 60
    assert first.gpus and first.folder == "/checkpoints"
    assert any("step 500/500" in line for line in last.lines) and len(set(last.lines)) == len(last.lines)
    known = [each.progress for each in looks if each.progress.step != 500]
    speeds = [each.steps_per_second for each in known if each.steps_per_second is not None]
    assert speeds and all(speed == pytest.approx(1.0, rel=0.05) for speed in speeds)


def test_a_log_that_is_not_there_yet_is_named_until_it_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.there.has_log = False
    bench.session.status(bench.watcher.poll())
    assert bench.shown.missing_log == "/log"
    bench.line(1)
    assert bench.shown.missing_log is None, "a line of it came"
    bench.session.status(bench.watcher.poll())
    assert bench.shown.missing_log == "/log"
    bench.there.has_log = True
    bench.session.status(bench.watcher.poll())
    assert bench.shown.missing_log is None
    bench.there.has_log = False
    bench.session.status(bench.watcher.poll())
    assert bench.shown.missing_log is None, "it has been there"


def test_an_outage_counts_from_its_first_failed_look(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    real = bench.transport.answer

    def no_answer(script: str) -> tuple[str, int]:
        raise TargetUnreachable("no route to host")

    bench.clock.at(100, lambda: setattr(bench.transport, "answer", no_answer))
    bench.clock.at(300, lambda: setattr(bench.transport, "answer", real))
    bench.watch()
    failing = [each for each in bench.shots if each.error]
    assert len({each.failing_since for each in failing}) == 1 and "no route to host" in (failing[0].error or "")
    assert failing[-1].now - (failing[-1].failing_since or 0) >= 120 and failing[-1].stale_since is not None
    after = bench.shots[bench.shots.index(failing[-1]) + 1 :]
    assert after and all(each.failing_since is None and each.stale_since is None for each in after)
    assert {"unreachable", "reached"} <= {event.kind for _, event in bench.shown.events}


def test_an_announced_termination_shows_time_and_phases(tmp_path: Path) -> None:
    bench = Bench(tmp_path, HANGS, ends=True)
    bench.clock.at(600, lambda: setattr(bench.there, "gpus", gpu_answer(IDLE)))
    bench.watch()
    announced = [each for each in bench.shots if each.ends_at is not None and each.phase is None]
    assert announced and announced[-1].ends_at is not None
    stopping = next(each for each in bench.shots if each.phase == "stopping")
    assert stopping.now >= announced[-1].ends_at
    phases = list(dict.fromkeys(each.phase for each in bench.shots if each.phase))
    assert phases == ["stopping", "inventory"]


def test_without_terminate_no_end_is_announced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, HANGS)
    bench.clock.at(600, lambda: setattr(bench.there, "gpus", gpu_answer(IDLE)))
    bench.clock.at(3000, lambda: bench.there.training.finish(bench.there.now))
    bench.watch()
    assert any(each.status and each.status.stall.is_stalling for each in bench.shots)
    assert all(each.ends_at is None and each.phase is None for each in bench.shots)


def test_a_look_is_had_when_it_is_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, poll_interval=100_000)
    bench.clock.at(50, lambda: bench.session.obey(WatchView(), Do("refresh")) and None)
    bench.clock.at(600, lambda: bench.session.obey(WatchView(), Do("refresh")) and None)
    bench.watch()
    times = [each.status.timestamp - bench.session.started_at for each in bench.shots if each.status]
    assert sorted({round(time) for time in times}) == [0, 5, 50, 600]
    assert not bench.session.refresh.is_set()


def test_a_line_between_two_looks_ends_the_silence(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.session.looked(None)
    bench.session.status(bench.watcher.poll())
    bench.clock.sleep(30)
    bench.line(77, "step 77/1000 loss 0.5")
    assert bench.shown.progress.step == 77 and bench.shown.lines[-1] == "step 77/1000 loss 0.5"
    assert silence(bench.shown) == 0.0
    bench.clock.sleep(7)
    bench.line(77, "no step in this one")
    assert silence(bench.shown) == 7.0


def test_the_speed_is_that_of_the_steps_where_the_log_tells_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for step in range(1, 100):
        bench.line(step)  # these were written before
    assert bench.shown.progress.steps_per_second is None
    for step in range(100, 130):
        bench.clock.sleep(0.5)
        bench.line(step)
    assert bench.shown.progress.steps_per_second == pytest.approx(2.0)
    bench.line(5)
    assert bench.shown.progress.steps_per_second == pytest.approx(2.0), "one step tells no speed"
    bench.clock.sleep(10)
    bench.line(6)
    assert bench.shown.progress.steps_per_second == pytest.approx(0.1), "it began again"


def test_what_is_kept_of_a_long_log_is_bounded_and_events_are_handed_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.clock.sleep(12)
    bench.session.tell("the heartbeat was refused")
    assert bench.session.events == [(12.0, Event("detected", "the heartbeat was refused"))]
    bench = Bench(tmp_path)
    for step in range(5000):
        bench.line(step, f"line {step}", loss=1.0 / (step + 1))
    shown = bench.shown
    assert len(shown.lines) == KEPT_LINES and shown.first_line == 5000 - KEPT_LINES + 1
    assert shown.lines[-1] == "line 4999" and len(shown.losses) <= KEPT_LOSSES
    assert shown.losses[0] == 1.0 and shown.losses[-1] == 1.0 / 5000


EARLIER = Evidence(process="1 2 b", cpu_seconds=100.0, runtime=50.0)


@pytest.mark.parametrize(
    ("before", "now", "cores"),
    [
        (None, Evidence(process="1 2 b", cpu_cores=0.7), 0.7),
        (EARLIER, Evidence(process="1 2 b", cpu_seconds=130.0, runtime=60.0), 3.0),
        (EARLIER, Evidence(process="9 9 b", cpu_seconds=130.0, runtime=60.0), None),
        (EARLIER, Evidence(process="1 2 b", cpu_seconds=90.0, runtime=60.0), None),
        (EARLIER, Evidence(process="1 2 b", cpu_seconds=130.0, runtime=50.0), None),
        (EARLIER, Evidence(process="1 2 b", runtime=60.0), None),
    ],
)
def test_the_processors_are_those_used_between_two_looks(
    before: Evidence | None, now: Evidence, cores: float | None
) -> None:
    assert _cores(before, now) == cores
