"""What real processes do, on every kind of target: what they compute and write, and whose they are."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.conftest import Place, kill, wait_until
from training_monitor.jobs.process_jobs import members_script, start_process_job, stop_question
from training_monitor.jobs.ray_jobs import pids_of_ray_job
from training_monitor.look.evidence import (
    Evidence,
    evidence_question,
    file_age_question,
    pids_of,
    pids_of_log,
    pids_of_pid_file,
)
from training_monitor.targets.asking import ask, quote_path

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name, path="/usr/bin:/bin")]
KINDS = ("local",)  # of targets: what a shell does is the same on all
TOOLS = ("sh", "head", "cat", "sleep", "sed", "grep", "ls", "stat", "date", "sort", "find", "readlink")
# One core is busy, a MB is written ten times a second, and a child compiles.
BUSY = """
import os, subprocess, sys, threading, time
child = subprocess.Popen([os.path.abspath("ptxas"), "600"])
def write():
    with open("weights.bin", "wb") as file:
        while True:
            file.seek(0); file.write(b"x" * 1000000); file.flush(); time.sleep(0.1)
threading.Thread(target=write, daemon=True).start()
print("ready", flush=True)
while True: pass
"""


def tools_of(shell: str, folder: Path) -> str:
    """A folder with nothing but these tools, all of busybox where that is the shell."""
    folder.mkdir()
    for name in TOOLS:
        program = shutil.which(shell if name == "sh" or shell == "busybox" else name, path="/usr/bin:/bin")
        assert program, name
        (folder / name).symlink_to(program)
    return str(folder)


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs in a folder with a line end, a space and a quote in its name; ends their sessions."""
    folder = tmp_path / "it's\na folder"
    folder.mkdir()
    shutil.copy(shutil.which("sleep") or "/bin/sleep", folder / "ptxas")
    started: list[subprocess.Popen[bytes]] = []

    def begin(script: str, *, shell: bool = False, **environment: str) -> subprocess.Popen[bytes]:
        words = ["sh", "-c", script] if shell else [sys.executable, "-c", script]
        with (folder / "log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    words,
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env=os.environ | environment,
                )
            )
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def look(place: Place, roots: str, seconds: float = 0.0) -> Evidence:
    [answer] = ask(place.address, evidence_question(roots, seconds))
    found = answer.get()
    assert found is not None
    return found


def test_a_busy_tree_shows_what_it_computes_writes_and_compiles(target: Place, start: Start, tmp_path: Path) -> None:
    process = start(BUSY)
    log = next(tmp_path.glob("it*/log"))
    assert wait_until(lambda: b"ready" in log.read_bytes() and (log.parent / "weights.bin").exists())
    found = look(target, pids_of(process.pid), 0.5)
    assert found.process and found.process.startswith(f"{process.pid} ")
    assert (found.processes, found.compilers, found.blocked) == (2, 1, 0)
    assert found.cpu_cores and 0.1 < found.cpu_cores < 2 and found.write_rate and found.write_rate > 1e5
    assert found.awake_seconds and found.runtime is not None and found.written_bytes and found.boot
    assert found.memory_bytes and 1e6 < found.memory_bytes < 1e9
    again = look(target, pids_of(process.pid))
    assert again.cpu_seconds is not None and found.cpu_seconds is not None and again.cpu_seconds > found.cpu_seconds
    assert again.written_bytes and again.written_bytes > found.written_bytes
    assert (again.cpu_cores, again.write_rate, again.process) == (None, None, found.process)


def test_time_that_a_quota_takes_counts_as_waiting_for_a_processor(local: Place, start: Start) -> None:
    """So that who may use a tenth of a processor is not idle for the other nine."""
    group = Path("/sys/fs/cgroup/cpu" if Path("/sys/fs/cgroup/cpu").is_dir() else "/sys/fs/cgroup") / f"tm{os.getpid()}"
    quota = {"cpu.cfs_quota_us": "10000"} if group.parent.name == "cpu" else {"cpu.max": "10000 100000"}
    process = start("while True: pass")
    try:
        group.mkdir()
        for name, value in quota.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(process.pid))
    except OSError as error:
        pytest.skip(f"no quota may be set here ({error}): nothing was tested")
    try:
        time.sleep(0.5)
        found = look(local, pids_of(process.pid), 3.0)
        assert found.cpu_cores is not None and found.delay_cores is not None
        assert found.cpu_cores < 0.3 and found.cpu_cores + found.delay_cores > 0.5, found
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_process_that_is_gone_has_no_evidence(target: Place, start: Start) -> None:
    process = start("pass")
    process.wait()
    found = look(target, pids_of(process.pid), 0.5)
    assert (found.processes, found.pids, found.cpu_seconds, found.process) == (0, (), None, None)
    assert found.boot and found.awake_seconds


def test_all_processes_of_a_job_are_its_tree(target: Place) -> None:
    job = start_process_job(target.address, "sleep 600 & setsid sleep 601 & wait", "tree")
    try:
        assert wait_until(lambda: look(target, members_script(job)).processes == 4)
    finally:
        ask(target.address, stop_question(job, "test", 1.0))
    assert look(target, members_script(job)).processes == 0


def test_the_driver_of_a_ray_job_is_known_by_its_environment(target: Place, start: Start) -> None:
    said = json.dumps({"runtime_env": {}, "metadata": {"job_submission_id": "raysubmit_1 x", "job_name": "n"}})
    process = start("sleep 600 & wait", shell=True, RAY_JOB_CONFIG_JSON_ENV_VAR=said)
    assert wait_until(lambda: look(target, pids_of_ray_job("raysubmit_1 x")).processes == 2)
    assert process.pid in look(target, pids_of_ray_job("raysubmit_1 x")).pids
    assert look(target, pids_of_ray_job("raysubmit_1")).processes == 0


