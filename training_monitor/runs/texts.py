"""Turn the texts of a run's files into the run, for this machine and others alike.

A file that did not change since the last listing of a target's folder is not parsed again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from training_monitor.core.errors import ParseError
from training_monitor.core.frozen import dataclass
from training_monitor.runs.files import PROGRESS, RunFiles, place_below, runs_from_names
from training_monitor.runs.progress_file import NotAProgressFile, parse_progress_file
from training_monitor.runs.remote_answers import FolderListing
from training_monitor.runs.values import Run

Mark = TypeVar("Mark")  # identifies a file's content: its text, or its signature
FILE_BYTES = 256 * 1024  # the limit for one progress or control file on a target
_MAX_ERROR = 300


def read_run(files: RunFiles, text: str, control: str | None, before: Run | None) -> Run | None:
    """Return the run of these texts; if they cannot be parsed, the previous run, with the reason.

    Args:
        files: with absolute paths.
        control: text of its control file, None if there is none.

    Returns:
        None for a file that is JSON of something else, unless its path can only be a run's.
    """
    try:
        return parse_progress_file(
            text,
            name=files.name,
            path=files.progress_path,
            control_path=files.control_path,
            folder=files.folder,
            control=control,
        )
    except ParseError as error:
        is_of_others = isinstance(error, NotAProgressFile) and files.folder is None
        return None if is_of_others else unread_run(files, before, error.what)


def unread_run(files: RunFiles, before: Run | None, error: str) -> Run:
    """Return the previous run, if there was one, with the reason why its file cannot be read."""
    run = before or Run(files.name, files.progress_path, files.control_path, files.folder)
    return replace(run, error=error[:_MAX_ERROR])


# ---------------------------------------------------------------- the runs of a listing


@dataclass(frozen=True, slots=True)
class KnownRun(Generic[Mark]):
    """The last reading of a run: its files, a mark of the content of each, and the run (None: the file is not a run's).

    A mark is None if there is nothing to compare: the file is gone, or may still change.
    """

    files: RunFiles
    progress: Mark | None
    control: Mark | None
    run: Run | None


def read_runs(listing: FolderListing, before: Mapping[str, KnownRun[str]]) -> dict[str, KnownRun[str]]:
    """Return the runs by the path of their progress file, in natural order; unchanged files are not parsed again."""
    flat = [name for name in listing.names if "/" not in name]
    folders = [name.removesuffix(f"/{PROGRESS}") for name in listing.names if name.endswith(f"/{PROGRESS}")]
    found = {}
    for files in runs_from_names(flat, folders, here=posixpath.basename(listing.root) or "run"):
        path = posixpath.join(listing.root, files.progress_path)
        if known := _read_run(listing, files, before.get(path)):
            found[path] = known
    return found


def _read_run(listing: FolderListing, files: RunFiles, before: KnownRun[str] | None) -> KnownRun[str] | None:
    """Return a run's files as listed; None if they are gone. An unreadable file keeps the old run, with the reason."""
    text, control = listing.texts.get(files.progress_path), listing.texts.get(files.control_path)
    if before and before.files != files:
        before = None
    if text is not None and before and (before.progress, before.control) == (text, control):
        return before
    there, last = place_below(listing.root, files), before.run if before else None
    if text is None:
        reason = _why_unread(listing, files.progress_path)
        return KnownRun(files, None, control, unread_run(there, last, reason)) if reason else None
    if len(text) > FILE_BYTES:
        return KnownRun(files, None, control, unread_run(there, last, f"longer than {FILE_BYTES} bytes"))
    return KnownRun(files, text, control, read_run(there, text, control, last))


def _why_unread(listing: FolderListing, path: str) -> str | None:
    """Return why a file was not read; None if it is gone."""
    if path in listing.unread:
        return "not read: the files of this folder are too many, or too long"
    refused = listing.refused.get(path)
    return f"cannot be read: {refused}" if refused else None
