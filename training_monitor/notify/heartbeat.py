"""Ping a dead-man service, such as healthchecks.io, while looks succeed; report outages that last, each once.

When the pings stop, the service raises the alarm: the watcher itself has died, hangs, or sees nothing anymore.

There are two kinds of outage: the target cannot be asked, or the state folder of this machine cannot be used. Neither
says anything about the training. Nothing here blocks the caller, or raises errors from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from training_monitor.core.addresses import REQUEST_SECONDS, check_url
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import begin_thread
from training_monitor.core.errors import RestError, SettingsError, StateError, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.masking import MASK
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.notify import templates

TRIES = 3
FIRST_WAIT = 1.0  # seconds between two tries; it doubles

Tell = Callable[[float, float], object]  # called with the start (epoch seconds) and the duration (seconds)


class Heartbeat:
    """Ping a URL from a separate thread. The caller never waits for a ping, and never sees its errors.

    Pings do not pile up: while a ping is in progress, all further pings are combined into one.

    Args:
        url: the URL to ping. Because it may be a secret, only its scheme and host are ever displayed.
        on_problem: called from the separate thread with a sentence when pings begin to fail, and when they succeed
            again.
        timeout: maximum seconds for one request.

    Raises:
        SettingsError: `url` is not an http or https URL.
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
            raise SettingsError("heartbeat", MASK, "an http or https URL") from None
        self._url, self._on_problem, self._timeout, self._clock = url, on_problem, timeout, clock
        self._due, self._closing, self._news = False, threading.Event(), threading.Event()
        self._is_failing = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        """Schedule a ping after a successful look. Returns immediately and never raises."""
        self._due = True
        self._news.set()
        with self._starting:
            self._thread = self._thread or begin_thread(self._run, "heartbeat")

    def close(self, timeout: float = 5.0) -> None:
        """Send a pending ping, if any. Wait at most `timeout` seconds."""
        self._closing.set()
        self._news.set()
        if self._thread:
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
            self._tell(f"heartbeat: {problem}" if problem else f"heartbeat: {self._origin} accepts pings again")

    def _try(self) -> RestError | None:
        from training_monitor.core.rest import request

        try:
            request("GET", self._url, timeout=self._timeout)
        except RestError as error:
            return error
        except Exception as error:  # its text may contain the URL
            return RestError(f"{self._origin} failed with {type(error).__name__}")
        return None

    def _tell(self, text: str) -> None:
        get_logger().warning("%s", text)
        if self._on_problem:
            self._on_problem(text)


@dataclass(frozen=True, slots=True)
class Outage:
    """The start of an outage in epoch seconds, and whether it was reported."""

    since: float
    is_told: bool = False


class OutageRecord:
    """The outage of one thing. It is kept in the store under `key`, so that another process continues with it.

    It begins with the last answer that this process had before it. A sleep of this machine does not count.
    An outage is reported before it is marked as reported: a process killed in between reports it again, as the same
    event.
    """

    def __init__(self, key: str, after: float, clock: Clock, store: Store | None = None) -> None:
        self._key, self._after, self._clock, self._store = f"outage {key}", after, clock, store
        self._outage = self._load()
        self._answered_at: float | None = None

    def begin(self, tell: Tell) -> None:
        """Note a failure; `tell` is called once the outage has lasted long enough."""
        now = self._clock.time()
        outage = self._outage
        if outage is None or outage.since > now:  # the clock was set back
            answered = self._answered_at
            since = now if answered is None else now - (self._clock.monotonic() - answered)
            outage = self._keep(Outage(since, is_told=outage is not None and outage.is_told))
        if outage and not outage.is_told and now - outage.since >= self._after:
            tell(outage.since, now - outage.since)
            self._keep(replace(outage, is_told=True))

    def end(self, tell: Tell) -> None:
        """Note a success; `tell` is called if the outage was reported."""
        self._answered_at = self._clock.monotonic()
        outage = self._outage
        if outage is None:
            return
        if outage.is_told:
            tell(outage.since, max(0.0, self._clock.time() - outage.since))
        self._keep(None)

    def forget(self) -> None:
        """Forget an outage of something that nobody looks at any more."""
        if self._outage is not None:
            self._keep(None)

    def _load(self) -> Outage | None:
        try:
            return self._store.load_run(self._key, Outage) if self._store else None
        except TrainingMonitorError as error:
            get_logger().warning("%s is not known: %s", self._key, error)
            return None

    def _keep(self, outage: Outage | None) -> Outage | None:
        self._outage = outage
        try:
            if self._store and outage is None:
                self._store.forget_run(self._key)
            elif self._store:
                self._store.save_run(self._key, outage, finished=False)
        except TrainingMonitorError as error:  # it stays known in memory
            get_logger().warning("%s is not kept: %s", self._key, error)
        return outage


class Lookout:
    """Turns the results of looks into heartbeats and notices of outages.

    Args:
        key: names what is looked at, in the store.
        name: names it for people.
        post: takes the notices. It must not raise.
        outage_after: seconds until an outage is reported.
    """

    def __init__(
        self,
        key: str,
        name: str,
        post: Callable[[Notice], Any],
        *,
        outage_after: float,
        store: Store,
        clock: Clock,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._name, self._post, self._heartbeat, self._folder = name, post, heartbeat, store.folder
        self._target = OutageRecord(key, outage_after, clock, store)
        self._state = OutageRecord(key, outage_after, clock)  # in memory only: the store is what fails
        self._lock = threading.Lock()

    def note(self, error: TrainingMonitorError | None) -> None:
        """Note the result of a look: None, or the error that made it fail."""
        with self._lock:
            if error is None:
                if self._heartbeat:
                    self._heartbeat.beat()
                self._target.end(partial(self._tell, templates.reached))
                self._state.end(partial(self._tell, templates.state_writable, folder=self._folder))
            elif isinstance(error, StateError):
                self._state.begin(partial(self._tell, templates.state_unwritable, error=error.what))
            else:
                self._target.begin(partial(self._tell, templates.unreachable, error=error.what))

    def _tell(self, template: Callable[..., Notice], since: float, seconds: float, **more: str) -> None:
        self._post(template(templates.About(self._name, generation=int(since)), seconds=seconds, **more))
