"""One held connection that waits for a job to end, so that its end is noticed at once.

If the connection drops, nothing is concluded: polling goes on, and the next look opens it again.
"""

from __future__ import annotations

import threading

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import TrainingMonitorError
from training_monitor.probes import process_jobs, ray_processes
from training_monitor.probes.jobs import is_process_job
from training_monitor.targets.connect import connect
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Stream, Transport

SILENT_SECONDS = 40.0  # after which a connection that should say something every 10 s is taken for lost


class ExitWatch:
    """`ended` is set when the target says that the job is over."""

    def __init__(self, target: Target, transport: Transport | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.target, self._transport, self._clock = target, transport, clock
        self._job_id: str | None = None
        self._heard, self._is_over = 0.0, False
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()

    def follow(self, job_id: str) -> None:
        """Hold a connection for this job; does nothing while one is held.

        Of a job that was told to be over and is followed all the same, the next look decides before it is asked again.
        """
        if job_id == self._job_id and (self._is_over or self._is_held()):
            self._is_over = False
            return
        self.close()
        self.ended.clear()
        self._job_id, self._is_over, self._heard = job_id, False, self._clock.monotonic()
        find = process_jobs.wait_script if is_process_job(job_id) else ray_processes.wait_script
        try:
            self._stream = connect(self.target, self._transport).stream(["sh", "-s"], input=find(job_id))
        except TrainingMonitorError:
            return
        self._thread = threading.Thread(target=self._read, args=(self._stream,), daemon=True)
        self._thread.start()

    def _is_held(self) -> bool:
        is_silent = self._clock.monotonic() - self._heard > SILENT_SECONDS
        return self._thread is not None and self._thread.is_alive() and not is_silent

    def _read(self, stream: Stream) -> None:
        said = b""
        for chunk in stream.chunks():
            if stream is not self._stream:
                return  # another one took its place
            said = (said + chunk)[-100:]
            self._heard = self._clock.monotonic()
            if said.endswith(b"ended\n"):
                self._is_over = True
                self.ended.set()

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        self._stream = self._thread = None
