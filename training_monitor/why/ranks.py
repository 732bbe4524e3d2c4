"""The values of a roll call: what each rank of a training does, what was seen beside the ranks, what it says. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from training_monitor.core.masking import redact
from training_monitor.core.shown import shown
from training_monitor.targets.proc_stat import Meeting

# What a main thread waits for in the kernel.
PIPE, LOCK, SOCKET, TIMER, CHILD, DISK, EVENTS, TERMINAL = (
    "a pipe",
    "a lock",
    "a socket",
    "a timer",
    "a child process",
    "a disk",
    "events",
    "a terminal",
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One call of a Python stack: the function, its file as the process names it, and the line that it is at."""

    function: str
    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Stack:
    """The Python stack of one thread, innermost call first."""

    thread: str
    frames: tuple[Frame, ...]
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class RankGpu:
    """A GPU that a rank uses: utilization in per cent, power draw as a share of its limit; None means unknown."""

    index: int | None
    gpu_utilization: float | None = None
    gpu_power: float | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a training in one roll call; None means unknown.

    Attributes:
        host: where it was seen, as a target string. node: its Kubernetes node, or its host's name.
        pid: on that host. command: the beginning of its command line, secrets replaced.
        rank, local_rank, world_size, local_world_size: by the environment in which it was started.
        state: a letter as in /proc/PID/stat. wait_channel: the kernel function that its main thread sleeps in.
        waits_for: what that thread waits for: one of the words above. waits_on: the file, pipe or socket it is about.
        awaits: the processes that can end that wait: the child it waits for, the holders of a file lock, those with the
            other end of a pipe. is_still: whether that thread slept all the time between two looks.
        kernel_stack: the kernel functions that that thread is in, innermost first; only root can read them.
        waits_outside: whether no process of the training can end that wait.
        cpu_cores, bytes_per_second: CPU and bytes read and written, between two looks.
        gpus: those that it is known to use.
        stacks: of its threads. stacks_from: in-script | py-spy | remote_exec | remote_debugging, whichever way worked
            first.
        no_stacks: why there are none, and which right would help.
        batches: how many it has begun, by the TrainingMonitor in the script.
        uses_gpu: whether it uses a GPU, which is unknown in a container, where nvidia-smi lists no processes.
        is_spawned: whether `multiprocessing` started it.
        children: its data workers and other processes below it, at most 16.
        meeting: where it meets the other ranks.
    """

    host: str
    pid: int
    node: str | None = None
    command: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    state: str = "?"
    wait_channel: str | None = None
    waits_for: str | None = None
    waits_on: str | None = None
    awaits: tuple[int, ...] | None = None
    is_still: bool | None = None
    kernel_stack: tuple[str, ...] = ()
    waits_outside: bool | None = None
    cpu_cores: float | None = None
    bytes_per_second: float | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[RankGpu, ...] = ()
    stacks: tuple[Stack, ...] = ()
    stacks_from: str | None = None
    no_stacks: str | None = None
    batches: int | None = None
    uses_gpu: bool | None = None
    is_spawned: bool = False
    children: tuple[Rank, ...] = ()
    meeting: Meeting | None = None

    @property
    def main_stack(self) -> tuple[Frame, ...]:
        """The frames of its main thread, innermost first; () if unknown."""
        return next((each.frames for each in self.stacks if each.is_main), ())


class Collective(NamedTuple):
    """The collective that a rank is at in a process group, by PyTorch's flight recorder or by NCCL's RAS.

    It is the first one that has not completed, or else the last one that has. A rank that is not behind in one group
    may be in another: there is a value for each.

    Attributes:
        name: as `nccl:all_reduce`. sequence: its number in the process group. state: scheduled | started | completed;
            launched: begun on the host, and nothing more is known.
        called_at: the innermost frame of the caller's own code.
        newest: the number of the last one that the host has begun, since GPUs work behind it; None: this one.
    """

    rank: int
    group: str
    name: str
    sequence: int
    state: str
    called_at: Frame | None = None
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something seen beside the ranks that may explain a hang.

    Attributes:
        kind: xid | ecc | gpu | oom_kill | pod | disk_full | blocked | network | nccl_ras | flight_recorder; of its own
            processes stopped | debugger | terminal | zombie | ended | lock | pipe.
        text: one sentence. host, node: where, as in `Rank`.
        is_hardware: whether it is a fault of the machine, so that the next attempt should avoid the node.
        ranks: those that it names. pids: the same, by process. awaits: as in `Rank`.
    """

    kind: str
    text: str
    host: str
    node: str | None = None
    is_hardware: bool = False
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    awaits: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RollCall:
    """All that one roll call saw.

    Attributes:
        collectives: those of flight recorder dumps and NCCL's RAS.
        silent: hosts that could not be asked, with the reason.
        is_whole: whether all hosts of the training were asked and answered, so that a rank that was not seen is
            nowhere; None if that is unknown.
        partial: hosts on which there may be more ranks than were seen.
    """

    ranks: tuple[Rank, ...] = ()
    findings: tuple[Finding, ...] = ()
    collectives: tuple[Collective, ...] = ()
    silent: dict[str, str] = field(default_factory=dict)
    is_whole: bool | None = None
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that the others wait for. `seen` is its process, None if it is missing; `why` a part of a sentence."""

    rank: int | None
    why: str
    seen: Rank | None = None
    where: str | None = None


class RankGroup(NamedTuple):
    """Ranks at the same place, `where` as `all_reduce, called at train.py:88`.

    `waits`: they wait for others; None if that is open. `is_majority`: the others are compared with these.
    """

    ranks: tuple[Rank, ...]
    where: str
    waits: bool | None = None
    is_majority: bool = False


class Explanation(NamedTuple):
    """What a roll call says: one paragraph, and how sure it is (none | low | medium | high)."""

    text: str
    confidence: str = "none"
    culprits: tuple[Culprit, ...] = ()
    groups: tuple[RankGroup, ...] = ()
    missing: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of the culprits."""
        return tuple(dict.fromkeys(each.seen.node for each in self.culprits if each.seen and each.seen.node))


# ---------------------------------------------------------------- what was seen beside the ranks


MOST_TEXT, MOST_FINDINGS = 300, 100  # characters of a finding, and findings of a host


class Surroundings(NamedTuple):
    """Findings, collectives, and a sentence on each thing that could not be asked, and the right that is missing."""

    findings: tuple[Finding, ...] = ()
    collectives: tuple[Collective, ...] = ()
    unread: tuple[str, ...] = ()


def finding(
    kind: str,
    text: str,
    *,
    is_hardware: bool = False,
    ranks: tuple[int, ...] = (),
    pids: tuple[int, ...] = (),
    awaits: tuple[int, ...] | None = None,
) -> Finding:
    """Return a finding whose place is not known yet; of its text, what may be shown."""
    return Finding(kind, in_brief(text), "", is_hardware=is_hardware, ranks=ranks, pids=pids, awaits=awaits)


def in_brief(text: str, most: int = MOST_TEXT) -> str:
    """Return the beginning of a foreign text on one line, secrets replaced."""
    said = shown(redact(text[: 4 * most])).strip()
    return said if len(said) <= most else f"{said[: most - 3]}..."
