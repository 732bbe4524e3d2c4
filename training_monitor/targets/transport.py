"""Run programs here, in pods and over ssh: argv in, result out, and failures translated in one place.

`LocalTransport` spawns. `KubectlTransport` and `SshTransport` only prefix the command and delegate, so a test that
replaces the innermost transport sees exactly what would be run.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol

from training_monitor.core.errors import (
    CommandError,
    CommandTimedOut,
    LocalFailure,
    TargetUnreachable,
    ToolNotFound,
    last_lines,
    masked_end,
)
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult
from training_monitor.core.settings import vast_environment, without_http_proxies

if TYPE_CHECKING:
    import subprocess

    from training_monitor.core.advice import Advised

MOST_PROGRAMS = 32  # at a time, of this process
MAX_OUTPUT_BYTES = 64 * 1024 * 1024  # of a tool of this machine
MAX_REPLY_BYTES = 6 * 1024 * 1024  # of a program that is given a script, which runs on a machine of strangers
# Of a text with one character of four bytes, Python keeps each character in four bytes.
MAX_WIDE_BYTES = 2 * 1024 * 1024
MAX_STDERR_BYTES = 256 * 1024  # more than this is left out in the middle
_TO_END = 1.0  # seconds, for what was killed and what serves it
_KEPT = 4000  # characters at the end of an output that came too late
_OR_OVERLOAD = ", or check whether the target is overloaded"
_QUESTION_LINES = 6  # with text at its end, which may ask the user something: a login prints an address and a code
_ALARM = (
    "import os, signal, sys; signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(int(sys.argv[1]));"
    " os.execv(sys.argv[2], sys.argv[3:])"
)
# A program begins when its input does, so not before the guard knows of it.
_BEGIN = 'read -r _ || exit; exec "$@"'
# kubectl is short-lived: without garbage collection (up to 256 MiB) it needs a quarter less CPU.
_ENVIRONMENT = {"kubectl": {"GOGC": "off", "GOMEMLIMIT": "256MiB"}}
_INSTALL = {
    "kubectl": "install kubectl and put it on PATH (https://kubernetes.io/docs/tasks/tools/)",
    "ssh": "apt-get install openssh-client",
    "vastai": "pip install vastai",
}
_FOUR_BYTES = regex(rb"[\xf0-\xf4]")
_KLOG = regex(r"^[EWIF]\d{4} \d\d:\d\d:\d\d.*$", re.MULTILINE)


class HeldScript(str):
    """A script for `sh -s` whose input stays open until it ends: it notices when we or the connection are gone.

    It finds _held set, and has to end with `exit`.
    """


class Within(float):
    """The seconds of a program and of its wait for its turn together; a plain number begins with the program."""


class Stream(Protocol):
    def chunks(self) -> Iterator[bytes]:
        """Yield the program's output as it arrives, until it ends or the stream is closed."""

    def close(self) -> None: ...


class Transport(Protocol):
    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        """Run the program until it ends; any exit code is a result.

        Args:
            timeout: maximum seconds for the program. It may also wait this long for its turn before it starts; see
                `Within`.

        Raises:
            ToolNotFound, CommandTimedOut, LocalFailure: the program is not installed, did not end in time, or failed on
                this machine.
        """

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        """Start a program and return its output stream. Raises ToolNotFound."""


