"""Ask what the processes of a training are and do, and find its ranks among them.

A rank is known by the environment in which a launcher started it. Without such variables, the ranks are the workers of
Ray, or the topmost Python processes; their children are data workers and the like.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from training_monitor.core.errors import ParseError
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.masking import redact
from training_monitor.core.models import GpuProcess, GpuTable, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.explain.stacks import SeenStacks, StackAnswer
from training_monitor.judging.gpu_load import power_fraction
from training_monitor.judging.ranks import CHILD, DISK, EVENTS, LOCK, PIPE, SOCKET, TERMINAL, TIMER, Rank, RankGpu
from training_monitor.observe.evidence import read_number
from training_monitor.observe.find_trainings import ENVIRONMENT_BYTES, read_seen, read_whole
from training_monitor.observe.training_command import is_launcher
from training_monitor.targets.proc_stat import RANK_VARIABLES, Process, ancestors_of, read_processes
from training_monitor.targets.replies import each_line, split_parts
from training_monitor.targets.scripts import Quoted, format_call, spell_path

LOOK_SECONDS = 2  # between two looks
MOST_RANKS = 1024
_MOST_CHILDREN, _COMMAND_LENGTH, _COMMAND_BYTES = 16, 200, 1000
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_VARIABLES = (*RANK_VARIABLES, *_LOCAL_RANK, *_WORLD_SIZE, *_LOCAL_WORLD_SIZE)
_STATUS = regex(r"\S{0,80}proc/(\d{1,10})/status:(Threads|VmRSS):\s{0,20}(\d{1,15})")
_BYTES = regex(r"\S{0,80}proc/(\d{1,10})/io:([rw]char|read_bytes|write_bytes): (\d{1,19})")
_WAIT = regex(r"wait (\d{1,10}) (\w{0,80})\|(.{0,300})")
_TERMINAL = regex(r"/dev/(?:pts/|tty|console)")
_PYTHON = regex(r"(?:^|/)python[\d.]*$|^ray::")
_HELPER = regex(r"from [\w.]{1,80}\.(?:resource_tracker|semaphore_tracker|forkserver) import main\b")
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


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host says of itself and of the one who asks: `may_trace` is whether that has CAP_SYS_PTRACE."""

    name: str = ""
    may_trace: bool | None = None
    ptrace_scope: int | None = None


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


@dataclass(frozen=True, slots=True)
class SeenTraining:
    """The processes of a training on one host, by pid."""

    facts: HostFacts
    processes: Mapping[int, SeenProcess]


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
        environment_bytes=ENVIRONMENT_BYTES,
    )

    def parse(reply: Reply) -> SeenTraining:
        return parse_processes(reply.output, word, spelling)

    return Question("processes", script, parse, limit=LOOK_SECONDS + 8.0)


