"""Trainings that real processes run, found on every kind of target by nothing but its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.commands import PYTHON
from tests.integration.conftest import Place, kill, kill_sessions, wait_until
from training_monitor.jobs.process_jobs import start_process_job, stop_question
from training_monitor.look.evidence import evidence_question, pids_of
from training_monitor.look.find_trainings import FoundFile, FoundTraining, files_question, find_question
from training_monitor.targets.asking import ask

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
TOOLS = (
    *("sh", "head", "cat", "sleep", "sed", "grep", "ls", "stat", "date", "sort", "find", "cksum", "tr"),
    *("setsid", "env"),
)
KINDS = ("local",)  # of targets: what a shell does is the same on all
SECRET = "hunter2-of-the-environment"
# Two ranks, of which the first writes a checkpoint and has two data workers.
TRAIN = """
import os, sys, time
open("pid", "w").write(str(os.getpid()))
if sys.argv[-1] == "rank":
    os.makedirs("out/checkpoint-5", exist_ok=True)
    file = open("out/checkpoint-5/model.safetensors", "wb")
    if not os.fork() or not os.fork():
        time.sleep(600)
else:
    import subprocess
    for rank in "01":
        environment = dict(os.environ, RANK=rank, LOCAL_RANK=rank)
        subprocess.Popen([sys.executable, "train.py", "--save_dir", "./more", "rank"], env=environment)
print("step 1", flush=True)
time.sleep(600)
"""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "it's a\tfolder"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture
def start(work: Path) -> Iterator[Start]:
    """Starts a program in a session of its own, with its output in a file; ends all of it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, output: str = "run 1.log", **environment: str) -> subprocess.Popen[bytes]:
        with (work / output).open("ab") as log:
            variables = {**os.environ, "HF_TOKEN": SECRET, **environment}
            process = subprocess.Popen(
                words,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=variables,
            )
        started.append(process)
        return process

    yield begin
    kill_sessions(started)


def find(place: Place, folder: Path) -> list[FoundTraining]:
    """The trainings in a folder: others run their tests on this machine too."""
    [answer] = ask(place.address, find_question())
    found = answer.get()
    assert found is not None
    return [each for each in found.trainings if each.cwd and each.cwd.startswith(str(folder))]


def find_one(place: Place, folder: Path, is_ready: Callable[[FoundTraining], object]) -> FoundTraining:
    found: list[FoundTraining] = []

    def look() -> bool:
        found[:] = find(place, folder)
        return len(found) == 1 and bool(is_ready(found[0]))

    assert wait_until(look), found
    return found[0]


def test_a_tree_of_ranks_is_one_training_with_its_log_and_checkpoints(target: Place, start: Start, work: Path) -> None:
    process = start(sys.executable, "train.py", "--output_dir", "out dir")
    found = find_one(target, work, lambda each: len(each.pids) >= 5 and len(each.checkpoint_folders) == 3)
    assert found.pid == process.pid and found.process.startswith(f"{process.pid} {found.start} ")
    assert found.parent == os.getpid() and found.cwd == str(work)
    assert found.command == f"{sys.executable} train.py --output_dir out dir"
    assert found.logs == (str(work / "run 1.log"),)
    assert found.checkpoint_folders == (str(work / "out"), str(work / "out dir"), str(work / "more"))
    assert (found.rank, found.ray_job, found.process_job, found.has_gpu) == (0, None, None, False)
    assert found.age is not None and found.age < 600 and found.hints == ()


def test_nothing_of_the_environment_but_known_names_leaves_the_target(local: Place, start: Start, work: Path) -> None:
    start(sys.executable, "train.py", RANK="7 $(reboot)", SLURM_PROCID="3")
    assert find_one(local, work, lambda each: len(each.pids) >= 3).rank == 0
    question = find_question()
    [answer] = ask(local.address, type(question)("raw", question.script, lambda reply: reply.output, 15.0))
    assert SECRET not in (answer.get() or "") and "train.py" in (answer.get() or "")


