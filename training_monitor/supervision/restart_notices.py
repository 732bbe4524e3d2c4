"""The notices about the restarts and the end of a supervised training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_monitor.core.models import Event, Progress, RunOutcome
from training_monitor.core.values import Notice
from training_monitor.logs.job_progress import job_progress
from training_monitor.notify import templates
from training_monitor.notify.notice_text import command_line, next_command

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox


class RestartNotices:
    """An `on_event` of `auto_restart` that posts notices, if there is an outbox.

    Notices are deduplicated by the attempt's job id, which no other run on this target gets. `about` replaces the
    target in that name. `command` is the command that a notice suggests; default: the one that shows the log.
    """

    def __init__(
        self, outbox: Outbox | None, target: str, job_name: str, *, about: str | None = None, command: str | None = None
    ) -> None:
        self._outbox, self._target, self._job_name = outbox, target, job_name
        self._about, self._command = about or target, command
        self._reason, self._explanation = "its supervision was resumed", ""
        self._progress, self._log = Progress(), ""

    def show(self, event: Event) -> None:
        """Process one event."""
        if event.view:
            self._progress, self._log = event.view.progress, event.view.log_tail or self._log
        if event.kind == "detected":
            self._reason, self._explanation = event.text, ""
        if event.kind == "explained":
            self._explanation = event.text
        if self._outbox and (notice := self._notice(event)):
            self._post(notice, event.job_id, self._command or self._next(event))

    def post(self, notice: Notice) -> None:
        """Post a notice about the run as a whole."""
        self._post(notice, None, next_command(notice.kind, self._target))

    def _post(self, notice: Notice, job_id: str | None, command: str) -> None:
        if self._outbox:
            about = f"{self._about} {job_id or self._job_name}"
            self._outbox.post(replace(notice, job_id=about, target=self._target, command=command))

    def _next(self, event: Event) -> str:
        if event.job_id is None:
            return command_line("check", self._target)
        return command_line("logs", self._target, event.job_id)

    def _notice(self, event: Event) -> Notice | None:
        job = job_progress(self._progress)
        ended: Any = {"reason": event.text, "runtime": event.runtime}
        about = templates.About(
            self._job_name, job.step, job.total_steps, event.checkpoint_step, loss=self._progress.loss, log=self._log
        )
        if event.kind == "started" and event.attempt > 1:
            told: dict[str, Any] = {"explanation": self._explanation, "attempt": event.attempt}
            told["resumes_from"] = event.checkpoint or "the start"
            return templates.restarted(about, reason=self._reason, **told)
        if event.kind == "ignored":
            return templates.checkpoint_ignored(about, reason=event.text)
        if event.outcome is RunOutcome.COMPLETED:
            return templates.finished(about, runtime=event.runtime)
        if event.outcome is RunOutcome.STOPPED:
            return templates.ended(about, **ended)
        if event.outcome is not None:
            return templates.failed(about, explanation=self._explanation, **ended)
        return None
