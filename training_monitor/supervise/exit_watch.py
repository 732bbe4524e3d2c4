"""One held connection that waits for a process job to end, so that its exit is noticed at once.

If the connection drops, nothing is concluded: polling goes on, and the next look opens it again.
"""

from __future__ import annotations

import threading

from training_monitor.errors import TrainingMonitorError
from training_monitor.probes.jobs import is_process_job
from training_monitor.probes.process_jobs import wait_script
from training_monitor.targets.connect import connect
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Stream, Transport


class ExitWatch:
    """`ended` is set when the target says that the job's process is gone."""

    def __init__(self, target: Target, transport: Transport | None) -> None:
        self.target, self._transport = target, transport
        self._job_id: str | None = None
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()

    def follow(self, job_id: str) -> None:
        """Hold a connection for this job; does nothing while one is held, or for a Ray job."""
        if not is_process_job(job_id) or (job_id == self._job_id and self._thread and self._thread.is_alive()):
            return
        self.close()
        self.ended.clear()
        self._job_id = job_id
        try:
            self._stream = connect(self.target, self._transport).stream(["sh", "-s"], input=wait_script(job_id))
        except TrainingMonitorError:
            return
        self._thread = threading.Thread(target=self._read, args=(self._stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Stream) -> None:
        said = b""
        for chunk in stream.chunks():
            said = (said + chunk)[-100:]
            if said.endswith(b"ended\n"):
                self.ended.set()

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        self._stream = self._thread = None
