"""The list of notices on the web page and in `notify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training_monitor.core.values import Notice
from training_monitor.notify.channel import Channel, Doors


@dataclass(frozen=True, repr=False)
class WebList(Channel):
    """The list on the web page. It never fails if there is a store, because the notifier stores every notice."""

    name = "web"
    needs_store = True

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        return None
