"""What somebody is told of a supervised run: its restarts, and how it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_monitor.models import Event, Progress, RunOutcome
from training_monitor.notify import templates
from training_monitor.notify.next_command import command_line, next_command
from training_monitor.policy.job_progress import job_progress
from training_monitor.watching import Notice

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox


class RestartNotices:
    """An `on_event` of `auto_restart` that posts notices, where there is an outbox.

    Each is named after the attempt, whose id no other run on this target gets, so that none is told twice. `about`
    stands for the target in that name, and `command` is what to type next; default: what shows the log.
    """

    def __init__(
        self, outbox: Outbox | None, target: str, job_name: str, *, about: str | None = None, command: str | None = None
    ) -> None:
        self._outbox, self._target, self._job_name = outbox, target, job_name
        self._about, self._command = about or target, command
        self._reason = "its supervisor went on with it"
        self._progress = Progress()

    def show(self, event: Event) -> None:
        """Take one event in."""
        if event.view:
            self._progress = event.view.progress
        if event.kind == "detected":
            self._reason = event.text
        if self._outbox and (notice := self._notice(event)):
            about, command = f"{self._about} {event.job_id or self._job_name}", self._command or self._next(event)
            self._outbox.post(replace(notice, job_id=about, target=self._target, command=command))

    def post(self, notice: Notice) -> None:
        """Tell something of the run as a whole."""
        if self._outbox is None:
            return
        command = next_command(notice.kind, self._target)
        about = f"{self._about} {self._job_name}"
        self._outbox.post(replace(notice, job_id=about, target=self._target, command=command))

    def _next(self, event: Event) -> str:
        if event.job_id is None:
            return command_line("check", self._target)
        return command_line("logs", self._target, event.job_id)

    def _notice(self, event: Event) -> Notice | None:
        job = job_progress(self._progress)
        where: dict[str, Any] = {"step": job.step, "total_steps": job.total_steps}
        if event.kind == "started" and event.attempt > 1:
            source = event.checkpoint or "the start"
            return templates.restarted(self._job_name, reason=self._reason, resumes_from=source, attempt=event.attempt)
        if event.outcome is RunOutcome.COMPLETED:
            return templates.finished(self._job_name, **where)
        if event.outcome is RunOutcome.STOPPED:
            return templates.ended(self._job_name, reason=event.text, **where)
        if event.outcome is not None:
            return templates.failed(self._job_name, reason=event.text, **where)
        return None
