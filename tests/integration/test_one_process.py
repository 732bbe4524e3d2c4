"""`why` for one process: what the kernel says that it waits for, or how it ended, with exit code 0."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, kill_sessions, wait_until
from tests.integration.roll_call_training import PYTHON
from tests.requirements import require

LOCK = "import fcntl; file = open('shared.lock', 'w'); fcntl.{how}(file, fcntl.LOCK_EX); open('{name}', 'w'); input()"
# Attaches to a process as a debugger does, and holds it.
TRACE = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(16, int(sys.argv[1]), None, None) == 0, ctypes.get_errno()
time.sleep(3600)
"""
LEAVE = "import os, time; os.fork() and os._exit(0); open('there', 'w'); time.sleep(3600)"
PARENT = "import os, time; os.fork() or os._exit(3); time.sleep(3600)"
# Processes of multiprocessing, of which one waits for a FIFO that nobody writes, and the others for that one.
WORKERS = """
import multiprocessing, os, sys

def read(barrier, number):
    if number == 1:
        open("number", "w").write(str(os.getpid()))
        os.open("fifo", os.O_RDONLY) if sys.argv[3] == "open" else os.read(os.open("fifo", os.O_RDWR), 1)
    if barrier:
        barrier.wait()

def call(number):
    read(None, number)

if __name__ == "__main__":
    context, kind = multiprocessing.get_context(sys.argv[1]), sys.argv[2]
    if kind == "pool":
        with context.Pool(2) as pool:
            pool.map(call, range(4), chunksize=1)
    elif kind == "queue":
        queue = context.Queue()
        context.Process(target=read, args=(None, 1)).start()
        queue.get()
    else:
        barrier = context.Barrier(2)
        started = [context.Process(target=read, args=(barrier, number)) for number in range(2)]
        [each.start() for each in started] + [each.join() for each in started]
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[Start]:
    """Start a command in a session of its own, with an open pipe as its input and a log."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, **more: Any) -> subprocess.Popen[bytes]:
        with (surroundings.folder / f"{len(started)}.log").open("wb") as log:
            given = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log, **more}
            started.append(subprocess.Popen(words, cwd=surroundings.folder, start_new_session=True, **given))
        return started[-1]

    yield run
    kill_sessions(started)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def why(what: int | str, *, code: int = 0) -> dict[str, Any]:
    done = run_command("why", "local", str(what), "--json")
    assert done.returncode == code, done
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["culprits"] == [] and report["missing_ranks"] == []
    return report


def check(what: int | str, kind: str, said: str) -> dict[str, Any]:
    """What is said of a process, for certain."""
    report = why(what)
    assert report["confidence"] == "high" and said in report["explanation"], report["explanation"]
    assert kind in [each["kind"] for each in report["findings"]]
    return report


def test_a_process_that_a_signal_has_stopped(start: Start) -> None:
    process = start("sleep", "3600")
    os.kill(process.pid, signal.SIGSTOP)
    assert wait_until(lambda: state_of(process.pid) == "T")
    check(
        process.pid,
        "stopped",
        f"Pid {process.pid} is stopped by a signal; to continue it, run kill -CONT {process.pid}.",
    )


def test_a_zombie_whose_parent_does_not_wait(start: Start) -> None:
    parent = start(sys.executable, "-c", PARENT)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    assert wait_until(lambda: children.read_text() and state_of(int(children.read_text())) == "Z")
    zombie, name = int(children.read_text()), Path(f"/proc/{parent.pid}/comm").read_text().strip()
    ended = (
        f"Pid {zombie} has ended (exit code 3) and is a zombie: its parent, pid {parent.pid} ({name}), has not waited"
    )
    check(zombie, "zombie", ended)


def test_a_file_lock_with_its_holder_and_path(start: Start, surroundings: Surroundings) -> None:
    """Of POSIX; that of flock is below, on a slow host."""
    holder = start(sys.executable, "-c", LOCK.format(how="lockf", name="held"))
    assert wait_until((surroundings.folder / "held").exists)
    waiter = start(sys.executable, "-c", LOCK.format(how="lockf", name="never"))
    assert wait_until(lambda: f" {waiter.pid} " in Path("/proc/locks").read_text())
    name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
    said = f"waits for the lock (posix) of {surroundings.folder}/shared.lock, which pid {holder.pid} ({name}) holds."
    check(waiter.pid, "lock", said)


def test_a_pipe_with_who_should_write_it(start: Start) -> None:
    shell = start("sh", "-c", f"sleep 3600 | exec '{sys.executable}' -c 'input()'")
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")

    def by_name() -> dict[str, int]:
        pids = map(int, children.read_text().split())
        return {Path(f"/proc/{pid}/comm").read_text().strip()[:6]: pid for pid in pids}

    assert wait_until(lambda: {"sleep", "python"} <= by_name().keys())
    reader, writer = by_name()["python"], by_name()["sleep"]
    assert wait_until(lambda: "pipe" in Path(f"/proc/{reader}/wchan").read_text())
    check(reader, "pipe", f"Pid {reader} reads a pipe, which pid {writer} (sleep) should write to.")


