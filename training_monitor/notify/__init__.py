"""Notices, and the channels that send them."""

from training_monitor import TYPE_CHECKING, export_names

if TYPE_CHECKING:
    from training_monitor.core.values import *
    from training_monitor.notify.channels import *
    from training_monitor.notify.configure import *
    from training_monitor.notify.heartbeat import *
    from training_monitor.notify.notifier import *
    from training_monitor.notify.outbox import *

__all__, __getattr__, __dir__ = export_names(
    __name__,
    {
        "core.values": "Delivery Notice",
        "notify.channels": (
            "CommandChannel Desktop DiscordUser DiscordWebhook Email NotifiedUser Ntfy SlackWebhook Telegram WebList "
            "Webhook"
        ),
        "notify.configure": "load_notifier",
        "notify.heartbeat": "Heartbeat",
        "notify.notifier": "TrainingNotifier",
        "notify.outbox": "Outbox",
    },
)
