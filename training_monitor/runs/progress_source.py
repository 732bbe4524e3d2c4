"""The progress file of a TrainingMonitor as a source of output: a line for each new step, phase and end.

The file is read whole, since it is small; the position is what the last line told. Its age is that of its newest step,
not of the file, which a thread writes every other second while the training hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import LogCursor, NewLog, Question, Reply
from training_monitor.logs.events import find_phase
from training_monitor.logs.following import FileSource
from training_monitor.logs.sources import Polled
from training_monitor.runs.clock import VALIDATION
from training_monitor.runs.progress_file import MAX_FILE_BYTES, parse_progress_file
from training_monitor.runs.rows import epochs_done, loss_of, step_of, total_steps_of
from training_monitor.runs.values import CANCELED, FAILED, FINISHED, Run

_MOST_BYTES = 1024 * 1024
_PHASES = {  # of `find_phase`: what a script calls its phase may look like a step
    "checkpoint": "saving a checkpoint",
    "evaluation": "running validation",
    "sampling": "generating samples",
    "compilation": "compiling",
    "loading": "loading the model",
}
_ENDS = {FINISHED: "training finished", FAILED: "training failed", CANCELED: "training was canceled"}


class ProgressSource(Polled):
    """The progress file of a run."""

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = _MOST_BYTES, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask what the file tells that it did not at `cursor`."""
        whole = self._whole()

        def parse(reply: Reply) -> NewLog:
            return _tell(whole.parse(reply), cursor, self.name)

        return replace(whole, parse=parse)

    def read_run(self) -> Question[Run]:
        """Ask for all that the file has. The answer fails where it is not there."""
        whole = self._whole()

        def parse(reply: Reply) -> Run:
            found = whole.parse(reply)
            if found.missing:
                raise TrainingMonitorError(f"no file {self.name}")
            return _parse(found, self.name)

        return replace(whole, parse=parse)  # type: ignore[arg-type, return-value]

    def _whole(self) -> Question[NewLog]:
        return FileSource.named(self.name, self.label).read(None, min(_MOST_BYTES, MAX_FILE_BYTES))


def _parse(found: NewLog, path: str) -> Run:
    return parse_progress_file(found.text + found.partial, Run("", path, ""))


def _tell(found: NewLog, cursor: LogCursor | None, path: str) -> NewLog:
    """Return the lines of a file that was read whole."""
    if found.missing:
        return NewLog("", cursor, missing=True)
    run = _parse(found, path)
    text = "".join(f"{line}\n" for line in _lines(run))
    at = f"{run.started_at} {run.status} {run.phase} {step_of(run)} {run.epoch} {run.validation_batch}"
    if cursor and cursor.check == at:
        text = ""
    offset = (cursor.offset if cursor else 0) + len(text)
    moved = next((each for each in (run.step_at, run.started_at, run.updated_at) if each is not None), None)
    age = found.age
    if age is not None and moved is not None and run.updated_at is not None:
        age += max(0.0, run.updated_at - moved)
    return NewLog(text, LogCursor(offset, 0, at), age=age, path=path)


def _lines(run: Run) -> Iterator[str]:
    step, epochs, loss = step_of(run), epochs_done(run), loss_of(run)
    total = total_steps_of(run, step)
    told = [f"step: {step}" + (f"/{total}" if total else "")] if step is not None else []
    told += [f"epoch: {epochs:.4f}"] if epochs else []
    told += [f"loss: {loss:.6g}"] if loss is not None else []
    told += [f"{run.run.rate:.6g} it/s"] if run.run and run.run.rate else []
    yield " | ".join(told) or "training begins"
    if run.status in _ENDS:
        yield from [*(run.error_message or "").splitlines(), _ENDS[run.status]]
    elif phase := "evaluation" if run.phase == VALIDATION else find_phase(run.phase or ""):
        yield _PHASES[phase]
