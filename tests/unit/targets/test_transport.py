"""What would be run where, what a failure means, and that no program outlives or floods its caller."""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_monitor.core.errors import (
    AccessDenied,
    CommandTimedOut,
    LocalFailure,
    TargetEnded,
    TargetNotFound,
    TargetUnreachable,
    ToolNotFound,
)
from training_monitor.core.models import Question
from training_monitor.core.results import CommandResult
from training_monitor.targets import transport as transport_module
from training_monitor.targets.asking import ask
from training_monitor.targets.transport import (
    KubectlTransport,
    LocalTransport,
    SshTransport,
    Stream,
    Within,
    explain_failure,
    words_of,
)

RECORDED = Path(__file__).parents[2] / "recorded" / "kubectl"


class Recorder:
    """Keeps what it was given; stands at the bottom."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], float | None, str | None]] = []

    def run(self, argv: list[str], *, timeout: float, input: str | None = None) -> CommandResult:
        self.calls.append((list(argv), timeout, input))
        return CommandResult(tuple(argv), 0, "", "", 0.0)

    def stream(self, argv: list[str], *, input: str | None = None) -> Stream:
        self.calls.append((list(argv), None, input))
        return None  # type: ignore[return-value]


def test_kubectl_gets_exactly_the_target_and_the_command() -> None:
    for container, context, wanted in [
        (None, None, "kubectl exec -i -n ml pod -- sh -s"),
        ("main", None, "kubectl exec -i -n ml pod -c main -- sh -s"),
        (None, "prod", "kubectl --context prod exec -i -n ml pod -- sh -s"),
        ("main", "prod", "kubectl --context prod exec -i -n ml pod -c main -- sh -s"),
    ]:
        bottom = Recorder()
        through = KubectlTransport(bottom, "ml", "pod", container, context)
        through.run(["sh", "-s"], timeout=7, input="script")
        through.stream(["sh", "-s"], input="script")
        assert bottom.calls == [(wanted.split(), 7, "script"), (wanted.split(), None, "script")]


def test_ssh_quotes_exactly_once_and_a_pod_gets_its_words_unquoted() -> None:
    odd = ["echo", "a b", "it's", '"', "$HOME", "a\nb", "", "*", "\\"]
    for argv in [["sh", "-s"], odd, ["sh", "-c", "echo 'x y'"]]:
        bottom = Recorder()
        SshTransport(bottom, "user@host", ("-p", "22")).run(argv, timeout=5, input="in")
        [(sent, timeout, given)] = bottom.calls
        assert sent[:5] == ["ssh", "-p", "22", "--", "user@host"] and (timeout, given) == (5, "in")
        assert len(sent) == 6 and shlex.split(sent[5]) == argv
        KubectlTransport(bottom, "ml", "pod").run(argv, timeout=5)
        assert bottom.calls[1][0][-len(argv) :] == argv


def recorded(comment: str) -> CommandResult:
    """One call of the recorded kubectl, found by its comment."""
    errors = "\n".join(file.read_text() for file in sorted(RECORDED.glob("*/errors.txt")))
    for part in re.split(r"^\$ ", errors, flags=re.MULTILINE):
        if comment in part.partition("\n")[0]:
            code = int(re.search(r"exit status: (\d+)", part)[1])  # type: ignore[index]
            return CommandResult(("kubectl", "exec"), code, "", part.partition("stderr: ")[2], 0.1)
    raise AssertionError(comment)


def test_what_kubectl_says_is_understood() -> None:
    for comment, kind in [
        ("no such pod", TargetNotFound),
        ("no kubeconfig", TargetUnreachable),
        ("API server down", TargetUnreachable),
        ("each connection closed at once", TargetUnreachable),
        ("closed before the first question", TargetUnreachable),
        ("closed before a later question", TargetUnreachable),
    ]:
        error = explain_failure(recorded(comment), "k8s://ml/nope")
        assert type(error) is kind
        assert str(error).startswith("k8s://ml/nope: ") and error.hint
    error = explain_failure(recorded("the command fails"), "pod")
    assert not isinstance(error, TargetNotFound) and "exit code 3" in str(error)


def test_every_usual_message_has_its_meaning() -> None:
    for stderr, kind in [
        ('Error from server (NotFound): pods "head" not found', TargetNotFound),
        ('Error from server (NotFound): namespaces "ml" not found', TargetNotFound),
        ('Error from server (Forbidden): pods "head" is forbidden: User "x" cannot create resource', AccessDenied),
        ("error: You must be logged in to the server (Unauthorized)", AccessDenied),
        ("error: container main is not valid for pod head out of: ray-head, sidecar", LocalFailure),
        ("Unable to connect to the server: net/http: TLS handshake timeout", TargetUnreachable),
        ("Unable to connect to the server: dial tcp: lookup api.x: no such host", TargetUnreachable),
        ("Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout", TargetUnreachable),
        ('error: unable to upgrade connection: container not found ("ray-head")', TargetUnreachable),
        ("error: cannot exec into a container in a completed pod; current phase is Succeeded", TargetEnded),
        ("error: error sending request: EOF", TargetUnreachable),
        ('error: context "prod" does not exist', AccessDenied),
        (
            'error: Internal error occurred: exec failed: unable to start container process: exec: "sh": executable '
            "file not found in $PATH",
            LocalFailure,
        ),
        ("ssh: connect to host h port 22: Connection refused", TargetUnreachable),
        ("ssh: connect to host h port 22: Connection timed out", TargetUnreachable),
        ("ssh: connect to host h port 22: No route to host", TargetUnreachable),
        ("ssh: connect to host h port 22: Network is unreachable", TargetUnreachable),
        ("ssh: Could not resolve hostname h: Name or service not known", TargetUnreachable),
        ("kex_exchange_identification: read: Connection reset by peer", TargetUnreachable),
        ("kex_exchange_identification: Connection closed by remote host", TargetUnreachable),
        ("Connection closed by 10.0.0.5 port 22", TargetUnreachable),
        ("Timeout, server h not responding.", TargetUnreachable),
        ("client_loop: send disconnect: Broken pipe", TargetUnreachable),
        ("root@h: Permission denied (publickey).", AccessDenied),
        ("root@h: Permission denied (publickey,password).", AccessDenied),
        ("Received disconnect from 10.0.0.5 port 22:2: Too many authentication failures", AccessDenied),
        ("Host key verification failed.", AccessDenied),
        ("@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.", AccessDenied),
    ]:
        program, code = ("ssh", 255) if "kubectl" not in stderr and "rror" not in stderr else ("kubectl", 1)
        error = explain_failure(CommandResult((program,), code, "", stderr, 0.1), "there")
        assert str(error).startswith("there: ")
        assert type(error) is kind and error.hint


def test_what_a_login_refuses_on_its_output_is_explained() -> None:
    said = CommandResult(("ssh",), 1, "This account is currently not available.\n", "", 0.1)
    assert type(explain_failure(said, "there")) is AccessDenied


def test_what_is_not_understood_is_unknown_and_shown_without_secrets() -> None:
    error = explain_failure(CommandResult(("kubectl",), 1, "", "something new", 0.1), "pod")
    assert type(error) is TargetUnreachable and "something new" in str(error) and "exit code 1" in str(error)
    error = explain_failure(CommandResult(("kubectl",), 0, "", "", 0.1), "pod")
    assert type(error) is TargetUnreachable and "it printed nothing" in str(error)
    result = CommandResult(("curl",), 1, "", "Authorization: Bearer s3cr3tV4lue", 0.1)
    assert "s3cr3tV4lue" not in str(explain_failure(result, "there"))


def test_any_exit_status_or_signal_is_a_result_with_both_texts() -> None:
    result = LocalTransport().run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout=10)
    assert (result.exit_code, result.stdout, result.stderr) == (7, "out\n", "err\n")
    assert result.argv == ("sh", "-c", "echo out; echo err >&2; exit 7") and result.duration >= 0
    assert LocalTransport().run(["sh", "-c", "kill -9 $$"], timeout=10).exit_code == -9


def test_input_and_output_of_any_size_reach_their_ends() -> None:
    assert LocalTransport().run(["cat"], timeout=10, input="häßlich\n").stdout == "häßlich\n"
    assert LocalTransport().run(["cat"], timeout=10).stdout == ""
    text = "x" * 3_000_000
    assert LocalTransport().run(["cat"], timeout=30, input=text).stdout == text
    result = LocalTransport().run(["sh", "-c", "exec <&-; echo done"], timeout=10, input="x" * 1_000_000)
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert LocalTransport().run(["printf", r"a\377b"], timeout=10).stdout == "a\ufffdb"


def test_no_shell_reads_the_words_and_messages_come_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LocalTransport().run(["echo", "$HOME", "a;b", "*"], timeout=10).stdout == "$HOME a;b *\n"
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert LocalTransport().run(["sh", "-c", 'echo "$LC_ALL"'], timeout=10).stdout == "C\n"


def test_a_missing_program_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolNotFound, match="no-such-program-here is not installed"):
        LocalTransport().run(["no-such-program-here"], timeout=10)
    with pytest.raises(ToolNotFound):
        LocalTransport().stream(["no-such-program-here"])
    (tmp_path / "plain").write_text("text")
    with pytest.raises(LocalFailure, match="ermission denied"):
        LocalTransport().run([str(tmp_path / "plain")], timeout=10)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolNotFound, match="install kubectl"):
        LocalTransport().run(["kubectl"], timeout=10)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_time_limit_ends_the_program_and_all_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = f"sleep 300 & echo $! >{note}; sh -c 'sleep 300 & echo $! >>{note}; wait' & echo $$ >>{note}; wait"
    with pytest.raises(CommandTimedOut, match="sh did not respond within 0.5 s") as caught:
        LocalTransport().run(["sh", "-c", script], timeout=0.5)
    assert caught.value.hint
    pids = [int(line) for line in note.read_text().split()]
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 3 and not any(map(alive, pids))


def test_a_child_that_keeps_the_pipe_open_does_not_keep_the_caller(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    started = time.monotonic()
    result = LocalTransport().run(["sh", "-c", f"sleep 60 & echo $! >{note}; echo done"], timeout=30)
    os.kill(int(note.read_text()), 9)
    assert (result.exit_code, result.stdout) == (0, "done\n") and time.monotonic() - started < 20


def test_a_flood_of_output_ends_the_program_and_a_target_may_print_less(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", "print('x' * 9_999_999)"]
    assert len(LocalTransport().run(words, timeout=30).stdout) == 10_000_000
    with pytest.raises(LocalFailure, match="printed more than"):
        LocalTransport().run(words, timeout=30, input="a script")
    monkeypatch.setattr(transport_module, "MAX_OUTPUT_BYTES", 1_000_000)
    with pytest.raises(LocalFailure, match="printed more than 1000000 bytes"):
        LocalTransport().run([sys.executable, "-c", "while True: print('x' * 10000)"], timeout=30)


def test_a_stream_gives_what_comes_as_it_comes_and_ends_when_closed() -> None:
    stream = LocalTransport().stream(["sh", "-c", "cat; sleep 300"], input="one\ntwo\r\n\xff")
    chunks = stream.chunks()
    assert next(chunks) == "one\ntwo\r\n\xff".encode()
    stream.close()
    assert list(chunks) == []
    stream.close()


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_program_runs_to_its_end_without_pidfd_or_when_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert LocalTransport().run(["sh", "-c", "sleep 0.1; echo out; exit 7"], timeout=30).exit_code == 7
    with pytest.raises(CommandTimedOut):
        LocalTransport().run(["sh", "-c", "exec >&- 2>&-; sleep 60"], timeout=0.3)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    text = "x" * 300_000
    result = LocalTransport().run(["sh", "-c", "cat; echo err >&2"], timeout=30, input=text)
    assert (result.stdout, result.stderr) == (text, "err\n")


def test_a_stream_whose_thread_cannot_start_leaves_no_program_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def left() -> tuple[int, str]:
        children = Path("/proc/thread-self/children")  # not on every kernel
        return len(os.listdir("/proc/self/fd")), children.read_text() if children.exists() else ""

    start, before = threading.Thread.start, left()
    for number in (1, 2):
        turns = iter(range(1, 3))

        def fail(thread: threading.Thread, number: int = number, turns: Iterator[int] = turns) -> None:
            if next(turns) == number:
                refuse()
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", fail)
        with pytest.raises(LocalFailure, match="this machine cannot start a thread to read the output of sleep"):
            LocalTransport().stream(["sleep", "60"])
        assert left() == before, number


def test_no_pipe_is_left_open() -> None:
    code = """
