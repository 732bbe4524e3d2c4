"""Every way in which a training can live and end, by real processes: what its file, and `top`, say afterwards.

docs/top.md has the table: a row here is a row there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import wait_until
from tests.integration.notebook_pages import ROOT
from tests.integration.scripts import Script
from tests.requirements import miss
from training_monitor.runs import RunCollector, open_runs

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
BEGIN = """
import asyncio, concurrent.futures, multiprocessing, os, signal, sys, threading, time
from training_monitor.runs.monitor import TrainingMonitor

RUN = "progress/run.json"

def new():
    return TrainingMonitor(RUN, interval=0.02)

def fail():
    raise ValueError("boom")

def wait(*ignored):
    open("waits", "w").close()
    for _ in range(600):
        time.sleep(.1)

def steps(monitor, end=None, batches=20):
    monitor.start_epoch(1, 20, 1)
    for batch in range(batches):
        monitor.start_batch()
        monitor.update_metrics(loss=1.0)
        if end and batch == 5:
            end()

def train(end=None):
    steps(new(), end)

def copied(rank, monitor, end=None):
    with monitor:
        steps(monitor, end)
        monitor.update_metrics(mine=rank)
        time.sleep(.5 if rank else 2.5)

def leave():
    sys.exit(3)

def leave_by_raise():
    raise SystemExit(3)

def started(context, function, *arguments):
    child = (getattr(context, "Process", None) or context.Thread)(target=function, args=arguments)
    child.start()
    return child

def ended(*children):
    for child in children:
        child.join()

def waits():
    while not os.path.exists("waits"):
        time.sleep(.02)

async def task(end):
    with new() as monitor:
        steps(monitor, end if end is fail else None, batches=6)
        open("waits", "w").close()
        await asyncio.sleep(60)

