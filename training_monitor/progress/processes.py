"""Signals to processes of this machine that are still the same ones, and what came of them."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass, replace

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.policy.run_values import Identity
from training_monitor.policy.signal_outcomes import ENDED_STATES, check_signal, describe_outcome, has_obeyed
from training_monitor.progress.procfs import identify, read_process

_LOOK_SECONDS, _LOOK_INTERVAL = 1.0, 0.02
_CANNOT_BE_SEEN = ("host", "boot", "namespace", "unsure", "hidden")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look at a process found: `outcome` as in describe_outcome, "" when it is the one that is meant."""

    outcome: str
    name: str = ""
    state: str = ""


def is_alive(process: Identity) -> bool | None:
    """Whether this very process runs; None when that cannot be seen from here. A zombie has ended."""
    found = _look(process).outcome
    return None if found in _CANNOT_BE_SEEN else not found


def send_signals(processes: tuple[Identity, ...], number: int, *, clock: Clock = SYSTEM_CLOCK) -> tuple[str, ...]:
    """Send a signal to each of these processes, in this order, and look up to a second what came of it.

    A process is only signalled while it is the one that is meant: same host, boot and pid namespace, same start. Where
    there are pidfds, the look and the signal are at the same process, whatever happens between them.

    Returns:
        A sentence for each: what it was sent and whether it ended, or why it was sent nothing.

    Raises:
        SettingsError: There is no such signal.
    """
    check_signal(number)
    sent = [_send(process, number) for process in processes]
    end = clock.monotonic() + _LOOK_SECONDS
    told = []
    for process, seen in zip(processes, sent):
        found = seen if seen.outcome else _wait(process, seen, number, end, clock)
        told.append(describe_outcome(process, number, found.outcome, found.name, found.state))
    return tuple(told)


def _send(process: Identity, number: int) -> _Seen:
    """Open the process first, and only then look whether it is the one: then no other can take its place."""
    if process.pid <= 1:
        return _Seen("never")
    if process.pid == os.getpid():
        return _Seen("own")
    with ExitStack() as files:
        file = _open(process.pid, files)
        seen = _look(process)
        if seen.outcome:
            return seen
        try:
            if file is not None:
                signal.pidfd_send_signal(file, number)
            else:
                os.kill(process.pid, number)
        except ProcessLookupError:
            return _Seen("gone")
        except PermissionError:
            return _Seen("denied", seen.name)
        except OSError:
            return _Seen("failed", seen.name)
    return seen


def _open(pid: int, files: ExitStack) -> int | None:
    """A pidfd; None where there are none, and when there is no such process, which the look says then."""
    try:
        file = os.pidfd_open(pid)
    except (AttributeError, OSError, OverflowError):  # not Linux, an old kernel, a sandbox
        return None
    files.callback(os.close, file)
    return file


def _look(process: Identity) -> _Seen:
    """Whether this very process is there; what is not known of it is not the same."""
    here = identify()
    if process.hostname != here.hostname:
        return _Seen("host")
    if process.boot_id is None or process.boot_id != here.boot_id:
        return _Seen("boot")
    if process.pid_namespace is None or process.pid_namespace != here.pid_namespace:
        return _Seen("namespace")
    if process.start_ticks is None:
        return _Seen("unsure")
    sample = read_process(process.pid)
    if sample is None:
        return _Seen("hidden" if _exists(process.pid) else "gone")
    if sample.start_ticks != process.start_ticks:
        return _Seen("other", sample.name)
    return _Seen("zombie" if sample.state in ENDED_STATES else "", sample.name, sample.state)


def _exists(pid: int) -> bool:
    """Whether there is a process of this number, also one that /proc hides."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _wait(process: Identity, sent: _Seen, number: int, end: float, clock: Clock) -> _Seen:
    """What a process that was sent a signal does until `end`; its outcome is "" when it can be seen no longer."""
    while True:
        seen = _look(process)
        if seen.outcome:
            return replace(sent, outcome="" if seen.outcome in _CANNOT_BE_SEEN else "ended")
        if has_obeyed(seen.state, number) or clock.monotonic() >= end:
            return replace(sent, outcome="left", state=seen.state)
        clock.sleep(_LOOK_INTERVAL)