def test_a_pipe_that_nobody_reads(start: Start) -> None:
    reader, writer = os.pipe()
    process = start("sh", "-c", "exec cat /dev/zero", stdout=writer)
    os.close(writer)
    try:
        assert wait_until(lambda: "pipe" in Path(f"/proc/{process.pid}/wchan").read_text())
        check(process.pid, "pipe", f"Pid {process.pid} writes to a pipe, which pid {os.getpid()} (")
    finally:
        os.close(reader)


def test_a_process_that_a_debugger_holds(start: Start) -> None:
    process = start("sleep", "3600")
    tracer = start(sys.executable, "-c", TRACE, str(process.pid))
    assert wait_until(lambda: state_of(process.pid) == "t")
    try:
        check(process.pid, "debugger", f"Pid {process.pid} is held by a debugger: pid {tracer.pid} (")
    finally:
        tracer.kill()  # before the process, whose end only its tracer would notice


@pytest.mark.parametrize("has_stacks", [True, False])
def test_a_debugger_of_python_that_waits_for_input(
    has_stacks: bool, start: Start, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{surroundings.tools}{os.pathsep}{os.defpath}")
    if has_stacks:
        (surroundings.tools / "py-spy").symlink_to(require("py-spy"))
    (surroundings.folder / "train.py").write_text("print('step 7/1000', flush=True)\nbreakpoint()\nprint('on')\n")
    process = start(PYTHON, "train.py")  # has no py-spy beside it
    log = surroundings.folder / "0.log"
    assert wait_until(lambda: log.read_text().endswith("(Pdb) "))
    check(process.pid, "debugger", "is waiting for debugger input")


def test_a_process_that_waits_for_its_terminal(start: Start) -> None:
    ours, theirs = pty.openpty()
    process = start(sys.executable, "-c", "input()", stdin=theirs)
    os.close(theirs)
    try:
        assert wait_until(lambda: Path(f"/proc/{process.pid}/wchan").read_text() in ("wait_woken", "n_tty_read"))
        check(process.pid, "terminal", f"Pid {process.pid} is waiting for input from its terminal.")
    finally:
        os.close(ours)


def test_a_main_process_that_has_ended_while_its_children_live(start: Start, surroundings: Surroundings) -> None:
    process = start(sys.executable, "-c", LEAVE)
    assert wait_until((surroundings.folder / "there").exists)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    said = f"Pid {process.pid}, the main process, has ended, but 1 child process is still running (pid "
    check(process.pid, "ended", said)
    process.wait()
    check(process.pid, "ended", said)


def test_any_program_is_found_by_a_word_of_its_command(start: Start, surroundings: Surroundings) -> None:
    (surroundings.folder / "copy-some-data.sh").write_text("read -r line")
    process = start("sh", "copy-some-data.sh")
    report = check("copy-some-data.sh", "pipe", f"Pid {process.pid} reads a pipe, which pid ")
    assert [each["pid"] for each in report["ranks"]] == [process.pid]


def test_on_a_host_that_is_too_slow_what_was_reached_is_reported(start: Start, surroundings: Surroundings) -> None:
    slow = surroundings.tools / "uname"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    holder = start(sys.executable, "-c", LOCK.format(how="flock", name="held"))
    assert wait_until((surroundings.folder / "held").exists)
    waiter = start(sys.executable, "-c", LOCK.format(how="flock", name="never"))
    assert wait_until(lambda: f" {waiter.pid} " in Path("/proc/locks").read_text())
    done = run_command("why", "local", str(waiter.pid), "--json", "--timeout", "10s")
    report = json.loads(done.stdout)
    assert f"Pid {waiter.pid} waits for the lock (flock) of " in report["explanation"]
    assert f"which pid {holder.pid} (" in report["explanation"]
    assert (report["ranks"], report["missing_ranks"], done.returncode) == ([], [], 3)
    assert [each["host"] for each in report["silent"]] == ["local"] and report["seconds"] < 10


@pytest.mark.parametrize(
    ("method", "kind", "how", "confidence"),
    [
        ("forkserver", "processes", "open", "low"),
        ("spawn", "pool", "read", "low"),
        ("fork", "queue", "open", "medium"),
    ],
)
def test_without_py_spy_the_worker_is_named_that_waits_for_no_other_process(
    method: str,
    kind: str,
    how: str,
    confidence: str,
    start: Start,
    surroundings: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{surroundings.tools}{os.pathsep}{os.defpath}")
    (surroundings.folder / "work.py").write_text(WORKERS)
    os.mkfifo(surroundings.folder / "fifo")
    process = start(PYTHON, "work.py", method, kind, how)
    number = surroundings.folder / "number"
    assert wait_until(lambda: number.exists() and number.read_text())
    stuck = Path(f"/proc/{number.read_text()}/wchan")
    assert wait_until(lambda: any(word in stuck.read_text() for word in ("pipe", "partner", "fifo")))
    done = run_command("why", "local", str(process.pid), "--json", "--timeout", "120s")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["confidence"] == confidence, report["explanation"]
    assert [str(each["pid"]) for each in report["culprits"]] == [number.read_text()], report["explanation"]
    assert "--py-spy FILE" in report["remedies"][0]
    listed = [*report["ranks"], *(child for rank in report["ranks"] for child in rank["children"])]
    assert len(listed) >= 2 and all(each["waits_for"] for each in listed)


def test_a_process_of_which_the_kernel_says_nothing_is_unknown(start: Start) -> None:
    assert why(start("sleep", "3600").pid, code=3)["confidence"] == "none"
