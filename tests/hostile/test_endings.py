"""Commands that are interrupted or killed: they end within a second, by that signal, without traceback or children.

Every command of the table waits for an API server that does not answer, and those that have to wait do it once more:
for ssh or beside a full disk, where each gets another signal. Many run at once: they mostly wait.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import pytest

from tests.hostile.disks import fill_up, small_disk
from tests.hostile.tries import tried
from tests.integration.conftest import MARK, Surroundings, pids, wait_until
from tests.integration.forked import Forked, forked, program, without_stdin
from tests.requirements import require
from training_monitor.agents.mcp.server import LEAVING_SECONDS
from training_monitor.cli.command_table import list_commands
from training_monitor.jobs.process_jobs import start_process_job

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AT_ONCE = 20
# A command has a second on a machine with nothing else to do. Here as many as that run at once, and whatever else the
# machine does: ten times what a start of Python takes meanwhile, beyond what it takes on such a machine, is added.
SECOND, QUIET_START = 1.0, 0.05
LONGEST = list[tuple[float, str]]()
HANGING = "#!/bin/sh\nexec sleep 987\n"
# A call of vastai in flight has an alarm of its own; ssh's shared masters stay; a job outlives who started it.
EXCEPTED = re.compile(r"vastai|\[mux\]|sleep 987 $")

# What each command waits with: TARGET does not answer, and neither does vastai.
WORDS: dict[str, tuple[str, ...]] = {
    "check": ("TARGET",),
    "why": ("TARGET",),
    "wait": ("TARGET", "process:a", "--for", "finished"),
    "status": ("TARGET",),
    "logs": ("TARGET", "process:a"),
    "vast": ("--once",),
    "fleet": ("TARGET", "TARGET#process:a", "TARGET#process:b", "--once"),
    "web": ("TARGET", "--port", "0"),
    "metrics": ("TARGET", "TARGET#process:a", "--textfile", "FOLDER/fleet.prom"),
    "top": ("PROGRESS", "--headless", "--csv-dir", "FOLDER/csv"),
    "history": ("--since", "24h"),
    "run": ("--target", "TARGET", "--name", "a", "--checkpoint-dir", "FOLDER/c", "--", "sleep", "986"),
    "restart": ("TARGET", "a"),
    "watch": ("TARGET", "process:a"),
    "upload": ("TARGET", "/out", "hf:me/x"),
    "stop": ("TARGET", "process:a"),
    "health": ("TARGET", "--job", "process:a", "--pods", "other"),
    "gpu": ("TARGET",),
    "checkpoints": ("TARGET", "/out"),
    "rent launch": ("--name", "a", "--command", "true", "--id", "a", "--watch"),
    "rent queue": (),
    "rent worker": (),
    "rent sweep": ("--force", "--every", "15m"),
    "rent instances": (),
    "rent offers": (),
    "rent dataset": ("FOLDER",),
    "rent keys": (),
    "rent credits": (),
    "mcp": (),
    "demo": (),
    "doctor": ("TARGET",),
    "notify": ("--test",),
    "skill": (),
    "completion": ("bash",),
    "config": ("--check",),
}
# These answer without waiting for anyone, and may have ended before the signal comes.
AT_ONCE_DONE = {"history", "rent queue", "rent dataset", "rent launch", "rent keys"}
AT_ONCE_DONE |= {"notify", "skill", "completion", "config", "top"}
ASKING = ("check", "fleet", "rent sweep", "mcp", "demo")  # each in another way
CALL = {"name": "check", "arguments": {"target": "TARGET"}}


def test_every_command_has_a_case() -> None:
    assert sorted(WORDS) == sorted(list_commands())


class Command:
    """A command that runs, forked, with its stdin closed or empty; that of mcp is a pipe, and it a program."""

    process: Forked | subprocess.Popen[bytes]

    def __init__(self, name: str, words: list[str], environ: dict[str, str], folder: Path, stack: ExitStack) -> None:
        self.name, self.out, self.took = name, folder / f"{os.urandom(4).hex()}-{name.replace(' ', '-')}", 0.0
        self.stdin: IO[bytes] | None = None
        if name != "mcp":
            with patch.dict(os.environ, environ, clear=True):
                act = without_stdin if len(name) % 2 else program
                self.process = stack.enter_context(forked(words, self.out, act))
            return
        server = [sys.executable, "-m", "training_monitor", "mcp"]
        with open(self.out, "wb") as file:
            self.process = started = subprocess.Popen(
                server, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environ, cwd=folder
            )
        stack.callback(started.kill)
        self.stdin = started.stdin

    def call(self, target: str) -> None:
        """Call a tool, whose answer does not come."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        call = json.loads(json.dumps(CALL).replace("TARGET", target))
        assert self.stdin
        for number, (method, given) in enumerate((("initialize", hello), ("tools/call", call))):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
            self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    @property
    def waits(self) -> bool:
        """Whether it has started what does not answer, or has ended."""
        return self.process.poll() is not None or bool(descendants(self.process.pid))

    def end(self, number: int) -> None:
        self.began = time.monotonic()
        self.process.send_signal(number)

    def ended(self) -> bool:
        if self.process.poll() is None:
            return False
        self.took = self.took or time.monotonic() - self.began
        return True

    def said(self) -> str:
        return self.out.read_text(errors="replace")


