"""Jobs of Slurm that are supervised: looked at, ended and submitted again where Slurm's commands are.

    ${TRAINING_MONITOR_JOBS_DIR:-~/.training_monitor/jobs}/.slurm/NAME/
        script       the batch script of a job that was adopted, as the controller had it
        job          the last line of `scontrol show job`
        number       the job that is this attempt, written once that was released
        offsets      how long its files were before it began: it may append to those of the attempt before
        stopped      who stopped it, if a supervisor did
        former_log   the end of the log of the attempt before, if the same job was requeued

An id is `slurm:123`, `slurm:123_4` for a task of an array, or `slurm:JOBNAME` for the newest job of that name. One that
we submit is `slurm:NAME-attempt-N`: its comment says so, by which a submission whose reply was lost is found again. It
is submitted held: if two were submitted, the first one is released, and the other one cancelled. It depends on the end
of all jobs of its training, so that two never run at once.

Slurm does not record who cancelled a job: one that no supervisor stopped was cancelled by a person.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from training_monitor.core.errors import (
    CommandFailed,
    ParseError,
    SettingsError,
    TargetEnded,
    TargetUnreachable,
    TargetWaits,
    last_lines,
)
from training_monitor.core.masking import keep_secret, redact, secrets_of
from training_monitor.core.models import Answer, JobStatus, JobView, Progress, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.core.results import PodState
from training_monitor.core.units import seconds_since
from training_monitor.jobs.attempts import AVOID_VARIABLE
from training_monitor.jobs.kinds import name_in
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.training_log import parse_progress
from training_monitor.targets.asking import Site
from training_monitor.targets.kinds.slurm import (
    NODE,
    OVER,
    RUNNING,
    STEP_SECONDS,
    SlurmJob,
    SlurmTarget,
    read_former,
    read_job,
    refused,
    settled,
    standing_of,
)
from training_monitor.targets.pods import ENDED, is_stuck
from training_monitor.targets.replies import parse_fields, read_number, read_whole
from training_monitor.targets.scripts import Quoted, format_call
from training_monitor.targets.target import Target

PREFIX = "slurm:"
LOG_BYTES = 65536
ANSWER_SECONDS = 30.0
_NAME = regex(r"[A-Za-z0-9][\w.+-]{0,199}", re.ASCII)
_MARK = regex(r" Comment=training_monitor:(\S+)")
_ENDED = regex(r"^slurmstepd[^\n]{0,100}: \*\*\* (?:JOB|STEP) \S+ ON [^\n]*\n?", re.MULTILINE)
_CANCELLED = regex(r"^slurmstepd[^\n]{0,100}: \*\*\* JOB \S+ ON \S+ CANCELLED AT \S+ \*\*\*", re.MULTILINE)
_STATUS = {"Pending": JobStatus.PENDING, "Succeeded": JobStatus.SUCCEEDED, "Stopped": JobStatus.STOPPED}
_STATUS |= {"Failed": JobStatus.FAILED, "Running": JobStatus.RUNNING, "Suspended": JobStatus.RUNNING}
_OPTIONS = {  # of sbatch, by what `scontrol show job` calls them
    "Partition": "--partition",
    "Account": "--account",
    "QOS": "--qos",
    "Reservation": "--reservation",
    "TimeLimit": "--time",
    "NumNodes": "--nodes",
    "NumTasks": "--ntasks",
    "CPUs/Task": "--cpus-per-task",
    "MinMemoryNode": "--mem",
    "MinMemoryCPU": "--mem-per-cpu",
    "TresPerNode": "--gres",
    "TresPerJob": "--gpus",
    "TresPerTask": "--gpus-per-task",
    "CpusPerTres": "--cpus-per-gpu",
    "MemPerTres": "--mem-per-gpu",
    "Features": "--constraint",
    "Licenses": "--licenses",
    "Nice": "--nice",
    "ReqNodeList": "--nodelist",
    "ExcNodeList": "--exclude",
    "ArrayTaskId": "--array",
    "MailUser": "--mail-user",
    "MailType": "--mail-type",
}
_WORDS = {
    ("OverSubscribe", "NO"): "--exclusive",
    ("OverSubscribe", "USER"): "--exclusive=user",
    ("OverSubscribe", "YES"): "--oversubscribe",
    ("Requeue", "1"): "--requeue",
    ("Requeue", "0"): "--no-requeue",
}
_UNSET = ("", "0", "(null)", "N/A", "None", "Partition_Limit")
_TRES = regex(r"gres[:/]")
_PER_GPU = {"MinMemory": "MemPerTres", "CPUs/Task": "CpusPerTres"}  # of what each GPU was to have, the sum
_GPUS = regex(r"(?:^|,)(?:gres[:/])?gpu[:=]([^,]+)")


def look_question(job_id: str) -> Question[JobView | None]:
    """Ask for the status and the end of the log of a job; None if it was never submitted."""

    def parse(reply: Reply) -> JobView | None:
        return _read(*parse_fields(reply.output), job_id)

    return Question("job", _call("look", job_id, _bytes=LOG_BYTES), parse, limit=ANSWER_SECONDS)


def states_question(job_ids: Sequence[str]) -> Question[list[JobView | None]]:
    """Ask for the same of many jobs, without their logs."""

    def parse(reply: Reply) -> list[JobView | None]:
        blocks = f"\n{reply.output}".split("\nname=")[1:]
        if len(blocks) != len(job_ids) or not reply.output.endswith("end\n"):
            raise ParseError("the list of jobs is incomplete", source="Slurm jobs", text=reply.output)
        views = (_read(parse_fields(block)[0], "", job_id) for block, job_id in zip(blocks, job_ids))
        return [view and replace(view, log_known=False) for view in views]

    script = _format("look_at_all", *map(_name, job_ids))
    return Question("jobs", script, parse, limit=ANSWER_SECONDS)


def jobs_question() -> Question[list[str]]:
    """Ask for the names of all attempts that were submitted from there, and of the jobs that were adopted."""

    def parse(reply: Reply) -> list[str]:
        lines = reply.output.splitlines()
        _see_answer(parse_fields(reply.output)[0])
        if "|end" not in lines:
            raise ParseError("the reply is truncated", source="Slurm jobs", text=reply.output)
        return list(filter(_NAME.fullmatch, lines))

    return Question("jobs", format_call("slurm_jobs", "list_jobs"), parse, limit=ANSWER_SECONDS)


def config_question(job_id: str) -> Question[dict[str, Any] | None]:
    """Keep the batch script of a job, and ask for the options by which it is submitted again."""

    def parse(reply: Reply) -> dict[str, Any] | None:
        fields, _ = parse_fields(reply.output)
        _see_answer(fields)
        if said := fields.get("error"):
            raise CommandFailed(f"{job_id}: {said}")
        return config_of(fields["job"]) if "job" in fields else None

    return Question("config", _call("keep", job_id), parse, limit=ANSWER_SECONDS)


def config_of(line: str) -> dict[str, Any]:
    """Return the configuration by which a job is submitted again, from its line of `scontrol show job`.

    Raises:
        SettingsError: it has no batch script, or is a part of a heterogeneous job.
    """
    job = read_job(line)
    head, _, rest = line.partition(" Command=")
    told: dict[str, str] = dict(re.findall(r" ([A-Z][\w/:]*)=(\S*)", head))
    told |= dict(re.findall(r" (TresPer\w+|(?:Cpus|Mem)PerTres|Mail\w+)=(\S+)", rest))
    if job is None or told.get("BatchFlag") != "1" or "HetJobId" in told:
        raise SettingsError("job", job and job.number, "a job with one batch script, submitted with sbatch")
    options = [f"--job-name={job.name}"]
    for key, option in _OPTIONS.items():
        value = told.get(key, "")
        if key == "TresPerNode":
            value = _TRES.sub("", value)
        elif "PerTres" in key or key.startswith("TresPer"):  # which may be cpu=8 alone: that is said by CPUs/Task too
            value = ",".join(_GPUS.findall(value)).replace("=", ":")
        elif _PER_GPU.get(key[:9]) in told:
            value = ""
        if value not in _UNSET and (key, value) != ("CPUs/Task", "1"):
            options.append(f"{option}={value}")
    tasks_a_node = told.get("NtasksPerN:B:S:C", "0").partition(":")[0]
    options += [] if tasks_a_node == "0" else [f"--ntasks-per-node={tasks_a_node}"]
    options += [word for (key, value), word in _WORDS.items() if told.get(key) == value]
    folder = rest.partition(" WorkDir=")[2]
    folder = re.split(r" +(?:\w+)=", folder)[0]
    out, err = job.outputs[0] if job.outputs else "", job.outputs[-1] if job.outputs else ""
    files = [("--output", out), *([("--error", err)] if err != out else [])]
    options += [f"{option}={_pattern(path, job)}" for option, path in files if path]
    options += ["--open-mode=append"] if out and "%" not in _pattern(out, job).replace("%%", "") else []
    command = re.split(" (?:SubmitLine|WorkDir)=", rest, maxsplit=1)[0]
    return {
        "job": f"{PREFIX}{_called(line, job)}",
        "options": options,
        "folder": folder,
        "arguments": shlex.join(command.split()[1:]) if command.startswith("/") else "",
    }


def _pattern(path: str, job: SlurmJob) -> str:
    """Return the path of an output as it is given to sbatch, with a pattern for the number of the job."""
    text = path.replace("%", "%%")
    if job.task:
        text = re.sub(rf"(?<![A-Za-z0-9]){job.task}(?![A-Za-z0-9])", "%A_%a", text)
    return re.sub(rf"(?<![A-Za-z0-9]){job.number}(?![A-Za-z0-9])", "%j", text)


def start_question(
    target: Target, job_id: str, command: str, env: Mapping[str, str], config: Mapping[str, Any]
) -> Question[str]:
    """Submit the script of the job in `config` again, unless this attempt was; the answer is `started` or `exists`.

    Args:
        command: the arguments of the script.
        env: variables beside those of the shell there. The nodes in TRAINING_MONITOR_AVOID_NODES are excluded.
        config: see `config_of`; with `requeue` the job itself runs again, without arguments and variables.
    """
    keep_secret(*secrets_of(env))
    of = _name(config["job"])
    options = [each for each in config.get("options", ()) if not each.startswith("--exclude=")]
    excluded = [each.partition("=")[2] for each in config.get("options", ()) if each.startswith("--exclude=")]
    excluded += filter(NODE.fullmatch, (env.get(AVOID_VARIABLE) or "").split(","))
    nodes = ",".join(dict.fromkeys(excluded))
    named = {"_from": of, "_shared": "yes" if target.has_other_users else ""}
    if config.get("requeue"):
        script = _call("requeue", job_id, nodes, _bytes=LOG_BYTES, **named)
    else:
        script = _call(
            "start",
            job_id,
            *options,
            *([f"--exclude={nodes}"] if nodes else []),
            Quoted(f'"$_jobs"/{shlex.quote(of)}/script'),
            *shlex.split(command),
            **named,
            _folder=config.get("folder") or "/",
            _exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items()),
        )

    def parse(reply: Reply) -> str:
        fields, _ = parse_fields(reply.output)
        _see_answer(fields)
        if "state" not in fields:
            raise CommandFailed(fields.get("error") or f"the job was not submitted: {reply.output.strip()[-300:]}")
        return fields["state"]

    return Question("start", script, parse, limit=60.0)


def stop_question(job_id: str, by: str, grace: float) -> Question[list[str]]:
    """Send SIGTERM to all of a job, and let Slurm end it after `grace` seconds: the answer is [], see `end_job`."""

    def parse(reply: Reply) -> list[str]:
        fields, _ = parse_fields(reply.output)
        _see_answer(fields)
        if "state" not in fields:
            raise CommandFailed(f"{job_id} could not be stopped: {reply.output.strip()[-300:]}")
        return []

    script = _call("stop", job_id, _by=by, _grace=max(1, round(grace * 100)))
    return Question("stop", script, parse, limit=grace + ANSWER_SECONDS)


def drain_command(nodes: Sequence[str]) -> str:
    """Return the command by which an administrator keeps all jobs off nodes."""
    names = ",".join(filter(NODE.fullmatch, nodes))
    return f"scontrol update NodeName={names} State=DRAIN Reason='failed a training'" if names else ""


def wait_script(job_id: str) -> str:
    """Return "": a controller is not asked again and again."""
    return ""


def log_expression(job_id: str) -> str:
    """Return the log of a job as a shell expression."""
    return f'"$({_call("show_output", job_id)})"'


def members_script(job_id: str) -> str:
    """Return a script that prints the pids of a job on a node, for a step that runs there beside it."""
    return format_call("slurm_jobs", "list_members")


def target_of(site: Site, job_id: str) -> SlurmTarget:
    """Return the job as a target, whose nodes can be asked. Raises CommandError, JobNotFound."""
    [view] = site.ask_one(states_question([job_id]))
    number = view.pod.name if view and view.pod else ""
    return SlurmTarget(number, site.target).resolve(site.transport)


def of_processes(job_id: str, questions: Sequence[Question[Any]]) -> list[Question[Any]]:
    """Return questions about the processes of a job, asked together in one step on the node of its batch script."""
    step = _Step(job_id, tuple(questions))
    return [replace(each, script="", beside=partial(step.ask, at)) for at, each in enumerate(questions)]


@dataclass
class _Step:
    """Questions that are asked when the first of their answers is wanted."""

    job_id: str
    questions: tuple[Question[Any], ...]
    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: list[Answer[Reply]] | None = None

    def ask(self, number: int, site: Site) -> Reply:
        with self.lock:
            if self.answers is None:
                raw = [Question(each.name, each.script, lambda reply: reply, each.limit) for each in self.questions]
                self.answers = [Answer("step", None, TargetUnreachable("its node was not queried"))] * len(raw)
                self.answers = site.at(target_of(site, self.job_id)).ask(*raw, timeout=STEP_SECONDS)
        failure = self.answers[number].failure
        if isinstance(failure, TargetEnded | TargetWaits):  # the look at the job tells more
            raise TargetUnreachable(failure.what)
        reply = self.answers[number].get()
        assert reply
        return reply


# ---------------------------------------------------------------- what is read


def _see_answer(fields: Mapping[str, str]) -> None:
    if said := fields.get("refused"):
        raise refused(said)


def _read(fields: Mapping[str, str], log: str, job_id: str) -> JobView | None:
    """Read one look at a job. Raises ParseError, TargetUnreachable, SettingsError."""
    _see_answer(fields)
    if fields.get("state") == "missing":
        return None
    line, number, stopper = fields.get("job", ""), fields.get("number"), fields.get("stopped_by")
    if "now" not in fields or number is None:
        raise ParseError("the reply is truncated", source="Slurm jobs", text=str(fields))
    if fields.get("state") == "forgotten":
        return _read_forgotten(fields, log, job_id, number)
    if (read_whole(fields.get("count")) or 1) > 1:
        expected = f"one of the array's {fields['count']} tasks, such as {job_id}_0"
        if " HetJobId=" in line:
            expected = f"a job of one part; for a heterogeneous job, use the target slurm://{number}"
        raise SettingsError("job", job_id, expected)
    nodes = fields.get("nodes", "").split()
    job = read_job(line, nodes)
    if job is None:
        raise ParseError("not a job", source="scontrol show job", text=line)
    now, log_time = read_number(fields["now"]), read_number(fields.get("log_time"))
    job = settled(job, now)
    begun = job.starts_at if job.phase not in ("Pending", "Unknown") else None
    if job.phase in ("Running", "Suspended", "Pending"):
        log = log[max((each.end() for each in _ENDED.finditer(log)), default=0) :]
        if log_time is not None and (begun is None or log_time < begun):
            log, log_time = "", None  # all of it is of an earlier run of the same job
    lost = fields.get("lost", "").split()
    node = next(iter(lost if job.state == "NODE_FAIL" else nodes), None)
    pod = replace(standing_of(job), node=node if len(nodes) == 1 or len(lost) == 1 else None)
    view = JobView(
        f"{PREFIX}{_called(line, job)}",
        _STATUS.get(job.phase, JobStatus.UNKNOWN),
        _message(job, pod),
        pod.exit_code,
        parse_progress(log),
        read_whole(fields.get("log_size")),
        seconds_since(log_time, now),
        redact(log),
        started_at=begun,
        age=seconds_since(begun, now),
        pod=replace(pod, name=number),
        resume=pod.resume,
        is_stuck=is_stuck(pod),
    )
    return _as_stopped(view, stopper)


def _called(line: str, job: SlurmJob) -> str:
    """Return the name of a job: that of the attempt which it is, or its number."""
    mark = _MARK.search(line)
    return mark[1] if mark and _NAME.fullmatch(mark[1]) else job.task or job.number


def _message(job: SlurmJob, pod: PodState) -> str | None:
    if job.phase == "Running":
        return None
    code = f"exit code {job.exit_code}" if job.phase == "Failed" and job.exit_code else None
    said = {"Stopped": "cancelled by scancel, not by its supervisor"}.get(job.phase, f"Slurm reports {pod.reason}")
    return ", ".join(filter(None, (said, code, pod.message)))


def _as_stopped(view: JobView, by: str | None) -> JobView:
    """Return a job that ended after someone wrote down that they stop it as stopped by them, however it ended.

    A job that finished its training all the same was not stopped.
    """
    has_finished = view.status is JobStatus.SUCCEEDED and _has_finished(view.progress)
    if by is None or not view.status.is_terminal or has_finished:
        return view
    return replace(view, status=JobStatus.STOPPED, stopped_by=by, message=f"stopped by {by}")


def _read_forgotten(fields: Mapping[str, str], log: str, job_id: str, number: str) -> JobView:
    """Read a job that the controller has forgotten: by the accounting, or else by the end of its log.

    If the accounting does not respond, and neither its log nor who stopped it shows how it ended, that is unknown.
    """
    former = read_former(fields["former"]) if fields.get("former") else None
    progress = parse_progress(log)
    if former and former.phase in ENDED:
        pod = standing_of(former)
        status, message, code = _STATUS[former.phase], _message(former, pod), pod.exit_code
    else:
        pod, status, code = PodState(number, "Failed", False, 0, kind="job"), JobStatus.FAILED, None
        message = "Slurm no longer lists it, and its log does not show that it finished"
        if former and former.phase == "Unknown":  # REVOKED: it may run on another cluster
            pod, status = standing_of(former), JobStatus.UNKNOWN
            message = _message(former, pod)
        if _has_finished(progress):
            status, message = JobStatus.SUCCEEDED, "its log shows that it finished"
        elif _CANCELLED.search(log):
            status, message = JobStatus.STOPPED, "cancelled by scancel, not by its supervisor"
        elif (unasked := fields.get("unasked")) and "stopped_by" not in fields:
            pod, status = replace(pod, phase="Unknown"), JobStatus.UNKNOWN
            message = f"Slurm no longer lists it, and its accounting does not respond: {last_lines(unasked, 1)}"
    view = JobView(job_id, status, message, code, progress, log_tail=redact(log), pod=replace(pod, name=number))
    return _as_stopped(view, fields.get("stopped_by"))


def _has_finished(progress: Progress) -> bool:
    step, total = job_progress(progress).step, progress.total_steps
    return bool(progress.finished) or (step is not None and total is not None and step >= total > 0)


def _name(job_id: str) -> str:
    name = name_in(job_id)
    if not _NAME.fullmatch(name):
        raise SettingsError("job", job_id, f"{PREFIX}NUMBER, or {PREFIX}NAME")
    return name


def _call(function: str, job_id: str, *arguments: str, **variables: str | int) -> str:
    return _format(function, *arguments, _name=_name(job_id), **variables)


def _format(function: str, *arguments: str, **variables: str | int) -> str:
    states = {"_running": " ".join(RUNNING), "_over": " ".join(OVER)}
    return format_call("slurm_jobs", function, *arguments, **variables, **states)
