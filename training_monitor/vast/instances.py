"""List, show, stop and destroy the account's instances through the vastai CLI, and wait until one answers over ssh.

A complete listing proves that an instance exists. It does not prove that one is gone: a well-formed listing may be
empty, or lack half of the rows. An instance is gone if neither `show instance` nor, some seconds later, a complete
listing has it.

Measured with vastai 1.9.1 (tests/recorded/vastai): if the API refuses (401, 403, 404, 500, `success: false`), the CLI
exits 0; if it asks for confirmation and gets none, it exits 0 after `Aborted.`. The flat listing prints `[]` for a
refusal with HTTP status 200, and fails as a whole on one row without a start date; the paged one does neither. Older
versions have no pages, no `-y`, and print errors on stdout. A running instance takes another minute until ssh answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    InstanceNotFound,
    SettingsError,
    TargetUnreachable,
    ToolNotFound,
    TrainingMonitorError,
)
from training_monitor.core.fields import PublicValue
from training_monitor.core.image_errors import ELSEWHERE, cannot_start
from training_monitor.core.models import Question
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration
from training_monitor.targets.asking import ask, read_text
from training_monitor.targets.kinds.vast import VAST_TIMEOUT, VastTarget
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.asking import (
    OTHER_KEY_NEXT,
    clean_line,
    explain,
    find_denial,
    last_words,
    read_answer,
    run_vastai,
)
from training_monitor.vast.rentals import note_answer, note_end, note_sent, record_life
from training_monitor.vast.rows import is_scheduled, is_stopped

PAGE, MOST_PAGES = 25, 400
GONE_SECONDS = 120.0
APART_SECONDS = 5.0  # between the two answers that prove that an instance is gone
FIRST_WAIT, LONGEST_WAIT = 2.0, 10.0
_NOT_THERE = regex(r"\berror 404\b")
_OLD_CLI = "unrecognized arguments"
_NULL_ROW = "'NoneType' object is not subscriptable"  # how older versions fail on an instance that does not exist
READY_EVERY, READY_AT_MOST = 5.0, 30.0
TOLD_EVERY = 60.0  # seconds between two lines that report the wait
_NEVER_RUNNING = ("exited", "offline", "unknown", "stopped")


@dataclass(frozen=True, slots=True, repr=False)
class Destruction(PublicValue):
    """A destroyed instance. Two independent responses confirm that it no longer exists.

    `acknowledged` is true if the service accepted the request. Otherwise, the instance no longer existed, or the
    response was lost.
    """

    instance_id: int
    acknowledged: bool


def list_instances(*, transport: Transport | None = None) -> list[dict[str, Any]]:
    """Return all instances of the account, as described by the service. Raises CommandError if they are unknown."""
    runner = transport or LocalTransport()
    rows: dict[int, dict[str, Any]] = {}
    seen: set[str | None] = set()
    token: str | None = None
    while token not in seen and len(seen) < MOST_PAGES:
        seen.add(token)
        page, token, total = _list_page(token, runner)
        rows.update((row["id"], row) for row in page)
        if token:
            continue
        if len(rows) < total:
            raise TargetUnreachable(f"the response lists only {len(rows)} of {total} instances", target="vast.ai")
        return list(rows.values())
    raise TargetUnreachable(f"the list of instances has too many pages ({len(seen)} pages)", target="vast.ai")


def _list_page(token: str | None, runner: Transport) -> tuple[list[dict[str, Any]], str | None, int]:
    """Return one page, the token of the next one, and a lower bound for the number of instances."""
    argv = ["vastai", "show", "instances", "--raw"]
    paged = [*argv, "--limit", str(PAGE), *([f"--next-token={token}"] if token else [])]
    result = run_vastai(paged, runner)
    if result.exit_code == 2 and _OLD_CLI in result.stderr and not token:
        result = run_vastai(argv, runner)
    page = read_answer(result)
    if isinstance(page, list):
        page = {"instances": page}
    if not isinstance(page, dict):
        raise explain(result)
    rows, following, total = page.get("instances"), page.get("next_token"), page.get("total_instances")
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise explain(result)
    if following is not None and not isinstance(following, str):
        raise explain(result)
    return rows, following or None, total if isinstance(total, int) else 0


def list_instances_at_once(known: Collection[int] = (), *, transport: Transport | None = None) -> list[dict[str, Any]]:
    """Return all instances of the account with one command, so that a caller can refresh every few seconds.

    The flat listing is unreliable. If it fails, is empty, has an invalid row or lacks an instance in `known`, the
    complete listing is used instead.

    Args:
        known: the instances that should exist.

    Raises:
        CommandError: the instances could not be listed.
    """
    runner = transport or LocalTransport()
    result = run_vastai(["vastai", "show", "instances", "--raw"], runner)
    try:
        rows = read_answer(result)
    except CommandError:
        rows = None
    if isinstance(rows, list) and rows and all(map(_is_row, rows)):
        found = {row["id"]: row for row in rows}
        if found.keys() >= set(known):
            return list(found.values())
    return list_instances(transport=runner)


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and type(row.get("id")) is int


def _number(instance_id: str) -> int:
    """Return the id as a number: anything else would never be listed, and so would seem to be destroyed."""
    if not re.fullmatch(r"[0-9]{1,18}", instance_id):
        raise SettingsError("instance_id", instance_id, "an instance ID from `vastai show instances`")
    return int(instance_id)


def show_instance(instance_id: str, *, transport: Transport | None = None) -> dict[str, Any]:
    """Return one instance, as described by the service.

    Raises:
        InstanceNotFound: the service reports that there is no such instance.
        CommandError: it is unknown whether the instance exists.
    """
    number, runner = _number(instance_id), transport or LocalTransport()
    result = run_vastai(["vastai", "show", "instance", str(number), "--raw"], runner)
    if result.exit_code and _NULL_ROW in result.stderr:
        raise _not_found(number)
    if result.exit_code:  # the CLI also fails like this on a row without a start date, which the list has
        if row := _listed_row(number, runner):
            return row
        raise explain(result)
    row = read_answer(result)
    if row == {"instances": None}:
        raise _not_found(number)
    if not isinstance(row, dict) or row.get("id") != number:
        raise explain(result)
    return row


def find_instance(
    instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK
) -> dict[str, Any] | None:
    """Return one instance, as described by the service; None if two responses agree that it does not exist.

    The two responses are from `show instance` and, 5 s later, from a complete listing. Raises CommandError if it is
    unknown whether the instance exists.
    """
    try:
        return show_instance(instance_id, transport=transport)
    except InstanceNotFound:
        clock.sleep(APART_SECONDS)
    return _listed_row(_number(instance_id), transport or LocalTransport())


def _listed_row(number: int, runner: Transport) -> dict[str, Any] | None:
    """Return its row in a complete listing; None does not prove that it is gone. Raises CommandError."""
    return next((row for row in list_instances(transport=runner) if row["id"] == number), None)


def _not_found(number: int) -> InstanceNotFound:
    return InstanceNotFound(
        f"vast://{number}: no such instance in this account", hint="list the instances with `vastai show instances`"
    )


def destroy_instance(
    instance_id: str,
    *,
    on_event: Callable[[str], None] | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Destruction:
    """Destroy an instance with its disk, and verify by two responses that it no longer exists; see `find_instance`.

    The request is always sent, even if the instance seems to be gone. If this function is interrupted, call it again.

    Args:
        on_event: called with a line that describes what the function is waiting for.
        store: contains the jobs. If one of them rented the instance, the time at which the instance ended is recorded
            there.

    Raises:
        CommandFailed: after two minutes, the instance still exists and still costs money.
        AccessDenied: the API key does not permit listing or destroying instances.
        CommandError: it is unknown whether the instance still exists.
    """
    number, runner = _number(instance_id), transport or LocalTransport()

    def ask_to_destroy() -> tuple[bool, str]:
        sent = clock.time()
        record_life(store, number, lambda known: note_sent(known, sent))
        taken, said = _ask_to_destroy(number, runner)
        if taken or _NOT_THERE.search(said):
            now = clock.time()
            record_life(store, number, lambda known: note_answer(known, sent, now, acknowledged=taken))
        return taken, said

    acknowledged = _ask_until(
        ask_to_destroy,
        lambda: find_instance(instance_id, transport=runner, clock=clock) is None,
        f"waiting for instance {number} to disappear",
        f"instance {number} still exists {GONE_SECONDS:g} s after its destruction was requested",
        hint=f"vastai destroy instance {number} -y, or https://cloud.vast.ai/instances/",
        on_event=on_event,
        clock=clock,
    )
    record_life(store, number, note_end)
    return Destruction(number, acknowledged)


def stop_instance(instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
    """Stop an instance, and verify this. Its GPUs no longer cost anything; its disk is kept and still costs money.

    If this function is interrupted, call it again.

    Raises:
        InstanceNotFound: the instance no longer exists, nor does its disk.
        CommandFailed: the instance has not stopped after two minutes.
        AccessDenied: the API key does not permit listing or stopping instances.
        CommandError: the instances could not be listed.
    """
    runner = transport or LocalTransport()

    def is_down() -> bool:
        return is_stopped(_row_of(instance_id, runner, clock))

    is_down()  # raises if it is gone
    _send_until(instance_id, ("stop", "stopping"), is_down, "not stopped", runner, clock)


def start_instance(instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
    """Start a stopped instance, and verify that it is to run: from then on it costs money.

    Whether its machine has free GPUs is seen later: until then its status is `scheduling` or `loading`.

    Raises:
        InstanceNotFound: it is gone.
        CommandFailed: after two minutes it is still stopped.
        AccessDenied: the key does not permit listing or starting.
        CommandError: the instances could not be listed.
    """
    runner = transport or LocalTransport()

    def is_up() -> bool:
        row = _row_of(instance_id, runner, clock)
        return row.get("actual_status") == "running" or row.get("intended_status") == "running"

    if not is_up():
        _send_until(instance_id, ("start", "starting"), is_up, "still stopped", runner, clock)


def _send_until(
    instance_id: str, verb: tuple[str, str], holds: Callable[[], bool], wrong: str, runner: Transport, clock: Clock
) -> None:
    """Ask vast.ai to stop or start an instance until `holds`; `wrong` is the state in which it is left otherwise."""
    (word, doing), number = verb, _number(instance_id)
    argv = ["vastai", word, "instance", str(number)]
    _ask_until(
        lambda: _read_reply(runner.run(argv, timeout=VAST_TIMEOUT), f"{doing} instance {number}."),
        holds,
        f"waiting for instance {number} to {word}",
        f"instance {number} is {wrong} {GONE_SECONDS:g} s after its {word} was requested",
        hint=f"vastai {word} instance {number}, or https://cloud.vast.ai/instances/",
        on_event=None,
        clock=clock,
    )


def reboot_instance(instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
    """Stop and start the container of a running instance, and verify that it went down; its disk is kept.

    The request is sent once, as a second one would reboot it again.

    Raises:
        InstanceNotFound: it is gone.
        CommandFailed: it is not running, the service refuses, or it was not seen to go down within two minutes.
        AccessDenied: the key does not permit listing or rebooting.
        CommandError: the instances could not be listed.
    """
    number, runner = _number(instance_id), transport or LocalTransport()
    status = _row_of(instance_id, runner, clock).get("actual_status")
    if status != "running":
        raise CommandFailed(f"instance {number} is not running (status: {status or 'unknown'})", target="vast.ai")
    argv = ["vastai", "reboot", "instance", str(number)]
    taken, said = _read_reply(runner.run(argv, timeout=VAST_TIMEOUT), f"Rebooting instance {number}.")
    if not taken:
        raise CommandFailed(
            f"instance {number} was not rebooted; vastai printed: {said or 'nothing'}", target="vast.ai"
        )
    deadline = clock.monotonic() + GONE_SECONDS
    while _row_of(instance_id, runner, clock).get("actual_status") == "running":
        if clock.monotonic() >= deadline:
            what = f"instance {number} did not shut down within {GONE_SECONDS:g} s after the reboot was accepted"
            raise CommandFailed(what, target="vast.ai", hint="check whether the instance's processes were restarted")
        clock.sleep(FIRST_WAIT)


def _row_of(instance_id: str, runner: Transport, clock: Clock) -> dict[str, Any]:
    """Return an instance as the service describes it. Raises InstanceNotFound if two answers agree that it is gone."""
    row = find_instance(instance_id, transport=runner, clock=clock)
    if row is None:
        raise _not_found(_number(instance_id))
    return row


def _ask_until(
    ask: Callable[[], tuple[bool, str]],
    is_done: Callable[[], bool],
    waiting: str,
    undone: str,
    *,
    hint: str,
    on_event: Callable[[str], None] | None,
    clock: Clock,
) -> bool:
    """Repeat a request until its effect is seen; True if the service accepted one of the requests.

    `waiting` is the message meanwhile. Raises CommandFailed with `undone` after two minutes.
    """
    deadline, wait, acknowledged, said = clock.monotonic() + GONE_SECONDS, FIRST_WAIT, False, ""
    while True:
        taken, newest = ask()
        acknowledged, said = acknowledged or taken, newest or said
        clock.sleep(min(wait, deadline - clock.monotonic()))
        if is_done():
            return acknowledged
        if (left := deadline - clock.monotonic()) <= 0:
            raise CommandFailed(f"{undone} (vastai printed: {said or 'nothing'})", target="vast.ai", hint=hint)
        wait = min(2 * wait, LONGEST_WAIT)
        if on_event:
            on_event(f"{waiting}, for at most {left:.0f} s; vastai printed: {said or 'nothing'}")


def _ask_to_destroy(number: int, runner: Transport) -> tuple[bool, str]:
    """Return whether the service accepted it, and the CLI's output. Raises AccessDenied: a retry would not help."""
    argv = ["vastai", "destroy", "instance", str(number)]
    # Tried once: if the CLI itself tried again after a lost reply, it would say that there was no such instance.
    result = runner.run([*argv, "-y", "--retry", "1"], timeout=VAST_TIMEOUT, input="y\n")
    if result.exit_code == 2 and _OLD_CLI in result.stderr:
        result = runner.run(argv, timeout=VAST_TIMEOUT, input="y\n")
    return _read_reply(result, f"destroying instance {number}.")


