"""Machines in memory for a fleet: rented ones that a vastai lists, and this one; each can fail or hang."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import EPOCH, FakeClock, FakeTransport, gpu_answer, is_call, read_call, read_cursor
from training_monitor.core.errors import TargetUnreachable, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.core.values import Notice
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import MemberSpec

MEMORY = "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    250 kB\n"
TABLE = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 1000 300 700 30% /workspace\n"


@dataclass
class Machine:
    """What the scripts of a look print there."""

    log: str = "step 1/100 loss 0.5\n"
    inode: int = 7
    path: str = "/workspace/output/a/training.log"
    pid: int | None = 100
    error: TrainingMonitorError | None = None
    hang: threading.Event | None = None
    gpus: str = gpu_answer(97, 500)
    asked: int = 0
    scripts: list[str] = field(default_factory=list)
    now: float = 0.0
    written_at: float = 0.0
    written: object = None
    slept: float = 0.0
    waits: bool = False  # its process does nothing
    oom: int = 0

    def pass_time(self, now: float) -> None:
        """Its log was written to just now if it is another one than at the last look."""
        if self.written != (self.path, self.inode, self.log):
            self.written, self.written_at = (self.path, self.inode, self.log), now
        self.now = now

    def answer(self, script: str) -> tuple[str, int]:
        self.scripts.append(script)
        if is_call(script, "gpu"):
            return self.gpus, 0
        if is_call(script, "host"):
            return f"{MEMORY}--\n{TABLE}--\n{self.path}", 0
        if is_call(script, "log"):
            return self._read_log(script), 0
        call = read_call(script)
        if call and call.subject == "pid_file":
            return self._process(), 0
        if call and call.subject == "evidence":
            return self._evidence(call.given["seconds"] != "0"), 0
        if is_call(script, "log_samples"):
            return "", 0
        if is_call(script, "job", "look"):
            return "state=missing\n", 0
        if call and call.subject in ("find_trainings", "jobs", "ray", "ray_signs", "recent_logs"):
            return "", 1  # nobody knows what else runs there
        raise AssertionError(f"unexpected script: {script[-300:]}")

    def write_log(self, text: str, age: float) -> None:
        """Have a log that was written to so many seconds before the first look."""
        self.log = text
        self.written, self.written_at = (self.path, self.inode, text), -age

    def _evidence(self, is_sampled: bool) -> str:
        head = f"boot=b\nhz=100\nawake={int(100 * (1000 + self.now - self.slept))}\noom={self.oom}\n"
        if self.pid is None:
            return f"{head}roots=\nup=600\ntable=read\nend\n"
        if not self.waits:
            return f"{head}end\n"
        process = f"proc {self.pid} S 1 1 1 100 50 0 0 1 python3\n/proc/{self.pid}/io:wchar: 1000\n"
        again = f"again=600.5\n{process}" if is_sampled else ""
        return f"{head}roots={self.pid}\nup=600\ntable=read\n{process}{again}end\n"

    def _process(self) -> str:
        if self.pid is None:
            return "state=gone\nreason=no process\n"
        return f"state=running\npid={self.pid}\nstart=1\nboot=b\nage=60\npids={self.pid}\ncommand=train\n"

    def _read_log(self, script: str) -> str:
        known, offset = read_cursor(script)
        if not self.path:
            return "state=missing\n"
        reset = "rotated" if known and known != self.inode else ""
        if known and not reset and len(self.log) < offset:
            reset = "truncated"
        new = self.log[offset if known and not reset else 0 :]
        held = len(new) - max(new.rfind("\n"), new.rfind("\r")) - 1
        fields = {"state": "read", "inode": self.inode, "offset": len(self.log) - held, "check": "c"}
        fields |= {"reset": reset, "skipped": 0, "held": held, "age": int(self.now - self.written_at)}
        return "".join(f"{key}={value}\n" for key, value in fields.items()) + f"log\n{new}"


def row(number: int, **details: Any) -> dict[str, Any]:
    found = {"id": number, "actual_status": "running", "intended_status": "running", "gpu_name": "H100", "num_gpus": 1}
    found |= {"ssh_host": "ssh5.vast.ai", "ssh_port": 10000 + number, "dph_total": 0.5, "start_date": EPOCH - 3600}
    return {**found, **details}


class World:
    """An account and its machines; `transport` reaches them."""

    def __init__(self, *numbers: int) -> None:
        self.clock = FakeClock()
        self.rows = {number: row(number) for number in numbers}
        self.machines: dict[str, Machine] = {f"vast-{number}": Machine() for number in numbers}
        self.machines["local"] = Machine()
        self.credit: Any = 12.5
        self.listing: str | Exception | None = None  # instead of the listing
        self.listing_hangs: threading.Event | None = None
        self.lying: list[dict[str, Any]] | None = None  # what a well-formed listing says instead of what is there
        self.show_fails = False
        self.said: list[tuple[str, ...]] = []
        self.refuses = False
        self._lock = threading.Lock()

    def machine(self, name: int | str) -> Machine:
        return self.machines[f"vast-{name}" if isinstance(name, int) else name]

    def listings(self) -> int:
        return len([words for words in self.said if words[:3] == ("vastai", "show", "instances")])

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        words = tuple(argv)
        with self._lock:
            self.said.append(words)
        if words[0] == "vastai":
            return CommandResult(words, *self._vastai(words), 0.1)
        if words[0] == "ssh":
            [name] = [word.partition("=")[2] for word in words if word.startswith("HostKeyAlias=")] or [words[-2]]
        else:
            name = "local"
        machine = self.machines[name]
        machine.asked += 1
        machine.pass_time(self.clock.elapsed)
        if machine.hang:
            machine.hang.wait(20)
        if machine.error:
            raise machine.error
        return FakeTransport(machine.answer).answer_all(words, input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Any:
        raise AssertionError("a fleet streams nothing")

    def _vastai(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        if words[1:3] == ("show", "user"):
            return 0, json.dumps({"credit": self.credit}), ""
        if words[1] in ("destroy", "stop", "start", "reboot"):
            number = int(words[3])
            if self.refuses:
                return 0, "", "failed with error 500: no"
            if number not in self.rows:
                return 0, "", f"Failed with error 404: Instance {number} not found"
            if words[1] == "destroy":
                del self.rows[number]
                return 0, f"destroying instance {number}.\n", ""
            if words[1] == "start":
                self.rows[number] |= {"actual_status": "loading", "intended_status": "running", "cur_state": "running"}
                return 0, f"starting instance {number}.\n", ""
            if words[1] == "reboot":
                self.rows[number] |= {"actual_status": "rebooting"}
                return 0, f"Rebooting instance {number}.\n", ""
            self.rows[number] |= {"actual_status": "exited", "intended_status": "stopped", "cur_state": "stopped"}
            return 0, f"stopping instance {number}.\n", ""
        if self.listing_hangs:
            self.listing_hangs.wait(20)
        if words[1:3] == ("show", "instance"):
            if self.show_fails:
                return 0, "", '{"error": true, "status_code": 500, "msg": "internal"}'
            return 0, json.dumps(self.rows.get(int(words[3]), {"instances": None})), ""
        if isinstance(self.listing, Exception):
            raise self.listing
        rows = list(self.rows.values()) if self.lying is None else self.lying
        if "--limit" in words:
            page = {"instances": rows, "next_token": None, "total_instances": len(rows)}
            return 0, json.dumps(page) if self.listing is None else self.listing, ""
        return 0, json.dumps(rows) if self.listing is None else self.listing, ""


def unreachable(said: str = "connection refused") -> TargetUnreachable:
    return TargetUnreachable(said)


class Watch:
    """A monitor over machines in memory, and what it has told."""

    def __init__(self, *numbers: int, specs: tuple[MemberSpec, ...] = (), **options: Any) -> None:
        self.world = World(*numbers)
        self.notices: list[Notice] = []
        given = {"whole_account": bool(numbers), "transport": self.world, "clock": self.world.clock}
        self.monitor = FleetMonitor(specs, **{**given, "tell": self.notices.append, **options})

    def look(self, after: float = 10) -> dict[str, TrainingMetrics]:
        self.world.clock.sleep(after)
        return self.monitor.update_all_metrics()

    def row(self, after: float = 10) -> TrainingMetrics:
        """The only member."""
        [found] = self.look(after).values()
        return found

    def level(self, after: float = 10) -> str:
        return self.row(after).health().level

    @property
    def told(self) -> list[str]:
        return [alert.kind for alert in self.monitor.snapshot().alerts]

    def train(self, steps: range, seconds: float = 10, total: int = 1000) -> None:
        """Let local make steps, and look at each."""
        for step in steps:
            self.world.machine("local").log += f"step {step}/{total} loss 0.5\n"
            self.look(seconds)


def eventually(condition: Callable[[], Any], seconds: float = 10) -> bool:
    """Whether something comes to be so."""
    end = time.monotonic() + seconds
    while not (found := bool(condition())) and time.monotonic() < end:
        time.sleep(0.01)
    return found
