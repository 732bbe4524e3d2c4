"""Values of this package in a notebook: tables and charts."""

from __future__ import annotations

from training_monitor import export_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from training_monitor.notebook.display import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "notebook.display": "Shown show",
    },
)
