"""The log of a training is kept on this machine to its last line, for the other one is destroyed with it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.fakes import EPOCH, Behaviour, FakeClock, FakeJobs, FakeStream, FakeTransport, is_call, read_cursor
from tests.job_states import STEPS
from training_monitor.core.errors import TargetUnreachable
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.job_context import JobContext, Lease, Service
from training_monitor.rent.queue import TrainingQueue
from training_monitor.rent.training_step import TrainingStep
from training_monitor.vast.training_request import JobState, JobWork, Rental, TrainingRequest

RENTED = JobWork(attempt=1, asked_at=EPOCH, instance_id=7, rentals=(Rental(7, 1, 0.5, EPOCH, machine_id=55),))
REFUSAL = '{"error": true, "status_code": 500, "msg": "internal"}\n'
QUIET = Behaviour(total=100, save_every=None)
MOST_STEPS = 100
BETWEEN = 500.0  # seconds between two steps: a training ends in them, and nobody polls its log before that is seen


class MainClock(FakeClock):
    """Time that the test's own thread moves: the threads beside it look once, and then wait until they are ended."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread():
            return super().wait(event, seconds)
        return event.wait()


@dataclass
class Machine(FakeJobs):
    """A target whose logs can be read behind a cursor; `log_answer` is what it says of them instead."""

    log_answer: str | None = None
    is_lost_at_the_end: bool = False  # whoever asks for the log of a job that has ended gets no answer

    def answer(self, script: str) -> tuple[str, int]:
        return (self._read_log(script), 0) if is_call(script, "log") else super().answer(script)

    def _read_log(self, script: str) -> str:
        asked = re.search(r"^file=.*/([^/\s]+)/log$", script, re.MULTILINE)
        assert asked, "a question about a log that is none of a process job"
        job = self.jobs.get(asked[1])
        if self.is_lost_at_the_end and job and job.exit(self.now):
            raise TargetUnreachable("connection refused", argv=("ssh",))
        if self.log_answer or job is None:
            return self.log_answer or "state=missing\n"
        does = job.behaviour
        text = "".join(f"step {each}/{does.total}\n" for each in range(job.first_step + 1, job.step(self.now) + 1))
        text += f"{does.last_words}\n" if does.last_words and job.exit(self.now) else ""
        fields = {"state": "read", "inode": 7, "offset": len(text), "check": "c", "reset": "", "skipped": 0, "held": 0}
        return "".join(f"{key}={value}\n" for key, value in fields.items()) + f"log\n{text[read_cursor(script)[1] :]}"


class Streamless(FakeTransport):
    """A way over which every held connection breaks at once."""

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> FakeStream:
        return FakeStream()


