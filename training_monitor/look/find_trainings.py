"""Find the trainings that run on a target, and the logs that were written there lately.

The target preselects roughly (any process that could be a training by its command line, or that has a GPU's driver
loaded) and prints what is known of these processes; this module decides which of them are trainings. Only a few
environment variables are read, by name: the rest of the environment never leaves the target.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from training_monitor.core.errors import ParseError
from training_monitor.core.masking import redact
from training_monitor.core.models import Question, Reply
from training_monitor.core.regex import regex
from training_monitor.logs.sources import CONTAINER_LOG, JOURNAL, PROGRESS, TERMINAL
from training_monitor.look.kept_output import sources_of
from training_monitor.look.seen_processes import (
    COMMAND_BYTES,
    ENVIRONMENT_BYTES,
    NAMED_PIPE,
    OpenFile,
    SeenProcesses,
    read_seen,
)
from training_monitor.look.training_command import (
    folder_of_checkpoint,
    folders_of_arguments,
    is_kernel,
    is_launcher,
    is_training,
    is_viewer,
    may_train,
    script_of,
    split_command,
)
from training_monitor.targets.proc_stat import RANK_VARIABLES, Meeting, ancestors_of
from training_monitor.targets.replies import read_whole, split_parts
from training_monitor.targets.scripts import format_call, spell_path

MAX_PROCESSES = 1000
MAX_FILES = 40
SEARCHED_FOR = (
    "the search covers processes on a GPU, launchers such as torchrun, and scripts whose name or options suggest "
    "training, such as train.py or --epochs; name any other training by its PID, script or log"
)
_COMMAND_LENGTH = 400
_SEE = "start it with `| tee FILE`, or add a TrainingMonitor to its script"
_IN_NOTEBOOK = "also write its log to a file, or use a TrainingMonitor in the notebook"
# Ranks started by the same one of these belong together.
_STARTERS = ("slurmstepd", "orted", "prted", "hydra_pmi_proxy", "mpirun", "mpiexec", "orterun", "prterun", "srun")
_LOG_NAME = regex(r"(?:.*\.(?:log|out|err|txt)|nohup\.out|log|std(?:out|err).*)(?:\.\d{1,3})?", re.I | re.S)
_NO_LOG = regex(
    r"/wandb/(?:.*/)?logs/|/session_\d[^/]*/logs/(?!job-driver-|worker-)|debug(?:-internal|-cli.*)?\.log$|tfevents"
)
_FILE = regex(r"file (\d{1,12}) (\d{1,19}) ((?:progress:)?/.+)")
_DELETED = " (deleted)"
_OWNER_RECORD = regex(r"(/(?:.*/)?)\.([^/]+\.json)\.owner", re.DOTALL)
_DRIVER_LOG = regex(r"/python-core-driver-([0-9a-f]{8})[0-9a-f]*_\d+\.log$")
_NO_JOB = "ffffffff"


class FoundTraining(NamedTuple):
    """One training that runs on a target: its topmost process, and what its processes have open.

    Attributes:
        pid, start, boot: the identity of the process (start in clock ticks since the boot). parent: its parent's pid.
        command: the beginning of its command line, secrets replaced. cwd: its working folder.
        script: the one that its ranks run, without its folder, or a module; None if that is unknown.
        logs: files that its output goes to, the likeliest first, as paths that the caller can read there; a file that
            was deleted while open is given by its path in /proc.
        checkpoint_folders: where its checkpoints go, by the files it writes and by its arguments.
        rank: the lowest rank of its processes on this machine.
        ray_job: the submission id, or the number of the job (8 hexadecimal digits) where only its workers are here.
        process_job: `process:NAME`.
        has_gpu: whether one of its processes has a GPU open; None if that may not be read.
        pids: all its processes. age: seconds since it began.
        hints: what keeps us from knowing more.
        sources: where its output can be read, the best first: the file of its TrainingMonitor, its logs, a container's
            log if it prints where process 1 does, a pane of tmux, systemd's journal, what a tracker keeps of it.
        meeting: where its ranks meet.
        container: where it is in one of its machine, the scheme of the target that reads its output, and its id.
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
    script: str | None = None
    sources: tuple[str, ...] = ()
    meeting: Meeting | None = None
    container: tuple[str, str] | None = None

    @property
    def process(self) -> str:
        """The identity of its process, in Observation's format."""
        return f"{self.pid} {self.start} {self.boot}"