class LocalTransport:
    """Run programs on this machine: from an argv list, in a new process group, with LC_ALL=C and with a time limit."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        input: str | None = None,
        on_start: Callable[[Callable[[], None]], None] | None = None,
    ) -> CommandResult:
        """Run the program until it ends. `on_start` receives a function with which any thread can kill the program."""
        with _TURNS.turn(argv[0], timeout) as seconds:
            return self._run(argv, seconds, input, on_start)

    def _run(
        self,
        argv: Sequence[str],
        timeout: float,
        input: str | None,
        on_start: Callable[[Callable[[], None]], None] | None,
    ) -> CommandResult:
        import signal
        import subprocess

        started = time.monotonic()
        process = _spawn(argv, stderr=subprocess.PIPE, limit=timeout)
        assert process.stdin and process.stdout and process.stderr
        most = MAX_OUTPUT_BYTES if input is None else MAX_REPLY_BYTES
        readers = [_Reader(process.stdout, process, most), _EndsReader(process.stderr, process, MAX_STDERR_BYTES)]
        is_late = False
        try:
            if on_start:
                on_start(partial(_end, process))
            with closing(_Serving(process, readers, input)) as serving:
                is_late = not serving.go_on(timeout)
                if is_late:
                    _kill_group(process)
                    serving.go_on(_TO_END)
        finally:
            if process.returncode is None:
                _kill_group(process)
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
        exit_code = -signal.SIGKILL if is_late else process.returncode
        if not is_late and any(reader.overflowed for reader in readers):
            raise LocalFailure(f"{argv[0]} printed more than {most} bytes", argv=tuple(argv))
        if not is_late and input is not None and readers[0].is_wide:
            what = f"more than {MAX_WIDE_BYTES} bytes with characters of four bytes"
            raise LocalFailure(f"{argv[0]} printed {what}", argv=tuple(argv))
        out, err = (reader.text() for reader in readers)
        result = CommandResult(tuple(argv), exit_code, out, err, time.monotonic() - started)
        if is_late:
            raise explain_timeout(result, f"{argv[0]} did not respond within {round(timeout, 1):g} s")
        return result

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        import subprocess

        process = _spawn(argv, stderr=subprocess.PIPE)
        assert process.stdin and process.stderr
        errors = _EndsReader(process.stderr, process, MAX_STDERR_BYTES)
        reading = threading.Thread(target=errors.read_all, daemon=True)
        _start(process, reading, threading.Thread(target=_feed, args=(process.stdin, input), daemon=True))
        return _ProcessStream(process, errors, reading, argv[0])


class _Turns:
    """At most MOST_PROGRAMS programs run at a time; the one that has waited longest is next.

    Streams take no turn, since they may last for days. No program waits for another one during its turn.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin without programs, in a new process."""
        self._lock, self._free, self._waiting = threading.Lock(), MOST_PROGRAMS, deque[threading.Event]()

    @contextmanager
    def turn(self, program: str, timeout: float) -> Iterator[float]:
        """Wait for a turn, hold it, and yield the seconds of the program. Raises CommandTimedOut: none came in time."""
        asked_at, turn = time.monotonic(), threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                turn.set()
            else:
                self._waiting.append(turn)
        try:
            if not turn.wait(timeout):
                what = (
                    f"{program} did not start within {timeout:g} s, because {MOST_PROGRAMS} other programs were running"
                )
                raise CommandTimedOut(
                    what, argv=(program,), hint="query fewer targets at once, or use a longer timeout"
                )
            waited = round(time.monotonic() - asked_at, 1)
            yield max(0.1, timeout - waited) if waited and isinstance(timeout, Within) else timeout
        finally:
            with self._lock:
                if not turn.is_set():
                    self._waiting.remove(turn)
                elif self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._free += 1


_TURNS = _Turns()  # of this process
os.register_at_fork(after_in_child=_TURNS.begin)


class _Reader:
    """Collects the output of one pipe; too much output kills the program rather than exhaust this machine's memory."""

    def __init__(self, pipe: IO[bytes], process: subprocess.Popen[bytes], most: int) -> None:
        self.pipe, self._process, self._most = pipe, process, most
        self._output, self.overflowed = bytearray(), False

    def read(self) -> bool:
        """Read what is there, or wait for it; return whether there may be more. At the end, close the pipe."""
        with suppress(OSError, ValueError):
            if chunk := os.read(self.pipe.fileno(), 65536):
                self._output += chunk
                if len(self._output) > self._most:
                    self.exceed()
                if not self.overflowed:
                    return True
        self.pipe.close()
        return False

    def read_all(self) -> None:
        """Read to the end."""
        while self.read():
            pass

    def exceed(self) -> None:
        """End the program: it prints too much."""
        self.overflowed = True
        _kill_group(self._process)

    @property
    def is_wide(self) -> bool:
        """Whether the output would take much more memory as a text."""
        return len(self._output) > MAX_WIDE_BYTES and _FOUR_BYTES.search(self._output) is not None

    def text(self) -> str:
        output, self._output = self._output, bytearray()
        return output.decode("utf-8", "replace")