def test_who_writes_a_log_is_found_also_behind_tee(target: Place, start: Start, tmp_path: Path) -> None:
    process = start("sleep 600", shell=True)
    log = next(tmp_path.glob("it*/log"))
    assert process.pid in look(target, pids_of_log(quote_path(str(log)))).pids
    kill(process.pid)
    process.wait()
    file = tmp_path / "teed.log"
    piped = start(f"{{ echo $$; exec sleep 602; }} | cat | tee {shlex.quote(str(file))} >/dev/null", shell=True)
    assert wait_until(lambda: file.exists() and file.read_text())
    found = look(target, pids_of_log(quote_path(str(file))))
    assert found.processes == 3 and piped.pid not in found.pids
    other = start(f"exec 7>{shlex.quote(str(tmp_path / 'own.log'))}; sleep 603; :", shell=True)
    assert wait_until(lambda: (tmp_path / "own.log").exists())
    (tmp_path / "own.lo").touch()
    assert other.pid in look(target, pids_of_log(quote_path(str(tmp_path / "own.log")))).pids
    for name in ("none.log", "own.lo"):
        assert look(target, pids_of_log(quote_path(str(tmp_path / name)))).processes == 0


def test_a_pid_file_names_a_root(target: Place, start: Start, tmp_path: Path) -> None:
    process = start("exec sleep 600", shell=True)
    (tmp_path / "pid").write_text(f"{process.pid}\n")
    assert look(target, pids_of_pid_file(str(tmp_path / "pid"))).processes == 1
    (tmp_path / "pid").write_text("$(reboot) 1\n")
    assert look(target, pids_of_pid_file(str(tmp_path / "pid"))).processes == 0
    assert look(target, pids_of_pid_file(str(tmp_path / "none"))).processes == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_the_usual_shells_will_do(local: Place, start: Start, tmp_path: Path, shell: str) -> None:
    process = start("sleep 600", shell=True)
    log = quote_path(str(next(tmp_path.glob("it*/log"))))
    local.set_environment({"PATH": tools_of(shell, local.folder / "bin")})
    for roots in (pids_of(process.pid), pids_of_log(log)):
        found = look(local, roots, 0.1)
        assert found.process and found.process.startswith(f"{process.pid} ")
        assert found.cpu_cores is not None and found.written_bytes is not None and found.awake_seconds
    (tmp_path / "model.pt").write_bytes(b"x")
    assert ages(local, tmp_path)[0] is not None


def ages(place: Place, *folders: Path) -> list[float | None]:
    answers = ask(place.address, *(file_age_question(quote_path(str(folder))) for folder in folders))
    return [answer.get() for answer in answers]


def test_the_newest_file_of_a_checkpoint_folder_has_an_age(target: Place, tmp_path: Path) -> None:
    out = tmp_path / "out\nput"
    for step in range(30):
        folder = out / f"checkpoint-{step}" / "global step"
        folder.mkdir(parents=True)
        file = folder / "mp_rank_00.pt"
        file.write_bytes(b"x")
        now = file.stat().st_mtime
        for path in (file, folder, folder.parent):
            os.utime(path, (now - 1000 + step, now - 1000 + step))
    (out / "trainer.log").write_text("step 1")
    empty = tmp_path / "empty"
    empty.mkdir()
    found = ages(target, out, empty, tmp_path / "none")
    assert found[0] is not None and 960 <= found[0] <= 1100 and found[1:] == [None, None]
    (tmp_path / "link").symlink_to(out)
    (out / "model.safetensors").write_bytes(b"x")
    [age] = ages(target, tmp_path / "link")
    assert age is not None and age < 60


def test_a_worker_of_a_ray_job_belongs_to_it_and_does_not_stand_for_it(
    target: Place, start: Start, tmp_path: Path
) -> None:
    logs = tmp_path / "session_latest" / "logs"
    logs.mkdir(parents=True)
    begin = f"cd {shlex.quote(str(logs))}; exec"
    worker = start(f"{begin} >worker-ab-ffffffff-$$.out; echo :job_id:02000000; sleep 600; :", shell=True)
    other = start(f"{begin} >worker-ab-ffffffff-$$.out; echo :job_id:03000000; sleep 600; :", shell=True)
    said = json.dumps({"metadata": {"job_submission_id": "raysubmit_2"}})
    driver = start(
        f"{begin} 7>python-core-driver-02000000ffff_$$.log; sleep 600; :", shell=True, RAY_JOB_CONFIG_JSON_ENV_VAR=said
    )
    roots = pids_of_ray_job("raysubmit_2")
    assert wait_until(lambda: look(target, roots).processes == 4)
    found = look(target, roots)
    assert {driver.pid, worker.pid} < set(found.pids) and other.pid not in found.pids
    assert found.process and found.process.startswith(f"{driver.pid} ")


HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({}, 0)  # _exit(2) of the main thread alone
"""


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="the number of the system call")
def test_a_process_whose_main_thread_has_ended_runs(target: Place, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEADLESS.format({"x86_64": 60, "aarch64": 93}[os.uname().machine]))
    job = start_process_job(target.address, [sys.executable, f"{tmp_path}/train.py"], "headless")
    try:
        assert wait_until(lambda: any(map(is_headless, look(target, members_script(job)).pids)))
        [pid] = filter(is_headless, look(target, members_script(job)).pids)
        assert look(target, pids_of(pid)).pids == (pid,)
    finally:
        ask(target.address, stop_question(job, "test", 1.0))
    assert look(target, members_script(job)).processes == 0


def is_headless(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
