"""The processes behind a pid file or a log, on every kind of target: seen, told from others, and ended as a whole."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import Place, counted_programs, kill, wait_until
from tests.requirements import require
from training_monitor.core.errors import AccessDenied, SettingsError
from training_monitor.core.models import Reply
from training_monitor.jobs.process_jobs import ProcessView, process_question, stop_process_question
from training_monitor.targets.asking import Site, ask, quote_path

# A training with a child, a child that ignores TERM, and one in a process group of its own.
KINDS = ("local",)  # of targets: what a shell does is the same on all
TREE = """
trap 'exit 3' TERM
echo $$ >{folder}/pid
sleep 1000 &
(trap '' TERM; while :; do sleep 1; done) &
setsid sleep 1001 &
exec 7>>{folder}/log
while :; do echo step >&7; sleep 0.1; done
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    script = TREE.format(folder=shlex.quote(str(tmp_path)))
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "log").exists())
    yield process
    for each in family(process.pid):
        kill(each)
    process.wait()


def family(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-s", str(pid)], capture_output=True, text=True).stdout.split()
    more = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return sorted({int(each) for each in (*found, *more)})


def test_a_process_that_nobody_there_may_see_is_not_called_gone(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("4194303\n")
    without_proc = [require("unshare"), "--mount", "sh", "-c", "mount -t tmpfs none /proc; exec sh -s"]
    for named in (process_question(None, None, pid=4194303), process_question(str(tmp_path / "pid"), None)):
        for words, error in ((without_proc, AccessDenied), (["sh", "-s"], None)):
            done = subprocess.run(words, input=named.script, capture_output=True, text=True)
            reply = Reply(done.stdout, done.returncode, 0.1)
            if error is None:
                assert named.parse(reply).running is False
            else:
                with pytest.raises(error, match="process 4194303 is not visible"):
                    named.parse(reply)


def look(place: Place, tmp_path: Path, *, pid_file: bool = True, known: ProcessView | None = None) -> ProcessView:
    identity = known.identity if known else None
    question = process_question(
        str(tmp_path / "pid") if pid_file else None, quote_path(str(tmp_path / "log")), identity
    )
    [answer] = ask(place.address, question)
    view = answer.get()
    assert isinstance(view, ProcessView)
    return view


def test_a_process_is_found_by_its_pid_file_with_all_that_belongs_to_it(
    target: Place, tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert wait_until(lambda: len(family(tree.pid)) >= 4)
    before = set(family(tree.pid))
    view = look(target, tmp_path)
    assert view.running is True and view.identity is not None and view.identity.pid == tree.pid
    assert before & set(family(tree.pid)) <= {*view.pids} and len(view.pids) >= 4  # its sleeps come and go
    assert view.age is not None and view.age < 60


def test_a_stop_ends_stubborn_children_and_own_sessions(
    target: Place, tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert wait_until(lambda: len(family(tree.pid)) >= 4)
    view = look(target, tmp_path)
    assert view.identity
    [answer] = ask(target.address, stop_process_question(view.identity, 0.5))
    assert answer.get() == []
    tree.wait(10)
    assert not [pid for pid in view.pids if os.path.exists(f"/proc/{pid}") and not is_zombie(pid)]
    assert look(target, tmp_path, known=view).running is False
    assert look(target, tmp_path, pid_file=False, known=view).running is False


def test_a_stop_lets_a_suspended_process_handle_its_signal(target: Place, tmp_path: Path) -> None:
    script = "trap 'echo saved >saved; exit 0' TERM; echo $$ >pid; while :; do sleep 0.1; done"
    with subprocess.Popen(["sh", "-c", script], cwd=tmp_path) as process:
        assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        view = look(target, tmp_path)
        assert view.identity
        process.send_signal(signal.SIGSTOP)
        [answer] = ask(target.address, stop_process_question(view.identity, 20.0))
        assert answer.get() == [] and (tmp_path / "saved").exists()
        assert process.wait(10) == 0


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_stop_of_a_pid_that_was_given_to_another_process_touches_nothing(
    local: Place, tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    view = look(local, tmp_path)
    assert view.identity
    other = replace(view.identity, start_ticks=view.identity.start_ticks - 1)
    [answer] = ask("local", stop_process_question(other, 0.5))
    assert answer.get() == [] and tree.poll() is None
    [answer] = ask("local", stop_process_question(replace(view.identity, boot_id="another"), 0.5))
    assert answer.get() == [] and tree.poll() is None


@pytest.mark.parametrize(("mode", "is_believed"), [(0o664, True), (0o606, False)])
def test_a_stop_believes_a_pid_file_unless_everybody_may_write_it(
    local: Place, tree: subprocess.Popen[bytes], tmp_path: Path, mode: int, is_believed: bool
) -> None:
    (tmp_path / "pid").chmod(mode)
    view = look(local, tmp_path)
    assert view.identity
    [answer] = ask("local", stop_process_question(view.identity, 0.5, str(tmp_path / "pid")))
    if is_believed:
        assert answer.get() == [] and tree.wait(10) is not None
    else:
        with pytest.raises(SettingsError, match="a file owned by root or by the user"):
            answer.get()
        assert tree.poll() is None


def test_a_process_that_began_long_after_its_pid_file_is_another_one(
    local: Place, tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    os.utime(tmp_path / "pid", (1_600_000_000, 1_600_000_000))
    view = look(local, tmp_path)
    assert view.running is False and "another process" in (view.reason or "")


def test_without_a_pid_file_the_process_that_writes_the_log_is_found(
    target: Place, tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    view = look(target, tmp_path, pid_file=False)
    assert view.running is True and view.identity is not None and view.identity.pid == tree.pid


def test_a_reader_of_the_log_is_not_taken_for_its_writer(local: Place, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("step 1\n")
    reader = subprocess.Popen(["tail", "-f", str(tmp_path / "log")], stdout=subprocess.DEVNULL)
    try:
        view = look(local, tmp_path, pid_file=False)
        assert view.running is None and "pid file" in (view.reason or "")
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.parametrize("content", ["", "none\n", "-1\n", "1\n", "0", "$(reboot)\n", "99999999999999999999\n"])
def test_a_pid_file_without_a_usable_pid_says_nothing_of_the_job(local: Place, tmp_path: Path, content: str) -> None:
    (tmp_path / "pid").write_text(content)
    assert look(local, tmp_path).running is not True


def test_a_removed_pid_file_still_names_the_process_seen(
    local: Place, tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    view = look(local, tmp_path)
    (tmp_path / "pid").unlink()
    assert look(local, tmp_path).running is None
    assert look(local, tmp_path, known=view).running is True
    tree.kill()
    tree.wait()
    assert look(local, tmp_path, known=view).running is False


def test_a_pid_that_runs_no_more_is_gone(local: Place, tmp_path: Path) -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    (tmp_path / "pid").write_text(f"{done.pid}\n")
    view = look(local, tmp_path)
    assert view.running is False and view.reason == f"no process {done.pid}"


def test_a_look_starts_as_many_programs_beside_many_processes_as_beside_few(local: Place) -> None:
    site, counts, others = Site.of("local"), [], list[subprocess.Popen[bytes]]()
    with subprocess.Popen(["sh", "-c", "sleep 300 & sleep 301; true"], start_new_session=True) as process:
        look = process_question(None, None, pid=process.pid)
        assert wait_until(lambda: len(site.ask_one(look).pids) == 3)
        for _ in range(2):
            with counted_programs(local) as programs:
                assert len(site.ask_one(look).pids) == 3
            counts.append(sorted(programs()))
            others += [subprocess.Popen(["sleep", "300"]) for _ in range(60)]
        for each in (*others, process):
            os.killpg(process.pid, signal.SIGKILL) if each is process else each.kill()
            each.wait()
    assert counts[0] == counts[1] and len(counts[0]) <= 8, counts


def test_a_process_whose_name_looks_like_a_line_of_another_one_is_itself(local: Place) -> None:
    script = "echo ready; read -r _; printf '%b' \"$1\" >/proc/$$/comm; echo named; read -r _"
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        for name in (f") S 1 {process.pid}", f"\\n{process.pid} (x) S 1 ", f"a\\n1 (x) S {process.pid}", ") ((\\n)"):
            with subprocess.Popen(
                ["sh", "-c", script, "sh", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as other:
                assert other.stdin and other.stdout
                assert other.stdout.readline() == "ready\n"
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "named\n"
                view = Site.of("local").ask_one(process_question(None, None, pid=process.pid))
                assert set(view.pids) <= {process.pid, other.pid}, "it can name no other process"
                view = Site.of("local").ask_one(process_question(None, None, pid=other.pid))
                assert view.pids[0] == other.pid and 1 not in view.pids
                other.kill()
        process.kill()
