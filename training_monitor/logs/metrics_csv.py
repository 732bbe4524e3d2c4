"""The table of Lightning's CSVLogger as a source of output: each row as a line of names and numbers.

Its first line has the names, and a row leaves empty what it does not measure:

    epoch,step,train_loss,val_loss
    0,49,0.53,
    0,99,,0.61
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace

from training_monitor.core.models import LogCursor, NewLog, Question, Reply
from training_monitor.logs.following import LIMIT_BYTES, FileSource
from training_monitor.logs.sources import Polled
from training_monitor.targets.asking import quote_path
from training_monitor.targets.replies import parse_fields
from training_monitor.targets.scripts import format_call


class MetricsTable(Polled):
    """The table at this path."""

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = LIMIT_BYTES, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask for the rows behind `cursor`."""
        whole = FileSource.named(self.name, self.label).read(cursor, limit_bytes, oldest_first=oldest_first)
        header = format_call("table_header", "show_header", table=quote_path(self.name))

        def parse(reply: Reply) -> NewLog:
            found, names = whole.parse(reply), parse_fields(reply.output)[0].get("header", "")
            return replace(found, text="".join(_lines(found.text, next(csv.reader([names]), []))), partial="")

        return replace(whole, script=f"{header}{whole.script}", parse=parse)


def _lines(text: str, names: list[str]) -> Iterator[str]:
    for row in csv.reader(text.splitlines()):
        cells = {name: cell for name, cell in zip(names, row) if cell and len(row) == len(names) and row != names}
        losses = [name for name in cells if "loss" in name and not name.startswith(("val", "test"))]
        told = {name: cell for name, cell in cells.items() if name in ("epoch", "step")}
        told |= {"loss": cells[losses[0]]} if losses else {}
        told |= {name: cell for name, cell in cells.items() if name not in ("epoch", "step", *losses)}
        if told:
            yield " | ".join(f"{name}: {cell}" for name, cell in told.items()) + "\n"
