"""The queue: one worker a job, every write checked, and what was written comes back as it was."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.fakes import EPOCH, FakeClock
from training_monitor.core.errors import (
    InvalidTransition,
    JobExists,
    JobNotFound,
    LeaseLost,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.core.outcomes import UploadedFile, UploadReport
from training_monitor.core.records import format_record
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import LONGEST_REASON, TrainingQueue, load_owner
from training_monitor.vast.rows import format_label, read_label
from training_monitor.vast.training_request import (
    Hook,
    JobState,
    JobWork,
    QueuedJob,
    Rental,
    TrainingRequest,
    TrainingSpec,
    resolve_env,
)

LEASE = 60.0
REQUEST = TrainingRequest("cat", command="python train.py")
FULL = TrainingRequest(
    name="cat",
    dataset="/data/caf\udce9 \udcff\n'x'",
    spec=TrainingSpec("cat", 'tök "q"', resolutions=(512, 768), samples=("a\nb", "雪 -- $(id)")),
    offers={"preferred_gpus": ["RTX 4090", "A100"], "disk_gb": 100},
    env={"HF_TOKEN": "env:HF_TOKEN", "EMPTY": ""},
    upload_to=("hf://anna/cat", "s3://bucket/cat"),
    samples=Hook(command='python sample.py --out "$SAMPLES"'),
    register=Hook(
        url="https://example.com/models",
        headers=(("Authorization", "Bearer env:REGISTRY"), ("X-Name", "{name}")),
        body={"name": "{name}", "tags": ["a", {"b": None}], "size": 1.5},
    ),
    account="anna",
    budget=5.0,
)
WORK = JobWork(
    attempt=2,
    asked_at=EPOCH,
    instance_id=30007001,
    rentals=(Rental(1, 1, 0.4, EPOCH, EPOCH + 60, 500, "RTX 4090"), Rental(30007001, 2, None, EPOCH + 90)),
    bad_machines=(500,),
    estimate=3.25,
    uploads=(UploadReport("hf://anna/cat", True, (UploadedFile("cat\udcff.safetensors", 10**12, '"etag"'),), 2),),
    outcome=JobState.FAILED,
    reason="it said 'no'\n\udc80",
    warnings=("-rf", "two"),
    spent=0.0,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture
def queue(store: Store, clock: FakeClock) -> TrainingQueue:
    return TrainingQueue(store, clock=clock)


def taken(queue: TrainingQueue, worker: str = "a", job_id: str | None = None) -> QueuedJob:
    job = queue.claim(worker, LEASE, job_id)
    assert job is not None
    return job


def spoil(store: Store, assignment: str, *values: object) -> None:
    with store.transaction() as execute:
        execute(f"UPDATE training_jobs SET {assignment}", values)


# ---------------------------------------------------------------- submitting


def test_a_submitted_job_waits_and_was_given_a_name_that_fits_into_a_label(queue: TrainingQueue) -> None:
    job = queue.submit(REQUEST)
    assert re.fullmatch(r"cat-[0-9a-f]{6}", job.id)
    assert job == QueuedJob(job.id, JobState.QUEUED, REQUEST, JobWork(), EPOCH, EPOCH, EPOCH)
    assert queue.get(job.id) == job
    job = queue.submit(replace(REQUEST, name="n" * 64))
    assert len(job.id) == 64 and read_label(format_label("anna", job.id, 1)) == ("anna", job.id, 1)


def test_two_submissions_are_two_jobs_unless_they_have_the_same_id(queue: TrainingQueue) -> None:
    assert queue.submit(REQUEST).id != queue.submit(REQUEST).id
    assert queue.submit(REQUEST, "one") == queue.submit(REQUEST, "one")
    assert len(queue.list_jobs()) == 3


def test_a_listing_leaves_none_out_however_many_there_are(queue: TrainingQueue) -> None:
    for number in range(1001):
        queue.submit(REQUEST, f"job-{number}")
    assert {job.id for job in queue.list_jobs()} == {f"job-{number}" for number in range(1001)}
    assert len(queue.list_jobs(limit=7)) == 7


def test_an_id_that_is_submitted_again_stands_for_the_job_and_no_other_request(queue: TrainingQueue) -> None:
    queue.submit(FULL, "one")
    job = queue.save(replace(taken(queue), state=JobState.CHARGING), "a")
    assert queue.submit(FULL, "one") == job
    with pytest.raises(JobExists, match="one is already in the queue with a different request"):
        queue.submit(replace(FULL, hard_timeout=60.0), "one")
    assert queue.get("one").request == FULL


@pytest.mark.parametrize("job_id", ["", "-rf", "a/b", "a b", "a\n", "ü", "x" * 65, "a\udcff", "..", "'; DROP TABLE"])
def test_an_id_that_could_not_be_in_a_label_or_a_request_not_in_json_is_refused(
    queue: TrainingQueue, job_id: str
) -> None:
    with pytest.raises(SettingsError, match="job_id"):
        queue.submit(REQUEST, job_id)
    with pytest.raises(SettingsError, match="only values that JSON can represent"):
        queue.submit(replace(REQUEST, offers={"gpus": {1, 2}}))
    assert queue.list_jobs() == []


# ---------------------------------------------------------------- what comes back


def test_everything_of_a_request_and_its_work_comes_back(queue: TrainingQueue, store: Store) -> None:
    queue.submit(FULL, "full")
    job = queue.save(replace(taken(queue), work=WORK), "a")
    assert (job.request, job.work) == (FULL, WORK)
    again = TrainingQueue(Store(store.folder)).get("full")
    assert again == job
    assert type(again.work.outcome) is JobState and type(again.state) is JobState
    assert isinstance(again.request.register, Hook)
    request = replace(REQUEST, env=MappingProxyType({"A": "1"}), offers=MappingProxyType({"disk_gb": 64}))
    assert queue.submit(request, "one").request == replace(REQUEST, env={"A": "1"}, offers={"disk_gb": 64})
    assert queue.submit(request, "one").id == "one"


def test_secrets_are_kept_by_their_names_alone_in_a_file_of_ones_own(
    queue: TrainingQueue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY", "s3cr3t-value")
    monkeypatch.setenv("HF_TOKEN", "s3cr3t-value")
    assert queue.submit(FULL).request.env["HF_TOKEN"] == "env:HF_TOKEN"
    files = list(Path(store.folder).glob("training_monitor.db*"))
    assert files and all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert all(b"s3cr3t-value" not in file.read_bytes() for file in files)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("work = ?", "{"),
        ("work = ?", '{"outcome": "PERHAPS"}'),
        ("request = ?", "{}"),
        ("request = ?", '{"name": "-rf", "command": "true"}'),
        ("request = ?", b"\xff\xfe"),
        ("to_end = ?", "5"),
        ("to_end = ?", '["PERHAPS", "x"]'),
    ],
)
def test_what_is_no_job_is_told_with_its_file(queue: TrainingQueue, store: Store, assignment: str, value: str) -> None:
    queue.submit(REQUEST, "one")
    spoil(store, assignment, value)
    for ask in (lambda: queue.get("one"), queue.list_jobs, lambda: queue.claim("a", LEASE, "one")):
        with pytest.raises(TrainingMonitorError, match=re.escape(store.path)):
            if ask() is None:  # a state that nobody knows is none to work on
                queue.get("one")


@pytest.mark.parametrize("job_id", ["nothing", "", "a\udcff", "a\nb", "x" * 5000, "' OR '1'='1"])
def test_a_job_that_is_not_there_is_told_whatever_it_is_called(queue: TrainingQueue, job_id: str) -> None:
    queue.submit(REQUEST, "one")
    held = replace(queue.get("one"), id=job_id)
    asks: list[Callable[[], object]] = [
        lambda: queue.get(job_id),
        lambda: queue.claim("a", LEASE, job_id),
        lambda: queue.renew(job_id, "a", LEASE),
        lambda: queue.save(held, "a"),
        lambda: queue.request_end(job_id, JobState.CANCELLED, "x"),
    ]
    for ask in asks:
        with pytest.raises(JobNotFound, match="list the queue") as told:
            ask()
        assert len(str(told.value)) < 300 and "\n" not in str(told.value)
    queue.release(job_id, "a")


def test_jobs_are_listed_newest_first_in_the_states_that_are_wanted(queue: TrainingQueue) -> None:
    for name in ("one", "two", "three"):
        queue.submit(REQUEST, name)
    queue.save(replace(taken(queue, job_id="two"), state=JobState.CHARGING), "a")
    assert [job.id for job in queue.list_jobs()] == ["three", "two", "one"]
    assert [job.id for job in queue.list_jobs(limit=2)] == ["three", "two"]
    assert [job.id for job in queue.list_jobs([JobState.QUEUED])] == ["three", "one"]
    assert [job.id for job in queue.list_jobs({JobState.CHARGING, JobState.FAILED})] == ["two"]
    assert queue.list_jobs([]) == []


# ---------------------------------------------------------------- leases


def test_the_oldest_job_is_taken_first_and_nobody_takes_it_twice(queue: TrainingQueue, clock: FakeClock) -> None:
    first, second = queue.submit(REQUEST).id, queue.submit(REQUEST).id
    job = taken(queue, "a")
    assert (job.id, job.worker, job.lease_until) == (first, "a", clock.time() + LEASE)
    assert taken(queue, "b").id == second
    assert queue.claim("c", LEASE) is None
    assert queue.claim("a", LEASE) is None and queue.claim("a", LEASE, first) is None, "it holds it already"


def test_a_job_can_be_taken_by_name_and_goes_first_once_it_is_under_way(queue: TrainingQueue) -> None:
    for name in ("waits", "runs"):
        queue.submit(REQUEST, name)
    queue.save(replace(taken(queue, "a", "runs"), state=JobState.CHARGING), "a")
    assert queue.claim("b", LEASE, "runs") is None
    queue.release("runs", "a")
    assert [taken(queue, "b").id, taken(queue, "b").id] == ["runs", "waits"]


def test_a_job_that_is_over_is_not_taken(queue: TrainingQueue, store: Store) -> None:
    queue.submit(REQUEST, "one")
    for state in JobState:
        spoil(store, "state = ?, worker = NULL", state.value)
        assert (queue.claim("a", LEASE) is None) == state.is_terminal
        assert (queue.claim("a", LEASE, "one") is None) or not state.is_terminal


def test_a_lease_that_ran_out_is_free_for_another_and_one_that_is_renewed_is_kept(
    queue: TrainingQueue, clock: FakeClock
) -> None:
    queue.submit(REQUEST, "one")
    taken(queue, "a")
    for _ in range(5):
        clock.sleep(LEASE / 2)
        queue.renew("one", "a", LEASE)
    assert queue.get("one").lease_until == clock.time() + LEASE
    clock.sleep(LEASE - 1)
    assert queue.claim("b", LEASE) is None
    clock.sleep(1)
    assert taken(queue, "b").worker == "b"


def test_a_lease_that_ran_out_is_renewed_as_long_as_nobody_took_it(queue: TrainingQueue, clock: FakeClock) -> None:
    queue.submit(REQUEST, "one")
    job = taken(queue, "a")
    clock.sleep(10 * LEASE)
    queue.save(replace(job, state=JobState.CHARGING), "a")
    queue.renew("one", "a", LEASE)
    assert queue.claim("b", LEASE) is None


def test_whoever_lost_its_job_can_write_nothing_more(queue: TrainingQueue, clock: FakeClock) -> None:
    queue.submit(REQUEST, "one")
    late = taken(queue, "a")
    clock.sleep(LEASE)
    other = taken(queue, "b")
    with pytest.raises(LeaseLost, match="one now belongs to b"):
        queue.save(replace(late, state=JobState.CHARGING, work=WORK), "a", progressed=True)
    with pytest.raises(LeaseLost):
        queue.renew("one", "a", LEASE)
    queue.release("one", "a")
    assert queue.get("one") == other


def test_a_job_that_was_given_up_is_held_by_nobody(queue: TrainingQueue) -> None:
    queue.submit(REQUEST, "one")
    job = taken(queue, "a")
    queue.release("one", "a")
    queue.release("one", "a")
    assert (queue.get("one").worker, queue.get("one").lease_until) == (None, None)
    with pytest.raises(LeaseLost, match="belongs to no worker"):
        queue.save(job, "a")
    with pytest.raises(LeaseLost):
        queue.renew("one", "a", LEASE)
    assert taken(queue, "b").id == "one"


def test_threads_that_take_jobs_at_once_never_get_the_same(store: Store) -> None:
    first = TrainingQueue(store)
    wanted = {first.submit(REQUEST).id for _ in range(20)}
    got: list[str] = []

    def work(worker: str) -> None:
        queue = TrainingQueue(store)
        while job := queue.claim(worker, 1000.0):
            got.append(job.id)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 20 and set(got) == wanted


@pytest.mark.parametrize("worker", ["", "a\nb", "a\udcff", "w" * 201])
def test_a_worker_has_a_printable_name(queue: TrainingQueue, worker: str) -> None:
    queue.submit(REQUEST, "one")
    with pytest.raises(SettingsError, match="worker"):
        queue.claim(worker, LEASE)
    queue.release("one", worker)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_lease_lasts_for_some_time(queue: TrainingQueue, seconds: float) -> None:
    queue.submit(REQUEST, "one")
    taken(queue, "a")
    for ask in (lambda: queue.claim("a", seconds), lambda: queue.renew("one", "a", seconds)):
        with pytest.raises(SettingsError, match="lease_seconds"):
            ask()


def test_a_job_that_cannot_be_read_does_not_keep_the_others_but_is_told(queue: TrainingQueue, store: Store) -> None:
    queue.submit(REQUEST, "later")
    spoil(store, "work = ?", '{"paused": true}')
    queue.submit(REQUEST, "one")
    assert taken(queue, "a").id == "one"
    with pytest.raises(TrainingMonitorError, match="job later in .*later version"):
        queue.claim("a", LEASE)
    with pytest.raises(TrainingMonitorError, match="job later in .*later version"):
        queue.list_jobs()
    with store.transaction() as execute:
        assert execute("SELECT worker FROM training_jobs WHERE id = 'later'") == [(None,)]


def test_times_tell_changes_of_the_state_and_progress_apart(queue: TrainingQueue, clock: FakeClock) -> None:
    queue.submit(REQUEST, "one")
    job = taken(queue)
    clock.sleep(10)
    job = queue.save(replace(job, state=JobState.CHARGING), "a")
    assert (job.created_at, job.changed_at, job.progressed_at) == (EPOCH, EPOCH + 10, EPOCH + 10)
    clock.sleep(10)
    job = queue.save(replace(job, work=JobWork(estimate=1.0)), "a")
    assert (job.changed_at, job.progressed_at, job.work.estimate) == (EPOCH + 10, EPOCH + 10, 1.0)
    job = queue.save(job, "a", progressed=True)
    assert (job.changed_at, job.progressed_at) == (EPOCH + 10, EPOCH + 20)


def test_only_state_and_work_are_written(queue: TrainingQueue) -> None:
    queue.submit(REQUEST, "one")
    job = taken(queue)
    other = replace(job, request=FULL, worker="b", lease_until=None, created_at=0.0, to_end=(JobState.FAILED, "x"))
    assert queue.save(other, "a") == job


def test_a_step_is_checked_against_the_state_on_disk(queue: TrainingQueue, store: Store) -> None:
    queue.submit(REQUEST, "one")
    queued = taken(queue)
    charging = queue.save(replace(queued, state=JobState.CHARGING), "a")
    with pytest.raises(InvalidTransition, match="from CHARGING to TRAINING, only to RENTING or DESTROYING"):
        queue.save(replace(charging, state=JobState.TRAINING, work=WORK), "a")
    with pytest.raises(InvalidTransition, match="from CHARGING to QUEUED"):
        queue.save(queued, "a")
    assert queue.get("one") == charging
    spoil(store, "state = ?", "COMPLETED")
    with pytest.raises(InvalidTransition, match="it has ended"):
        queue.save(queued, "a")


# ---------------------------------------------------------------- asking for an end


def test_the_first_request_to_end_stands_and_its_worker_hears_of_it(queue: TrainingQueue) -> None:
    for name in ("one", "two"):
        queue.submit(REQUEST, name)
    job, wanted = taken(queue), (JobState.CANCELLED, "not wanted")
    assert queue.request_end("one", *wanted).to_end == wanted
    assert queue.request_end("one", JobState.FAILED, "later").to_end == wanted
    saved = queue.save(replace(job, state=JobState.CHARGING), "a")
    assert saved.to_end == wanted and saved.worker == "a"
    queue.request_end("two", *wanted)  # it waits, and is ended by whoever takes it
    job = taken(queue)
    assert (job.id, job.state, job.to_end) == ("two", JobState.QUEUED, wanted)
    assert queue.save(replace(job, state=JobState.DESTROYING), "a").state is JobState.DESTROYING


PAID = Rental(1, 1, 0.4, EPOCH - 3600, EPOCH - 1800)


@pytest.mark.parametrize(
    ("state", "work", "left"),
    [
        (JobState.QUEUED, JobWork(), 10.0),
        (JobState.CHARGING, JobWork(estimate=4.0), 10.0),
        (JobState.RENTING, JobWork(attempt=1, estimate=4.0), 10.0),
        (JobState.RENTING, JobWork(attempt=2, estimate=4.0, rentals=(PAID,)), 9.8),
    ],
)
def test_a_job_that_nobody_holds_and_that_has_no_machine_is_cancelled_at_once(
    queue: TrainingQueue, store: Store, state: JobState, work: JobWork, left: float
) -> None:
    ledger = Credits(store)
    ledger.deposit("anna", 10.0, "card")
    queue.submit(replace(REQUEST, account="anna"), "one")
    if work.estimate:
        ledger.reserve("anna", "one", work.estimate)
    spoil(store, "state = ?, work = ?, worker = 'dead', lease_until = ?", state, format_record(work), EPOCH)
    done = queue.cancel("one", "not wanted")
    assert (done.state, done.work.outcome, done.work.reason) == (JobState.CANCELLED, JobState.CANCELLED, "not wanted")
    assert (done.worker, done.work.spent) == (None, pytest.approx(10.0 - left))
    assert ledger.balance("anna") == left
    assert queue.claim("b", LEASE) is None
    with pytest.raises(LeaseLost):
        queue.renew("one", "dead", LEASE)
    with pytest.raises(InvalidTransition, match="one has already ended: CANCELLED"):
        queue.cancel("one", "again")


@pytest.mark.parametrize(
    ("state", "work"),
    [
        (JobState.RENTING, JobWork(attempt=1, asked_at=EPOCH)),
        (JobState.TRAINING, JobWork(attempt=1, instance_id=7, rentals=(Rental(7, 1, 0.4, EPOCH),))),
        (JobState.RENTING, JobWork(attempt=2, rentals=(replace(PAID, price_per_hour=None),))),
        (JobState.SETTLING, JobWork(outcome=JobState.FAILED, reason="it crashed")),
    ],
    ids=["a machine was asked for", "it has a machine", "nobody knows what it spent", "it is ending"],
)
def test_what_may_cost_money_is_left_to_the_next_worker(
    queue: TrainingQueue, store: Store, state: JobState, work: JobWork
) -> None:
    queue.submit(REQUEST, "one")
    spoil(store, "state = ?, work = ?", state, format_record(work))
    asked = queue.cancel("one", "not wanted")
    assert (asked.state, asked.to_end, asked.work) == (state, (JobState.CANCELLED, "not wanted"), work)
    assert taken(queue).id == "one"


def test_a_job_that_a_worker_holds_is_left_to_it(queue: TrainingQueue, clock: FakeClock) -> None:
    queue.submit(REQUEST, "one")
    taken(queue)
    assert (asked := queue.cancel("one", "x")).state is JobState.QUEUED and asked.worker == "a"
    clock.sleep(LEASE + 1)  # the worker died without a word
    assert queue.cancel("one", "x").state is JobState.CANCELLED


def test_a_cancel_that_cannot_settle_changes_nothing(queue: TrainingQueue, store: Store) -> None:
    ledger = Credits(store)
    ledger.deposit("anna", 10.0, "card")
    queue.submit(replace(REQUEST, account="anna"), "one")
    ledger.reserve("anna", "one", 4.0)
    ledger.settle("anna", "one", 1.0, "by somebody else")
    with pytest.raises(InvalidTransition, match="a different amount"):
        queue.cancel("one", "x")
    assert queue.get("one").state is JobState.QUEUED and ledger.balance("anna") == 9.0


def test_a_job_can_only_be_cancelled_or_failed_and_not_once_it_is_over(queue: TrainingQueue, store: Store) -> None:
    queue.submit(REQUEST, "one")
    for outcome in (JobState.COMPLETED, JobState.DESTROYING, "done"):
        with pytest.raises(SettingsError, match="CANCELLED or FAILED"):
            queue.request_end("one", outcome, "x")  # type: ignore[arg-type]
    for state in (each for each in JobState if each.is_terminal):
        spoil(store, "state = ?", state.value)
        with pytest.raises(InvalidTransition, match=f"one has already ended: {state}"):
            queue.request_end("one", JobState.CANCELLED, "x")
        assert queue.get("one").to_end is None


def test_a_reason_survives_whatever_is_in_it_but_not_its_length(queue: TrainingQueue) -> None:
    queue.submit(REQUEST, "one")
    queue.submit(REQUEST, "two")
    hostile = "'; DROP TABLE training_jobs; --\n\udcff\0"
    assert queue.request_end("one", JobState.FAILED, hostile).to_end == (JobState.FAILED, hostile)
    long = queue.request_end("two", JobState.FAILED, "x" * 10**6).to_end
    assert long is not None and len(long[1]) == LONGEST_REASON


# ---------------------------------------------------------------- owners


def test_an_owner_is_made_once_for_a_store_and_kept(store: Store, tmp_path: Path) -> None:
    owner = load_owner(store, {"USER": "anna"})
    assert re.fullmatch(r"anna-[A-Za-z0-9._-]{1,15}-[0-9a-f]{8}", owner)
    assert load_owner(Store(store.folder), {"USER": "berta"}) == owner
    assert read_label(format_label(owner, "job", 1)) == (owner, "job", 1)
    owners = {load_owner(Store(str(tmp_path / str(number))), {"USER": "anna"}) for number in range(20)}
    assert len(owners | {owner}) == 21


@pytest.mark.parametrize("user", ["", "a/b c", "Jürgen Müller", "-rf", "x" * 300, "a\nb", "\udcff", "..", "DOM\\anna"])
def test_an_owner_is_clean_whatever_the_user_is_called(tmp_path: Path, user: str) -> None:
    owner = load_owner(Store(str(tmp_path)), {"USER": user})
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,39}", owner)


def test_a_chosen_owner_wins_and_is_checked(store: Store) -> None:
    made = load_owner(store, {})
    assert load_owner(store, {"TRAINING_MONITOR_OWNER": "team-1"}) == "team-1"
    assert load_owner(store, {"TRAINING_MONITOR_OWNER": ""}) == made
    for name in ("a b", "a/b", "x" * 41, "a\n", "\udcff"):
        with pytest.raises(SettingsError, match="TRAINING_MONITOR_OWNER"):
            load_owner(store, {"TRAINING_MONITOR_OWNER": name})


def test_an_owner_that_is_spoiled_is_not_used(store: Store) -> None:
    load_owner(store, {})
    with store.transaction() as execute:
        execute("UPDATE runs SET state = ?", (json.dumps({"a": "b/c"}),))
    with pytest.raises(TrainingMonitorError, match="contains no owner name"):
        load_owner(store, {})


def test_references_are_completed_from_the_environment_and_other_values_stay() -> None:
    texts = ("env:TOKEN", "Bearer env:TOKEN", "plain", "see my env:TOKEN", "xenv:TOKEN", "")
    values = dict(zip("abcdef", texts))
    assert resolve_env(values, {"TOKEN": "t 1"}) == values | {"a": "t 1", "b": "Bearer t 1"}


@pytest.mark.parametrize("environ", [{}, {"HUB_TOKEN": ""}])
@pytest.mark.parametrize("value", ["env:HUB_TOKEN", "Bearer env:HUB_TOKEN"])
def test_a_variable_that_is_not_set_is_named(value: str, environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="HUB_TOKEN: got .* because Authorization refers to it"):
        resolve_env({"Authorization": value}, environ)


@pytest.mark.parametrize("value", ["env:", "env:1A", "env:A-B", "env:A\n", "Bearer env:$A"])
def test_a_reference_to_what_is_no_variable_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="where NAME is an environment variable"):
        resolve_env({"key": value}, {"A": "x"})


def test_a_reason_without_utf8_does_not_block_settling(store: Store) -> None:
    ledger = Credits(store)
    ledger.deposit("anna", 10.0, "paid in")
    ledger.reserve("anna", "one", 4.0)
    assert ledger.settle("anna", "one", 1.0, os.fsdecode(b"no folder /data/\xff")) == 1.0
    assert ledger.movements("anna")[-1].reason == "no folder /data/\\udcff"
    for ask in (ledger.balance, ledger.movements):
        with pytest.raises(SettingsError, match="ledger name"):
            ask("a\udcff")
