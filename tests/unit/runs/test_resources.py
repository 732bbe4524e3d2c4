"""GPU memory, asked beside the looks: what is shown while nvidia-smi hangs, fails or is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.fakes import FakeClock, FakeTransport
from tests.unit.runs.run_world import machine
from training_monitor.core.errors import CommandTimedOut, ToolNotFound
from training_monitor.core.results import CommandResult
from training_monitor.runs.resources import GpuMemory, GpuReader, with_gpus

CARDS = "0, NVIDIA H200, 35, 1024, 143771\n1, NVIDIA H200, 0, 24, 143771\n"
APPS = "77, python, GPU-a, 1000\n78, python, GPU-a, 24\n77, python, GPU-b, 20\n"


class Smi:
    """nvidia-smi: answers `cards` and `apps`, or raises `error`; `asked` counts the questions."""

    def __init__(self) -> None:
        self.cards, self.apps, self.asked = CARDS, APPS, 0
        self.error: Exception | None = None
        self.go = threading.Event()
        self.go.set()
        self.clock = FakeClock()
        transport = FakeTransport(lambda script: ("", 0))
        transport.register(["nvidia-smi"], self._run)
        self.reader = GpuReader(transport=transport, clock=self.clock)

    def _run(self, words: tuple[str, ...], program: str | None) -> CommandResult:
        self.go.wait()
        if words[1].startswith("--query-gpu="):
            self.asked += 1
        if self.error:
            raise self.error
        return CommandResult(words, 0, self.cards if words[1].startswith("--query-gpu=") else self.apps, "", 0.0)

    def latest(self) -> GpuMemory:
        """Ask, and wait until the thread that asks is through."""
        self.reader.latest()
        self.join()
        return self.reader.latest()

    @staticmethod
    def join() -> None:
        for thread in threading.enumerate():
            if thread.name == "training_monitor nvidia-smi":
                thread.join()


def after(smi: Smi, seconds: float, call: Callable[[], GpuMemory]) -> GpuMemory:
    smi.clock.sleep(seconds)
    return call()


def test_memory_is_summed_over_all_gpus_and_none_where_no_process_is() -> None:
    memory, smi = Smi().latest(), Smi()
    assert memory == GpuMemory({77: 1020.0, 78: 24.0}, 287542.0)
    sample = with_gpus(machine(), memory)
    assert (sample.gpu_mib, sample.gpu_total_mib, sample.gpu_error) == (memory.by_pid, 287542.0, None)
    smi.apps = ""
    assert smi.latest() == GpuMemory({}, 287542.0)


def test_a_hanging_nvidia_smi_keeps_nobody_waiting_and_is_asked_once() -> None:
    smi = Smi()
    smi.go.clear()
    for _ in range(5):
        assert after(smi, 10.0, smi.reader.latest) == GpuMemory(error="nvidia-smi has not responded yet")
    smi.go.set()
    smi.join()
    assert smi.asked == 1
    assert smi.reader.latest().by_pid == {77: 1020.0, 78: 24.0}


def test_only_the_first_answer_is_waited_for_and_none_where_there_is_none() -> None:
    smi = Smi()
    smi.go.clear()
    smi.reader.latest()
    for _ in range(3):
        smi.reader.wait_once(1.0)
    assert smi.clock.elapsed == 1.0
    smi.go.set()
    smi.join()
    smi = Smi()
    smi.error = ToolNotFound("nvidia-smi is not installed here")
    smi.latest()
    smi.reader.wait_once(1.0)
    assert smi.clock.elapsed == 0.0


def test_an_old_answer_is_shown_for_fifteen_seconds_and_not_longer() -> None:
    smi = Smi()
    assert smi.latest().by_pid
    smi.go.clear()
    assert after(smi, 14.0, smi.reader.latest).by_pid
    gone = after(smi, 2.0, smi.reader.latest)
    assert gone == GpuMemory(error="nvidia-smi has not responded for 15 s")
    smi.go.set()
    smi.join()
    assert smi.reader.latest().by_pid


def test_why_it_fails_is_told_when_the_last_answer_is_old() -> None:
    smi = Smi()
    assert smi.latest().by_pid
    smi.error = CommandTimedOut("nvidia-smi did not respond within 2.5 s")
    assert after(smi, 3.0, smi.latest).by_pid
    assert "did not respond within 2.5 s" in str(after(smi, 13.0, smi.latest).error)
    smi.error = None
    assert after(smi, 3.0, smi.latest).by_pid


def test_it_is_asked_every_two_seconds_and_where_there_is_none_once_a_minute() -> None:
    smi = Smi()
    for _ in range(8):
        after(smi, 0.5, smi.latest)
    assert smi.asked == 2
    smi = Smi()
    smi.error = ToolNotFound("nvidia-smi is not installed here")
    for _ in range(20):
        assert after(smi, 2.0, smi.latest) == GpuMemory(error="nvidia-smi is not installed here")
    assert smi.asked == 1
    smi.error = None
    assert after(smi, 30.0, smi.latest).by_pid
    assert smi.asked == 2


def test_memory_that_is_not_reported_is_not_zero() -> None:
    smi = Smi()
    smi.apps = "77, python, GPU-a, [N/A]\n78, python, GPU-a, 5\n"
    answer = smi.latest()
    assert (answer.by_pid, answer.total) == (None, 287542.0)
    assert answer.error == "nvidia-smi does not report the GPU use of process 77"
    smi = Smi()
    smi.cards = CARDS.replace("24, 143771", "24, [N/A]")
    assert smi.latest() == GpuMemory({77: 1020.0, 78: 24.0}, None)
    smi = Smi()
    smi.cards = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert "communicate with the NVIDIA driver" in str(smi.latest().error)
    smi = Smi()
    smi.cards = "\x00garbage"
    assert smi.latest().by_pid is None