def _read_reply(result: CommandResult, expected: str) -> tuple[bool, str]:
    """Return whether the service accepted it, and the CLI's last words. Raises AccessDenied: a retry would not help."""
    if OTHER_KEY_NEXT not in result.stdout and (denial := find_denial(result)):
        raise denial
    return result.exit_code == 0 and result.stdout.rstrip().endswith(expected), last_words(result)


# ---------------------------------------------------------------- until it is ready


class _Boot(NamedTuple):
    """The progress of an instance's boot: `target` once ssh answers, `end` if it will never run."""

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
    """Wait until an instance is running and responds over ssh.

    Args:
        ssh_timeout: maximum seconds for one ssh attempt.
        on_event: called with a line for each change, and once a minute while waiting.

    Returns:
        The target, with its ssh address.

    Raises:
        InstanceNotFound: two responses agree that the instance does not exist; see `find_instance`.
        CommandFailed: two looks found that the instance will never run: exited, offline, unknown, stopped, or no such
            image.
        CommandTimedOut: the instance is not ready; the message describes how far it got.
        TargetUnreachable: the status is unknown, because the service did not respond at the end.
        AccessDenied: the vast.ai API key lacks a permission.
    """
    runner, deadline, wait = transport or LocalTransport(), clock.monotonic() + timeout, READY_EVERY
    last: _Boot | None = None
    told_at = clock.monotonic()
    while True:
        boot = _look_at(instance_id, ssh_timeout, runner, clock)
        is_new, left = last is None or last.seen != boot.seen, format_duration(deadline - clock.monotonic())
        if on_event and (is_new or clock.monotonic() - told_at >= TOLD_EVERY):
            on_event(f"instance {instance_id}: {boot.seen}{'' if is_new else f'; waiting for ssh, for at most {left}'}")
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
            raise CommandTimedOut(what, hint="use another machine, or a longer timeout")
        wait = READY_EVERY if boot.known else min(2 * wait, READY_AT_MOST)
        clock.sleep(min(wait, deadline - now))


