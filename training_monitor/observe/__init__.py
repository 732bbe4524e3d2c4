"""Find the trainings on a target, look at them and report how they are."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.observe.check import *
    from training_monitor.observe.health_report import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "observe.check": "check_training",
        "observe.health_report": "get_training_health print_training_health",
    },
)
