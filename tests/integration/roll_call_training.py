"""Trainings of real processes that meet at a barrier of their own, some rank of which does something else.

The programs are those of `roll_call_programs`; each training runs in a folder of its own. All of its processes end with
the process that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).parent / "roll_call_programs"
REPOSITORY = Path(__file__).parents[2]
# Not that of a virtual environment, which may have py-spy beside it.
PYTHON = getattr(sys, "_base_executable", sys.executable)
# These would tell a training where the test that starts it keeps its state.
OURS = ("TRAINING_MONITOR_STATE_DIR", "TRAINING_MONITOR_JOBS_DIR", "XDG_RUNTIME_DIR", "VIRTUAL_ENV", "PYTHONPATH")
ODD_STEP = 3
STUCK = ("lock", "pipe", "busy", "sleep")
ABSENT = ("dead", "reaped", "missing")  # `reaped` is `dead` under a launcher that takes note of it
KINDS = (*STUCK, *ABSENT)

# What `nvidia-smi -q` prints of a GPU with uncorrectable errors in its SRAM.
BROKEN_GPU = """
==============NVSMI LOG==============

Timestamp                                 : Tue Jan  1 10:00:00 2030
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 1
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 2
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 0
"""


def place_of(mark: str) -> tuple[str, int]:
    """The file and the line that a comment of the programs marks."""
    for name in ("data.py", "train.py"):
        for number, line in enumerate((PROGRAMS / name).read_text().splitlines(), 1):
            if f"# {mark}" in line:
                return name, number
    raise LookupError(mark)


FUNCTIONS = {
    "pipe": "load_batch",
    "sleep": "wait_for_storage",
    "socket": "read_remote",
    "lock": "take_lock",
    "busy": "spin",
}
PLACES = {kind: place_of(f"odd: {kind}") for kind in FUNCTIONS}
# Where all others are: in `meet`, which `train` calls.
WAITING = [place_of("waits: the place"), place_of("waits: the call")]


@dataclass(frozen=True)
class Machine:
    """Where a part of a training runs.

    Attributes:
        address: its target string.
        enter: words for `inside`; none for this machine.
        proc: its /proc, as this machine sees it.
        environment: of what runs there.
    """

    address: str = "local"
    enter: tuple[str, ...] = ()
    proc: Path = Path("/proc")
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def separate_processes(name: str, *, with_own_tmp: bool = False) -> Iterator[tuple[tuple[str, ...], Path]]:
    """A machine within this one, with a name and processes of its own, and on request with empty /tmp and /var/tmp.

    Yields:
        Words for `inside`, and its /proc as this machine sees it.

    Raises:
        OSError: this user may not make one.
    """
    mounts = "mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /var/tmp && " if with_own_tmp else ""
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child"]
    command = [*words, "sh", "-c", f"hostname {name} && {mounts}echo ready && exec cat"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as holder:
        assert holder.stdout and holder.stderr
        if holder.stdout.readline() != b"ready\n":
            raise OSError(f"no machine within this one: {holder.stderr.read().decode()}")
        [init] = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        try:
            yield ("nsenter", "-t", init, "--pid", "--mount", "--uts"), Path(f"/proc/{init}/root/proc")
        finally:
            os.kill(int(init), signal.SIGKILL)  # and with it all that runs there


def inside(enter: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Words that run a command on a machine in a folder."""
    return (*enter, f"--wdns={folder}") if enter else ()


@dataclass(frozen=True)
class Plan:
    """A training: its ranks, and which of them do what at `last_step`.

    Attributes:
        odd: a kind, or `socket`, by rank.
        mute_at: the step at which the barrier falls silent, so that nobody is odd.
        python: the interpreter of all its processes.
        is_barrier_in_rank_0: or else in the launcher.
    """

    world: int = 4
    odd: Mapping[int, str] = field(default_factory=dict)
    is_barrier_in_rank_0: bool = False
    mute_at: int | None = None
    with_monitor: bool = False
    measures_gaps: bool = False
    python: str = PYTHON
    steps: int = 1_000_000
    step_seconds: float = 0.02

    def __str__(self) -> str:
        where = " with its barrier in rank 0" if self.is_barrier_in_rank_0 else ""
        return ", ".join(f"{rank}={kind}" for rank, kind in self.odd.items()) + f" of {self.world}{where}"

    @property
    def is_stuck(self) -> bool:
        return bool(self.odd) or self.mute_at is not None

    @property
    def last_step(self) -> int:
        """The step at which all others wait."""
        return 1 if "missing" in self.odd.values() else self.mute_at or ODD_STEP

    def write(self, folder: Path) -> None:
        odd = {rank: "dead" if kind == "reaped" else kind for rank, kind in self.odd.items()}
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plan = {**known, "odd": odd, "odd_step": self.last_step, "reaps": "reaped" in self.odd.values()}
        (folder / "plan.json").write_text(json.dumps(plan))


