"""Copy a folder to a target or back, and verify on both sides that all of it arrived.

A file is copied when it is missing on the other side, or differs in size or in the second of its last change; nothing
is ever deleted. An interrupted copy is resumed by calling again. A copy counts as complete when every file of a fresh
listing of one side exists with its size on the other.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    CommandError,
    CommandFailed,
    CommandTimedOut,
    SettingsError,
    TargetUnreachable,
    ToolNotFound,
)
from training_monitor.core.regex import regex
from training_monitor.core.units import format_bytes, name_some, plural
from training_monitor.rent.file_lists import (
    INCOMING,
    FileList,
    ListedFile,
    check_fits,
    check_no_links,
    check_no_others,
    check_no_twins,
    find_name_problem,
    is_inside,
    list_arrived,
    list_folder,
    list_remote,
    split_batches,
)
from training_monitor.rent.transfers import (
    Sent,
    clear_here,
    clear_question,
    fetch_by_tar,
    push_by_tar,
    send_by_rsync,
)
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

SYNC_SECONDS = 6 * 3600.0
TRIES = 3
WAITS = (2.0, 10.0)
BATCH_FILES, BATCH_BYTES = 500, 64 * 1024 * 1024
SLOWEST = 50_000.0  # bytes per second; a slower batch times out
BATCH_SECONDS = 120.0
Tool = Literal["rsync", "tar"]
_DISK_FULL = regex(r"No space left|Disk quota exceeded", re.IGNORECASE)
_SHOWN = 3


class SyncProgress(NamedTuple):
    """Progress of a copy; files that were there before count as copied."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int


class SyncReport(NamedTuple):
    """A folder that is on both sides, judging by names and sizes.

    `sent_files` of `files` had to be copied. `by` is the tool that copied, or would have. `skipped` counts links,
    sockets and the like on a target; `hidden` and `empty` count hidden entries and empty folders of this machine.
    """

    files: int
    total_bytes: int
    sent_files: int
    sent_bytes: int
    duration: float
    by: Tool
    skipped: int = 0
    hidden: int = 0
    empty: int = 0


class _Look(NamedTuple):
    """One look at both sides: the files to copy, the files at the destination, and the tools that can copy."""

    source: FileList
    there: FileList
    tools: frozenset[str]

    @property
    def wanted(self) -> Mapping[str, ListedFile]:
        return self.source.files

    def missing(self, sent: Mapping[str, ListedFile]) -> dict[str, ListedFile]:
        """Return the files to copy; for those in `sent`, an equal size suffices: not every file system keeps times."""
        found: dict[str, ListedFile] = {}
        for name, file in self.wanted.items():
            arrived = self.there.files.get(name)
            if arrived != file and not (arrived and arrived.size == file.size and sent.get(name) == file):
                found[name] = file
        return found