def test_hostile_names_are_only_names(target: Place, start: Start, work: Path) -> None:
    folder = work / "a\nproc 1 S 0 1 1 1 1 1 1 1 x $(reboot) 'q'"
    folder.mkdir()
    script = folder / "train\n==> x <==.py"
    script.write_text("import time; f = open('b\\nc -> d.log', 'w'); time.sleep(600)")
    process = start(sys.executable, str(script), "--name", "\x1f\n'\"")
    other = start("env", "-C", str(folder), sys.executable, str(script), "--api-key=abcdefgh", output="o.log")
    found: list[FoundTraining] = []

    def look() -> bool:
        found[:] = find(target, work)
        return {each.pid for each in found} == {process.pid, other.pid}

    assert wait_until(look), found
    by_pid = {each.pid: each for each in found}
    assert by_pid[other.pid].cwd == str(folder) and "abcdefgh" not in by_pid[other.pid].command
    assert by_pid[process.pid].cwd == str(work)
    assert by_pid[other.pid].logs[0] == str(work / "o.log")
    assert wait_until(
        lambda: str(folder / "b\nc -> d.log") in {log for each in find(target, work) for log in each.logs}
    )


def test_a_log_that_was_deleted_is_read_through_its_process(target: Place, start: Start, work: Path) -> None:
    process = start(sys.executable, "train.py", "rank")
    assert wait_until(lambda: "step" in (work / "run 1.log").read_text())
    (work / "run 1.log").unlink()
    found = find_one(target, work, lambda each: each.logs)
    assert found.logs == (f"/proc/{process.pid}/fd/1",)


def test_a_training_that_prints_into_a_pipe_says_so(target: Place, start: Start, work: Path) -> None:
    start("sh", "-c", f"{PYTHON} train.py rank 2>&1 | sleep 600", output="shell.log")
    found = find_one(target, work, lambda each: each.hints)
    assert found.logs == () and "pipe" in found.hints[0]


def test_ranks_started_side_by_side_are_one_training(target: Place, start: Start, work: Path) -> None:
    ranks = " ".join(f"PMI_RANK={rank} {PYTHON} train.py rank &" for rank in (3, 4))
    start("sh", "-c", f"{ranks} wait")
    found = find_one(target, work, lambda each: len(each.pids) == 6)
    assert found.rank == 3


def test_two_trainings_are_two(target: Place, start: Start, work: Path) -> None:
    first = start(sys.executable, "train.py", "rank", output="1.log")
    second = start(sys.executable, "train.py", "rank", output="2.log")
    assert wait_until(lambda: [each.pid for each in find(target, work) if each.logs] == [first.pid, second.pid])
    kill(first.pid)
    first.wait()
    assert wait_until(lambda: second.pid in [each.pid for each in find(target, work)])


def test_a_process_job_and_a_ray_job_are_known_by_their_names(target: Place, start: Start, work: Path) -> None:
    job = start_process_job(target.address, f"exec {PYTHON} train.py rank", "found", working_dir=str(work))
    try:
        found = find_one(target, work, lambda each: each.logs)
        assert found.process_job == job and found.logs == (str(target.jobs / "found" / "log"),)
    finally:
        ask(target.address, stop_question(job, "test", 1.0))
    said = json.dumps({"runtime_env": {"env_vars": {"K": SECRET}}, "metadata": {"job_submission_id": "raysubmit_1"}})
    start("sh", "-c", f"{PYTHON} -c 'import time; time.sleep(600)'; :", RAY_JOB_CONFIG_JSON_ENV_VAR=said)
    found = find_one(target, work, lambda each: each.ray_job)
    assert found.ray_job == "raysubmit_1" and SECRET not in repr(found)


