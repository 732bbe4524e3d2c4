"""Ask what the processes of a training are and do, on one host."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from training_monitor.core.errors import CommandTimedOut, Hint, ParseError
from training_monitor.core.models import Question, Reply
from training_monitor.core.regex import regex
from training_monitor.look.evidence import read_number
from training_monitor.look.seen_processes import ENVIRONMENT_BYTES, read_seen
from training_monitor.targets.proc_stat import RANK_VARIABLES, Meeting, Process, read_processes
from training_monitor.targets.replies import each_line, read_whole, split_parts
from training_monitor.targets.scripts import Quoted, format_call, spell_path
from training_monitor.why.ranks import CHILD, DISK, EVENTS, LOCK, PIPE, SOCKET, TERMINAL, TIMER
from training_monitor.why.stacks import StackAnswer

LOOK_SECONDS = 2  # between two looks
MOST_RANKS = 1024
_COMMAND_BYTES, _KERNEL_BYTES = 1000, 200_000
LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_VARIABLES = (*RANK_VARIABLES, *LOCAL_RANK, *WORLD_SIZE, *LOCAL_WORLD_SIZE, "NODE_RANK")
_STATUS = regex(r"\S{0,100}proc/(\d{1,10})/status:(Threads|VmRSS|voluntary_ctxt_switches):\s{0,20}(\d{1,15})")
_BYTES = regex(r"\S{0,100}proc/(\d{1,10})/io:([rw]char|read_bytes|write_bytes): (\d{1,19})")
_CALL_OF_KERNEL = regex(r"\S{0,100}proc/(\d{1,10})/stack:\[<[0-9a-f]{1,16}>\] ([\w.]{1,100})\+0x\S{1,40}.{0,100}")
_WAIT = regex(r"wait (\d{1,10}) ([\w.]{0,80})\|(.{0,300})")
_TERMINAL = regex(r"/dev/(?:pts/|tty|console)")
_PTRACE = 1 << 19  # CAP_SYS_PTRACE, see capabilities(7)
_NOBODY = 3  # YAMA_SCOPE_NO_ATTACH, which stays until a restart

# Kernel functions in which a thread sleeps, by their beginning, Linux 4.4 to 6.18.
_CHANNELS = {
    "pipe_": PIPE,
    "anon_pipe_": PIPE,
    "fifo_open": PIPE,
    "wait_for_partner": PIPE,
    "futex": LOCK,
    "flock_lock_inode": LOCK,
    "posix_lock_inode": LOCK,
    "locks_lock_inode": LOCK,
    "hrtimer_nanosleep": TIMER,
    "do_nanosleep": TIMER,
    "unix_stream_": SOCKET,
    "sk_wait_data": SOCKET,
    "inet_csk_": SOCKET,
    "tcp_": SOCKET,
    "skb_wait_": SOCKET,
    "__skb_wait_": SOCKET,
    "wait_woken": SOCKET,
    "do_wait": CHILD,
    "kernel_wait": CHILD,
    "io_schedule": DISK,
    "folio_wait": DISK,
    "wait_on_page": DISK,
    "nfs": DISK,
    "rpc_wait": DISK,
    "fuse_": DISK,
    "ceph_": DISK,
    "ptlrpc_": DISK,
    "ldlm_": DISK,
    "cl_sync_io": DISK,
    "cxiWait": DISK,
    "request_wait_answer": DISK,
    "do_epoll_wait": EVENTS,
    "ep_poll": EVENTS,
    "do_poll": EVENTS,
    "do_sys_poll": EVENTS,
    "poll_schedule": EVENTS,
    "do_select": EVENTS,
}
_OPENS_FIFO = ("fifo_open", "wait_for_partner")
_CHILD_OF_CALL = regex(r"(?:61|260) 0x([0-9a-f]{1,8}) ")  # wait4 of x86_64 and of arm64
# System calls by number, where the kernel names no function: Linux's tables of x86_64 and of arm64.
_FILE = "a file"
_CALLS: Mapping[str, Mapping[int, str]] = {
    "x86_64": {
        **dict.fromkeys((0, 1, 17, 18, 19, 20), _FILE),
        **dict.fromkeys((7, 23, 232, 270, 271, 281), EVENTS),
        **dict.fromkeys((43, 44, 45, 46, 47, 288), SOCKET),
        **dict.fromkeys((35, 230), TIMER),
        **dict.fromkeys((61, 247), CHILD),
        **dict.fromkeys((74, 75), DISK),
        202: LOCK,
    },
    "aarch64": {
        **dict.fromkeys((63, 64, 65, 66, 67, 68), _FILE),
        **dict.fromkeys((22, 72, 73), EVENTS),
        **dict.fromkeys((202, 206, 207, 211, 212, 242), SOCKET),
        **dict.fromkeys((101, 115), TIMER),
        **dict.fromkeys((95, 260), CHILD),
        **dict.fromkeys((82, 83), DISK),
        98: LOCK,
    },
}


class HostFacts(NamedTuple):
    """What a host says of itself, and of the one who asks: `may_trace` is whether that has CAP_SYS_PTRACE."""

    name: str = ""
    may_trace: bool | None = None
    ptrace_scope: int | None = None
    has_gpu: bool | None = None


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """One process of a training in two looks, see `Rank`."""

    process: Process
    words: tuple[str, ...]
    variables: Mapping[str, str]
    threads: int | None
    memory_bytes: int | None
    wait_channel: str | None
    waits_for: str | None
    cpu_cores: float | None
    bytes_per_second: float | None
    meeting: Meeting | None = None
    waits_on: str | None = None
    awaits: tuple[int, ...] | None = None
    is_still: bool | None = None
    kernel_stack: tuple[str, ...] = ()


class SeenTraining(NamedTuple):
    """The processes of a training on one host, by pid.

    `named` are those that it was asked by; `is_searched` says whether ranks beside them were looked for, `is_cut` that
    there was no time for all of it.
    """

    facts: HostFacts
    processes: Mapping[int, SeenProcess]
    named: tuple[int, ...] = ()
    is_searched: bool = False
    is_cut: bool = False


def processes_question(roots: str) -> Question[SeenTraining]:
    """Ask what the processes of a training do, in two looks `LOOK_SECONDS` apart.

    Args:
        roots: a script that prints the pids of the training, see `observe.evidence.evidence_question`.
    """
    word, spelling = os.urandom(12).hex(), spell_path()
    script = format_call(
        "roll_call",
        "call_roll",
        word=word,
        spelling=spelling,
        roots=Quoted(f'"$({roots}\n)"'),
        ranks=r"\|".join(_VARIABLES),
        seconds=LOOK_SECONDS,
        command_bytes=_COMMAND_BYTES,
        kernel_bytes=_KERNEL_BYTES,
        environment_bytes=ENVIRONMENT_BYTES,
    )
    limit = LOOK_SECONDS + 30.0

    def read(reply: Reply) -> SeenTraining:
        return parse_processes(reply.output, word, spelling, is_cut=reply.exit_code == 137)

    return Question("processes", script, read, limit=limit, takes_cut=True)


def parse_processes(text: str, word: str, spelling: str, *, is_cut: bool = False) -> SeenTraining:
    """Parse the reply to the question for the processes.

    Args:
        is_cut: whether its script was ended at its time limit: its last part is then left out.

    Raises:
        ParseError: its end is missing. CommandTimedOut: it was cut before the list of the processes.
    """
    pieces = split_parts(text, word)
    parts = dict(pieces[:-1] if is_cut else pieces)
    is_whole = bool(pieces) and pieces[-1][0] == "end" and "again" in parts
    has_table = {"facts", "table"} <= parts.keys()
    if is_cut and not has_table:
        raise CommandTimedOut("processes: no time was left to list them")
    if not has_table or not (is_cut or is_whole):
        raise ParseError("the reply is truncated", source="roll call", text=text[-2000:])
    seen = read_seen(parts, spelling)
    again = parts.get("again", "")
    later = read_processes(each_line(again))
    first_up, second_up = read_number(seen.facts.get("up")), read_number(_fact(again, "up"))
    span = second_up - first_up if first_up is not None and second_up is not None else 0.0
    ticks = read_whole(seen.facts.get("hz")) or 100
    status, bytes_first = _status(parts.get("status", "")), _bytes(parts.get("bytes", ""))
    status_later, bytes_later, waits = _status(again), _bytes(again), _waits(parts.get("waiting", ""))
    kernel = _kernel_stacks(parts.get("kernel", ""))
    descriptors = _descriptors(parts.get("descriptors", ""), spelling)
    found: dict[int, SeenProcess] = {}
    for pid, process in seen.table.items():
        if pid in seen.own or len(found) >= 8 * MOST_RANKS:
            continue
        now = later.get(pid)
        is_same = now is not None and now.start == process.start and span > 0
        channel, call = waits.get(pid, (None, ""))
        file, woken = descriptors.get(pid, ""), (pid, "voluntary_ctxt_switches")
        kind = _kind_of_call(call, seen.facts.get("machine", ""))
        waits_for = _waits_for(channel, kind, file)
        moved = bytes_later[pid] - bytes_first[pid] if pid in bytes_first and pid in bytes_later else None
        found[pid] = SeenProcess(
            process._replace(state=_settled(process.state, now.state)) if now and is_same else process,
            seen.words.get(pid, ()),
            seen.variables.get(pid, {}),
            status.get((pid, "Threads")),
            _kibibytes(status.get((pid, "VmRSS"))),
            channel,
            waits_for,
            max(0, now.ticks - process.ticks) / ticks / span if now and is_same else None,
            max(0, moved) / span if moved is not None and is_same else None,
            seen.meeting_of(pid),
            file if file and kind in (_FILE, SOCKET) else None,
            _awaits(pid, channel, call, waits_for, seen.table),
            status[woken] == status_later[woken] if is_same and woken in status and woken in status_later else None,
            tuple(kernel.get(pid, ())),
        )
    named = tuple(int(pid) for pid in seen.facts.get("named", "").split() if pid.isdigit())
    return SeenTraining(_facts(seen.facts), found, named, seen.facts.get("searched") == "1", is_cut)


def _settled(first: str, second: str) -> str:
    """Return the state in both looks: a debugger or another monitor may hold a process for a moment."""
    return first if second in ("T", "t") else second


def _facts(facts: Mapping[str, str]) -> HostFacts:
    rights = facts.get("capabilities", "")
    known = len(rights) <= 16 and rights.isalnum()
    try:
        may_trace = bool(int(rights, 16) & _PTRACE) if known else None
    except ValueError:
        may_trace = None
    has_gpu = {"0": False, "1": True}.get(facts.get("has_gpu", ""))
    return HostFacts(facts.get("host", "")[:200], may_trace, read_whole(facts.get("ptrace_scope")), has_gpu)


def _fact(text: str, name: str) -> str | None:
    return next((line.partition("=")[2] for line in each_line(text) if line.startswith(f"{name}=")), None)


def _status(text: str) -> dict[tuple[int, str], int]:
    found = (_STATUS.fullmatch(line.removesuffix(" kB")) for line in each_line(text))
    return {(int(each[1]), each[2]): int(each[3]) for each in found if each}


def _kibibytes(count: int | None) -> int | None:
    return None if count is None else count * 1024


def _bytes(text: str) -> dict[int, int]:
    """Return the bytes that each process has read and written: for both the larger of the two counters."""
    counters: dict[int, dict[str, int]] = {}
    for line in each_line(text):
        if found := _BYTES.fullmatch(line):
            counters.setdefault(int(found[1]), {})[found[2]] = int(found[3])
    return {
        pid: max(each.get("rchar", 0), each.get("read_bytes", 0))
        + max(each.get("wchar", 0), each.get("write_bytes", 0))
        for pid, each in counters.items()
    }


def _waits(text: str) -> dict[int, tuple[str | None, str]]:
    """Return the kernel function, None if it is not told, and the system call of each process."""
    found = (_WAIT.fullmatch(line) for line in each_line(text))
    return {int(each[1]): (None if each[2] in ("", "0") else each[2], each[3]) for each in found if each}


def _kernel_stacks(text: str) -> dict[int, list[str]]:
    """Return the kernel functions that the main thread of each process is in, innermost first."""
    found: dict[int, list[str]] = {}
    for line in each_line(text):
        if call := _CALL_OF_KERNEL.fullmatch(line):
            found.setdefault(int(call[1]), []).append(call[2])
    return found


def _descriptors(text: str, spelling: str) -> dict[int, str]:
    """Return what the file is that the system call of each process is about, from the lines of `ls -ldn`."""
    found: dict[int, str] = {}
    for line in each_line(text):
        before, arrow, target = line.partition(" -> ")
        _, is_spelled, path = before.rpartition(f"{spelling}proc/")
        pid = read_whole(path.partition("/fd/")[0])
        if arrow and is_spelled and pid is not None:
            found[pid] = target
    return found


def _kind_of_call(call: str, machine: str) -> str | None:
    number = read_whole(call.partition(" ")[0])
    return _CALLS.get(machine, {}).get(number) if number is not None else None


def _waits_for(channel: str | None, kind: str | None, file: str) -> str | None:
    """Return what a thread waits for, by the kernel function in which it sleeps, or else by its kind of system call."""
    if kind == _FILE and _TERMINAL.match(file):  # which wakes its readers as a socket does
        return TERMINAL
    for beginning, reason in _CHANNELS.items():
        if channel and channel.startswith(beginning):
            return reason
    return _kind_of(file) if kind == _FILE else kind


def _awaits(
    pid: int, channel: str | None, call: str, waits_for: str | None, table: Mapping[int, Process]
) -> tuple[int, ...] | None:
    """Return the processes that one waits for by its system call: a child; nobody while it opens a FIFO; None: unknown.

    The kernel wakes who opens a FIFO as soon as any process opens its other end.
    """
    if channel and channel.startswith(_OPENS_FIFO):
        return ()
    child = _CHILD_OF_CALL.match(call) if waits_for == CHILD else None
    awaited = table.get(int(child[1], 16)) if child else None
    return (awaited.pid,) if awaited and awaited.parent == pid else None


def _kind_of(file: str) -> str | None:
    """Return what a process waits for that reads or writes this file."""
    for beginning, kind in {"pipe:": PIPE, "socket:": SOCKET, "anon_inode:": EVENTS, "/dev/": None, "/": DISK}.items():
        if file.startswith(beginning):
            return kind
    return None


# ---------------------------------------------------------------- what would help


def remedies_of(facts: HostFacts, answers: Sequence[StackAnswer], host: str) -> list[str]:
    """Say what would make the stacks visible that are not: the right that is missing, or the tool."""
    lacks, at = {each.lack for each in answers}, host.replace("{", "(")  # a brace begins a place of a Hint
    told: list[str] = []
    if "denied" in lacks:
        told.append(f"{host}: {_what_lets_trace(facts)}")
    if "none" in lacks:
        told.append(
            Hint(
                f"{at}: Python stacks cannot be read: run pip install py-spy there, copy a py-spy executable "
                "there temporarily ({send_py_spy}), or create a training_monitor.TrainingMonitor in the script"
            )
        )
    if "late" in lacks:
        told.append(Hint(f"{at}: not all processes could be inspected in time: allow more time ({{timeout=SECONDS}})"))
    return told


def _what_lets_trace(facts: HostFacts) -> str:
    """Say what forbids to read the stacks, and what allows it: see ptrace(2), "Ptrace access mode checking"."""
    if facts.ptrace_scope == _NOBODY:
        return (
            "sysctl kernel.yama.ptrace_scope is 3: no user can read the stacks until the host restarts with a lower "
            "value; a training_monitor.TrainingMonitor in the script needs no permission"
        )
    if facts.may_trace:
        return (
            "ptrace is refused despite CAP_SYS_PTRACE. Possible causes: a seccomp profile (in a pod, set "
            "securityContext.seccompProfile.type to Unconfined; in Docker, use --security-opt seccomp=unconfined); a "
            "security module such as AppArmor; or another user namespace"
        )
    scope = f" (now {facts.ptrace_scope})" if facts.ptrace_scope is not None else ""
    return (
        "reading the stacks needs the capability CAP_SYS_PTRACE: in a pod, set securityContext.capabilities.add to "
        "[SYS_PTRACE]; in Docker, use --cap-add SYS_PTRACE; on a host, run this as root, or as the training's user "
        f"with sysctl kernel.yama.ptrace_scope=0{scope}"
    )
