"""A script's own progress file, by real processes that end in every way, and many of them beside one another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import wait_until
from tests.integration.scripts import BEGIN, ROOT, Script
from tests.integration.test_run_endings import run_cases
from training_monitor.runs.progress_file import parse_progress_file
from training_monitor.runs.values import FINISHED, RUNNING, Run
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import is_alive

SECONDS = float(os.environ.get("TRAINING_MONITOR_STRESS_SECONDS", "1"))


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


# ---------------------------------------------------------------- every end


def test_no_thread_executes_text(script: Script) -> None:
    """Python ends an interrupted script with exit code 1 if text was executed since, as `namedtuple` does."""
    watch = """
    import sys, threading
    def hook(event, values):
        if event == "compile" and values[1] == "<string>" and threading.current_thread() is not threading.main_thread():
            print(threading.current_thread().name, values[0])
    sys.addaudithook(hook)
    """
    begin = "\n".join(line.removeprefix("    ") for line in watch.splitlines()) + BEGIN
    code, out, err = script.run("monitor.start_batch(); time.sleep(1.5)", begin=begin)
    assert (code, out) == (0, ""), err


TERMINATED = "try: monitor.start_batch(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)"
HANDLED = "signal.signal(signal.SIGTERM, lambda *signalled: None)"
ENDS = (
    ("monitor.start_batch(); sys.exit(0)", 0, "FINISHED", None),
    ("monitor.start_batch(); sys.exit('no data')", 1, "FAILED", "no data"),
    ("monitor.start_batch(); exit(3)", 3, "FAILED", None),
    ("monitor.start_batch(); quit()", 0, "FINISHED", None),
    ("with monitor: raise SystemExit(5)", 5, "FAILED", None),
    ("with monitor: raise GeneratorExit", 1, "CANCELED", "GeneratorExit"),
    ("monitor.start_batch(); raise KeyboardInterrupt", 130, "CANCELED", "KeyboardInterrupt"),
    ("monitor.set_failed('mine'); sys.exit(0)", 0, "FAILED", "mine"),
    ("monitor.start_batch(); monitor.set_finished(); 1 / 0", 1, "FINISHED", None),
    ("try: monitor.start_batch(); 1 / 0\nexcept Exception: sys.exit(3)", 3, "FAILED",
     "ZeroDivisionError: division by zero"),
    ("monitor.start_batch(); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 130, "CANCELED", "SIGINT"),
    # an exit that was caught, or of another thread, is no end
    ("monitor.start_batch()\ntry: sys.exit(3)\nexcept SystemExit: monitor.start_batch()", 0, "FINISHED", None),
    ("monitor.start_batch(); one = threading.Thread(target=sys.exit, args=(3,)); one.start(); one.join()", 0,
     "FINISHED", None),
    # what a script says while a signal ends it does not hide the signal
    (f"{TERMINATED}\nfinally: monitor.set_finished()", 143, "CANCELED", "SIGTERM"),
    (f"{TERMINATED}\nexcept BaseException as error: monitor.set_failed(error); raise", 143, "CANCELED", "SIGTERM"),
    (f"{TERMINATED}\nexcept SystemExit: monitor.set_failed('no room for a checkpoint')", 0, "CANCELED",
     "SIGTERM, then no room for a checkpoint"),
    (f"{TERMINATED}\nexcept SystemExit: pass\nmonitor.set_finished()", 0, "FINISHED", "SIGTERM was received"),
    # a signal that the script handles cancels nothing if the training comes to its end, and is told with an error
    (f"{HANDLED}\nfor epoch in (1, 2):\n  monitor.start_epoch(epoch, 5, 2)\n  for batch in range(5):\n"
     "    monitor.start_batch()\n    if batch == 3: os.kill(os.getpid(), signal.SIGTERM)", 0, "FINISHED",
     "SIGTERM was received"),
    (f"{HANDLED}\nmonitor.start_batch(); os.kill(os.getpid(), signal.SIGTERM); raise ValueError('broken')", 1,
     "CANCELED", "SIGTERM, then ValueError: broken"),
)  # fmt: skip


def test_the_file_says_how_the_script_ended(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Of the ways that test_run_endings.py does not have."""
    bodies = ["monitor = new()\n" + body for body, *_ in ENDS]
    for (body, code, status, message), case in zip(ENDS, run_cases(tmp_path, [("", body) for body in bodies])):
        with subtests.test(body=body):
            assert case.code in (code, -signal.SIGINT if code == 130 else code), case.err
            document, _ = case.read()
            assert (document["status"], document["error_message"]) == (status, message)
            exits = ("sys.exit", "exit", "quit", "SystemExit")
            is_by_exit = (
                any(f" {each}(" in body for each in exits) and message != "mine" and "except SystemExit" not in body
            )
            if "SIGTERM" not in body:
                assert document["exit_code"] == (code if is_by_exit else None)
            metadata = document["metadata"]
            who = Identity(*(metadata[key] for key in ("pid", "start_ticks", "hostname", "boot_id", "pid_namespace")))
            assert is_alive(who) is False


