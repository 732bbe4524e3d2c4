"""The channels for notices: each is a class or two in a module of this folder, and one line here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_monitor.notify.channel import Channel
    from training_monitor.notify.channels.command import CommandChannel as CommandChannel
    from training_monitor.notify.channels.desktop import Desktop as Desktop
    from training_monitor.notify.channels.discord import DiscordUser as DiscordUser, DiscordWebhook as DiscordWebhook
    from training_monitor.notify.channels.mail import Email as Email
    from training_monitor.notify.channels.ntfy import Ntfy as Ntfy
    from training_monitor.notify.channels.slack import SlackWebhook as SlackWebhook
    from training_monitor.notify.channels.telegram import Telegram as Telegram
    from training_monitor.notify.channels.web import WebList as WebList
    from training_monitor.notify.channels.webhook import Webhook as Webhook

# A module and its classes, by the channel's name, in the order in which they are tried by default.
CHANNELS: Mapping[str, str] = {
    "telegram": "telegram Telegram",
    "discord": "discord DiscordUser DiscordWebhook",
    "slack": "slack SlackWebhook",
    "ntfy": "ntfy Ntfy",
    "webhook": "webhook Webhook",
    "email": "mail Email",
    "desktop": "desktop Desktop",
    "command": "command CommandChannel",
    "web": "web WebList",
}


def classes_of(name: str) -> tuple[type[Channel], ...]:
    """Return the classes of a channel, imported when they are first asked for."""
    module, *classes = CHANNELS[name].split()
    home = import_module(f"training_monitor.notify.channels.{module}")
    return tuple(getattr(home, each) for each in classes)


def list_homes() -> dict[str, str]:
    """Return the modules below training_monitor that define the channels, with the names of their classes."""
    homes = (home.partition(" ") for home in CHANNELS.values())
    return {f"notify.channels.{module}": classes for module, _, classes in homes}
