"""Commands before a hostile target: the world whose real answers are mutated, and what every command owes its user.

Most runs do without a program for the target: `Wires` stands where programs are started, and gives bytes instead.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.target import Body, framed, nonce_of, questions_of, variables_of
from tests.hostile.tries import tried
from tests.integration.commands import run_command
from tests.loopback.ray_dashboard import RayDashboard
from tests.loopback.vast_rows import instance, offer, user
from training_monitor.core.clock import SystemClock
from training_monitor.core.errors import CommandTimedOut
from training_monitor.core.results import CommandResult
from training_monitor.look import health_report, looks
from training_monitor.targets.procfs import identify
from training_monitor.targets.transport import LocalTransport
from training_monitor.why import explain, processes

COUNT = int(os.environ.get("TRAINING_MONITOR_FUZZ", "4000"))
SEED = os.environ.get("TRAINING_MONITOR_FUZZ_SEED", "7")
REPORT = os.environ.get("TRAINING_MONITOR_FUZZ_REPORT")  # a file that each sweep appends its failures to
MOST_OUTPUT = 200_000
MOST_SECONDS = 12.0
MOST_SLEEPS = 25
RECORDING_SECONDS = 2.0
STATUSES = (0, 1, 2, 3, 4)
INTERRUPTED = 130
SSH, POD, VAST = "ssh://x@127.0.0.1:1", "k8s://default/head", "vast://30007012"

GPUS = """\
0, GPU-aa, NVIDIA H100, 97, 40, 60000, 81559, 650.00, 700.00, 61, Disabled
1, GPU-bb, NVIDIA H100, 96, 39, 60000, 81559, 640.00, 700.00, 60, Disabled
"""
NVIDIA_SMI = f"""\
#!/bin/sh
case $1 in *compute-apps*) echo '123, python, GPU-aa, 59000' ;; *) printf %s '{GPUS}' ;; esac
"""
TRAIN = """\
import sys, time
out = open(sys.argv[1], "a", 1) if len(sys.argv) > 1 else sys.stdout
for step in range(1, 100000):
    print(f"step {step}/100000 loss: {2 / step:.4f} lr: 1e-05 {4.0} it/s", file=out, flush=True)
    time.sleep(0.25)
