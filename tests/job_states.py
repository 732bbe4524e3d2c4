"""The states of a queued training without failures, in order."""

from __future__ import annotations

from training_monitor.vast.training_request import JobState

STEPS = [each for each in JobState if each is not JobState.REPLACING and not each.is_terminal]
