"""The roll call: inspect what all ranks of one training are doing, and explain a hang."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.why.explain import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "why.explain": "explain_training",
    },
)