"""


# ---------------------------------------------------------------- time


class FastClock:
    """Sleeping costs nothing; a command that goes on and on is ended like by Ctrl-C."""

    def __init__(self, real: float = 0.0) -> None:
        self.ahead, self.sleeps, self.real = 0.0, 0, real

    def install(self, patches: pytest.MonkeyPatch) -> None:
        patches.setattr(SystemClock, "time", lambda _: time.time() + self.ahead)
        patches.setattr(SystemClock, "monotonic", lambda _: time.monotonic() + self.ahead)
        patches.setattr(SystemClock, "sleep", lambda _, seconds: self._pass(seconds))
        patches.setattr(SystemClock, "wait", lambda _, event, seconds: self._wait(event, seconds))

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        if event.wait(0.001):
            return True
        self._pass(seconds)
        return event.is_set()

    def _pass(self, seconds: float) -> None:
        assert seconds == seconds, "a sleep of nan seconds"
        self.ahead += min(max(0.0, seconds), 1e6)
        self.sleeps += 1
        if self.real:
            time.sleep(min(max(0.0, seconds), self.real))
        if self.sleeps > MOST_SLEEPS and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt


class TooLong(BaseException):
    """A command that takes longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def end(*_: object) -> None:
        raise TooLong(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------- instead of programs

Asked = tuple[str, ...]


class Tape:
    """What one command was answered: for each kind of call, in order, the bodies of its questions."""

    def __init__(self) -> None:
        self.calls: list[tuple[Asked, list[Body]]] = []

    def bodies(self, names: Asked, number: int, all_tapes: Sequence[Tape] = ()) -> list[Body]:
        """What the call was answered that was the `number`th with these questions."""
        same = [bodies for asked, bodies in self.calls if asked == names]
        if same:
            return same[min(number, len(same) - 1)]
        return [self._one(name, all_tapes) for name in names]

    def _one(self, name: str, all_tapes: Sequence[Tape]) -> Body:
        for tape in (self, *all_tapes):
            for asked, bodies in tape.calls:
                if name in asked:
                    return bodies[asked.index(name)]
        return Body(b"", 1)


Change = Callable[[str, Body], Body]


class MemoryStream:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def chunks(self) -> Iterator[bytes]:
        yield self._data[:1000]
        yield self._data[1000:]

    def close(self) -> None:
        pass


class Wires:
    """In the place of `LocalTransport`: `ssh` and `kubectl exec` are answered from a tape, changed by `change`."""

    def __init__(self) -> None:
        self.tape, self.tapes = Tape(), list[Tape]()
        self.change: Change = lambda _, body: body
        self.frames: Callable[[str, list[Body]], bytes] = framed
        self.vastai: Callable[[Sequence[str]], tuple[bytes, int]] = vastai
        self.programs: Callable[[Sequence[str]], tuple[bytes, int]] = lambda argv: (b"", 1)
        self.argvs: list[Sequence[str]] = []
        self.asked_with: dict[int, dict[str, str]] = {}  # the variables of the question, by the id of a body
        self._seen: Counter[Asked] = Counter()
        self._lock = threading.Lock()

    def forget(self) -> None:
        self.argvs, self._seen = [], Counter()

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        assert timeout == timeout and timeout > 0, timeout
        out, code = self._answer(argv, input or "")
        if code is None:
            raise CommandTimedOut(f"{argv[0]} did not respond within {timeout:g} s", argv=tuple(argv))
        return CommandResult(tuple(argv), code, out.decode("utf-8", "replace"), "", 0.1)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> MemoryStream:
        return MemoryStream(self._answer(argv, input or "")[0])

    def _answer(self, argv: Sequence[str], script: str) -> tuple[bytes, int | None]:
        with self._lock:
            self.argvs.append(argv)
            number = len(self.argvs)
        if number > 3000:
            return b"", None
        if argv[0] == "vastai":
            return self.vastai(argv)
        if argv[0] not in ("ssh", "kubectl") or (argv[0] == "kubectl" and "exec" not in argv):
            return self.programs(argv)
        nonce = nonce_of(script)
        names = tuple(questions_of(script))
        with self._lock:
            number = self._seen[names]
            self._seen[names] += 1
        if nonce is None or not names:
            name = script.partition("\n")[0].removeprefix(": ")
            return self.change(name, self.tape.bodies((name,), number, self.tapes)[0]).output, 0
        bodies = [
            _for_these(body, self.asked_with.get(id(body), {}), variables)
            for body, variables in zip(self.tape.bodies(names, number, self.tapes), variables_of(script))
        ]
        return self.frames(nonce, [self.change(name, body) for name, body in zip(names, bodies)]), 0


def _for_these(body: Body, before: dict[str, str], now: dict[str, str]) -> Body:
    """An answer with the random words of this question in the place of those of the recorded one."""
    output = body.output
    for name, value in before.items():
        new = now.get(name, value)
        if new != value and len(value) > 7:
            output = output.replace(value.encode(), new.encode())
    return body._replace(output=output) if output is not body.output else body


def vastai(argv: Sequence[str]) -> tuple[bytes, int]:
    """What a sound vastai says."""
    return json.dumps(vast_document(argv)).encode(), 0


def vast_document(argv: Sequence[str]) -> Any:
    row = instance(30007012, ssh_host="127.0.0.1", ssh_port=1, duration=5000.0, label="tm-x")
    words = " ".join(argv[1:4])
    if words.startswith("show instances"):
        rows = [row, instance(30007013)]
        return {"instances": rows, "next_token": None} if "--limit" in argv else rows
    if words.startswith("show instance "):
        return row
    if words.startswith("search offers"):
        return [offer(1), offer(2, "H100", 2.5), offer(3, "RTX 3090", 0.2)]
    if words.startswith("show user"):
        return user()
    if words.startswith("show ssh-keys"):
        return [{"id": 1, "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA x@y", "user_id": 1}]
    return {"success": True}


# ---------------------------------------------------------------- a world with a small training


class World:
    """A home with a training, its files, and what each command is answered about them."""

    def __init__(self, folder: Path, patches: pytest.MonkeyPatch) -> None:
        self.folder, self.patches = folder, patches
        self.home = folder / "home"
        self.state = folder / "state"
        self.tapes: dict[str, Tape] = {}
        self.said: dict[str, subprocess.CompletedProcess[str]] = {}  # not of commands that went on and on
        self.took: dict[str, float] = {}
        self.wires = Wires()
        self._real_run, self._real_stream = LocalTransport.run, LocalTransport.stream
        self._processes: list[subprocess.Popen[bytes]] = []
        self._dashboard = RayDashboard()

    def begin(self) -> None:
        tools = self.folder / "tools"
        for path in (self.home, tools, self.home / "progress", self.home / "out" / "checkpoint-10"):
            path.mkdir(parents=True)
        programs = {
            "nvidia-smi": NVIDIA_SMI,
            "ray": "#!/bin/sh\necho 'ConnectionError: Could not find any running Ray instance.' >&2\nexit 1\n",
        }
        for name, text in programs.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self._dashboard.__enter__()
        self._dashboard.add_job("raysubmit_1", "RUNNING", "step 5/10 loss 0.5\n" * 20)
        self._dashboard.add_job("mine-attempt-1", "FAILED", "step 7/10 loss 0.5\nRuntimeError: CUDA out of memory\n")
        ours = ("TRAINING_MONITOR_", "VAST", "RAY_", "HF_", "AWS_")
        for name in [name for name in os.environ if name.startswith(ours)]:
            self.patches.delenv(name)
        for name, value in {
            "HOME": str(self.home),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "TRAINING_MONITOR_STATE_DIR": str(self.state),
            "TRAINING_MONITOR_JOBS_DIR": str(self.home / "jobs"),
            "XDG_RUNTIME_DIR": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "RAY_API_SERVER_ADDRESS": self._dashboard.address,
            "HF_TOKEN": "hf_hostile",
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "TM_HOSTILE_WORLD": str(self.folder),
        }.items():
            self.patches.setenv(name, value)
        (self.home / "train.py").write_text(TRAIN)
        header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        for step in (10, 20):
            path = self.home / "out" / f"checkpoint-{step}" / "model.safetensors"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(struct.pack("<Q", len(header)) + header + b"12345678")
        self.log, self.pid_file = self.home / "train.log", self.home / "train.pid"
        words = [sys.executable, str(self.home / "train.py"), str(self.log), "--output_dir", str(self.home / "out")]
        self._processes.append(subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL))
        self.pid = self._processes[0].pid
        self.pid_file.write_text(str(self.pid))
        self._write_progress()
        from training_monitor.jobs.process_jobs import start_process_job

        for name in ("fake", "other"):
            start_process_job("local", [sys.executable, str(self.home / "train.py")], name)
        time.sleep(0.6)

    def _write_progress(self) -> None:
        who, now = identify(self.pid), time.time()
        for name, status in (("one", "RUNNING"), ("two", "FINISHED")):
            document = {
                "format": 1, "status": status, "start_time": now - 60, "updated_at": now,
                "metadata": {"run_name": name, "pid": who.pid, "start_ticks": who.start_ticks, "hostname": who.hostname,
                             "boot_id": who.boot_id, "pid_namespace": who.pid_namespace},
                "state": {"phase": "training", "epoch": 2, "batch": 12, "total_batches": 100, "step_at": now},
                "estimates": {"run": {"rate": 4.1, "remaining": 2, "durations": [1]}},
                "metrics": {"loss": 0.5}, "losses": [2, 1.5, 1], "variables": {"lr": {"value": 0.1, "type": "float"}},
                "resources": {"rss_bytes": 5000000},
            }  # fmt: skip
            (self.home / "progress" / f"{name}.json").write_text(json.dumps(document))

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        mark = f"TM_HOSTILE_WORLD={self.folder}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
        self._dashboard.__exit__(None, None, None)

    # --- commands

    def commands(self, target: str) -> dict[str, tuple[str, ...]]:
        """The commands that look once, by name."""
        home, pid, job, log = str(self.home), str(self.pid), "process:fake", str(self.log)
        folder = f"{target}{':' if target.startswith('k8s') else ''}{home}/progress"
        every = () if target == "local" else (target,)  # on this machine there are trainings of other tests
        watched = ("--log", log, "--pid-file", str(self.pid_file), "--output-dir", f"{home}/out")
        return {
            "check": ("check", target),
            "check job": ("check", target, job),
            "check pid": ("check", target, pid),
            "check log": ("check", target, log),
            "check Ray job": ("check", target, "raysubmit_1"),
            "check field": ("check", target, job, "--field", "step", "--stall-after", "5m"),
            "wait": ("wait", target, job, "--timeout", "30"),
            "wait for": (
                "wait", target, job, "--for", "log=loss", "--for", "checkpoint", "--checkpoint-dir", f"{home}/out",
                "--for", "gpu-idle", "--for", "finished", "--timeout", "30",
            ),
            "status": ("status", target),
            "status job": ("status", target, job),
            "status Ray job": ("status", target, "raysubmit_1"),
            "logs": ("logs", target, job),
            "logs Ray job": ("logs", target, "raysubmit_1"),
            "fleet": ("fleet", *every, f"{target}#{job}", f"{target}#{log}", "--once"),
            "metrics": ("metrics", *every, f"{target}#{job}", "--once"),
            "top": ("top", folder, "--once"),
            "health": ("health", target, "--job", job),
            "health Ray": ("health", target, "--checkpoint-dir", f"{home}/out", "--job", "raysubmit_1"),
            "why": ("why", target, job, "--timeout", "20"),
            "gpu": ("gpu", target),
            "health EFA": ("health", target, "--only", "efa"),
            "health Ray alone": ("health", target, "--only", "ray"),
            "checkpoints": ("checkpoints", target, f"{home}/out"),
            "doctor": ("doctor", target),
            "watch": ("watch", target, log, "--once"),
            "watch job": ("watch", target, job, "--once"),
            "watch log": ("watch", target, *watched, "--once"),
            "upload": ("upload", target, f"{home}/out/checkpoint-20", "hf:me/x"),
            "run": ("run", "--target", target, "--name", "brief", "--max-retries", "1", "--", "true"),
            "restart": ("restart", target, "mine", "--max-retries", "1", "--checkpoint-dir", f"{home}/out"),
            "stop and notify": ("stop", target, "process:other", "--notify"),
            "stop Ray job": ("stop", target, "raysubmit_1", "--stop-grace", "1"),
            "stop pid": ("stop", target, pid, "--stop-grace", "1"),
            "stop": ("stop", target, job, "--stop-grace", "1"),
        }  # fmt: skip

    def all_answers(self) -> dict[str, Body]:
        """One answer for each question."""
        answers: dict[str, Body] = {}
        for tape in self.tapes.values():
            for names, bodies in tape.calls:
                for asked, body in zip(names, bodies):
                    answers.setdefault(asked, body)
        return answers

    def record(self, names: Container[str] | None) -> None:
        """Let the real sh answer each command once."""
        clock = FastClock(real=0.2)
        with pytest.MonkeyPatch.context() as patches:
            clock.install(patches)
            for module in (looks, health_report):
                patches.setattr(module, "SAMPLE_SECONDS", 0.1, raising=False)
            for asking in (processes, explain):
                patches.setattr(asking, "LOOK_SECONDS", 0.1)
            for name, argv in self.commands(SSH).items():
                if names is not None and name not in names:
                    continue
                tape = self.tapes[name] = Tape()
                patches.setattr(LocalTransport, "run", self._recording(tape))
                patches.setattr(LocalTransport, "stream", self._recording_stream(tape))
                shutil.rmtree(self.state, ignore_errors=True)
                began, clock.sleeps = time.monotonic(), 0
                with suppress(TooLong, KeyboardInterrupt), time_limit(RECORDING_SECONDS):
                    self.said[name] = run_command(*argv)
                self.took[name] = time.monotonic() - began

    def _recording(self, tape: Tape) -> Callable[..., CommandResult]:
        real = self._real_run

        def run(transport: LocalTransport, argv: Sequence[str], **more: Any) -> CommandResult:
            if argv[0] != "ssh":
                return real(transport, argv, **more)
            input, result = more.get("input"), real(transport, ["sh", "-s"], **more)
            names, nonce = tuple(questions_of(input or "")), nonce_of(input or "") or "none"
            bodies = _bodies(result.stdout, nonce, len(names))
            self.wires.asked_with |= {id(body): asked for body, asked in zip(bodies, variables_of(input or ""))}
            tape.calls.append((names, bodies))
            return result

        return run

    def _recording_stream(self, tape: Tape) -> Callable[..., Any]:
        real = self._real_stream

        def stream(transport: LocalTransport, argv: Sequence[str], *, input: str | None = None) -> Any:
            return real(transport, ["sh", "-s"] if argv[0] == "ssh" else argv, input=input)

        return stream