def parse_processes(text: str, word: str, spelling: str) -> SeenTraining:
    """Parse the reply to the question for the processes.

    Raises:
        ParseError: its end is missing.
    """
    pieces = split_parts(text, word)
    parts = dict(pieces)
    if not pieces or pieces[-1][0] != "end" or not {"facts", "table", "again"} <= parts.keys():
        raise ParseError("no end of the reply", source="roll call", text=text[-2000:])
    seen = read_seen(parts, spelling)
    later = read_processes(each_line(parts["again"]))
    first_up, second_up = read_number(seen.facts.get("up")), read_number(_fact(parts["again"], "up"))
    span = second_up - first_up if first_up is not None and second_up is not None else 0.0
    ticks = read_whole(seen.facts.get("hz")) or 100
    status, bytes_first = _status(parts.get("status", "")), _bytes(parts.get("bytes", ""))
    bytes_later, waits = _bytes(parts["again"]), _waits(parts.get("waiting", ""))
    descriptors = _descriptors(parts.get("descriptors", ""), spelling)
    found: dict[int, SeenProcess] = {}
    for pid, process in seen.table.items():
        if pid in seen.own or len(found) >= 8 * MOST_RANKS:
            continue
        now = later.get(pid)
        is_same = now is not None and now.start == process.start and span > 0
        channel, call = waits.get(pid, (None, ""))
        moved = bytes_later[pid] - bytes_first[pid] if pid in bytes_first and pid in bytes_later else None
        found[pid] = SeenProcess(
            replace(process, state=_settled(process.state, now.state)) if now and is_same else process,
            seen.words.get(pid, ()),
            seen.variables.get(pid, {}),
            status.get((pid, "Threads")),
            _kibibytes(status.get((pid, "VmRSS"))),
            channel,
            _waits_for(channel, call, seen.facts.get("machine", ""), descriptors.get(pid, "")),
            max(0, now.ticks - process.ticks) / ticks / span if now and is_same else None,
            max(0, moved) / span if moved is not None and is_same else None,
        )
    return SeenTraining(_facts(seen.facts), found)


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
    return HostFacts(facts.get("host", "")[:200], may_trace, read_whole(facts.get("ptrace_scope")))


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


def _waits_for(channel: str | None, call: str, machine: str, file: str) -> str | None:
    """Return what a thread waits for, by the kernel function in which it sleeps, or else by its system call."""
    number = read_whole(call.partition(" ")[0])
    kind = _CALLS.get(machine, {}).get(number) if number is not None else None
    if kind == _FILE and _TERMINAL.match(file):  # which wakes its readers as a socket does
        return TERMINAL
    for beginning, reason in _CHANNELS.items():
        if channel and channel.startswith(beginning):
            return reason
    return _kind_of(file) if kind == _FILE else kind


def _kind_of(file: str) -> str | None:
    """Return what a process waits for that reads or writes this file."""
    for beginning, kind in {"pipe:": PIPE, "socket:": SOCKET, "anon_inode:": EVENTS, "/dev/": None, "/": DISK}.items():
        if file.startswith(beginning):
            return kind
    return None


# ---------------------------------------------------------------- the ranks among them


def build_ranks(
    seen: SeenTraining,
    stacks: SeenStacks,
    gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None,
    host: str,
    node: str | None,
) -> tuple[Rank, ...]:
    """Return the ranks of a training on one host, with their children; ended ones that are left as zombies too."""
    table = {pid: each.process for pid, each in seen.processes.items()}
    chosen = choose_ranks(seen, stacks)
    ended = [pid for pid, each in table.items() if not each.is_running and each.parent in table]
    below = _children_of(chosen, table)
    found = []
    for pid in [*chosen, *(each for each in ended if each not in below)][:MOST_RANKS]:
        children = [_rank(seen, stacks, gpus, host, node, each) for each in below.get(pid, ())]
        told = [each for each in children if each.stacks or each.state == "D"]
        rank = _rank(seen, stacks, gpus, host, node, pid)
        found.append(replace(rank, children=tuple(told[:_MOST_CHILDREN])))
    return tuple(sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.pid)))


def _children_of(chosen: Sequence[int], table: Mapping[int, Process]) -> dict[int, list[int]]:
    """Return the processes that run below each rank and are none."""
    below: dict[int, list[int]] = {pid: [] for pid in chosen}
    for pid, process in table.items():
        if pid not in below and process.is_running:
            above = next((each for each in ancestors_of(pid, table) if each in below), None)
            if above is not None:
                below[above].append(pid)
    return below


def choose_ranks(seen: SeenTraining, stacks: SeenStacks) -> list[int]:
    """Return the pids of the ranks, see the beginning of this module."""
    running = {pid: each for pid, each in seen.processes.items() if each.process.is_running}
    found = _numbered(running, stacks) or _ray_workers(running) or _topmost(running, stacks)
    return [each for pid in found for each in _spawned(pid, running, stacks) or [pid]]


