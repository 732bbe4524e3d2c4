"""Process jobs: a plain command, started detached on a target, with its own run directory.

    $TRAINING_MONITOR_JOBS_DIR (default ~/.training_monitor/jobs)/NAME/
        starter      the question that started it: asking it again reports the same start
        command      the job, as a sh script
        pid          process id, its start time in clock ticks, boot id: together its identity
        log          stdout and stderr
        exit_code    exit code and time, written at the end (into reserved space: the disk may be full by then)
        stopped      who stopped it, if anyone
        *.new        unfinished files, and the space reserved for them: removed after the job has ended

The directory is made with mkdir, which can succeed only once: starting a name twice adopts the first. All processes of
a job carry TRAINING_MONITOR_JOB in their environment, so that even those that left the session are found when it is
stopped; `find_members` in job.sh decides which processes are the job's own. The scripts print `key=value` lines, then
`log`, then the end of the log unchanged.

A hold is a person's request that a job is not restarted, kept on the target beside the run directories. It is needed
because a job that has ended can no longer be stopped, and Ray does not record who stopped one: every supervisor,
wherever it runs, checks the hold before it starts the next attempt.

Other processes are found by a pid, a pid file or a log file. A pid identifies a process only together with its start
time and boot: a process that began after the file was written, or since the last look, is not the watched process. Its
descendants belong to it, and its session or process group if it leads them. A process that left both and whose parent
is gone cannot be recognized, and is left alone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from training_monitor.core.errors import (
    AccessDenied,
    CommandFailed,
    JobExists,
    ParseError,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.masking import keep_secret, redact, secrets_of
from training_monitor.core.models import SUPERVISOR, TIME_LIMIT, JobStatus, JobView, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.core.units import seconds_since
from training_monitor.jobs.kinds import PROCESS
from training_monitor.logs.training_log import parse_progress
from training_monitor.targets.asking import Site, quote_path, read_text
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.replies import parse_fields, read_number, read_whole
from training_monitor.targets.scripts import Quoted, format_call
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

PREFIX = PROCESS
LOG_BYTES = 65536
START_SECONDS = 30.0
STOP_GRACE_SECONDS = 10.0
MOST_ODD = 5  # entries of the jobs folder that are no jobs: so many are named
_NO_NAME = "not a job name"
WRITTEN_SECONDS = 2  # how exactly it is known whether a process began before its pid file was written
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_STOPPERS = {SUPERVISOR: "its supervisor, to restart it", TIME_LIMIT: "its time limit"}


def parse_process_job(text: str, job_id: str) -> JobView | None:
    """Parse one look at a process job; None if the target has no such job. Raises ParseError, TargetUnreachable."""
    return _read_job(*parse_fields(text), job_id)


def _read_job(fields: Mapping[str, str], log: str, job_id: str) -> JobView | None:
    state = fields.get("state")
    if state == "missing":
        return None
    if state == "hidden":
        raise TargetUnreachable(
            f"processes of {job_id} are running, but its run directory is missing",
            hint="check that the file system of TRAINING_MONITOR_JOBS_DIR is mounted",
        )
    if state == "closed":
        raise AccessDenied(
            f"{job_id}: no permission to read its run directory",
            hint="run this as another user, or change the folder's permissions",
        )
    status = _status(fields)
    if status is None:
        raise ParseError("no state in the reply", source="process job", text=str(fields))
    now, log_time, started = (read_number(fields.get(name)) for name in ("now", "log_time", "started"))
    return JobView(
        job_id=job_id,
        status=status,
        message=_message(fields, status),
        exit_code=read_whole(fields.get("exit_code")),
        progress=parse_progress(log),
        log_size=read_whole(fields.get("log_size")),
        log_age=seconds_since(log_time, now),
        log_tail=redact(log),
        started_at=started,
        survivors=read_whole(fields.get("members")) or 0,
        stopped_by=fields["stopped_by"] if status is JobStatus.STOPPED else None,
        age=seconds_since(started, now),
    )


def _status(fields: Mapping[str, str]) -> JobStatus | None:
    state = fields.get("state")
    if state == "running":
        return JobStatus.RUNNING
    if state == "starting" and "stopped_by" in fields and fields.get("members") == "0":
        return JobStatus.STOPPED  # job_program.sh runs nothing any more
    if state == "starting":
        now, started = read_number(fields.get("now")), read_number(fields.get("started"))
        if now is None or started is None or now - started < START_SECONDS:
            return JobStatus.PENDING
        return JobStatus.FAILED
    if state in ("exited", "gone") and "stopped_by" in fields:  # written only while it ran
        return JobStatus.STOPPED
    if state in ("exited", "gone"):
        return JobStatus.SUCCEEDED if fields.get("exit_code") == "0" else JobStatus.FAILED
    return None


def _message(fields: Mapping[str, str], status: JobStatus) -> str | None:
    if status is JobStatus.STOPPED:
        return f"stopped by {_STOPPERS.get(fields['stopped_by'], fields['stopped_by'])}"
    if fields.get("state") == "gone":
        return "its process ended without an exit code: it was killed (SIGKILL, out of memory), or the machine rebooted"
    if fields.get("state") == "starting" and status is JobStatus.FAILED:
        return f"it never started: no process after {START_SECONDS:g} s"
    code, left = fields.get("exit_code"), read_whole(fields.get("members"))
    if code == "0" and left:
        return f"exit code 0, but {left} of its processes are still running"
    return f"exit code {code}{_signal(code)}" if code is not None else None


def _signal(code: str) -> str:
    names = {"137": "SIGKILL", "139": "SIGSEGV", "134": "SIGABRT", "143": "SIGTERM", "130": "SIGINT", "129": "SIGHUP"}
    return f" ({names[code]})" if code in names else ""


def process_name(job_id: str) -> str:
    """Return the name of the run directory of a `process:NAME` job. Raises SettingsError."""
    name = job_id.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise SettingsError("job", job_id, "process:NAME, where NAME consists of letters, digits, '.', '_' and '-'")
    return name


def is_log_of(path: str, job_id: str) -> bool:
    """Return whether a file is the log of a process job."""
    return job_id.startswith(PREFIX) and path.endswith(f"/{job_id.removeprefix(PREFIX)}/log")


def log_expression(job_id: str) -> str:
    """Return the log file of a process job as a shell expression."""
    return f'"${{TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}}"/{process_name(job_id)}/log'


def look_question(job_id: str) -> Question[JobView | None]:
    """Ask for the status, exit code and end of the log of a process job; None if there is no such job."""

    def parse(reply: Reply) -> JobView | None:
        view = parse_process_job(reply.output, job_id)
        if view and view.log_size and not view.log_tail:
            return replace(view, log_known=False)
        return view

    return Question("job", _call("job", "look", job_id, _bytes=LOG_BYTES), parse)


def states_question(job_ids: Sequence[str]) -> Question[list[JobView | None]]:
    """Ask for the same of many jobs, without their logs, in one pass over the processes of the target."""
    names = [process_name(job_id) for job_id in job_ids]

    def parse(reply: Reply) -> list[JobView | None]:
        blocks = [parse_fields(block)[0] for block in f"\n{reply.output}".split("\njob=")[1:]]
        if len(blocks) != len(names) or not reply.output.endswith("end\n"):
            raise ParseError("the list of jobs is incomplete", source="process jobs", text=reply.output)
        members = Counter(re.findall(r"^member=(.*)$", reply.output, re.MULTILINE))
        files = {name: more for name, *more in re.findall(r"^file=(\S+) (\d+) (\d+)$", reply.output, re.MULTILINE)}
        views = list[JobView | None]()
        for job_id, name, fields in zip(job_ids, names, blocks):
            fields |= {"now": blocks[-1]["now"], "members": str(members[name])}
            fields["started"] = files.get(f"{name}/command", files.get(name, [""]))[0]
            fields |= dict(zip(("log_time", "log_size"), files.get(f"{name}/log", ())))
            if fields["state"] == "missing" and members[name]:
                fields["state"] = "hidden"
            view = _read_job(fields, "", job_id)
            views.append(view and replace(view, log_known=False))
        return views

    return Question("jobs", format_call("job", "look_at_all", *names), parse)


def no_state(reply: Reply, what: str, source: str) -> TrainingMonitorError:
    """Return the error for an answer without a state: a failure if the script failed, else unknown."""
    if reply.exit_code != 0:
        return CommandFailed(f"{what}: {reply.output.strip()[:300] or 'it printed nothing'}")
    return ParseError("the reply has no state", source=source, text=reply.output[-2000:])


def start_question(
    target: Target, job_id: str, command: str, env: Mapping[str, str], config: Mapping[str, Any]
) -> Question[str]:
    """Start the job unless its name is taken; the answer is `started`, also when repeated, or `exists`.

    Where a target has other users, a jobs folder to which they could write is refused: they could have made the job.
    Rented machines and pods have none, and volumes there are often open to all.
    """
    if bad := [name for name in env if not _VARIABLE.fullmatch(name)]:
        raise SettingsError("env", bad[0], "a variable name")
    keep_secret(*secrets_of(env))
    script = _call(
        "job_start",
        "start",
        job_id,
        _starter=os.urandom(8).hex(),
        _command=command,
        _exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items()),
        _shared="yes" if target.has_other_users else "",
        # ignores CDPATH, and `-` is not the previous folder
        _folder=os.path.join(".", config.get("working_dir") or ""),
        _program=format_call("job_program", "run_command"),
    )

    def parse(reply: Reply) -> str:
        fields, _ = parse_fields(reply.output)
        if said := fields.get("error"):
            raise CommandFailed(said)
        if why := fields.get("open"):
            what = f"the jobs folder is not safe, {why}"
            raise CommandFailed(
                what, hint="run chmod go-w on that folder, or set TRAINING_MONITOR_JOBS_DIR to a folder of your own"
            )
        if "state" not in fields:
            raise no_state(reply, "the job could not be started", "start")
        return fields["state"]

    return Question("start", script, parse, limit=30.0)


def stop_question(job_id: str, by: str, grace: float) -> Question[list[str]]:
    """Send TERM to all of the job, KILL after `grace` seconds, and look again: the answer lists what is left."""

    def parse(reply: Reply) -> list[str]:
        fields, _ = parse_fields(reply.output)
        if "state" not in fields:
            raise no_state(reply, "the job could not be stopped", "stop")
        return processes_left(reply)

    script = _call("job_stop", "stop", job_id, _by=by, _grace=hundredths(grace))
    return Question("stop", script, parse, limit=grace + 30)


def processes_left(reply: Reply) -> list[str]:
    """Return what not even SIGKILL ended, as `PID STATE`, by the lines of `stopping.sh` before the log."""
    return re.findall(r"^left=(\d+ \w)$", reply.output.partition("\nlog\n")[0], re.MULTILINE)


def not_ended(what: str, left: Iterable[str], site: Site) -> CommandFailed:
    """Return the error for processes that not even SIGKILL ended."""
    return CommandFailed(
        f"{what} {', '.join(f'pid {each}' for each in left)}",
        target=str(site),
        hint="a process in state D is waiting for a disk or driver: check dmesg on its machine",
    )


def hundredths(grace: float) -> int:
    """Return seconds of grace in the unit of `stopping.sh`."""
    return max(1, round(grace * 100))


def wait_script(job_id: str) -> str:
    """Return a script that prints `ended` when the job is gone, `waiting` every 10 s, and exits after an hour."""
    return _call("job", "wait_for_end", job_id)


def members_script(job_id: str) -> str:
    """Return a script that prints the pids of all processes of the job."""
    return _call("job", "list_members", job_id)


def config_question(job_id: str) -> None:
    """Return None: the environment of a job is not kept."""


def drain_command(nodes: Sequence[str]) -> str:
    """Return "": nothing else places jobs there."""
    return ""


def target_of(site: Site, job_id: str) -> None:
    """Return None: its processes are where its log is."""


def of_processes(job_id: str, questions: Sequence[Question[Any]]) -> list[Question[Any]]:
    """Return the questions: its processes are where its log is."""
    return list(questions)


def _call(subject: str, function: str, job_id: str, **variables: str | int) -> str:
    return format_call(subject, function, _name=process_name(job_id), **variables)


class JobNames(list[str]):
    """The names of process jobs, newest first; `odd` says what else their folder holds, escaped: no jobs of ours."""

    def __init__(self, names: Iterable[str] = (), odd: Iterable[str] = ()) -> None:
        super().__init__(dict.fromkeys(names))
        self.odd = tuple(odd)


def jobs_question() -> Question[JobNames]:
    """Ask for the names of all process jobs of a target, newest first; none if no job was ever started."""

    def parse(reply: Reply) -> JobNames:
        if reply.exit_code != 0:
            raise AccessDenied(f"process jobs cannot be listed: {reply.output.strip()[-300:]}")
        names, odd = list[str](), list[str]()
        for line in filter(None, reply.output.split("\n")):
            if _NAME.fullmatch(line):
                names.append(line)
            elif len(odd) <= MOST_ODD:
                said = line.removeprefix("? ") if line.startswith("? ") else f"{_NO_NAME}: {line}"
                odd.append(ascii(said[:200])[1:-1])
        return JobNames(names, odd)

    return Question("jobs", format_call("jobs", "list", most_odd=MOST_ODD), parse)


def owner_question(pid: int) -> Question[str]:
    """Ask for the ID of the process job to which a process belongs by its mark; "" without one."""
    return Question(
        "owner", format_call("jobs", "show_job_of", str(pid), most_odd=0), lambda reply: reply.output.strip()
    )


def start_process_job(
    target: str | Target,
    command: str | Sequence[str],
    name: str,
    env: Mapping[str, str] | None = None,
    working_dir: str | None = None,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> str:
    """Start a detached command on a target. The command keeps running when this process ends or the connection is lost.

    Args:
        command: a shell command line, or a list of words, which is quoted automatically.
        name: letters, digits, `.`, `_`, `-`. Each name can be used only once.
        env: environment variables to add on the target. These variables are never written to a file or to argv.
        working_dir: a folder on the target; default: the folder in which a shell starts there (for `local`, the current
            folder).

    Returns:
        The job ID, `process:NAME`.

    Raises:
        JobExists: the name is taken.
        CommandError: the target could not be queried, or could not start the command.
    """
    job_id = PREFIX + process_name(name)
    line = command if isinstance(command, str) else shlex.join(command)
    site = Site.of(target, namespace, transport)
    question = start_question(site.target, job_id, line, env or {}, {"working_dir": working_dir})
    if site.ask_one(question) == "exists":
        raise JobExists(
            f"{target}: the job {job_id} already exists", hint="use another name, or stop that job and reuse its name"
        )
    return job_id


def hold_question(job_id: str, by: str) -> Question[str]:
    """Record that `by` wants no further attempt of this job."""
    return Question("hold", format_call("holds", "hold", key=hold_key(job_id), by=by, job=job_id), read_text)


def unhold_question(job_ids: Iterable[str]) -> Question[str]:
    """Remove the holds of jobs that are gone."""
    return Question("unhold", format_call("holds", "unhold", keys=" ".join(map(hold_key, job_ids))), read_text)


def held_by(site: Site, job_id: str) -> str | None:
    """Return who put this job on hold; None without a hold. Raises CommandError."""
    question = Question("held", format_call("holds", "show", key=hold_key(job_id)), read_text)
    return site.ask_one(question).strip() or None


def hold_key(job_id: str) -> str:
    """Return the name of the file that holds a job."""
    import hashlib

    return hashlib.sha256(job_id.encode()).hexdigest()[:32]


# ---------------------------------------------------------------- other processes


class ProcessView(NamedTuple):
    """One look; `running` None means unknown. `age` is the seconds since it began, `pids` are its processes.

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
        script = _call_pid_file("by_pid", known, pid=pid)
    elif pid_file is not None:
        script = _call_pid_file("by_pid_file", known, written=WRITTEN_SECONDS, file=quote_path(pid_file))
    else:
        script = _call_pid_file("by_log", known, log=Quoted(log or "''"))

    def parse(reply: Reply) -> ProcessView:
        return _parse_process(parse_fields(reply.output)[0], pid_file, known, reply.output)

    return Question("process", script, parse, limit=15.0)


