"""The account's instances by the vastai CLI, whose exit status says nothing.

A complete listing proves what is there. That something is gone it does not prove alone: a well-formed listing may be
empty, or lack half of the rows. Gone is what `show instance` and, some seconds later, a complete listing do not know.

Measured with vastai 1.9.1 (tests/recorded/vastai): an API that refuses (401, 403, 404, 500, `success: false`) exits 0,
and a CLI that asks and hears no answer exits 0 after `Aborted.`. The flat listing prints `[]` for a refusal in an
answer of status 200, and fails as a whole on one row without a start date; the paged one does neither. Older versions
have no pages, no `-y`, and print errors on stdout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandError, CommandFailed, InstanceNotFound, SettingsError, TargetUnreachable
from training_monitor.models import CommandResult
from training_monitor.targets.connect import VAST_TIMEOUT
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.asking import OTHER_KEY_NEXT, explain, find_denial, last_words, read_answer, run_vastai

PAGE, MOST_PAGES = 25, 400
GONE_SECONDS = 120.0
APART_SECONDS = 5.0  # between the two answers that say that an instance is gone
FIRST_WAIT, LONGEST_WAIT = 2.0, 10.0
STOPPED = ("stopped", "exited")
_OLD_CLI = "unrecognized arguments"
_NULL_ROW = "'NoneType' object is not subscriptable"  # how older versions end over an instance that is not there


@dataclass(frozen=True, slots=True)
class Destruction:
    """An instance that was asked to be destroyed, and is gone by two answers that do not depend on one another.

    `acknowledged` says that the service took the request; else the instance was gone before, or the answer was lost.
    """

    instance_id: int
    acknowledged: bool


def list_instances(*, transport: Transport | None = None) -> list[dict[str, Any]]:
    """All instances of the account, as the service describes them. Raises CommandError when nobody knows."""
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
            raise TargetUnreachable(f"it lists only {len(rows)} of {total} instances", target="vast.ai")
        return list(rows.values())
    raise TargetUnreachable(f"its list of instances does not end ({len(seen)} pages)", target="vast.ai")


def _list_page(token: str | None, runner: Transport) -> tuple[list[dict[str, Any]], str | None, int]:
    """One page, the token of the next one, and how many instances there are at least."""
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
    """All instances of the account by one command, for a refresh every few seconds.

    The flat listing proves little: where it fails, is empty, has a row that is none or lacks one of `known`, the
    complete one decides.

    Args:
        known: the instances that are taken to be there.

    Raises:
        CommandError: nobody knows.
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
    """The id as the service counts: what is no number would never be listed, and so pass for destroyed."""
    if not re.fullmatch(r"[0-9]{1,18}", instance_id):
        raise SettingsError("instance_id", instance_id, "a number, as in `vastai show instances`")
    return int(instance_id)


def show_instance(instance_id: str, *, transport: Transport | None = None) -> dict[str, Any]:
    """One instance, as the service describes it.

    Raises:
        InstanceNotFound: the service says that there is no such instance.
        CommandError: nobody knows.
    """
    number, runner = _number(instance_id), transport or LocalTransport()
    result = run_vastai(["vastai", "show", "instance", str(number), "--raw"], runner)
    if result.exit_code and _NULL_ROW in result.stderr:
        raise _not_found(number)
    if result.exit_code:  # the CLI ends like this over a row without a start date, which the list has
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
    """One instance, as the service describes it; None when two answers agree that there is none.

    The answers are that of `show instance` and, 5 s later, a complete listing. Raises CommandError when nobody knows.
    """
    try:
        return show_instance(instance_id, transport=transport)
    except InstanceNotFound:
        clock.sleep(APART_SECONDS)
    return _listed_row(_number(instance_id), transport or LocalTransport())


def _listed_row(number: int, runner: Transport) -> dict[str, Any] | None:
    """Its row in a complete listing; None is no proof that it is gone. Raises CommandError."""
    return next((row for row in list_instances(transport=runner) if row["id"] == number), None)


def _not_found(number: int) -> InstanceNotFound:
    return InstanceNotFound(f"vast://{number}: no such instance in this account", hint="vastai show instances")


