"""Notices, and the channels through which they are sent."""

from training_monitor import TYPE_CHECKING, export_names
from training_monitor.notify.channels import list_homes

if TYPE_CHECKING:
    from training_monitor.core.values import *
    from training_monitor.notify.channels import *
    from training_monitor.notify.configure import *
    from training_monitor.notify.heartbeat import *
    from training_monitor.notify.notifier import *
    from training_monitor.notify.outbox import *
    from training_monitor.notify.people import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.values": "Delivery Notice",
        **list_homes(),
        "notify.configure": "load_notifier",
        "notify.heartbeat": "Heartbeat",
        "notify.notifier": "TrainingNotifier",
        "notify.outbox": "Outbox",
        "notify.people": "NotifiedUser",
    },
)
