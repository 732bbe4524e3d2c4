"""Trainings that attack the program reading their stacks: links, pipes, devices, foreign programs, a full /tmp.

The scripts run in each shell as root, and the training belongs to another user, who may do with its own files whatever
it likes, at any moment.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.requirements import miss, require
from training_monitor.core.models import Reply
from training_monitor.targets.procfs import identify
from training_monitor.targets.scripts import format_call
from training_monitor.why.stacks import SeenStacks, stacks_question

USER = 100_000 + os.getpid()  # of this test process alone: others may run at the same time
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
PYTHON = shutil.which("python3", path=os.defpath) or "python3"  # one that other users may execute
TOOLS = (
    *("head", "sed", "tr", "grep", "ls", "sleep", "rm", "mv", "mkdir", "rmdir", "cat", "cksum", "od", "base64"),
    *("gzip", "timeout", "find", "mktemp", "chmod", "id", "getconf", "readlink", "echo", "printf", "ln", "dirname"),
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users to ask")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with one sh and its tools, all of busybox where that is the shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", *TOOLS):
        program = shutil.which(request.param if tool == "sh" or request.param == "busybox" else tool, path=os.defpath)
        if program:
            (folder / tool).symlink_to(program)
    return folder


def in_shell(name: str) -> pytest.MarkDecorator:
    """Run a test in one shell alone: the others do the same there."""
    return pytest.mark.parametrize("shell", [name if name in SHELLS else SHELLS[0]], indirect=True)


@contextmanager
def training(*words: str, user: int = USER, folder: Path | None = None) -> Iterator[int]:
    """A process of another user that sleeps, by default a Python without a monitor."""
    command = words or (PYTHON, "-c", "import time; time.sleep(3600)")
    with subprocess.Popen(command, user=user, group=user, extra_groups=[], cwd=folder or "/") as process:
        try:
            end = time.monotonic() + 60
            while not os.readlink(f"/proc/{process.pid}/exe").rpartition("/")[2].startswith("python"):
                assert time.monotonic() < end
                time.sleep(0.02)
            yield process.pid
        finally:
            process.kill()


@contextmanager
def trainings(count: int) -> Iterator[list[int]]:
    with ExitStack() as stack:
        yield [stack.enter_context(training()) for _ in range(count)]


def ask(
    shell: Path, *pids: int, seconds: int = 20, sent: str = "", environment: dict[str, str] | None = None
) -> SeenStacks:
    """Ask as root for the stacks of these."""
    tried()
    question = stacks_question(f"echo {' '.join(map(str, pids))}", seconds, sent)
    done = subprocess.run(
        [shell / "sh"],
        input=question.script,
        env={"PATH": str(shell), "HOME": "/root", "LC_ALL": "C", **(environment or {})},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=90,
        cwd="/",
        check=False,
    )
    found: SeenStacks = question.parse(Reply(done.stdout, done.returncode, 1.0))
    return found


@pytest.fixture
def answers() -> Iterator[Path]:
    """The folder in which processes of the user answer, of mode 0700."""
    namespace = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    folder = Path(f"/tmp/training_monitor-stacks-{USER}-{namespace}")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(0o700)
    os.chown(folder, USER, USER)
    yield folder
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def show(answers: Path, pid: int) -> None:
    """Say that a process answers."""
    start = identify(pid).start_ticks
    (answers / f"{pid}.{start}.here").touch()
    os.chown(answers / f"{pid}.{start}.here", USER, USER)


@contextmanager
def repeating(act: Callable[[], object], pause: float = 0.002) -> Iterator[None]:
    """Do this again and again, by default more often than a script starts a program."""
    ends = threading.Event()

    def run() -> None:
        while not ends.wait(pause):
            with suppress(OSError):
                act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(60)


def requests(answers: Path, pid: int) -> list[str]:
    """The nonces of what is asked of a process now."""
    return [path.name.rpartition(".")[2] for path in answers.glob(f"{pid}.ask.*")]


def document(text: str = "load_batch") -> str:
    frames = {"name": "MainThread", "is_main": True, "frames": [[text, "/w/data.py", 41]]}
    return json.dumps({"threads": [frames]})


def answering(answers: Path, pid: int, say: Callable[[Path], object]) -> Callable[[], object]:
    """Do something in place of an answer to each request."""

    def act() -> None:
        for nonce in requests(answers, pid):
            path = answers / f"{pid}.said.{nonce}"
            if not os.path.lexists(path):
                say(path)
                with suppress(OSError):
                    os.chown(path, USER, USER, follow_symlinks=False)

    return act


def whole(path: Path, text: str) -> None:
    """Write a file that is complete as soon as it is there."""
    new = path.with_name("new")
    new.write_text(text)
    os.chown(new, USER, USER)
    new.rename(path)
    with suppress(OSError):
        path.with_name(path.name.replace(".said.", ".ask.")).rmdir()


# ---------------------------------------------------------------- where root writes


def test_an_honest_answer_is_read_and_nothing_is_left(shell: Path, answers: Path) -> None:
    """What is below shows something only if this works."""
    with training() as pid:
        show(answers, pid)
        before = sorted(os.listdir(answers))
        with repeating(answering(answers, pid, lambda path: whole(path, document()))):
            seen = ask(shell, pid)
        assert seen.answers[pid].stacks[0].frames[0].function == "load_batch"
        assert sorted(os.listdir(answers)) == before


def test_root_writes_nothing_through_a_link_in_place_of_an_answer(shell: Path, answers: Path, tmp_path: Path) -> None:
    """A shell writes into what is no regular file, also where it may not overwrite."""
    device, pipe, file, folder = (tmp_path / name for name in ("device", "pipe", "file", "folder"))
    os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # /dev/null: it is seen by what opens it
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file.write_text("kept")
    folder.mkdir()
    with trainings(4) as pids:
        for pid in pids:
            show(answers, pid)

        def plant() -> None:
            for pid, aim in zip(pids, (device, pipe, file, folder)):
                for name in (f"{pid}.said.{each}" for each in requests(answers, pid)):
                    with suppress(FileExistsError):
                        (answers / name).symlink_to(aim)

        with repeating(plant):
            ask(shell, *pids)
    with suppress(BlockingIOError):
        assert not os.read(reader, 100)
    os.close(reader)
    assert file.read_text() == "kept" and os.listdir(folder) == [] and device.is_char_device()


@in_shell("dash")
@pytest.mark.parametrize("kind", ["link", "open to others", "of root", "a file", "a pipe"])
def test_a_folder_that_is_not_the_user_s_own_is_not_used(shell: Path, answers: Path, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.mkdir(0o755)
    with training() as pid:
        show(answers, pid)
        match kind:
            case "link":
                shutil.rmtree(answers)
                show(other, pid)
                answers.symlink_to(other)
            case "open to others":
                answers.chmod(0o750)
            case "of root":
                os.chown(answers, 0, 0)
            case "a file":
                shutil.rmtree(answers)
                answers.write_text("x")
            case "a pipe":
                shutil.rmtree(answers)
                os.mkfifo(answers)
        folder = other if kind in ("a file", "a pipe") else answers
        here, found = {*os.listdir(folder)}, set[str]()
        with repeating(lambda: found.update(os.listdir(folder))):
            ask(shell, pid)
        assert found == here
        if answers.exists() and not answers.is_dir():
            answers.unlink()


# ---------------------------------------------------------------- where root reads


@pytest.fixture
def secret() -> Iterator[Path]:
    """What only root may read."""
    path = Path("/tmp") / f"secret-{os.getpid()}"
    path.write_text(document("of_root"))
    path.chmod(0o600)
    yield path
    path.unlink()


@in_shell("busybox")
def test_what_is_no_file_of_the_user_is_not_read(shell: Path, answers: Path, secret: Path) -> None:
    acts: list[Callable[[Path], object]] = [
        lambda path: path.symlink_to(secret),
        lambda path: path.hardlink_to(secret),
        os.mkfifo,
        os.mkdir,
        lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),  # /dev/zero
    ]
    with trainings(len(acts)) as pids:
        for pid in pids:
            show(answers, pid)

        def say() -> None:
            for pid, act in zip(pids, acts):
                for nonce in requests(answers, pid):
                    with suppress(FileExistsError):
                        act(answers / f"{pid}.said.{nonce}")

        with repeating(say):
            seen = ask(shell, *pids)
        assert [seen.answers[pid].stacks for pid in pids] == [()] * len(acts) and "of_root" not in repr(seen)
        assert secret.read_text() == document("of_root") and secret.stat().st_uid == 0


@in_shell("dash")
def test_an_answer_that_becomes_a_link_between_the_look_and_the_use(shell: Path, answers: Path, secret: Path) -> None:
    """It changes all the time between a file and a link to what only root may read."""
    with training() as pid:
        show(answers, pid)

        def act() -> None:
            for nonce in requests(answers, pid):
                path, new = answers / f"{pid}.said.{nonce}", answers / "new"
                new.write_text("{")
                os.chown(new, USER, USER)
                new.rename(path)
                new.symlink_to(secret)
                new.rename(path)

        with repeating(act, pause=0.0):
            assert "of_root" not in repr(ask(shell, pid))


@in_shell("bash")
def test_an_answer_of_a_hundred_megabytes_is_cut(shell: Path, answers: Path) -> None:
    with training() as pid:
        show(answers, pid)

        def say(path: Path) -> None:
            with (answers / "new").open("wb") as file:
                file.truncate(100 << 20)
            os.chown(answers / "new", USER, USER)
            (answers / "new").rename(path)

        with repeating(answering(answers, pid, say)):
            seen = ask(shell, pid)
        assert seen.answers[pid].lack in ("failed", "none")
        assert not list(answers.glob("*.said.*"))


@in_shell("dash")
def test_an_answer_that_never_comes_withdraws_the_request(shell: Path, answers: Path) -> None:
    with training() as pid:
        show(answers, pid)
        before = sorted(os.listdir(answers))
        began = time.monotonic()
        assert ask(shell, pid).answers[pid].lack == "none"
        assert time.monotonic() - began < 20
        assert sorted(os.listdir(answers)) == before


# ---------------------------------------------------------------- what root executes

EVIL = """#!/bin/sh
id -u >>{proof}
echo '[{{"thread_name": "MainThread", "os_thread_id": 1, "frames": []}}]'
"""


@pytest.fixture
def proof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that whatever root is made to execute writes into."""
    return tmp_path_factory.mktemp("proof") / "proof"


