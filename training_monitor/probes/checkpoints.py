"""Checkpoints of a directory on a target, the newest first, judged complete or not without loading them.

One round trip looks at the newest ones, and usually that is enough; where none of these is complete, the next one looks
further back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from training_monitor.errors import CheckpointNotFound
from training_monitor.models import Checkpoint, Question, Reply
from training_monitor.parse.checkpoint_files import group_checkpoints
from training_monitor.parse.checkpoint_listing import parse_listing
from training_monitor.policy.restart import why_none_is_complete
from training_monitor.probes.checkpoint_script import format_listing_script
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.watching import CheckpointListing

ENOUGH, MOST = 100, 2000  # files that are looked into by the first round trip, and by a later one


def checkpoints_question(
    directory: str, quiet_seconds: float = 0.0, *, up_to: int | None = None, enough: int = ENOUGH
) -> Question[CheckpointListing | None]:
    """The newest checkpoints below a directory, from step `up_to` down; None when the directory does not exist."""

    def parse(reply: Reply) -> CheckpointListing | None:
        listing = parse_listing(reply.output, directory)
        ways: Any = {"quiet_seconds": quiet_seconds, "up_to": up_to}
        return None if listing is None else group_checkpoints(listing, directory, **ways)

    return Question("checkpoints", format_listing_script(directory, enough, up_to), parse, limit=30.0)


def get_checkpoint_listing(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    quiet_seconds: float = 0.0,
    passed_over: Collection[str] = (),
    transport: Transport | None = None,
) -> CheckpointListing | None:
    """The checkpoints of a directory from the newest back to the newest complete one, and what else is there.

    Each round trip looks at as many of the newest as fit, whole or not at all, and the next one goes on below them.

    Args:
        head_pod: the target that has the directory; default: this machine.
        quiet_seconds: call a checkpoint incomplete that was written to within this time (0: do not).
        passed_over: paths of checkpoints that are not wanted: it looks back to a complete one that is none of them.

    Returns:
        CheckpointListing; None when the directory does not exist.

    Raises:
        CommandError: the target could not be asked.
    """
    found: dict[str, Checkpoint] = {}
    enough, up_to = ENOUGH, None
    while True:
        question = checkpoints_question(checkpoint_dir, quiet_seconds, up_to=up_to, enough=enough)
        [answer] = ask(head_pod or "local", question, namespace=namespace, transport=transport)
        page = answer.get()
        if page is None:
            return None
        found |= {each.path: each for each in page.checkpoints if each.path not in found or each.complete is not None}
        checkpoints, below = sorted(found.values(), key=lambda each: each.step), page.unlooked_step
        wanted = (each for each in checkpoints if each.complete and each.path not in passed_over)
        if below is None or any(each.step >= below for each in wanted) or (up_to is not None and below >= up_to):
            return CheckpointListing(tuple(checkpoints), page.unlisted, below)
        enough, up_to = min(3 * enough, MOST), below


def list_checkpoints(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    quiet_seconds: float = 0.0,
    transport: Transport | None = None,
) -> list[Checkpoint]:
    """The checkpoints of a directory, lowest step first; `complete` and `problem` say which can be used.

    It looks at the newest first, back to the newest complete one: `complete` is None for what it did not look at, and
    of a folder of more than 20,000 files or 2 MB of their names those are left out; `get_checkpoint_listing` counts
    them.

    The step is the one in the header of a safetensors file, else the number in the name, and the epoch where a
    framework counts only these. A final file without a number (`NAME.safetensors` beside
    `NAME_000000250.safetensors`, whatever NAME ends in) is the newest at its step. Files that are overwritten in
    place or have no number (`last.ckpt`, `ckpt.pt`, `model_final.pth`) are listed only where nothing else is: their
    step is the one in a safetensors header, or else 0 because it is unknown. A checkpoint that a tracker file names
    and that is missing is listed as not complete.

    Args:
        head_pod: the target that has the directory; default: this machine.
        quiet_seconds: call a checkpoint incomplete that was written to within this time (0: do not).

    Returns:
        Checkpoints; an empty list when there are none or the directory does not exist.

    Raises:
        CommandError: the target could not be asked.
    """
    found = get_checkpoint_listing(
        checkpoint_dir, head_pod, namespace, quiet_seconds=quiet_seconds, transport=transport
    )
    return list(found.checkpoints) if found else []


def find_latest_checkpoint(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> str | None:
    """The path of the complete checkpoint with the highest step; None when there is no checkpoint at all.

    Raises:
        CheckpointNotFound: there are checkpoints, and none is known to be complete: starting from zero must be a
            decision.
        CommandError: the target could not be asked.
    """
    found = get_checkpoint_listing(checkpoint_dir, head_pod, namespace, transport=transport)
    if found is None or not found.count:
        return None
    if found.newest_complete is None:
        raise CheckpointNotFound(
            f"{checkpoint_dir}: {why_none_is_complete(found)}", hint="restore one, or start fresh on purpose"
        )
    return found.newest_complete.path


def newest_complete(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The complete checkpoint with the highest step."""
    return next((each for each in reversed(checkpoints) if each.complete), None)