def destroy_instance(
    instance_id: str,
    *,
    on_event: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Destruction:
    """Destroy an instance with all that is on its disk, and see it gone by two answers, see `find_instance`.

    The request is always sent, also for one that seems to be gone. Whoever was interrupted calls again.

    Args:
        on_event: is told what is waited for, in a line.

    Raises:
        CommandFailed: it is still there after two minutes: it goes on costing money.
        AccessDenied: the key may not list or not destroy.
        CommandError: nobody knows whether it is gone.
    """
    number, runner = _number(instance_id), transport or LocalTransport()

    def is_gone() -> bool:
        return find_instance(instance_id, transport=runner, clock=clock) is None

    what = f"instance {number} to be gone"
    asked = _ask_until(lambda: _ask_to_destroy(number, runner), is_gone, what, on_event, clock)
    if not asked.done:
        raise CommandFailed(
            f"instance {number} is still there {GONE_SECONDS:g} s after it was to be destroyed"
            f" (vastai said: {asked.said or 'nothing'})",
            target="vast.ai",
            hint=f"vastai destroy instance {number} -y, or https://cloud.vast.ai/instances/",
        )
    return Destruction(number, asked.acknowledged)


def stop_instance(instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
    """Stop an instance and see it stopped: its GPUs cost nothing more, its disk is kept and goes on costing money.

    Whoever was interrupted calls again.

    Raises:
        InstanceNotFound: it is gone, with its disk.
        CommandFailed: it is not stopped after two minutes.
        AccessDenied: the key may not list or not stop.
        CommandError: nobody knows, the list could not be had.
    """
    number, runner = _number(instance_id), transport or LocalTransport()

    def is_down() -> bool:
        row = find_instance(instance_id, transport=runner, clock=clock)
        if row is None:
            raise _not_found(number)
        return is_stopped(row)

    is_down()  # one that is gone cannot be stopped
    asked = _ask_until(lambda: _ask_to_stop(number, runner), is_down, f"instance {number} to stop", None, clock)
    if not asked.done:
        raise CommandFailed(
            f"instance {number} is not stopped {GONE_SECONDS:g} s after it was to be"
            f" (vastai said: {asked.said or 'nothing'})",
            target="vast.ai",
            hint=f"vastai stop instance {number}, or https://cloud.vast.ai/instances/",
        )


def is_stopped(row: Mapping[str, Any]) -> bool:
    """Whether the service says that an instance is stopped, and is to be."""
    status = row.get("actual_status")
    stopped = status in STOPPED or row.get("cur_state") in STOPPED
    return stopped and status != "running" and row.get("intended_status") != "running"


@dataclass(slots=True)
class _Asked:
    """What became of a request that was sent until it was seen done, or two minutes long."""

    done: bool = False
    acknowledged: bool = False  # the service took one of the requests
    said: str = ""  # by vastai, to the last of them that it said anything to


def _ask_until(
    ask: Callable[[], tuple[bool, str]],
    is_done: Callable[[], bool],
    what: str,
    on_event: Callable[[str], None] | None,
    clock: Clock,
) -> _Asked:
    """Ask for something until it is seen done, for at most two minutes; `what` says what is waited for."""
    deadline, wait, asked = clock.monotonic() + GONE_SECONDS, FIRST_WAIT, _Asked()
    while True:
        taken, said = ask()
        asked.acknowledged, asked.said = asked.acknowledged or taken, said or asked.said
        clock.sleep(min(wait, deadline - clock.monotonic()))
        asked.done = is_done()
        left = deadline - clock.monotonic()
        if asked.done or left <= 0:
            return asked
        wait = min(2 * wait, LONGEST_WAIT)
        if on_event:
            on_event(f"waiting for {what}, for {left:.0f} s at most; vastai said: {asked.said or 'nothing'}")


def _ask_to_destroy(number: int, runner: Transport) -> tuple[bool, str]:
    """Whether the service took it, and what the CLI says. Raises AccessDenied: to ask again would be no use."""
    argv = ["vastai", "destroy", "instance", str(number)]
    result = runner.run([*argv, "-y"], timeout=VAST_TIMEOUT, input="y\n")
    if result.exit_code == 2 and _OLD_CLI in result.stderr:
        result = runner.run(argv, timeout=VAST_TIMEOUT, input="y\n")
    return _read_reply(result, f"destroying instance {number}.")


def _ask_to_stop(number: int, runner: Transport) -> tuple[bool, str]:
    """Whether the service took it, and what the CLI says. Raises AccessDenied: to ask again would be no use."""
    result = runner.run(["vastai", "stop", "instance", str(number)], timeout=VAST_TIMEOUT)
    return _read_reply(result, f"stopping instance {number}.")


def _read_reply(result: CommandResult, expected: str) -> tuple[bool, str]:
    """Whether it ends with what the CLI prints when the service said yes, and its last words."""
    if OTHER_KEY_NEXT not in result.stdout and (denial := find_denial(result)):
        raise denial
    return result.exit_code == 0 and result.stdout.rstrip().endswith(expected), last_words(result)
