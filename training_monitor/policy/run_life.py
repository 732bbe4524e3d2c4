"""Whether a run goes on: by its file, and by the processes of the machine where that is the run's own. Pure.

A process is the run's own when host, boot and pid namespace are the same, and pid and start time too. Only there does a
process that is missing mean that the run was killed: its file was read after the processes, and a run writes how it
ended before it goes. Everywhere else the age of its file is all that tells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from training_monitor.errors import TrainingMonitorError
from training_monitor.policy.run_values import KILLED, RUNNING, UNKNOWN, FolderLook, ProcessSample, Run
from training_monitor.policy.signal_outcomes import ENDED_STATES
from training_monitor.units import format_duration

_FRESH_SECONDS = 30.0  # a run writes its file every 2 s
_MOST_AHEAD = 60.0  # seconds by which the clock of another machine may be ahead
_LOOK_SLACK = 0.1  # between the clocks of the run and of the look, which are read in different ways
_HALTED = {"T": "is stopped: SIGCONT lets it go on", "t": "is held by a debugger"}
_BEFORE_RUN, _BEHIND_RUN = 3600.0, 5.0  # by which its process may have begun before and after what the run says


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of a run's life; `reason` says why, `process` is its own one while that is there.

    `is_halted`: the process is there, and does nothing until somebody lets it go on.
    """

    status: str
    reason: str = ""
    is_alive: bool | None = None
    process: ProcessSample | None = None
    is_halted: bool = False


def is_same_attempt(one: Run, other: Run) -> bool:
    """Whether two runs of the same name were started once."""
    return (one.process, one.started_at) == (other.process, other.started_at)


def check_same_attempt(asked: Run, now: Run) -> None:
    """Raise TrainingMonitorError when a name means another training now than when somebody looked and asked."""
    if not is_same_attempt(asked, now):
        raise TrainingMonitorError(f"run {now.name!r} was started again since", hint="look at it, and ask again")


def judge_life(run: Run, look: FolderLook) -> Life:
    """Judge one run of a look."""
    life = _see(run, look)
    if run.status is None:
        return replace(life, status=UNKNOWN, reason=run.error or "its file names no status")
    if run.status != RUNNING:
        return replace(life, status=run.status, reason="")
    if life.is_alive is None:
        return _by_word(run, look.timestamp, life.reason)
    if run.error and not life.is_alive:  # it may have written since how it ended
        return Life(UNKNOWN, f"{life.reason}, and its file cannot be read: {run.error}", False)
    return replace(life, reason=life.reason or run.error) if run.error else life


def _by_word(run: Run, now: float, why: str) -> Life:
    """What the age of its file tells of a run whose process cannot be seen."""
    if run.updated_at is None:
        return Life(UNKNOWN, why)
    age = now - run.updated_at
    if age > _FRESH_SECONDS:
        return Life(UNKNOWN, f"{why}; no word of it since {format_duration(age)}")
    if age < -_MOST_AHEAD:
        return Life(UNKNOWN, f"{why}; its clock is {format_duration(-age)} ahead of this one")
    return Life(RUNNING, f"{why}; its file was written {format_duration(max(0.0, age))} ago")


# ---------------------------------------------------------------- the process


def _see(run: Run, look: FolderLook) -> Life:
    """RUNNING when its process is there, KILLED when it is gone, UNKNOWN when that cannot be seen."""
    own, machine = run.process, look.machine
    if own is None:
        return Life(UNKNOWN, "its file names no process")
    if machine is None:
        return Life(UNKNOWN, look.machine_error or "the processes cannot be seen")
    here = machine.identity
    if own.hostname is None or own.hostname != here.hostname:
        return Life(UNKNOWN, f"it runs on {own.hostname or 'a host without a name'}: not to be seen from here")
    if own.boot_id and here.boot_id and own.boot_id != here.boot_id:
        return _before_this_boot(run, own.hostname, look.timestamp, look.timestamp - machine.at)
    if own.pid_namespace and here.pid_namespace and own.pid_namespace != here.pid_namespace:
        return Life(UNKNOWN, "it runs in another pid namespace (a container): not to be seen from here")
    sample = machine.processes.get(own.pid)
    if sample is not None and own.start_ticks in (sample.start_ticks, None):
        booted_at = (look.timestamp if look.processes_at is None else look.processes_at) - machine.at
        if own.start_ticks is not None or _may_be_its_own(run, booted_at + sample.start_ticks / machine.ticks):
            return _by_state(sample)
    if own.start_ticks is None or None in (own.boot_id, here.boot_id, own.pid_namespace, here.pid_namespace):
        if sample is None:
            return Life(UNKNOWN, f"no process {own.pid} is here, and whether its own one was here is not known")
        return Life(UNKNOWN, f"whether process {own.pid} of this machine was its own is not known")
    if sample is None and not machine.sees_all:
        return Life(UNKNOWN, "the processes of others are hidden on this machine (hidepid)")
    if _wrote_since(run, look):
        return Life(UNKNOWN, f"its process {own.pid} was not there when the processes were read")
    return Life(
        KILLED, f"its process {own.pid} is gone" + (", and another one has its number" if sample else ""), False
    )


def _wrote_since(run: Run, look: FolderLook) -> bool:
    """Whether it wrote its file after the look at the processes, or may have: it began, or ended, in these moments."""
    last = run.started_at if run.updated_at is None else run.updated_at
    return look.processes_at is None or (last is not None and last >= look.processes_at - _LOOK_SLACK)


def _by_state(sample: ProcessSample) -> Life:
    if sample.state in ENDED_STATES:
        return Life(KILLED, f"its process {sample.pid} has ended, and waits for its parent (zombie)", False)
    if sample.state in _HALTED:
        return Life(RUNNING, f"its process {sample.pid} {_HALTED[sample.state]}", True, sample, True)
    return Life(RUNNING, "", True, sample)


def _before_this_boot(run: Run, hostname: str, now: float, booted_at: float) -> Life:
    """Of a host of this name that was started another time. One that wrote since then is another machine."""
    if run.updated_at is not None and run.updated_at < min(booted_at, now - _FRESH_SECONDS):
        return Life(KILLED, "the machine was started again since", False)
    return Life(UNKNOWN, f"it runs on another machine that is called {hostname} too: not to be seen from here")


def _may_be_its_own(run: Run, began: float) -> bool:
    """For files of the earlier ttop, which tell neither when their process began nor where: it began shortly before."""
    return run.started_at is not None and -_BEFORE_RUN <= began - run.started_at <= _BEHIND_RUN
