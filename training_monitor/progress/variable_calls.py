"""What a script calls to have its values edited while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_monitor.progress.run_record import RunRecord
from training_monitor.progress.troubles import Warnings, harmless
from training_monitor.progress.variables import Callback, Change

_NO_CHANGES: tuple[Change, ...] = ()


class VariableCalls:
    """The part of a TrainingMonitor that is about variables: all is applied in the training thread."""

    is_active: bool
    why_silent: str
    troubles: Warnings
    _record: RunRecord

    def start_monitoring(self) -> None:
        raise NotImplementedError

    @property
    def variables(self) -> dict[str, Any]:
        """What is tracked, with the values that hold now."""
        return self._record.variables.values

    @harmless(None)
    def track_variables(self, variables: Mapping[str, object]) -> None:
        """Let these be edited from outside; edits appear in this very dict, between two steps."""
        with self._record.lock:
            self._record.variables.track(variables)
            self._record.version += 1

    @harmless(None)
    def register_callback(self, name: str, callback: Callback) -> None:
        """Call back with (name, old value, new value) in the training thread when this variable was edited."""
        self._record.variables.call_back(callback, name)

    @harmless(None)
    def register_general_callback(self, callback: Callback) -> None:
        """The same for all variables."""
        self._record.variables.call_back(callback)

    @harmless(False)
    def is_change(self, name: str | None = None) -> bool:
        """Apply pending edits; whether any variable, or this one, changed since this was asked last."""
        self._attend()
        with self._record.lock:
            return bool(self._record.variables.tell(name))

    @harmless(_NO_CHANGES)
    def check_changes(self) -> tuple[Change, ...]:
        """The same, with what changed: (name, old value, new value)."""
        self._attend()
        with self._record.lock:
            return tuple(self._record.variables.tell())

    @harmless("no changes")
    def get_change_summary(self, changes: object = None) -> str:
        """The last changes in words; the argument of earlier versions is not needed."""
        return self._record.variables.summary()

    @harmless(False)
    def should_restart_dataloader(self, changes: object = None) -> bool:
        """Whether batch_size or num_workers changed since this was asked last; the argument is not needed."""
        self._attend()
        return self._record.variables.needs_dataloader()

    @harmless(None)
    def _attend(self) -> None:
        """Begin, where that was not done; apply the edits, and call those back who want to know."""
        self.start_monitoring()
        record = self._record
        with record.lock:
            record.needs_training_thread = False
            changes = record.variables.apply(record.clock.time())
            record.version += bool(changes)
        for failure in record.variables.tell_callbacks(changes):
            self.troubles.warn(failure, failure)
