"""The people to notify: a field for the address on each channel that has addresses of persons."""

from __future__ import annotations

from dataclasses import dataclass

from training_monitor.core.fields import PublicValue
from training_monitor.core.settings_table import check_fields
from training_monitor.notify.channels import discord, mail, telegram


@dataclass(frozen=True, slots=True, repr=False)
class NotifiedUser(PublicValue):
    """A person to notify.

    Attributes:
        name: the name that is passed to `--notify`.
        telegram_id: their Telegram ID.
        discord_id: their Discord ID.
        email: their email address.
    """

    name: str = ""
    telegram_id: telegram.Address | None = None
    discord_id: discord.Address | None = None
    email: mail.Address | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_person(self) -> bool:
        """Return True for a person, and False if notices go to the channels' default recipients."""
        return self != NotifiedUser()