def test_shells_editors_and_this_package_are_no_trainings(target: Place, start: Start, work: Path) -> None:
    (work / "train.sh").write_text("sleep 600")
    start("sh", "train.sh")
    start("tail", "-f", "train.py")
    start(sys.executable, "-c", "import time; time.sleep(600)")
    assert find(target, work) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_usual_shells_will_do(local: Place, start: Start, work: Path, shell: str) -> None:
    process = start(sys.executable, "train.py", "--output_dir", "out dir")
    folder = local.folder / "bin"
    folder.mkdir()
    for name in TOOLS:
        program = shutil.which(shell if name == "sh" or shell == "busybox" else name, path="/usr/bin:/bin")
        assert program, name
        (folder / name).symlink_to(program)
    local.set_environment({"PATH": str(folder), "HOME": str(work)})
    found = find_one(local, work.parent, lambda each: len(each.pids) >= 5 and len(each.checkpoint_folders) == 3)
    assert (found.pid, found.rank) == (process.pid, 0) and found.logs[0].endswith("/run 1.log")
    assert "run 1.log" in [Path(file.path).name for file in files(local, work.parent)]


def files(place: Place, folder: Path) -> list[FoundFile]:
    [answer] = ask(place.address, files_question())
    return [file for file in answer.get() or () if file.path.startswith(str(folder))]


def test_logs_are_found_without_a_process(target: Place, work: Path) -> None:
    target.set_environment({"HOME": str(work)})
    runs = work / "runs"
    (runs / "deep" / "er" / "still").mkdir(parents=True)
    for name in ("old.log", "new.log", "empty.log", "notes.md", "slurm-1.out", ".hidden.log"):
        (runs / name).write_text("" if name == "empty.log" else "step 1")
    (runs / "deep" / "er" / "still" / "deep.log").write_text("x")
    now = time.time()
    os.utime(runs / "old.log", (now - 90000 * 2, now - 90000 * 2))
    os.utime(runs / "slurm-1.out", (now - 1000, now - 1000))
    found = files(target, work)
    assert {Path(file.path).name for file in found} == {"new.log", "slurm-1.out"}
    assert Path(found[-1].path).name == "slurm-1.out" and 900 < found[-1].age < 1200 and found[-1].size == 6


def test_logs_beside_a_process_that_could_be_a_training_are_found(local: Place, start: Start, work: Path) -> None:
    local.set_environment({"HOME": str(local.folder)})
    assert files(local, work) == []
    start(sys.executable, "train.py", "rank")
    assert wait_until(lambda: [Path(file.path).name for file in files(local, work)] == ["run 1.log"])


def test_processes_that_come_and_go_meanwhile_do_no_harm(target: Place, start: Start, work: Path) -> None:
    process = start(sys.executable, "train.py", "rank")
    for _ in range(2):
        start("sh", "-c", "while :; do env python_train_nothing; sleep 0.01; done", output="/dev/null")
    for _ in range(3):
        trainings, evidence = ask(target.address, find_question(), evidence_question(pids_of(process.pid), 0.05))
        assert process.pid in {each.pid for each in trainings.get().trainings}
        found = evidence.get()
        assert found and found.process and found.process.startswith(f"{process.pid} ")


def test_processes_beyond_those_that_a_look_takes_are_counted(
    target: Place, start: Start, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        start(sys.executable, "train.py", "rank", output=f"{number}.log")
    assert wait_until(lambda: len(find(target, work)) == 3)
    monkeypatch.setattr("training_monitor.look.find_trainings.MAX_PROCESSES", 1)
    [answer] = ask(target.address, find_question())
    found = answer.get()
    assert found and len(found.trainings) <= 1 and found.unlisted >= 2


def test_what_stands_behind_long_variables_and_arguments_counts_too(local: Place, start: Start, work: Path) -> None:
    start(sys.executable, "train.py", f"--note={'x' * 5000}", "--output_dir", "far", "rank", BIG="x" * 99_000, RANK="7")
    found = find_one(local, work, lambda each: each.rank is not None and len(each.checkpoint_folders) == 2)
    assert found.rank == 7 and str(work / "far") in found.checkpoint_folders and not found.hints


def test_the_newest_log_is_found_among_many_newer_files_that_are_none(local: Place, work: Path) -> None:
    local.set_environment({"HOME": str(work)})
    (work / "train.log").write_text("step 1")
    os.utime(work / "train.log", (time.time() - 60, time.time() - 60))
    for number in range(45):
        (work / f"run {number}").mkdir()
        (work / f"run {number}" / "progress.json").write_text("{}")
    assert [Path(file.path).name for file in files(local, work)] == ["train.log"]