@dataclass(slots=True)
class _Copying:
    """One copy operation: `look` lists both sides, `send` copies a batch with a tool, `clear` runs at the end."""

    what: str
    target: str
    look: Callable[[], _Look]
    send: Callable[[_Look, list[str], Tool, float], Sent]
    clear: Callable[[_Look], None]
    on_progress: Callable[[SyncProgress], None] | None
    timeout: float
    clock: Clock
    has_rsync: bool = True
    used: Tool | None = None
    sent: dict[str, ListedFile] = field(default_factory=dict)
    said: str = ""

    def run(self) -> SyncReport:
        begin, tried, failures = self.clock.monotonic(), set[str](), 0
        seen = self.look()
        missing = seen.missing(self.sent)
        self._tell(seen, missing)
        while missing:
            tried |= missing.keys()
            after = self._try(seen, missing, failures, begin + self.timeout)
            left = after.missing(self.sent) if after else missing
            failures = 0 if after and _amount(after, left) < _amount(seen, missing) else failures + 1
            seen, missing = after or seen, left
            if missing and failures >= TRIES:
                raise self._failure(missing, len(seen.wanted))
            if missing and self.clock.monotonic() >= begin + self.timeout:
                raise self._out_of_time(missing, len(seen.wanted))
            self._tell(seen, missing)
        self.clear(seen)
        sizes = {name: file.size for name, file in seen.wanted.items()}
        return SyncReport(
            files=len(sizes),
            total_bytes=sum(sizes.values()),
            sent_files=len(tried & sizes.keys()),
            sent_bytes=sum(sizes[name] for name in tried & sizes.keys()),
            duration=self.clock.monotonic() - begin,
            by=self.used or self._tool(seen, 0),
            skipped=len(seen.source.others),
            hidden=seen.source.hidden,
            empty=len(seen.source.empty),
        )

    def _try(self, seen: _Look, missing: dict[str, ListedFile], failures: int, deadline: float) -> _Look | None:
        """Send the missing files and look again; None where the look failed."""
        if failures:
            self.clock.sleep(min(WAITS[min(failures, len(WAITS)) - 1], deadline - self.clock.monotonic()))
        try:
            self._send(seen, missing, failures, deadline)
            return self.look()
        except (TargetUnreachable, CommandTimedOut) as error:
            if failures + 1 >= TRIES:
                raise
            self.said = str(error)
            return None

    def _send(self, seen: _Look, missing: dict[str, ListedFile], failures: int, deadline: float) -> None:
        """Send all batches, up to the first that fails."""
        left = dict(missing)
        for batch in split_batches(missing, most_files=BATCH_FILES, most_bytes=BATCH_BYTES):
            limit = BATCH_SECONDS + sum(missing[name].size for name in batch) / SLOWEST
            ended = self._send_batch(seen, batch, failures, min(limit, deadline - self.clock.monotonic()))
            self.said = ended.said or self.said
            if _DISK_FULL.search(ended.said):
                raise self._disk_full(left)
            if not ended.ok:
                return
            for name in batch:
                self.sent[name] = left.pop(name)
            self._tell(seen, left)

    def _send_batch(self, seen: _Look, batch: list[str], failures: int, limit: float) -> Sent:
        if limit <= 0:
            return Sent(False, "no time is left")
        self.used = self._tool(seen, failures)
        try:
            return self.send(seen, batch, self.used, limit)
        except ToolNotFound:
            if self.used == "tar":
                raise
            self.has_rsync, self.used = False, "tar"
            return self.send(seen, batch, "tar", limit)

    def _tool(self, seen: _Look, failures: int) -> Tool:
        """Return rsync if both sides have it, but tar for the last try: an installed rsync may not work."""
        usable = self.has_rsync and "rsync" in seen.tools
        return "rsync" if usable and not (failures == TRIES - 1 and "tar" in seen.tools) else "tar"

    def _tell(self, seen: _Look, missing: Mapping[str, ListedFile]) -> None:
        if self.on_progress:
            total, left = (sum(file.size for file in files.values()) for files in (seen.wanted, missing))
            count = len(seen.wanted)
            self.on_progress(SyncProgress(count - len(missing), count, total - left, total))

    def _failure(self, missing: Mapping[str, ListedFile], total: int) -> CommandFailed:
        names = name_some([ascii(name[:200]) for name in sorted(missing)], _SHOWN)
        return CommandFailed(
            f"{self.what}: {len(missing)} of {plural(total, 'file')} did not arrive: {names} "
            f"({self.said or 'no reason was given'})",
            target=self.target,
            hint="read the reason in parentheses; a file that changes while it is copied is not transferred",
        )

    def _out_of_time(self, missing: Mapping[str, ListedFile], total: int) -> CommandTimedOut:
        return CommandTimedOut(
            f"{self.what}: {len(missing)} of {plural(total, 'file')} were not copied within {self.timeout:g} s",
            target=self.target,
            hint="run it again: only the remaining files are copied",
        )

    def _disk_full(self, left: Mapping[str, ListedFile]) -> CommandFailed:
        size = format_bytes(sum(file.size for file in left.values()))
        return CommandFailed(
            f"{self.what}: the disk is full, {size} were not copied ({self.said})",
            target=self.target,
            hint="use a larger disk, or free some space",
        )


def _amount(seen: _Look, missing: Mapping[str, ListedFile]) -> tuple[int, int]:
    """Return what is left: the number of files, and their bytes minus what has partly arrived."""
    return len(missing), sum(file.size for file in missing.values()) - seen.there.partial_bytes


