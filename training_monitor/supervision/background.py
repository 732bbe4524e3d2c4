"""start_supervision: auto_restart beside the rest of a program, in a notebook for instance."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from training_monitor.core.arguments import checked
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import start_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.models import OnEvent, OnLook
from training_monitor.core.reports import RestartReport
from training_monitor.core.store import Store
from training_monitor.supervision.monitor import EXIT_SECONDS
from training_monitor.supervision.restart import auto_restart
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.restart import RestartPolicy

_TICK = 0.2  # seconds between two looks at whether it is to stop


def start_supervision(
    head_pod: str | Target,
    job_name: str,
    checkpoint_dir: str | None,
    *,
    policy: RestartPolicy | None = None,
    job_config: Mapping[str, Any] | None = None,
    initial_job_id: str | None = None,
    namespace: str = "default",
    take_over: bool = False,
    standby: bool = False,
    on_event: OnEvent | None = None,
    on_look: OnLook | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SupervisionHandle:
    """Supervise a job like `auto_restart`, with the same arguments, in a daemon thread. Returns at once.

    The supervision ends with this program, but the job keeps running. To resume the supervision later, repeat the call.
    """
    stopping = threading.Event()
    call = partial(
        auto_restart,
        head_pod,
        job_name,
        checkpoint_dir,
        policy=policy,
        job_config=job_config,
        initial_job_id=initial_job_id,
        namespace=namespace,
        take_over=take_over,
        standby=standby,
        on_event=on_event,
        on_look=on_look,
        store=store,
        transport=transport,
        clock=_StoppedClock(clock, stopping),
    )
    return SupervisionHandle(f"{job_name} on {head_pod}", call, stopping)


@checked
class SupervisionHandle:
    """A supervision that runs in a background thread; see `start_supervision`."""

    def __init__(self, label: str, call: Callable[[], RestartReport], stopping: threading.Event) -> None:
        self.label, self._call, self._stopping = label, call, stopping
        self._report: RestartReport | None = None
        self._error: Exception | None = None
        self._thread = start_thread(self._run, f"supervision of {label}")

    @property
    def state(self) -> Literal["supervising", "ended", "stopped", "failed"]:
        """Return supervising, ended (with a result), stopped (by `stop_looking`) or failed (with an error)."""
        if self._thread.is_alive():
            return "supervising"
        return "ended" if self._report else "failed" if self._error else "stopped"

    def result(self, timeout: float | None = None) -> RestartReport:
        """Wait until the supervision ends, and return the report of `auto_restart`.

        Args:
            timeout: maximum seconds to wait; None means no limit.

        Raises:
            TimeoutError: the supervision has not ended within `timeout`.
            TrainingMonitorError: the supervision was stopped. An error that ended the supervision is raised unchanged.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.label} is still being supervised after {timeout:g} s")
        if self._error:
            raise self._error
        if self._report is None:
            raise TrainingMonitorError(f"{self.label} is no longer being watched", hint="restart supervision")
        return self._report

    def stop_looking(self) -> None:
        """End the supervision, and wait at most 2 s for its thread to end.

        The job keeps running. To resume the supervision, call `start_supervision` again.
        """
        self._stopping.set()
        self._thread.join(EXIT_SECONDS)

    def _run(self) -> None:
        atexit.register(self.stop_looking)
        try:
            self._report = self._call()
        except KeyboardInterrupt:
            get_logger().info("%s: no longer supervised by this process", self.label)
        except Exception as error:  # also a defect: nobody else would hear of it
            self._error = error
            get_logger().error("%s: %s", self.label, error)
        finally:
            atexit.unregister(self.stop_looking)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.label}: {self.state}>"


class _StoppedClock:
    """A clock whose waits end when a supervision is to stop, as they do on Ctrl-C."""

    def __init__(self, clock: Clock, stopping: threading.Event) -> None:
        self._clock, self._stopping = clock, stopping
        self.time, self.monotonic = clock.time, clock.monotonic

    def sleep(self, seconds: float) -> None:
        self.wait(self._stopping, seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        end = self.monotonic() + seconds
        while not (self._stopping.is_set() or event.is_set()) and (left := end - self.monotonic()) > 0:
            self._clock.wait(event, min(left, _TICK))
        if self._stopping.is_set():
            raise KeyboardInterrupt
        return event.is_set()
