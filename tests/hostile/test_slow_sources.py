"""A data source that does not respond: Ray, the GPU driver and a dead mount hang, and the others still respond."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import Place, wait_until
from tests.integration.forked import Forked, forked
from training_monitor.jobs.jobs import look_at_job
from training_monitor.jobs.process_jobs import start_process_job

HANGING = "#!/bin/sh\nexec sleep 984\n"
# Ray's list alone may take 20 s: nobody here waits for it. The rest is for a machine with much else to do.
SECONDS = 19.0
CASES: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("status", "local", "process:b"), 0, "it is process:b-attempt-1"),
    (("check", "local", "process:a", "--field", "step"), 0, r"^\d+$"),
    (("logs", "local", "process:b"), 0, "step"),
    (("check", "local", "b"), 0, "step"),
    (("wait", "local", "b", "--for", "step=2", "--interval", "1"), 0, "reached"),
    (("watch", "local", "process:a", "--once"), 0, "step"),
    (("fleet", "local#process:a", "--once"), 0, "a"),
    (("stop", "local", "process:none"), 2, "no training"),
    (("stop", "local", "process:c", "--stop-grace", "1"), 0, "STOPPED"),
)


@pytest.fixture
def hanging(local: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """This machine, with trainings, whose other sources hang."""
    for name in ("a", "b-attempt-1", "c-attempt-2"):
        start_process_job(
            "local", ["sh", "-c", "n=0; while :; do n=$((n + 1)); echo step $n/99999; sleep 1; done"], name
        )
    for name in ("a", "b-attempt-1"):
        assert wait_until(lambda name=name: "step 2" in look_at_job("local", f"process:{name}").log_tail)  # type: ignore[misc]
    for tool in ("ray", "nvidia-smi", "df"):
        (local.surroundings.tools / tool).write_text(HANGING)
        (local.surroundings.tools / tool).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0), backlog=500) as silent:
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        yield local


def test_a_source_that_hangs_takes_no_answer_from_the_others(hanging: Place) -> None:
    wrong = list[str]()
    with ExitStack() as stack:
        # Ray may have a job of a bare name: while it does not answer, nothing is ended by it.
        stopping = stack.enter_context(forked(["stop", "local", "b", "--stop-grace", "1"], hanging.folder / "stopping"))
        began, started = time.monotonic(), list[Forked]()
        for number, (words, _, _) in enumerate(CASES):
            started.append(stack.enter_context(forked(words, hanging.folder / f"said {number}")))
        for number, (process, (words, status, said)) in enumerate(zip(started, CASES)):
            tried()
            ended = process.wait(max(0.1, SECONDS - (time.monotonic() - began)))
            out = (hanging.folder / f"said {number}").read_text()
            if ended is None:
                wrong.append(f"{words} took more than {SECONDS} s")
            elif ended != status or not re.search(said, out, re.MULTILINE):
                wrong.append(f"{words}: exit code {ended}: {out[-500:]}")
        assert not wrong, "\n".join(wrong)
        assert stopping.wait(120) == 3 and "Traceback" not in (hanging.folder / "stopping").read_text()
    assert look_at_job("local", "process:b-attempt-1").status == "RUNNING"
