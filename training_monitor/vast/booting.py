"""Wait until a rented machine runs and answers over ssh, and tell meanwhile what is waited for.

A running instance takes another minute until ssh answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    InstanceNotFound,
    TargetUnreachable,
    ToolNotFound,
    TrainingMonitorError,
)
from training_monitor.models import Question
from training_monitor.targets.asking import ask, read_text
from training_monitor.targets.connect import read_address
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.units import format_duration
from training_monitor.vast.creating import clean_line
from training_monitor.vast.instances import find_instance

READY_EVERY, LONGEST_WAIT = 5.0, 30.0
TOLD_EVERY = 60.0  # seconds between two lines that say that it is still waited for
_NEVER_RUNNING = ("exited", "offline", "unknown", "stopped")
_NO_IMAGE = re.compile(
    r"manifest unknown|manifest for \S+ not found|pull access denied|repository does not exist|no matching manifest"
    r"|invalid reference format|no space left on device",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Boot:
    """How far an instance is: `target` when ssh answers, `end` when it will never be there."""

    seen: str
    target: Target | None = None
    end: TrainingMonitorError | None = None
    known: bool = True


def wait_until_ready(
    instance_id: str,
    *,
    timeout: float = 900.0,
    ssh_timeout: float = 20.0,
    on_event: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Target:
    """Wait until an instance runs and answers over ssh.

    Args:
        ssh_timeout: seconds for one try over ssh.
        on_event: is told each change in a line, and once a minute what is still waited for.

    Returns:
        The target, with its ssh address.

    Raises:
        InstanceNotFound: it is gone, by two answers, see `find_instance`.
        CommandFailed: it will never run, by what was seen twice: exited, offline, unknown, stopped, or no such image.
        CommandTimedOut: it is not ready; the text says how far it got.
        TargetUnreachable: nobody knows, the service did not answer in the end.
        AccessDenied: the key of vast.ai is not good enough.
    """
    runner, deadline, wait = transport or LocalTransport(), clock.monotonic() + timeout, READY_EVERY
    last: _Boot | None = None
    told_at = clock.monotonic()
    while True:
        boot = _look_at(instance_id, ssh_timeout, runner, clock)
        is_new, left = last is None or last.seen != boot.seen, format_duration(deadline - clock.monotonic())
        if on_event and (is_new or clock.monotonic() - told_at >= TOLD_EVERY):
            on_event(f"instance {instance_id}: {boot.seen}{'' if is_new else f'; waiting for ssh, for {left} at most'}")
            told_at = clock.monotonic()
        if boot.target:
            return boot.target
        if boot.end and last and last.end:
            raise boot.end
        now, last = clock.monotonic(), boot
        if now >= deadline:
            what = f"instance {instance_id} is not ready after {timeout:g} s: {boot.seen}"
            if not boot.known:
                raise TargetUnreachable(what, target="vast.ai")
            raise CommandTimedOut(what, hint="another machine, or a longer timeout")
        wait = READY_EVERY if boot.known else min(2 * wait, LONGEST_WAIT)
        clock.sleep(min(wait, deadline - now))


def _look_at(instance_id: str, ssh_timeout: float, runner: Transport, clock: Clock) -> _Boot:
    try:
        row = find_instance(instance_id, transport=runner, clock=clock)
    except (AccessDenied, ToolNotFound):
        raise
    except CommandError as error:
        return _Boot(f"its status is unknown ({clean_line(error.what)})", known=False)
    if row is None:
        return _Boot("gone", end=InstanceNotFound(f"instance {instance_id} is gone", hint="another machine"))
    status, said = row.get("actual_status"), row.get("status_msg")
    seen = clean_line(f"{status or 'no status yet'}{f': {said}' if said else ''}")
    if status in _NEVER_RUNNING or (status != "running" and _NO_IMAGE.search(f"{said}")):
        return _Boot(seen, end=CommandFailed(f"instance {instance_id} will not run: {seen}", hint="another machine"))
    return _try_ssh(instance_id, row, ssh_timeout, runner) if status == "running" else _Boot(seen)


def _try_ssh(instance_id: str, row: dict[str, Any], ssh_timeout: float, runner: Transport) -> _Boot:
    question = Question("ready", "echo ready", read_text, min(10.0, ssh_timeout))
    try:
        target = read_address(Target("vast", instance_id), row)
        [answer] = ask(target, question, timeout=ssh_timeout, transport=runner)
        answer.get()
    except ToolNotFound:
        raise
    except CommandError as error:
        return _Boot(f"running, but not over ssh ({clean_line(error.what)})")
    return _Boot("ready", target)
