"""Runs out of the listing of a folder on a target; what did not change since the last one is not parsed again."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from training_monitor.parse.remote_look import FolderListing
from training_monitor.policy.run_values import Run
from training_monitor.progress.files import PROGRESS, RunFiles, place_below, runs_from_names
from training_monitor.progress.remote_scripts import FILE_BYTES
from training_monitor.progress.run_texts import read_run, unread_run


@dataclass(frozen=True, slots=True)
class KnownRun:
    """What was read of a run: `files` relative to the folder, both texts, and the run (None: the file is no run's)."""

    files: RunFiles
    text: str | None
    control: str | None
    run: Run | None


def read_runs(listing: FolderListing, before: Mapping[str, KnownRun]) -> dict[str, KnownRun]:
    """The runs by the path of their progress file, in natural order; what did not change is not parsed again."""
    flat = [name for name in listing.names if "/" not in name]
    folders = [name.removesuffix(f"/{PROGRESS}") for name in listing.names if name.endswith(f"/{PROGRESS}")]
    found = {}
    for files in runs_from_names(flat, folders, here=posixpath.basename(listing.root) or "run"):
        path = posixpath.join(listing.root, files.progress_path)
        if known := _read_run(listing, files, before.get(path)):
            found[path] = known
    return found


def _read_run(listing: FolderListing, files: RunFiles, before: KnownRun | None) -> KnownRun | None:
    """What a run's files hold; None when they are gone. What cannot be read is as it was, with the reason."""
    text, control = listing.texts.get(files.progress_path), listing.texts.get(files.control_path)
    if before and before.files != files:
        before = None
    if text is not None and before and (before.text, before.control) == (text, control):
        return before
    there, last = place_below(listing.root, files), before.run if before else None
    if text is None:
        reason = _why_unread(listing, files.progress_path)
        return KnownRun(files, None, control, unread_run(there, last, reason)) if reason else None
    if len(text) > FILE_BYTES:
        return KnownRun(files, None, control, unread_run(there, last, f"longer than {FILE_BYTES} bytes"))
    return KnownRun(files, text, control, read_run(there, text, control, last))


def _why_unread(listing: FolderListing, path: str) -> str | None:
    """Why a file was not read; None when it is gone."""
    if path in listing.unread:
        return "not read: the files of this folder are too many, or too long"
    refused = listing.refused.get(path)
    return f"cannot be read: {refused}" if refused else None