def own_python(folder: Path) -> Path:
    """A Python in a folder of the user's own, as in a virtual environment."""
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(PYTHON)
    for path in (folder, folder / "python3"):
        os.chown(path, USER, USER, follow_symlinks=False)
    return folder / "python3"


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that the user gets to."""
    folder = Path(f"/tmp/attack-{os.getpid()}")
    folder.mkdir(0o755)
    yield folder
    shutil.rmtree(folder)


def program(path: Path, text: str, user: int = USER) -> None:
    new = path.with_name("new program")
    new.write_text(text)
    new.chmod(0o755)
    os.chown(new, user, user)
    new.rename(path)


@in_shell("dash")
def test_a_py_spy_beside_the_python_of_another_user_is_not_executed(shell: Path, open_path: Path, proof: Path) -> None:
    python = own_python(open_path / "bin")
    program(python.with_name("py-spy"), EVIL.format(proof=proof))
    with training(str(python), "-c", "import time; time.sleep(3600)") as pid:
        assert ask(shell, pid).answers[pid].lack == "none"
    assert not proof.exists()


@in_shell("bash")
def test_a_link_to_roots_program_in_a_users_folder_is_not_run(shell: Path, open_path: Path, proof: Path) -> None:
    """The link may be another one a moment later."""
    python = own_python(open_path / "bin")
    program(open_path / "of root", EVIL.format(proof=proof), user=0)
    python.with_name("py-spy").symlink_to(open_path / "of root")
    with training(str(python), "-c", "import time; time.sleep(3600)") as pid:
        assert ask(shell, pid).answers[pid].lack == "none"
    assert not proof.exists()


@in_shell("busybox")
def test_a_folder_of_another_user_above_is_enough(shell: Path, open_path: Path, proof: Path) -> None:
    python = own_python(open_path / "theirs" / "bin")
    program(python.with_name("py-spy"), EVIL.format(proof=proof), user=0)
    os.chown(python.parent, 0, 0)
    os.chown(open_path / "theirs", USER, USER)
    with training(str(python), "-c", "import time; time.sleep(3600)") as pid:
        ask(shell, pid)
    assert not proof.exists()


@in_shell("bash")
def test_one_in_folders_of_root_is_executed(shell: Path, proof: Path) -> None:
    """An installation of the administrator's is used by root for the trainings of all users."""
    folder = Path(f"/opt/roll-call-{os.getpid()}")
    folder.mkdir(0o755)
    try:
        (folder / "python3").symlink_to(PYTHON)
        program(folder / "py-spy", EVIL.format(proof=proof), user=0)
        with training(str(folder / "python3"), "-c", "import time; time.sleep(3600)") as pid:
            ask(shell, pid)
        assert set(proof.read_text().split()) == {"0"}
    finally:
        shutil.rmtree(folder)