class FoundTrainings(NamedTuple):
    """The trainings among the processes of a target.

    `unlisted` counts processes that were not examined, `unrecognized` those that may be trainings but look like none.
    `hides_others`: those of other users are hidden, as not even process 1 is visible (hidepid).
    """

    trainings: tuple[FoundTraining, ...]
    unlisted: int = 0
    unrecognized: int = 0
    hides_others: bool = False


class FoundFile(NamedTuple):
    """A log that was written lately. `age` in seconds."""

    path: str
    age: float
    size: int


def parse_trainings(
    text: str, word: str, spelling: str, named: str = "", *, of_any: bool = False, own: Mapping[str, str] | None = None
) -> FoundTrainings:
    """Parse the reply to the question for trainings; those on a GPU come first, then the oldest.

    Args:
        word: the mark at the start of each part. spelling: what stands for the first slash of paths.
        named: a PID or a word of a command line: what runs it is a training, whatever it looks like.
        of_any: where no training has that word, any other program with it counts as one.
        own: variables that all of its processes have, see `Target.own_processes`.

    Raises:
        ParseError: its end is missing.
    """
    parts = dict(split_parts(text, word))
    unlisted = read_whole(parts.get("unlisted", "").strip())
    if "end" not in parts or "boot=" not in parts.get("facts", "") or unlisted is None:
        raise ParseError("the reply is truncated", source="trainings", text=text)
    seen = read_seen(parts, spelling)
    marks = (own or {}).items()
    mine = [pid for pid in seen.words if pid not in seen.own and marks <= seen.variables.get(pid, {}).items()]
    relevant = {pid for pid in mine if _is_relevant(seen, pid, named) or (own and _is_of_job(seen, pid))}
    if of_any and not any(_has_word(seen.words[pid], named) for pid in relevant):
        relevant |= {pid for pid in mine if _is_any(seen, pid, named)}
    relevant = _without_starters(seen, relevant) if own else relevant
    found = [_describe(seen, members) for members in _group(seen, relevant)]
    taken = seen.own.union(*(each.pids for each in found))
    others = [pid for pid in mine if pid not in taken and may_train(seen.words[pid])]
    ordered = sorted(found, key=lambda each: (not each.has_gpu, each.start, each.pid))
    return FoundTrainings(tuple(ordered), unlisted, len(others), 1 not in seen.table)


def parse_files(text: str) -> tuple[FoundFile, ...]:
    """Parse lines `file TIME SIZE PATH` and a line `now TIME`; a file from the future has age 0."""
    lines = text.splitlines()
    now = next((read_whole(line[4:]) for line in reversed(lines) if line.startswith("now ")), None)
    if now is None:
        raise ParseError("the reply is truncated", source="recent logs", text=text)
    found = [match.groups() for line in lines if (match := _FILE.fullmatch(line))]
    files = [FoundFile(posixpath.normpath(path), max(0.0, float(now - int(at))), int(size)) for at, size, path in found]
    return tuple({file.path: file for file in files}.values())


# ---------------------------------------------------------------- grouping


def _group(seen: SeenProcesses, relevant: set[int]) -> list[list[int]]:
    """Return the relevant processes of each training."""
    own = seen.own
    groups: dict[object, list[int]] = {}
    for pid in sorted(relevant, key=lambda each: (seen.table[each].start, each)):
        groups.setdefault(_key(seen, pid, relevant, own), []).append(pid)
    for key, members in [*groups.items()]:
        if ranks := _ranks_of_job(seen, members, groups):
            ranks.extend(groups.pop(key))
    return list(groups.values())


def _ranks_of_job(seen: SeenProcesses, members: Sequence[int], groups: Mapping[object, list[int]]) -> list[int] | None:
    """Return the one group of ranks of a scheduler's job whose starters these are: they are children of a daemon."""
    job = _of(seen, members[0], "SLURM_JOB_ID")
    if not job or not all(is_launcher(seen.words[pid]) for pid in members):
        return None
    steps = [
        ranks
        for ranks in groups.values()
        if ranks is not members and _of(seen, ranks[0], "SLURM_JOB_ID") == job and _of(seen, ranks[0], "SLURM_STEP_ID")
    ]
    return steps[0] if len(steps) == 1 else None


def _is_relevant(seen: SeenProcesses, pid: int, named: str) -> bool:
    process, words = seen.table.get(pid), seen.words[pid]
    if process is None or not process.is_running or not may_train(words):
        return False
    if named and (str(pid) == named or _has_word(words, named)):
        return True
    known = seen.variables.get(pid, {})
    return seen.is_on_gpu(pid) or is_training(words) or "submission" in known or known.keys() >= {"RANK", "WORLD_SIZE"}


