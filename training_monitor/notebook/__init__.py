"""Values of this package in a notebook: tables and charts."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.notebook.display import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "notebook.display": "Shown show",
    },
)
