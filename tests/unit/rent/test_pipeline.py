"""Jobs against a market in memory, from the step in which something goes wrong: no machine left, no wrong verdict."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, FakeClock, FakeJobs, FakeTransport, is_call, read_call
from tests.integration.conftest import wait_until
from tests.job_states import STEPS
from tests.loopback.vast_rows import offer
from training_monitor.core.errors import (
    LeaseLost,
    LocalFailure,
    SettingsError,
    StateError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import Event
from training_monitor.core.outcomes import UploadReport
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.rent import finishing_steps, instance_steps
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.file_lists import INCOMING, PARTIAL
from training_monitor.rent.job_context import JobContext, Lease, Service
from training_monitor.rent.pipeline import run_job
from training_monitor.rent.queue import TrainingQueue
from training_monitor.rent.sweeper import sweep_instances, watch_sweeps
from training_monitor.rent.training_step import TrainingStep, find_lost
from training_monitor.rent.worker import run_worker
from training_monitor.vast.cost import seconds_left
from training_monitor.vast.training_request import (
    Hook,
    JobState,
    JobWork,
    QueuedJob,
    Rental,
    TrainingRequest,
    TrainingSpec,
)

HOUR = 3600.0
REQUEST = TrainingRequest("lora", command="train")
RENTAL = Rental(7, 1, 0.5, EPOCH, machine_id=55)
RENTED = JobWork(attempt=1, asked_at=EPOCH, instance_id=7, rentals=(RENTAL,))
REFUSAL = '{"error": true, "status_code": 500, "msg": "internal"}\n'
NO_CREDIT = '{"error": true, "status_code": 400, "msg": "Your account lacks credit; see the billing page."}\n'


@dataclass
class World:
    """A worker with its store, vast.ai, and one kind of machine behind ssh."""

    store: Store
    clock: FakeClock = field(default_factory=FakeClock)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    answers: Iterator[bool] | None = None  # whether vast.ai answers a `show instance`; None: always
    events: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    config: ServiceConfig = field(default_factory=ServiceConfig)

    def __post_init__(self) -> None:
        self.queue = TrainingQueue(self.store, clock=self.clock)
        self.jobs = FakeJobs(self.clock)
        self.transport = FakeTransport(self.jobs.answer)
        self.transport.register(["ssh"], lambda words, program: self.transport.answer_all(words, program))
        self.transport.register(["vastai"], self.vastai)
        self.rows[7] = {"id": 7, "actual_status": "running", "ssh_host": "1.2.3.4", "ssh_port": 22}

    def vastai(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        answer: object = ""
        if words[1:3] == ("show", "instance"):
            if self.answers and not next(self.answers):
                return CommandResult(words, 0, "", REFUSAL, 0.1)
            answer = self.rows.get(int(words[3]), {"instances": None})
        elif words[1:3] == ("show", "instances"):
            answer = {"instances": list(self.rows.values()), "next_token": None}
        elif words[1:3] == ("search", "offers"):
            answer = [{"dph_total": 0.5, **offer(1)}]
        elif words[1:3] == ("create", "instance"):
            return CommandResult(words, 0, "", NO_CREDIT, 0.1)
        elif words[1:3] == ("destroy", "instance"):
            if self.rows.pop(int(words[3]), None) is None:
                return CommandResult(words, 0, "", f"Failed with error 404: Instance {words[3]} not found\n", 0.1)
            return CommandResult(words, 0, f"destroying instance {words[3]}.\n", "", 0.1)
        return CommandResult(words, 0, json.dumps(answer), "", 0.1)

    @property
    def reach(self) -> dict[str, Any]:
        return {"store": self.store, "transport": self.transport, "clock": self.clock}

    @property
    def service(self) -> Service:
        def heard(event: Event) -> None:
            self.events.append(event.text)

        return Service(
            self.store, self.queue, self.config, "me", "host", self.clock, self.stopping, self.transport, None, heard
        )

    def job(self, state: JobState, work: JobWork = RENTED, request: TrainingRequest = REQUEST) -> QueuedJob:
        """A job that this worker holds, and that came to where it is the long way."""
        job = self.queue.submit(request)
        claimed = self.queue.claim("me", 60.0, job.id)
        assert claimed
        way = [*STEPS[: STEPS.index(state) + 1]] if state in STEPS else [*STEPS[:4], state]
        for each in way:
            claimed = self.queue.save(replace(claimed, state=each, work=work), "me")
        return claimed

    def context(self, job: QueuedJob) -> JobContext:
        return JobContext(self.service, job, Lease(self.service, job))

    def run(self, job: QueuedJob) -> QueuedJob:
        return run_job(self.service, job)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    return World(Store(str(tmp_path / "state")))


# ---------------------------------------------------------------- machines that are lost


@pytest.mark.parametrize("reason", ["it no longer exists", "could not be reached"])
def test_a_machine_that_went_or_never_answered_is_given_up(world: World, reason: str) -> None:
    if reason == "it no longer exists":
        world.rows.clear()
    else:
        world.jobs.unreachable(0.0, 99 * HOUR)
    ended = world.run(world.job(JobState.TRAINING, request=replace(REQUEST, max_instances=1)))
    assert (ended.state, world.clock.elapsed < HOUR, world.rows) == (JobState.FAILED, True, {})
    assert ended.work.reason and reason in ended.work.reason


def test_a_training_that_could_not_be_begun_holds_no_lock(world: World) -> None:
    world.jobs.unreachable(0.0, 10.0)
    context = world.context(world.job(JobState.TRAINING))
    gc.disable()
    try:
        with pytest.raises(TargetUnreachable):
            TrainingStep(context)
        with world.store.hold(f"vast://7 {context.job.id}.1"):
            pass
    finally:
        gc.enable()


def test_a_lost_machine_is_noticed_although_requests_fail_but_not_in_an_outage(world: World) -> None:
    context = world.context(world.job(JobState.TRAINING))
    world.answers = iter([True] + 200 * [False] + [True, True])
    for _ in range(203):
        assert find_lost(context) is None
        world.clock.sleep(30.0)
    begun, world.answers = world.clock.elapsed, iter([True, True, False] * 1000)
    context = world.context(context.job)
    while not (reason := find_lost(context)):
        world.clock.sleep(30.0)
        assert world.clock.elapsed - begun < 2 * HOUR
    assert "could not be reached for" in reason


def test_a_bad_machine_is_remembered_after_a_takeover(world: World) -> None:
    world.rows.clear()
    ended = replace(RENTAL, ended_at=EPOCH + 60)
    context = world.context(world.job(JobState.REPLACING, replace(RENTED, instance_id=None, rentals=(ended,))))
    instance_steps.replace_instance(context)
    assert (context.job.state, context.job.work.bad_machines) == (JobState.RENTING, (55,))


def test_a_limit_that_passes_in_replacing_is_obeyed_once_the_machine_is_gone(world: World) -> None:
    """The machine was given up: nothing of it is saved, and no other one is rented."""
    world.clock.sleep(5 * HOUR)
    context = world.context(world.job(JobState.REPLACING))
    assert (context.limit, context.must_end) == (None, False)
    ended = world.run(context.job)
    assert ended.work.reason and ended.work.reason.startswith("hard timeout")
    assert (ended.state, ended.work.attempt, world.rows) == (JobState.FAILED, 2, {})


def test_a_job_has_no_more_machines_than_it_may_have(world: World) -> None:
    for attempt, state in ((2, JobState.RENTING), (3, JobState.DESTROYING)):
        context = world.context(world.job(JobState.REPLACING, replace(RENTED, attempt=attempt, instance_id=None)))
        instance_steps.replace_instance(context)
        assert context.job.state is state
    assert context.job.work.reason and context.job.work.reason.startswith("tried 3 machines")


class UnreadableStore(Store):
    """A state file that cannot be used while `fails`; `tries` counts what was tried meanwhile."""

    fails, tries = False, 0

    def transaction(self, *, durable: bool = True) -> Any:
        if self.fails:
            self.tries += 1
            raise StateError("disk I/O error")
        return super().transaction(durable=durable)


def test_a_lease_that_cannot_be_renewed_is_lost_after_half_its_period(tmp_path: Path) -> None:
    store = UnreadableStore(str(tmp_path / "unreadable"))
    world = World(store, config=ServiceConfig(lease_seconds=0.2))

    def try_again() -> None:
        before = store.tries
        assert wait_until(lambda: store.tries > before + 2 or lease.lost, 60.0)

    with Lease(world.service, world.job(JobState.TRAINING)) as lease:
        store.fails = True
        try_again()
        world.clock.sleep(0.09)
        try_again()
        assert not lease.lost
        store.fails = False  # once it works, the next failure counts from its own beginning
        renewed = world.queue.list_jobs()[0].lease_until
        world.clock.sleep(1.0)
        assert wait_until(lambda: world.queue.list_jobs()[0].lease_until != renewed, 60.0)
        store.fails = True
        try_again()
        assert not lease.lost
        world.clock.sleep(0.11)
        assert wait_until(lambda: lease.lost, 60.0)


# ---------------------------------------------------------------- failures of this side


def test_a_full_disk_here_ends_no_worker_and_leaves_no_machine(world: World, tmp_path: Path) -> None:
    (tmp_path / "state" / "jobs").write_text("in the way")
    (tmp_path / "images").mkdir()
    request = TrainingRequest("lora", str(tmp_path / "images"), TrainingSpec("lora", "me"), hard_timeout=900)
    ended = world.run(world.job(JobState.SYNCING, request=request))
    assert (ended.state, world.rows) == (JobState.FAILED, {})
    assert any("NotADirectoryError" in text for text in world.events)


def test_a_model_that_cannot_be_written_here_is_not_destroyed_with_its_machine(world: World, tmp_path: Path) -> None:
    (tmp_path / "state" / "jobs").write_text("in the way")
    world.jobs.checkpoints[50] = None
    context = world.context(world.job(JobState.UPLOADING))
    with pytest.raises(TrainingMonitorError, match="the model exists only on the rented machine"):
        finishing_steps.upload(context)
    assert context.job.state is JobState.UPLOADING
    assert "could not be copied" in context.job.work.warnings[0]


def test_what_cannot_be_saved_at_the_end_does_not_keep_the_machine(world: World, tmp_path: Path) -> None:
    (tmp_path / "state" / "jobs").write_text("in the way")
    world.jobs.checkpoints[50] = None
    ended = world.run(world.job(JobState.DESTROYING, replace(RENTED, outcome=JobState.FAILED, reason="it crashed")))
    assert (ended.state, world.rows) == (JobState.FAILED, {})


def test_what_was_only_cut_off_here_goes_with_the_end_of_the_job(world: World, tmp_path: Path) -> None:
    job = world.job(JobState.NOTIFYING, replace(RENTED, outcome=JobState.FAILED, reason="no machine", spent=0.5))
    folder, elsewhere = Path(world.context(job).local_folder), tmp_path / "elsewhere"
    for kept in (folder / "checkpoints" / "step_5" / "model", elsewhere / "a"):
        kept.parent.mkdir(parents=True)
        kept.touch()
    for cut in (folder / "checkpoints" / PARTIAL / "model", folder / "checkpoints" / "step_5" / INCOMING / "model.aB1"):
        cut.parent.mkdir(parents=True)
        cut.touch()
    (folder / PARTIAL).symlink_to(elsewhere)
    assert world.run(job).state is JobState.FAILED
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert names == {"checkpoints", "checkpoints/step_5", "checkpoints/step_5/model", PARTIAL}
    assert (elsewhere / "a").exists(), "a link is none of ours"


def test_the_notice_of_a_failed_job_includes_the_end_of_its_log(world: World) -> None:
    rental = replace(RENTED.rentals[0], started_at=100.0, ended_at=7300.0)
    work = replace(RENTED, outcome=JobState.FAILED, reason="crash", spent=0.5, saved_step=50, rentals=(rental,))
    context = world.context(world.job(JobState.NOTIFYING, work))
    context.service = replace(context.service, outbox=Outbox(TrainingNotifier([], store=world.store), world.store))
    log = Path(context.local_log)
    log.parent.mkdir(parents=True)
    log.write_text("step 1\n" * 100_000 + "RuntimeError: boom\n")
    finishing_steps.notify(context)
    [notice] = [each.notice for each in world.store.recent_notices()]
    assert notice.log.splitlines() == ["step 1"] * 49 + ["RuntimeError: boom"]
    fields = dict(notice.fields)
    assert (fields["Latest checkpoint"], fields["Rented for"]) == ("step 50", "2h00m")


def test_a_command_without_a_dataset_finds_the_folder_it_starts_in(world: World) -> None:
    made: list[str] = []

    def answer(script: str) -> tuple[str, int]:
        made.append(script)
        return "state=folder\nroot=/out\ntool rsync\n", 0

    world.transport.answer = answer
    context = world.context(world.job(JobState.SYNCING))
    instance_steps.sync(context)
    assert context.job.state is JobState.CHECKING
    call = read_call(made[0])
    assert call and (call.function, call.given["folder"], call.given["is_made"]) == ("list", context.output_dir, "yes")


def test_an_account_of_the_market_without_credit_ends_the_job(world: World) -> None:
    world.rows.clear()
    ended = world.run(world.job(JobState.RENTING, JobWork(attempt=1, estimate=1.0)))
    assert (ended.state, world.clock.elapsed < HOUR) == (JobState.FAILED, True)
    assert ended.work.reason and "lacks credit" in ended.work.reason


def test_a_program_that_cannot_be_started_here_is_no_reason_to_end_the_job(world: World) -> None:
    def refuse(words: tuple[str, ...], program: str | None) -> CommandResult:
        raise LocalFailure("vastai could not be started: Cannot allocate memory")

    job = world.job(JobState.RENTING, JobWork(attempt=1))
    world.transport = FakeTransport(world.jobs.answer)
    world.transport.register(["vastai"], refuse)
    world.clock.at(600.0, world.stopping.set)
    assert world.run(job).state is JobState.RENTING


def test_a_worker_that_lost_its_lease_while_it_saves_does_not_go_on_to_destroy(world: World) -> None:
    def answer(script: str) -> tuple[str, int]:
        if is_call(script, "copying", "list"):
            return "state=folder\nroot=/out\ntool rsync\nfile 1000 1750000000 ./step_50/model.safetensors\n", 0
        return world.jobs.answer(script)

    world.transport.answer = answer
    world.jobs.checkpoints[50] = None
    context = world.context(world.job(JobState.DESTROYING, replace(RENTED, outcome=JobState.FAILED, reason="crash")))
    world.clock.sleep(120.0)
    assert world.queue.claim("other", 60.0, context.job.id)
    with pytest.raises(LeaseLost):
        finishing_steps.leave_instance(context)
    assert 7 in world.rows


def test_sweeps_go_on_whatever_the_state_file_holds(world: World) -> None:
    world.store.save_run("sweep host", {"destroying": {"5": {}}}, finished=False)
    world.clock.at(700.0, world.stopping.set)
    world.clock.at(100.0, lambda: world.store.save_run("sweep host", {}, finished=False))
    reports: list[object] = []
    sweep = partial(sweep_instances, dry_run=False, owner="host", config=world.config, **world.reach)
    watch_sweeps(sweep, 300.0, world.stopping, on_report=reports.append, clock=world.clock)
    assert reports


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("on_finish", ["stop", "keep"])
def test_a_machine_that_is_gone_already_is_neither_stopped_nor_kept(world: World, on_finish: str) -> None:
    world.rows.clear()
    work = replace(RENTED, outcome=JobState.COMPLETED, reason="completed")
    ended = world.run(world.job(JobState.DESTROYING, work, replace(REQUEST, on_finish=on_finish)))
    assert (ended.state, ended.work.warnings) == (JobState.COMPLETED, ())


@pytest.mark.parametrize("outcome", [JobState.FAILED, JobState.CANCELLED])
@pytest.mark.parametrize("on_finish", ["stop", "keep"])
def test_only_the_machine_of_a_training_that_came_to_its_end_is_kept(
    world: World, on_finish: str, outcome: JobState
) -> None:
    work = replace(RENTED, outcome=outcome, reason="it crashed")
    ended = world.run(world.job(JobState.DESTROYING, work, replace(REQUEST, on_finish=on_finish)))
    assert (ended.state, world.rows) == (outcome, {})


def test_a_hard_timeout_ends_also_a_step_that_waits(world: World) -> None:
    world.rows[7] |= {"actual_status": "loading"}
    ended = world.run(world.job(JobState.PREPARING, request=replace(REQUEST, hard_timeout=120)))
    assert ended.work.reason and ended.work.reason.startswith("hard timeout")
    assert (world.clock.elapsed < 200.0, world.rows) == (True, {})


@pytest.mark.parametrize("state", [*STEPS[: STEPS.index(JobState.DESTROYING)], JobState.REPLACING])
def test_a_job_that_is_cancelled_in_any_state_leaves_no_machine(world: World, state: JobState) -> None:
    without = state in (JobState.QUEUED, JobState.CHARGING, JobState.RENTING)
    job = world.job(state, JobWork() if without else RENTED)
    job = world.queue.request_end(job.id, JobState.CANCELLED, "enough")
    if without:
        world.rows.clear()
    ended = world.run(job)
    assert (ended.state, ended.work.reason, world.rows) == (JobState.CANCELLED, "enough", {})


def test_samples_that_cannot_be_made_leave_the_job_completed(world: World) -> None:
    request = replace(REQUEST, samples=Hook(command="draw"), env={"TOKEN": "env:NOT_SET_HERE"})
    ended = world.run(world.job(JobState.SAMPLING, replace(RENTED, saved_path="/here/step_50"), request))
    assert ended.state is JobState.COMPLETED
    assert any("NOT_SET_HERE" in text for text in ended.work.warnings)


# ---------------------------------------------------------------- money, secrets, progress


def test_a_missing_variable_ends_the_job_before_renting(world: World) -> None:
    world.rows.clear()
    ended = world.run(world.job(JobState.CHARGING, JobWork(), replace(REQUEST, env={"TOKEN": "env:NOT_SET_HERE"})))
    assert (ended.state, ended.work.rentals, ended.work.asked_at) == (JobState.FAILED, (), None)


def test_a_variable_reaches_the_training_and_no_file(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_HERE", "very-secret-value")
    job = world.job(JobState.TRAINING, request=replace(REQUEST, env={"TOKEN": "env:TOKEN_HERE"}))
    world.jobs.outage_after_start = 5.0
    step = TrainingStep(world.context(job))
    step.step()
    step.step()
    step.close()
    assert world.jobs.starts[0].env["TOKEN"] == "very-secret-value"
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not [path for path in files if b"very-secret-value" in path.read_bytes()]
    monkeypatch.delenv("TOKEN_HERE")
    TrainingStep(world.context(job)).close()
    assert (world.queue.get(job.id).state, len(world.jobs.running())) == (JobState.TRAINING, 1)


def test_a_job_that_is_being_rented_for_counts_in_the_daily_budget(world: World) -> None:
    world.config = ServiceConfig(daily_budget=10.0)
    world.job(JobState.RENTING, JobWork(attempt=1, estimate=8.0))
    context = world.context(world.job(JobState.CHARGING, JobWork(estimate=5.0)))
    instance_steps.charge(context)
    assert context.job.state is JobState.CHARGING
    assert any("$8.00 reserved" in text for text in world.events)


def test_a_long_act_that_goes_on_is_written_down(world: World) -> None:
    context = world.context(world.job(JobState.SYNCING))
    for _ in range(10):
        world.clock.sleep(30.0)
        context.tell_progress("copying")
    assert world.queue.get(context.job.id).progressed_at == EPOCH + 300.0


@pytest.mark.parametrize(
    ("budget", "price", "left"), [(None, 0.5, 3.0), (1.0, 0.5, 1.0), (0.2, 0.5, 0.0), (1.0, None, 3.0)]
)
def test_a_machine_may_be_kept_until_the_time_or_the_money_is_used_up(
    world: World, budget: float | None, price: float | None, left: float
) -> None:
    work = replace(RENTED, rentals=(replace(RENTAL, price_per_hour=price),))
    job = world.job(JobState.TRAINING, work, replace(REQUEST, budget=budget))
    assert seconds_left(job, EPOCH + HOUR) == pytest.approx(left * HOUR)


def test_one_job_is_worked_on_also_after_the_state_file_could_not_be_used(world: World) -> None:
    world.rows.clear()
    job = world.queue.submit(REQUEST)
    world.queue.request_end(job.id, JobState.CANCELLED, "enough")
    path, away = Path(world.store.path), Path(world.store.path + ".away")

    def heard(event: Event) -> None:
        if "claimed" in event.text and not away.exists() and not world.clock.elapsed:
            path.rename(away)
            path.mkdir()
            world.clock.at(30.0, come_back)

    def come_back() -> None:
        path.rmdir()
        away.rename(path)

    done = run_worker(job.id, sweep=False, config=world.config, on_event=heard, **world.reach)
    assert (done[-1].state, world.queue.get(job.id).state) == (JobState.CANCELLED, JobState.CANCELLED)


SAVED = replace(RENTED, saved_path="/here/step_50", saved_step=50)


@pytest.mark.parametrize("state", [JobState.SAMPLING, JobState.REGISTERING])
def test_a_limit_that_passes_when_the_model_is_saved_ends_a_job_that_completed(world: World, state: JobState) -> None:
    world.clock.sleep(5 * HOUR)
    ended = world.run(world.job(state, SAVED, replace(REQUEST, samples=Hook(command="draw"), on_finish="keep")))
    assert (ended.state, world.rows) == (JobState.COMPLETED, {})
    assert ended.work.reason and ended.work.reason.startswith("hard timeout")


def test_a_machine_that_is_lost_after_the_upload_is_not_replaced(world: World) -> None:
    work = replace(SAVED, uploads=(UploadReport("hf:me/lora", True),))
    world.rows.clear()
    ended = world.run(world.job(JobState.UPLOADING, work, replace(REQUEST, upload_to=("hf:me/lora",))))
    assert (ended.state, ended.work.model_url) == (JobState.COMPLETED, "hf:me/lora")
    assert [each.instance_id for each in ended.work.rentals] == [7]


@pytest.mark.parametrize("key", ["command", "account"])
def test_a_text_that_is_no_utf_8_is_refused_before_anything_is_rented(key: str) -> None:
    with pytest.raises(SettingsError, match=key):
        replace(REQUEST, **{key: "x\udcff"})