def _is_of_job(seen: SeenProcesses, pid: int) -> bool:
    """Return whether a process of a job is one of its ranks, whatever it looks like."""
    process = seen.table.get(pid)
    is_rank = any(name in seen.variables.get(pid, {}) for name in RANK_VARIABLES)
    return process is not None and process.is_running and is_rank and may_train(seen.words[pid])


def _without_starters(seen: SeenProcesses, relevant: set[int]) -> set[int]:
    """Return the processes without launchers whose ranks are no children of theirs, unless there is nothing else."""
    ranks = {pid for pid in relevant if not is_launcher(seen.words[pid])}
    return ranks | {pid for pid in relevant for each in ranks if pid in ancestors_of(each, seen.table)} or relevant


def _has_word(words: Sequence[str], named: str) -> bool:
    from training_monitor.jobs.names import word_pattern

    return bool(named and word_pattern(named).search(" ".join(words)))


def _is_any(seen: SeenProcesses, pid: int, named: str) -> bool:
    """Return whether a program has a word in its command line, and does not only show or watch what has that name."""
    process = seen.table.get(pid)
    return process is not None and _has_word(seen.words[pid], named) and not is_viewer(seen.words[pid])


def _key(seen: SeenProcesses, pid: int, relevant: set[int], own: frozenset[int]) -> object:
    """Return the grouping key of a process: its Ray job, or its topmost training process or launcher of ranks.

    Ranks that nothing has started together meet at one place, or share their session and their script.
    """
    if job := _ray_job(seen, pid):
        return "ray", job
    above = [each for each in ancestors_of(pid, seen.table) if each not in own]
    joining = [each for each in above if each in relevant or seen.table[each].name in _STARTERS]
    top = joining[-1] if joining else pid
    if job := _ray_job(seen, top):
        return "ray", job
    if top in seen.words and _rank(seen, [top]) is not None:
        script = split_command(seen.words[top])[0]
        return "ranks", seen.meeting_of(top) or (seen.table[top].session, script)
    return "tree", top


def _ray_job(seen: SeenProcesses, pid: int) -> str | None:
    """Return the submission id of its Ray job; of a worker whose driver is not here, the number of the job."""
    if submission := _of(seen, pid, "submission"):
        return submission
    number = seen.workers.get(pid) or _of(seen, pid, "RAY_JOB_ID")
    if number in (None, _NO_JOB):
        return None
    drivers = (each for each in seen.files if number in _numbers_of_driver(seen, each))
    return next((job for each in drivers if (job := _of(seen, each, "submission"))), number)


def _numbers_of_driver(seen: SeenProcesses, pid: int) -> list[str]:
    found = (_DRIVER_LOG.search(file.path) for file in seen.files[pid])
    return [match[1] for match in found if match]


# ---------------------------------------------------------------- describing


def _describe(seen: SeenProcesses, members: Sequence[int]) -> FoundTraining:
    """Describe the training of these processes, which are sorted oldest first."""
    tops = [pid for pid in members if not set(ancestors_of(pid, seen.table)) & set(members)]
    main = min(
        tops or members,
        key=lambda pid: (
            not _of(seen, pid, "submission"),
            not is_training(seen.words[pid]),
            is_launcher(seen.words[pid]),
        ),
    )
    pids = _tree(seen, members)
    ordered = [main, *(pid for pid in members if pid != main)]
    more = [pid for pid in pids if pid not in ordered]
    process, up, ticks = seen.table[main], seen.facts.get("up", ""), read_whole(seen.facts.get("hz")) or 100
    age = float(up) - process.start / ticks if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", up) else -1.0
    folders = [folder_of_checkpoint(file.path) for pid in (*ordered, *more) for file in _written(seen, pid)]
    told = [folder for pid in ordered for folder in folders_of_arguments(seen.words[pid], seen.cwds.get(pid))]
    logs = _logs(seen, [*ordered, *more])
    others = {seen.cwds.get(pid) for pid, words in seen.words.items() if may_train(words) and pid not in pids}
    written = [file.path for pid in pids for file in _written(seen, pid)]
    progress = [PROGRESS + path for pid in ordered for path in _progress_files(seen, pid)]
    outputs = set().union(*(_outputs(seen, pid) for pid in ordered))
    panes = [TERMINAL + path for path in sorted(outputs & seen.panes) if not _is_elsewhere(seen, main)]
    of_container = {path for path in outputs & _outputs(seen, 1) if not path.startswith(NAMED_PIPE)}
    live = [*([CONTAINER_LOG] if of_container else []), *panes]
    live += [JOURNAL + start for pid in ordered if (start := _start_of_unit(seen, pid))]
    alone = {cwd for pid in ordered if (cwd := seen.cwds.get(pid)) and cwd not in others}
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
        script_of(seen.words[main]),
        tuple(dict.fromkeys([*progress, *logs, *live, *sources_of(seen.kept, written, alone, process.start / ticks)])),
        max(filter(None, map(seen.meeting_of, ordered)), key=lambda each: each.port is not None, default=None),
        seen.containers.get(main) if _is_elsewhere(seen, main) else None,
    )


