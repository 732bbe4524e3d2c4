"""Simulate pods that have their own processors: replay the recorded output of their scripts after the recorded time.

The pods of a cluster do not share processors with the machine that queries them. A `Recorder` runs the script of each
pod on this machine, one at a time, and keeps the output and the median of the durations. During `elsewhere`, the
loopback API sends that output after that time. kubectl, the API and what is measured run unchanged.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple

from bench.table import in_turn
from tests.loopback import kubernetes
from training_monitor.core.results import CommandResult
from training_monitor.targets.transport import LocalTransport

NONCE = re.compile(rb"_nonce='?([0-9a-f]{24})")
TIMES = 7
LEAST = 0.002  # seconds of `true` in namespaces of its own


class Said(NamedTuple):
    """What a pod printed, the nonce of its script, and how many seconds it took alone."""

    output: bytes
    nonce: bytes
    seconds: float


class Recorder(LocalTransport):
    """Run the script of each of `pods` on this machine, one at a time."""

    def __init__(self, pods: Mapping[str, kubernetes.Pod]) -> None:
        self.pods, self.said, self._alone = pods, dict[str, Said](), threading.Lock()

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None, **more: Any) -> CommandResult:
        if input is None:
            return super().run(argv, timeout=timeout, **more)
        at = argv.index("--")
        pod = self.pods[argv[at - 1]]
        there = ["env", "-i", "-C", str(pod.root), *(f"{name}={value}" for name, value in pod.environment().items())]
        words = [*there, *kubernetes.NO_PROCESSES, *argv[at + 1 :]]
        run_there = partial(super().run, words, timeout=timeout, input=input)
        with self._alone:
            result, seconds = run_there(), in_turn({"script": run_there}, TIMES)["script"]
        [nonce] = NONCE.findall(input.encode())
        self.said[pod.name] = Said(result.stdout.encode(), nonce, seconds)
        return result


class Elsewhere(kubernetes.Execution):
    """A command of a recorded pod."""

    said: ClassVar[Mapping[str, Said]] = {}

    def run(self) -> None:
        script, messages = b"", self.web_socket.messages()
        if "stdin" not in self.streams:
            time.sleep(LEAST)
        else:
            said = self.said[self.pod.name]
            while not (nonce := NONCE.search(script)):
                script += next(messages)[1:]
            time.sleep(said.seconds)
            self.web_socket.send(kubernetes.STDOUT, said.output.replace(said.nonce, nonce[1]))
        self.web_socket.finish(kubernetes.exit_status(0))
        deque(messages, maxlen=0)  # unread input would make the kernel reset the connection


@contextmanager
def elsewhere(said: Mapping[str, Said]) -> Iterator[None]:
    """Let the recorded pods run elsewhere during the block."""
    Elsewhere.said, before = said, kubernetes.Execution
    kubernetes.Execution = Elsewhere  # type: ignore[misc]
    try:
        yield
    finally:
        kubernetes.Execution = before  # type: ignore[misc]