def _look_at(instance_id: str, ssh_timeout: float, runner: Transport, clock: Clock) -> _Boot:
    try:
        row = find_instance(instance_id, transport=runner, clock=clock)
    except (AccessDenied, ToolNotFound):
        raise
    except CommandError as error:
        return _Boot(f"its status is unknown ({clean_line(error.what)})", known=False)
    if row is None:
        return _Boot(
            "gone", end=InstanceNotFound(f"instance {instance_id} no longer exists", hint="use another machine")
        )
    status, said = row.get("actual_status"), row.get("status_msg")
    seen = clean_line(f"{status or 'no status yet'}{f': {said}' if said else ''}")
    if is_scheduled(row):
        return _Boot(f"{seen}, waiting for a free GPU of its machine")
    if status in _NEVER_RUNNING or is_stopped(row) or (status != "running" and cannot_start(f"{said}")):
        return _Boot(seen, end=CommandFailed(f"instance {instance_id} cannot start: {seen}", hint=ELSEWHERE))
    return _try_ssh(instance_id, row, ssh_timeout, runner) if status == "running" else _Boot(seen)


def _try_ssh(instance_id: str, row: dict[str, Any], ssh_timeout: float, runner: Transport) -> _Boot:
    question = Question("ready", "echo ready", read_text, min(10.0, ssh_timeout))
    try:
        target = VastTarget(instance_id).at_address(row)
        [answer] = ask(target, question, timeout=ssh_timeout, transport=runner)
        answer.get()
    except ToolNotFound:
        raise
    except CommandError as error:
        return _Boot(f"running, but not reachable over ssh ({clean_line(error.what)})")
    return _Boot("ready", target)
