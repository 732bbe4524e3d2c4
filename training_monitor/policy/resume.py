"""How a job is told where to resume, and what its attempts are called. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from training_monitor.errors import SettingsError

RESUME_VARIABLE = "RESUME_FROM_CHECKPOINT"
_PLACE = "{checkpoint}"
_PROCESS = "process:"
_ATTEMPT = re.compile(r"(.+)-attempt-([0-9]{1,9})", re.DOTALL)
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""  # as sh reads it
_CHARACTER = rf"""(?:{_QUOTED}|[^\s'"\\;|&<>()])"""


def format_resumed_command(command: str, checkpoint: str | None, resume_argument: str | None = None) -> str:
    """The command line that resumes from `checkpoint` (None: starts fresh).

    `{checkpoint}` in the command becomes the quoted path ('' when fresh). Otherwise the value of
    `resume_argument` (say `--resume`) is replaced when the command has it, and appended when it has not.
    Raises SettingsError when it would have to be appended behind a pipe.

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
        raise SettingsError("resume_argument", resume_argument, "{checkpoint} in the command instead: it has a pipe")
    return f"{command.rstrip()} {wanted}"


def _fill(command: str, path: str) -> str:
    """Put `path` in place of {checkpoint}, quoted as the quotes around it ask for."""

    def filled(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("'"):
            return text.replace(_PLACE, path.replace("'", "'\\''"))
        if text.startswith('"'):
            return text.replace(_PLACE, re.sub(r'([\\"$`])', r"\\\1", path))
        return text.replace(_PLACE, shlex.quote(path))

    return re.sub(rf"""{_QUOTED}|[^'"\\]+|.""", filled, command, flags=re.DOTALL)


def format_resumed_env(env: Mapping[str, str], checkpoint: str | None) -> dict[str, str]:
    """`env` with RESUME_FROM_CHECKPOINT set, or without it for a fresh start."""
    resumed = {name: str(value) for name, value in env.items() if name != RESUME_VARIABLE}
    if checkpoint:
        resumed[RESUME_VARIABLE] = checkpoint
    return resumed


def attempt_name(job_name: str, number: int) -> str:
    """What an attempt is called: NAME-attempt-N."""
    return f"{job_name}-attempt-{number}"


def training_name(job_id: str) -> str:
    """The NAME of a job that is called NAME, NAME-attempt-N or process:NAME-attempt-N."""
    name = job_id.removeprefix(_PROCESS)
    found = _ATTEMPT.fullmatch(name)
    return found[1] if found else name


def attempt_number(job_id: str) -> int:
    """The N of NAME-attempt-N; 0 of a job that is called otherwise."""
    found = _ATTEMPT.fullmatch(job_id)
    return int(found[2]) if found else 0


def is_attempt_of(job_id: str, job_name: str) -> bool:
    """Whether a job is called NAME or NAME-attempt-N."""
    return job_name in (job_id, training_name(job_id))


def next_attempt(names: Iterable[str], job_name: str) -> int:
    """The number after the highest NAME-attempt-N there is."""
    return 1 + max((attempt_number(name) for name in names if training_name(name) == job_name), default=0)


def check_job_config(config: Mapping[str, Any]) -> None:
    """A job configuration has an `entrypoint` (Ray) or a `command` (process job). Raises SettingsError."""
    if ("entrypoint" in config) == ("command" in config):
        raise SettingsError(
            "job_config", sorted(config), "either 'entrypoint' (a Ray job) or 'command' (a process job)"
        )
    for key, kind, expected in (
        ("entrypoint", str, "a command line"),
        ("command", (str, list, tuple), "a command line, or a list of words"),
        ("runtime_env", dict, "a dict"),
        ("env", dict, "a dict of texts"),
        ("resume_argument", str, "an option such as --resume"),
        ("working_dir", str, "a folder on the target"),
        ("metadata", dict, "a dict of texts"),
    ):
        if config.get(key) is not None and not isinstance(config[key], kind):
            raise SettingsError(f"job_config[{key!r}]", config[key], expected)
    command = config.get("command")
    if isinstance(command, (list, tuple)) and not all(isinstance(word, str) for word in command):
        raise SettingsError("job_config['command']", command, "a command line, or a list of words")
    if not config.get("entrypoint") and not config.get("command"):
        raise SettingsError("job_config", dict(config), "a command line that is not empty")
    line = config.get("entrypoint") or config["command"]
    command_line = line if isinstance(line, str) else shlex.join(line)
    format_resumed_command(command_line, "checkpoint", config.get("resume_argument"))