import gc
from training_monitor.targets.transport import LocalTransport
LocalTransport().run(["sh", "-c", "echo out; exit 3"], timeout=10, input="x" * 100)
stream = LocalTransport().stream(["sh", "-s"], input="echo one; sleep 9")
print(next(stream.chunks()))
stream.close()
LocalTransport().stream(["sleep", "9"]).close()
gc.collect()
"""
    done = LocalTransport().run([sys.executable, "-X", "dev", "-c", code], timeout=30)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "b'one\\n'\n", "")


INTERRUPTED = """
import os, signal
from training_monitor.targets.transport import LocalTransport

def interrupt(*_):
    raise KeyboardInterrupt

stream = LocalTransport().stream(["sleep", "60"])
children, guards = open(f"/proc/self/task/{os.getpid()}/children").read().split(), []
while not guards:  # a busy machine has not given it its name yet
    guards = [int(pid) for pid in children if ": guard" in open(f"/proc/{pid}/cmdline").read()]
[guard] = guards
signal.signal(signal.SIGALRM, interrupt)
os.kill(guard, signal.SIGSTOP)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    stream.close()
except KeyboardInterrupt:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
os.kill(guard, signal.SIGCONT)
print(LocalTransport().run(["echo", "there"], timeout=10).stdout)
"""


def test_an_interrupt_while_the_guard_ends_stops_no_later_program() -> None:
    assert LocalTransport().run([sys.executable, "-c", INTERRUPTED], timeout=30).stdout.split() == ["there"]


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> transport_module._Turns:
    """Only one program may run at a time."""
    monkeypatch.setattr(transport_module, "MOST_PROGRAMS", 1)
    turns = transport_module._Turns()
    monkeypatch.setattr(transport_module, "_TURNS", turns)
    return turns


class Runs(threading.Thread):
    """Runs a program in a thread, and keeps how that ended."""

    def __init__(self, *argv: str, timeout: float = 60) -> None:
        super().__init__(daemon=True)
        self.argv, self.timeout = argv, timeout
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            LocalTransport().run(self.argv, timeout=self.timeout)
        except CommandTimedOut as error:
            self.error = error


def wait_for(turns: transport_module._Turns, waiting: int) -> None:
    deadline = time.monotonic() + 60
    while len(turns._waiting) != waiting and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(turns._waiting) == waiting


def test_programs_wait_for_their_turn_and_the_longest_waiting_is_next(
    one_at_a_time: transport_module._Turns, tmp_path: Path
) -> None:
    gate, order = tmp_path / "gate", tmp_path / "order"
    os.mkfifo(gate)
    threads = [Runs("sh", "-c", f"read _ <{gate}")]
    for number in range(5):
        threads.append(Runs("sh", "-c", f"echo {number} >>{order}"))
        wait_for(one_at_a_time, number + 1)
    gate.write_text("\n")
    for thread in threads:
        thread.join(60)
    assert order.read_text().split() == list("01234")


def test_the_time_limit_begins_with_the_program_unless_it_includes_the_wait(
    one_at_a_time: transport_module._Turns,
) -> None:
    first = Runs("sleep", "1.5")
    while one_at_a_time._free:
        time.sleep(0.005)
    plain, within = Runs("sleep", "1", timeout=2), Runs("sleep", "1", timeout=Within(2))
    for thread in (first, plain, within):
        thread.join(60)
    assert plain.error is None
    assert "within" in str(within.error)


def test_a_program_that_gets_no_turn_in_time_is_not_started(
    one_at_a_time: transport_module._Turns, tmp_path: Path
) -> None:
    hangs = Runs("sleep", "60", timeout=1.5)
    while one_at_a_time._free:
        time.sleep(0.005)
    message = r"touch did not start within 0.1 s, because 1 other programs? w"
    with pytest.raises(CommandTimedOut, match=message) as caught:
        LocalTransport().run(["touch", str(tmp_path / "begun")], timeout=0.1)
    assert caught.value.hint
    hangs.join(60)
    assert hangs.error and not (tmp_path / "begun").exists()
    assert LocalTransport().run(["echo", "next"], timeout=10).stdout == "next\n"


def test_an_interrupted_wait_for_a_turn_costs_nobody_a_turn(one_at_a_time: transport_module._Turns) -> None:
    with pytest.raises(KeyboardInterrupt), one_at_a_time.turn("first", 10), pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupt)
        with one_at_a_time.turn("second", 10):
            pass
    assert (one_at_a_time._free, len(one_at_a_time._waiting)) == (1, 0)


def interrupt(_: threading.Event, __: float | None = None) -> bool:
    raise KeyboardInterrupt


def test_a_stream_takes_no_turn(one_at_a_time: transport_module._Turns) -> None:
    stream = LocalTransport().stream(["sleep", "60"])
    assert LocalTransport().run(["echo", "beside"], timeout=10).stdout == "beside\n"
    stream.close()


def test_a_forked_process_has_turns_of_its_own() -> None:
    with transport_module._TURNS.turn("parent", 10):
        if not (pid := os.fork()):
            os._exit(transport_module._TURNS._free)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == transport_module.MOST_PROGRAMS


SIGN_IN = "To sign in, use a web browser to open the page https://microsoft.com/devicelogin and enter the code ABC123."
QUESTIONS = [
    (f"echo '{SIGN_IN}' >&2; sleep 60", "devicelogin", "log in once in a terminal"),
    (f"echo '{SIGN_IN}'; sleep 60", "devicelogin", "log in once in a terminal"),
    ("printf \"Enter passphrase for key '/k': \" >&2; sleep 60", "Enter passphrase", "ssh-add"),
    ("printf 'Destroy instance 4? [y/N] '; sleep 60", "[y/N]", "answer its prompt there"),
    ("echo 'step one done'; echo 'step two' >&2; sleep 60", "step two", "a longer timeout"),
]


def test_a_time_limit_keeps_what_was_printed_masked_and_advises_by_it() -> None:
    for script, said, advice in QUESTIONS:
        with pytest.raises(CommandTimedOut, match=re.escape(said)) as caught:
            LocalTransport().run(["sh", "-c", script], timeout=0.5)
        assert "sh did not respond within 0.5 s" in str(caught.value) and advice in (caught.value.hint or "")
        assert caught.value.result and said in caught.value.result.stdout + caught.value.result.stderr
    script = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo HF_TOKEN=hunter-secret-1; sleep 60"
    with pytest.raises(CommandTimedOut) as caught:
        LocalTransport().run(["sh", "-c", script], timeout=1)
    error = caught.value
    assert error.result and len(error.result.stdout) <= 4000 and len(str(error)) < 1000
    assert "HF_TOKEN=***" in str(error) and "hunter" not in f"{error}{error.result}"
    with pytest.raises(CommandTimedOut) as caught:
        LocalTransport().run(["sleep", "60"], timeout=0.3)
    assert caught.value.what == "sleep did not respond within 0.3 s" and "overloaded" in (caught.value.hint or "")


@pytest.mark.parametrize(("program", "target"), [("kubectl", "k8s://ml/head"), ("ssh", "ssh://me@gpu1")])
def test_a_question_to_a_target_shows_what_its_program_asked(
    program: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / program
    fake.write_text(f'#!/bin/sh\ncase $1 in -G) exit;; esac\necho "{SIGN_IN}" >&2\nexec sleep 60\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CommandTimedOut, match="devicelogin") as caught:
        ask(target, Question("q", "echo hello", lambda reply: reply.output), timeout=1)
    assert caught.value.target == target and "log in once in a terminal" in (caught.value.hint or "")


def test_a_question_that_runs_too_long_shows_its_own_last_line_alone() -> None:
    script = "echo \"Username for 'https://huggingface.co': \"; sleep 60"
    [answer] = ask("local", Question("upload", script, lambda reply: reply.output, 0.5))
    assert isinstance(answer.failure, CommandTimedOut) and "Username for" in answer.failure.what
    assert "save the credentials" in (answer.failure.hint or "")
    scripts = ("echo a", "trap '' TERM; sleep 60")
    questions = [Question(script, script, lambda reply: reply.output, 60) for script in scripts]
    with pytest.raises(CommandTimedOut) as caught:
        ask("local", *questions, timeout=1)
    assert caught.value.result is not None and "printed" not in str(caught.value)


def test_a_stream_keeps_what_its_program_printed_as_errors() -> None:
    script = f"echo '{SIGN_IN}' >&2; echo HF_TOKEN=hunter-2 >&2; echo out; sleep 60"
    stream = LocalTransport().stream(["sh", "-c", script])
    assert next(stream.chunks()) == b"out\n"
    stream.close()
    said = words_of(stream)
    assert "devicelogin" in said and "log in once in a terminal" in said and "hunter" not in said
