"""Where commands run: this machine, ssh hosts, pods, rented instances."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.models import *
    from training_monitor.targets.asking import *
    from training_monitor.targets.target import *
    from training_monitor.targets.transport import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.models": "Answer Question Reply",
        "targets.asking": "ask ask_many",
        "targets.target": "Target parse_target resolve_target",
        "targets.transport": "LocalTransport Transport",
    },
)
