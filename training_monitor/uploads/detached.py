"""Uploads that do not depend on a connection: each try is a process job on the target, under a name that is derived
from what is uploaded. Whoever calls again, also after a crash, finds the try that runs and waits for it.

What a try found out is in the file `result` of its run directory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from training_monitor.clock import Clock
from training_monitor.errors import (
    CommandFailed,
    CommandTimedOut,
    TargetNotFound,
    TargetUnreachable,
    redact,
)
from training_monitor.models import JobStatus, JobView, Question, T
from training_monitor.probes.process_jobs import PREFIX, jobs_question, look_question, start_question
from training_monitor.targets.asking import ask, read_text
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

LOOK_SECONDS = 2.0
MOST_SILENT_LOOKS = 15
MOST_TRIES = 3
BACK_OFF_SECONDS = 5.0

_RESULTS = r"""
base=${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}
for name in NAMES; do
  [ ! -f "$base/$name/result" ] || cat "$base/$name/result" || exit 1
done
"""


@dataclass(frozen=True, slots=True)
class Way:
    """A target, how it is reached, and the clock of whoever waits for it."""

    target: str | Target
    namespace: str
    transport: Transport | None
    clock: Clock

    def ask(self, question: Question[T]) -> T:
        """Ask one question. Raises what kept us from asking."""
        [answer] = ask(self.target, question, namespace=self.namespace, transport=self.transport)
        return cast(T, answer.get())


class DetachedUpload:
    """All tries of one upload on one target; at most one runs."""

    def __init__(
        self,
        way: Way,
        identity: Sequence[str],
        *,
        timeout: float | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """`identity` says what goes where: the same identity is the same upload. `timeout` counts from now, seconds."""
        self.attempts = 1
        self._way, self._clock = way, way.clock
        self._name = "upload-" + hashlib.sha256("\0".join(identity).encode("utf-8", "replace")).hexdigest()[:16]
        self._deadline = None if timeout is None else way.clock.monotonic() + timeout
        self._on_progress, self._told = on_progress, ""

    def ask(self, question: Question[T]) -> T:
        """Ask the target one question. Raises what kept us from asking."""
        return self._way.ask(question)

    def settle(self) -> JobView | None:
        """Wait for the newest try, whoever started it; None when there was none."""
        numbers = self._numbers()
        return self._wait(numbers[-1]) if numbers else None

    def run(self, command: str, env: Mapping[str, str]) -> JobView:
        """Start the next try and wait for its end; the try of somebody who was faster is as good.

        Args:
            command: a sh script, kept in the run directory: no secrets.
            env: kept in no file.

        Raises:
            CommandFailed: it could not be started, or somebody stopped it.
            CommandTimedOut: it runs on; call again to wait for it.
            CommandError: the target could not be asked.
        """
        number = max(self._numbers(), default=0) + 1
        self._start(start_question(self._job_id(number), command, env, None))
        view = self._wait(number)
        if view is None:
            raise CommandFailed("the run directory of the upload was removed while it ran")
        if view.status is JobStatus.STOPPED:
            raise CommandFailed(f"the upload was {view.message}")
        return view

    def back_off(self, failures: int) -> None:
        """Wait before another attempt, longer after each of `failures` in a row."""
        self.attempts += 1
        self._clock.sleep(BACK_OFF_SECONDS * 2 ** (failures - 1))

    def results(self, *, newest_only: bool = False) -> str:
        """What the tries wrote down, oldest first."""
        names = [f"{self._name}-{number}" for number in self._numbers()]
        script = _RESULTS.replace("NAMES", " ".join(names[-1:] if newest_only else names))
        return self.ask(Question("results", script, read_text, 60.0))

    def tell(self, text: str) -> None:
        """Report progress, each text once."""
        line = redact("".join(letter for letter in text if letter.isprintable())[:200].strip())
        if self._on_progress and line and line != self._told:
            self._told = line
            self._on_progress(line)

    def _job_id(self, number: int) -> str:
        return f"{PREFIX}{self._name}-{number}"

    def _start(self, start: Question[str]) -> None:
        """Start it; where the answer was lost, ask again: the same question has started it too."""
        for _ in range(MOST_TRIES - 1):
            try:
                self.ask(start)
                return
            except (CommandTimedOut, TargetUnreachable):
                self._clock.sleep(LOOK_SECONDS)
        self.ask(start)

    def _numbers(self) -> list[int]:
        names = self.ask(jobs_question())
        return sorted(int(found[1]) for name in names if (found := re.fullmatch(rf"{self._name}-(\d{{1,6}})", name)))

    def _wait(self, number: int) -> JobView | None:
        """The try when it has ended; None when its run directory is gone."""
        silent = 0
        while True:
            try:
                view, silent = self.ask(look_question(self._job_id(number))), 0
            except (CommandTimedOut, TargetUnreachable) as error:
                silent += 1
                if silent >= MOST_SILENT_LOOKS or isinstance(error, TargetNotFound):
                    raise
                view = None
            if not silent and (view is None or view.status.is_terminal):
                return view
            if view is not None:
                self.tell(_last_line(view.log_tail))
            if self._deadline is not None and self._clock.monotonic() >= self._deadline:
                raise CommandTimedOut("the upload runs on", hint="call again: it is found and waited for")
            self._clock.sleep(LOOK_SECONDS)


def _last_line(log: str) -> str:
    lines = [line for line in re.split(r"[\r\n]+", log[-4000:]) if line.strip()]
    return lines[-1] if lines else ""
