"""Supervise a training: restart it from its newest complete checkpoint until it is done."""

from __future__ import annotations

from training_monitor import export_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from training_monitor.restart.restart import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "restart.restart": "auto_restart",
    },
)
