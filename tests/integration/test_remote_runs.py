"""Runs in a folder here, in a pod through kubectl, and on a host through ssh: seen, edited, ended, deleted."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import Place, SshServer, kill, wait_until
from training_monitor.core.errors import CommandError, CommandFailed, TargetUnreachable, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.runs.file_pieces import BLOCK, MAX_READ
from training_monitor.runs.files import write_atomically
from training_monitor.runs.local_runs import LocalRuns, open_runs
from training_monitor.runs.output_pages import OutputPages
from training_monitor.runs.output_search import OutputSearch
from training_monitor.runs.progress_file import parse_control_file
from training_monitor.runs.remote_runs import RemoteRuns
from training_monitor.runs.rows import judge_look
from training_monitor.runs.values import Limits, Run, RunSize
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import identify
from training_monitor.targets.transport import LocalTransport, Stream

KINDS = ("over_ssh",)  # of targets: what a shell does is the same on all
HOSTILE = ["it's", 'a "quoted" one', "two\nlines", "-rf", "$(touch stolen)", "ü█ and spaces", "x <==\ny", "*"]
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
PROGRAMS = "cat head ls mv rm sed dd base64 od stat wc grep sleep chmod date uname find".split()
GIB = 1 << 30


class Counting(LocalTransport):
    """This machine; counts the programs that are run."""

    def __init__(self) -> None:
        self.count = 0

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        self.count += 1
        return super().run(argv, timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        raise AssertionError(argv)


class Folder:
    """A folder of runs, and what reads it over a target."""

    def __init__(self, place: Place) -> None:
        self.path = place.folder / "my runs"
        self.path.mkdir()
        self.transport = Counting()
        self.runs = RemoteRuns(place.address, str(self.path), transport=self.transport)

    def write(self, name: str, process: Identity | None = None, *, flat: bool = True, **more: object) -> Path:
        metadata = {} if process is None else process_fields(process)
        if paths := {key: more.pop(key) for key in ("stdout_path", "stderr_path") if key in more}:
            metadata |= paths
        file = self.path / f"{name}.json" if flat else self.path / name / "progress.json"
        file.parent.mkdir(exist_ok=True)
        variables = {"lr": {"value": 1.0, "type": "float", "edit": None}}
        write_atomically(file, json.dumps({"status": "RUNNING", "metadata": metadata, "variables": variables} | more))
        return file

    def run(self, name: str) -> Run:
        [run] = [run for run in self.runs.look(frozenset()).runs if run.name == name]
        return run

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))


def process_fields(process: Identity) -> dict[str, object]:
    return {
        "pid": process.pid,
        "start_ticks": process.start_ticks,
        "hostname": process.hostname,
        "boot_id": process.boot_id,
        "pid_namespace": process.pid_namespace,
    }


@pytest.fixture
def folder(target: Place) -> Folder:
    return Folder(target)


@pytest.fixture
def here(local: Place) -> Folder:
    return Folder(local)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "300"]) as process:
        yield process
        process.kill()


class TestLooking:
    def test_the_runs_of_a_group_are_the_same_from_afar(self, tmp_path: Path) -> None:
        for name in ("sweep/lr1", "sweep/lr2", "alone", "alone/checkpoints"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "progress.json").write_text('{"status": "FINISHED", "state": {"step": 7}}')
        sources = (LocalRuns(tmp_path), RemoteRuns("local", str(tmp_path)))
        seen = [source.look(frozenset()).runs for source in sources]
        assert [run.name for run in seen[0]] == ["alone", "sweep/lr1", "sweep/lr2"] and seen[0] == seen[1]
        sources[1].delete(seen[1][1])
        assert not (tmp_path / "sweep" / "lr1").exists() and (tmp_path / "sweep" / "lr2").exists()

    def test_both_layouts_and_all_names_are_seen_in_one_round_trip(self, folder: Folder) -> None:
        for name in HOSTILE:
            folder.write(name)
            folder.write(f"own {name}", flat=False)
        folder.write("control_x", status="RUNNING")  # a control file, whatever it holds
        (folder.path / "results.json").write_text("[1]")
        (folder.path / "folder.json").mkdir()
        (folder.path / ".hidden.json").write_text("{}")
        (folder.path / "dead.json").symlink_to("/nowhere")
        os.mkfifo(folder.path / "pipe.json")
        look = folder.runs.look(frozenset())
        errors = {run.name: run.error for run in look.runs}
        assert errors.pop("pipe") == "cannot be read: not a regular file"
        assert errors == dict.fromkeys([*HOSTILE, *(f"own {name}" for name in HOSTILE)])
        here = LocalRuns(folder.path).look(frozenset()).runs
        assert [run.path for run in look.runs] == [run.path for run in here]
        before = folder.transport.count  # a pod was asked for its containers first
        folder.runs.look(frozenset())
        assert folder.transport.count == before + 1 <= 3
        assert not (folder.path / "stolen").exists()

    def test_the_machine_is_seen_as_from_within(self, folder: Folder, sleeper: subprocess.Popen[bytes]) -> None:
        me = identify()
        look = folder.runs.look(frozenset({os.getpid()}))
        machine = look.machine
        assert machine and look.machine_error is None
        identity = machine.identity
        assert (identity.hostname, identity.boot_id, identity.pid_namespace) == (
            me.hostname,
            me.boot_id,
            me.pid_namespace,
        )
        assert machine.processes[os.getpid()].start_ticks == me.start_ticks
        assert machine.processes[sleeper.pid].parent == os.getpid()
        assert os.getpid() in {thread.pid for thread in machine.threads[os.getpid()]}
        assert machine.sees_all and machine.memory_bytes and machine.available_bytes
        assert machine.ticks == os.sysconf("SC_CLK_TCK")
        local = LocalRuns(folder.path).look(frozenset()).machine
        assert local and abs(local.at - machine.at) < 60
        assert abs(look.timestamp - time.time()) < 60

    def test_one_look_sees_that_a_run_was_killed(self, folder: Folder, sleeper: subprocess.Popen[bytes]) -> None:
        folder.write("a", identify(sleeper.pid), updated_at=time.time() - 2)
        folder.write("b", replace(identify(sleeper.pid), start_ticks=1), updated_at=time.time() + 2)
        assert [row.status for row in judge_look(folder.runs.look(frozenset()), None, Limits())[0]] == ["RUNNING"] * 2
        sleeper.kill()
        sleeper.wait()
        look = folder.runs.look(frozenset())
        assert look.processes_at is not None and look.processes_at <= look.timestamp
        rows = judge_look(look, None, Limits())[0]
        assert [(row.status, row.is_alive) for row in rows] == [("KILLED", False), ("RUNNING", None)]

    def test_a_folder_that_is_not_there_is_an_error_and_an_empty_one_is_none(self, folder: Folder) -> None:
        assert folder.runs.look(frozenset()).runs == ()
        folder.path.rmdir()
        with pytest.raises(CommandFailed, match="no such folder: .*Try: check the path"):
            folder.runs.look(frozenset())
        folder.path.write_text("a file")
        with pytest.raises(CommandFailed, match="this is a file, not a folder"):
            folder.runs.look(frozenset())

    def test_writers_that_replace_their_files_are_never_seen_torn(self, here: Folder) -> None:
        ends = threading.Event()

        def write() -> None:
            step = 0
            while not ends.is_set():
                step += 1
                for number in range(8):
                    here.write(f"run-{number}", state={"step": step, "batch": step}, pad="x" * (step % 50 * 100))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert wait_until(lambda: len(here.names()) == 8)
            for _ in range(8):
                runs = here.runs.look(frozenset()).runs
                assert [run.error for run in runs] == [None] * 8
                assert all(run.step is not None and run.step == run.batch for run in runs)
        finally:
            ends.set()
            writer.join()

    def test_a_large_file_keeps_no_other_from_being_read(self, here: Folder) -> None:
        here.write("good")
        (here.path / "big.json").write_bytes(b'{"status": "' + b"x" * (50 << 20))
        by_name = {run.name: run for run in here.runs.look(frozenset()).runs}
        assert by_name["good"].error is None
        assert "longer than" in str(by_name["big"].error)

    def test_of_thousands_of_files_the_newest_are_read_and_the_others_named(self, here: Folder) -> None:
        for number in range(1500):
            (here.path / f"old-{number}.json").write_text('{"status": "FINISHED"}')
            os.utime(here.path / f"old-{number}.json", (1, 1))
        here.write("new")
        by_name = {run.name: run for run in here.runs.look(frozenset()).runs}
        assert len(by_name) == 1501
        assert (by_name["new"].status, by_name["new"].error) == ("RUNNING", None)
        errors = [run.error for run in by_name.values() if run.error]
        assert len(errors) == 501 and "too many" in errors[0]

    @pytest.mark.parametrize("shell", SHELLS)
    def test_any_shell_and_few_programs_are_enough(
        self, local: Place, sleeper: subprocess.Popen[bytes], shell: str
    ) -> None:
        tools = local.folder / "bin"
        tools.mkdir()
        for name in ("sh", *PROGRAMS):
            program = shutil.which(shell if name == "sh" or shell == "busybox" else name, path="/usr/bin:/bin")
            assert program, name
            (tools / name).symlink_to(program)
        folder = Folder(local)
        folder.write("a")
        local.set_environment({"PATH": str(tools)})
        look = folder.runs.look(frozenset({os.getpid()}))
        assert look.machine and os.getpid() in look.machine.processes
        assert look.machine.processes[os.getpid()].rss_bytes % os.sysconf("SC_PAGE_SIZE") == 0
        folder.runs.edit(look.runs[0], {"lr": "2"})
        assert parse_control_file((folder.path / "control_a.json").read_text())["lr"].value == "2"
        assert folder.runs.send_signal((identify(sleeper.pid),), 0 + signal.SIGCONT)[0].endswith("it continues")


class TestEditing:
    def test_what_cannot_be_edited_is_shown_and_refused_at_once(self, folder: Folder) -> None:
        folder.write("a", variables={"betas": {"value": "(0.9, 0.999)", "type": "tuple"}})
        run = folder.run("a")
        assert [(each.value, each.type) for each in run.variables] == [("(0.9, 0.999)", "tuple")]
        for runs in (folder.runs, LocalRuns(folder.path)):
            [run] = runs.look(frozenset()).runs
            with pytest.raises(TrainingMonitorError, match="betas is of type tuple"):
                runs.edit(run, {"betas": "1"})
        assert folder.names() == ["a.json"]

    def test_an_edit_arrives_whatever_it_holds(self, folder: Folder) -> None:
        value = 'it\'s $HOME `id`\n"two" \\ lines % ROOT VALUES ü\x07'
        for name in HOSTILE:
            folder.write(name, flat=False)
        for run in folder.runs.look(frozenset()).runs:
            edit_id = folder.runs.edit(run, {"lr": value})
            edits = parse_control_file((folder.path / run.name / "control.json").read_text())
            assert (edits["lr"].value, edits["lr"].edit) == (value, edit_id)
            assert sorted(os.listdir(folder.path / run.name)) == ["control.json", "progress.json"]
        seen = {run.name: run.variables[0].pending for run in folder.runs.look(frozenset()).runs}
        assert seen == dict.fromkeys(HOSTILE, value)
        assert not (folder.path / "stolen").exists()

    def test_what_others_wrote_since_the_last_look_is_kept(self, folder: Folder) -> None:
        folder.write("a")
        run = folder.run("a")
        (folder.path / "control_a.json").write_text('{"edits": {"wd": {"value": "3", "edit": "theirs"}}}')
        folder.runs.edit(run, {"lr": "2"})
        edits = parse_control_file((folder.path / "control_a.json").read_text())
        assert {name: edit.value for name, edit in edits.items()} == {"wd": "3", "lr": "2"}

    def test_garbage_is_replaced(self, here: Folder) -> None:
        here.write("a")
        for garbage in (b"\xff\xfe\x00garbage", b"", b"[" * 9999):
            (here.path / "control_a.json").write_bytes(garbage)
            here.runs.edit(here.run("a"), {"lr": "2"})
            assert parse_control_file((here.path / "control_a.json").read_text())["lr"].value == "2"

    def test_a_folder_that_cannot_be_written_says_so_and_nothing_is_left_behind(self, here: Folder) -> None:
        here.write("a")
        run = here.run("a")
        (here.path / "control_a.json").mkdir()
        with pytest.raises(CommandFailed, match="not a regular file"):
            here.runs.edit(run, {"lr": "2"})
        assert here.names() == ["a.json", "control_a.json"]

    def test_what_an_editor_left_that_was_killed_as_it_wrote_goes_with_a_later_edit(
        self, local: Place, here: Folder
    ) -> None:
        here.write("a")
        run, tools = here.run("a"), local.folder / "bin"
        tools.mkdir()
        (tools / "mv").write_text("#!/bin/sh\nkill -9 $PPID\n")
        (tools / "mv").chmod(0o700)
        local.set_environment({"PATH": f"{tools}:{os.environ['PATH']}"})
        with pytest.raises(CommandError):
            here.runs.edit(run, {"lr": "2"})
        [left] = [name for name in here.names() if name.startswith(".")]
        (tools / "mv").unlink()
        others = {f"{left.removesuffix('.tmp')}.txt", ".training-monitor-edit-mine.txt"}
        for name in others:
            (here.path / name).touch()
        here.runs.edit(run, {"lr": "2"})
        assert left in here.names(), "whoever wrote it just now may be alive"
        for name in {*others, left}:
            os.utime(here.path / name, (time.time() - 2 * 3600,) * 2)
        here.runs.edit(run, {"lr": "3"})
        assert set(here.names()) == {"a.json", "control_a.json", *others}

    def test_a_file_system_without_locks_can_be_edited_and_an_unreadable_file_cannot(
        self, local: Place, here: Folder
    ) -> None:
        here.write("a")
        run, tools, control = here.run("a"), local.folder / "bin", here.path / "control_a.json"
        tools.mkdir()
        unreadable = 'case "$*" in *control_a.json) exit 1 ;; esac; exec /usr/bin/head "$@"'  # root can read all
        local.set_environment({"PATH": f"{tools}:{os.environ['PATH']}"})
        for tool, script in {"flock": "exit 66", "head": unreadable}.items():
            (tools / tool).write_text(f"#!/bin/sh\n{script}\n")
            (tools / tool).chmod(0o700)
            if tool == "flock":
                here.runs.edit(run, {"lr": "2"})
        with pytest.raises(CommandFailed, match="it cannot be read"):
            here.runs.edit(run, {"lr": "3"})
        assert parse_control_file(control.read_text())["lr"].value == "2"

    def test_editors_here_and_there_lose_nothing_of_one_another(self, here: Folder) -> None:
        variables = {name: {"value": 1.0, "type": "float"} for name in ("a", "b")}
        here.write("run", variables=variables)
        run, failures = here.run("run"), list[Exception]()
        [same] = LocalRuns(here.path).look(frozenset()).runs

        def edit_here() -> None:
            mine = LocalRuns(here.path)
            mine.look(frozenset())
            try:
                for number in range(20):
                    mine.edit(same, {"a": str(number)})
            except TrainingMonitorError as error:
                failures.append(error)

        other = threading.Thread(target=edit_here)
        other.start()
        for number in range(3):
            try:
                here.runs.edit(run, {"b": str(number)})
            except CommandFailed as error:  # too busy: told, and nothing was written
                assert "retry the same call" in str(error)
        other.join()
        assert not failures
        assert parse_control_file((here.path / "control_run.json").read_text())["a"].value == "19"


class TestSignals:
    def test_only_the_same_process_is_signalled(self, folder: Folder, sleeper: subprocess.Popen[bytes]) -> None:
        known = identify(sleeper.pid)
        others = (
            replace(known, start_ticks=(known.start_ticks or 0) + 1),
            replace(known, hostname="gpu-7"),
            replace(known, boot_id="another"),
            replace(known, boot_id=None),
            replace(known, pid_namespace="pid:[1]"),
            replace(known, start_ticks=None),
            replace(known, hostname="$(kill -9 $PPID)"),
        )
        said = folder.runs.send_signal(others, signal.SIGKILL)
        assert all("no signal was sent" in each for each in said) and sleeper.poll() is None
        assert "it runs on gpu-7" in said[1]

    def test_what_came_of_a_signal_is_seen(self, folder: Folder, sleeper: subprocess.Popen[bytes]) -> None:
        known = identify(sleeper.pid)
        what = f"process {sleeper.pid} (sleep)"
        assert folder.runs.send_signal((known,), signal.SIGSTOP) == (f"{what}: SIGSTOP was sent; it is stopped",)
        assert folder.runs.send_signal((known,), signal.SIGCONT) == (f"{what}: SIGCONT was sent; it continues",)
        assert folder.runs.send_signal((known,), signal.SIGTERM) == (
            f"{what}: SIGTERM was sent, and the process has ended",
        )
        [zombie] = folder.runs.send_signal((known,), signal.SIGTERM)
        assert zombie == f"{what} is a zombie: it has ended, but its parent has not collected it"
        sleeper.wait()
        assert folder.runs.send_signal((known,), signal.SIGTERM) == (
            f"process {sleeper.pid} has ended: no signal was sent",
        )

    def test_a_process_that_ignores_it_is_still_there(self, here: Folder) -> None:
        script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.readline() == b"ready\n"
            [said] = here.runs.send_signal((identify(process.pid),), signal.SIGTERM)
            assert "SIGTERM was sent; it still exists" in said
            process.kill()

    def test_a_name_with_line_ends_and_brackets_is_still_the_same_process(self, here: Folder, tmp_path: Path) -> None:
        program = tmp_path / "a) Z\n7 (b"
        shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
        with subprocess.Popen([str(program), "300"]) as process:
            [said] = here.runs.send_signal((identify(process.pid),), signal.SIGTERM)
            assert said == f"process {process.pid} (a) Z\n7 (b): SIGTERM was sent, and the process has ended"
            kill(process.pid)


class TestDeleting:
    def test_the_files_of_an_ended_run_are_deleted_and_no_others(self, folder: Folder) -> None:
        for name in HOSTILE:
            folder.write(name, status="FINISHED")
            folder.write(f"own {name}", flat=False, status="FAILED")
            for other in (f"control_{name}.json", f"{name}_stdout.log", f"own {name}/checkpoint.pt"):
                (folder.path / other).write_text("{}")
        (folder.path / "keep.txt").write_text("x")
        for run in folder.runs.look(frozenset()).runs:
            folder.runs.delete(run)
        assert folder.names() == ["keep.txt"]
        assert folder.runs.look(frozenset()).runs == ()

    def test_what_deleting_removes_is_measured_whatever_its_name(self, folder: Folder) -> None:
        for name in HOSTILE:
            folder.write(f"own {name}", flat=False, status="FAILED")
            (folder.path / f"own {name}" / "check\npoint 7\n").write_bytes(b"x" * 100_000)
            (folder.path / f"own {name}" / "link").symlink_to("/")
        for run in folder.runs.look(frozenset()).runs:
            size = folder.runs.measure(run)
            assert size.files == 3 and 100_000 <= size.bytes < 200_000
        folder.write("a", status="FINISHED")
        run = folder.run("a")
        assert folder.runs.measure(run).files == 1
        (folder.path / "a.json").unlink()
        assert folder.runs.measure(run) == RunSize(0, 0)

    def test_a_run_that_was_started_again_since_it_was_seen_is_kept(self, folder: Folder) -> None:
        folder.write("a", status="FINISHED")
        seen = folder.run("a")
        folder.write("a", replace(identify(), hostname="gpu-7"), status="FINISHED")
        with pytest.raises(TrainingMonitorError, match="run 'a' was restarted in the meantime"):
            folder.runs.delete(seen)
        folder.runs.delete(folder.run("a"))
        assert folder.names() == []

    def test_a_run_that_is_alive_is_kept(self, folder: Folder, sleeper: subprocess.Popen[bytes]) -> None:
        file = folder.write("a", identify(sleeper.pid), flat=False, status="FINISHED")
        os.utime(file, (1, 1))
        run = folder.run("a")
        with pytest.raises(CommandFailed, match=f"was not deleted: its process {sleeper.pid} is alive"):
            folder.runs.delete(run)
        sleeper.kill()
        sleeper.wait()
        folder.runs.delete(run)
        assert folder.names() == []

    def test_a_run_without_a_start_time_is_kept_while_its_pid_exists(
        self, folder: Folder, sleeper: subprocess.Popen[bytes]
    ) -> None:
        file = folder.write("a", Identity(sleeper.pid, None, identify().hostname), flat=False)
        os.utime(file, (1, 1))
        with pytest.raises(CommandFailed, match="may belong to it: end the process first"):
            folder.runs.delete(folder.run("a"))
        sleeper.kill()
        sleeper.wait()
        folder.runs.delete(folder.run("a"))
        assert folder.names() == []

    def test_a_run_elsewhere_that_wrote_just_now_is_kept(self, folder: Folder) -> None:
        file = folder.write("a", replace(identify(), hostname="gpu-7"))
        with pytest.raises(CommandFailed, match="within the last minute"):
            folder.runs.delete(folder.run("a"))
        os.utime(file, (1, 1))
        folder.runs.delete(folder.run("a"))
        assert folder.names() == []

    def test_a_link_is_never_followed(self, here: Folder, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "progress.json").write_text('{"status": "FINISHED"}')
        (here.path / "link").symlink_to(outside)
        with pytest.raises(CommandFailed, match="its folder is a link"):
            here.runs.delete(here.run("link"))
        assert (outside / "progress.json").exists() and here.names() == ["link"]

    def test_a_name_that_is_no_text_is_shown_and_not_touched(self, here: Folder) -> None:
        file = os.fsencode(here.path) + b"/caf\xe9.json"
        Path(os.fsdecode(file)).write_text('{"status": "FINISHED"}')
        run = here.run("caf\ufffd")
        assert (run.status, run.error) == ("FINISHED", None)
        with pytest.raises(TrainingMonitorError, match="not valid UTF-8"):
            here.runs.delete(run)
        assert os.path.exists(file)

    def test_a_folder_that_became_another_one_is_left_alone(self, here: Folder, tmp_path: Path) -> None:
        here.write("a", status="FINISHED")
        run = here.run("a")
        other = tmp_path / "other"
        here.path.rename(other)
        here.path.mkdir()
        with pytest.raises(TrainingMonitorError, match="is no longer in"):
            here.runs.delete(run)
        assert (other / "a.json").exists()


class TestOutput:
    def test_every_byte_comes_back_as_it_is(self, folder: Folder) -> None:
        data = random.Random(5).randbytes(300_000) + b"\n\n"
        log = folder.path / "it's\nthe log"
        log.write_bytes(data)
        folder.write("a", stdout_path=str(log))
        folder.run("a")
        for start, length in ((0, 1), (4095, 2), (0, 300_002), (-300, 300), (-1, 5), (299_990, 99), (300_002, 5)):
            chunk = folder.runs.read_output(str(log), start, length)
            begin = start if start >= 0 else len(data) + start
            assert (chunk.size, chunk.start) == (len(data), begin)
            assert chunk.data == data[begin : begin + min(length, 262_144)]

    def test_the_end_of_five_gibibytes_is_one_round_trip(self, over_ssh: Place) -> None:
        folder = Folder(over_ssh)
        log = folder.path / "log"
        log.write_bytes(b"first\n")
        os.truncate(log, 5 * GIB)
        with log.open("ab") as file:
            file.write(b"\nstep 1\nstep 2\n")
        folder.write("a", stdout_path=str(log))
        folder.run("a")
        folder.transport.count = 0
        pages = OutputPages(lambda start, length: folder.runs.read_output(str(log), start, length))
        pages.open_at_end(2)
        assert pages.lines(2) == ["step 1", "step 2"]
        assert folder.transport.count == 1
        with log.open("ab") as file:
            file.write(b"step 3\n")
        pages.follow()
        assert pages.lines(2) == ["step 2", "step 3"]
        assert folder.transport.count == 2

    def test_a_search_asks_once_for_each_piece_and_stops_between_two(self, over_ssh: Place) -> None:
        folder = Folder(over_ssh)
        log = folder.path / "log"
        log.write_bytes(b"needle\n" + b"".join(b"step %d\n" % number for number in range(100_000)))
        folder.write("a", stdout_path=str(log))
        folder.run("a")
        folder.transport.count, size = 0, log.stat().st_size

        def search() -> OutputSearch:
            read = folder.runs.read_output
            return OutputSearch(
                lambda start, length: read(str(log), start, length), "NEEDLE", size, size, backwards=True
            )

        assert search().run(lambda: None) == (0, len(b"needle\n"))
        assert folder.transport.count <= size // (MAX_READ - BLOCK) + 1
        folder.transport.count = 0
        stopped = search()
        assert stopped.run(stopped.stop) is None and folder.transport.count == 1

    def test_what_is_no_regular_file_is_refused(self, here: Folder) -> None:
        os.mkfifo(here.path / "pipe")
        here.write("a", stdout_path=str(here.path / "pipe"), stderr_path=str(here.path / "gone"))
        here.run("a")
        with pytest.raises(CommandFailed, match="no regular file"):
            here.runs.read_output(str(here.path / "pipe"), 0, 10)
        with pytest.raises(CommandFailed, match="no file"):
            here.runs.read_output(str(here.path / "gone"), 0, 10)
        with pytest.raises(TrainingMonitorError, match="not the output of any run"):
            here.runs.read_output("/etc/passwd", 0, 10)


class TestPlaces:
    def test_the_home_folder_of_a_host_is_named_by_a_tilde(self, sshd: SshServer, over_ssh: Place) -> None:
        home = over_ssh.folder / "home"
        (home / "runs").mkdir(parents=True)
        (home / "runs" / "a.json").write_text('{"status": "FINISHED"}')
        over_ssh.set_environment({"HOME": str(home)})
        [run] = open_runs(f"{sshd.address}/~/runs").look(frozenset()).runs
        assert run.path == str(home / "runs" / "a.json")

    def test_a_host_that_is_down_is_unknown_and_no_empty_folder(self, sshd: SshServer, over_ssh: Place) -> None:
        folder = Folder(over_ssh)
        folder.write("a")
        assert len(folder.runs.look(frozenset()).runs) == 1
        over_ssh.disconnect()
        sshd.stop()
        with pytest.raises(TargetUnreachable):
            folder.runs.look(frozenset())
        sshd.start()
        assert len(folder.runs.look(frozenset()).runs) == 1

    def test_a_pod_is_named_with_its_folder(self, in_pod: Place) -> None:
        folder = Folder(in_pod)
        folder.write("a")
        for where in (f"k8s://default/head:{folder.path}", f"head:{folder.path}"):
            assert [run.name for run in open_runs(where).look(frozenset()).runs] == ["a"]
