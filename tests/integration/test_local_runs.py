"""A folder of runs on this machine: real files, real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock, FakeTransport
from training_monitor.core.errors import SettingsError, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.runs.files import write_atomically
from training_monitor.runs.local_runs import MAX_CHUNK, LocalRuns
from training_monitor.runs.progress_file import parse_control_file
from training_monitor.runs.rows import judge_look
from training_monitor.runs.values import FolderLook, Limits, Run
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import identify, is_alive

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this machine has no /proc")
NOBODY = frozenset[int]()
NO_PID = 2**22 + 5


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def document(process: Identity | None = None, **keys: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"pid": NO_PID}
    if process:
        metadata = {name: getattr(process, name) for name in Identity.__slots__}
    keys = {"status": "RUNNING", **keys}
    return {"format": 1, "metadata": metadata, "variables": {"lr": {"value": 0.1, "type": "float"}}, **keys}


def write(path: Path, process: Identity | None = None, **keys: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(document(process, **keys)))


def look(source: LocalRuns) -> FolderLook:
    return source.look(NOBODY)


def the_run(source: LocalRuns) -> Run:
    [run] = look(source).runs
    return run


def make_old(path: Path, seconds: float = 3600.0) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


# ---------------------------------------------------------------- looking


def test_both_layouts_and_their_processes_are_seen(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    write(tmp_path / "run-10.json", identify(sleeper.pid))
    write(tmp_path / "run-9" / "progress.json", status="FINISHED")
    source = LocalRuns(tmp_path)
    seen = source.look(frozenset({sleeper.pid}))
    assert [(run.name, run.status) for run in seen.runs] == [("run-9", "FINISHED"), ("run-10", "RUNNING")]
    assert seen.machine and seen.machine_error is None
    assert seen.machine.processes[sleeper.pid].name == "sleep"
    assert [thread.pid for thread in seen.machine.threads[sleeper.pid]] == [sleeper.pid]
    process = seen.runs[1].process
    assert process and is_alive(process)
    assert (seen.machine.identity.boot_id, seen.machine.identity.hostname) == (process.boot_id, process.hostname)


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, state={"step": 1})
    make_old(path)
    source = LocalRuns(tmp_path)
    first = the_run(source)
    assert the_run(source) is first
    for step in range(2, 30):  # within one step of the file's time, of the same size
        write(path, state={"step": step % 10})
        assert the_run(source).step == step % 10


def test_a_pending_edit_comes_and_goes_with_the_control_file(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    make_old(tmp_path / "a.json")
    source = LocalRuns(tmp_path)
    control = tmp_path / "control_a.json"
    seen = []
    for text in (None, '{"lr": 0.5}', "garbage", '{"lr": 0.7}', None):
        if text is None:
            control.unlink(missing_ok=True)
        else:
            write_atomically(control, text)
        seen.append(the_run(source).variables[0].pending)
    assert seen == [None, "0.5", None, "0.7", None]


def test_a_file_that_cannot_be_read_now_is_shown_as_it_was_before(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, state={"step": 7})
    source = LocalRuns(tmp_path)
    look(source)
    for text in ("", '{"status": "RUN', "[" * 10**5, '{"status": "RUNNING", "x": "' + "x" * 5_000_000 + '"}'):
        path.write_text(text)
        run = the_run(source)
        assert (run.status, run.step) == ("RUNNING", 7) and run.error
    write(path, state={"step": 8})
    assert (the_run(source).step, the_run(source).error) == (8, None)
    path.unlink()
    assert look(source).runs == ()


def test_a_file_that_never_could_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    run = the_run(LocalRuns(tmp_path))
    assert (run.name, run.status) == ("a", None) and "not JSON" in (run.error or "")


def test_json_of_something_else_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 4096}')
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 5}, "weight_map": {}}')
    assert look(LocalRuns(tmp_path)).runs == ()


def test_hostile_things_in_the_folder_hang_and_hide_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "control_a.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("missing")
    (tmp_path / "folder.json").mkdir()
    strange = "-n \n\x1b[2J'\"; $(x) ü\udcff"
    write(tmp_path / f"{strange}.json")
    runs = {run.name: run.error for run in look(LocalRuns(tmp_path)).runs}
    assert runs["a"] is None and runs[strange] is None
    assert "not a regular file" in (runs["pipe"] or "") and "not a regular file" in (runs["zero"] or "")
    assert "cannot be read" in (runs["loop"] or "")
    assert "gone" not in runs and "folder.json" not in runs


def test_thousands_of_files_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "run.json", status="FINISHED")
    make_old(tmp_path / "run.json")
    for number in range(2_999):
        os.link(tmp_path / "run.json", tmp_path / f"run-{number}.json")
    source = LocalRuns(tmp_path)
    first, second = look(source), look(source)
    assert len(first.runs) == 3_000
    assert all(one is other for one, other in zip(first.runs, second.runs, strict=True))


def test_a_folder_that_is_not_there_is_an_error_and_never_empty(tmp_path: Path) -> None:
    for folder in (tmp_path / "missing", tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(TrainingMonitorError, match="cannot be read"):
            look(LocalRuns(folder))


def test_a_run_that_writes_all_the_time_is_never_torn(tmp_path: Path) -> None:
    program = (
        "import json, sys; from training_monitor.runs.files import write_atomically\n"
        "for step in range(200):\n"
        "    text = json.dumps({'status': 'RUNNING', 'state': {'step': step}, 'losses': [step] * (step % 60)})\n"
        "    write_atomically(sys.argv[1], text)\n"
        "write_atomically(sys.argv[1], json.dumps({'status': 'FINISHED', 'state': {'step': 200}}))\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / f"run-{number}.json")]) for number in range(2)
    ]
    source, steps = LocalRuns(tmp_path), dict[str, int]()
    while any([writer.poll() is None for writer in writers]):
        for run in look(source).runs:
            assert run.error is None and run.step is not None and run.step >= steps.get(run.name, 0)
            steps[run.name] = run.step
    assert [writer.wait() for writer in writers] == [0] * 2
    assert [(run.status, run.step) for run in look(source).runs] == [("FINISHED", 200)] * 2


def test_runs_that_begin_and_end_during_the_looks_are_never_taken_for_killed(tmp_path: Path) -> None:
    program = (
        "import json, sys, time; from training_monitor.runs.files import write_atomically\n"
        "from training_monitor.targets.procfs import identify\n"
        "process = {name: getattr(identify(), name) for name in identify().__slots__}\n"
        "for status in ('RUNNING', 'RUNNING', 'FINISHED'):\n"
        "    document = {'status': status, 'updated_at': time.time(), 'metadata': process}\n"
        "    write_atomically(sys.argv[1], json.dumps(document))\n"
    )
    source, seen = LocalRuns(tmp_path), set[str]()
    for number in range(2):
        paths = [str(tmp_path / f"run-{number}-{each}.json") for each in range(3)]
        started = [subprocess.Popen([sys.executable, "-c", program, path]) for path in paths]
        while any([process.poll() is None for process in started]):
            seen |= {row.status for row in judge_look(look(source), None, Limits())[0]}
        assert [process.returncode for process in started] == [0] * 3
    assert seen <= {"RUNNING", "FINISHED"}
    assert {row.status for row in judge_look(look(source), None, Limits())[0]} == {"FINISHED"}


def test_one_look_sees_that_a_run_was_killed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    write(tmp_path / "a.json", identify(sleeper.pid), updated_at=time.time())
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    for wait in (lambda: None, sleeper.wait):  # a zombie first, then nothing
        wait()
        seen = LocalRuns(tmp_path).look(NOBODY)
        before_it = seen._replace(runs=tuple(replace(run, updated_at=(run.updated_at or 0) - 1) for run in seen.runs))
        assert [row.status for row in judge_look(before_it, None, Limits())[0]] == ["KILLED"]


def test_the_first_look_has_gpu_memory_and_no_later_one_waits_for_it(tmp_path: Path) -> None:
    transport, slow = FakeTransport(lambda script: ("", 0)), threading.Event()
    answers = {"gpu": "0, H100, 97, 40211, 81559\n", "compute-apps": "77, python, GPU-a, 40000\n"}

    def answer(words: tuple[str, ...], program: str | None) -> CommandResult:
        slow.wait()
        what = words[1].removeprefix("--query-").partition("=")[0]
        return CommandResult(words, 0, answers[what], "", 0.0)

    transport.register(["nvidia-smi"], answer)
    slow.set()
    machine = LocalRuns(tmp_path, transport=transport).look(NOBODY).machine
    assert machine and (machine.gpu_mib, machine.gpu_error) == ({77: 40000.0}, None)
    slow.clear()
    clock = FakeClock()
    source = LocalRuns(tmp_path, transport=transport, clock=clock)
    for _ in range(3):
        machine = source.look(NOBODY).machine
        assert machine and machine.gpu_mib is None and "not responded yet" in str(machine.gpu_error)
    assert clock.elapsed == 1.0
    slow.set()


# ---------------------------------------------------------------- outputs


def output_run(tmp_path: Path, path: object) -> LocalRuns:
    write(tmp_path / "a.json", metadata={"pid": NO_PID, "stdout_path": str(path)})
    source = LocalRuns(tmp_path)
    look(source)
    return source


def test_pieces_of_a_huge_output_are_read_from_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    with log.open("wb") as file:
        file.write(b"begin")
        file.seek(5 * 2**30)
        file.write(b"the end")
    source, size = output_run(tmp_path, log), 5 * 2**30 + 7
    tail = source.read_output(str(log), -7, 100)
    assert (tail.size, tail.start, tail.data) == (size, size - 7, b"the end")
    assert source.read_output(str(log), 0, 5).data == b"begin"
    assert source.read_output(str(log), -(2**60), 5).data == b"begin"
    assert len(source.read_output(str(log), 0, 2**40).data) == MAX_CHUNK
    beyond = source.read_output(str(log), 2**70, 5)
    assert (beyond.start, beyond.data) == (size, b"")
    assert source.read_output(str(log), 0, -5).data == b""


def test_only_outputs_that_a_run_names_are_read(tmp_path: Path) -> None:
    source = output_run(tmp_path, tmp_path / "out.log")
    with pytest.raises(TrainingMonitorError, match="not the output of any run"):
        source.read_output("/etc/hostname", 0, 10)
    with pytest.raises(TrainingMonitorError, match="No such file"):
        source.read_output(str(tmp_path / "out.log"), 0, 10)


def test_an_output_that_is_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(TrainingMonitorError, match="not a regular file"):
            output_run(tmp_path, path).read_output(str(path), 0, 10)


# ---------------------------------------------------------------- edits


def test_an_edit_is_written_and_pending_until_it_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "a" / "progress.json"
    write(path)
    source = LocalRuns(tmp_path)
    first = source.edit(the_run(source), {"lr": "0.5"})
    assert the_run(source).variables[0].pending == "0.5"
    assert parse_control_file((path.parent / "control.json").read_text())["lr"].edit == first
    write(path, variables={"lr": {"value": 0.5, "type": "float", "edit": first}, "b": {"value": 1, "type": "int"}})
    assert the_run(source).variables[0].pending is None
    second = source.edit(the_run(source), {"b": "2"})
    edits = parse_control_file((path.parent / "control.json").read_text())
    assert {name: (one.value, one.edit) for name, one in edits.items()} == {"b": ("2", second)}


def test_editors_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"v{number}" for number in range(8)]
    write(tmp_path / "a.json", variables={name: {"value": 0, "type": "int"} for name in names})

    def edit(name: str) -> None:
        source = LocalRuns(tmp_path)
        for value in range(10):
            source.edit(the_run(source), {name: str(value)})

    threads = [threading.Thread(target=edit, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    edits = parse_control_file((tmp_path / "control_a.json").read_text())
    assert {name: one.value for name, one in edits.items()} == dict.fromkeys(names, "9")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "control_a.json"]


def test_an_editor_that_never_ends_is_waited_for_two_seconds(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    program = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdin=-1, stdout=-1)
    assert holder.stdout and holder.stdout.readline() == b"held\n"
    clock = FakeClock()
    source = LocalRuns(tmp_path, clock=clock)
    run, before = the_run(source), clock.elapsed
    with pytest.raises(TrainingMonitorError, match="another process has been editing"):
        source.edit(run, {"lr": "1"})
    assert 2.0 <= clock.elapsed - before < 2.1
    holder.communicate()
    source.edit(the_run(source), {"lr": "1"})
    assert the_run(source).variables[0].pending == "1"


def test_garbage_in_the_control_file_is_replaced(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    (tmp_path / "control_a.json").write_text("garbage")
    source = LocalRuns(tmp_path)
    source.edit(the_run(source), {"lr": "ü \n\"'"})
    assert the_run(source).variables[0].pending == "ü \n\"'"


def test_edits_that_nobody_could_answer_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    source = LocalRuns(tmp_path)
    run = the_run(source)
    for values, match in (({"momentum": "1"}, "no variable 'momentum'"), ({"lr": "x" * 1001}, "1001 characters")):
        with pytest.raises(TrainingMonitorError, match=match):
            source.edit(run, values)
    with pytest.raises(TrainingMonitorError, match="is FINISHED"):
        source.edit(replace(run, status="FINISHED"), {"lr": "1"})
    with pytest.raises(TrainingMonitorError, match="no longer in"):
        source.edit(replace(run, path="/etc/a.json", control_path="/etc/control_a.json"), {"lr": "1"})
    assert not (tmp_path / "control_a.json").exists()


def test_a_control_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.json")
    (tmp_path / "control_a.json").mkdir()
    source = LocalRuns(tmp_path)
    with pytest.raises(TrainingMonitorError, match="cannot be written"):
        source.edit(the_run(source), {"lr": "1"})


# ---------------------------------------------------------------- signals


def send_signals(processes: tuple[Identity, ...], number: int) -> tuple[str, ...]:
    return LocalRuns("/").send_signal(processes, number)


def test_a_signal_ends_the_process_and_says_so(sleeper: subprocess.Popen[bytes]) -> None:
    [said] = send_signals((identify(sleeper.pid),), signal.SIGTERM)
    assert said == f"process {sleeper.pid} (sleep): SIGTERM was sent, and the process has ended"
    assert sleeper.wait() == -signal.SIGTERM


def test_a_process_that_is_gone_at_once_is_still_named(sleeper: subprocess.Popen[bytes]) -> None:
    process = identify(sleeper.pid)
    with ThreadPoolExecutor(1) as others:
        others.submit(sleeper.wait)  # the parent leaves no zombie of which the name could be read
        [said] = send_signals((process,), signal.SIGKILL)
    assert said == f"process {process.pid} (sleep): SIGKILL was sent, and the process has ended"


def test_stopping_and_going_on_is_seen(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    process, source = identify(sleeper.pid), LocalRuns(tmp_path)
    assert source.send_signal((process,), signal.SIGSTOP)[0].endswith("SIGSTOP was sent; it is stopped")
    assert source.send_signal((process,), signal.SIGTERM)[0].endswith(
        "it is stopped, and will receive the signal after SIGCONT"
    )
    assert source.send_signal((process,), signal.SIGCONT)[0].endswith(("it continues", "has ended"))
    assert sleeper.wait() == -signal.SIGTERM


def test_a_process_that_ignores_the_signal_is_still_there() -> None:
    program = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=-1)
    try:
        assert child.stdout and child.stdout.readline() == b"ready\n"
        [said] = send_signals((identify(child.pid),), signal.SIGTERM)
        assert "SIGTERM was sent; it still exists" in said
    finally:
        child.kill()
        child.communicate()


def test_many_are_signalled_before_the_first_is_waited_for() -> None:
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(60)]
    try:
        said = send_signals(tuple(identify(child.pid) for child in children), signal.SIGKILL)
        assert len(said) == 60 and all(each.endswith("has ended") for each in said)
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"start_ticks": 1}, "has ended; its pid now belongs to another process"),
        ({"start_ticks": None}, "its start time is unknown"),
        ({"hostname": "gpu-7"}, "it runs on gpu-7"),
        ({"hostname": None}, "an unknown host"),
        ({"boot_id": "0"}, "its machine has restarted"),
        ({"boot_id": None}, "may have restarted"),
        ({"pid_namespace": "pid:[1]"}, "pid namespace"),
        ({"pid": NO_PID}, "has ended: no signal was sent"),
        ({"pid": 2**70}, "signals to it are not allowed"),
        ({"pid": 1}, "signals to it are not allowed"),
        ({"pid": 0}, "signals to it are not allowed"),
        ({"pid": -1}, "signals to it are not allowed"),
        ({"pid": os.getpid()}, "has ended; its pid now belongs to another process"),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_a_process_that_may_be_another_one_is_sent_nothing(
    sleeper: subprocess.Popen[bytes], keys: dict[str, Any], reason: str
) -> None:
    [said] = send_signals((replace(identify(sleeper.pid), **keys),), signal.SIGKILL)
    assert reason in said and "no signal was sent" in said
    assert is_alive(identify(sleeper.pid))


def test_whoever_looks_is_sent_nothing() -> None:
    me = identify()
    assert send_signals((me,), signal.SIGKILL) == (
        f"process {me.pid}: no signal was sent, because it is the process that runs this inspection",
    )


def test_a_zombie_is_told_apart(sleeper: subprocess.Popen[bytes]) -> None:
    process = identify(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    [said] = send_signals((process,), signal.SIGTERM)
    assert said.endswith("is a zombie: it has ended, but its parent has not collected it")
    assert is_alive(process) is False


def test_a_number_that_is_no_signal_is_not_sent(sleeper: subprocess.Popen[bytes]) -> None:
    for number in (0, -9, 1000):
        with pytest.raises(SettingsError, match="the number of a signal"):
            send_signals((identify(sleeper.pid),), number)
    assert is_alive(identify(sleeper.pid))


# ---------------------------------------------------------------- deleting


def test_a_run_that_has_ended_is_deleted_in_both_layouts(tmp_path: Path) -> None:
    keep = tmp_path / "ab.json"
    write(keep)
    write(tmp_path / "a" / "progress.json", identify(NO_PID), status="FINISHED")
    write(tmp_path / "a.json", identify(NO_PID), status="FAILED")
    for name in ("control_a.json", "a_stdout.log", "a_stderr.log", "ab_stdout.log"):
        (tmp_path / name).touch()
    (tmp_path / "a" / "deep").mkdir()
    (tmp_path / "a" / "deep" / "checkpoint").touch()
    source = LocalRuns(tmp_path)
    for run in look(source).runs:
        if run.name in ("a", "a/"):
            source.delete(run)
    assert sorted(os.listdir(tmp_path)) == ["ab.json", "ab_stdout.log"]


def test_what_deleting_removes_is_measured_in_both_layouts(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "runs", tmp_path / "a.log"
    elsewhere.write_text("x")
    (folder / "a" / "deep").mkdir(parents=True)
    inside = folder / "a" / "stdout.log"
    (folder / "a" / "deep" / "checkpoint").write_bytes(b"x" * 100_000)
    os.link(folder / "a" / "deep" / "checkpoint", folder / "a" / "the same")
    (folder / "a" / "link").symlink_to(tmp_path)
    metadata = {"stdout_path": str(inside), "stderr_path": str(elsewhere)}
    write(folder / "a" / "progress.json", identify(NO_PID), status="FINISHED", metadata=metadata)
    inside.write_text("x")
    source = LocalRuns(folder)
    size = source.measure(the_run(source))
    assert (size.files, size.kept) == (5, (str(elsewhere),)) and 100_000 <= size.bytes < 200_000
    write(folder / "a.json", identify(NO_PID), status="FINISHED")
    (folder / "a_stdout.log").write_bytes(b"x" * 10_000)
    (folder / "ab_stdout.log").write_bytes(b"x" * 10_000)
    flat = next(run for run in look(source).runs if run.folder is None)
    assert source.measure(flat).files == 2 and 10_000 <= source.measure(flat).bytes < 20_000
    with pytest.raises(TrainingMonitorError, match="is no longer in"):
        source.measure(replace(flat, path="/etc/passwd"))


def test_a_run_that_may_be_alive_is_kept(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path, process = tmp_path / "a" / "progress.json", identify(sleeper.pid)
    elsewhere = replace(process, hostname="gpu-7")
    old = replace(process, start_ticks=None, boot_id=None, pid_namespace=None)
    source = LocalRuns(tmp_path)
    for one, status, reason in (
        (process, "RUNNING", f"its process {sleeper.pid} is alive"),
        (process, "FINISHED", f"its process {sleeper.pid} is alive"),
        (old, "RUNNING", "may belong to it"),
        (elsewhere, "RUNNING", "is not visible from there"),
        (None, "RUNNING", "is not visible from there"),
    ):
        write(path, one, status=status)
        with pytest.raises(TrainingMonitorError, match=reason):
            source.delete(the_run(source))
        assert path.exists()


def test_a_run_elsewhere_that_says_nothing_any_more_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a" / "progress.json"
    write(path, replace(identify(), hostname="gpu-7"))
    make_old(path)
    source = LocalRuns(tmp_path)
    source.delete(the_run(source))
    assert os.listdir(tmp_path) == []


def test_what_the_file_says_now_decides_and_not_what_was_seen(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = tmp_path / "a.json"
    write(path, identify(NO_PID), status="FINISHED")
    source = LocalRuns(tmp_path)
    run = the_run(source)
    for status in ("RUNNING", "FINISHED"):
        write(path, identify(sleeper.pid), status=status)
        with pytest.raises(TrainingMonitorError, match="run 'a' was restarted in the meantime"):
            source.delete(run)
    assert path.exists()


def test_a_file_that_became_something_else_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, identify(NO_PID), status="FINISHED")
    source = LocalRuns(tmp_path)
    run = the_run(source)
    path.write_text('{"hidden_size": 4096}')
    with pytest.raises(TrainingMonitorError, match="is no longer in"):
        source.delete(run)
    assert path.exists()


def test_a_run_whose_file_cannot_be_read_is_kept_while_its_process_is_alive(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "a.json"
    write(path, identify(sleeper.pid))
    source = LocalRuns(tmp_path)
    run = the_run(source)
    path.write_text("garbage")
    make_old(path)
    with pytest.raises(TrainingMonitorError, match="is alive"):
        source.delete(run)
    path.write_text("garbage")
    source = LocalRuns(tmp_path)
    with pytest.raises(TrainingMonitorError, match="is not visible from there"):
        source.delete(the_run(source))


def test_a_folder_behind_a_link_and_a_made_up_path_are_kept(tmp_path: Path) -> None:
    other, folder = tmp_path / "other", tmp_path / "runs"
    write(other / "progress.json", status="FINISHED")
    folder.mkdir()
    (folder / "a").symlink_to(other)
    source = LocalRuns(folder)
    run = the_run(source)
    with pytest.raises(TrainingMonitorError, match="its folder is a link"):
        source.delete(run)
    with pytest.raises(TrainingMonitorError, match="no longer in"):
        source.delete(replace(run, path=str(other / "progress.json"), folder=str(other)))
    assert (other / "progress.json").exists()


def test_what_cannot_be_deleted_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.json", status="FINISHED")
    (tmp_path / "control_a.json").mkdir()
    source = LocalRuns(tmp_path)
    with pytest.raises(TrainingMonitorError, match="or only in part"):
        source.delete(the_run(source))
    assert the_run(source).name == "a"
