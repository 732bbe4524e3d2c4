"""A whole job in memory: a market that lies when it is told to, its machines, and a worker that can be killed."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import EPOCH, Behaviour, FakeClock, FakeJobs, FakeTransport, gpu_answer, is_call, read_call
from tests.loopback.vast_rows import instance, no_such_ask, offer
from tests.unit.killing import Killed
from training_monitor.core.models import Event
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import LogUpdate, Notice
from training_monitor.notify import WebList
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.rent.config import ServiceConfig
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import TrainingQueue
from training_monitor.rent.worker import run_worker
from training_monitor.vast.rows import read_label
from training_monitor.vast.training_request import JobState, QueuedJob, TrainingRequest

JOB, STEPS_TRAINED, DEPOSIT = "demo-1", 60, 100.0
FOREIGN = (5, 6, 7)  # somebody else's instances, which are listed first
REQUEST = TrainingRequest(name="demo", command="train", account="alice", offers={"preferred_gpus": ()})
TIME = int(EPOCH)
LONGEST = 6 * 3600.0  # seconds on the clock, for any of these jobs


class OneThreadsClock(FakeClock):
    """Moved by the thread that made it alone: others wait for real, and shortly. Many waits are no wait for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._owner, self.ahead = threading.current_thread(), 0.0

    def time(self) -> float:
        """The time of this machine's clock, which may be set `ahead`, or back."""
        return super().time() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is not self._owner:
            return event.wait(0.05)
        self.slept.clear()
        assert self.elapsed < LONGEST, "it waits for ever"
        return super().wait(event, seconds)