# By what each shows: the script, its exit code, what it prints, and what its file says in the end.
BESIDE: dict[str, tuple[str, int, str, str, str | None]] = {
    "exit and quit are as they were once a run has ended": ("""
second = TrainingMonitor("progress/second.json")
monitor.start_batch()
second.start_batch()
monitor.set_finished()
try:
    exit(3)
except SystemExit as error:
    print(error.code)
second.set_finished()
monitor.shutdown()
print(repr(exit).partition(" or")[0])
quit("no data")""", 1, "3\nUse exit()\n", "FINISHED", None),
    "a SIGTERM runs the finally blocks": ("""
try:
    monitor.start_batch()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
finally:
    print("saved")""", 143, "saved\n", "CANCELED", "SIGTERM"),
    "a handler of the script goes on as before": ("""
signal.signal(signal.SIGTERM, lambda *signalled: print("mine"))
monitor.start_batch()
os.kill(os.getpid(), signal.SIGTERM)
print("went on")""", 0, "mine\nwent on\n", "CANCELED", "SIGTERM"),
    "an ignored signal stays ignored, and handlers are as they were": ("""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
before = signal.getsignal(signal.SIGINT)
monitor.start_batch()
os.kill(os.getpid(), signal.SIGTERM)
monitor.set_finished()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, signal.getsignal(signal.SIGINT) is before)""",
        0, "True True\n", "FINISHED", None),
    "a signal reaches the second monitor when the first one has ended": ("""
second = TrainingMonitor("progress/second.json")
monitor.start_batch()
second.start_batch()
monitor.set_finished()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
finally:
    second.shutdown()
    said = json.load(open("progress/second.json"))
    print(said["status"], said["error_message"])""", 143, "CANCELED SIGTERM\n", "FINISHED", None),
    "a GPU that hangs holds up neither the end nor a SIGTERM": ("""
class Tensor:
    device = "cuda:0"
    def item(self):
        print("converted", flush=True)
        time.sleep(3600)
monitor.start_batch()
monitor.update_metrics(loss=Tensor())
time.sleep(.3)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)""", 143, "converted\n", "CANCELED", "SIGTERM"),
    "a monitor made in another thread leaves signals alone": ("""
thread = threading.Thread(target=monitor.start_batch)
thread.start()
thread.join()
time.sleep(.3)
os.kill(os.getpid(), signal.SIGTERM)""", -signal.SIGTERM, "", "RUNNING", None),
    "a forked child that ends first ends nothing": ("""
monitor.start_epoch(1, 10)
monitor.start_batch()
child = os.fork()
if child == 0:
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
    monitor.start_batch()
    monitor.start_epoch(7)
    monitor.set_failed("the child")
    sys.exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
time.sleep(.2)
monitor.start_batch()""", 0, "True\n9\n", "FINISHED", "ended at batch 2 of 10"),
    "a last status that cannot be written is tried again at exit": ("""
open("progress", "w").close()
with monitor:
    monitor.start_batch()
os.unlink("progress")""", 0, "", "FINISHED", None),
}  # fmt: skip
WORK = """
def work(item):
    monitor, number = item
    monitor.start_batch()
    monitor.set_failed("a worker")
    return number
"""
WORKERS = """
monitor = new()
monitor.start_epoch(1)
with context.Pool(2) as pool:
    assert pool.map(work, [(monitor, number) for number in range(4)]) == [0, 1, 2, 3]
monitor.start_batch()
"""
FULL = """
with TrainingMonitor("/proc/self/progress/run.json", interval=0.02) as monitor:
    monitor.start_batch()
print("trained")
"""
ASKED_BEFORE = """
os.mkdir("progress")
with open("progress/control_run.json", "w") as file:
    file.write('{"steps": 6}')
os.utime(file.name, (1, 1))
monitor = new()
monitor.track_variables({"steps": 5})
monitor.start_batch()
time.sleep(1)
monitor.start_batch()
"""