async def gathered(end):
    running = asyncio.create_task(task(end))
    while not (running.done() or os.path.exists("waits")):
        await asyncio.sleep(.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

if __name__ == "__main__":
    context = multiprocessing.get_context(os.environ.get("METHOD") or "fork")
"""


@dataclass(frozen=True)
class Row:
    """One way: the row of docs/top.md, what the script does, and what is then said of it."""

    lives: str
    ends: str
    body: str
    status: str
    message: str | None = None
    code: int = 0
    methods: tuple[str, ...] = ("",)  # how multiprocessing starts its children
    written: str = ""  # what the file itself says, where a reader concludes more
    step: int | None = 6
    mine: int | None = None  # which rank wrote
    exit_code: int | None = None  # in the file


ALL = ("fork", "spawn", "forkserver")
BOOM = "ValueError: boom"
ROWS = (
    Row("script", "runs to its end", "train()", "FINISHED", step=20),
    Row("script", "exception", "train(fail)", "FAILED", BOOM, 1),
    Row("script", "`sys.exit(3)`", "train(lambda: sys.exit(3))", "FAILED", code=3, exit_code=3),
    Row("script", "`sys.exit(0)` in the middle of an epoch", "train(lambda: sys.exit(0))", "CANCELED",
        "exited with status 0 at batch 6 of 20", exit_code=0),
    Row("script", "the loop ends early", "steps(new(), batches=6)", "FINISHED", "ended at batch 6 of 20"),
    Row("script", "the loop ends early", "steps(new(), batches=6); sys.exit(0)", "FINISHED",
        "exited with status 0 at batch 6 of 20", exit_code=0),
    Row("script", "SIGTERM, Ctrl-C", "train(lambda: os.kill(os.getpid(), signal.SIGTERM))", "CANCELED", "SIGTERM", 143),
    Row("script", "`os._exit(3)`", "train(lambda: os._exit(3))", "FAILED", code=3, exit_code=3),
    Row("script", "`os._exit(0)` after the last batch", "train(); os._exit(0)", "FINISHED", step=20, exit_code=0),
    Row("script", "killed after the last batch", "train(); time.sleep(.5); os.kill(os.getpid(), 9)", "FINISHED",
        code=-9, written="RUNNING", step=20),
    Row("script", "killed before", "train(lambda: (time.sleep(.5), os.kill(os.getpid(), 9)))", "KILLED",
        code=-9, written="RUNNING"),
    Row("child of multiprocessing", "its function returns", "ended(started(context, train))", "FINISHED",
        methods=ALL, step=20),
    Row("child of multiprocessing", "exception", "ended(started(context, train, fail))", "FAILED", BOOM, methods=ALL),
    Row("child of multiprocessing", "`sys.exit(3)`", "ended(started(context, train, leave))",
        "FAILED", exit_code=3, methods=ALL),
    Row("child of multiprocessing", "`raise SystemExit(3)`", "ended(started(context, train, leave_by_raise))",
        "FAILED", exit_code=3, methods=ALL),
    Row("child of multiprocessing", "`terminate()`",
        "child = started(context, train, wait); waits(); child.terminate(); child.join()", "CANCELED", "SIGTERM",
        methods=ALL),
    Row("task of a Pool", "its function returns",
        "with context.Pool(2) as pool: pool.apply(train)", "FINISHED", methods=ALL, step=20),
    Row("task of a Pool", "exception", "with context.Pool(2) as pool: pool.apply(train, (fail,))", "FAILED", BOOM, 1,
        methods=ALL),
    Row("task of a Pool", "`terminate()`",
        "with context.Pool(2) as pool: pool.apply_async(train, (wait,)); waits()", "CANCELED", "SIGTERM",
        methods=ALL),
    Row("task of a ProcessPoolExecutor", "its function returns",
        "with concurrent.futures.ProcessPoolExecutor(2, context) as pool: pool.submit(train)", "FINISHED",
        methods=ALL, step=20),
    Row("task of a ProcessPoolExecutor", "exception",
        "with concurrent.futures.ProcessPoolExecutor(2, context) as pool: pool.submit(train, fail)", "FAILED", BOOM,
        methods=ALL),
    Row("thread", "its function returns", "threading.Thread(target=train).start()", "FINISHED", step=20),
    Row("thread", "exception", "threading.Thread(target=train, args=(fail,)).start()", "FAILED", BOOM),
    Row("thread", "exception",
        "with new() as monitor: ended(started(threading, steps, monitor, fail))", "FAILED", BOOM),
    Row("task of asyncio", "exception", "asyncio.run(gathered(fail))", "FAILED", BOOM),
    Row("task of asyncio", "canceled", "asyncio.run(gathered(None))", "CANCELED", "CancelledError"),
    Row("copy in a child", "its function returns",
        "monitor = new(); ended(*(started(context, copied, rank, monitor) for rank in range(2)))", "FINISHED",
        methods=ALL, step=20, mine=0),
    Row("copy in a child", "its function returns",
        "with new() as monitor: ended(*(started(context, copied, rank, monitor) for rank in range(2)))", "FINISHED",
        methods=ALL, step=20, mine=0),
    Row("copy in a child", "exception", "with new() as monitor: ended(started(context, copied, 0, monitor, fail))",
        "FAILED", BOOM, methods=ALL),
    Row("copy in a child", "`sys.exit(3)`",
        "monitor = new()\nif os.fork() == 0: steps(monitor, leave)\nos.wait()", "FAILED", exit_code=3),
)  # fmt: skip


def pythons() -> dict[str, str]:
    """The interpreters that are here, by their versions: on PATH, or of pyenv."""
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in VERSIONS:
        of_pyenv = sorted(root.glob(f"{version}.*/bin/python"))
        program = of_pyenv[-1] if of_pyenv else shutil.which(f"python{version}")
        if program and version not in found and not subprocess.run([program, "-c", ""], capture_output=True).returncode:
            found[version] = str(program)
    return found


PYTHONS = pythons()


def row_of(folder: Path) -> Any:
    """What `top` says of the only run."""
    [row] = RunCollector(open_runs(str(folder)), where="").look_once().rows
    return row


@pytest.mark.parametrize("version", VERSIONS)
def test_every_ending_has_its_status(tmp_path: Path, version: str, subtests: pytest.Subtests) -> None:
    if version not in PYTHONS:
        miss(f"python{version}", f"Python {version} is not installed")
    for number, row in enumerate(ROWS):
        for method in row.methods:
            with subtests.test(lives=row.lives, ends=row.ends, method=method):
                script = Script(tmp_path / f"{number}{method}", PYTHONS[version])
                code, _, err = script.run("", begin=BEGIN + textwrap.indent(row.body, "    "), METHOD=method)
                document = script.read()
                said = document["status"], document["error_message"], document["state"]["step"]
                written = row.written or row.status
                assert (code, *said) == (row.code, written, row.message, row.step), err
                if row.lives == "script" or row.exit_code:
                    assert document["exit_code"] == row.exit_code
                assert document["metrics"].get("mine") == row.mine
                assert "SystemExit" not in err and "Warning" not in err
                assert wait_until(lambda script=script, row=row: row_of(script.file.parent).status == row.status)


def test_the_manual_has_every_ending() -> None:
    manual = (ROOT / "docs" / "top.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert re.search(rf"^\| {re.escape(row.lives)} \| {re.escape(row.ends)} \| {row.status}\b", manual, re.M), row