def _progress_files(seen: SeenProcesses, pid: int) -> Iterator[str]:
    """Yield the progress files of a process: it keeps the record beside each open that says whose it is."""
    for file in _written(seen, pid):
        if found := _OWNER_RECORD.fullmatch(file.path):
            yield _reach(seen, pid, f"{found[1]}{found[2]}")


def _outputs(seen: SeenProcesses, pid: int) -> set[str]:
    """Return the pipes and terminals to which a process prints."""
    return {
        file.path
        for file in seen.files.get(pid, ())
        if file.writes and file.descriptor in (1, 2) and file.path.startswith(("pipe:", "/dev/"))
    }


def _start_of_unit(seen: SeenProcesses, pid: int) -> str | None:
    """Return the invocation ID of the systemd unit of a process that prints to the journal; None for any other."""
    stream = f"socket:[{(_of(seen, pid, 'JOURNAL_STREAM') or '').rpartition(':')[2]}]"
    prints = any(file.path == stream and file.descriptor in (1, 2) for file in seen.files.get(pid, ()))
    return _of(seen, pid, "INVOCATION_ID") if prints else None


def _tree(seen: SeenProcesses, members: Sequence[int]) -> list[int]:
    wanted = set(members)
    return sorted(
        pid
        for pid, process in seen.table.items()
        if process.is_running and pid not in seen.own and (pid in wanted or wanted & set(ancestors_of(pid, seen.table)))
    )


def _written(seen: SeenProcesses, pid: int) -> list[OpenFile]:
    """Return the regular files that a process writes."""
    files = [file for file in seen.files.get(pid, ()) if file.writes and file.path.startswith("/")]
    return [file for file in files if not file.path.startswith(("/dev/", "/proc/", "/sys/"))]


def _logs(seen: SeenProcesses, pids: Sequence[int]) -> tuple[str, ...]:
    """Return where the output of the processes goes, then the other logs that they write."""
    written = [file for pid in pids for file in _written(seen, pid) if not _is_servers(seen, file)]
    outputs = [file for file in written if file.descriptor in (1, 2)]
    ends = set().union(*(_outputs(seen, pid) for pid in pids))
    above = ancestors_of(pids[0], seen.table) if any("/dev/pts/" in path for path in ends) else ()
    readers = [pid for pid in above if seen.table[pid].name == "script"]  # it writes what its terminal shows
    inputs = [(pid, each.path) for pid, files in seen.files.items() for each in files if each.descriptor == 0]
    while found := [pid for pid, path in inputs if "pipe:" in path and path in ends and pid not in readers]:
        readers += found
        ends |= set().union(*(_outputs(seen, pid) for pid in found))
    behind = [file for pid in readers for file in _written(seen, pid) if file.descriptor != 2]
    others = [file for file in written if _is_log(file.path)]
    first: dict[str, OpenFile] = {}
    for file in (*outputs, *behind, *others):
        first.setdefault(file.path, file)
    return tuple(_readable(seen, file) for file in first.values())


def _is_servers(seen: SeenProcesses, file: OpenFile) -> bool:
    """Whether a notebook's server prints there, from which its kernels have inherited output and errors, and copies."""
    if not is_kernel(seen.words.get(file.pid, ())):
        return False
    copies = [each for each in seen.files[file.pid] if each.path == file.path and each.writes]
    return file.descriptor in (1, 2) or len(copies) > 1 or file.path.endswith("/nohup.out")


def _is_log(path: str) -> bool:
    path = path.removesuffix(_DELETED)
    return bool(_LOG_NAME.fullmatch(posixpath.basename(path))) and not _NO_LOG.search(path)