def _numbered(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    """Return those that a launcher has numbered: of a process and its children with the same number, the first."""
    numbers = {pid: _numbers_of(each, stacks.answers.get(pid)) for pid, each in running.items()}
    name = next((name for name in RANK_VARIABLES for each in numbers.values() if name in each), None)
    if name is None:
        return []
    pythons, table = _pythons(running, stacks), {pid: each.process for pid, each in running.items()}
    holders = {pid: each[name] for pid, each in numbers.items() if name in each}
    able = {pid: rank for pid, rank in holders.items() if pid in pythons} or holders
    return [pid for pid in able if not any(able.get(up) == able[pid] for up in ancestors_of(pid, table))]


def _ray_workers(running: Mapping[int, SeenProcess]) -> list[int]:
    """Return the workers of Ray that have something to do."""
    titles = {pid: each.words[0] for pid, each in running.items() if each.words}
    return [pid for pid, title in titles.items() if title.startswith("ray::") and not title.startswith("ray::IDLE")]


def _topmost(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    pythons, table = _pythons(running, stacks), {pid: each.process for pid, each in running.items()}
    able = {pid for pid in running if pid in pythons and not is_launcher(running[pid].words)}
    return [pid for pid in running if pid in able and able.isdisjoint(ancestors_of(pid, table))]


def _pythons(running: Mapping[int, SeenProcess], stacks: SeenStacks) -> set[int]:
    """Return those that run Python, without multiprocessing's helpers; all if that is unknown, or if none does."""
    by_name = (pid for pid, each in running.items() if each.words and _PYTHON.search(each.words[0]))
    found = {pid for pid in stacks.pythons if pid in running} or set(by_name) or set(running)
    return {pid for pid in found if not _is_helper(pid, running)} or found


def _is_helper(pid: int, processes: Mapping[int, SeenProcess]) -> bool:
    """Return whether a process is multiprocessing's own; a child of its fork server has the command of its parent."""
    each = processes.get(pid)
    parent = processes.get(each.process.parent) if each else None
    return each is not None and any(map(_HELPER.match, each.words)) and not (parent and parent.words == each.words)


def _spawner_of(pid: int, processes: Mapping[int, SeenProcess]) -> int:
    """Return the parent of a process, or of the fork server that forked it."""
    parent = processes[pid].process.parent
    return processes[parent].process.parent if _is_helper(parent, processes) else parent


def _spawned(pid: int, running: Mapping[int, SeenProcess], stacks: SeenStacks) -> list[int]:
    """Return the ranks that a process has spawned and waits for (torch.multiprocessing.spawn)."""
    if not _joins(stacks.answers.get(pid)):
        return []
    return [each for each in sorted(_pythons(running, stacks)) if _spawner_of(each, running) == pid]


def _joins(answer: StackAnswer | None) -> bool:
    """Return whether a process only waits for ranks that it has spawned (torch.multiprocessing.spawn)."""
    frames = [frame for each in answer.stacks if each.is_main for frame in each.frames] if answer else []
    return any(each.function.endswith("join") and each.file.endswith("multiprocessing/spawn.py") for each in frames)


def _numbers_of(each: SeenProcess, answer: StackAnswer | None) -> dict[str, int]:
    """Return the numbers in the environment in which it was started, and in the one that it has by now."""
    told = {name: number for name, value in each.variables.items() if (number := read_whole(value)) is not None}
    return {**told, **(answer.variables if answer else {})}


def _numbers_of_rank(seen: SeenTraining, stacks: SeenStacks, pid: int) -> dict[str, int]:
    """Return the numbers of a process; those that it has from the one that spawned it are not its own."""
    each, answer = seen.processes[pid], stacks.answers.get(pid)
    if _joins(stacks.answers.get(_spawner_of(pid, seen.processes))):
        return dict(answer.variables) if answer else {}
    return _numbers_of(each, answer)


def _first(names: Iterable[str], numbers: Mapping[str, int]) -> int | None:
    return next((numbers[name] for name in names if name in numbers), None)


def _rank(
    seen: SeenTraining,
    stacks: SeenStacks,
    gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None,
    host: str,
    node: str | None,
    pid: int,
) -> Rank:
    each, answer = seen.processes[pid], stacks.answers.get(pid) or StackAnswer(lack="none")
    numbers = _numbers_of_rank(seen, stacks, pid)
    return Rank(
        host,
        pid,
        node,
        redact(" ".join(each.words))[:_COMMAND_LENGTH],
        _first(RANK_VARIABLES, numbers),
        _first(_LOCAL_RANK, numbers),
        _first(_WORLD_SIZE, numbers),
        _first(_LOCAL_WORLD_SIZE, numbers),
        each.process.state,
        each.wait_channel,
        each.waits_for,
        each.cpu_cores,
        each.bytes_per_second,
        each.threads,
        each.memory_bytes,
        _gpus_of(pid, gpus),
        answer.stacks,
        answer.source,
        _why_no_stacks(answer, seen.facts),
        answer.batches,
    )


def _gpus_of(pid: int, gpus: tuple[GpuTable, tuple[GpuProcess, ...]] | None) -> tuple[RankGpu, ...]:
    if gpus is None:
        return ()
    mine = {each.gpu_uuid for each in gpus[1] if each.pid == pid and each.gpu_uuid}
    used = (gpu for gpu in gpus[0].gpus if gpu.uuid in mine)
    return tuple(RankGpu(gpu.index, gpu.utilization, power_fraction(gpu)) for gpu in used)


def _why_no_stacks(answer: StackAnswer, facts: HostFacts) -> str | None:
    if answer.stacks:
        return None
    said = f": {redact(answer.said)}" if answer.said else ""
    return {
        "denied": f"its memory may not be read{said}",
        "late": "there was no time left to ask it",
        "failed": f"they could not be read{said}",
    }.get(answer.lack or "", "there is no way to ask it")


def remedies_of(facts: HostFacts, answers: Sequence[StackAnswer], host: str) -> list[str]:
    """Say what would make the stacks visible that are not: the right that is missing, or the tool."""
    lacks = {each.lack for each in answers}
    told = []
    if "denied" in lacks:
        told.append(f"{host}: {_what_lets_trace(facts)}")
    if "none" in lacks:
        told.append(
            f"{host}: there is no way to see Python stacks: pip install py-spy there, or send one with --py-spy FILE, "
            "or create a training_monitor.TrainingMonitor in the script"
        )
    if "late" in lacks:
        told.append(f"{host}: not all processes could be asked in time: allow more with --timeout")
    return told


def _what_lets_trace(facts: HostFacts) -> str:
    """Say what forbids to read the stacks, and what allows it: see ptrace(2), "Ptrace access mode checking"."""
    if facts.ptrace_scope == _NOBODY:
        return (
            "sysctl kernel.yama.ptrace_scope is 3: nobody may read the stacks until the host is restarted with a lower "
            "one; a training_monitor.TrainingMonitor in the script needs no right"
        )
    if facts.may_trace:
        return (
            "ptrace is refused although CAP_SYS_PTRACE is there: by a seccomp profile (in a pod securityContext."
            "seccompProfile.type Unconfined, in Docker --security-opt seccomp=unconfined), by a security module such "
            "as AppArmor, or since the training is in another user namespace"
        )
    scope = f" (now {facts.ptrace_scope})" if facts.ptrace_scope is not None else ""
    return (
        "reading the stacks needs the right to trace, CAP_SYS_PTRACE: in a pod securityContext.capabilities.add "
        "[SYS_PTRACE], in Docker --cap-add SYS_PTRACE; on a host ask as root, or as the user of the training with "
        f"sysctl kernel.yama.ptrace_scope=0{scope}"
    )