class _EndsReader(_Reader):
    """Collects the beginning and the end of an output: with errors, these tell what went wrong."""

    def exceed(self) -> None:
        """Leave out what is in the middle."""
        quarter = self._most // 4
        self._output[quarter:-quarter] = b"\n...\n"


class _ProcessStream:
    def __init__(
        self, process: subprocess.Popen[bytes], errors: _EndsReader, reading: threading.Thread, program: str
    ) -> None:
        self._process, self._read = process, False
        self.errors, self.reading, self.program = errors, reading, program

    def chunks(self) -> Iterator[bytes]:
        assert self._process.stdout
        self._read = True
        with self._process.stdout as pipe, suppress(OSError, ValueError):  # closed under its reader
            while chunk := os.read(pipe.fileno(), 65536):
                yield chunk

    def close(self) -> None:
        _end(self._process)
        if self._process.stdin:
            self._process.stdin.close()
        if self._process.stdout and not self._read:  # otherwise the reader closes it, at its end
            self._process.stdout.close()


def _spawn(argv: Sequence[str], *, stderr: int, limit: float | None = None) -> subprocess.Popen[bytes]:
    import subprocess

    surroundings = {**_ENVIRONMENT.get(argv[0], {}), **os.environ, "LC_ALL": "C"}
    words, is_guarded = list(argv), argv[0] != "vastai"
    if not is_guarded:
        surroundings = {**without_http_proxies(surroundings), **vast_environment()}
        words = _limited(argv, limit) if limit else words
    elif is_guarded := _is_program(argv[0], os.get_exec_path(surroundings)):
        words = ["/bin/sh", "-c", _BEGIN, *words[:1], *words]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            env=surroundings,
            bufsize=0,
        )
    except FileNotFoundError as error:
        raise ToolNotFound(
            f"{argv[0]} is not installed on this machine", argv=tuple(argv), hint=_INSTALL.get(argv[0])
        ) from error
    except OSError as error:
        what, hint = f"{argv[0]} could not be started: {error.strerror}", f"check the program: type -a {argv[0]}"
        raise LocalFailure(what, argv=tuple(argv), hint=hint) from error
    process.args = list(argv)
    if is_guarded:
        assert process.stdin
        try:
            _GUARD.add(process.pid)
            with suppress(OSError):
                process.stdin.write(b"\n")
        except BaseException:  # interrupted: it has not begun, and nobody else knows of it
            _kill_group(process)
            raise
    return process


def _is_program(name: str, path: Sequence[str]) -> bool:
    places = [name] if os.sep in name else [os.path.join(folder, name) for folder in path]
    return any(os.access(place, os.X_OK) and not os.path.isdir(place) for place in places)