class QuietStream:
    """A connection on which nothing is said until it is closed: a thread that follows it does not move the clock."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def chunks(self) -> Iterator[bytes]:
        self._closed.wait(60)
        return iter(())

    def close(self) -> None:
        self._closed.set()


class QuietTransport(FakeTransport):
    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Any:
        return super().stream(argv, input=input) if argv[1] == "-c" else QuietStream()


@dataclass
class FakeMarket:
    """The vastai CLI with an account, offers and machines; each new instance is a machine that was never used.

    `lies` are the listings to come that are not what is there: `empty` or `partial` (the first half). After the
    `dies_after`-th call, which the service has done, whoever called is gone; then come `lies_then`.
    """

    clock: FakeClock
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    offers: list[dict[str, Any]] = field(default_factory=list)
    machines: dict[int, FakeJobs] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    bills: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)  # what it was asked to destroy, and did
    calls: list[str] = field(default_factory=list)
    lies: list[str] = field(default_factory=list)
    dies_after: int | None = None
    lies_then: list[str] = field(default_factory=list)
    on_create: Callable[[int], str | None] = lambda number: None  # an error that is answered instead
    boots: Callable[[int], bool] = lambda number: True
    not_booted: str = "exited"
    gpu: Callable[[int], str] = lambda number: "NVIDIA GeForce RTX 4090"  # as the machine itself names it
    listed: Callable[[int], dict[str, Any]] = lambda number: {}  # keys of an instance's row
    behaviour: Behaviour = field(default_factory=lambda: Behaviour(total=STEPS_TRAINED, save_every=20))

    def __post_init__(self) -> None:
        self.rows = {number: instance(number, label="somebody else's") for number in FOREIGN}
        self.transport = QuietTransport(lambda script: ("", 1))
        self.transport.register(["vastai"], self._vastai)
        self.transport.register(["ssh"], self._ssh)
        self.transport.register(["rsync"], self._rsync)
        self.transport.register(["sh", "-c"], lambda words, names: self._rsync(words[words.index("rsync") :], names))

    # ---------------------------------------------------------------- what instances cost, whoever counts it elsewhere

    def bill(self, number: int, per_hour: float) -> None:
        """Charge another price from now on; 0: it is gone."""
        self.bills.setdefault(number, []).append((self.clock.elapsed, per_hour))

    def set_price(self, per_hour: float) -> None:
        """Let all our instances cost this from now on."""
        for number in self.ours():
            self.rows[number]["dph_total"] = per_hour
            self.bill(number, per_hour)

    def cost(self) -> float:
        """The dollars that our instances have cost."""
        dollars = 0.0
        for changes in self.bills.values():
            ends = [*(since for since, _ in changes[1:]), self.clock.elapsed]
            dollars += sum(price * (end - since) for (since, price), end in zip(changes, ends, strict=True)) / 3600
        return dollars

    def add_offers(self, *numbers: int, **details: Any) -> None:
        for number in numbers:
            row = offer(number, price=number / 10, machine_id=500 + number, host_id=800 + number)
            self.offers.append({"dph_total": number / 10, **row, **details})

    def ours(self) -> list[int]:
        return [number for number in self.rows if number not in FOREIGN]

    def lose_ours(self) -> None:
        """Our instances go, and nobody asked for that."""
        for number in self.ours():
            del self.rows[number]
            self.bill(number, 0.0)

    # ---------------------------------------------------------------- vastai

    def _vastai(self, words: tuple[str, ...], typed: str | None) -> CommandResult:
        acts = {
            ("search", "offers"): self._search,
            ("create", "instance"): self._create,
            ("show", "instance"): self._show,
            ("show", "instances"): self._list,
            ("destroy", "instance"): self._destroy,
            ("stop", "instance"): self._stop,
        }
        stdout, stderr = acts[words[1], words[2]](words)
        self.calls.append(" ".join(words[1:3]))
        if len(self.calls) == self.dies_after:
            self.lies = list(self.lies_then)
            raise Killed
        return CommandResult(words, 0, stdout, stderr, 0.1)

    def _search(self, words: tuple[str, ...]) -> tuple[str, str]:
        return json.dumps([row for row in self.offers if row["rentable"]]), ""

    def _list(self, words: tuple[str, ...]) -> tuple[str, str]:
        rows, lie = list(self.rows.values()), self.lies.pop(0) if self.lies else ""
        if lie:
            rows = [] if lie == "empty" else rows[: len(rows) // 2]
        return json.dumps({"instances": rows, "total_instances": len(rows), "next_token": None}), ""

    def _show(self, words: tuple[str, ...]) -> tuple[str, str]:
        number = int(words[3])
        row = self.rows.get(number)
        if row and number not in FOREIGN:
            row["actual_status"] = "running" if self.boots(number) else self.not_booted
        return json.dumps(row or {"instances": None}), ""

    def _create(self, words: tuple[str, ...]) -> tuple[str, str]:
        number = int(words[3])
        found = next((row for row in self.offers if row["id"] == number and row["rentable"]), None)
        if error := self.on_create(number):
            return "", error
        if found is None:
            return "", json.dumps({"error": True, "status_code": 404, "msg": no_such_ask(number)["msg"]})
        found["rentable"] = False
        label, new = words[words.index("--label") + 1], 70_001 + len(self.created)
        details = {name: found[name] for name in ("machine_id", "host_id", "dph_total")}
        details |= {"actual_status": "loading", "start_date": self.clock.time(), "ssh_port": 22}
        self.rows[new] = instance(new, label=label, **details) | self.listed(new)
        self.machines[new] = FakeJobs(self.clock, [self.behaviour], gpus=gpu_answer(0).replace("H100", self.gpu(new)))
        self.created.append(dict(self.rows[new]))
        self.bill(new, self.rows[new]["dph_total"])
        return json.dumps({"success": True, "new_contract": new}), ""

    def _destroy(self, words: tuple[str, ...]) -> tuple[str, str]:
        number = int(words[3])
        if number not in self.rows:
            return "", f"Failed with error 404: Instance {number} not found\n"
        assert number not in FOREIGN, "somebody else's instance"
        del self.rows[number]
        self.bill(number, 0.0)
        self.acknowledged.append(number)
        return f"destroying instance {number}.\n", ""

    def _stop(self, words: tuple[str, ...]) -> tuple[str, str]:
        number = int(words[3])
        self.boots = lambda each: each != number
        self.rows[number] |= {"intended_status": "stopped"}
        return f"stopping instance {number}.\n", ""

    # ---------------------------------------------------------------- the machines

    def _ssh(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        [number] = [int(word.rpartition("-")[2]) for word in words if word.startswith("HostKeyAlias=")]
        if number not in self.rows:
            return CommandResult(words, 255, "", "ssh: connect to host 1.2.3.4 port 22: Connection refused\n", 0.0)
        machine = self.machines[number]
        return FakeTransport(lambda script: _answer(machine, script)).answer_all(words, program)

    def _rsync(self, words: tuple[str, ...], names: str | None) -> CommandResult:
        """From the machine to here, a checkpoint is a kilobyte; what goes to a machine leaves no trace here."""
        for name in [] if "@" in words[-1] else (names or "").split("\0"):
            path = os.path.join(words[-1], name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).write_bytes(b"m" * 1000)
            os.utime(path, (TIME, TIME))
        return CommandResult(words, 0, "", "", 0.1)


def _answer(machine: FakeJobs, script: str) -> tuple[str, int]:
    """What a script prints on a machine, recognised by what only it does."""
    if script.startswith("echo ready"):
        return "ready\n", 0
    if is_call(script, "host", "show_disks"):
        return "/\n--\nFilesystem 1024-blocks Used Available Capacity Mounted\n/dev/a 1 1 999999999 1% /\n", 0
    if is_call(script, "log"):
        return "state=missing\n", 0
    if (call := read_call(script)) and call.subject == "copying":
        found = re.search(r"step_(\d+)", call.given["folder"] + call.given["names"])
        file = f"file 1000 {TIME} ./step_{found[1]}/model.safetensors\n" if found else ""
        return f"state=folder\nroot=/out\ntool rsync\n{file}", 0
    return machine.answer(script)


@dataclass
class JobWorld:
    """A store with one job in its queue, and a worker for it that may be killed and started again."""

    folder: Path
    kill_at: tuple[JobState, str] | None = None  # the state that is to be written, and before or after that
    on_state: Callable[[JobState], None] = lambda state: None
    on_event: Callable[[Event], None] = lambda event: None
    on_line: Callable[[LogUpdate], None] = lambda update: None
    events: list[Event] = field(default_factory=list)
    config: ServiceConfig = field(default_factory=lambda: ServiceConfig(check_interval=30.0))

    def __post_init__(self) -> None:
        self.clock = OneThreadsClock()
        self.market = FakeMarket(self.clock)
        self.market.add_offers(1, 2, 3)
        self.store = Store(str(self.folder / "state"))
        self.queue = TrainingQueue(self.store, clock=self.clock)
        Credits(self.store, clock=self.clock).deposit("alice", DEPOSIT, "paid in", payment_id="1")

    @property
    def job(self) -> QueuedJob:
        return self.queue.get(JOB)

    def submit(self, request: TrainingRequest = REQUEST) -> None:
        self.queue.submit(request, JOB)

    def work(self) -> QueuedJob:
        """Work on the job to its end; a worker that is killed is followed by the next one."""
        for _ in range(5):
            try:
                self._work_once()
                return self.job
            except Killed:
                self.clock.sleep(2 * self.config.lease_seconds)
        raise AssertionError("it is killed for ever")

    def _work_once(self) -> None:
        save = TrainingQueue.save

        def watched(queue: TrainingQueue, job: QueuedJob, worker: str, **more: Any) -> QueuedJob:
            before = queue.get(job.id).state
            at = self.kill_at if before is not job.state and self.kill_at and self.kill_at[0] is job.state else None
            if at and at[1] == "before":
                self.kill_at = None
                raise Killed
            saved = save(queue, job, worker, **more)
            if before is not job.state:
                self.on_state(job.state)
            if at:
                self.kill_at = None
                raise Killed
            return saved

        TrainingQueue.save = watched  # type: ignore[method-assign]
        outbox = Outbox(TrainingNotifier([WebList()], store=self.store), self.store)
        try:
            run_worker(
                JOB,
                sweep=False,
                config=self.config,
                outbox=outbox,
                on_event=self._hear,
                on_line=self.on_line,
                store=self.store,
                transport=self.market.transport,
                clock=self.clock,
            )
        finally:
            TrainingQueue.save = save  # type: ignore[method-assign]
            outbox.close(1.0)  # its thread would look for the state folder when the test is over

    def lie_at(self, state: JobState, lies: list[str]) -> None:
        """Let the next listings lie from when the job comes to a state."""
        self.on_state = lambda now: self.market.lies.extend(lies) if now is state else None

    def cancel_at_create(self) -> None:
        """Have somebody cancel the job while a machine is asked for."""

        def cancel(number: int) -> None:
            self.queue.request_end(JOB, JobState.CANCELLED, "enough")

        self.market.on_create = cancel

    def measure_silence(self) -> list[float]:
        """The seconds between two events, as they come."""
        times = [0.0]
        gaps: list[float] = []

        def heard(event: Event) -> None:
            gaps.append(self.clock.elapsed - times[-1])
            times.append(self.clock.elapsed)

        self.on_event = heard
        return gaps

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    # ---------------------------------------------------------------- what came of it

    def notices(self) -> list[Notice]:
        return [kept.notice for kept in self.store.recent_notices()]

    def told(self) -> list[str]:
        """Everything that a person could read of it."""
        notices = [f"{each.title} {each.fields} {each.text}" for each in self.notices()]
        return [*(event.text for event in self.events), *notices, *self.job.work.warnings, self.job.work.reason or ""]

    def check_books(self, context: object = None) -> None:
        """One machine was rented and is gone; money, machines and files are those of an undisturbed job."""
        job, market = self.job, self.market
        shown = (context, [event.text for event in self.events][-8:])
        assert job.state is JobState.COMPLETED and job.work.reason == "completed", shown
        assert market.ours() == [] and sorted(market.rows) == list(FOREIGN), shown
        assert [read_label(row["label"])[1:] for row in market.created] == [(JOB, 1)], shown  # type: ignore[index]
        assert market.acknowledged == [row["id"] for row in market.created], shown
        [rental] = job.work.rentals
        assert rental.instance_id == market.created[0]["id"] and rental.ended_at, shown
        spent = market.cost()
        credits = Credits(self.store, clock=self.clock)
        charged = job.work.spent
        assert charged is not None and abs(charged - spent) <= 0.05 * spent and spent > 0, (charged, spent, shown)
        assert [each.kind for each in credits.movements("alice")] == ["deposit", "reserve", "settle"], shown
        assert abs(credits.balance("alice") - (DEPOSIT - charged)) < 2e-6, shown
        assert job.work.saved_path and job.work.saved_step == STEPS_TRAINED, shown
        assert os.path.getsize(os.path.join(job.work.saved_path, "model.safetensors")) == 1000, shown
        assert job.work.warnings == () and not job.work.bad_machines and not job.work.bad_hosts, shown
        assert any("destroyed" in text or "no longer listed" in text for text in self.told()), shown