class Identity(NamedTuple):
    """A process, by when it began, and whether it is stopped."""

    pid: int
    start: str
    is_stopped: bool


@dataclass(frozen=True)
class Member:
    """A rank that runs: `pid` as its own machine sees it."""

    rank: int
    local_rank: int
    local_world: int
    pid: int
    machine: Machine

    def stat(self) -> list[str]:
        """The fields of /proc/PID/stat after the name."""
        return (self.machine.proc / str(self.pid) / "stat").read_text().rpartition(")")[2].split()

    @property
    def state(self) -> str:
        return self.stat()[0]

    @property
    def identity(self) -> Identity:
        state, start = self.stat()[0], self.stat()[19]
        return Identity(self.pid, start, state in "Tt")


class Training:
    """A training that runs, an equal part of its ranks on each machine; `parts` leaves out the others."""

    def __init__(
        self, plan: Plan, folder: Path, machines: Sequence[Machine] = (Machine(),), parts: int | None = None
    ) -> None:
        self.plan, self.folder, self.machines = plan, folder, machines[:parts]
        self.count = plan.world // len(machines)
        self._launchers: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True)
        for program in PROGRAMS.glob("*.py"):
            shutil.copy(program, folder)
        plan.write(folder)
        if plan.measures_gaps:
            (folder / "gaps").write_bytes(bytes(8 * plan.world))

    def start(self) -> None:
        for number, machine in enumerate(self.machines):
            first = number * self.count
            port = [str(self._started(0)["port"])] if number else []
            words = [self.plan.python, "launch.py", str(first), str(self.count), *port]
            with (self.folder / f"train-{first}.log").open("wb") as log:
                launcher = subprocess.Popen(
                    [*inside(machine.enter, self.folder), *words],
                    cwd=self.folder,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=self._environment(machine),
                )
            self._launchers.append(launcher)

    def _environment(self, machine: Machine) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if name not in OURS}
        path = {"PYTHONPATH": str(REPOSITORY)} if self.plan.with_monitor else {}
        return {**known, **path, **machine.environment}

    def _started(self, first: int) -> dict[str, object]:
        path = self.folder / f"started-{first}.json"
        wait_for(path.exists, lambda: f"{self.plan} does not start: {self.logs()}")
        found: dict[str, object] = json.loads(path.read_text())
        return found

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("train-*.log")))

    @cached_property
    def members(self) -> dict[int, Member]:
        """All ranks that were started."""
        found = {}
        for number, machine in enumerate(self.machines):
            first = number * self.count
            ranks = self._started(first)["ranks"]
            assert isinstance(ranks, dict)
            for rank, pid in ranks.items():
                found[int(rank)] = Member(int(rank), int(rank) - first, self.count, pid, machine)
        return found

    @property
    def living(self) -> dict[int, Member]:
        """The ranks that should run."""
        return {rank: member for rank, member in self.members.items() if self.plan.odd.get(rank) not in ABSENT}

    def says(self, rank: int) -> str:
        """What a rank said that it is about to do."""
        with suppress(FileNotFoundError):
            return (self.folder / f"rank-{rank}").read_text()
        return ""

    def is_ready(self) -> bool:
        """Whether each rank is where it stays for ever; of a training that continues, whether it makes steps."""
        if not self.plan.is_stuck:
            return "step 3/" in self.logs()
        return all(self._is_at_its_end(rank) for rank in self.members)

    def _is_at_its_end(self, rank: int) -> bool:
        kind, member = self.plan.odd.get(rank), self.members[rank]
        if kind in ("dead", "reaped"):
            return not (member.machine.proc / str(member.pid)).exists() or (kind == "dead" and member.state == "Z")
        if kind:
            return self.says(rank) == "odd" and member.state == ("R" if kind == "busy" else "S")
        return self.says(rank) == f"waits {self.plan.last_step}" and member.state == "S"

    def wait_until_ready(self) -> None:
        wait_for(self.is_ready, lambda: f"{self.plan} does not get there: {self.logs()}")

    def identities(self) -> dict[int, Identity]:
        """What must be the same afterwards; OSError: one is gone."""
        return {rank: member.identity for rank, member in self.living.items()}

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}

    def end(self) -> None:
        for launcher in self._launchers:
            assert launcher.stdin
            launcher.stdin.close()  # it then ends all of its session
        for launcher in self._launchers:
            with suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()


@contextmanager
def running(*trainings: Training) -> Iterator[None]:
    """Start these, and end them."""
    try:
        for training in trainings:
            training.start()
        yield
    finally:
        for training in trainings:
            training.end()


def wait_for(condition: Callable[[], object], what: Callable[[], str], seconds: float = 60) -> None:
    """Raises TimeoutError, with what is the matter."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what())
        time.sleep(0.02)