def _call_pid_file(function: str, known: Identity | None, **variables: str | int) -> str:
    was = (known.pid, known.start_ticks or "", known.boot_id or "") if known else ("", "", "")
    return format_call("pid_file", function, was_pid=was[0], was_start=was[1], was_boot=was[2], **variables)


def _parse_process(fields: Mapping[str, str], pid_file: str | None, known: Identity | None, text: str) -> ProcessView:
    state, reason = fields.get("state"), fields.get("reason")
    if state == "denied":
        raise AccessDenied(
            f"{pid_file}: no permission to read it", hint="run this as another user, or change the file's permissions"
        )
    if state == "hidden":
        hint = "run this as the user who runs it: the target hides other users' processes, or has no Linux /proc"
        raise AccessDenied(f"{reason}", hint=hint)
    if state == "running":
        pids = tuple(int(word) for word in fields.get("pids", "").split() if word.isdigit())
        identity = Identity(int(fields["pid"]), int(fields["start"]), boot_id=fields["boot"])
        age, command = fields.get("age", ""), redact(fields.get("command", "").strip()) or None
        return ProcessView(True, identity, float(age) if age.isdigit() else None, pids, command)
    if state == "gone":
        return ProcessView(False, known, reason=reason)
    if state == "unknown":
        where = f"{pid_file}: " if pid_file else ""
        return ProcessView(None, known, reason=f"{where}{reason}")
    raise CommandFailed(f"the process could not be inspected: {text.strip()[-300:] or 'it printed nothing'}")


def stop_process_question(identity: Identity, grace: float, pid_file: str | None = None) -> Question[list[str]]:
    """Send TERM to a process and all that belong to it, KILL after `grace` seconds, and look again.

    The answer lists what not even SIGKILL ended, as `PID STATE`; a process that reused the pid is not touched. A
    `pid_file` must belong to the user of the process, or to root.
    """

    def parse(reply: Reply) -> list[str]:
        fields, _ = parse_fields(reply.output)
        if fields.get("state") == "own":
            raise SettingsError(
                "pid_file", identity.pid, "the PID of a training; that process is a parent of this command"
            )
        if fields.get("state") == "unowned":
            raise SettingsError("pid_file", pid_file, f"a file owned by root or by the user of process {identity.pid}")
        if "state" not in fields:
            raise no_state(reply, "the process could not be stopped", "stop")
        return processes_left(reply)

    file = quote_path(pid_file) if pid_file else ""
    script = _call_pid_file("stop", identity, owned=file, _grace=hundredths(grace))
    return Question("stop", script, parse, limit=grace + 30)
