"""List the checkpoints of a directory on a target, and judge their completeness without loading them.

One round trip inspects the newest ones, which is usually enough; if none of them is complete, the next one goes further
back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from training_monitor.checkpoints.completeness import group_checkpoints
from training_monitor.checkpoints.listing import LOOKED_INTO, PARTIAL, WEIGHTS, format_ranking, parse_listing
from training_monitor.core.checkpoint_layouts import TRACKERS
from training_monitor.core.errors import CheckpointNotFound
from training_monitor.core.models import Checkpoint, Question, Reply
from training_monitor.core.values import CheckpointListing
from training_monitor.targets.asking import Site, quote_path
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

ENOUGH, MOST = 100, 2000  # files that the first round trip inspects, and a later one
MOST_FILES = 20_000  # printed by one look, and allowed in one checkpoint
MOST_BYTES = 2_000_000  # of their lines
MOST_WEIGHTS = 2500  # files of one checkpoint to inspect
MOST_UNNUMBERED = 50  # files without a number to inspect, newest first


def checkpoints_question(
    directory: str, quiet_seconds: float = 0.0, *, up_to: int | None = None, enough: int = ENOUGH
) -> Question[CheckpointListing | None]:
    """Ask for the newest checkpoints below a directory, from step `up_to` down; None if there is no such directory."""

    def parse(reply: Reply) -> CheckpointListing | None:
        listing = parse_listing(reply.output, directory)
        ways: Any = {"quiet_seconds": quiet_seconds, "up_to": up_to}
        return None if listing is None else group_checkpoints(listing, directory, **ways)

    endings = [name.removeprefix(".") for name in LOOKED_INTO]
    script = format_call(
        "checkpoints",
        "list_checkpoints",
        _folder=quote_path(directory),
        _up_to="" if up_to is None else up_to,
        _enough=enough,
        _most_files=MOST_FILES,
        _most_bytes=MOST_BYTES,
        _most_weights=MOST_WEIGHTS,
        _most_unnumbered=MOST_UNNUMBERED,
        _ranking=format_ranking(),
        _endings=r"\|".join(name.removeprefix(".") for name in WEIGHTS),
        _partial=PARTIAL.replace("|", r"\|"),
        _looked_into="\n".join(["", *endings, ""]),
        _trackers=r"\|".join(name.replace(".", "[.]") for name in TRACKERS),
        _tracker_names="\n".join(["", *TRACKERS, ""]),
    )
    return Question("checkpoints", script, parse, limit=30.0)


def get_checkpoint_listing(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    quiet_seconds: float = 0.0,
    is_wanted: Callable[[Checkpoint], bool] = lambda checkpoint: True,
    transport: Transport | None = None,
) -> CheckpointListing | None:
    """List the checkpoints of a directory, from the newest back to the newest complete one, and count the older ones.

    Each round trip inspects as many of the newest checkpoints as fit, each of them fully or not at all. The next round
    trip continues with older checkpoints.

    Args:
        head_pod: the target that holds the directory; default: this machine.
        quiet_seconds: treat a checkpoint as incomplete if it was written to in the last `quiet_seconds` seconds; 0
            disables this.
        is_wanted: the listing goes back to a complete checkpoint for which this function returns true.

    Returns:
        A CheckpointListing; None if the directory does not exist.

    Raises:
        CommandError: the target could not be queried.
    """
    site = Site.of(head_pod or "local", namespace, transport)
    found: dict[str, Checkpoint] = {}
    enough, up_to = ENOUGH, None
    while True:
        question = checkpoints_question(checkpoint_dir, quiet_seconds, up_to=up_to, enough=enough)
        page = site.ask_one(question)
        if page is None:
            return None
        found |= {each.path: each for each in page.checkpoints if each.path not in found or each.complete is not None}
        checkpoints, below = sorted(found.values(), key=lambda each: each.step), page.unlooked_step
        wanted = (each for each in checkpoints if each.complete and is_wanted(each))
        if below is None or any(each.step >= below for each in wanted) or (up_to is not None and below >= up_to):
            return CheckpointListing(tuple(checkpoints), page.unlisted, below, page.unrecognized)
        enough, up_to = min(3 * enough, MOST), below


def list_checkpoints(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    quiet_seconds: float = 0.0,
    transport: Transport | None = None,
) -> list[Checkpoint]:
    """List the checkpoints in a directory, lowest step first; `complete` and `problem` show which ones are usable.

    The newest checkpoints are inspected first, back to the newest complete checkpoint; `complete` is None for older
    checkpoints. At most 20,000 files and 2 MB of file names are listed; `get_checkpoint_listing` also returns the
    number of checkpoints beyond these limits.

    The step comes from the header of a safetensors file, otherwise from the number in the name, or from the epoch if a
    framework counts only epochs. If a folder contains numbered files and one without a number
    (`NAME_000000250.safetensors` and `NAME.safetensors`), the file without a number counts as the newest checkpoint of
    its step, even if NAME ends in a number. Files that are overwritten in place or have no number (`last.ckpt`,
    `ckpt.pt`, `model_final.pth`) are listed only if there are no other checkpoints. The step of such a file is read
    from the header if it is a safetensors file; otherwise it is 0 (unknown). If a tracker file names a checkpoint that
    does not exist, that checkpoint is listed as incomplete.

    Args:
        head_pod: the target that holds the directory; default: this machine.
        quiet_seconds: treat a checkpoint as incomplete if it was written to in the last `quiet_seconds` seconds; 0
            disables this.

    Returns:
        The checkpoints; an empty list if the directory has none or does not exist.

    Raises:
        CommandError: the target could not be queried.
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
    """Return the path of the complete checkpoint with the highest step; None if there are no checkpoints at all.

    Raises:
        CheckpointNotFound: there are checkpoints, but none is known to be complete, so you must decide whether to start
            from step 0. Also raised if `head_pod` is not given and the folder does not exist on this machine.
        CommandError: the target could not be queried.
    """
    found = get_checkpoint_listing(checkpoint_dir, head_pod, namespace, transport=transport)
    if found is None and head_pod is None:
        hint = "if it is on another target, pass head_pod=TARGET"
        raise CheckpointNotFound(f"{checkpoint_dir}: no such folder on this machine", hint=hint)
    if found is None or not found.count:
        return None
    if found.newest_complete is None:
        raise CheckpointNotFound(
            f"{checkpoint_dir}: {found.why_none_is_complete}",
            hint="restore a checkpoint, or start from step 0 with fresh_start",
        )
    return found.newest_complete.path


def newest_complete(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the complete checkpoint with the highest step."""
    return next((each for each in reversed(checkpoints) if each.complete), None)
