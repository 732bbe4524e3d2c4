"""Read and change runs in a folder of another machine: a host, a pod, a rented instance. A look is one round trip.

The questions are here; `runs/remote_answers.py` parses the answers.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    AccessDenied,
    CommandFailed,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import Answer, Question, Reply, T
from training_monitor.core.results import CommandResult
from training_monitor.look.host import gpu_question
from training_monitor.runs.files import KnownRun, paths_of_run, paths_to_run, temporary_of_script
from training_monitor.runs.progress_file import Edit, check_edits, merge_edits
from training_monitor.runs.remote_answers import (
    FILE_BYTES,
    FolderListing,
    describe_signals,
    parse_chunk,
    parse_folder,
    parse_look,
    parse_size,
    read_runs,
)
from training_monitor.runs.resources import GpuMemory, add_up_gpus, with_gpus
from training_monitor.runs.rows import check_same_attempt
from training_monitor.runs.values import RUNNING, FolderLook, OutputChunk, Run, RunSize
from training_monitor.targets.asking import ask, quote_path
from training_monitor.targets.proc_stat import CONTINUE, STOP, Identity, check_signal
from training_monitor.targets.procfs import identify
from training_monitor.targets.replies import parse_fields, split_parts
from training_monitor.targets.scripts import format_call, spell_path
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import LocalTransport, Stream, Transport

AT_ONCE = 300  # processes in one question
_LOOK_SECONDS, _CHANGE_SECONDS = 20.0, 30.0
_DELETE_SECONDS = 600.0  # a folder may hold terabytes of checkpoints
_FOLDER_BYTES, _PROCESS_BYTES = 2048 * 1024, 1536 * 1024  # for all files, and all processes: both fit in one answer
_MOST_FILES, _MOST_NAMES = 1000, 20_000
_MOST_EXPANDED, _THREAD_BYTES = 100, 192 * 1024  # processes whose threads are read, and bytes for all of these
_BLOCK = 4096
Outcome = tuple[str, str]  # the state after a change, and its details
MAX_CHUNK = 256 * 1024
_GPU_SECONDS = 5.0
_WITHOUT_GPUS = 60.0  # seconds until nvidia-smi is asked again after it gave no answer
_CONTROL_BYTES = 50_000  # the old and the new control file travel in one script
_REASONS = {
    "moved": "the folder has been replaced since the last refresh",
    "gone": "its folder no longer exists",
    "other": "its path is not a regular file",
    "busy": "another process has been editing files in this folder for 2 s",
    "file": "its folder is a file",
    "link": "its folder is a link: delete it by hand",
    "unsure": "a process with its PID is running and may belong to it: end the process first",
    "heard": "its file was written within the last minute, and its process is not visible from there",
}


def look_question(folder: str, where: str, threads_of: Iterable[int] | None = None) -> Question[FolderListing]:
    """Ask for the files of a folder of runs. Raises SettingsError.

    Args:
        where: the display name of the folder.
        threads_of: ask for all processes and the threads of these before the files; None: for the files only.
    """
    word, spelling = os.urandom(8).hex(), spell_path()
    name, function, parse, more = "folder", "show_folder", parse_folder, dict[str, str | int]()
    if threads_of is not None:
        pids = sorted(threads_of)[:_MOST_EXPANDED]
        name, function, parse = "look", "look", parse_look
        more["threads_of"] = " ".join(str(int(pid)) for pid in pids)
        more |= {"process_bytes": _PROCESS_BYTES, "thread_bytes": _THREAD_BYTES // max(1, len(pids))}
    script = format_call(
        "run_look",
        function,
        word=word,
        folder=quote_path(folder),
        spelling=spelling,
        most_names=_MOST_NAMES,
        most_files=_MOST_FILES,
        file_bytes=FILE_BYTES + 1,
        folder_bytes=_FOLDER_BYTES,
        **more,
    )
    return Question(name, script, lambda reply: parse(reply.output, word, spelling, where), _LOOK_SECONDS)


def output_question(path: str, start: int, length: int, target: str) -> Question[OutputChunk]:
    """Ask for `length` bytes of a file from `start` on, counted from its end if negative."""
    script = format_call("file_piece", "show", file=path, first=int(start), length=int(length), block=_BLOCK)

    def parse(reply: Reply) -> OutputChunk:
        fields, data = parse_fields(reply.output)
        state = fields.get("state")
        if state == "denied":
            raise AccessDenied(
                f"no permission to read {path!r}", hint="run this as another user, or change the file's permissions"
            )
        if state in ("missing", "other"):
            raise CommandFailed(f"no {'regular ' if state == 'other' else ''}file {path!r} on {target}")
        return parse_chunk(fields, data, length)

    return Question("output", script, parse, _CHANGE_SECONDS)


def signal_question(
    processes: Sequence[Identity], number: int, runs: Sequence[Sequence[Run]] = ()
) -> Question[tuple[str, ...]]:
    """Signal each process that is still the same, and watch it for up to a second; answers with a sentence each.

    Takes the same as `RemoteRuns.send_signal`.
    """
    word, known = os.urandom(8).hex(), {STOP: "STOP", CONTINUE: "CONT"}.get(number, "OTHER")
    words = " ".join(map(_format_identity, processes))
    me, places = identify(), list(dict.fromkeys(paths_to_run(run) for each in runs for run in each))
    script = format_call(
        "run_signals",
        "signal_all",
        word=word,
        processes=words,
        own=me.pid if me in processes else "",
        named=" ".join(",".join(str(places.index(paths_to_run(run))) for run in each) or "," for each in runs),
        files=shlex.join(map(shlex.join, places)),
        number=int(number),
        signal=known,
    )

    def parse(reply: Reply) -> tuple[str, ...]:
        return describe_signals(reply.output, word, processes, number)

    return Question("signal", script, parse, _CHANGE_SECONDS)


def change_question(name: str, root: str, target: str, **words: str | int) -> Question[Outcome]:
    """Ask a target to change files below `root` by a function of run_changes.sh, and to verify it."""
    word = os.urandom(8).hex()

    def parse(reply: Reply) -> Outcome:
        parts = split_parts(reply.output, word)
        if not parts:
            raise CommandFailed(f"{name}: the target reported no result", target=target)
        return parts[-1]

    script = format_call("run_changes", name, word=word, root=root, **words)
    return Question(name, script, parse, _DELETE_SECONDS if name == "delete" else _CHANGE_SECONDS)


def _format_identity(process: Identity) -> str:
    known = (process.start_ticks, process.hostname, process.boot_id, process.pid_namespace)
    return shlex.join("" if value is None else str(value) for value in (process.pid, *known))


class _Once:
    """A transport for one program: an action that is not idempotent is not retried when its answer was lost."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self._was_used = inner, False

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        if self._was_used:
            raise TargetUnreachable(
                "the response was lost: it is unknown whether the signal was sent",
                hint="check the processes before you retry",
            )
        self._was_used = True
        return self.inner.run(argv, timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return self.inner.stream(argv, input=input)


class RemoteRuns:
    """Access to a folder of runs on a target. Every query or change takes one round trip, and a deletion takes two.

    Every method raises TrainingMonitorError if the target cannot be queried.
    """

    def __init__(
        self,
        target: str | Target,
        folder: str,
        *,
        namespace: str = "default",
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        quote_path(folder)
        self.folder, self._target, self._namespace = folder, target, namespace
        self._transport, self._clock = transport or LocalTransport(), clock
        self._reached: Target | None = None
        self._root = ""
        self._known: dict[str, KnownRun[Any]] = {}
        self._gpu_error = "nvidia-smi was not queried"
        self._ask_gpus_at = clock.monotonic()

    @cached_property
    def target(self) -> Target:
        return parse_target(self._target, namespace=self._namespace)  # looks on this machine need no target

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        """Read all files and processes in one round trip. An nvidia-smi that hangs delays it by at most five seconds.

        Args:
            threads_of: the processes whose threads are read.

        Raises:
            CommandError: the target did not respond, or the folder does not exist or cannot be read.
        """
        questions: list[Question[Any]] = [look_question(self.folder, self._where(), threads_of)]
        if self._clock.monotonic() >= self._ask_gpus_at:
            questions.append(gpu_question(_GPU_SECONDS))
        answer, *gpus = self._ask(*questions)
        look = cast(FolderListing, answer.get())
        self._root = look.root
        self._known = read_runs(look, self._known)
        runs = tuple(known.run for known in self._known.values() if known.run)
        memory = self._gpu_memory(gpus)
        machine = look.machine and with_gpus(look.machine, memory)
        timestamp = look.timestamp if look.timestamp is not None else self._clock.time()
        return FolderLook(runs, machine, timestamp, look.machine_error, look.processes_at)

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        """Read at most MAX_CHUNK bytes of an output file that belongs to a run found by the last look.

        A negative `start` counts from the end of the file.
        """
        self._check_output(path)
        length = max(0, min(length, MAX_CHUNK))
        return self._ask_one(output_question(path, start, length, str(self.target)))

    def _check_output(self, path: str) -> None:
        known = [one.run for one in self._known.values() if one.run]
        if not path or not any(path in (run.stdout_path, run.stderr_path) for run in known):
            raise TrainingMonitorError(f"{path!r} is not the output of any run in {self._where()}")

    def edit(self, run: Run, values: Mapping[str, str]) -> str:
        """Add edits to the control file of a run, keep the edits that are still pending, and verify the result.

        Returns the ID that the run's response will contain. If the file was changed since the last look, this method
        tries once more with the new content.

        Raises:
            TrainingMonitorError: the run has ended or has no such variable, the file cannot be written, or it keeps
                changing.
        """
        check_edits(run, values)
        known = self._known_of(run)
        edit_id, now = os.urandom(8).hex(), self._clock.time()
        added = {name: Edit(value, edit_id, now) for name, value in values.items()}
        old = known.control or ""
        for _ in range(2):
            new = merge_edits(old, run, added)
            if max(len(old.encode()), len(new.encode())) > _CONTROL_BYTES:
                raise CommandFailed(
                    f"the file {run.control_path!r} is too large to be edited remotely", target=str(self.target)
                )
            folder, _, file = known.files.control_path.rpartition("/")
            state, said = self._change(
                "edit",
                self._root,
                control_folder=folder,
                control=f"./{file}",
                new=new.rstrip("\n"),
                old=old.rstrip("\n"),
                is_any="yes" if "\ufffd" in old else "",  # bytes that are not text cannot be compared
                temporary=f"./{temporary_of_script()}",
                file_bytes=FILE_BYTES,
            )
            if state == "written":
                return edit_id
            if state != "changed":
                hint = "retry the same call" if state == "busy" else None
                raise CommandFailed(f"{run.control_path!r} was not written: {_reason(state, said)}", hint=hint)
            old = said
        raise CommandFailed(f"{run.control_path!r}: another process is editing the file", hint="retry the same call")

    def send_signal(
        self, processes: tuple[Identity, ...], number: int, runs: Sequence[Sequence[Run]] = ()
    ) -> tuple[str, ...]:
        """Send a signal to those processes that are still the same; return a sentence for each.

        `runs` are the progress files of the runs that each process belongs to. At least one of these files must belong
        to the user who owns the process, or to root. Without `runs`, the caller is responsible for choosing the right
        processes.

        Raises:
            CommandError: the target did not respond; it is unknown whether the signals were sent.
        """
        check_signal(number)
        questions = [
            signal_question(processes[start : start + AT_ONCE], number, runs[start : start + AT_ONCE])
            for start in range(0, len(processes), AT_ONCE)
        ]
        answers = self._ask(*questions, once=True) if questions else []
        return tuple(sentence for answer in answers for sentence in answer.get() or ())

    def measure(self, run: Run) -> RunSize:
        """Measure the files that `delete` would remove, as found by the last look. Raises CommandError."""
        paths = paths_of_run(self._known_of(run).files)
        state, said = self._change("measure", self._root, paths=shlex.join(f"./{path}" for path in paths))
        if state != "measured":
            raise CommandFailed(
                f"the size of run {run.name!r} could not be measured: {_reason(state, said)}", target=str(self.target)
            )
        return parse_size(said)

    def delete(self, run: Run) -> None:
        """Delete the files of a run whose process has ended, as its current file shows. Verify the deletion."""
        self._read_files()
        known = self._known_of(run)
        now = known.run
        if now is None:
            raise self._is_gone(run)
        check_same_attempt(run, now)
        files = known.files
        state, said = self._change(
            "delete",
            self._root,
            progress=f"./{files.progress_path}",
            run_folder=f"./{files.folder}" if files.folder is not None else "",
            paths=shlex.join(f"./{path}" for path in paths_of_run(files)),
            process=_format_identity(now.process) if now.process else "",
            is_running="yes" if now.status in (RUNNING, None) else "",
        )
        if state == "left":
            raise CommandFailed(f"run {run.name!r} was deleted, but {said!r} exists again", target=str(self.target))
        if state != "deleted":
            how = "was not deleted, or only in part" if state == "failed" else "was not deleted"
            raise CommandFailed(f"run {run.name!r} {how}: {_reason(state, said, now.process)}")

    def _read_files(self) -> None:
        """Read the files of all runs as they are now."""
        listing = self._ask_one(look_question(self.folder, self._where()))
        self._root, self._known = listing.root, read_runs(listing, self._known)

    def _where(self) -> str:
        return f"{self.folder!r} on {self.target}"

    def _ask(self, *questions: Question[Any], once: bool = False) -> list[Answer[Any]]:
        """Make one round trip; a rented instance's address is looked up if it is unknown, or did not answer."""
        where = self._reached or self.target.resolve(self._transport)
        try:
            answers = ask(where, *questions, transport=_Once(self._transport) if once else self._transport)
        except TrainingMonitorError:
            self._reached = None
            raise
        self._reached = where
        return answers

    def _ask_one(self, question: Question[T]) -> T:
        return cast(T, self._ask(question)[0].get())

    def _change(self, name: str, root: str, **words: str | int) -> Outcome:
        return self._ask_one(change_question(name, root, str(self.target), **words))

    def _gpu_memory(self, answers: Sequence[Answer[Any]]) -> GpuMemory:
        for answer in answers:
            if answer.failure is None and answer.value is not None:
                return add_up_gpus(*answer.value)
            self._gpu_error = answer.failure.what if answer.failure else self._gpu_error
            self._ask_gpus_at = self._clock.monotonic() + _WITHOUT_GPUS
        return GpuMemory(error=self._gpu_error)

    def _known_of(self, run: Run) -> KnownRun[Any]:
        known = self._known.get(run.path)
        if known is None:
            raise self._is_gone(run)
        if "\ufffd" in run.path:  # stands for lost bytes: the path would name another file
            raise TrainingMonitorError(
                f"run {run.name!r} has a name that is not valid UTF-8", hint="rename the run on that machine"
            )
        return known

    def _is_gone(self, run: Run) -> TrainingMonitorError:
        return TrainingMonitorError(f"run {run.name!r} is no longer in {self._where()}")


def _reason(state: str, said: str, process: Identity | None = None) -> str:
    if state == "alive" and process:
        return f"its process {process.pid} is alive: terminate it first"
    return _REASONS.get(state) or said.strip()[:300] or "it printed nothing"
