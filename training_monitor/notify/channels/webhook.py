"""Any server that accepts notices as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from training_monitor.core.settings_table import Example, Variable
from training_monitor.core.values import Notice
from training_monitor.notify.channel import URL, Channel, Doors, as_json, post


@dataclass(frozen=True, repr=False)
class Webhook(Channel):
    """Any server that accepts a notice as JSON.

    Attributes:
        url: the URL to which each notice is sent by POST.
    """

    name = "webhook"
    url: Annotated[str, URL, Variable("TRAINING_MONITOR_WEBHOOK"), Example("https://example.org/notices")] = field(
        repr=False
    )

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        post(self.url, as_json(notice), doors)
