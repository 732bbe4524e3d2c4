"""Name the attempts of a training, pass each the checkpoint to resume from, and remove the leftovers of former ones.

The run directories of the newest former attempts are kept. An older one is removed only if we made it, its job has
ended, it is not on hold, and it contains nothing but what we wrote. It is renamed first, so that no look sees half of
it; one that is kept loses its temporary files. Also removed are upload tries that ended long ago, holds of process
jobs whose run directory has been gone for as long, and temporary files of killed writers. Old holds of Ray jobs are
only reported, because only Ray knows which jobs are gone. Ray's own records of its jobs are left alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from training_monitor.core.errors import ParseError, SettingsError
from training_monitor.core.masking import redact_named
from training_monitor.core.models import Question, Reply
from training_monitor.core.regex import regex
from training_monitor.jobs.kinds import name_in
from training_monitor.jobs.process_jobs import PREFIX, hold_key
from training_monitor.targets.scripts import format_call

OLD_SECONDS = 30 * 86400
TEMPORARY_SECONDS = 3600  # after which an unfinished file belongs to a killed writer
MOST_REMOVED = 50  # at once: the rest is removed with the next attempt
AVOID_VARIABLE = "TRAINING_MONITOR_AVOID_NODES"
RESUME_VARIABLE = "RESUME_FROM_CHECKPOINT"
_PLACE = "{checkpoint}"
_RUN = ("entrypoint", "command", "job")  # of a job configuration: of Ray, of a process, of a scheduler's job
_ATTEMPT = regex(r"(.+)-attempt-([0-9]{1,9})", re.DOTALL)
_SIDE_WORK = regex(r"(?:upload|samples)-[0-9a-f]{16}-[0-9]{1,9}")
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""  # as sh parses it
_CHARACTER = rf"""(?:{_QUOTED}|[^\s'"\\;|&<>()])"""


def format_resumed_command(command: str, checkpoint: str | None, resume_argument: str | None = None) -> str:
    """Return the command line that resumes from `checkpoint` (None: starts fresh).

    `{checkpoint}` in the command is replaced by the quoted path ('' when fresh). Otherwise the value of
    `resume_argument` (say `--resume`) is replaced if the command has it, and appended if not. Raises SettingsError if
    it would have to be appended after a pipe.

    >>> format_resumed_command("python train.py --resume old", "/c/step 5", "--resume")
    "python train.py --resume '/c/step 5'"
    """
    if _PLACE in command:
        return _fill(command, checkpoint or "")
    if not resume_argument:
        return command
    name = re.escape(resume_argument)
    if resume_argument.endswith("="):  # Hydra style: trainer.resume_from_path=
        given, wanted = rf"{name}{_CHARACTER}*", f"{resume_argument}{shlex.quote(checkpoint or '')}"
    else:
        value = rf"={_CHARACTER}*|(?:[ \t]|\\\n)+(?!-|\d+[<>]){_CHARACTER}+|(?![^\s;|&<>()])"
        given, wanted = rf"{name}(?:{value})", f"{resume_argument} {shlex.quote(checkpoint or '')}"
    words = re.compile(rf"(?P<given>{given})|{_CHARACTER}+|.", re.DOTALL)
    new = "" if checkpoint is None else wanted
    resumed = words.sub(lambda found: new if found["given"] else found[0], command)
    if checkpoint is None:
        return resumed.rstrip()
    if any(found["given"] for found in words.finditer(command)):
        return resumed
    if re.search(r"(?<!\|)\|(?!\|)", re.sub(_QUOTED, "", command, flags=re.DOTALL)):
        raise SettingsError(
            "resume_argument",
            resume_argument,
            "the placeholder {checkpoint} in the command instead, because the command contains a pipe",
        )
    return f"{command.rstrip()} {wanted}"


def _fill(command: str, path: str) -> str:
    """Replace {checkpoint} by `path`, quoted to suit the quotes around it."""

    def filled(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("'"):
            return text.replace(_PLACE, path.replace("'", "'\\''"))
        if text.startswith('"'):
            return text.replace(_PLACE, re.sub(r'([\\"$`])', r"\\\1", path))
        return text.replace(_PLACE, shlex.quote(path))

    return re.sub(rf"""{_QUOTED}|[^'"\\]+|.""", filled, command, flags=re.DOTALL)


def format_resumed_env(env: Mapping[str, str], checkpoint: str | None) -> dict[str, str]:
    """Return `env` with RESUME_FROM_CHECKPOINT set, or without it for a fresh start."""
    resumed = {name: str(value) for name, value in env.items() if name != RESUME_VARIABLE}
    if checkpoint:
        resumed[RESUME_VARIABLE] = checkpoint
    return resumed


def variables_of(config: Mapping[str, Any] | None) -> Mapping[str, str | None]:
    """Return the variables that a job configuration sets: `env` of a command, `env_vars` of a Ray job."""
    return (config or {}).get("env") or ((config or {}).get("runtime_env") or {}).get("env_vars") or {}


def with_variables(config: Mapping[str, Any] | None, variables: Mapping[str, str | None]) -> Mapping[str, Any] | None:
    """Return a job configuration with other variables."""
    if not config:
        return config
    if "entrypoint" in config:
        return {**config, "runtime_env": {**(config.get("runtime_env") or {}), "env_vars": variables}}
    return {**config, "env": variables}


def is_whole(config: Mapping[str, Any] | None) -> bool:
    """Return whether a job configuration says what is run; others only add to that of an existing job."""
    return any(key in (config or {}) for key in _RUN)


def without_secrets(config: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a job configuration with None for the values of variables that may be secret."""
    given = {name: str(value) for name, value in variables_of(config).items() if value is not None}
    secret = {name for name, value in given.items() if redact_named(name, value) != value}
    if not secret:
        return config
    kept = {name: None if name in secret else value for name, value in variables_of(config).items()}
    return with_variables(config, kept)


def avoiding(config: Mapping[str, Any], nodes: Sequence[str]) -> Mapping[str, Any]:
    """Return a job configuration that hands these nodes to the job, with commas between them."""
    if not nodes:
        return config
    return with_variables(config, {**variables_of(config), AVOID_VARIABLE: ",".join(nodes)}) or config


def is_side_work(job_id: str) -> bool:
    """Return whether a process job is a try of an upload or of generated samples (uploads/detached.py)."""
    return _SIDE_WORK.fullmatch(name_in(job_id)) is not None


def attempt_name(job_name: str, number: int) -> str:
    """Return the name of an attempt: NAME-attempt-N."""
    return f"{job_name}-attempt-{number}"


def training_name(job_id: str) -> str:
    """Return the NAME of a job called NAME, NAME-attempt-N or process:NAME-attempt-N."""
    name = name_in(job_id)
    found = _ATTEMPT.fullmatch(name)
    return found[1] if found else name


def attempt_number(job_id: str) -> int:
    """Return the N of NAME-attempt-N; 0 for other names."""
    found = _ATTEMPT.fullmatch(job_id)
    return int(found[2]) if found else 0


def is_attempt_of(job_id: str, job_name: str) -> bool:
    """Whether a job is called NAME or NAME-attempt-N."""
    return job_name in (job_id, training_name(job_id))


def next_attempt(names: Iterable[str], job_name: str) -> int:
    """Return the number after the highest existing NAME-attempt-N."""
    return 1 + max((attempt_number(name) for name in names if training_name(name) == job_name), default=0)


def process_job_called(names: Sequence[str], name: str) -> str | None:
    """Return the process job that a name means: the latest attempt, or the job of that name."""
    last = attempt_name(name, next_attempt(names, name) - 1)
    return next((PREFIX + job for job in (last, name) if job in names), None)


def check_job_config(config: Mapping[str, Any]) -> None:
    """Check that a job configuration says what is run: `entrypoint` (Ray), `command` (process job), or `job`.

    Raises SettingsError.
    """
    if sum(key in config for key in _RUN) != 1:
        raise SettingsError(
            "job_config", sorted(config), "either 'entrypoint' (a Ray job) or 'command' (a process job)"
        )
    for key, kind, expected in (
        ("entrypoint", str, "a command line"),
        ("command", (str, list, tuple), "a command line, or a list of words"),
        ("runtime_env", dict, "a dict"),
        ("job", str, "the id of a scheduler's job"),
        ("requeue", bool, "True or False"),
        ("env", dict, "a dict of strings"),
        ("resume_argument", str, "an option such as --resume"),
        ("working_dir", str, "a folder on the target"),
        ("metadata", dict, "a dict of strings"),
    ):
        if config.get(key) is not None and not isinstance(config[key], kind):
            raise SettingsError(f"job_config[{key!r}]", config[key], expected)
    command = config.get("command")
    if isinstance(command, (list, tuple)) and not all(isinstance(word, str) for word in command):
        raise SettingsError("job_config['command']", command, "a command line, or a list of words")
    line = config.get("entrypoint") or config.get("command") or config.get("arguments") or ""
    if not line and "job" not in config:
        raise SettingsError("job_config", dict(config), "a non-empty command line")
    command_line = line if isinstance(line, str) else shlex.join(line)
    format_resumed_command(command_line, "checkpoint", config.get("resume_argument"))


class Removed(NamedTuple):
    """Run directories by name: removed, and left because they contain something else.

    `held`: Ray jobs with an old hold.
    """

    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


def remove_question(job_id: str, keep: int) -> Question[Removed]:
    """Remove what is no longer needed besides attempt `job_id`; of the attempts before it, the newest `keep` stay.

    Only NAME-attempt-N of a process job has run directories of former attempts.
    """
    number = attempt_number(job_id) if job_id.startswith(PREFIX) else 0
    name = training_name(job_id) if number else "none"
    script = format_call(
        "former_attempts",
        "remove_all",
        _name=name,
        number=number,
        keep=keep,
        most=MOST_REMOVED,
        old=OLD_SECONDS,
        short=TEMPORARY_SECONDS,
    )

    def parse(reply: Reply) -> Removed:
        lines = reply.output.splitlines()
        if "state=done" not in lines:
            raise ParseError(
                "the removal of run directories did not finish", source="former attempts", text=reply.output
            )
        removed, left, held = (
            tuple(line.removeprefix(key) for line in lines if line.startswith(key))
            for key in ("removed=", "left=", "held=")
        )
        holds = (each.partition(" ") for each in held)
        return Removed(removed, left, tuple(job for key, _, job in holds if key == hold_key(job)))

    return Question("former", script, parse, limit=60.0)
