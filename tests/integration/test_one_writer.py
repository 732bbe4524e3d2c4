"""One run, one writer: processes of one host or several, of one training or several, that want the same file."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import wait_until
from tests.integration.scripts import BEGIN, Script

UNTIL_END = """
monitor.start_batch()
while not os.path.exists("end"):
    monitor.start_batch()
    time.sleep(.02)
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def hosts() -> tuple[str, str]:
    """Names of two hosts: a process that is given one has it as its own."""
    tried = subprocess.run(["unshare", "--uts", "hostname", "gpu-1"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"hosts of other names need root: nothing here was tested ({tried.stderr.strip()})")
    return "gpu-1", "gpu-2"


def documents(script: Script) -> dict[str, dict[str, Any]]:
    """The progress files that are there, by name."""
    return {path.name: json.loads(path.read_text()) for path in script.file.parent.glob("*.json")}


def left_over(script: Script) -> list[str]:
    return sorted(path.name for path in script.file.parent.iterdir() if path.suffix not in (".json", ".log"))


# ---------------------------------------------------------------- hosts


def test_a_run_of_another_host_keeps_its_file(script: Script, hosts: tuple[str, str]) -> None:
    with script.start(UNTIL_END, host=hosts[0]) as first:
        assert wait_until(lambda: script.has("RUNNING"))
        began = script.read()["start_time"]
        with script.start(UNTIL_END, host=hosts[1]) as second:
            assert wait_until(lambda: len(documents(script)) == 2)
            written = set()
            for _ in range(100):
                metadata = script.read()["metadata"]
                written.add((metadata["pid"], metadata["hostname"]))
                time.sleep(0.02)
            (script.folder / "end").touch()
            told = second.communicate(timeout=60)[1]
        assert first.communicate(timeout=60)[1] == ""
    assert written == {(first.pid, "gpu-1")} and script.read()["start_time"] == began
    assert told.count("Warning") == 1
    assert f"process {first.pid} on gpu-1" in told and "rank=" in told and f"run_{second.pid}.json" in told
    assert [each["status"] for each in documents(script).values()] == ["FINISHED", "FINISHED"]
    assert left_over(script) == []


def test_a_run_that_was_taken_for_dead_makes_room_when_it_wakes_up(script: Script, hosts: tuple[str, str]) -> None:
    with script.start(UNTIL_END, host=hosts[0]) as first:
        assert wait_until(lambda: script.has("RUNNING"))
        first.send_signal(signal.SIGSTOP)
        with script.start(UNTIL_END, host=hosts[1]) as second:
            assert wait_until(lambda: script.read()["metadata"]["pid"] == second.pid, 60)
            first.send_signal(signal.SIGCONT)
            assert wait_until((script.file.parent / f"run_{first.pid}.json").exists)
            assert script.read()["metadata"]["pid"] == second.pid
            (script.folder / "end").touch()
            assert second.communicate(timeout=60)[1] == ""
        assert f"process {second.pid} on gpu-2" in first.communicate(timeout=60)[1]
    assert script.read()["metadata"]["pid"] == second.pid
    assert [each["status"] for each in documents(script).values()] == ["FINISHED", "FINISHED"]
    assert left_over(script) == []


def test_a_run_that_ends_before_it_knows_whose_the_file_is_leaves_it_alone(
    script: Script, hosts: tuple[str, str]
) -> None:
    with script.start("monitor.start_batch(); time.sleep(60)", host=hosts[0]) as first:
        assert wait_until(lambda: script.has("RUNNING"))
        first.kill()
        first.communicate(timeout=60)
    with script.start("monitor.start_batch()", host=hosts[1]) as second:
        assert second.wait(60) == 0
    assert script.read()["metadata"]["pid"] == first.pid
    assert documents(script)[f"run_{second.pid}.json"]["status"] == "FINISHED"


# ---------------------------------------------------------------- processes of one host


def test_of_many_that_begin_at_once_after_a_killed_run_one_takes_its_file(script: Script) -> None:
    script.run("monitor.start_batch(); time.sleep(.3); os.kill(os.getpid(), 9)")
    assert left_over(script) == [".run.json.owner"]
    racers = 8
    start = """
for _ in range(7):
    if os.fork() == 0:
        break
while time.time() < float(os.environ["AT"]):
    pass
"""
    begin = BEGIN.replace("monitor = ", start + "monitor = ")
    script.run("with monitor: time.sleep(1)", begin=begin, AT=str(time.time() + 2))
    assert wait_until(lambda: [each["status"] for each in documents(script).values()] == ["FINISHED"] * racers)
    assert len({each["metadata"]["pid"] for each in documents(script).values()}) == racers
    assert wait_until(lambda: left_over(script) == [])


SPAWNED = """
import json, multiprocessing, os, sys, time
from training_monitor.runs.monitor import TrainingMonitor

def train(rank, seconds, options):
    time.sleep(seconds[rank])
    monitor = TrainingMonitor("progress/run.json", interval=0.02, tee_outputs=True, **options)
    with monitor:
        monitor.start_batch()
        monitor.update_metrics(mine=rank)
        time.sleep(2)
        print(f"rank {rank}", flush=True)
        if options:
            return
        worker = multiprocessing.get_context("spawn").Process(target=load, daemon=True)
        worker.start()
        worker.join()

def load():
    with TrainingMonitor("progress/run.json", interval=0.02):
        time.sleep(.3)

def spawn(method, seconds, options={}):
    context = multiprocessing.get_context(method)
    ranks = [context.Process(target=train, args=(rank, seconds, options)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    print(json.dumps([rank.pid for rank in ranks]))
"""


@pytest.mark.parametrize(("method", "seconds"), [("spawn", [0.9, 0, 0.4]), ("fork", [0, 0, 0])])
def test_processes_that_multiprocessing_started_are_one_run(script: Script, method: str, seconds: list[float]) -> None:
    body = f"if __name__ == '__main__': spawn({method!r}, {seconds})"
    code, out, err = script.run(body, begin=SPAWNED)
    assert (code, err) == (0, "")
    assert list(documents(script)) == ["run.json"] and left_over(script) == []
    document = script.read()
    assert (document["status"], document["metrics"]) == ("FINISHED", {"mine": 0})
    assert (document["attempt"], document["earlier_attempts"]) == (1, [])  # a rank that makes room is none
    assert document["metadata"]["pid"] == json.loads(out.splitlines()[-1])[0]
    assert "rank 0" in (script.file.parent / "run_stdout.log").read_text()


def test_processes_that_say_that_each_has_a_run_have_one_each(script: Script) -> None:
    code, _, err = script.run("if __name__ == '__main__': spawn('fork', [0, 0, 0], {'rank': 0})", begin=SPAWNED)
    assert code == 0 and err.count("Give each run its own file") == 2
    assert [each["status"] for each in documents(script).values()] == ["FINISHED"] * 3


def test_a_parent_with_a_run_keeps_it_from_its_children(script: Script) -> None:
    body = """
    if __name__ == "__main__":
        with TrainingMonitor("progress/run.json") as monitor:
            time.sleep(.5)
            spawn("spawn", [0, 0, 0])
    """
    code, _, err = script.run(body, begin=SPAWNED)
    assert (code, err) == (0, "") and list(documents(script)) == ["run.json"]
    assert script.read()["metrics"] == {} and script.has("FINISHED")


# ---------------------------------------------------------------- one process


def test_a_cell_that_runs_again_replaces_its_own_run(script: Script) -> None:
    code, out, err = script.run(
        """
        begun = sys.exit, sys.excepthook, signal.getsignal(signal.SIGTERM), len(os.listdir("/proc/self/fd"))
        for number in range(3):
            monitor = TrainingMonitor("progress/run.json", interval=0.02, tee_outputs=True)
            monitor.start_epoch(number + 1)
            monitor.start_batch()
            print("cell", number, flush=True)
            if number == 0:
                first = monitor
            time.sleep(.3)
        writers = [each for each in threading.enumerate() if "training_monitor writes" in each.name]
        print("writers", len(writers))
        first.start_batch()
        first.set_failed("the first")
        monitor.set_finished()
        monitor.shutdown()
        now = sys.exit, sys.excepthook, signal.getsignal(signal.SIGTERM), len(os.listdir("/proc/self/fd"))
        print("as before:", now == begun)
        """,
        begin=BEGIN.replace("monitor = TrainingMonitor", "TrainingMonitor"),
    )
    assert code == 0 and out.splitlines() == ["cell 0", "cell 1", "cell 2", "writers 1", "as before: True"]
    assert err.count("Warning") == 1 and "a newer monitor writes" in err
    assert sorted(path.name for path in script.file.parent.iterdir()) == [
        "run.json",
        "run_stderr.log",
        "run_stdout.log",
    ]
    assert (script.read()["status"], script.read()["state"]["epoch"]) == ("FINISHED", 3)
    assert (script.file.parent / "run_stdout.log").read_text() == "cell 0\ncell 1\ncell 2\nwriters 1\n"


def test_a_replaced_run_that_waited_for_a_gpu_writes_nothing_when_it_goes_on(script: Script) -> None:
    code, _, err = script.run(
        """
        goes_on = threading.Event()
        class Tensor:
            device = "cuda:0"
            def item(self):
                goes_on.wait()
                return 1.0
        first = TrainingMonitor("progress/run.json", interval=0.02)
        first.start_epoch(1)
        first.update_metrics(loss=Tensor())
        time.sleep(.3)
        second = TrainingMonitor("progress/run.json", interval=0.02)
        second.start_epoch(2)
        second.start_batch()
        time.sleep(.3)
        goes_on.set()
        time.sleep(.5)
        """,
        begin=BEGIN.replace("monitor = TrainingMonitor", "TrainingMonitor"),
    )
    assert (code, err) == (0, "") and list(documents(script)) == ["run.json"]
    assert (script.read()["status"], script.read()["state"]["epoch"]) == ("FINISHED", 2)


def test_a_cell_that_runs_again_after_its_run_ended_copies_its_output_once(script: Script) -> None:
    script.run(
        """
        for number in range(3):
            with TrainingMonitor("progress/run.json", interval=0.02, tee_outputs=True) as monitor:
                print("cell", number, flush=True)
        """,
        begin=BEGIN.replace("monitor = TrainingMonitor", "TrainingMonitor"),
    )
    assert (script.file.parent / "run_stdout.log").read_text() == "cell 0\ncell 1\ncell 2\n"


# ---------------------------------------------------------------- what killed writers leave

KILLED_AS_IT_WRITES = """
wait = time.monotonic() + 30
monitor.start_batch()
while not os.path.exists("progress/run.json") and time.monotonic() < wait:
    time.sleep(.02)
os.replace = lambda *_: os.kill(os.getpid(), 9)
monitor.start_batch()
time.sleep(30)
"""


def test_the_next_run_removes_what_a_killed_one_had_not_put_in_place(script: Script) -> None:
    assert script.run(KILLED_AS_IT_WRITES)[0] == -9
    assert len(left_over(script)) == 2, "a temporary file beside the record"
    with script.start(UNTIL_END):
        assert wait_until(lambda: left_over(script) == [".run.json.owner"])
        (script.folder / "end").touch()
    assert left_over(script) == []


def test_unfinished_files_of_suspended_or_remote_writers_are_kept(script: Script, hosts: tuple[str, str]) -> None:
    suspended = "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)\nmonitor.start_batch(); time.sleep(60)"
    elsewhere = Script(script.folder / "elsewhere")
    for folder in (script.file.parent, elsewhere.folder):
        folder.mkdir()
    elsewhere.file.parent.symlink_to(script.file.parent)

    def being_written() -> set[str]:
        return {name for name in left_over(script) if name.endswith(".tmp")}

    with (
        script.start(suspended) as here,
        elsewhere.start(suspended, begin=BEGIN.replace("run.json", "other.json"), host=hosts[0]) as there,
    ):
        assert wait_until(lambda: len(being_written()) == 2)
        both = being_written()
        assert script.run("monitor.start_batch()", begin=BEGIN.replace("run.json", "new.json"))[0] == 0
        assert being_written() == both
        here.kill()
        there.kill()
