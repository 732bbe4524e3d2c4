"""Work that takes long: a command of this package as a process job of this machine. It survives the server.

Its handle is the job id, so that `training-monitor status local HANDLE` and another server know it as well.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from training_monitor.agents.mcp.calls import command_line, options, positional, shown_command
from training_monitor.agents.mcp.documents import StartedDocument, WorkDocument, WorkListDocument
from training_monitor.core.errors import JobExists, SettingsError
from training_monitor.core.models import JobView
from training_monitor.core.read_fence import READ_UNDER, is_fenced
from training_monitor.jobs.jobs import list_jobs, look_at_job
from training_monitor.jobs.process_jobs import PREFIX, start_process_job
from training_monitor.jobs.stopping import stop_job

HERE = "local"
_NAMED = "mcp-"
_HANDLE = f"{PREFIX}{_NAMED}"
_NOTHING_TO_WAIT_FOR = ("--notify", "--heartbeat")  # options that would tell others


def start_command(words: Sequence[str], name: str | None = None) -> StartedDocument:
    """Start a command of this package detached; a name that is taken stands for the work that has it."""
    argv = [*command_line([words[0], "--json", *words[1:]])]
    fence = {READ_UNDER: os.environ[READ_UNDER]} if is_fenced() else {}
    job = f"{_NAMED}{words[0]}-{name or os.urandom(4).hex()}"
    told: StartedDocument = {"handle": f"{PREFIX}{job}", "status": "RUNNING", "command": shown_command(words)}
    try:
        # What it has to say is in its JSON.
        start_process_job(HERE, f"exec {shlex.join(argv)} 2>/dev/null", job, env=fence)
    except JobExists:
        told["status"] = look_at_job(HERE, told["handle"]).status.value
    return told


def start_wait(
    target: str,
    what: str | None = None,
    conditions: Sequence[str] = (),
    timeout: str | None = None,
    more: Sequence[str] = (),
    name: str | None = None,
    namespace: str = "default",
) -> StartedDocument:
    """Begin to wait until a training ends or stalls, or for conditions. Ask `work_status` with the handle.

    It returns at once. The waiting goes on when this server ends, and costs nothing meanwhile.

    Args:
        what: a PID, a log file or pattern, a job or a name. Default: the one training that runs there.
        conditions: finished, failed, stalled, step=N, epoch=N, gpu-idle, checkpoint or log=REGEX: the first that holds
            ends the wait. Default: until it ends or stalls.
        timeout: such as 90s, 15m or 2h. Default: none.
        more: options of `training-monitor wait`, such as --stall-after=1h.
        name: of this wait: the same name again gives the same handle.
    """
    for word in more:
        if word.startswith(_NOTHING_TO_WAIT_FOR):
            raise SettingsError("more", word, "options that only wait")
    given = {"for": list(conditions), "timeout": timeout, "namespace": namespace}
    words = ["wait", *options(**given), *more, *positional(target=target, what=what)]
    return start_command(words, name)


def work_status(handle: str, tail: int = 20) -> WorkDocument:
    """Ask how a wait, a supervised training or other started work is going.

    Args:
        handle: of the tool that started it.
        tail: lines of its output.
    """
    view = look_at_job(HERE, _checked(handle))
    lines = view.log_tail.splitlines()
    return {
        "handle": handle,
        "status": view.status.value,
        "message": view.message,
        "exit_code": view.exit_code,
        "seconds": view.age,
        "result": _last_document(lines),
        "output": "\n".join(lines[-tail:] if tail > 0 else []),
    }


def list_work() -> WorkListDocument:
    """List what was started here and still runs, or has ended: waits, supervised trainings, uploads."""
    found = [view for view in list_jobs(HERE) if view.job_id.startswith(_HANDLE)]
    return {"work": [_listed(view) for view in found]}


def stop_wait(handle: str) -> WorkDocument:
    """End a wait. The training goes on.

    Args:
        handle: of `start_wait`.
    """
    if not handle.startswith(f"{_HANDLE}wait-"):
        raise SettingsError("handle", handle, "the handle of a wait")
    return _stopped(handle)


def stop_work(handle: str, confirm: bool = False) -> StartedDocument:
    """End started work, such as supervising: a supervised training goes on, but nobody restarts it any more.

    Args:
        handle: of the tool that started it.
    """
    command = shown_command(["stop", HERE, _checked(handle)])
    if not confirm:
        would = f"end the work {handle}; what it supervises goes on"
        return {"done": False, "would": would, "command": command, "confirm": "call again with confirm: true"}
    return {"handle": handle, "status": _stopped(handle)["status"], "command": command, "done": True}


def _stopped(handle: str) -> WorkDocument:
    stop_job(HERE, _checked(handle))
    return work_status(handle)


def _checked(handle: str) -> str:
    """Return a handle. Raises SettingsError for the id of any other job."""
    if not handle.startswith(_HANDLE):
        raise SettingsError("handle", handle, f"a handle that begins with {_HANDLE}: see list_work")
    return handle


def _last_document(lines: Iterable[str]) -> dict[str, Any] | None:
    for line in reversed(list(lines)):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _listed(view: JobView) -> dict[str, Any]:
    return {"handle": view.job_id, "status": view.status.value, "message": view.message, "seconds": view.age}
