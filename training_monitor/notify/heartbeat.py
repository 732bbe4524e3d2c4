"""Pings a dead-man service, such as healthchecks.io, while looks see something: when the pings stop, it tells somebody.

So somebody hears of it when the watcher itself dies, hangs, or sees nothing any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import RestError, SettingsError
from training_monitor.rest import REQUEST_SECONDS, check_url, request

TRIES = 3
FIRST_WAIT = 1.0  # seconds between two tries; it doubles
_LOGGER = logging.getLogger("training_monitor")
_LOGGER.addHandler(logging.NullHandler())  # without it, what nobody logs would be printed


class Heartbeat:
    """GETs a URL, from a thread of its own: whoever looks never waits for it, and nothing that fails here reaches them.

    Pings do not pile up: of those that are due while one is under way, one is made.

    Args:
        url: may be a secret: it is shown nowhere, except for its scheme and host.
        on_problem: called from that thread, with a sentence, when pings begin to fail and when they arrive again.
        timeout: seconds for one request.

    Raises:
        SettingsError: it is no http or https URL.
    """

    def __init__(
        self,
        url: str,
        *,
        on_problem: Callable[[str], object] | None = None,
        timeout: float = REQUEST_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        try:
            self._origin = check_url(url)
        except RestError:
            raise SettingsError("--heartbeat", "***", "an http or https URL") from None
        self._url, self._on_problem, self._timeout, self._clock = url, on_problem, timeout, clock
        self._due, self._closing, self._news = False, threading.Event(), threading.Event()
        self._is_failing = False
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="training_monitor heartbeat", daemon=True)

    def beat(self) -> None:
        """Say that a look saw something. Returns at once and raises nothing."""
        self._due = True
        self._news.set()
        with self._starting:
            if self._thread.ident is None:
                try:
                    self._thread.start()
                except RuntimeError:  # this machine has no thread left: the next look tries again
                    self._thread = threading.Thread(target=self._run, name=self._thread.name, daemon=True)

    def close(self, timeout: float = 5.0) -> None:
        """Let a ping that is due leave, waiting for at most `timeout` seconds."""
        self._closing.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while self._due or not self._closing.is_set():
            self._news.wait()
            self._news.clear()
            if self._due:
                self._due = False
                self._ping()

    def _ping(self) -> None:
        wait = FIRST_WAIT
        for tried in range(1, TRIES + 1):
            problem = self._try()
            if problem is None or not problem.temporary or tried == TRIES:
                break
            self._clock.wait(self._closing, wait)
            wait *= 2
        if (problem is not None) != self._is_failing:
            self._is_failing = problem is not None
            self._tell(f"heartbeat: {problem}" if problem else f"heartbeat: {self._origin} takes pings again")

    def _try(self) -> RestError | None:
        try:
            request("GET", self._url, timeout=self._timeout)
        except RestError as error:
            return error
        except Exception as error:  # its words may hold the URL
            return RestError(f"{self._origin}: it failed with {type(error).__name__}")
        return None

    def _tell(self, text: str) -> None:
        _LOGGER.warning("%s", text)
        if self._on_problem:
            self._on_problem(text)
