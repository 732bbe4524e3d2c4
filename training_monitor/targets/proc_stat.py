"""Parse /proc/PID/stat and /proc/PID/task/TID/stat (proc(5)) and the output of `targets/sh/process_tree.sh`. Pure.

Also the values that identify a process and describe a machine's processes, and the words for the outcome of a signal,
which are the same for this machine and for targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from training_monitor.core.errors import SettingsError
from training_monitor.core.regex import regex

# Environment variables in which launchers set the global rank of a process; the first one present counts.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
MOST_ANCESTORS = 128
ENDED_STATES = ("Z", "X", "x")  # zombie: it has ended but was not reaped by its parent
STOP, CONTINUE = 19, 18  # Linux's numbers, whatever this machine is: every target has /proc
SIGNAL_NUMBERS = {
    "TERM": 15,
    "INT": 2,
    "KILL": 9,
    "STOP": STOP,
    "CONT": CONTINUE,
    "HUP": 1,
    "USR1": 10,
    "USR2": 12,
    "QUIT": 3,
}
_LOOPBACK = regex(r"localhost\S*|127\.[\d.]+|::1|\[::1\]")
_NAMES = {number: name for name, number in SIGNAL_NUMBERS.items()}
_LAST = 64
_NOTHING = {
    "own": "it is the process that runs this inspection",
    "never": "signals to it are not allowed",
    "boot": "its machine has restarted, or may have restarted, since then",
    "namespace": "its pid belongs to another container (pid namespace)",
    "unsure": "its start time is unknown, so it may be another process",
    "hidden": "this user has no permission to see it",
}
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for disk I/O",
    "I": "idle",
    "T": "stopped",
    "t": "held by a debugger",
}
# Index of a field after the name's closing parenthesis: its number in proc(5), less 3.
_STATE, _PARENT, _UTIME, _STIME, _THREADS, _START, _RSS = 0, 1, 11, 12, 17, 19, 21
_LINE = regex(r"proc (\d{1,10}) ([A-Za-z])((?: -?\d{1,19}){8}) (.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Identity:
    """What distinguishes a process from all others that had or will have its number.

    Attributes:
        pid: in the pid namespace of the process itself.
        start_ticks: field 22 of /proc/PID/stat, clock ticks from boot.
        hostname, boot_id: of its machine (/proc/sys/kernel/random/boot_id).
        pid_namespace: what /proc/self/ns/pid links to, as `pid:[4026531836]`.
    """

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {"start": "start_ticks", "boot": "boot_id"}  # see core/records.py

    pid: int
    start_ticks: int | None = None
    hostname: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None


class ProcessSample(NamedTuple):
    """One line of /proc/PID/stat (or of /proc/PID/task/TID/stat, whose `pid` is the thread's): times in ticks."""

    pid: int
    parent: int
    name: str
    state: str
    start_ticks: int
    cpu_ticks: int
    rss_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class MachineSample:
    """The processes of a machine at one moment.

    Attributes:
        at: seconds of the machine's own monotonic clock (/proc/uptime); only differences are meaningful.
        identity: hostname, boot id and pid namespace of the observer; its pid is that of the observing process.
        ticks: clock ticks a second. cores, memory_bytes: of the machine; available_bytes: MemAvailable.
        processes: by pid. threads: of the requested processes, by pid.
        gpu_mib: GPU memory by pid, over all GPUs; None when nvidia-smi did not answer, `gpu_error` says why.
        gpu_total_mib: over all GPUs.
        sees_all: whether `processes` is complete; hidepid hides those of other users, so a missing one may be alive.
    """

    at: float
    identity: Identity
    ticks: int
    cores: int | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None
    processes: Mapping[int, ProcessSample] = field(default_factory=dict)
    threads: Mapping[int, tuple[ProcessSample, ...]] = field(default_factory=dict)
    gpu_mib: Mapping[int, float] | None = None
    gpu_total_mib: float | None = None
    gpu_error: str | None = None
    sees_all: bool = True


def check_signal(number: int) -> None:
    """Raise SettingsError for an invalid signal number."""
    if not 1 <= number <= _LAST:
        raise SettingsError("signal", number, f"the number of a signal, from 1 to {_LAST}")


def signal_name(number: int) -> str:
    """Return SIGTERM for 15; `signal 40` for a signal without a common name."""
    return f"SIG{_NAMES[number]}" if number in _NAMES else f"signal {number}"


def describe_outcome(process: Identity, number: int, outcome: str, name: str = "", state: str = "") -> str:
    """Say in one sentence what a process was sent and what it did, or why it was sent nothing.

    Args:
        outcome: own, never, host, boot, namespace, unsure, hidden, owner, gone, other, zombie: nothing was sent;
            denied, failed: sending failed; ended, left: it was sent, and the process has ended, or is still there.
            Anything else: unknown.
        name: of the program that has this number now, "" if unknown.
        state: of a process that is still there, a letter as in /proc.
    """
    what, sent = f"process {process.pid}", signal_name(number)
    held = f"{what} ({name})" if name else what
    if outcome in _NOTHING:
        return f"{what}: no signal was sent, because {_NOTHING[outcome]}"
    if outcome == "left" and state:
        return f"{held}: {sent} was sent; {_left(state, number)}"
    sentences = {
        "host": f"{what}: no signal was sent, because it runs on {process.hostname or 'an unknown host'}",
        "gone": f"{what} has ended: no signal was sent",
        "other": f"{what} has ended; its pid now belongs to another process ({name}): no signal was sent",
        "zombie": f"{held} is a zombie: it has ended, but its parent has not collected it",
        "owner": f"{held}: no signal was sent, because its progress file belongs to another user",
        "denied": f"{held} belongs to another user: no permission to send {sent}",
        "failed": f"{held}: {sent} could not be sent",
        "ended": f"{held}: {sent} was sent, and the process has ended",
    }
    return sentences.get(outcome, f"{what}: the effect of {sent} is unknown")


def has_obeyed(state: str, number: int) -> bool:
    """Whether a process in this state is stopped, or continues, as the signal demanded."""
    return (number == STOP and state == "T") or (number == CONTINUE and state != "T")


def name_state(state: str) -> str:
    """Return a state of /proc in words: sleeping for S; the letter itself if it is not known."""
    return _STATES.get(state, state)


def _left(state: str, number: int) -> str:
    if has_obeyed(state, number):
        return "it is stopped" if number == STOP else "it continues"
    if state == "T" and number != CONTINUE:
        return "it is stopped, and will receive the signal after SIGCONT"
    return f"it still exists ({_STATES.get(state, '?')})"


def parse_stat(line: str, page_size: int) -> ProcessSample | None:
    """Parse one line; None for a malformed or truncated one.

    The name may contain spaces, parentheses and whole other lines: it ends at the last parenthesis. CPU ticks are those
    of the process itself (utime + stime), without the children it has waited for.
    """
    head, _, rest = line.rpartition(")")
    pid, opened, name = head.partition(" (")
    fields = rest.split(None, _RSS + 1)
    if not opened or len(fields) <= _RSS:
        return None
    try:
        goes_on = fields[_STATE] == "Z" and int(fields[_THREADS]) > 1  # its main thread alone has ended
        return ProcessSample(
            int(pid),
            int(fields[_PARENT]),
            name,
            "S" if goes_on else fields[_STATE],
            int(fields[_START]),
            int(fields[_UTIME]) + int(fields[_STIME]),
            int(fields[_RSS]) * page_size,
            int(fields[_THREADS]),
        )
    except ValueError:  # also for a number with more digits than Python converts
        return None


class Process(NamedTuple):
    """One process; times are in clock ticks, `start` since boot; `child_ticks` are those of ended children."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    ticks: int
    child_ticks: int
    start: int
    name: str

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a zombie has."""
        return self.state not in ENDED_STATES


def parse_process(line: str) -> Process | None:
    """Parse `proc PID STATE PARENT GROUP SESSION UTIME STIME CUTIME CSTIME START NAME`; None for any other line."""
    found = _LINE.fullmatch(line)
    if not found:
        return None
    parent, group, session, user, system, child_user, child_system, start = map(int, found[3].split())
    own, ended = max(0, user) + max(0, system), max(0, child_user) + max(0, child_system)
    return Process(int(found[1]), found[2], parent, group, session, own, ended, start, found[4])


def read_processes(lines: Iterable[str]) -> dict[int, Process]:
    """Return the processes in the lines by pid; other lines are skipped."""
    return {process.pid: process for line in lines if (process := parse_process(line))}


def ancestors_of(pid: int, table: Mapping[int, Process]) -> list[int]:
    """Return the ancestors of a process that are in the table, the nearest first; at most `MOST_ANCESTORS`."""
    found: dict[int, None] = {}
    while (process := table.get(pid)) and process.parent in table and process.parent not in found:
        if len(found) == MOST_ANCESTORS:
            break
        pid = process.parent
        found[pid] = None
    return list(found)


# ---------------------------------------------------------------- which ranks are one training


class Meeting(NamedTuple):
    """Where the ranks of a training meet; None means unknown.

    Attributes:
        address, port: those at which its first rank listens (PyTorch's MASTER_ADDR and MASTER_PORT).
        network: the host and the network namespace of the process.
        job: that of PMIx, or the step of a Slurm job.
    """

    address: str | None = None
    port: str | None = None
    network: str | None = None
    job: str | None = None

    @property
    def name(self) -> str | None:
        """Its address; "" for any name of one's own host."""
        return "" if self.address is not None and _LOOPBACK.fullmatch(self.address) else self.address

    def __str__(self) -> str:
        return f"{self.address or ''}:{self.port}" if self.port else f"job {self.job}"


def read_meeting(variables: Mapping[str, str], network: str | None) -> Meeting | None:
    """Return where a process meets the others, by its environment; None if that does not say."""
    step = [value for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if (value := variables.get(name))]
    job = variables.get("PMIX_NAMESPACE") or ".".join(step) or None
    port = variables.get("MASTER_PORT")
    return Meeting(variables.get("MASTER_ADDR"), port, network, job) if port or job else None


def are_one(one: Meeting | None, other: Meeting | None) -> bool | None:
    """Return whether those who meet here and there are one training; None if that is open.

    A loopback address is another one on each host and in each network namespace. Hosts may have different names for the
    same address, and the first rank may call its own `localhost`; on one host, all have the same name for it.
    """
    if one is None or other is None:
        return None
    if one.port and other.port:
        if one.port != other.port:
            return False
        is_one_network = one.network == other.network if one.network and other.network else None
        names = {one.name, other.name}
        if None in names:
            return True if is_one_network else None
        if len(names) == 1:
            return True if one.name != "" else is_one_network
        return False if is_one_network and "" not in names else None
    return one.job == other.job if one.job and other.job else None