@in_shell("busybox")
def test_a_user_s_own_py_spy_is_used_by_that_user(shell: Path, open_path: Path, proof: Path) -> None:
    """Also where a group may write into the folder, as on many systems by default."""
    folder = open_path / "bin"
    folder.mkdir()
    folder.chmod(0o775)
    (folder / "python3").symlink_to(PYTHON)
    program(folder / "py-spy", EVIL.format(proof=proof), user=0)
    with training(str(folder / "python3"), "-c", "import time; time.sleep(3600)", user=0) as pid:
        ask(shell, pid)
    assert proof.exists()


@in_shell("dash")
def test_what_a_process_runs_is_not_executed_where_its_user_can_change_it(shell: Path, open_path: Path) -> None:
    """What /proc/PID/exe is at one moment, a Python 3.14 of root, it may not be at the next."""
    folder = open_path / "bin"
    folder.mkdir()
    named = folder / "python3.14"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", named)
    os.chown(folder, USER, USER)
    with training(str(named), "3600") as pid:
        assert ask(shell, pid).answers[pid].lack == "none"


# ---------------------------------------------------------------- a py-spy that hangs

# About some processes it never answers, and it does not end when asked to.
HANGING = """#!/bin/sh
for pid; do :; done
echo "$pid" >>{log}
case $pid in {hanging}) trap '' TERM; exec sleep 3600.{mark} ;; esac
echo '[{{"thread_name": "MainThread", "frames": [{{"name": "meet", "filename": "/t.py", "line": 3}}]}}]'
"""


