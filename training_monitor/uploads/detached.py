"""Work on a target that does not depend on a connection: each try is a process job there, whose name is derived from
the work. A caller that calls again, also after a crash, finds the running try and waits for it.

A try of an upload writes its results into the file `result` of its run directory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

from training_monitor.core.advice import QUESTIONS, find_advice
from training_monitor.core.errors import (
    CommandFailed,
    CommandTimedOut,
    TargetNotFound,
    TargetUnreachable,
    last_lines,
)
from training_monitor.core.masking import redact
from training_monitor.core.models import TIME_LIMIT, JobStatus, JobView, Question, Reply
from training_monitor.core.shown import shown
from training_monitor.jobs.process_jobs import (
    PREFIX,
    STOP_GRACE_SECONDS,
    jobs_question,
    look_question,
    start_question,
    stop_question,
)
from training_monitor.targets.asking import Site, quote_path, read_text
from training_monitor.targets.replies import parse_fields
from training_monitor.targets.scripts import format_call

LOOK_SECONDS = 2.0
MOST_SILENT_LOOKS = 15
MOST_TRIES = 3
BACK_OFF_SECONDS = 5.0
TOLD_EVERY = 60.0  # seconds between two lines while there is nothing new


class DetachedTries:
    """All tries of one piece of work on one target; at most one runs."""

    def __init__(
        self,
        site: Site,
        work: str,
        identity: Sequence[str],
        *,
        timeout: float | None = None,
        limit: float | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """Set up the tries. `work` is a word for the kind of work; the same `identity` is the same work.

        `timeout` is how long to wait from now; the try continues after that. `limit` is how long a try may run from its
        start; it is stopped after that. Both in seconds.
        """
        self.attempts = 1
        self.newest = 0  # the number of the newest known try, from 1
        self._ends: float | None = None  # when the time limit of that try ends
        self.site, self._clock, self._work, self._limit = site, site.clock, work, limit
        self._name = f"{work}-" + hashlib.sha256("\0".join(identity).encode("utf-8", "replace")).hexdigest()[:16]
        self._deadline = None if timeout is None else site.clock.monotonic() + timeout
        self._on_progress, self._told, self._told_at = on_progress, "", site.clock.monotonic()

    def settle(self) -> JobView | None:
        """Wait for the newest try, whoever started it; None if there is none."""
        self.newest, self._ends = max(self._numbers(), default=0), None
        return self._wait() if self.newest else None

    def run(self, command: str, env: Mapping[str, str]) -> JobView:
        """Start the next try and wait for its end; if another caller has just started one, wait for that.

        Args:
            command: a sh script, kept in the run directory: it must not contain secrets.
            env: variables for it; no file contains them.

        Raises:
            CommandFailed: it could not be started, or it was stopped.
            CommandTimedOut: it is still running; call again to wait for it.
            CommandError: the target could not be asked.
        """
        self.newest, self._ends = max(self._numbers(), default=0) + 1, None
        self._start(start_question(self.site.target, self._job_id(), command, env, {}))
        view = self._wait()
        if view is None:
            raise CommandFailed(f"the run directory of the {self._work} was removed while it was running")
        if view.status is JobStatus.STOPPED and not ran_too_long(view):
            raise CommandFailed(f"the {self._work} was {view.message}")
        return view

    def results(self, *, newest_only: bool = False) -> str:
        """Return the results that the tries wrote, oldest first."""
        names = [f"{self._name}-{number}" for number in self._numbers()]
        script = format_call("detached", "results", names=" ".join(names[-1:] if newest_only else names))
        return self.site.ask_one(Question("results", script, read_text, 60.0))

    def stop(self) -> None:
        """End all processes of the newest try. Raises CommandFailed if any survives SIGKILL."""
        question = stop_question(self._job_id(), TIME_LIMIT, STOP_GRACE_SECONDS)
        if left := self.site.ask_one(question):
            raise CommandFailed(
                f"SIGKILL did not terminate pid {', pid '.join(left)} of the {self._work}",
                hint="a process in state D is waiting for a disk or driver: check dmesg on its machine",
            )

    def back_off(self, failures: int, why: str | None) -> None:
        """Report why one attempt failed, and wait before the next, longer after each of `failures` in a row."""
        self.attempts += 1
        wait = BACK_OFF_SECONDS * 2 ** (failures - 1)
        self.tell(f"{self._work}: trying again in {wait:g} s: {why or 'it failed'}")
        self._clock.sleep(wait)

    def tell(self, text: str) -> None:
        """Report progress, without repeats."""
        line = shown(" ".join(redact(text).split()))[:200]
        if self._on_progress and line and line != self._told:
            self._told, self._told_at = line, self._clock.monotonic()
            self._on_progress(line)

    def _tell_waiting(self) -> None:
        """Report once a minute that the last text still holds: silence looks like a hang."""
        now = self._clock.monotonic()
        if self._on_progress and now - self._told_at >= TOLD_EVERY:
            self._told_at = now
            self._on_progress(f"the {self._work} continues" + (f": {self._told}" if self._told else ""))

    def _job_id(self) -> str:
        return f"{PREFIX}{self._name}-{self.newest}"

    def _start(self, start: Question[str]) -> None:
        """Start it; if the reply was lost, ask again: the question is idempotent."""
        for _ in range(MOST_TRIES - 1):
            try:
                self.site.ask_one(start)
                return
            except (CommandTimedOut, TargetUnreachable):
                self._clock.sleep(LOOK_SECONDS)
        self.site.ask_one(start)

    def _numbers(self) -> list[int]:
        names = self.site.ask_one(jobs_question())
        return sorted(int(found[1]) for name in names if (found := re.fullmatch(rf"{self._name}-(\d{{1,6}})", name)))

    def _wait(self) -> JobView | None:
        """Return the newest try when it has ended; None when its run directory is gone."""
        silent = 0
        while True:
            try:
                view, silent = self._look(), 0
            except (CommandTimedOut, TargetUnreachable) as error:
                silent += 1
                if silent >= MOST_SILENT_LOOKS or isinstance(error, TargetNotFound):
                    raise
                view = None
            if not silent and (view is None or view.status.is_terminal):
                return view
            if view is not None:
                lines = re.split(r"[\r\n]+", view.log_tail[-4000:])
                self.tell(next((line for line in reversed(lines) if line.strip()), ""))
                self._tell_waiting()
            if self._deadline is not None and self._clock.monotonic() >= self._deadline:
                raise self._out_of_time(view.log_tail if view else "")
            self._clock.sleep(LOOK_SECONDS)

    def _out_of_time(self, log: str) -> CommandTimedOut:
        """Return the error for a try that runs on, with its last words and what they ask for."""
        said = last_lines(log[-4000:], 1)
        asked = find_advice(said, QUESTIONS)
        return CommandTimedOut(
            f"the {self._work} is still running" + (f"; it printed: {said}" if said else ""),
            hint=asked.hint if asked else "repeat the call to wait for it",
        )

    def _look(self) -> JobView | None:
        """Look at the newest try once; stop it if it has run too long, and look again."""
        view = self.site.ask_one(look_question(self._job_id()))
        if self._limit is None or view is None or view.status.is_terminal:
            return view
        if self._ends is None:
            self._ends = self._clock.monotonic() + self._limit - (view.age or 0.0)
        if self._clock.monotonic() < self._ends:
            return view
        self.stop()
        return self.site.ask_one(look_question(self._job_id()))


def source_question(
    function: str, path: str, problems: Mapping[str, str], *more: str
) -> Question[dict[str, str] | str]:
    """Ask for the `state` (file | folder) and the `identity` of what is to be uploaded, and for `more`, such as `size`.

    A text as answer says why it cannot be uploaded: one of `problems`, by the state.
    """

    def parse(reply: Reply) -> dict[str, str] | str:
        fields, _ = parse_fields(reply.output)
        if all(fields.get(key) for key in ("identity", *more)) and fields.get("size", "0").isdecimal():
            return fields
        return problems.get(fields.get("state", ""), "the target does not report its type")

    return Question("source", format_call("upload_sources", function, path=quote_path(path)), parse, 60.0)


def ran_too_long(view: JobView) -> bool:
    """Return whether this try was stopped because it exceeded its time limit."""
    return view.status is JobStatus.STOPPED and view.stopped_by == TIME_LIMIT
