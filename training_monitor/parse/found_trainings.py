"""The trainings among the processes of a target, out of what `probes/find_trainings.py` prints. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from training_monitor.errors import ParseError, redact
from training_monitor.parse.process_table import Process, ancestors_of, read_processes
from training_monitor.parse.remote_look import split_parts
from training_monitor.parse.training_command import (
    folder_of_checkpoint,
    folders_of_arguments,
    is_training,
    may_train,
    split_command,
)
from training_monitor.policy.run_values import RANK_VARIABLES

MOST_LOGS = 8
_COMMAND_LENGTH = 400
# Ranks that were started by one of these belong together.
_STARTERS = ("slurmstepd", "orted", "prted", "hydra_pmi_proxy", "mpirun", "mpiexec", "orterun", "prterun", "srun")
_LOG_NAME = re.compile(r"(?:.*\.(?:log|out|err|txt)|nohup\.out|log|std(?:out|err).*)(?:\.\d{1,3})?", re.I | re.S)
_NO_LOG = re.compile(
    r"/wandb/.*/logs/|/session_\d[^/]*/logs/(?!job-driver-|worker-)|debug(?:-internal|-cli.*)?\.log$|tfevents"
)
_GPU_DEVICE = re.compile(r"/dev/(?:nvidia\d+|kfd|accel\w*\d+)$")
_LINK = re.compile(r"^l([r-][w-])[x-]\S* .*? (\d{1,9}) -> (.*)", re.DOTALL)
_FILE = re.compile(r"file (\d{1,12}) (\d{1,19}) (/.+)")
_DELETED = " (deleted)"
_DRIVER_LOG = re.compile(r"/python-core-driver-([0-9a-f]{8})[0-9a-f]*_\d+\.log$")
_NO_JOB = "ffffffff"


@dataclass(frozen=True, slots=True)
class FoundTraining:
    """One training that runs on a target: the process that all others of it descend from, and what it has open.

    Attributes:
        pid, start, boot: what the process is known by (start in clock ticks since the boot). parent: its parent's pid.
        command: the beginning of its command line, secrets replaced. cwd: its working folder.
        logs: files that its output goes to, the likeliest first, as paths that whoever asked can read there: a file
            that was deleted while it is written to, by way of /proc.
        checkpoint_folders: where its checkpoints go, by what it writes and by its arguments.
        rank: the lowest rank of its processes on this machine.
        ray_job: the submission id, or the number of the job (8 hexadecimal digits) where only its workers are here.
        process_job: `process:NAME`.
        has_gpu: whether one of its processes has a GPU open; None where that may not be seen.
        pids: all its processes. age: seconds since it began.
        hints: what keeps one from knowing more.
    """

    pid: int
    start: int
    boot: str
    parent: int
    command: str
    cwd: str | None = None
    logs: tuple[str, ...] = ()
    checkpoint_folders: tuple[str, ...] = ()
    rank: int | None = None
    ray_job: str | None = None
    process_job: str | None = None
    has_gpu: bool | None = None
    pids: tuple[int, ...] = ()
    age: float | None = None
    hints: tuple[str, ...] = ()

    @property
    def process(self) -> str:
        """Its identity, as in Observation."""
        return f"{self.pid} {self.start} {self.boot}"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that was written lately: a log, or a file of TrainingMonitor. `age` in seconds."""

    path: str
    age: float
    size: int

    @property
    def is_log(self) -> bool:
        return not self.path.endswith(".json")


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file that a process has open for writing (or a pipe that it reads, as descriptor 0)."""

    pid: int
    descriptor: int
    path: str
    writes: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """All that the target printed; the maps are by pid."""

    facts: Mapping[str, str]
    table: Mapping[int, Process]
    words: Mapping[int, tuple[str, ...]]
    cwds: Mapping[int, str]
    namespaces: Mapping[int, str]
    namespace: str | None
    variables: Mapping[int, Mapping[str, str]]
    files: Mapping[int, tuple[_OpenFile, ...]]
    with_driver: frozenset[int]
    workers: Mapping[int, str]

    @property
    def own(self) -> frozenset[int]:
        """Whoever asks, and what it was started by."""
        asker = _whole(self.facts.get("self"))
        return frozenset(() if asker is None else (asker, *ancestors_of(asker, self.table)))

    def is_on_gpu(self, pid: int) -> bool:
        return pid in self.with_driver or any(_GPU_DEVICE.match(file.path) for file in self.files.get(pid, ()))


def parse_trainings(text: str, word: str, spelling: str) -> tuple[FoundTraining, ...]:
    """Read the reply to the question for trainings; those on a GPU come first, then the oldest.

    Args:
        word: what its parts begin with. spelling: how its paths are spelled instead of with a first slash.

    Raises:
        ParseError: its end is missing.
    """
    parts = dict(split_parts(text, word))
    if "end" not in parts or "boot=" not in parts.get("facts", ""):
        raise ParseError("no end of the reply", source="trainings", text=text)
    seen = _read(parts, spelling)
    found = [_describe(seen, members) for members in _group(seen)]
    return tuple(sorted(found, key=lambda each: (not each.has_gpu, each.start, each.pid)))


def parse_files(text: str) -> tuple[FoundFile, ...]:
    """Read lines `file TIME SIZE PATH` and a line `now TIME`; a file of the future was written just now."""
    lines = text.splitlines()
    now = next((_whole(line[4:]) for line in reversed(lines) if line.startswith("now ")), None)
    if now is None:
        raise ParseError("no end of the reply", source="recent logs", text=text)
    found = [match.groups() for line in lines if (match := _FILE.fullmatch(line))]
    files = [FoundFile(posixpath.normpath(path), max(0.0, float(now - int(at))), int(size)) for at, size, path in found]
    return tuple({file.path: file for file in files}.values())


# ---------------------------------------------------------------- reading


def _read(parts: Mapping[str, str], spelling: str) -> _Seen:
    facts = dict(line.partition("=")[::2] for line in parts["facts"].splitlines())
    links = dict(_links(parts.get("links", ""), spelling))
    workers = re.findall(r"^(\d{1,10}) ([0-9a-f]{8})$", parts.get("workers", ""), re.MULTILINE)
    return _Seen(
        facts,
        read_processes(parts.get("table", "").splitlines()),
        {pid: _split_words(body) for pid, body in _heads(parts.get("command", ""), spelling, "cmdline")},
        _of_processes(links, "/cwd"),
        _of_processes(links, "/ns/mnt"),
        links.get("self/ns/mnt"),
        {pid: _variables(body) for pid, body in _heads(parts.get("environment", ""), spelling, "environ")},
        dict(_open_files(parts.get("files", ""), spelling)),
        frozenset(pid for line in parts.get("driver", "").splitlines() if (pid := _whole(line)) is not None),
        {int(pid): job for pid, job in workers},
    )


def _heads(text: str, spelling: str, name: str) -> list[tuple[int, str]]:
    """What `head` printed of /proc/PID/NAME, by pid."""
    mark = re.compile(rf"^==> (?:/dev/null|{re.escape(spelling)}proc/(\d{{1,10}})/{name}) <==\n?", re.MULTILINE)
    pieces = mark.split(text)[1:]
    return [(int(pid), body.removesuffix("\n")) for pid, body in zip(pieces[::2], pieces[1::2]) if pid]


def _split_words(text: str) -> tuple[str, ...]:
    """The words of a command line; a process that wrote a title over it leaves empty ones at its end."""
    return tuple(text.rstrip("\x1f\n").split("\x1f"))


def _variables(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def _links(text: str, spelling: str) -> list[tuple[str, str]]:
    """(what it is below /proc, where it leads) of the lines of `ls -ldn`."""
    pieces = re.split(rf"^l\S+ [^\n]*? {re.escape(spelling)}proc/([\w/]{{1,40}}) -> ", text, flags=re.MULTILINE)[1:]
    return [(name, target.rstrip("\n")) for name, target in zip(pieces[::2], pieces[1::2])]


def _of_processes(links: Mapping[str, str], end: str) -> dict[int, str]:
    """Where the links /proc/PID/END lead, by pid."""
    pids = {name: _whole(name.removesuffix(end)) for name in links if name.endswith(end)}
    return {pid: links[name] for name, pid in pids.items() if pid is not None}


def _open_files(text: str, spelling: str) -> list[tuple[int, tuple[_OpenFile, ...]]]:
    pieces = re.split(rf"^{re.escape(spelling)}proc/(\w{{1,10}})/(?:fd|ns):\n?", text, flags=re.MULTILINE)[1:]
    folders = [(_whole(name), body) for name, body in zip(pieces[::2], pieces[1::2])]
    return [(pid, tuple(_files_of(pid, body))) for pid, body in folders if pid is not None]


def _files_of(pid: int, text: str) -> Iterable[_OpenFile]:
    """Its open files out of the lines of `ls -ln`; a name may go on in the next line."""
    for entry in re.split(r"\n(?=l[r-][w-][x-]|total \d|$)", text):
        found = _LINK.match(entry)
        if found and (found[1][1] == "w" or found[2] == "0"):
            yield _OpenFile(pid, int(found[2]), found[3].rstrip("\n"), found[1][1] == "w")


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 11 else None


# ---------------------------------------------------------------- grouping


def _group(seen: _Seen) -> list[list[int]]:
    """The relevant processes of each training."""
    own = seen.own
    relevant = {pid for pid in seen.words if pid not in own and _is_relevant(seen, pid)}
    groups: dict[object, list[int]] = {}
    for pid in sorted(relevant, key=lambda each: (seen.table[each].start, each)):
        groups.setdefault(_key(seen, pid, relevant, own), []).append(pid)
    return list(groups.values())


def _is_relevant(seen: _Seen, pid: int) -> bool:
    process, words = seen.table.get(pid), seen.words[pid]
    if process is None or not process.is_running or not may_train(words):
        return False
    return seen.is_on_gpu(pid) or is_training(words) or "submission" in seen.variables.get(pid, {})


def _key(seen: _Seen, pid: int, relevant: set[int], own: frozenset[int]) -> object:
    """What processes of one training have in common: a Ray job, the uppermost training process or starter of ranks.

    Ranks that a shell started side by side have their session and their script in common.
    """
    if job := _ray_job(seen, pid):
        return "ray", job
    above = [each for each in ancestors_of(pid, seen.table) if each not in own]
    joining = [each for each in above if each in relevant or seen.table[each].name in _STARTERS]
    top = joining[-1] if joining else pid
    if job := _ray_job(seen, top):
        return "ray", job
    if top in seen.words and _rank(seen, [top]) is not None:
        return "ranks", seen.table[top].session, split_command(seen.words[top])[0]
    return "tree", top


def _ray_job(seen: _Seen, pid: int) -> str | None:
    """The submission id of its Ray job; of a worker whose driver is not here, the number of the job."""
    if submission := _of(seen, pid, "submission"):
        return submission
    number = seen.workers.get(pid) or _of(seen, pid, "RAY_JOB_ID")
    if number in (None, _NO_JOB):
        return None
    drivers = (each for each in seen.files if number in _numbers_of_driver(seen, each))
    return next((job for each in drivers if (job := _of(seen, each, "submission"))), number)


def _numbers_of_driver(seen: _Seen, pid: int) -> list[str]:
    found = (_DRIVER_LOG.search(file.path) for file in seen.files[pid])
    return [match[1] for match in found if match]


# ---------------------------------------------------------------- describing


def _describe(seen: _Seen, members: Sequence[int]) -> FoundTraining:
    """The training of these processes, which are the oldest first."""
    tops = [pid for pid in members if not set(ancestors_of(pid, seen.table)) & set(members)]
    main = min(tops or members, key=lambda pid: (not _of(seen, pid, "submission"), not is_training(seen.words[pid])))
    pids = _tree(seen, members)
    ordered = [main, *(pid for pid in members if pid != main)]
    more = [pid for pid in pids if pid not in ordered]
    process, up, ticks = seen.table[main], seen.facts.get("up", ""), _whole(seen.facts.get("hz")) or 100
    age = float(up) - process.start / ticks if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", up) else -1.0
    folders = [folder_of_checkpoint(file.path) for pid in (*ordered, *more) for file in _written(seen, pid)]
    told = [folder for pid in ordered for folder in folders_of_arguments(seen.words[pid], seen.cwds.get(pid))]
    logs = _logs(seen, [*ordered, *more])
    return FoundTraining(
        main,
        process.start,
        seen.facts.get("boot", ""),
        process.parent,
        redact(re.sub(r"[\x00-\x1f\x7f]+", " ", " ".join(seen.words[main])))[:_COMMAND_LENGTH],
        seen.cwds.get(main),
        logs,
        tuple(dict.fromkeys(_reach(seen, main, path) for path in (*folders, *told) if path)),
        _rank(seen, ordered),
        next((job for pid in ordered if (job := _ray_job(seen, pid))), None),
        _process_job(seen, ordered),
        _has_gpu(seen, ordered),
        tuple(pids),
        age if age >= 0 else None,
        tuple(_hints(seen, main, logs)),
    )


def _tree(seen: _Seen, members: Sequence[int]) -> list[int]:
    wanted = set(members)
    return sorted(
        pid
        for pid, process in seen.table.items()
        if process.is_running and pid not in seen.own and (pid in wanted or wanted & set(ancestors_of(pid, seen.table)))
    )


def _written(seen: _Seen, pid: int) -> list[_OpenFile]:
    """The regular files that it writes."""
    files = [file for file in seen.files.get(pid, ()) if file.writes and file.path.startswith("/")]
    return [file for file in files if not file.path.startswith(("/dev/", "/proc/", "/sys/"))]


def _logs(seen: _Seen, pids: Sequence[int]) -> tuple[str, ...]:
    """Where the output of the processes goes, then the other logs that they write."""
    outputs = [file for pid in pids for file in _written(seen, pid) if file.descriptor in (1, 2)]
    pipes = {file.path for pid in pids for file in seen.files.get(pid, ()) if file.writes and file.descriptor in (1, 2)}
    behind = [
        file
        for pid, files in seen.files.items()
        if any(each.descriptor == 0 and each.path in pipes and each.path.startswith("pipe:") for each in files)
        for file in _written(seen, pid)
        if file.descriptor != 2
    ]
    others = [file for pid in pids for file in _written(seen, pid) if _is_log(file.path)]
    first: dict[str, _OpenFile] = {}
    for file in (*outputs, *behind, *others):
        first.setdefault(file.path, file)
    return tuple(_readable(seen, file) for file in first.values())[:MOST_LOGS]


def _is_log(path: str) -> bool:
    path = path.removesuffix(_DELETED)
    return bool(_LOG_NAME.fullmatch(posixpath.basename(path))) and not _NO_LOG.search(path)


def _readable(seen: _Seen, file: _OpenFile) -> str:
    if file.path.endswith(_DELETED):
        return f"/proc/{file.pid}/fd/{file.descriptor}"
    return _reach(seen, file.pid, file.path)


def _reach(seen: _Seen, pid: int, path: str) -> str:
    """The path as whoever asked sees it: that of a process in a container by way of its root folder."""
    space = seen.namespaces.get(pid)
    is_elsewhere = space and seen.namespace and space != seen.namespace
    return f"/proc/{pid}/root{path}" if is_elsewhere and path.startswith("/") else path


def _rank(seen: _Seen, pids: Sequence[int]) -> int | None:
    """The lowest rank of the processes, by the first variable that one of them has."""
    for name in RANK_VARIABLES:
        ranks = [rank for pid in pids if (rank := _whole(_of(seen, pid, name))) is not None]
        if ranks:
            return min(ranks)
    return None


def _of(seen: _Seen, pid: int, name: str) -> str | None:
    return seen.variables.get(pid, {}).get(name)


def _process_job(seen: _Seen, pids: Sequence[int]) -> str | None:
    folder = next((value for pid in pids if (value := _of(seen, pid, "TRAINING_MONITOR_JOB"))), "")
    name = posixpath.basename(folder.rstrip("/"))
    return f"process:{name}" if name else None


def _has_gpu(seen: _Seen, pids: Sequence[int]) -> bool | None:
    if any(
        pid in seen.with_driver or any(_GPU_DEVICE.match(file.path) for file in seen.files.get(pid, ())) for pid in pids
    ):
        return True
    return False if any(pid in seen.cwds for pid in pids) else None


def _hints(seen: _Seen, main: int, logs: Sequence[str]) -> Iterable[str]:
    """What keeps one from knowing more, as whoever asked can mend it."""
    if main not in seen.cwds:
        yield f"the open files of process {main} may not be read: ask as its user or as root, or name its log"
        return
    output = next((file.path for file in seen.files.get(main, ()) if file.descriptor == 1 and file.writes), "")
    if not logs and output.startswith(("/dev/pts/", "/dev/tty")):
        yield f"process {main} prints to a terminal ({output}): start it with its output in a file"
    elif not logs and output.startswith("pipe:"):
        yield f"process {main} prints into a pipe, which cannot be read from outside: name its log"
