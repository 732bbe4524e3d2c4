"""Runs in a folder of another machine: a host, a pod, a rented instance. A look is one round trip."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import (
    AccessDenied,
    CommandFailed,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.models import Answer, CommandResult, Question, Reply
from training_monitor.parse.process_job import parse_fields
from training_monitor.parse.progress_file import Edit
from training_monitor.parse.remote_look import (
    FolderListing,
    RemoteLook,
    describe_signals,
    parse_chunk,
    parse_folder,
    parse_look,
    split_parts,
)
from training_monitor.policy.gpu_memory import GpuMemory, add_up_gpus, with_gpus
from training_monitor.policy.run_edits import check_edits, merge_edits
from training_monitor.policy.run_life import check_same_attempt
from training_monitor.policy.run_values import RUNNING, FolderLook, Identity, OutputChunk, Run, RunSource
from training_monitor.policy.signal_outcomes import check_signal
from training_monitor.probes.gpu import gpu_question
from training_monitor.progress import remote_scripts as scripts
from training_monitor.progress.local_runs import LocalRuns
from training_monitor.progress.remote_listing import KnownRun, read_runs
from training_monitor.targets.asking import ask, quote_path
from training_monitor.targets.connect import resolve_target
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import LocalTransport, Stream, Transport

MAX_CHUNK = 256 * 1024
_LOOK_SECONDS, _GPU_SECONDS, _CHANGE_SECONDS = 20.0, 5.0, 30.0
_WITHOUT_GPUS = 60.0  # seconds until nvidia-smi is asked again that gave no answer
_CONTROL_BYTES = 50_000  # both the old and the new one travel in one script
_AT_ONCE = 300  # processes in one script
_WHERE = (
    "an existing folder, ssh://[user@]host[:port]/path, k8s://namespace/pod[/container]:/path, vast://ID/path "
    "or POD:/path"
)

_PATTERNS = {
    "": r"([^/:]+):([/~].*)",
    "k8s": r"(k8s://.+?):([/~].*)",
    "ssh": r"(ssh://[^/]+)/(.*)",
    "vast": r"(vast://[^/]+)/(.*)",
}


def open_runs(where: str, *, namespace: str = "default", transport: Transport | None = None) -> RunSource:
    """The runs in a folder, here or elsewhere; nothing is asked yet.

    Args:
        where: FOLDER, ssh://[user@]host[:port]/path, k8s://namespace/pod[/container]:/path, vast://ID/path or
            POD:/path; `~/` (ssh://host/~/path) is the home folder there. A folder of that name here wins.
        namespace: of a bare POD.

    Raises:
        SettingsError: It is none of these.
    """
    if os.path.isdir(where):
        return LocalRuns(where, transport=transport)
    target, folder = _split_where(where, namespace)
    return RemoteRuns(target, folder, transport=transport)


def _split_where(where: str, namespace: str) -> tuple[Target, str]:
    named = re.match(r"([A-Za-z0-9+.-]+)://", where)
    scheme = named[1] if named else ""
    found = re.fullmatch(_PATTERNS[scheme], where, re.DOTALL) if scheme in _PATTERNS else None
    path = found[2] if found else ""
    if found and scheme in ("ssh", "vast") and not re.match(r"~(?:/|\Z)", path):
        path = f"/{path}"
    if not found or "\0" in path or (path.startswith("~") and path[1:2] not in ("", "/")):
        raise SettingsError("folder", where, _WHERE)
    try:
        return parse_target(found[1], namespace=namespace), "~/" if path == "~" else path
    except SettingsError as error:
        raise SettingsError("folder", where, _WHERE) from error


class _Once:
    """A way on which one program is run: what must not be done twice is not asked again when its answer got lost."""

    def __init__(self, inner: Transport) -> None:
        self._inner, self._was_used = inner, False

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        if self._was_used:
            raise TargetUnreachable(
                "the answer was lost: whether the signal was sent is not known", hint="look at the processes first"
            )
        self._was_used = True
        return self._inner.run(argv, timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return self._inner.stream(argv, input=input)


class RemoteRuns:
    """A RunSource over a folder of a target; every question and every change is one round trip, a deletion two."""

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
        self.target, self.folder = parse_target(target, namespace=namespace), folder
        self._transport, self._clock = transport or LocalTransport(), clock
        self._reached: Target | None = None
        self._root = ""
        self._known: dict[str, KnownRun] = {}
        self._gpu_error = "nvidia-smi was not asked"
        self._ask_gpus_at = clock.monotonic()

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        """Read all files and processes in one round trip; nvidia-smi that hangs costs at most five seconds of it.

        Raises:
            CommandError: The target did not answer, or the folder is not there or cannot be read.
        """
        questions: list[Question[Any]] = [self._look_question(threads_of)]
        if self._clock.monotonic() >= self._ask_gpus_at:
            questions.append(gpu_question(_GPU_SECONDS))
        answer, *gpus = self._ask(*questions)
        look = answer.get()
        assert isinstance(look, RemoteLook)
        self._root = look.folder.root
        self._known = read_runs(look.folder, self._known)
        runs = tuple(known.run for known in self._known.values() if known.run)
        memory = self._gpu_memory(gpus)
        machine = look.machine and with_gpus(look.machine, memory)
        timestamp = look.folder.timestamp if look.folder.timestamp is not None else self._clock.time()
        return FolderLook(runs, machine, timestamp, look.machine_error, look.processes_at)

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        """Read at most MAX_CHUNK bytes of a file that a run of the last look names as its output."""
        known = [one.run for one in self._known.values() if one.run]
        if not path or not any(path in (run.stdout_path, run.stderr_path) for run in known):
            raise TrainingMonitorError(f"{path!r} is the output of no run in {self._where()}")
        length = max(0, min(length, MAX_CHUNK))

        def parse(reply: Reply) -> OutputChunk:
            fields, data = parse_fields(reply.output)
            state = fields.get("state")
            if state == "denied":
                raise AccessDenied(f"no permission to read {path!r}", hint="another user, or the file's permissions")
            if state in ("missing", "other"):
                raise CommandFailed(f"no {'regular ' if state == 'other' else ''}file {path!r} on {self.target}")
            return parse_chunk(fields, data, length)

        question = Question("output", scripts.output_script(path, start, length), parse, _CHANGE_SECONDS)
        chunk = self._ask(question)[0].get()
        assert isinstance(chunk, OutputChunk)
        return chunk

    def edit(self, run: Run, values: Mapping[str, str]) -> str:
        """Write edits into the control file of a run, beside those that are not answered yet, and see them there.

        When somebody else wrote the file since the last look, it is done again with what they wrote.

        Raises:
            TrainingMonitorError: The run has ended or has no such variable, the file cannot be written, or somebody
                else goes on writing it.
        """
        check_edits(run, values)
        known = self._known_of(run, self._known)
        edit_id, now = secrets.token_hex(8), self._clock.time()
        added = {name: Edit(value, edit_id, now) for name, value in values.items()}
        old = known.control or ""
        for _ in range(2):
            new = merge_edits(old, run, added)
            if max(len(old.encode()), len(new.encode())) > _CONTROL_BYTES:
                raise CommandFailed(f"{run.control_path!r} is too long to be edited from here", target=str(self.target))
            word = _word()
            seen = None if "\ufffd" in old else old  # bytes that are no text cannot be compared
            script = scripts.edit_script(self._root, known.files.control_path, old=seen, new=new, word=word)
            state, said = self._change("edit", script, word)
            if state == "written":
                return edit_id
            if state != "changed":
                raise CommandFailed(f"{run.control_path!r} was not written: {_reason(state, said)}")
            old = said
        raise CommandFailed(f"{run.control_path!r}: somebody else edits it", hint="the same again")

    def send_signal(self, processes: tuple[Identity, ...], number: int) -> tuple[str, ...]:
        """Send a signal to those that are still the same processes; a sentence for each.

        Raises:
            CommandError: The target did not answer; what was sent is then not known.
        """
        check_signal(number)
        questions = [
            _signal_question(processes[start : start + _AT_ONCE], number)
            for start in range(0, len(processes), _AT_ONCE)
        ]
        answers = self._ask(*questions, once=True) if questions else []
        return tuple(sentence for answer in answers for sentence in answer.get() or ())

    def delete(self, run: Run) -> None:
        """Delete the files of a run whose process has ended, by what its progress file says now, and see them gone."""
        listing = self._ask(self._folder_question())[0].get()
        assert isinstance(listing, FolderListing)
        known, word = self._known_of(run, read_runs(listing, self._known)), _word()
        now = known.run
        if now is None:
            raise self._is_gone(run)
        check_same_attempt(run, now)
        is_running = now.status in (RUNNING, None)
        script = scripts.delete_script(listing.root, known.files, now.process, is_running=is_running, word=word)
        state, said = self._change("delete", script, word)
        if state == "left":
            raise CommandFailed(f"run {run.name!r} was deleted, and {said!r} is there again", target=str(self.target))
        if state != "deleted":
            raise CommandFailed(f"run {run.name!r} was not deleted: {_reason(state, said, now.process)}")

    def _where(self) -> str:
        return f"{self.folder!r} on {self.target}"

    def _ask(self, *questions: Question[Any], once: bool = False) -> list[Answer[Any]]:
        """One round trip; the address of a rented instance is looked up when it is not known, or did not answer."""
        where = self._reached or resolve_target(self.target, transport=self._transport)
        try:
            answers = ask(where, *questions, transport=_Once(self._transport) if once else self._transport)
        except TrainingMonitorError:
            self._reached = None
            raise
        self._reached = where
        return answers

    def _folder_question(self) -> Question[FolderListing]:
        word, spelling = _word(), scripts.spell_path()

        def parse(reply: Reply) -> FolderListing:
            return parse_folder(reply.output, word, spelling, self._where())

        return Question("folder", scripts.folder_script(self.folder, word, spelling), parse, _LOOK_SECONDS)

    def _look_question(self, threads_of: frozenset[int]) -> Question[RemoteLook]:
        word, spelling = _word(), scripts.spell_path()

        def parse(reply: Reply) -> RemoteLook:
            return parse_look(reply.output, word, spelling, self._where())

        return Question("look", scripts.look_script(self.folder, threads_of, word, spelling), parse, _LOOK_SECONDS)

    def _gpu_memory(self, answers: Sequence[Answer[Any]]) -> GpuMemory:
        for answer in answers:
            if answer.failure is None and answer.value is not None:
                return add_up_gpus(*answer.value)
            self._gpu_error = answer.failure.what if answer.failure else self._gpu_error
            self._ask_gpus_at = self._clock.monotonic() + _WITHOUT_GPUS
        return GpuMemory(error=self._gpu_error)

    def _known_of(self, run: Run, runs: Mapping[str, KnownRun]) -> KnownRun:
        known = runs.get(run.path)
        if known is None:
            raise self._is_gone(run)
        if "\ufffd" in run.path:  # which stands for bytes that got lost on the way: it would be another file
            raise TrainingMonitorError(
                f"run {run.name!r} has a name that is no UTF-8", hint="change it on that machine"
            )
        return known

    def _is_gone(self, run: Run) -> TrainingMonitorError:
        return TrainingMonitorError(f"run {run.name!r} is not in {self._where()} any more")

    def _change(self, name: str, script: str, word: str) -> tuple[str, str]:
        """What a script said of its change: a state, and what belongs to it."""

        def parse(reply: Reply) -> tuple[str, str]:
            parts = split_parts(reply.output, word)
            if not parts:
                raise CommandFailed(f"{name}: it said nothing of what came of it", target=str(self.target))
            return parts[-1]

        answer: Answer[tuple[str, str]] = self._ask(Question(name, script, parse, _CHANGE_SECONDS))[0]
        part = answer.get()
        assert part is not None
        return part


# ---------------------------------------------------------------- questions


def _word() -> str:
    return secrets.token_hex(8)


def _signal_question(processes: Sequence[Identity], number: int) -> Question[tuple[str, ...]]:
    word = _word()

    def parse(reply: Reply) -> tuple[str, ...]:
        return describe_signals(reply.output, word, processes, number)

    return Question("signal", scripts.signal_script(processes, number, word), parse, _CHANGE_SECONDS)


# ---------------------------------------------------------------- changes


_REASONS = {
    "moved": "the folder is another one by now",
    "gone": "its folder is not there any more",
    "other": "there is something of its name that is no file",
    "busy": "somebody else has been editing in this folder for 2 s",
    "file": "its folder is a file",
    "link": "its folder is a link, delete it by hand",
    "unsure": "a process of its number runs, and may be its own: end it first",
    "heard": "it wrote its file within the last minute, and its process cannot be seen from there",
}


def _reason(state: str, said: str, process: Identity | None = None) -> str:
    if state == "alive" and process:
        return f"its process {process.pid} is alive, end it first"
    return _REASONS.get(state) or said.strip()[:300] or "it said nothing"