def _bodies(text: str, nonce: str, count: int) -> list[Body]:
    bodies = [Body(b"", 137)] * count
    parts = f"\n{text}".split(f"\n{nonce} ")[1:]
    for part, following in zip(parts, parts[1:]):
        if part.startswith("ask "):
            head, _, body = part.partition("\n")
            code = int(following.split()[1]) if following.startswith("exit ") else 137
            bodies[int(head.split(" ")[1])] = Body(body.encode("utf-8", "surrogateescape"), code)
    return bodies


@contextmanager
def a_world(patches: pytest.MonkeyPatch, names: Container[str] | None = None) -> Iterator[World]:
    """A world whose answers to these commands (default: all) are recorded."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tm", dir=memory, ignore_cleanup_errors=True) as folder:
        world = World(Path(folder), patches)
        try:
            world.begin()
            world.record(names)
            yield world
        finally:
            world.end()


# ---------------------------------------------------------------- what every command owes


class Report:
    """All failures of a sweep: the distinct ones with their number, and one answer that provokes each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count: Counter[tuple[str, str]] = Counter()
        self.example: dict[tuple[str, str], str] = {}
        self.where: dict[tuple[str, str], Counter[str]] = {}
        self.runs, self.statuses = 0, Counter[str]()

    def add(self, kind: str, place: str, command: str, detail: str) -> None:
        key = kind, place
        self.count[key] += 1
        self.where.setdefault(key, Counter())[command] += 1
        if key not in self.example or len(detail) < len(self.example[key]):
            self.example[key] = detail

    def check(self) -> None:
        """Fail with all that was added."""
        if REPORT:
            with open(REPORT, "a", encoding="utf-8") as file:
                file.write(f"\n######## {self.name}\n{self}\n")
        if self.count:
            pytest.fail(str(self), pytrace=False)

    def __str__(self) -> str:
        lines = [f"{self.runs} runs, {len(self.count)} distinct failures; statuses {dict(self.statuses)}"]
        for key, count in self.count.most_common():
            commands = ", ".join(f"{name} {times}" for name, times in self.where[key].most_common(6))
            lines.append(f"\n== {count} times: {key[0]} at {key[1]}\n   commands: {commands}\n   {self.example[key]}")
        return "\n".join(lines)