def _readable(seen: SeenProcesses, file: OpenFile) -> str:
    if file.path.endswith(_DELETED):
        return f"/proc/{file.pid}/fd/{file.descriptor}"
    return _reach(seen, file.pid, file.path)


def _reach(seen: SeenProcesses, pid: int, path: str) -> str:
    """Return the path as the caller sees it: that of a process in a container by way of its root folder."""
    return f"/proc/{pid}/root{path}" if _is_elsewhere(seen, pid) and path.startswith("/") else path


def _is_elsewhere(seen: SeenProcesses, pid: int) -> bool:
    """Return whether a process is in another mount namespace, where a path may mean something else."""
    space = seen.namespaces.get(pid)
    return bool(space and seen.namespace and space != seen.namespace)


def _rank(seen: SeenProcesses, pids: Sequence[int]) -> int | None:
    """Return the lowest rank of the processes, by the first rank variable that any of them has."""
    for name in RANK_VARIABLES:
        ranks = [rank for pid in pids if (rank := read_whole(_of(seen, pid, name))) is not None]
        if ranks:
            return min(ranks)
    return None


def _of(seen: SeenProcesses, pid: int, name: str) -> str | None:
    return seen.variables.get(pid, {}).get(name)


def _process_job(seen: SeenProcesses, pids: Sequence[int]) -> str | None:
    folder = next((value for pid in pids if (value := _of(seen, pid, "TRAINING_MONITOR_JOB"))), "")
    name = posixpath.basename(folder.rstrip("/"))
    return f"process:{name}" if name else None


def _has_gpu(seen: SeenProcesses, pids: Sequence[int]) -> bool | None:
    if any(map(seen.is_on_gpu, pids)):
        return True
    return False if any(pid in seen.cwds for pid in pids) else None


def _hints(seen: SeenProcesses, main: int, logs: Sequence[str]) -> Iterable[str]:
    """Yield what keeps us from knowing more, and how the user can fix it."""
    if main in seen.cut_commands:
        yield (
            f"only the first {COMMAND_BYTES} bytes of the command line of process {main} were read; a log path "
            "beyond that was not detected: specify the log"
        )
    if main not in seen.cwds:
        yield (
            f"no permission to read the open files of process {main}: run this as its user or as root, or "
            "specify its log"
        )
        return
    output = next((file.path for file in seen.files.get(main, ()) if file.descriptor == 1 and file.writes), "")
    if not logs and output.startswith(("/dev/pts/", "/dev/tty")):
        yield f"process {main} prints to a terminal ({output}): {_SEE}"
    elif not logs and is_kernel(seen.words[main]):
        yield f"process {main} is a notebook's kernel, and its output appears only in the notebook: {_IN_NOTEBOOK}"
    elif not logs and output.startswith("pipe:"):
        yield f"process {main} prints to a pipe, which other programs cannot read: specify its log, or {_SEE}"


def find_question(
    named: str = "", *, of_any: bool = False, own: Mapping[str, str] | None = None
) -> Question[FoundTrainings]:
    """Ask for the running trainings: launchers, training scripts and users of a GPU, one for each process tree.

    What is `named`, by its PID or a word of its command line, counts as one, also on a CPU and by any name. It examines
    MAX_PROCESSES candidates and counts the others. `of_any`, `own`: as for
    `parse_trainings`.
    """
    word, spelling = os.urandom(12).hex(), spell_path()
    script = format_call(
        "find_trainings",
        "find_trainings",
        word=word,
        spelling=spelling,
        ranks=r"\|".join((*RANK_VARIABLES, "WORLD_SIZE")),
        most=MAX_PROCESSES,
        named=named if of_any else "",
        command_bytes=COMMAND_BYTES,
        environment_bytes=ENVIRONMENT_BYTES,
    )

    def read(reply: Reply) -> FoundTrainings:
        return parse_trainings(reply.output, word, spelling, named, of_any=of_any, own=own)

    return Question("trainings", script, read, limit=15.0)


def files_question() -> Question[tuple[FoundFile, ...]]:
    """Ask for logs written within the last day near possible trainings, below the home folder and in /workspace.

    It is a separate question, since a file system that hangs must not hide the processes. The newest files come first;
    those that do not fit into one answer are older.
    """

    script = format_call("recent_logs", "show", most=MAX_FILES)
    return Question("recent logs", script, lambda reply: parse_files(reply.output), limit=10.0)
