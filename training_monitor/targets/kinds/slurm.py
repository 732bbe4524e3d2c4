"""A job of Slurm: `slurm://[user@host[:port]/]JOBID[_TASK]`, or by its name; without one, all of the caller's.

Its processes are asked on its nodes, by a step beside the job's own: `srun --overlap` (Slurm 20.11), which ends with
its script. Sources: srun(1), scontrol(1), squeue(1), and the states of "Job State Codes" there.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import IO, Any, ClassVar, NamedTuple

from training_monitor.core.errors import (
    CommandTimedOut,
    JobNotFound,
    ParseError,
    SettingsError,
    TargetUnreachable,
    ToolNotFound,
    last_lines,
)
from training_monitor.core.models import Question, Reply
from training_monitor.core.read_fence import keep_found
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult, PodState
from training_monitor.core.units import name_some
from training_monitor.targets.kinds.local import LocalTarget
from training_monitor.targets.kinds.ssh import SshTarget, shared_socket
from training_monitor.targets.pods import ENDED, WAITING
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import RESOLVE_SECONDS, Target
from training_monitor.targets.transport import Stream, Through, Transport

STEPS = "TRAINING_MONITOR_SLURM_STEPS"  # `no`: the nodes are not asked; `ssh`: not by steps
STEP_SECONDS = 20.0
_STEP = ("--overlap", "--immediate=10", "--mpi=none", "--nodes=1", "--ntasks=1", "--quiet", "--time=1")  # a minute
_KNOWN_SECONDS = 30.0  # that a job runs, as it may be put on other nodes; a tenth, that it waits
_NAME = regex(r"\d{1,10}(?:_\d{1,10})?|[A-Za-z][\w.+-]{0,199}")
NODE = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_HEAD = regex(
    r"JobId=(?P<id>\d+)(?: ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\S+))?(?: (?:Array|Het)\w+=\S+)*"
    r" JobName=(?P<name>.*?)(?: HetJobIdSet=\S+)? UserId=[^=]+?\((?P<user>\d+)\) GroupId=[^=]+?\(\d+\) "
)
_USER = regex(r" UserId=[^=]*?\((\d+)\)")
_FILES = regex(r" WorkDir=(?P<folder>.*?) StdErr=(?P<err>.*?) StdIn=.*? StdOut=(?P<out>.*?)(?= Power=| \w+=|$)")
_MOST_NAMED, _LAST_SIGNAL = 5, 31
_HELD = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")  # whatever their reason is
_STATES = {  # by their phase; any other state is unknown
    "Running": ("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "UPDATE_DB"),
    "Pending": ("PENDING", "CONFIGURING", "POWER_UP_NODE", "EXPEDITING", "REQUEUED", "REQUEUE_FED", *_HELD),
    "Suspended": ("SUSPENDED", "STOPPED"),
    "Succeeded": ("COMPLETED",),
    "Stopped": ("CANCELLED",),
    "Failed": (
        *("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED"),
        "RECONFIG_FAIL",
    ),
    "Unknown": ("REVOKED",),  # over on this cluster: another one of its federation runs the job
}
RUNNING = _STATES["Running"]
OVER = tuple(state for phase in (*ENDED, "Unknown") for state in _STATES.get(phase, ()))
_FORGOTTEN = "FORGOTTEN"  # neither known to the controller nor ended by the accounting
_UNCLEARED = "COMPLETING, because Slurm has not finished cleaning up a node"
_UNSTARTED = "FAILED, because Slurm could not start its script: check its output file and its working directory"
_OWN_CODES = {"FAILED 0:53": _UNSTARTED}  # no signal: see _code
_BY_REASON = {  # the state that follows once Slurm has cleaned up
    "TimeLimit": "TIMEOUT",
    "OutOfMemory": "OUT_OF_MEMORY",
    "NodeDown": "NODE_FAIL",
}
_CLOCKS_DIFFER = 60.0  # seconds, that of the controller and that of the files
_ENDING_SECONDS = 600.0  # more than between the signals that end a job (KillWait)
_NO_FAILURE = (None, 0, *(128 + number for number in (1, 2, 9, 10, 12, 15)))  # the latter may be sent from outside
_PHASES = {
    **{state: phase for phase, states in _STATES.items() for state in states},
    _UNSTARTED: "Failed",
    **dict.fromkeys((_FORGOTTEN, _UNCLEARED), "Ended"),
}
_NO_REASON = ("None", "NonZeroExitCode")
_ALIVE = ("Running", *WAITING)
_CATEGORIES = {  # of docs/failures.md
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_lost",
    "BOOT_FAIL": "node_lost",
    "OUT_OF_MEMORY": "host_oom",
    "PREEMPTED": "preemption",
    _UNSTARTED: "missing_file",
    "FAILED (JobLaunchFailure)": "node_lost",  # on which no program of the job has run
    "FAILED (Prolog)": "node_lost",
}
_NEVER = regex(  # not by waiting: someone has to change the job, or what its account may use
    r"DependencyNeverSatisfied|BadConstraints|Invalid(?:Account|QOS)|(?:Account|QOS)NotAllowed|PartitionTimeLimit"
    r"|(?:Assoc|QOS)Max\w+Per(?:Job|Node)(?:Limit)?|QOSMin\w+|MaxMemPerLimit"
)


class SlurmJob(NamedTuple):
    """A job, or a task of an array, as scontrol describes it.

    `task` is its name where it is one of an array; `outputs` are the files to which it prints, that of the errors last;
    `user` is the number of its user, `is_own` whether that is the one who asked. `failed_part` is the part of a
    heterogeneous job by which it has failed.
    """

    number: str
    name: str
    state: str
    task: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    starts_at: float | None = None
    ended_at: float | None = None
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    batch_node: str | None = None
    outputs: tuple[str, ...] = ()
    user: str = ""
    is_own: bool = False
    failed_part: str | None = None

    @property
    def phase(self) -> str:
        return _PHASES.get(self.state, "Unknown")


@dataclass(frozen=True, slots=True)
class SlurmTransport(Through):
    """Runs commands on a node of a job, beside what it runs there: one at a time, each for STEP_SECONDS at most."""

    number: str
    node: str
    lock: str = ""

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        """Wait for `timeout` seconds at most until no other command of this user runs on the node, and run it."""
        with _turn(self.lock, timeout) as is_free:
            if not is_free:
                raise CommandTimedOut(
                    f"node {self.node}: waited more than {timeout:g} s for other queries to this node"
                )
            return self.inner.run(self.words(argv), timeout=min(timeout, STEP_SECONDS), input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        raise TargetUnreachable(f"node {self.node}: a stream would exceed the limit of {STEP_SECONDS:g} s per query")

    def words(self, argv: Sequence[str]) -> list[str]:
        return ["srun", f"--jobid={self.number}", f"--nodelist={self.node}", *_STEP, *argv]


@contextmanager
def _turn(path: str, seconds: float) -> Iterator[bool]:
    """Hold the lock of a node, and yield whether it was free within that time; without a path there is none."""
    if not path:
        yield True
        return
    end = time.monotonic() + seconds
    with open(path, "ab") as file:
        while not (is_free := _is_locked(file)) and time.monotonic() < end:
            time.sleep(0.05)
        yield is_free


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class SlurmTarget(Target):
    """A job on one of its nodes, by default that of its batch script; with an empty name, all of the caller's jobs."""

    machine: Target = LocalTarget("local")
    node: str | None = None
    job: SlurmJob | None = field(default=None, compare=False)
    known_at: float = field(default=-math.inf, compare=False)  # monotonic

    has_rsync: ClassVar[bool] = False
    is_machine: ClassVar[bool] = False
    output: ClassVar[str] = "output:"
    longest: ClassVar[float] = STEP_SECONDS

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> SlurmTarget | None:
        path, _, node = text.partition("?node=")
        before, slash, name = path.rpartition("/")
        machine = SshTarget.parse(before, None) if slash else LocalTarget("local")
        is_job = (not name or _NAME.fullmatch(name)) and (path == text or NODE.fullmatch(node))
        return cls(name, machine, node or None) if machine and is_job else None

    def __str__(self) -> str:
        before = "" if self.machine.is_here else f"{str(self.machine).partition('://')[2]}/"
        return f"slurm://{before}{self.name}{f'?node={self.node}' if self.node else ''}"

    @property
    def called(self) -> str:
        return f"node {self.node} of job {self.name}" if self.node else f"job {self.name}"

    @property
    def host(self) -> object:
        return SlurmTarget, self.machine.host, self.name, self.node or (self.job and self.job.batch_node)

    @property
    def own_processes(self) -> Mapping[str, str]:
        node = self.node or (self.job and self.job.batch_node)
        on_node = {"SLURMD_NODENAME": node} if node else {}
        return {"SLURM_JOB_ID": self.job.number if self.job else self.name, **on_node}

    # ------------------------------------------------------------ what Slurm says

    def resolve(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> SlurmTarget:
        """Ask for its job, if that was not done just now: of several with one name the newest that runs, or waits."""
        seconds = _KNOWN_SECONDS if self.job and self.job.phase == "Running" else _KNOWN_SECONDS / 10
        if self.job and time.monotonic() - self.known_at < seconds:
            return self
        jobs = self._jobs(transport, timeout)
        if not jobs and self.job:
            return replace(self, job=self.job._replace(state=_FORGOTTEN), known_at=time.monotonic())
        if not jobs:
            hint = "list your jobs with `squeue --me`; for a job that Slurm no longer lists, specify its log"
            raise JobNotFound(f"{self}: Slurm has no such job", hint=hint)
        tasks = [each.task for each in jobs if each.task]
        if len(jobs) > 1 and tasks and self.name.isdigit():
            raise SettingsError("job", self.name, f"one task of the array: {name_some(tasks, _MOST_NAMED)}")
        job = max(jobs, key=self._precedence)
        others = [each for each in jobs if self.name.isdigit() and each.number != job.number]
        return replace(self, job=_as_its_parts(job, others), known_at=time.monotonic())

    def _precedence(self, job: SlurmJob) -> tuple[bool, bool, bool, int]:
        """Put the first part of a heterogeneous job, which has its number, first, then what runs, then what waits."""
        has_ended = job.phase in ENDED or job.state in OVER
        return job.number == self.name, job.phase == "Running", not has_ended, int(job.number)

    @property
    def is_list(self) -> bool:
        return not self.name

    def list_targets(self, transport: Transport | None) -> tuple[Target, ...]:
        jobs = self._jobs(transport, RESOLVE_SECONDS)
        return tuple(replace(self, name=_called(each), job=each, known_at=time.monotonic()) for each in jobs)

    def connect(self, transport: Transport | None) -> Transport:
        job = self.resolve(transport).job
        assert job
        node = self.node or job.batch_node or next(iter(job.nodes), None)
        if job.phase != "Running" or node is None:
            said = ", ".join(filter(None, (job.state, standing_of(job).message)))
            raise TargetUnreachable(f"job {self.name} is not running: Slurm reports {said}", target=str(self))
        if _are_steps_off():
            raise TargetUnreachable(
                "queries to the nodes of jobs are disabled", target=str(self), hint=f"unset {STEPS}"
            )
        if os.environ.get(STEPS) == "ssh":
            return SshTarget(node).connect(self.machine.connect(transport))
        lock = shared_socket(f"step-{md5(f'{self.machine}/{node}'.encode(), usedforsecurity=False).hexdigest()}")
        return SlurmTransport(self.machine.connect(transport), job.number, node, lock)

    def output_files(self, transport: Transport | None) -> tuple[Target, tuple[str, ...], int | str]:
        job = self.resolve(transport).job
        if job and job.is_own:  # where others' jobs print is their choice
            keep_found(self.machine, job.outputs, ())
        begun = job.starts_at if job and job.phase == "Running" else None  # it may append to what it wrote before
        return self.machine, job.outputs if job else (), "" if begun is None else int(begun - _CLOCKS_DIFFER)

    def may_stand(self, said: str) -> bool:
        return True

    def read_standing(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> PodState | None:
        is_stale = self.job is not None and self.job.phase == "Running"
        job = (replace(self, known_at=-math.inf) if is_stale else self).resolve(transport, timeout).job
        return standing_of(job) if job else None

    @property
    def scheduled(self) -> tuple[Target, str]:
        return self.machine, f"slurm:{self.name}"

    def beside(self, pod: str) -> SlurmTarget:
        return replace(self, node=pod)

    def list_pods(self, *names: str, transport: Transport | None = None) -> tuple[PodState, ...]:
        """Return the nodes of its job, whatever is named: they are no pods of their own."""
        return self.find_pods_of_training(transport)

    def find_pods_of_training(self, transport: Transport | None, timeout: float = 40.0) -> tuple[PodState, ...]:
        job = self.resolve(transport, timeout).job
        nodes = job.nodes if job and job.phase == "Running" else ()
        return tuple(PodState(node, "Running", True, 0, node=node, kind="node") for node in nodes)

    def find_siblings(self, transport: Transport | None, timeout: float = 40.0) -> tuple[PodState, ...]:
        own = self.node or (self.job and self.job.batch_node)
        nodes = () if _are_steps_off() else self.find_pods_of_training(transport, timeout)
        return tuple(node for node in nodes if node.name != own)

    def _jobs(self, transport: Transport | None, timeout: float) -> tuple[SlurmJob, ...]:
        """Ask for its job, or for all of the caller's. Raises CommandError."""
        from training_monitor.targets.asking import Site

        script = format_call("slurm", "show_jobs", wanted=self.name)
        question = Question("jobs", script, _read_jobs, limit=timeout)
        try:
            return Site(self.machine, transport).within(timeout).ask_one(question)
        except CommandTimedOut as error:
            raise TargetUnreachable(f"Slurm did not respond within {timeout:g} s", target=str(self)) from error


def _are_steps_off() -> bool:
    return os.environ.get(STEPS) == "no"


def standing_of(job: SlurmJob) -> PodState:
    """Return what is said of a job."""
    has_ended, is_own_code = job.phase in ENDED, job.exit_code or job.phase == "Succeeded"
    resume = _resume(job)
    is_queued = job.phase == "Pending" and not resume
    waits = f"expected to start {_local(job.starts_at)}" if is_queued and job.starts_at else None
    is_vain = job.phase == "Pending" and _NEVER.fullmatch(job.reason or "") is not None
    if is_vain:
        waits = f"it will not start as it is; change it with scontrol update, or cancel it with scancel {_called(job)}"
    if job.state == "REVOKED":
        waits = "another cluster of the federation runs it"
    if job.failed_part:
        waits = f"so ended job {job.failed_part}, which is a part of this heterogeneous job"
    reason = job.reason if job.phase == "Pending" or job.state in ("FAILED", "CANCELLED") else None
    return PodState(
        _called(job),
        job.phase,
        False,
        job.restarts,
        reason=f"{job.state} ({reason})" if reason else job.state,
        message=waits,
        exit_code=job.exit_code if has_ended and is_own_code else None,  # 0:0 of a job that a node failure ended
        terminated_at=job.ended_at if has_ended else None,
        kind="job",
        category=_CATEGORIES.get(job.state) or _CATEGORIES.get(f"{job.state} ({reason})"),
        resume=resume,
        waits_in_vain=is_vain,
    )


def _as_its_parts(job: SlurmJob, others: Sequence[SlurmJob]) -> SlurmJob:
    """Return a heterogeneous job that has ended as failed if one of its other parts, which are jobs too, has failed."""
    part = next((each for each in others if each.phase == "Failed"), None)
    if part is None or job.phase not in ("Succeeded", "Stopped"):
        return job
    return job._replace(
        state=part.state,
        reason=part.reason,
        exit_code=part.exit_code,
        ended_at=part.ended_at or job.ended_at,
        failed_part=part.number,
    )


def _resume(job: SlurmJob) -> str | None:
    """Return the command without which a job never runs on: it is suspended, or held by someone or by Slurm itself.

    The command names a task of an array as such: until the task starts, its number is that of the whole array.
    """
    if job.phase == "Pending" and (
        job.state in _HELD or re.search(r"(?:^|_|Job)(?:held|hold)", job.reason or "", re.IGNORECASE)
    ):
        return f"scontrol release {_called(job)}"
    if job.state == "STOPPED":  # by SIGSTOP
        return f"scancel --full --signal=CONT {_called(job)}"
    return f"scontrol resume {_called(job)}" if job.phase == "Suspended" else None


def _local(at: float) -> str:
    from training_monitor.core.units import format_local

    return format_local(at, "at %m-%d %H:%M")


def _called(job: SlurmJob) -> str:
    return job.task or job.number


def _read_jobs(reply: Reply) -> tuple[SlurmJob, ...]:
    lines = [(word, rest) for word, _, rest in (line.partition(" ") for line in reply.output.splitlines())]
    first = lines[0] if lines else ("", "")
    if first[0] == "missing":
        raise ToolNotFound("Slurm's commands were not found", hint="use a login node: slurm://USER@HOST/JOB")
    if first[0] == "refused":
        raise refused(reply.output.partition(" ")[2])
    if ("end", "") not in lines:
        raise ParseError("the reply is truncated", source="scontrol show job", text=reply.output)
    if first[0] == "forgotten":  # what the accounting still takes for running does not run
        former = filter(None, (read_former(rest) for word, rest in lines if word == "job"))
        return tuple(each._replace(state=_FORGOTTEN) if each.phase in _ALIVE else each for each in former)
    jobs = [rest for word, rest in lines if word == "job"]
    nodes = [rest.split() for word, rest in lines if word == "nodes"]
    read = tuple(found for job, names in zip(jobs, nodes) if (found := read_job(job, names) or _unread(job)))
    now = next((_time(rest) for word, rest in lines if word == "now"), None)
    return tuple(settled(each, now)._replace(is_own=("user", each.user) in lines) for each in read)


def settled(job: SlurmJob, now: float | None) -> SlurmJob:
    """Return a job that has ended long ago, and whose node Slurm does not finish cleaning up, in its state after that.

    A planned start that has passed is dropped. `now` is by the clock of the machine with Slurm's commands: ours may
    differ.
    """
    if job.phase == "Pending" and now is not None and (job.starts_at or now) < now:
        return job._replace(starts_at=None)
    if job.state != "COMPLETING" or (now or 0.0) - (job.ended_at or math.inf) <= _ENDING_SECONDS:
        return job
    ended = _UNCLEARED if job.exit_code in _NO_FAILURE else "FAILED"
    return job._replace(state=_BY_REASON.get(job.reason or "", ended))


def refused(said: str) -> TargetUnreachable:
    """Return the error for what Slurm's commands print when they cannot be used."""
    if re.search(r"config(?:uration)? source|fetch config", said):
        hint = "use a login node: slurm://USER@HOST/JOB"
        return TargetUnreachable("Slurm does not respond: its commands found no configuration", hint=hint)
    if said.endswith(" is COMPLETING"):
        return TargetUnreachable(f"{said}: it can be requeued when Slurm has finished cleaning up its nodes")
    return TargetUnreachable(f"Slurm does not respond: {last_lines(said, 2)}")


def _unread(line: str) -> SlurmJob | None:
    """Return a job of which nothing but the number can be read, as its name may hold anything."""
    found = re.match(r"JobId=(\d+)\b", line)
    return SlurmJob(found[1], "", "UNKNOWN") if found else None


def read_former(line: str) -> SlurmJob | None:
    """Read a line of `sacct --parsable2`."""
    number, task, state, codes, end, folder, name = line.split("|", 6)
    if not number.isdigit() or not state:
        return None
    of_array = task if "_" in task else None
    outputs = (f"{folder}/slurm-{task}.out",) if folder.startswith("/") else ()  # unless it names another one
    state = _OWN_CODES.get(f"{state} {codes}", state.partition(" ")[0])
    return SlurmJob(number, name, state, of_array, exit_code=_code(codes), ended_at=_time(end), outputs=outputs)


def _code(text: str) -> int | None:
    """Return the exit code of RC:SIGNAL as a shell reports it; Slurm's own numbers, as 125 for memory, are none."""
    code, _, signal = text.partition(":")
    if signal.isdigit() and int(signal) > _LAST_SIGNAL:
        return None
    return 128 + int(signal) if signal.isdigit() and int(signal) else int(code) if code.isdigit() else None


def read_job(line: str, nodes: Sequence[str] = ()) -> SlurmJob | None:
    """Read the line of `scontrol show job --oneliner`, with its times in epoch seconds; None of another text."""
    head, files = _HEAD.match(line), _FILES.search(line)
    if head is None:
        return None
    told: dict[str, Any] = dict(re.findall(r"(\S+?)=(\S*)", line[head.end() :].partition(" Command=")[0]))
    outputs = dict.fromkeys(path for path in ((files["out"], files["err"]) if files else ()) if path.startswith("/"))
    array, task = head["array"], head["task"]
    return SlurmJob(
        head["id"],
        head["name"],
        _OWN_CODES.get(f"{told.get('JobState')} {told.get('ExitCode')}", told.get("JobState", "UNKNOWN")),
        f"{array}_{task}" if array and task and task.isdigit() else None,
        None if told.get("Reason") in _NO_REASON else told.get("Reason"),
        _code(told.get("ExitCode", "")),
        _time(told.get("StartTime")),
        _time(told.get("EndTime")),
        int(told.get("Restarts") or 0) if str(told.get("Restarts")).isdigit() else 0,
        tuple(each for each in nodes if NODE.fullmatch(each)),
        told.get("BatchHost") if NODE.fullmatch(told.get("BatchHost") or "") else None,
        tuple(outputs),
        head["user"] if {*_USER.findall(line)} == {head["user"]} else "",  # one may be in the name that its user chose
    )


def _time(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d{9,11}", text) else None
