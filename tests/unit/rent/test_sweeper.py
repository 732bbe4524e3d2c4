"""Sweeps of an account in memory: what goes, what is never touched, outages, failures, and kills between the acts."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, FakeClock, FakeTransport
from tests.job_states import REQUEST, add_job
from tests.unit.killing import Killed
from training_monitor.core.errors import SettingsError, TrainingMonitorError
from training_monitor.core.models import Event
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Execute, Store
from training_monitor.core.values import Notice
from training_monitor.notify import WebList
from training_monitor.notify.notice_text import PLAIN, render
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.rent.queue import TrainingQueue
from training_monitor.rent.sweep import SweepMemory
from training_monitor.rent.sweeper import SweepReport, sweep_instances, watch_sweeps
from training_monitor.vast.rows import format_label
from training_monitor.vast.training_request import JobState, QueuedJob, TrainingRequest

HOUR = 3600.0


def alive() -> None:
    """Nothing happens."""


@dataclass
class FakeAccount:
    """The vastai CLI with an account; `before` and `after` are called around every request."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    down: bool = False
    undestroyable: set[int] = field(default_factory=set)  # the CLI ends well, and the instance stays
    forbidden: set[int] = field(default_factory=set)
    on_list: Callable[[], None] = alive
    before: Callable[[], None] = alive
    after: Callable[[], None] = alive

    def add(self, number: int, label: object = None, **details: Any) -> dict[str, Any]:
        row = {"id": number, "label": label, "actual_status": "running", "start_date": EPOCH - HOUR, "dph_total": 0.5}
        self.rows[number] = {**row, **details}
        return self.rows[number]

    @property
    def destroyed(self) -> list[int]:
        return [int(each.split()[2]) for each in self.asked if each.startswith("destroy")]

    def run(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        self.before()
        self.asked.append(" ".join(words[1:4]))
        acts = {("show", "instances"): self._list, ("show", "instance"): self._show}
        result = acts.get(words[1:3], self._destroy)(words)
        self.after()
        return result

    def _list(self, words: tuple[str, ...]) -> CommandResult:
        self.on_list()
        if self.down:
            return CommandResult(words, 0, "", '{"error": true, "status_code": 500, "msg": "broken"}\n', 0.0)
        rows = list(self.rows.values())
        page = {"instances": rows, "total_instances": len(rows), "next_token": None}
        return CommandResult(words, 0, json.dumps(page), "", 0.0)

    def _show(self, words: tuple[str, ...]) -> CommandResult:
        if self.down:
            return self._list(words)
        return CommandResult(words, 0, json.dumps(self.rows.get(int(words[3]), {"instances": None})), "", 0.0)

    def _destroy(self, words: tuple[str, ...]) -> CommandResult:
        assert words[1:3] == ("destroy", "instance"), f"unexpected program: {words}"
        number = int(words[3])
        if number in self.forbidden:
            return CommandResult(words, 0, "", "Failed with error 403: no permission\n", 0.0)
        if number not in self.undestroyable:
            self.rows.pop(number, None)
        return CommandResult(words, 0, f"destroying instance {number}.\n", "", 0.0)


class Bench:
    """A store with a queue, an account, and people who are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "state")
        self.clock = FakeClock()
        self.store = Store(self.folder)
        self.queue = TrainingQueue(self.store, clock=self.clock)
        self.account = FakeAccount()
        self.events: list[Event] = []

    @property
    def transport(self) -> FakeTransport:
        transport = FakeTransport(lambda script: ("", 1))
        transport.register(["vastai"], self.account.run)
        return transport

    def add_job(self, job_id: str, state: JobState, request: TrainingRequest = REQUEST, **work: Any) -> QueuedJob:
        return add_job(self.queue, job_id, state, request, **work)

    def add_machine(self, number: int, job_id: str, attempt: int = 1, **details: Any) -> None:
        self.account.add(number, format_label("me", job_id, attempt), **details)

    def see_before(self, seconds: float = HOUR) -> None:
        """An earlier sweep saw all that is there now for the first time, and another one did a minute ago."""
        first, last = (dict.fromkeys(map(str, self.account.rows), self.clock.time() - each) for each in (seconds, 60))
        self.store.save_run("sweep me", SweepMemory(first_seen=first, last_seen=last), finished=False)

    @contextmanager
    def sweeping(self, **options: Any) -> Iterator[Callable[[], SweepReport]]:
        """A sweep that is ready to be called; it is not a dry run unless one says so."""
        options = {"dry_run": False, "owner": "me", "store": self.store, **options}
        given: dict[str, Any] = {"on_event": self.events.append, "transport": self.transport, "clock": self.clock}
        with Outbox(TrainingNotifier([WebList()], store=Store(self.folder)), options["store"]) as outbox:
            yield partial(sweep_instances, **options, **given, outbox=outbox)

    def sweep(self, **options: Any) -> SweepReport:
        with self.sweeping(**options) as sweep:
            return sweep()

    def watch(self, interval: float, seconds: float, **options: Any) -> list[SweepReport]:
        """Sweep until so much time has passed."""
        stopping, reports = threading.Event(), list[SweepReport]()
        self.clock.at(self.clock.elapsed + seconds, stopping.set)
        tell: Any = {"on_event": self.events.append, "on_report": reports.append}
        with self.sweeping(**options) as sweep:
            watch_sweeps(sweep, interval, stopping, **tell, clock=self.clock)
        return reports

    def at_listing(self, number: int, act: Callable[[], object]) -> None:
        """Call `act` at the first listing of those to come (0), the second one (1), or a later one."""
        looks, before = iter(range(999)), self.account.on_list

        def listed() -> None:
            before()
            if next(looks) == number:
                act()

        self.account.on_list = listed

    @property
    def notices(self) -> list[Notice]:
        return [kept.notice for kept in reversed(Store(self.folder).recent_notices())]

    @property
    def told(self) -> list[str]:
        return [notice.kind for notice in self.notices]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "own"))
    monkeypatch.delenv("TRAINING_MONITOR_OWNER", raising=False)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def ids(rows: list[Any]) -> list[int]:
    return [row["instance_id"] for row in rows]


def row(number: int, job_id: str) -> dict[str, Any]:
    return {"instance_id": number, "job_id": job_id, "label": f"training_monitor/me/{job_id}/1"}


# ---------------------------------------------------------------- what goes and what stays


def test_what_no_job_needs_goes_and_is_told_and_the_rest_stays(bench: Bench) -> None:
    bench.add_job("done", JobState.COMPLETED)
    bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(1, "done")
    bench.add_machine(2, "busy")
    bench.add_machine(3, "nobody")
    bench.account.add(4, "somebody's", dph_total=2.5)
    bench.see_before()
    report = bench.sweep()
    assert sorted(bench.account.rows) == [2, 4] and bench.account.destroyed == [1, 3]
    assert (report["instances_checked"], report["dry_run"], report["skipped"]) == (4, False, False)
    common = {"status": "running", "runtime_seconds": 0.0, "seconds_left": None, "cost_per_hour": 0.5}
    first, second = report["terminated"]
    reason = "Training COMPLETED but instance not terminated"
    went = {"action": "terminate", "acknowledged": True, **common}
    assert first == {**went, **row(1, "done"), "kind": "finished", "reason": reason}
    reason = "Instance has no associated training record"
    assert second == {**went, **row(3, "nobody"), "kind": "orphan", "reason": reason, "runtime_seconds": 3607.0}
    [kept] = report["kept"]
    why = {"action": "keep", "kind": "at_work", "reason": "its job is TRAINING, and is waiting for a worker"}
    times = {"runtime_seconds": 7.0, "seconds_left": 1800.0}
    assert kept == {**common, **row(2, "busy"), **why, **times, "acknowledged": False}
    [other] = report["foreign"]
    assert (other["instance_id"], other["label"], other["status"]) == (4, "somebody's", "running")
    assert (other["kind"], other["job_id"], other["cost_per_hour"]) == ("foreign", None, 2.5)
    assert [(alert["type"], alert["instance_id"]) for alert in report["alerts"]] == [("ORPHAN_INSTANCE", 3)]
    assert not report["errors"] and not report["planned"]
    assert json.loads(json.dumps(report)) == report
    assert bench.told == ["instance_swept", "orphan_instance", "instance_swept"]
    stopped = [event.text for event in bench.events if event.kind == "stopped"]
    assert stopped == ["instance 1 is destroyed", "instance 3 is destroyed"]
    assert bench.sweep()["terminated"] == [] and len(bench.told) == 3, "a second sweep finds and tells nothing"


def test_foreign_machines_are_never_destroyed_whatever_their_age_and_state(bench: Bench) -> None:
    bench.add_job("done", JobState.COMPLETED)
    ours = "training_monitor/me/done"
    labels = [None, "", 5, {"a": 1}, ["training_monitor/me/done/1"], "somebody's", "training_monitor/me", ours]
    labels += ["training_monitor/you/done/1", "training_monitor/ME/done/1", f"{ours}/0", f"{ours}/-1", f"{ours}/1 "]
    labels += [f"{ours}/1\n", f" {ours}/1", "training_monitor/me/a/done/1", "training_monitor//done/1"]
    statuses = ["running", "stopped", "exited", "offline", "unknown", None, 3]
    for label, status, start in product(labels, statuses, [None, 0, EPOCH - 1e8, "x"]):
        bench.account.add(len(bench.account.rows) + 1, label, actual_status=status, start_date=start)
    for report in bench.watch(900, 5 * HOUR):
        assert not report["terminated"] and not report["alerts"] and ids(report["foreign"]) == list(bench.account.rows)
        known = {(each["kind"], each["job_id"], each["runtime_seconds"]) for each in report["foreign"]}
        assert known == {("foreign", None, None)}
    assert bench.account.destroyed == [] and len(bench.account.rows) == len(labels) * 28


def test_the_owner_is_the_one_of_the_store_unless_one_is_given(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_machine(1, "nobody")
    bench.see_before()
    assert ids(bench.sweep(owner=None)["foreign"]) == [1]
    monkeypatch.setenv("TRAINING_MONITOR_OWNER", "not / a name")
    with pytest.raises(SettingsError, match="OWNER"):
        bench.sweep(owner=None)
    monkeypatch.setenv("TRAINING_MONITOR_OWNER", "me")
    assert ids(bench.sweep(owner=None)["terminated"]) == [1]


@pytest.mark.parametrize("name", ["x' OR 1=1 --", "\ud800", "a\nb", "../..", "-rf", "ü", "x" * 3000, "\0"])
def test_a_label_of_ours_with_a_hostile_name_is_an_orphan_like_any_other(bench: Bench, name: str) -> None:
    bench.add_machine(1, name)
    bench.add_machine(2, "done")
    bench.add_job("done", JobState.FAILED)
    bench.see_before()
    report = bench.sweep()
    if "/" in name:
        assert ids(report["foreign"]) == [1]
    else:
        assert ids(report["terminated"]) == [1, 2]
    assert report["errors"] == []


def test_every_machine_is_in_one_list_with_why_it_stays_or_goes(bench: Bench) -> None:
    bench.add_job("busy", JobState.TRAINING, instance_id=1, step=120, total_steps=400)
    bench.queue.claim("host-1", 60, "busy")
    bench.add_job("done", JobState.FAILED)
    bench.add_job("unreadable", JobState.COMPLETED)
    for number, job_id in enumerate(("busy", "done", "nobody", "unreadable"), 1):
        bench.add_machine(number, job_id)
    bench.account.add(5, "somebody's")
    with bench.store.transaction() as execute:
        execute("UPDATE training_jobs SET work = '{' WHERE id = 'unreadable'")
    for dry_run in (True, False):
        report = bench.sweep(dry_run=dry_run)
        lists = [report[name] for name in ("terminated", "planned", "kept", "errors", "foreign")]
        assert sorted(number for rows in lists for number in ids(rows)) == [1, 2, 3, 4, 5]
        assert {each["instance_id"]: (each["kind"], each["reason"]) for each in report["kept"]} == {
            1: ("at_work", "its job is TRAINING, step 120 of 400, held by host-1"),
            3: ("orphan", "Instance has no associated training record"),
        }


@pytest.mark.parametrize("job_id", ["nobody", "left"])
def test_a_machine_beyond_the_longest_runtime_is_never_destroyed_at_first_sight(bench: Bench, job_id: str) -> None:
    bench.add_job("left", JobState.TRAINING, instance_id=1)
    bench.clock.sleep(5 * HOUR)
    bench.queue.claim("setter", 60, "left")
    bench.queue.save(bench.queue.get("left"), "setter", progressed=True)
    bench.queue.release("left", "setter")
    bench.add_machine(1, job_id, start_date=EPOCH - 5 * HOUR)
    first = bench.sweep()
    assert ids(first["kept"]) == [1] and first["kept"][0]["seconds_left"] == 600.0
    assert [alert["type"] for alert in first["alerts"]] == ["MAX_RUNTIME_EXCEEDED"]
    bench.clock.sleep(599)
    assert bench.sweep()["terminated"] == [] and bench.queue.get("left").to_end is None
    bench.clock.sleep(1)
    assert ids(bench.sweep()["terminated"]) == [1]


# ---------------------------------------------------------------- the job of a machine that goes


def test_a_stuck_job_is_ended_before_its_machine_goes_unless_its_end_is_decided(bench: Bench) -> None:
    bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_job("ending", JobState.SETTLING, instance_id=3, outcome=JobState.CANCELLED)
    bench.add_machine(2, "busy")
    bench.add_machine(3, "ending")
    bench.clock.sleep(2 * HOUR + 1)
    seen: list[Any] = []
    bench.account.before = lambda: seen.append(bench.queue.get("busy").to_end)
    report = bench.sweep()
    reason = "Training stuck in TRAINING (no update in 120min)"
    assert ids(report["terminated"]) == [3, 2] and report["terminated"][1]["reason"] == reason
    assert seen[0] is None and seen[bench.account.asked.index("destroy instance 2")] == (JobState.FAILED, reason)
    assert bench.queue.get("ending").to_end is None


def test_a_worker_that_took_a_stuck_job_gets_time_to_look_at_it(bench: Bench) -> None:
    bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(2, "busy")
    bench.clock.sleep(5 * HOUR)
    bench.queue.claim("new worker", 3 * HOUR, "busy")
    assert bench.sweep(dry_run=True)["planned"] == []
    bench.clock.sleep(300)
    assert bench.sweep()["terminated"] == [] and bench.queue.get("busy").to_end is None
    bench.clock.sleep(301)
    assert ids(bench.sweep()["terminated"]) == [2]


@pytest.mark.parametrize("has_lease", [True, False])
def test_a_machine_is_not_destroyed_because_the_worker_was_suspended_with_the_sweep(
    bench: Bench, has_lease: bool
) -> None:
    job = bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(2, "busy")
    bench.queue.claim("w", 9 * HOUR if has_lease else 60, "busy")
    assert bench.sweep()["terminated"] == []
    bench.clock.sleep(3 * HOUR)
    [kept] = bench.sweep()["kept"]
    assert (kept["kind"], kept["seconds_left"]) == ("stuck", 600.0) and bench.queue.get("busy").to_end is None
    bench.queue.save(job, "w", progressed=True)  # the worker is awake again
    bench.clock.sleep(3 * HOUR)
    assert bench.sweep()["terminated"] == []
    bench.clock.sleep(3 * HOUR)  # sweeps that are as rare do not keep a machine whose job made no progress since
    assert ids(bench.sweep()["terminated"]) == [2]


def test_sweeps_that_are_rare_as_a_rule_destroy_a_machine_after_its_runtime(bench: Bench) -> None:
    job = bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(2, "busy")
    bench.queue.claim("w", 99 * HOUR, "busy")
    began, hours = bench.clock.time(), job.request.hard_timeout / HOUR
    for _ in range(int(4 * hours) + 9):
        bench.queue.save(job, "w", progressed=True)  # the worker does not obey the limit
        if bench.sweep()["terminated"]:
            break
        bench.clock.sleep(HOUR / 4)
    assert hours * HOUR < bench.clock.time() - began <= hours * HOUR + 2 * HOUR / 4


def test_a_job_on_another_machine_is_not_ended_with_what_it_left(bench: Bench) -> None:
    bench.add_job("busy", JobState.TRAINING, attempt=2, asked_at=EPOCH, instance_id=9)
    bench.add_machine(2, "busy", attempt=1)
    bench.add_machine(9, "busy", attempt=2)
    bench.sweep()
    bench.clock.sleep(601)
    report = bench.sweep()
    assert ids(report["terminated"]) == [2] and bench.queue.get("busy").to_end is None
    assert report["terminated"][0]["reason"] == "left over from attempt 1; the job is on instance 9, in attempt 2"


def test_a_job_that_goes_on_meanwhile_keeps_its_machine(bench: Bench) -> None:
    job = bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(2, "busy")
    bench.clock.sleep(3 * HOUR)
    bench.at_listing(1, lambda: (bench.queue.claim("w", 60, "busy"), bench.queue.save(job, "w", progressed=True)))
    report = bench.sweep()
    assert not report["terminated"] and not report["errors"] and bench.account.destroyed == []
    assert bench.queue.get("busy").to_end is None
    assert [event.kind for event in bench.events] == ["refused"]


@pytest.mark.parametrize("change", ["its job was submitted", "other label", "gone"])
def test_a_machine_that_changed_meanwhile_is_looked_at_again(bench: Bench, change: str) -> None:
    bench.add_machine(2, "nobody")
    changes: dict[str, Callable[[], object]] = {
        "its job was submitted": lambda: bench.add_job("nobody", JobState.TRAINING, instance_id=2),
        "other label": lambda: bench.account.rows[2].update(label="rescued"),
        "gone": bench.account.rows.clear,
    }
    bench.at_listing(1, changes[change])
    report = bench.sweep()
    assert not report["terminated"] and not report["errors"] and bench.account.destroyed == []


def test_a_machine_that_is_kept_on_purpose_is_alerted_each_time(bench: Bench) -> None:
    bench.add_job("done", JobState.COMPLETED, replace(REQUEST, on_finish="keep"), instance_id=2)
    bench.add_machine(2, "done", dph_total=None)
    for report in bench.watch(300, HOUR):
        assert report["terminated"] == []
        assert [(alert["type"], alert["cost_per_hour"]) for alert in report["alerts"]] == [("INSTANCE_KEPT", None)]


def test_all_instances_means_also_foreign_kept_and_busy_ones(bench: Bench) -> None:
    bench.add_job("done", JobState.COMPLETED, replace(REQUEST, on_finish="keep"), instance_id=1)
    bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(1, "done")
    bench.add_machine(2, "busy")
    bench.account.add(3, "somebody's")
    assert ids(bench.sweep(dry_run=True, all_instances=True)["planned"]) == [1, 2, 3]
    assert bench.account.destroyed == []
    report = bench.sweep(all_instances=True)
    assert ids(report["terminated"]) == [1, 3, 2] and bench.account.rows == {}
    assert report["terminated"][1]["reason"] == "All instances will be destroyed (it has no training label)"
    ended = bench.queue.get("busy").to_end
    assert ended and ended[0] is JobState.FAILED and bench.queue.get("done").to_end is None


def test_a_dry_run_says_what_would_go_and_changes_nothing(bench: Bench) -> None:
    bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(2, "busy")
    bench.add_machine(3, "nobody")
    bench.clock.sleep(3 * HOUR)
    bench.see_before()
    before = bench.queue.list_jobs()
    report = bench.sweep(dry_run=True)
    assert ids(report["planned"]) == [2, 3] and report["terminated"] == []
    assert bench.account.asked == ["show instances --raw"]
    assert bench.queue.list_jobs() == before and bench.told == []
    assert report == sweep_instances(owner="me", store=bench.store, transport=bench.transport, clock=bench.clock), (
        "a sweep is a dry run unless one says otherwise"
    )
    seen, bench.account.down = bench.store.load_run("sweep me", dict), True
    for report in bench.watch(300, HOUR, dry_run=True):
        assert ids(report["errors"]) == [None] and report["alerts"] == []
    assert bench.told == [] and bench.store.load_run("sweep me", dict) == seen


def test_a_machine_that_a_dry_run_saw_first_is_remembered_though_a_listing_lacks_it(bench: Bench) -> None:
    bench.add_machine(3, "nobody", start_date=None)
    assert bench.sweep(dry_run=True)["planned"] == []
    bench.clock.sleep(300)
    rows, bench.account.rows = bench.account.rows, {}
    assert bench.sweep()["instances_checked"] == 0
    bench.account.rows = rows
    bench.clock.sleep(301)
    assert ids(bench.sweep()["terminated"]) == [3]


# ---------------------------------------------------------------- a listing that fails


def test_an_hour_of_failing_listings_destroys_nothing_and_alerts_once(bench: Bench) -> None:
    for number in range(1, 5):
        bench.add_machine(number, "nobody")
    bench.account.add(9, "somebody's")
    bench.account.down = True
    reports = bench.watch(300, HOUR)
    assert len(reports) > 20
    for report in reports:
        assert report["instances_checked"] is None and report["terminated"] == []
        assert ids(report["errors"]) == [None] and "broken" in report["errors"][0]["error"]
    [alert] = [alert for report in reports for alert in report["alerts"]]
    assert (alert["type"], alert["instance_id"]) == ("LISTING_FAILED", None)
    assert alert["seconds"] is not None and 600 <= alert["seconds"] <= 720
    [notice] = bench.notices
    assert (notice.kind, notice.priority, notice.generation) == ("listing_failed", "high", 1)
    assert len(bench.account.rows) == 5 and bench.account.destroyed == []


def test_each_outage_and_its_end_are_told_once_unless_it_is_short(bench: Bench) -> None:
    for seconds in (HOUR, 500, 500, HOUR):
        bench.account.down = True
        bench.watch(300, seconds)
        bench.account.down = False
        bench.watch(300, 400)
    assert bench.told == ["listing_failed", "listing_works"] * 2
    generations = [notice.generation for notice in bench.notices]
    assert generations[0] == generations[1] < generations[2] == generations[3]


def test_a_failed_sweep_is_tried_again_sooner_and_never_later(bench: Bench) -> None:
    bench.account.down = True
    bench.clock.at(240, lambda: setattr(bench.account, "down", False))
    bench.watch(300, 1200)
    assert bench.clock.slept == [5, 15, 30, 60, 120, 120, 300, 300, 300]
    bench.account.down = True
    bench.clock.slept.clear()
    bench.watch(10, 100)
    assert set(bench.clock.slept) == {5, 10}


def test_a_store_that_fails_is_survived(bench: Bench) -> None:
    class BrokenStore(Store):
        fails = 3

        def load_run(self, *given: Any, **options: Any) -> Any:
            self.fails -= 1
            if self.fails >= 0:
                raise TrainingMonitorError("the disk is full")
            return super().load_run(*given, **options)

    bench.add_machine(1, "nobody")
    bench.see_before()
    reports = bench.watch(300, 100, store=BrokenStore(bench.folder))
    assert [ids(report["terminated"]) for report in reports] == [[1]]
    failures = [event.text for event in bench.events if event.kind == "unreachable"]
    assert failures == ["the sweep failed: the disk is full"] * 3


def test_a_machine_that_one_listing_lacks_is_asked_to_go_all_the_same(bench: Bench) -> None:
    bench.add_job("done", JobState.FAILED)
    bench.add_machine(1, "done")
    hidden = dict(bench.account.rows)
    bench.at_listing(1, bench.account.rows.clear)
    bench.at_listing(2, lambda: bench.account.rows.update(hidden))
    assert ids(bench.sweep()["terminated"]) == [1]
    assert bench.account.destroyed and bench.account.rows == {}


def test_sweep_rechecks_pending_destroys_after_restart(bench: Bench) -> None:
    bench.add_job("done", JobState.FAILED)
    bench.add_machine(1, "done")

    def die() -> None:
        raise Killed

    requests = iter(range(99))
    bench.account.before = lambda: die() if next(requests) == 2 else None  # after both listings
    with pytest.raises(Killed):
        bench.sweep()
    assert bench.account.destroyed == [] and bench.told == []
    bench.account.before = alive
    there = dict(bench.account.rows)
    bench.account.rows.clear()
    bench.at_listing(1, lambda: bench.account.rows.update(there))
    assert ids(bench.sweep()["terminated"]) == [1]
    assert bench.account.destroyed and bench.account.rows == {}


def test_a_second_listing_that_fails_destroys_nothing(bench: Bench) -> None:
    bench.add_machine(1, "nobody")
    bench.see_before()
    bench.at_listing(1, lambda: setattr(bench.account, "down", True))
    report = bench.sweep()
    assert ids(report["errors"]) == [1] and bench.account.destroyed == []


def test_a_machine_that_stays_or_may_not_be_destroyed_is_reported_once_and_others_go(bench: Bench) -> None:
    for number in (1, 2, 3, 4):
        bench.add_machine(number, "nobody")
    bench.see_before()
    bench.account.undestroyable, bench.account.forbidden = {2}, {4}
    for _ in range(3):
        report = bench.sweep()
        assert ids(report["errors"]) == [2, 4] and "still exists 120 s" in report["errors"][0]["error"]
    assert sorted(bench.account.rows) == [2, 4]
    _, forbidden = [notice for notice in bench.notices if notice.kind == "instance_not_destroyed"]
    assert forbidden.priority == "urgent" and "403" in render(forbidden, PLAIN)
    bench.account.undestroyable = bench.account.forbidden = set()
    assert ids(bench.sweep()["terminated"]) == [2, 4]
    assert bench.told[-1] == "instance_swept" and bench.told.count("instance_swept") == 4


def test_a_machine_needed_again_is_not_reported_as_swept(bench: Bench) -> None:
    job = bench.add_job("busy", JobState.TRAINING, instance_id=2)
    bench.add_machine(2, "busy")
    bench.account.undestroyable = {2}
    bench.queue.claim("w", 9 * HOUR, "busy")
    bench.sweep()
    bench.clock.sleep(3 * HOUR)
    bench.sweep()
    bench.clock.sleep(600)
    assert ids(bench.sweep()["errors"]) == [2]
    bench.queue.save(job, "w", progressed=True)
    bench.sweep()
    bench.account.rows.clear()
    assert bench.sweep()["terminated"] == [] and "instance_swept" not in bench.told


def test_a_sweep_during_another_one_is_skipped(bench: Bench) -> None:
    bench.add_machine(1, "nobody")
    with bench.store.hold("sweep"):
        report = bench.sweep()
    assert report["skipped"] and report["instances_checked"] is None and bench.account.asked == []
    assert not bench.sweep()["skipped"]


@dataclass
class KillingStore(Store):
    """Dies at a moment of the store, which `kill` chooses; in the sweep's own thread, not in that of its notices."""

    folder: str
    kill: Callable[[], None]

    def __post_init__(self) -> None:
        Store.__init__(self, self.folder)

    def strike(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.kill()

    def save_run(self, key: str, state: object, *, finished: bool) -> None:
        self.strike()
        super().save_run(key, state, finished=finished)
        self.strike()

    def add_notice(self, user: str, notice: Notice, *, now: float) -> bool:
        self.strike()
        added = super().add_notice(user, notice, now=now)
        self.strike()
        return added

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        self.strike()
        with super().transaction() as execute:
            yield execute
        self.strike()


def test_killed_at_any_moment_and_called_again_it_comes_to_the_same_end(tmp_path: Path) -> None:
    moments = 0
    Bench(tmp_path / "0").add_job("busy", JobState.TRAINING, instance_id=1)
    for at in range(1, 200):
        shutil.copytree(tmp_path / "0", tmp_path / str(at))
        bench, passed = Bench(tmp_path / str(at)), iter(range(1, 10_000))
        bench.add_machine(1, "busy")
        bench.add_machine(2, "nobody")
        bench.account.add(3, "somebody's")
        bench.clock.sleep(3 * HOUR)
        bench.see_before()

        def strike(passed: Iterator[int] = passed, at: int = at) -> None:
            if next(passed) == at:
                raise Killed

        bench.account.before = bench.account.after = strike
        reports = []
        try:
            reports.append(bench.sweep(store=KillingStore(bench.folder, strike)))
        except Killed:
            moments += 1
            bench.account.before = bench.account.after = alive
            reports.append(bench.sweep())
        assert sorted(bench.account.rows) == [3] and 3 not in bench.account.destroyed
        ended = bench.queue.get("busy").to_end
        assert ended and ended[1] == "Training stuck in TRAINING (no update in 180min)"
        assert bench.told.count("instance_swept") == 2 and bench.told.count("orphan_instance") <= 1
        assert reports[-1]["errors"] == []
        if next(passed) <= at:
            break
    assert moments > 30