def place_of(error: BaseException) -> str:
    """The innermost line of the package that it came through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/training_monitor/" in frame.filename and "/tests/" not in frame.filename
    ]
    if not frames:
        return "?"
    path = frames[-1].filename.rpartition("/training_monitor/")[2]
    return f"{path}:{frames[-1].lineno} ({frames[-1].name})"


def look(
    world: World,
    report: Report,
    name: str,
    argv: Sequence[str],
    what: str,
    *,
    allowed: Sequence[int] = (*STATUSES, INTERRUPTED),
    fresh: bool = True,
) -> int | None:
    """Run one command before the wires, and report what it owes and does not do. Returns its status."""
    report.runs += 1
    tried()
    world.wires.forget()
    if fresh:
        shutil.rmtree(world.state, ignore_errors=True)
    in_threads: list[BaseException] = []
    clock = FastClock()
    with pytest.MonkeyPatch.context() as patches:
        clock.install(patches)
        patches.setattr(LocalTransport, "run", lambda _, argv, **more: world.wires.run(argv, **more))
        patches.setattr(LocalTransport, "stream", lambda _, argv, **more: world.wires.stream(argv, **more))
        patches.setattr(threading, "excepthook", lambda args: in_threads.append(args.exc_value or args.exc_type()))
        began = time.monotonic()
        try:
            with time_limit(MOST_SECONDS):
                done = run_command(*argv)
        except (Exception, KeyboardInterrupt, TooLong, RecursionError) as error:
            kind = "too long" if isinstance(error, TooLong) else f"{type(error).__name__} escapes"
            said = "".join(traceback.format_exception(error)[-6:])[-1800:] if kind != "too long" else str(error)
            report.add(kind, place_of(error), name, f"{what}\n   {str(error)[:300]}\n{said}")
            return None
        took = time.monotonic() - began
    report.statuses[str(done.returncode)] += 1
    for each in in_threads:
        said = "".join(traceback.format_exception(each)[-4:])[-1500:]
        report.add(f"{type(each).__name__} in a thread", place_of(each), name, f"{what}\n{said}")
    judge(report, name, argv, what, done, allowed)
    if took > MOST_SECONDS / 2:
        report.add("slow", f"{name}", name, f"{what}: {took:.1f} s")
    return done.returncode


def judge(
    report: Report,
    name: str,
    argv: Sequence[str],
    what: str,
    done: subprocess.CompletedProcess[str],
    allowed: Sequence[int],
) -> None:
    status, out, err = done.returncode, done.stdout, done.stderr
    said = f"{what}\n   stdout {out[:300]!r}\n   stderr {err[-300:]!r}"
    if status not in allowed:
        report.add(f"status {status}", name, name, said)
    if "Traceback (most recent call last)" in err and "Traceback" not in what and "traceback" not in what:
        report.add("traceback on stderr", name, name, f"{what}\n{err[-1500:]}")
    if len(out) + len(err) > MOST_OUTPUT:
        place = f"{name} --json" if "--json" in argv else name
        report.add("too much output", place, name, f"{what}: {len(out)} characters, {len(err)} of errors")
    if "--json" in argv:
        if (fault := _json_fault(out, name)) and status != INTERRUPTED:
            report.add("not one JSON document", name, name, f"{fault}: {said}")
    if bad := [text for text in (out, err) if any(each in text for each in "\x1b\x9b\x00\x07\u202e\x9d")]:
        at = next(at for at, each in enumerate(bad[0]) if each in "\x1b\x9b\x00\x07\u202e\x9d")
        report.add("control characters in its output", name, name, f"{what}: {bad[0][max(0, at - 60) : at + 60]!r}")


_LINES = ("run", "restart")  # one document a line


def _json_fault(out: str, name: str) -> str | None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    texts = out.splitlines() if name.split()[0] in _LINES else [out]
    try:
        for text in texts or [""]:
            json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        return str(error)[:200]
    return None
