"""The account's instances by the vastai CLI, whose exit status says nothing: only a complete listing proves anything.

Measured with vastai 1.9.1 (tests/recorded/vastai): an API that refuses (401, 403, 404, 500, `success: false`) exits 0,
and a CLI that asks and hears no answer exits 0 after `Aborted.`. The flat listing prints `[]` for a refusal in an
answer of status 200, and fails as a whole on one row without a start date; the paged one does neither. Older versions
have no pages, no `-y`, and print errors on stdout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandError, CommandFailed, InstanceNotFound, SettingsError, TargetUnreachable
from training_monitor.models import CommandResult
from training_monitor.targets.connect import VAST_TIMEOUT
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.vast.asking import OTHER_KEY_NEXT, explain, find_denial, last_words, read_answer, run_vastai

PAGE, MOST_PAGES = 25, 400
GONE_SECONDS = 120.0
FIRST_WAIT, LONGEST_WAIT = 2.0, 10.0
STOPPED = ("stopped", "exited")
_OLD_CLI = "unrecognized arguments"


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


def is_listed(instance_id: str, *, transport: Transport | None = None) -> bool:
    """Whether the account has this instance. Raises CommandError when nobody knows."""
    number = _number(instance_id)
    return any(row["id"] == number for row in list_instances(transport=transport))


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
    if result.exit_code:  # the CLI ends like this over a row without a start date, which the list has
        return _listed_row(number, runner)
    row = read_answer(result)
    if row == {"instances": None}:
        raise _not_found(number)
    if not isinstance(row, dict) or row.get("id") != number:
        raise explain(result)
    return row


def _listed_row(number: int, runner: Transport) -> dict[str, Any]:
    """Its row in a complete listing. Raises InstanceNotFound, CommandError."""
    for row in list_instances(transport=runner):
        if row["id"] == number:
            return row
    raise _not_found(number)


def _not_found(number: int) -> InstanceNotFound:
    return InstanceNotFound(f"vast://{number}: no such instance in this account", hint="vastai show instances")


def destroy_instance(instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
    """Destroy an instance with all that is on its disk, and see it gone from the account's list.

    One that is not listed is gone already. Whoever was interrupted calls again.

    Raises:
        CommandFailed: it is still listed after two minutes: it goes on costing money.
        AccessDenied: the key may not list or not destroy.
        CommandError: nobody knows, the list could not be had.
    """
    number, runner = _number(instance_id), transport or LocalTransport()
    if not is_listed(instance_id, transport=runner):
        return
    said = _ask_until(
        lambda: _ask_to_destroy(number, runner), lambda: not is_listed(instance_id, transport=runner), clock
    )
    if said is not None:
        raise CommandFailed(
            f"instance {number} is still there {GONE_SECONDS:g} s after it was to be destroyed (vastai said: {said})",
            target="vast.ai",
            hint=f"vastai destroy instance {number} -y, or https://cloud.vast.ai/instances/",
        )


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
    _listed_row(number, runner)
    said = _ask_until(lambda: _ask_to_stop(number, runner), lambda: is_stopped(_listed_row(number, runner)), clock)
    if said is not None:
        raise CommandFailed(
            f"instance {number} is not stopped {GONE_SECONDS:g} s after it was to be (vastai said: {said})",
            target="vast.ai",
            hint=f"vastai stop instance {number}, or https://cloud.vast.ai/instances/",
        )


def is_stopped(row: Mapping[str, Any]) -> bool:
    """Whether the service says that an instance is stopped, and is to be."""
    status = row.get("actual_status")
    stopped = status in STOPPED or row.get("cur_state") in STOPPED
    return stopped and status != "running" and row.get("intended_status") != "running"


def _ask_until(ask: Callable[[], str], is_done: Callable[[], bool], clock: Clock) -> str | None:
    """Ask for something until it is seen done: None; after two minutes what vastai said to it."""
    deadline = clock.monotonic() + GONE_SECONDS
    said, wait = "", FIRST_WAIT
    while True:
        said = ask() or said
        clock.sleep(min(wait, deadline - clock.monotonic()))
        if is_done():
            return None
        if clock.monotonic() >= deadline:
            return said or "nothing"
        wait = min(2 * wait, LONGEST_WAIT)


def _ask_to_destroy(number: int, runner: Transport) -> str:
    """What the CLI says to it, on one line. Raises AccessDenied: to ask again would be no use."""
    argv = ["vastai", "destroy", "instance", str(number)]
    result = runner.run([*argv, "-y"], timeout=VAST_TIMEOUT, input="y\n")
    if result.exit_code == 2 and _OLD_CLI in result.stderr:
        result = runner.run(argv, timeout=VAST_TIMEOUT, input="y\n")
    return _read_said(result)


def _ask_to_stop(number: int, runner: Transport) -> str:
    """What the CLI says to it, on one line. Raises AccessDenied: to ask again would be no use."""
    return _read_said(runner.run(["vastai", "stop", "instance", str(number)], timeout=VAST_TIMEOUT))


def _read_said(result: CommandResult) -> str:
    if OTHER_KEY_NEXT not in result.stdout and (denial := find_denial(result)):
        raise denial
    return last_words(result)