def descendants(pid: int) -> list[int]:
    found = list[int]()
    with suppress(OSError):  # it has ended
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, path.read_text().split())
    return found + [each for child in found for each in descendants(child)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What was started ends with the test."""
    with ExitStack() as found:
        yield found


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=2000) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def environ(surroundings: Surroundings, silent: int) -> dict[str, str]:
    tools = surroundings.tools
    (tools / "vastai").write_text(HANGING)
    (tools / "vastai").chmod(0o755)
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{silent}"}}
    config: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c",
    }  # fmt: skip
    (surroundings.folder / "kubeconfig").write_text(json.dumps(config))
    (surroundings.folder / "settings.toml").write_text("")
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(surroundings.folder),
        "KUBECONFIG": str(surroundings.folder / "kubeconfig"),
        "TMPDIR": str(surroundings.folder),
        "VASTAI_API_KEY": "0" * 64,
        MARK: surroundings.mark,
    }


def python_start() -> float:
    """What a start of Python takes now."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    return time.monotonic() - began


def start_all(
    target: str,
    environ: dict[str, str],
    surroundings: Surroundings,
    names: Iterable[str],
    number: int,
    stack: ExitStack,
    table: Mapping[str, tuple[str, ...]] = WORDS,
) -> list[Command]:
    commands = list[Command]()
    for name in names:
        folder = surroundings.folder / f"{name}-{number}"
        folder.mkdir(exist_ok=True)
        state = {} if "full" in environ["TRAINING_MONITOR_STATE_DIR"] else {"TRAINING_MONITOR_STATE_DIR": f"{folder}/s"}
        progress = f"{target}{':' if target.startswith('k8s') else ''}/progress"
        values = {"TARGET": target, "FOLDER": str(folder), "PROGRESS": progress}
        words = [*name.split(), *table[name]]
        for key, value in values.items():
            words = [word.replace(key, value) for word in words]
        commands.append(Command(name, words, {**environ, **state}, folder, stack))
        if name == "mcp":
            commands[-1].call(target)
    return commands


def left_of(surroundings: Surroundings) -> dict[int, str]:
    found = {pid: line for pid, line in surroundings.processes().items() if not EXCEPTED.search(line)}
    return {pid: line for pid, line in found.items() if not is_of_job(pid)}


def is_of_job(pid: int) -> bool:
    """Whether a process belongs to a job, which was started to outlive who started it; or has ended."""
    try:
        return b"\0TRAINING_MONITOR_JOB=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return True


def end_all(
    target: str,
    environ: dict[str, str],
    surroundings: Surroundings,
    stack: ExitStack,
    first_signal: int,
    part: slice | None = None,
) -> list[str]:
    """Start all commands, or a part of those that wait, end each by the next signal, and return what was wrong."""
    wrong = list[str]()
    cases = [(name, SIGNALS[(first_signal + at) % len(SIGNALS)]) for at, name in enumerate(WORDS)]
    cases = [case for case in cases if case[0] not in AT_ONCE_DONE][part] if part else cases
    for first in range(0, len(cases), AT_ONCE):
        batch = cases[first : first + AT_ONCE]
        commands = [
            (start_all(target, environ, surroundings, [name], number, stack)[0], number) for name, number in batch
        ]
        wait_until(lambda commands=commands: all(each.waits for each, _ in commands), 10)  # type: ignore[misc]
        time.sleep(0.3)
        done = {each.name for each, _ in commands if each.process.poll() is not None}
        late = max(0.0, python_start() - QUIET_START)
        for command, number in commands:
            command.end(number)
        # The machine has two cores, and each command some work to do at its end.
        wait_until(lambda commands=commands: all([each.ended() for each, _ in commands]), 20)  # type: ignore[misc]
        late += max(0.0, python_start() - QUIET_START)
        for command, number in commands:
            case, said = f"{command.name} {signal.Signals(number).name} {target}", command.said()
            tried()
            if command.process.poll() is None:
                wrong.append(f"{case}: has not ended: {said[-300:]}")
                command.process.send_signal(signal.SIGKILL)
            elif command.name in done:
                if command.name not in AT_ONCE_DONE and "full" not in environ["TRAINING_MONITOR_STATE_DIR"]:
                    wrong.append(f"{case}: did not wait: {said[-300:]}")
            else:
                LONGEST.append((command.took, case))
                status = command.process.poll() or 0
                may_be_done = command.name in AT_ONCE_DONE and status >= 0
                if status != -number and not may_be_done:
                    wrong.append(f"{case}: exit code {status}: {said[-300:]}")
                if command.took > SECOND + 10 * late:
                    wrong.append(f"{case}: took {command.took:.2f} s, a start of Python {late:.2f} s more than usual")
            if "Traceback" in said or "Exception ignored" in said:
                wrong.append(f"{case}: {said[-1500:]}")
            if command.stdin:
                command.stdin.close()
        if not wait_until(lambda: not left_of(surroundings), 5):
            wrong.append(f"{batch[0]} to {batch[-1]} left {left_of(surroundings)}")
            for pid in left_of(surroundings):
                os.kill(pid, signal.SIGKILL)
    print("the longest endings:", *(f"{took:.2f} s {case}" for took, case in sorted(LONGEST)[-3:]), sep="\n  ")
    return wrong


def test_every_command_ends_by_a_signal_while_the_api_server_hangs(
    environ: dict[str, str], surroundings: Surroundings, stack: ExitStack
) -> None:
    (surroundings.tools / "kubectl").symlink_to(require("kubectl"))
    assert not (wrong := end_all("k8s://default/pod", environ, surroundings, stack, 0)), "\n".join(wrong)


def test_every_command_ends_by_a_signal_while_ssh_hangs(
    environ: dict[str, str], surroundings: Surroundings, silent: int, stack: ExitStack
) -> None:
    require("sshd")
    wrong = end_all(f"ssh://me@127.0.0.1:{silent}", environ, surroundings, stack, 1, slice(0, None, 2))
    assert not wrong, "\n".join(wrong)


def test_every_command_ends_by_a_signal_while_the_disk_is_full(
    environ: dict[str, str], surroundings: Surroundings, silent: int, stack: ExitStack
) -> None:
    """Of those that wait all the same: what cannot be remembered ends some commands."""
    require("sshd")
    with small_disk(surroundings.folder / "full", "64k") as full:
        fill_up(full)
        environ["TRAINING_MONITOR_STATE_DIR"] = str(full / "state")
        wrong = end_all(f"ssh://me@127.0.0.1:{silent}", environ, surroundings, stack, 2, slice(1, None, 2))
        assert not wrong, "\n".join(wrong)


def test_sigkill_leaves_no_child(environ: dict[str, str], surroundings: Surroundings, stack: ExitStack) -> None:
    """Of commands that ask once, side by side, vast.ai, by a process of their own, or in their own."""
    (surroundings.tools / "kubectl").symlink_to(require("kubectl"))
    kill_all(start_all("k8s://default/pod", environ, surroundings, ASKING, 9, stack), surroundings)


def kill_all(commands: list[Command], surroundings: Surroundings, seconds: float = 0.0) -> None:
    """Kill commands some time after they began to wait."""
    wait_until(lambda: all(each.waits for each in commands), 25)
    time.sleep(seconds)
    for command in commands:
        command.end(signal.SIGKILL)
        tried()
    for command in commands:
        command.process.wait(60)
    assert wait_until(lambda: not left_of(surroundings), 5), left_of(surroundings)


LONG: dict[str, tuple[str, ...]] = {
    "watch": ("TARGET", "process:a", "--interval", "1"),
    "wait": ("TARGET", "process:a", "--for", "finished", "--interval", "1"),
    "run": ("--target", "TARGET", "--name", "b", "--checkpoint-dir", "FOLDER/c", "--", "sleep", "986"),
    "fleet": ("TARGET#process:a", "TARGET", "--once"),
    "web": ("TARGET#process:a", "--port", "0"),
    "top": ("PROGRESS", "--headless", "--csv-dir", "FOLDER/csv"),
    "why": ("TARGET", "process:a"),
    "mcp": (),
}


# On all targets alike they follow a log, start and await a job, and ask a driver that hangs.
OF_EACH_KIND = ("watch", "run", "why")


@pytest.mark.parametrize("kind", ["local", "pod", "over_ssh"])
def test_sigkill_leaves_nothing_on_the_target(
    kind: str, environ: dict[str, str], surroundings: Surroundings, request: pytest.FixtureRequest, stack: ExitStack
) -> None:
    place = {"local": "local", "pod": "k8s://default/head"}.get(kind, "")
    if kind == "pod":
        request.getfixturevalue("pod")
    elif kind == "over_ssh":
        place = request.getfixturevalue("over_ssh").address
    (surroundings.tools / "nvidia-smi").write_text("#!/bin/sh\nsleep 985\n")
    (surroundings.tools / "nvidia-smi").chmod(0o755)
    environ |= {key: os.environ[key] for key in ("KUBECONFIG", "PATH") if key in os.environ}
    start_process_job(place, ["sh", "-c", "while :; do echo step 1/9; sleep 0.5; done; sleep 986 "], "a")
    names = LONG if kind == "local" else OF_EACH_KIND
    kill_all(start_all(place, environ, surroundings, names, 0, stack, LONG), surroundings, 2.5)


def test_a_signal_during_the_start_ends_a_command_without_a_traceback(
    environ: dict[str, str], surroundings: Surroundings
) -> None:
    (surroundings.tools / "kubectl").write_text(HANGING)
    (surroundings.tools / "kubectl").chmod(0o755)
    wait_for_ours = (
        "import os, signal, sys, threading, time\n"
        "def send():\n"
        "    while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL: time.sleep(0.001)\n"
        "    time.sleep(float(os.environ['AFTER']))\n"
        "    os.kill(os.getpid(), int(os.environ['NUMBER']))\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import training_monitor.__main__ as ours\n"
        "sys.argv = ['training-monitor', 'check', 'pod']\n"
        "threading.Thread(target=send, daemon=True).start()\n"
        "sys.exit(ours.main())\n"
    )
    numbers, started = SIGNALS * 2, list[subprocess.Popen[str]]()
    for step, number in enumerate(numbers):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", wait_for_ours],
                env={**environ, "AFTER": str(step * 0.08), "NUMBER": str(int(number))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process, number in zip(started, numbers):
        _, said = process.communicate(timeout=60)
        tried()
        assert process.returncode == -number and "Traceback" not in said, (process.returncode, said)
    assert wait_until(lambda: not left_of(surroundings), 5), left_of(surroundings)


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(
    environ: dict[str, str], surroundings: Surroundings
) -> None:
    (surroundings.tools / "kubectl").write_text(HANGING)
    (surroundings.tools / "kubectl").chmod(0o755)
    program = [sys.executable, "-m", "training_monitor", "check", "pod"]
    ignoring = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *program]
    with subprocess.Popen(ignoring, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert wait_until(lambda: descendants(process.pid))
        for number in (signal.SIGHUP, signal.SIGINT):
            tried()
            process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM


def test_many_signals_at_once_end_a_command_once(environ: dict[str, str], surroundings: Surroundings) -> None:
    (surroundings.tools / "kubectl").write_text(HANGING)
    (surroundings.tools / "kubectl").chmod(0o755)
    program = [sys.executable, "-m", "training_monitor", "watch", "pod", "process:a"]
    for gap in (0.0, 0.01):
        with subprocess.Popen(program, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as it:
            assert wait_until(lambda pid=it.pid: descendants(pid))  # type: ignore[misc]
            for number in SIGNALS * 5:
                tried()
                it.send_signal(number)
                time.sleep(gap)
            _, said = it.communicate(timeout=30)
            assert -it.returncode in SIGNALS and "Traceback" not in said, (it.returncode, said)


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_a_command_that_waits_for_a_locked_database_ends_all_the_same(
    environ: dict[str, str], surroundings: Surroundings, number: int
) -> None:
    """SQLite waits in C, where no handler of Python runs."""
    program = [sys.executable, "-m", "training_monitor", "rent", "credits", "a", "--deposit", "5", "--reason", "test"]
    subprocess.run(program, env=environ, check=True, capture_output=True)
    with sqlite3.connect(surroundings.folder / "state" / "training_monitor.db", isolation_level=None) as database:
        database.execute("BEGIN IMMEDIATE")
        with subprocess.Popen(program, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as it:
            with pytest.raises(subprocess.TimeoutExpired):
                it.wait(2.0)
            began, late = time.monotonic(), max(0.0, python_start() - QUIET_START)
            it.send_signal(number)
            assert it.wait(20) == -number
            took = time.monotonic() - began
            assert took < SECOND + 10 * late + 0.2, (took, late)
            assert it.stderr and "Traceback" not in it.stderr.read()
        database.execute("ROLLBACK")


def test_mcp_ends_some_time_after_its_input_while_a_call_hangs(
    environ: dict[str, str], surroundings: Surroundings, stack: ExitStack
) -> None:
    (surroundings.tools / "kubectl").write_text(HANGING)
    (surroundings.tools / "kubectl").chmod(0o755)
    [server] = start_all("pod", environ, surroundings, ["mcp"], 0, stack)
    assert wait_until(lambda: any("987" in line for line in surroundings.processes().values()))
    began = time.monotonic()
    assert server.stdin
    server.stdin.close()
    assert server.process.wait(60) == 0 and "Traceback" not in server.said()
    assert time.monotonic() - began < LEAVING_SECONDS + 1.5 + 10 * python_start()
    assert wait_until(lambda: not [pid for pid in pids() if pid in surroundings.processes()], 5)
