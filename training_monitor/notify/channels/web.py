"""The list of notices on the web page and in `notify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_monitor.core.frozen import dataclass
from training_monitor.core.values import Notice
from training_monitor.notify.channel import Channel, Doors

if TYPE_CHECKING:
    from training_monitor.notify.people import NotifiedUser


@dataclass(frozen=True)
class WebList(Channel):
    """The list on the web page. The notifier keeps every notice in the store, so this never fails if there is one."""

    name = "web"

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return super().obstacle(user, doors) if doors.has_store else "no store is open"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        return None
