"""The kind of an error is a class of core/errors.py, whatever class refines it."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import ParseError, SettingsError, TargetNotFound, TrainingMonitorError, kind_of
from training_monitor.runs.file_pieces import Replaced
from training_monitor.runs.progress_file import NotAProgressFile


class Refined(TargetNotFound):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SettingsError("key", 1, "2"), "SettingsError"),
        (ParseError("odd", source="x"), "ParseError"),
        (NotAProgressFile("odd", source="x"), "ParseError"),
        (Replaced("it is another file"), "TrainingMonitorError"),
        (Refined("gone"), "TargetNotFound"),
    ],
)
def test_an_error_has_a_documented_kind(error: TrainingMonitorError, kind: str) -> None:
    assert kind_of(error) == kind