class _Guard:
    """Ends the programs of this process when it is gone, however it ended: a shell beside them does, see guard.sh.

    It is told of the end of a program while that is not yet waited for, so that no other one has the number.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin without programs, in a new process."""
        self._lock, self._running = threading.Lock(), set[int]()
        self._shell: subprocess.Popen[bytes] | None = None

    def leave(self) -> None:
        """Leave the shell to the parent of this process."""
        if self._shell and self._shell.stdin:
            self._shell.stdin.close()
            self._shell.returncode = 0  # it is not a child of this process
        self.begin()

    def add(self, pid: int) -> None:
        """Note a program that was started."""
        with self._lock:
            self._running.add(pid)
            self._tell(f"started {pid}\n")

    def drop(self, pid: int, word: str = "ended") -> None:
        """Note that a program has ended, or with `killed` that all of its session is to end; do nothing for others."""
        import subprocess

        with self._lock:
            if pid not in self._running:
                return
            self._running.remove(pid)
            self._tell(f"{word} {pid}\n")
            if not self._running and self._shell:
                shell, self._shell = self._shell, None  # the next program gets another one, also if this is interrupted
                with suppress(subprocess.TimeoutExpired):  # on a starved machine it ends later
                    shell.communicate(timeout=_TO_END)

    def _tell(self, line: str) -> None:
        """Write to the shell, or start one, which is told of all programs. Without it, they run without a guard."""
        with suppress(OSError):
            if not self._write(line):
                self._start()

    def _write(self, line: str) -> bool:
        """Return whether the shell is there to read it."""
        if not (self._shell and self._shell.stdin):
            return False
        try:
            return bool(self._shell.stdin.write(line.encode()))
        except BrokenPipeError:
            return False

    def _start(self) -> None:
        import subprocess

        from training_monitor.targets.scripts import format_call

        words, nothing = ["/bin/sh", "-c", format_call("guard", "guard")], subprocess.DEVNULL
        self._shell = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            cwd="/",
            env={},
            bufsize=0,
        )
        self._write("".join(f"started {pid}\n" for pid in self._running))


_GUARD = _Guard()  # of this process
os.register_at_fork(after_in_child=_GUARD.leave)


def _limited(argv: Sequence[str], limit: float) -> list[str]:
    """Wrap the command in an alarm of its own, so that it ends even when we are killed: it may rent machines."""
    import shutil

    found = shutil.which(argv[0])
    if found is None or not sys.executable:
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _ALARM, str(int(limit) + 2), found, *argv]


