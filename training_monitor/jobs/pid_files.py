"""Find the process behind a pid, a pid file or a log file, tell whether it runs, and end it with its children.

A pid identifies a process only together with its start time and boot: a pid that was reused after the file was written,
or since the last look, is not the watched process.

Its descendants belong to it, and its session or process group if it leads them. A process that left both and whose
parent is gone cannot be recognized, and is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from training_monitor.core.errors import AccessDenied, CommandFailed, SettingsError
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import Question, Reply
from training_monitor.jobs.process_jobs import hundredths, processes_left
from training_monitor.targets.asking import quote_path
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.replies import parse_fields
from training_monitor.targets.scripts import Quoted, format_call

WRITTEN_SECONDS = 60  # a process that began this long after its pid file was written is another one


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One look; `running` None is unknown. `age` is the seconds since it began, `pids` are its processes.

    `command` is the beginning of its command line; `reason` says why it does not run, or why that is unknown.
    """

    running: bool | None
    identity: Identity | None = None
    age: float | None = None
    pids: tuple[int, ...] = ()
    command: str | None = None
    reason: str | None = None


def process_question(
    pid_file: str | None, log: str | None, known: Identity | None = None, pid: int | None = None
) -> Question[ProcessView]:
    """Ask whether the process behind a pid or pid file runs, or else the one that writes a log (a shell expression)."""
    if pid is not None:
        script = _call("by_pid", known, pid=pid)
    elif pid_file is not None:
        script = _call("by_pid_file", known, written=WRITTEN_SECONDS, file=quote_path(pid_file))
    else:
        script = _call("by_log", known, log=Quoted(log or "''"))

    def parse(reply: Reply) -> ProcessView:
        return _parse_process(parse_fields(reply.output)[0], pid_file, known, reply.output)

    return Question("process", script, parse, limit=15.0)


def _call(function: str, known: Identity | None, **variables: str | int) -> str:
    was = (known.pid, known.start_ticks or "", known.boot_id or "") if known else ("", "", "")
    return format_call("pid_file", function, was_pid=was[0], was_start=was[1], was_boot=was[2], **variables)


def _parse_process(fields: Mapping[str, str], pid_file: str | None, known: Identity | None, text: str) -> ProcessView:
    state, reason = fields.get("state"), fields.get("reason")
    if state == "denied":
        raise AccessDenied(f"{pid_file}: no permission to read it", hint="another user, or the file's permissions")
    if state == "running":
        pids = tuple(int(word) for word in fields.get("pids", "").split() if word.isdigit())
        identity = Identity(int(fields["pid"]), int(fields["start"]), boot_id=fields["boot"])
        age, command = fields.get("age", ""), fields.get("command", "").strip() or None
        return ProcessView(True, identity, float(age) if age.isdigit() else None, pids, command)
    if state == "gone":
        return ProcessView(False, known, reason=reason)
    if state == "unknown":
        where = f"{pid_file}: " if pid_file else ""
        return ProcessView(None, known, reason=f"{where}{reason}")
    raise CommandFailed(f"the process could not be looked at: {text.strip()[-300:] or 'it said nothing'}")


def stop_process_question(identity: Identity, grace: float) -> Question[list[str]]:
    """Send TERM to a process and all that belong to it, KILL after `grace` seconds, and look again.

    The answer lists what not even SIGKILL ended, as `PID STATE`; a process that reused the pid is not touched.
    """

    def parse(reply: Reply) -> list[str]:
        fields, _ = parse_fields(reply.output)
        if fields.get("state") == "own":
            raise SettingsError("pid_file", identity.pid, "a training: this command runs under that process itself")
        if "state" not in fields:
            raise CommandFailed(f"the process could not be stopped: {reply.output.strip()[:300]}")
        return processes_left(reply)

    script = _call("stop", identity, _grace=hundredths(grace))
    return Question("stop", script, parse, limit=grace + 30)
