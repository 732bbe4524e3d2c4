"""The files to which a scheduler writes what a job prints, read where they can be read without the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from training_monitor.core.models import LogCursor, NewLog, Question, Reply
from training_monitor.logs.following import LIMIT_BYTES, FileSource, LogStream, newest_of
from training_monitor.logs.sources import Polled

if TYPE_CHECKING:
    from training_monitor.targets.asking import Site


class OutputFiles(Polled):
    """The output of the target's job: of several files the one that was written last, see `newest_of`."""

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = LIMIT_BYTES, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask as `FileSource` does."""

        def ask(site: Site) -> Reply:
            there, source = self._at(site, cursor)
            asked = source.read(cursor, limit_bytes, oldest_first=oldest_first)
            return there.ask_one(Question("log", asked.script, lambda reply: reply, limit=asked.limit))

        return replace(FileSource("''", self.label).read(cursor, limit_bytes), script="", beside=ask)

    def follow_on(self, site: Site) -> LogStream:  # type: ignore[override]
        there, source = self._at(site, None)
        return source.follow_on(there)

    def _at(self, site: Site, cursor: LogCursor | None) -> tuple[Site, FileSource]:
        """Return where the files are read, and the one to read; an interactive job has none."""
        machine, files, since = site.target.output_files(site.transport)
        file = newest_of(files, cursor.inode if cursor else "", since) if files else "''"
        return site.at(machine), FileSource(file, self.label)
