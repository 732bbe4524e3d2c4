"""GPU memory by process, asked of nvidia-smi in a thread: it may take seconds, and only the first look waits for it."""

from __future__ import annotations

import threading

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandFailed, ToolNotFound, TrainingMonitorError
from training_monitor.parse.nvidia_smi import GPU_FIELDS_MINIMAL, PROCESS_FIELDS, parse_gpu_processes, parse_gpus
from training_monitor.policy.gpu_memory import GpuMemory, add_up_gpus
from training_monitor.targets.transport import LocalTransport, Transport

INTERVAL, LIMIT = 2.0, 5.0
INTERVAL_WITHOUT = 60.0  # where there is no nvidia-smi
OLDEST = 15.0  # seconds that an answer is shown


class GpuReader:
    """Asks at most every INTERVAL seconds, when `latest` is called, and never twice at once."""

    def __init__(self, *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._transport, self._clock = transport or LocalTransport(), clock
        self._lock = threading.Lock()
        self._is_asking = False
        self._has_asked = threading.Event()  # once, whatever came of it
        self._next = clock.monotonic()  # when it is asked again
        self._answer: GpuMemory | None = None
        self._answered = 0.0
        self._error = "nvidia-smi has not answered yet"

    def latest(self) -> GpuMemory:
        """The last answer, at once; when it is older than OLDEST seconds, only why there is no newer one."""
        with self._lock:
            now = self._clock.monotonic()
            if not self._is_asking and now >= self._next:
                self._begin(now)
            if self._answer and now - self._answered <= OLDEST:
                return self._answer
            return GpuMemory(error=self._error)

    def wait_once(self, seconds: float) -> None:
        """Wait until the first question of all has come to something; never again after that."""
        if not self._has_asked.is_set():
            self._clock.wait(self._has_asked, seconds)
            self._has_asked.set()

    def _begin(self, now: float) -> None:
        self._is_asking, self._next = True, now + INTERVAL
        try:
            threading.Thread(target=self._ask, name="training_monitor nvidia-smi", daemon=True).start()
        except RuntimeError as error:  # this machine has no thread left
            self._is_asking, self._error = False, f"nvidia-smi was not asked: {error}"
            self._has_asked.set()

    def _ask(self) -> None:
        answer, interval = None, INTERVAL
        said = f"nvidia-smi has not answered for {OLDEST:g} s"
        try:
            answer = ask_gpu_memory(self._transport)
        except ToolNotFound:
            said, interval = "no nvidia-smi here", INTERVAL_WITHOUT
        except (TrainingMonitorError, OSError, RuntimeError) as error:  # or no thread left to read what it prints
            said = str(error)[:300]
        with self._lock:
            now = self._clock.monotonic()
            self._is_asking, self._error = False, said
            self._next = max(self._next, now + interval if interval > INTERVAL else now)
            if answer:
                self._answer, self._answered = answer, now
        self._has_asked.set()


def ask_gpu_memory(transport: Transport) -> GpuMemory:
    """Ask nvidia-smi twice, LIMIT seconds in all.

    Raises:
        ToolNotFound: There is no nvidia-smi.
        CommandError: It gave no answer, or the driver's own message.
        ParseError: What it printed is none.
    """
    table = parse_gpus(_query(transport, "gpu", GPU_FIELDS_MINIMAL))
    if table.error:
        raise CommandFailed(f"nvidia-smi: {table.error}")
    return add_up_gpus(table, parse_gpu_processes(_query(transport, "compute-apps", PROCESS_FIELDS)))


def _query(transport: Transport, what: str, fields: tuple[str, ...]) -> str:
    argv = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    result = transport.run(argv, timeout=LIMIT / 2)
    return result.stdout or result.stderr