@in_shell("bash")
def test_a_py_spy_that_hangs_is_killed_and_the_other_stacks_are_told(
    shell: Path, answers: Path, proof: Path, tmp_path: Path
) -> None:
    with training() as own, training() as hanging, training() as other:
        show(answers, own)
        text = HANGING.format(log=proof, hanging=hanging, mark=hanging)
        program(shell / "py-spy", text, user=0)
        with repeating(answering(answers, own, lambda path: whole(path, document()))):
            seen = ask(shell, own, hanging, other, seconds=4)
        assert [len(seen.answers[pid].stacks) for pid in (own, hanging, other)] == [1, 0, 1]
        assert seen.answers[hanging].lack == "failed"
        assert proof.read_text().split().count(str(hanging)) == 1
        assert not list(running(f"3600.{hanging}"))


def running(word: str) -> Iterator[Path]:
    """Yield the processes with this word in their command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word in path.read_text(errors="replace").split("\0"):
                yield path


# ---------------------------------------------------------------- a py-spy that is sent

# In a namespace of mounts of its own, so that nothing of this machine changes.
RECEIVE = """\
mount --bind "$PATH" /mnt && PATH=/mnt || exit 77
for each in {folders}; do mount -t tmpfs -o {options} tmpfs $each || exit 77; done
{before}
{script}
"""


def receive(
    shell: Path, *folders: str, options: str = "mode=1777", before: str = ":"
) -> subprocess.CompletedProcess[str]:
    """Send a program of 2 MB; these folders are mounted anew."""
    tried()
    tools = {"mount", "dd", "df"}
    for name in tools:
        if not (shell / name).exists():
            (shell / name).symlink_to(shutil.which(name, path=os.defpath + ":/sbin:/usr/sbin") or "/bin/false")
    script = format_call("receive", "receive")
    script = script.replace('echo "$base/$name" && exit', 'echo "$base/$name" && ls "$base/$name" && exit')
    program = RECEIVE.format(folders=" ".join(folders), options=options, before=before, script=script)
    done = subprocess.run(
        [require("unshare"), "--mount", shell / "sh", "-c", program],
        input="#!" + "x" * 2_000_000,
        env={"PATH": str(shell), "HOME": "/root", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 77:
        miss("unshare", done.stderr)
    return done


def test_a_program_is_received_in_tmp(shell: Path) -> None:
    done = receive(shell, "/tmp")
    folder, name = done.stdout.split()
    assert folder.startswith("/tmp/training-monitor-") and name == "py-spy", done


@in_shell("busybox")
def test_where_tmp_takes_no_programs_another_folder_does(shell: Path) -> None:
    done = receive(shell, "/tmp", "/var/tmp", options="noexec,mode=1777", before="mount -t tmpfs tmpfs /dev/shm")
    folder, name = done.stdout.split()
    assert folder.startswith("/dev/shm/training-monitor-") and name == "py-spy", done


@in_shell("bash")
def test_where_no_folder_takes_programs_it_says_so_and_leaves_nothing(shell: Path) -> None:
    done = receive(
        shell, "/tmp", "/var/tmp", "/dev/shm", "/root", options="noexec,mode=1777",
        before="trap 'ls /tmp /var/tmp /dev/shm /root' EXIT",
    )  # fmt: skip
    assert done.returncode == 1 and "no folder takes a program that may be executed" in done.stderr
    assert "training-monitor" not in done.stdout, done


@in_shell("dash")
def test_a_full_tmp_leaves_no_piece(shell: Path) -> None:
    done = receive(shell, "/tmp", options="size=1m,mode=1777", before="trap 'ls /tmp' EXIT")
    assert done.returncode == 1 and done.stdout == ""