def test_what_goes_on_beside_the_monitor(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases = [("", "monitor = new()" + body) for body, *_ in BESIDE.values()]
    pools = [(method, WORKERS) for method in ("fork", "spawn", "forkserver")]
    found = run_cases(tmp_path, [*cases, *pools, ("", FULL), ("", ASKED_BEFORE)], WORK)
    for (name, (_, code, out, status, message)), ended in zip(BESIDE.items(), found):
        with subtests.test(name):
            assert (ended.code, ended.out) == (code, out), ended.err
            assert ended.read()[1][:2] == (status, message)
            assert ended.err.count("cannot be written") == ("cannot be written" in name), ended.err
            assert ended.err == "" or "GPU" not in name, ended.err
            if "forked" in name:
                assert (ended.read()[0]["state"]["step"], ended.read()[0]["state"]["epoch"]) == (2, 1)
    *pooled, full, asked = found[len(BESIDE) :]
    for ended in pooled:
        with subtests.test("worker processes end nothing"):
            assert ended.code == 0 and ended.read()[1] == ("FINISHED", None, 1), ended.err
            assert os.listdir(ended.folder / "progress") == ["run.json"]
    with subtests.test("a disk that is full for ever does not hinder the training"):
        assert (full.code, full.out) == (0, "trained\n") and full.err.count("cannot be written") == 1
    with subtests.test("edits that an earlier run was asked are not applied"):
        variable = asked.read()[0]["variables"]["steps"]
        assert (variable["value"], variable["edit"]) == (5, "6") and "earlier" in variable["error"]


def test_threads_that_go_on_while_it_ends_change_nothing(script: Script) -> None:
    code, _, err = script.run("""
        def step():
            while True:
                monitor.start_batch()
                monitor.update_metrics(loss=1.0)
        for _ in range(3):
            threading.Thread(target=step, daemon=True).start()
        time.sleep(.3)
        sys.exit(4)
    """)
    assert code == 4 and "Traceback" not in err
    assert script.read()["status"] in ("FAILED", "FINISHED")  # whether the exit was caught cannot be told here


def test_a_second_sigterm_kills_at_once(script: Script) -> None:
    process = script.start("""
        try:
            monitor.start_batch()
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            print("stuck", flush=True)
            time.sleep(60)
    """)
    with process:
        assert process.stdout and process.stdout.readline() == "stuck\n"
        assert wait_until(script.file.exists)
        assert wait_until(lambda: "SIGTERM" in str(script.read()["error_message"]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    assert script.read()["status"] == "RUNNING"  # it says so no more than that SIGTERM came: a reader sees it gone


def test_a_script_that_fails_before_its_prompt_has_failed(script: Script) -> None:
    (script.folder / "train.py").write_text(BEGIN + "monitor.start_batch()\n1 / 0\n")
    for typed, status in (("nonsense\n", "FAILED"), ("monitor.start_batch()\n", "FINISHED")):
        subprocess.run(
            [sys.executable, "-i", "train.py"],
            cwd=script.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert script.has(status)


def test_nothing_is_left_open_at_the_end(script: Script) -> None:
    (script.folder / "train.py").write_text(TEE + "monitor.start_batch()\ntime.sleep(.2)\n")
    argv = [sys.executable, "-X", "dev", "-W", "error", "train.py"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(argv, cwd=script.folder, env=environ, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b"") and script.has("FINISHED")


# ---------------------------------------------------------------- files that come and go


def test_a_run_that_is_alive_keeps_its_file(script: Script) -> None:
    with script.start("monitor.start_batch(); time.sleep(60)") as first:
        assert wait_until(lambda: script.has("RUNNING"))
        code, _, err = script.run("monitor.start_batch()")
        assert code == 0 and f"is written by process {first.pid} on" in err
        assert script.read()["metadata"]["pid"] == first.pid
        first.kill()
    (other,) = script.file.parent.glob("run_*.json")
    assert json.loads(other.read_text())["status"] == "FINISHED"
    assert script.run("monitor.start_batch()")[2] == "" and script.has("FINISHED")


def test_a_folder_that_is_removed_amid_the_run_comes_back(script: Script) -> None:
    with script.start(
        "monitor.start_batch()\nsys.stdin.close()\nwhile not os.path.exists('end'): time.sleep(.02)"
    ) as run:
        assert wait_until(script.file.exists)
        script.file.parent.rename(script.folder / "removed")
        assert wait_until(script.file.exists)
        (script.folder / "end").touch()
        assert run.communicate(timeout=30)[1] == ""
    assert script.has("FINISHED")


def test_a_folder_that_cannot_be_is_told_once_and_written_when_it_can(script: Script) -> None:
    script.file.parent.write_text("a file where the folder belongs")
    with script.start("monitor.start_batch()\nwhile not os.path.exists('end'): time.sleep(.02)") as run:
        assert run.stderr
        told = run.stderr.readline()
        assert "cannot be written" in told and run.poll() is None
        script.file.parent.unlink()
        assert wait_until(lambda: script.has("RUNNING"))
        (script.folder / "end").touch()
        err = run.communicate(timeout=30)[1]
    assert "cannot be written" not in err and run.returncode == 0
    assert script.has("FINISHED")


# ---------------------------------------------------------------- edits


def test_edits_are_applied_refused_and_answered(script: Script) -> None:
    process = script.start("""
        mine = {"learning_rate": 0.1, "steps": 5, "name": "a b"}
        monitor.track_variables(mine)
        while mine["steps"] != 6:
            monitor.start_batch()
            time.sleep(.01)
        print(mine)
    """)
    control = script.file.parent / "control_run.json"

    def answer(name: str) -> tuple[object, object, object]:
        variable = script.read()["variables"][name]
        return variable["value"], variable["edit"], variable["error"]

    with process:
        assert wait_until(lambda: script.has("RUNNING"))
        edits = {"learning_rate": {"value": "0.01", "edit": "1"}, "name": {"value": "\u00e9\n'", "edit": "2"}}
        control.write_text(json.dumps({"edits": edits}))
        assert wait_until(lambda: answer("name")[1] == "2")
        assert answer("learning_rate") == (0.01, "1", None) and answer("name") == ("\u00e9\n'", "2", None)
        control.write_text(json.dumps({"edits": {"learning_rate": {"value": "fast", "edit": "3"}}}))
        assert wait_until(lambda: answer("learning_rate")[1] == "3")
        assert answer("learning_rate")[0] == 0.01 and "finite number" in str(answer("learning_rate")[2])
        control.write_text("{" * 100)
        control.write_text('{"steps": 6, "other": null}')
        out, err = process.communicate(timeout=30)
    assert "'learning_rate': 0.01" in out and err == ""
    assert answer("steps") == (6, "6", None)


# ---------------------------------------------------------------- outputs

TEE = BEGIN.replace("interval=0.02", "interval=0.02, tee_outputs=True")
PRINTS = """
monitor.start_batch()
print("from Python")
os.write(2, b"from C\\n")
os.system("echo from a subprocess")
"""


def test_stdout_and_stderr_go_on_and_to_files(script: Script) -> None:
    code, out, err = script.run(PRINTS + "1 / 0", begin=TEE)
    folder = script.file.parent
    assert code == 1
    assert sorted(out.splitlines()) == ["from Python", "from a subprocess"]
    assert err.startswith("from C\n") and err.endswith("ZeroDivisionError: division by zero\n")
    assert (folder / "run_stdout.log").read_text() == out and (folder / "run_stderr.log").read_text() == err
    metadata = script.read()["metadata"]
    assert metadata["stdout_path"] == str(folder / "run_stdout.log")
    assert metadata["stderr_path"] == str(folder / "run_stderr.log")


def test_the_last_words_of_a_killed_script_are_in_its_file(script: Script) -> None:
    script.run("monitor.start_batch(); print('last words', flush=True); os.kill(os.getpid(), 9)", begin=TEE)
    assert wait_until(lambda: (script.file.parent / "run_stdout.log").read_text() == "last words\n")


def test_a_flood_of_output_is_copied_whole(script: Script) -> None:
    code, out, _ = script.run("monitor.start_batch()\nfor number in range(20_000): print(number, 'x' * 20)", begin=TEE)
    assert code == 0 and out.count("\n") == 20_000
    assert (script.file.parent / "run_stdout.log").read_text() == out


@pytest.mark.parametrize("ended", ["", "monitor.set_finished()"])
def test_a_tee_that_is_killed_costs_a_warning(script: Script, ended: str) -> None:
    code, out, err = script.run(
        f"""
        monitor.start_batch()
        {ended}
        print("before", flush=True)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = open("/proc/" + pid + "/stat").read().rpartition(")")[2]
            except OSError:
                continue
            if fields.split()[1] == str(os.getpid()):
                os.kill(int(pid), 9)
        for number in range(300):
            print("x" * 1000, flush=True)
            time.sleep(.01)
        print("after", flush=True)
        """,
        begin=TEE,
    )
    assert code == 0 and out.endswith("after\n")
    assert out.count("x" * 1000) >= 298  # what it had read when it was killed is lost with it
    assert err.count("the tee process has ended") == 1


def test_a_log_that_cannot_be_written_costs_a_warning(script: Script) -> None:
    (script.file.parent / "run_stdout.log").mkdir(parents=True)
    code, out, err = script.run(PRINTS, begin=TEE)
    assert code == 0 and "from Python" in out and err.count("cannot be copied") == 1
    assert script.has("FINISHED")


@pytest.fixture
def small_disk(script: Script) -> Iterator[Path]:
    """A file system of 64 KiB, mounted where the script's progress is kept."""
    script.file.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(script.file.parent)]
    tried = subprocess.run(mount, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted: nothing here was tested ({tried.stderr.strip()})")
    yield script.file.parent
    subprocess.run(["umount", "--lazy", str(script.file.parent)], check=True)


def test_what_is_printed_on_a_full_disk_is_counted_and_the_rest_copied(script: Script, small_disk: Path) -> None:
    body = """
        monitor.start_batch()
        print("before", flush=True)
        while not os.path.exists("start"):
            time.sleep(.02)
        for number in range(100):
            print("x" * 999, flush=True)
        while not os.path.exists("room"):
            time.sleep(.02)
        print("after", flush=True)
        os.write(1, b"and more" + bytes([10]))
    """
    log, ballast = small_disk / "run_stdout.log", small_disk / "ballast"
    with script.start(body, begin=TEE) as process:
        assert wait_until(log.exists)
        ballast.write_bytes(b"x" * 20_000)
        (script.folder / "start").touch()
        assert process.stdout
        out = "".join(process.stdout.readline() for _ in range(101))
        ballast.unlink()
        (script.folder / "room").touch()
        out += process.communicate(timeout=60)[0]
    assert out.count("x" * 999) == 100 and out.endswith("after\nand more\n")
    written = log.read_text()
    head, _, rest = written.partition("\n[training_monitor: ")
    missing, _, tail = rest.partition(" bytes are missing here: No space left on device]\n")
    assert out == head + out[len(head) : len(head) + int(missing)] + tail and tail == "after\nand more\n"
    assert wait_until(lambda: script.has("FINISHED"))


def test_an_output_file_is_named_where_the_shell_made_it(script: Script) -> None:
    log = script.folder / "my log.txt"
    (script.folder / "train.py").write_text(BEGIN + "monitor.start_batch()\n")
    with log.open("w") as opened:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "train.py"], cwd=script.folder, env=environ, stdout=opened, check=True)
    assert script.read()["metadata"]["stdout_path"] == str(log)


# ---------------------------------------------------------------- many at once


WRITERS = 12
STEPPING = """
import os, sys, time
from training_monitor.runs.monitor import TrainingMonitor
pids = []
for number in range({writers}):
    pid = os.fork()
    if pid:
        pids.append(pid)
        continue
    with TrainingMonitor(f"progress/run-{{number}}" + (".json" if number % 2 else ""), interval=0.1) as monitor:
        monitor.start_epoch(1, 10**6, 1)
        end = time.monotonic() + {seconds}
        while time.monotonic() < end:
            monitor.start_batch()
            monitor.update_metrics(loss=1.0, text="x" * 150)
            time.sleep(0.05)
    os._exit(0)
for pid in pids:
    os.waitpid(pid, 0)
"""


def test_no_read_beside_many_writers_is_torn_and_no_last_status_lost(script: Script) -> None:
    paths = [
        script.folder / "progress" / (f"run-{number}.json" if number % 2 else f"run-{number}/progress.json")
        for number in range(WRITERS)
    ]
    reads, seen = 0, set[Path]()
    with script.start("", begin=STEPPING.format(writers=WRITERS, seconds=SECONDS)) as process:
        while process.poll() is None:
            for path in paths:
                if path.exists():
                    run = parse_progress_file(path.read_text(), Run("x", str(path), ""))
                    assert run.status in (RUNNING, FINISHED) and run.epoch in (None, 1)
                    reads, seen = reads + 1, seen | {path}
        assert process.wait() == 0
    assert len(seen) == WRITERS and reads > 10 * WRITERS
    for path in paths:
        assert json.loads(path.read_text())["status"] == "FINISHED"
        assert json.loads(path.read_text())["state"]["step"] > 0
    left = [name for _, _, names in os.walk(script.folder / "progress") for name in names]
    assert len(left) == WRITERS


ENDING = """
import os, sys, time
from training_monitor.runs.monitor import TrainingMonitor
for number in range({writers}):
    if os.fork() == 0:
        monitor = TrainingMonitor(f"progress/run-{{number}}.json", interval=0.05)
        monitor.start_epoch(1, 10**6, 1)
        while True:
            monitor.start_batch()
            monitor.update_metrics(loss=1.0)
            time.sleep(0.05)
while True:
    os.wait()
"""


def test_many_writers_that_get_a_sigterm_at_once_say_so(script: Script) -> None:
    paths = [script.folder / "progress" / f"run-{number}.json" for number in range(WRITERS)]
    with script.start("", begin=ENDING.format(writers=WRITERS)) as process:
        assert wait_until(lambda: all(path.exists() for path in paths), 60)
        for path in paths:
            os.kill(json.loads(path.read_text())["metadata"]["pid"], signal.SIGTERM)
        while process.poll() is None:  # it ends when it has no child left
            for path in paths:
                assert json.loads(path.read_text())["status"] in ("RUNNING", "CANCELED")
        process.communicate(timeout=30)
    documents = [json.loads(path.read_text()) for path in paths]
    assert {(each["status"], each["error_message"]) for each in documents} == {("CANCELED", "SIGTERM")}
