"""The account's instances by the vastai CLI, whose exit status says nothing: only a complete listing proves anything.

Measured with vastai 1.9.1: without `-y` it asks on a terminal and, with nobody to answer, exits 0 after `Aborted.`; an
API that refuses (401, 404, 500) also exits 0 and prints nothing. Older versions have no `-y` and ask. The flat listing
fails as a whole on one row without a start date; the paged one does not.
"""

from __future__ import annotations

import json
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandFailed
from training_monitor.targets.connect import VAST_TIMEOUT
from training_monitor.targets.transport import LocalTransport, Transport, explain_failure

PAGE, MOST_PAGES = 25, 400
GONE_SECONDS = 120.0
_OLD_CLI = "unrecognized arguments"


def list_instances(*, transport: Transport | None = None) -> list[dict[str, Any]]:
    """All instances of the account, as the service describes them. Raises CommandError when nobody knows."""
    rows: list[dict[str, Any]] = []
    token: str | None = None
    for _ in range(MOST_PAGES):
        more, token = _list_page(token, transport or LocalTransport())
        rows += more
        if not token:
            return rows
    raise CommandFailed(f"vastai lists more than {PAGE * MOST_PAGES} instances")


def _list_page(token: str | None, transport: Transport) -> tuple[list[dict[str, Any]], str | None]:
    argv = ["vastai", "show", "instances", "--raw"]
    following = ["--next-token", token] if token else []
    result = transport.run([*argv, "--limit", str(PAGE), *following], timeout=VAST_TIMEOUT)
    if result.exit_code == 2 and _OLD_CLI in result.stderr:
        result = transport.run(argv, timeout=VAST_TIMEOUT)
    try:
        page = json.loads(result.stdout)
    except ValueError:
        raise explain_failure(result, "vast.ai") from None
    rows = page.get("instances") if isinstance(page, dict) else page
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
        raise explain_failure(result, "vast.ai")
    following_token = page.get("next_token") if isinstance(page, dict) else None
    return rows, str(following_token) if following_token else None


def is_listed(instance_id: str, *, transport: Transport | None = None) -> bool:
    """Whether the account has this instance. Raises CommandError when nobody knows."""
    return any(str(row["id"]) == instance_id for row in list_instances(transport=transport))


def destroy_instance(instance_id: str, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
    """Destroy an instance with all that is on its disk, and see it gone from the account's list.

    One that is not listed is gone already.

    Raises:
        CommandFailed: it is still listed after two minutes: it goes on costing money.
        CommandError: nobody knows, the list could not be had.
    """
    runner = transport or LocalTransport()
    deadline = clock.monotonic() + GONE_SECONDS
    said = ""
    while is_listed(instance_id, transport=runner):
        if clock.monotonic() >= deadline:
            raise CommandFailed(
                f"instance {instance_id} is still there {GONE_SECONDS:g} s after it was to be destroyed"
                + (f" (vastai said: {said})" if said else ""),
                target="vast.ai",
                hint=f"vastai destroy instance {instance_id} -y, or https://cloud.vast.ai/instances/",
            )
        said = _ask_to_destroy(instance_id, runner) or said
        clock.sleep(2.0)


def _ask_to_destroy(instance_id: str, runner: Transport) -> str:
    """What the CLI says to it, on one line."""
    argv = ["vastai", "destroy", "instance", instance_id]
    result = runner.run([*argv, "-y"], timeout=VAST_TIMEOUT)
    if result.exit_code == 2 and _OLD_CLI in result.stderr:
        result = runner.run(argv, timeout=VAST_TIMEOUT, input="y\n")
    return " ".join(f"{result.stdout} {result.stderr}".split())[:300]