class World:
    """A job that trains on one rented machine, and its worker."""

    def __init__(self, folder: Path, max_retries: int = 5, max_instances: int = 3) -> None:
        self.clock = MainClock()
        self.machine = Machine(self.clock, [QUIET])
        self.market_answers = True
        transport = Streamless(self.machine.answer)
        transport.register(["ssh"], transport.answer_all)
        transport.register(["vastai"], self.vastai)
        store = Store(str(folder / "state"))
        queue = TrainingQueue(store, clock=self.clock)
        config = ServiceConfig(max_retries=max_retries)
        service = Service(store, queue, config, "me", "host", self.clock, threading.Event(), transport)
        job = queue.submit(TrainingRequest("lora", command="train", max_instances=max_instances))
        claimed = queue.claim("me", 99_999.0, job.id)
        assert claimed
        for state in STEPS[: STEPS.index(JobState.TRAINING) + 1]:
            claimed = queue.save(replace(claimed, state=state, work=RENTED), "me")
        self.context = JobContext(service, claimed, Lease(service, claimed))

    def vastai(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        assert words[1:3] == ("show", "instance")
        row = {"id": 7, "actual_status": "running", "ssh_host": "1.2.3.4", "ssh_port": 22}
        return CommandResult(words, 0, json.dumps(row) if self.market_answers else REFUSAL, "", 0.1)

    @contextmanager
    def training(self) -> Iterator[TrainingStep]:
        """A worker has the training in its hands."""
        with closing(TrainingStep(self.context)) as step:
            yield step

    def train(self, step: TrainingStep) -> JobState:
        """Let the training come to its end; what a step raises ends it before."""
        for _ in range(MOST_STEPS):
            step.step()
            if self.context.job.state is not JobState.TRAINING:
                return self.context.job.state
            self.clock.sleep(BETWEEN)
        raise AssertionError("it trains for ever")

    def run(self) -> JobState:
        with self.training() as step:
            return self.train(step)

    @property
    def log(self) -> list[str]:
        return (Path(self.context.local_folder) / "training.log").read_text().splitlines()


def steps(last: int, total: int = 100) -> list[str]:
    return [f"step {each}/{total}" for each in range(1, last + 1)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_log_is_kept_to_its_last_line_without_connection_and_market(world: World) -> None:
    world.machine.behaviours = [replace(QUIET, last_words="Training completed")]
    with world.training() as step:
        world.market_answers = False
        assert world.train(step) is JobState.UPLOADING
    assert world.log == [*steps(100), "Training completed"]


def test_that_a_training_is_over_is_told_after_the_last_line_of_its_log(tmp_path: Path) -> None:
    world, shown = World(tmp_path), list[str]()
    world.context.service = replace(
        world.context.service,
        on_event=lambda event: shown.append(event.kind) if event.outcome else None,
        on_line=lambda update: shown.append(update.line),
    )
    assert world.run() is JobState.UPLOADING
    assert shown == [*steps(100), "finished"]


def test_last_words_of_a_failed_attempt_are_kept(world: World) -> None:
    crash = replace(QUIET, crash_after=25.0, last_words="RuntimeError: boom")
    world.machine.behaviours = [crash, QUIET]
    assert world.run() is JobState.UPLOADING
    assert world.log == [*steps(25), "RuntimeError: boom", *steps(100)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_machine_that_does_not_answer_at_the_end_is_asked_again_for_the_rest(world: World, is_killed: bool) -> None:
    world.machine.is_lost_at_the_end = True
    with world.training() as step:
        for _ in range(2):
            with pytest.raises(TargetUnreachable):
                world.train(step)
        assert world.context.job.state is JobState.TRAINING
        world.machine.is_lost_at_the_end = False
        assert is_killed or world.train(step) is JobState.UPLOADING
    assert not is_killed or world.run() is JobState.UPLOADING  # whoever goes on keeps the rest once
    assert world.log == steps(100)


@pytest.mark.parametrize("answer", ["state=other\n", "state=denied\n", "no stat here\n"])
def test_a_log_that_cannot_be_read_does_not_keep_the_model_from_being_saved(world: World, answer: str) -> None:
    world.machine.log_answer = answer
    assert world.run() is JobState.UPLOADING
    [warning] = world.context.job.work.warnings
    assert "attempt-1 was not saved" in warning


@pytest.mark.parametrize("starts", [True, False])
def test_a_training_that_failed_waits_for_no_machine_and_warns_of_no_log(tmp_path: Path, starts: bool) -> None:
    world = World(tmp_path, max_retries=0)
    world.machine.behaviours, world.machine.is_lost_at_the_end = [replace(QUIET, crash_after=25.0)], True
    world.machine.refuse_starts = None if starts else "no such folder"
    assert world.run() is JobState.DESTROYING
    assert world.context.job.work.outcome is JobState.FAILED
    assert starts or world.context.job.work.warnings == ()


@pytest.mark.parametrize(("most", "end"), [(2, JobState.REPLACING), (1, JobState.UPLOADING)])
def test_a_training_that_a_gpu_ended_stays_on_its_last_allowed_machine(
    tmp_path: Path, most: int, end: JobState
) -> None:
    world = World(tmp_path, max_instances=most)
    words = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    world.machine.behaviours = [replace(QUIET, crash_after=25.0, last_words=words), QUIET]
    assert world.run() is end


def test_the_newest_step_stays_when_an_older_part_of_the_log_is_read_again(world: World) -> None:
    with world.training() as step:
        while (world.context.job.work.step or 0) < 20:
            step.step()
            world.clock.sleep(10.0)
        watcher, newest = step._watcher, world.context.job.work.step
        assert watcher and newest and watcher.state.cursor
        status, end = watcher.poll(), watcher.state.cursor
        older = replace(status, progress=replace(status.progress, step=7))
        for offset, kept in [(end.offset - 50, newest), (end.offset, newest), (end.offset + 70, 7)]:
            watcher.state.cursor = replace(end, offset=offset)
            step._note(older)
            assert world.context.job.work.step == kept, offset
        watcher.state.cursor = replace(end, inode=end.inode + 1, offset=3)  # another log, as after a restart
        step._note(replace(status, progress=replace(status.progress, step=5)))
        assert world.context.job.work.step == 5
