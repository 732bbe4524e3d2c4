"""The desktop of this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

from training_monitor.core.errors import ToolNotFound, TrainingMonitorError
from training_monitor.core.values import Notice
from training_monitor.notify.channel import LOG_LINES, Channel, Doors, run
from training_monitor.notify.notice_text import Markup, escape_html, one_line, render_body

_URGENCY = {"low": "low", "normal": "normal", "high": "critical", "urgent": "critical"}


@dataclass(frozen=True, repr=False)
class Desktop(Channel):
    """A desktop notification on this machine, by `notify-send`."""

    name = "desktop"
    markup = Markup(1000, escape_html)
    log_lines: Annotated[int, LOG_LINES] = field(default=0, kw_only=True)  # it shows few lines

    @property
    def program(self) -> str:
        return "notify-send"

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        urgency = f"--urgency={_URGENCY[notice.priority]}"
        run((self.program, urgency, "--", one_line(notice), render_body(notice, self.markup)), None, doors)

    @classmethod
    def advise(cls, error: TrainingMonitorError) -> str | None:
        if not isinstance(error, ToolNotFound):
            return super().advise(error)
        if sys.platform == "darwin":
            return "macOS has no notify-send: use the `command` channel with a program that shows the notice"
        return "install notify-send (apt-get install libnotify-bin)"