def push_folder(
    local: str,
    target: str | Target,
    remote: str,
    *,
    on_progress: Callable[[SyncProgress], None] | None = None,
    timeout: float = SYNC_SECONDS,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SyncReport:
    """Copy the files inside a folder of this machine to a target, and verify that they arrived.

    Hidden files are skipped, and the targets of links are copied as files; see `list_folder`. The folder on the target
    is created if necessary, accessible only to its owner. No files in it are deleted.

    Args:
        local: a folder on this machine.
        remote: a folder on the target; `~/` is the home folder there.
        on_progress: called at the beginning, after each batch, and after each look. An exception that it raises ends
            the copy.
        timeout: maximum seconds for the whole copy.

    Raises:
        SettingsError: `local` cannot be read, or contains items that cannot be copied: names with newlines or invalid
            UTF-8; links to folders, to hidden files or to missing files; sockets.
        CommandFailed: files did not arrive in three attempts without progress, or the disk of the target is full.
        CommandTimedOut: the copy did not finish in time; call again to resume.
        CommandError: the target could not be queried.
    """
    site = Site.of(target, transport=transport, clock=clock)
    reach = site.target.connect(transport)

    def look() -> _Look:
        here = list_folder(local)
        there = list_remote(site, remote, make=True)
        if there is None or there.is_file:
            raise CommandFailed(f"{remote!r} is not a folder", target=str(site), hint="use another path")
        check_no_others(there, here.files, str(site))
        return _Look(here, there, _usable(there, site.target))

    def send(seen: _Look, names: list[str], tool: Tool, limit: float) -> Sent:
        if tool == "rsync":
            return send_by_rsync(reach, names, seen.source.root, seen.there.root, push=True, limit=limit)
        return push_by_tar(reach, names, seen.source.root, seen.there.root, limit=limit)

    def clear(seen: _Look) -> None:
        with suppress(CommandError):  # everything has arrived; a later copy will clear it
            site.ask(clear_question(seen.there.root, seen.wanted))

    what = f"copying {local!r} to {remote!r}"
    return _Copying(what, str(site), look, send, clear, on_progress, timeout, clock).run()


def fetch_folder(
    target: str | Target,
    remote: str,
    local: str,
    *,
    only: Collection[str] | None = None,
    on_progress: Callable[[SyncProgress], None] | None = None,
    timeout: float = SYNC_SECONDS,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SyncReport:
    """Copy the files inside a folder of a target to this machine, and verify that they arrived.

    Hidden files and links are skipped. A file gets its final name on this machine only when it is complete. No files
    are written outside `local`, whatever the target sends.

    Args:
        remote: a folder on the target, or a single file, which is copied into `local` under its own name.
        local: a folder on this machine. It is created if necessary, accessible only to its owner.
        only: names of files or folders in `remote`; nothing else is copied.
        on_progress: called at the beginning, after each batch, and after each look. An exception that it raises ends
            the copy.
        timeout: maximum seconds for the whole copy.

    Raises:
        SettingsError: `local` cannot be created, or `only` contains a name outside `remote`.
        CommandFailed: the folder, file or name does not exist; files did not arrive in three attempts without progress;
            the disk of this machine is full or too small for the listed files; or a link on this machine is in the way.
        CommandTimedOut: the copy did not finish in time; call again to resume.
        CommandError: the target could not be queried.
    """
    site = Site.of(target, transport=transport, clock=clock)
    names = _checked_names(only)
    folder = _make_folder(local)
    reach = site.target.connect(transport)

    def look() -> _Look:
        source = _existing(list_remote(site, remote, names), remote, names, str(site))
        check_no_links(folder, source.files)
        there = list_arrived(folder, source.files)
        check_fits(folder, there, source.files)
        return _Look(source, there, _usable(source, site.target))

    def send(seen: _Look, batch: list[str], tool: Tool, limit: float) -> Sent:
        _make_folder(os.path.join(folder, INCOMING))
        check_no_twins(folder, seen.wanted)
        files = {name: seen.wanted[name] for name in batch}
        if tool == "rsync":
            sizes = {name: file.size for name, file in files.items()}
            return send_by_rsync(reach, batch, seen.source.root, folder, push=False, limit=limit, sizes=sizes)
        return fetch_by_tar(reach, files, seen.source.root, folder, limit=limit)

    def clear(seen: _Look) -> None:
        clear_here(folder, seen.wanted)

    what = f"copying {remote!r} to {local!r}"
    return _Copying(what, str(site), look, send, clear, on_progress, timeout, clock).run()


def _usable(there: FileList, target: Target) -> frozenset[str]:
    """Return the tools that work with a target: rsync does not work through kubectl. Raises CommandFailed."""
    usable = there.tools - {"rsync"} if not target.has_rsync else there.tools
    if not usable:
        raise CommandFailed(
            "neither rsync nor tar is installed",
            target=str(target),
            hint="install rsync on the target (apt-get install rsync), or use an image that has tar",
        )
    return usable


def _checked_names(only: Collection[str] | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.rstrip("/") for name in only)) if only is not None else ()
    if only is not None and (not names or isinstance(only, str)):
        raise SettingsError("only", only, "a list of names, or None for all files")
    for name in names:
        if not is_inside(name) or find_name_problem(name):
            raise SettingsError("only", name, "names of files or folders that are not hidden and do not contain '..'")
    return names


def _make_folder(path: str) -> str:
    """Create a folder if it does not exist, and return its real path."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SettingsError("local", path, f"a folder that can be created ({error})") from error
    return os.path.realpath(path)


def _existing(found: FileList | None, remote: str, names: tuple[str, ...], target: str) -> FileList:
    """Return the listing after checking that it is what was requested. Raises CommandFailed."""
    if found is None:
        raise CommandFailed(
            f"{remote!r} does not exist", target=target, hint="check where the training writes its files"
        )
    wanted = (posixpath.basename(remote),) if found.is_file else names
    files = [name for name in found.files if not wanted or any(_is_below(name, each) for each in wanted)]
    absent = [each for each in wanted if not any(_is_below(name, each) for name in files)]
    problem = ""
    if found.refused:
        problem = f"names that are too long, have newlines, or are not UTF-8: {', '.join(found.refused[:_SHOWN])}"
    elif found.complaint:
        problem = f"it cannot be listed completely: {found.complaint}"
    elif len(files) < len(found.files):
        problem = "it lists files that were not requested"
    elif absent:
        problem = f"not found, or not a regular file: {', '.join(map(ascii, absent[:_SHOWN]))}"
    if problem:
        raise CommandFailed(f"{remote!r}: {problem}", target=target)
    return found


def _is_below(name: str, above: str) -> bool:
    return name == above or name.startswith(f"{above}/")