def _start(process: subprocess.Popen[bytes], *threads: threading.Thread) -> None:
    """Start the threads that serve a program; end it if this machine has none left. Raises LocalFailure."""
    started: list[threading.Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        _kill_group(process)
        for thread in started:
            thread.join(1.0)
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            pipe.close()
        argv = tuple(map(str, process.args)) if isinstance(process.args, list) else ()
        what = f"this machine cannot start a thread to read the output of {argv[0]}"
        raise LocalFailure(what, argv=argv, hint="stop other programs on this machine") from error


class _Serving:
    """Feeds a program and collects what it prints, in the thread that waits for it."""

    def __init__(self, process: subprocess.Popen[bytes], readers: Sequence[_Reader], text: str | None) -> None:
        assert process.stdin
        self._process, self._poll, self._exited = process, select.poll(), -1
        self._readers = {reader.pipe.fileno(): reader for reader in readers}
        self._input, self._unsent, self._is_held = process.stdin, _encode(text), isinstance(text, HeldScript)
        os.set_blocking(self._input.fileno(), False)
        self._poll.register(self._input, select.POLLOUT)
        for each in self._readers:
            self._poll.register(each, select.POLLIN)
        with suppress(AttributeError, OSError):  # without a pidfd (Linux), the process is polled
            self._exited = os.pidfd_open(process.pid)
            self._poll.register(self._exited, select.POLLIN)

    def close(self) -> None:
        if self._exited >= 0:
            os.close(self._exited)

    def go_on(self, seconds: float) -> bool:
        """Serve the program until it has ended and its outputs have; return whether it ended in so many seconds.

        What it started may keep the outputs open: they are read for _TO_END after its own end.
        """
        end, has_ended = time.monotonic() + seconds, False
        while (self._readers or not has_ended) and (left := end - time.monotonic()) > 0.0:
            wait = left if self._exited >= 0 else min(left, 0.05)
            ready = [number for number, _ in self._poll.poll(1000.0 * wait)]
            for number in ready:
                if number == self._exited or (number in self._readers and self._readers[number].read()):
                    continue
                if number in self._readers or self._has_fed():
                    self._poll.unregister(number)
                    self._readers.pop(number, None)
            if not has_ended and (self._exited in ready or (self._exited < 0 and self._process.poll() is not None)):
                _GUARD.drop(self._process.pid)
                self._process.wait()
                has_ended, end = True, time.monotonic() + _TO_END
                if self._exited >= 0:
                    self._poll.unregister(self._exited)
        return has_ended

    def _has_fed(self) -> bool:
        """Write what the pipe takes now; return whether that was all. Then it is closed, unless that ends a script."""
        try:
            self._unsent = self._unsent[os.write(self._input.fileno(), self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:  # a program that exits before reading its input: its exit code tells
            self._unsent = memoryview(b"")
        if not self._unsent and not self._is_held:
            self._input.close()
        return not self._unsent


def _feed(pipe: IO[bytes], text: str | None) -> None:
    with suppress(OSError, ValueError):  # a program that exits before reading its input: its exit code tells
        pipe.write(_encode(text))
        if not isinstance(text, HeldScript):
            pipe.close()


def _encode(text: str | None) -> memoryview:
    held = "_held=1\n" if isinstance(text, HeldScript) else ""
    return memoryview(f"{held}{text or ''}".encode("utf-8", "surrogateescape"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that may have ended: then its number may be another's."""
    if process.poll() is None:
        _kill_group(process)
    else:
        _GUARD.drop(process.pid)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    import signal
    import subprocess

    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _GUARD.drop(process.pid, "killed")
    with suppress(subprocess.TimeoutExpired):  # it waits for a disk that does not answer, or for a processor
        process.wait(_TO_END)


@dataclass(frozen=True, slots=True)
class Through:
    """Runs commands by another transport, in the words that bring them to where they are to run."""

    inner: Transport

    def words(self, argv: Sequence[str]) -> list[str]:
        """Return the command for the other transport."""
        raise NotImplementedError

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        return self.inner.run(self.words(argv), timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return self.inner.stream(self.words(argv), input=input)


@dataclass(frozen=True, slots=True)
class Until(Through):
    """Runs commands that have all ended at a monotonic time, but gives each a second at least."""

    end: float

    def words(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        left = max(1.0, self.end - time.monotonic())
        most = timeout if timeout < left + 0.1 else left
        may_wait = 2 * most <= left  # for its turn, as long again
        return self.inner.run(argv, timeout=most if may_wait else Within(most), input=input)


@dataclass(frozen=True, slots=True)
class KubectlTransport(Through):
    """Runs commands in a pod through `kubectl exec -i`."""

    namespace: str
    pod: str
    container: str | None = None
    context: str | None = None

    def words(self, argv: Sequence[str]) -> list[str]:
        context = ["--context", self.context] if self.context else []
        container = ["-c", self.container] if self.container else []
        return ["kubectl", *context, "exec", "-i", "-n", self.namespace, self.pod, *container, "--", *argv]


@dataclass(frozen=True, slots=True)
class SshTransport(Through):
    """Runs commands on an ssh host; ssh joins its arguments for the remote shell, so they are quoted here, once."""

    destination: str
    options: tuple[str, ...] = ()

    def words(self, argv: Sequence[str]) -> list[str]:
        return ["ssh", *self.options, "--", self.destination, shlex.join(argv)]

    def shell(self) -> list[str]:
        """Return the command for a login shell there, on this terminal."""
        return ["ssh", "-t", *self.options, "--", self.destination]


def run_on_terminal(argv: Sequence[str]) -> int:
    """Run a program with this terminal as its input and output, without a time limit, and return its exit code.

    Ctrl-C is for the program alone. Call it in the main thread. Raises ToolNotFound.
    """
    import signal
    import subprocess

    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the program would inherit
    try:
        return subprocess.call(argv)
    except FileNotFoundError:
        raise ToolNotFound(f"{argv[0]} is not installed on this machine", argv=tuple(argv)) from None
    finally:
        signal.signal(signal.SIGINT, before)


def words_of(stream: Stream) -> str:
    """Return what the program of a stream that has ended said of its failure, with what to try."""
    if not isinstance(stream, _ProcessStream):
        return ""
    stream.reading.join(1.0)
    text = stream.errors.text()
    advised = _advice_on(stream.program, text)
    said = last_lines(advised.line if advised else text, 1)
    return f"{said} (try: {advised.hint})" if advised else said


def explain_failure(result: CommandResult, target: str) -> CommandError:
    """Return the error for a program that exited without an answer."""
    stderr = without_frames(result.stderr)
    said, program = _last_said(stderr, result.stdout) or "it printed nothing", result.argv[0]
    is_on_stdout = program in ("vastai", "ssh") and not stderr.strip()  # nologin and forced commands write there
    advised = _advice_on(program, result.stdout[-_KEPT:] if is_on_stdout else stderr)
    if advised and (line := last_lines(advised.line, 1)) not in said:
        said = f"{line} | {said}"
    if advised and advised.kind:
        return advised.kind(said, target=target, argv=result.argv, result=result, hint=advised.hint)
    return TargetUnreachable(
        f"no complete response ({result.argv[0]} exit code {result.exit_code}: {said})",
        target=target,
        argv=result.argv,
        result=result,
        hint=advised.hint if advised else f"check that {result.argv[0]} works on its own",
    )


def explain_timeout(result: CommandResult, what: str, target: str | None = None) -> CommandTimedOut:
    """Return the error for a program that was ended at its time limit, with the end of what it had printed.

    Of a script of ours, which is no program, the output is no text for people.
    """
    out, err = (masked_end(text)[-_KEPT:] for text in (result.stdout, result.stderr))
    program = result.argv[0] if result.argv else ""
    ends = ("\n".join(list(filter(str.strip, text.splitlines()))[-_QUESTION_LINES:]) for text in (err, out))
    advised = next(filter(None, map(_question_in, ends)), None) or _advice_on(program, err)
    said = last_lines(advised.line, 1) if advised else _last_said(err, out, 1) if program else ""
    return CommandTimedOut(
        f"{what}; it printed: {said}" if said else what,
        target=target,
        argv=result.argv,
        result=replace(result, stdout=out, stderr=err),
        hint=advised.hint if advised else "use a longer timeout" + ("" if said else _OR_OVERLOAD),
    )


def _advice_on(program: str, said: str) -> Advised | None:
    """Return what to try after the errors of a program; "" is one on a target, whose output may be anything."""
    from training_monitor.core.advice import PROGRAMS, find_advice

    tools = ("ssh" if program == "rsync" else program, PROGRAMS) if program else ()
    return find_advice(said, *tools) or _question_in(said)


def _question_in(said: str) -> Advised | None:
    from training_monitor.core.advice import QUESTIONS, find_advice

    return find_advice(said, QUESTIONS)


def _last_said(stderr: str, stdout: str, count: int = 4) -> str:
    """Return the last lines of a program's errors, else of its output."""
    plain = _KLOG.sub("", stderr)  # kubectl's own log repeats the message, less clearly
    return last_lines(plain, count) or last_lines(stderr, count) or last_lines(stdout, count)


def without_frames(stderr: str) -> str:
    """Reduce a Python traceback to its last line, and a long line to its two ends, where the cause is."""
    if "Traceback (most recent call last)" not in stderr:
        return stderr
    line = last_lines(stderr, 1, 10_000)
    return line if len(line) <= 250 else f"{line[:80]} ... {line[-160:]}"
