"""`check` on trainings that somebody started by hand: found by the target alone, a PID, or a log; on each target."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place, WatchedTransport, kill, wait_until
from training_monitor import check_training
from training_monitor.cli.main import main
from training_monitor.core.errors import IncompleteAnswer, JobNotFound, SettingsError, TargetUnreachable
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.targets.asking import Site
from training_monitor.why.before_end import explain_before_end

SCRIPT = """
import sys, time
log, fate, first = sys.argv[1], sys.argv[2], time.time()
for step in range(1, 41):
    print(f"step {step}/200 loss {2.0 / step:.4f} 10.0 steps/s", flush=True)
    time.sleep(0.01)
if fate == "healthy":
    while time.time() < first + 120:
        step += 1
        print(f"step {step}/20000 loss 0.05 10.0 steps/s", flush=True)
        time.sleep(0.1)
if fate == "hung":
    import os
    os.utime(log, (first - 1200, first - 1200))
    time.sleep(120)
if fate == "finished":
    for step in range(41, 201):
        print(f"step {step}/200 loss 0.01", flush=True)
    print("Training completed")
if fate == "crashed":
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


@dataclass
class Trainings:
    """Real processes, each with its output in a file, as `python train.py > train.log 2>&1 &` starts them."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def log(self, fate: str) -> Path:
        return self.folder / f"run {fate}" / "train.log"

    def start(self, fate: str) -> subprocess.Popen[bytes]:
        log = self.log(fate)
        log.parent.mkdir()
        script = log.parent / "train.py"
        script.write_text(SCRIPT)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(script), str(log), fate], stdout=out, stderr=out, cwd=log.parent
            )
        self.processes.append(process)
        if fate in ("finished", "crashed"):
            process.wait(30)
        else:
            assert wait_until(lambda: "step 40/" in log.read_text())
            if fate == "hung":
                assert wait_until(lambda: time.time() - log.stat().st_mtime > 600)
        return process


@pytest.fixture
def trainings(tmp_path: Path) -> Iterator[Trainings]:
    started = Trainings(tmp_path)
    yield started
    for process in started.processes:
        kill(process.pid)
        process.wait()


def check(place: Place, what: Any = None, **more: Any) -> dict[str, Any]:
    """The one training that is meant, or of several the one whose log lies in the test's folder."""
    report = check_training(place.address, what, **more)
    mine = [job for job in report["jobs"] if what is not None or str(place.folder) in (job["log"] or "")]
    assert len(mine) == 1, report
    return dict(mine[0])


FATES = {
    "healthy": ("running", "ok"),
    "hung": ("stalled", "failed"),
    "finished": ("finished", "ok"),
    "crashed": ("failed", "failed"),
}


@pytest.mark.parametrize(
    ("target", "fate"),
    [("local", "crashed"), ("in_pod", "hung"), ("over_ssh", "finished")],
    indirect=["target"],
)
def test_a_log_tells_what_became_of_a_training_in_one_round_trip(
    target: Place, trainings: Trainings, transport: WatchedTransport, fate: str
) -> None:
    trainings.start(fate)
    seen = check(target, str(trainings.log(fate)), transport=transport)
    assert (seen["state"], seen["verdict"]) == FATES[fate], seen
    assert len(transport.argvs) <= 1 + 2 * target.address.startswith("k8s")  # a pod's labels are asked beside it
    assert seen["log"] == str(trainings.log(fate))
    if fate == "crashed":
        assert "illegal memory access" in seen["reason"] and seen["failure"]["evidence"]
    if fate == "hung":
        assert seen["seconds_without_step"] >= 1200 > seen["limit_seconds"]


@pytest.mark.parametrize(("target", "fate"), [("local", "hung"), ("over_ssh", "healthy")], indirect=["target"])
def test_a_training_is_found_where_nobody_names_its_log(
    target: Place, trainings: Trainings, transport: WatchedTransport, fate: str
) -> None:
    process = trainings.start(fate)
    seen = check(target, transport=transport)
    assert (seen["state"], seen["pid"], seen["log"]) == (FATES[fate][0], process.pid, str(trainings.log(fate)))
    shells = [argv for argv in transport.argvs if "get" not in argv]
    assert len(shells) == 2 and "train.py" in seen["command"]


@pytest.mark.parametrize(
    ("target", "fate"), [("local", "healthy"), ("in_pod", "hung"), ("over_ssh", "healthy")], indirect=["target"]
)
def test_a_pid_is_enough(target: Place, trainings: Trainings, fate: str) -> None:
    process = trainings.start(fate)
    seen = check(target, str(process.pid))
    assert (seen["state"], seen["step"] >= 40, seen["pid"]) == (FATES[fate][0], True, process.pid)


def test_what_one_command_saw_counts_for_the_next(local: Place, trainings: Trainings) -> None:
    trainings.start("healthy")
    log = str(trainings.log("healthy"))
    first = check(local, log)
    assert wait_until(lambda: check(local, log)["step"] > first["step"] + 5)
    assert check(local, log)["confidence"] == "high"


# ---------------------------------------------------------------- the command


def test_a_hang_has_every_documented_key_and_is_referred_to_why_by_a_command_that_works(
    local: Place, trainings: Trainings, capsys: pytest.CaptureFixture[str]
) -> None:
    process = trainings.start("hung")
    assert main(["check", "local", str(process.pid), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["target"], report["verdict"]) == ("training_monitor.check/2", "local", "failed")
    [job] = report["jobs"]
    assert {
        "verdict", "state", "reason", "remedies", "step", "total_steps", "epoch", "total_epochs", "progress",
        "steps_per_second", "eta_seconds", "loss", "seconds_without_step", "limit_seconds", "job_id", "pid", "log",
        "checkpoint", "gpus", "failure",
    } <= set(job)  # fmt: skip
    assert (job["step"], job["total_steps"], job["progress"], job["epoch"]) == (40, 200, 0.2, None)
    [remedy] = [each for each in job["remedies"] if "training-monitor why" in each]
    program, *words = shlex.split(remedy.split("`")[1])
    assert (program, words) == ("training-monitor", ["why", "local", str(process.pid)])
    main([*words, "--json"])
    assert [each["pid"] for each in json.loads(capsys.readouterr().out)["ranks"]] == [process.pid]


def test_what_was_said_before_a_training_was_ended_is_known_to_the_next_check(
    local: Place, trainings: Trainings
) -> None:
    process, log = trainings.start("hung"), str(trainings.log("hung"))
    assert check(local, log)["explanation"] is None
    kept = explain_before_end(Site.of(local.address), WatchedJob(log_file=log, pid=process.pid), Store())
    for what in (log, process.pid, f"{trainings.folder}/*/train.log"):
        seen = check(local, what)
        assert (seen["explanation"], seen["explained_at"]) == (kept.text, kept.at), what
    other = trainings.start("healthy")
    assert check(local, other.pid)["explanation"] is None


def test_the_command_shows_one_block_and_its_exit_status_is_the_verdict(
    local: Place, trainings: Trainings, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = {}
    for fate in FATES:
        trainings.start(fate)
        codes[fate] = main(["check", str(trainings.log(fate))])
    shown = capsys.readouterr().out
    assert codes == {"healthy": 0, "hung": 1, "finished": 0, "crashed": 1}
    assert "RUNNING" in shown and "STALLED" in shown and "FINISHED" in shown and "FAILED" in shown
    assert "step 200/200" in shown and "illegal memory access" in shown


def test_a_pid_alone_means_a_process_of_this_machine(
    local: Place, trainings: Trainings, capsys: pytest.CaptureFixture[str]
) -> None:
    process = trainings.start("healthy")
    for command in (["check"], ["watch", "--once"], ["status"]):
        assert main([*command, str(process.pid)]) == 0
        assert "running" in capsys.readouterr().out.lower(), command


def test_trainings_beyond_those_looked_at_are_counted_and_never_called_healthy(
    local: Place, trainings: Trainings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training_monitor.look.check.MOST_TRAININGS", 1)
    trainings.start("healthy")
    trainings.start("hung")
    report = check_training("local")
    assert report["verdict"] == "unknown" and report["not_looked_at"] >= 1 and len(report["jobs"]) == 1
    [left] = report["not_seen"]
    assert left["count"] == report["not_looked_at"] and "pid " in left["why"]
    assert main(["check", "local"]) == 3
    assert re.search(r"not inspected; .*pid \d+", capsys.readouterr().out)


class EndingTransport(WatchedTransport):
    """Ends processes once the trainings were found, before the second round trip."""

    ending: Sequence[subprocess.Popen[bytes]] = ()

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        is_second = "find_trainings" not in (input or "") and "gpu" in (input or "")
        for process in self.ending if is_second else ():
            process.kill()
            process.wait()
        return super().run(argv, timeout=timeout, input=input)


def start_silent(folder: Path) -> subprocess.Popen[bytes]:
    """A training whose output goes nowhere."""
    script = folder / "train.py"
    script.write_text("import time\ntime.sleep(120)\n")
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.DEVNULL, cwd=folder)


def test_check_leaves_out_trainings_that_end_after_they_were_found(local: Place, trainings: Trainings) -> None:
    trainings.processes.append(start_silent(local.folder))
    gone = trainings.processes[0].pid
    transport = EndingTransport()
    assert gone in [job["pid"] for job in check_training("local", transport=transport)["jobs"]]
    transport.ending = trainings.processes
    report = check_training("local", transport=transport)
    assert trainings.processes[0].returncode, "it was not ended between the two round trips"
    assert gone not in [job["pid"] for job in report["jobs"]] and not report["not_seen"], report


def test_check_judges_a_training_that_ends_after_it_was_found_by_its_log(local: Place, trainings: Trainings) -> None:
    process = trainings.start("healthy")
    transport = EndingTransport()
    transport.ending = [process]
    seen = check(local, transport=transport)
    assert process.returncode and seen["pid"] == process.pid and seen["step"] >= 40, seen
    assert seen["state"] not in ("running", "starting"), seen


def test_no_training_among_processes_that_were_cut_is_unknown_and_never_none(
    local: Place, trainings: Trainings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings.start("healthy")
    monkeypatch.setattr("training_monitor.look.find_trainings.MAX_PROCESSES", 0)
    report = check_training("local")
    assert report["verdict"] == "unknown" and "the search was incomplete" in report["reason"]
    assert [(each["what"], each["count"] >= 1) for each in report["not_seen"]] == [("processes", True)]
    assert main(["check", "local"]) == 3
    assert "processes" in capsys.readouterr().out
    for what in ([], ["train.py"]):
        assert main(["wait", "local", *what]) == 3, what
        assert "processes" in capsys.readouterr().err


def test_kinds_that_could_not_be_listed_are_named_and_unknown(
    local: Place, trainings: Trainings, tmp_path: Path
) -> None:
    trainings.start("healthy")
    (tmp_path / "no folder").touch()
    local.set_environment(
        {"TRAINING_MONITOR_JOBS_DIR": str(tmp_path / "no folder"), "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"}
    )
    report = check_training("local")
    assert [each["what"] for each in report["not_seen"]] == ["process jobs", "Ray jobs"]
    assert report["jobs"] and report["verdict"] == "unknown"
    with pytest.raises(IncompleteAnswer, match="Ray jobs"):
        check_training("local", "lora")


# ---------------------------------------------------------------- wrong input


def test_wrong_input_is_one_clear_line_and_never_ok(
    local: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "secret.log").write_text("step 1/2\n")
    (tmp_path / "secret.log").chmod(0)
    calls = [
        ["check", "local", "4194304"],  # above the highest pid
        ["check", str(tmp_path / "folder.log")],
        ["check", str(tmp_path / "nowhere.log")],
        ["check", "local", "no-such-training"],
        ["check", "local", "process:no-such-job"],
        ["check", "ssh://127.0.0.1:9"],
        ["check", "ssh://"],
        ["wait", "local", "4194304"],
        ["wait", "local", str(tmp_path / "nowhere.log")],
    ]
    if os.geteuid() != 0:
        calls.append(["check", str(tmp_path / "secret.log")])
    for call in calls:
        assert main(call) in (2, 3), call
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("error: ") and "Traceback" not in said.err, call
    with pytest.raises(TargetUnreachable):
        check_training("ssh://127.0.0.1:9")
    with pytest.raises(JobNotFound, match="no process"):
        check_training("local", 4194304)


def test_a_name_that_fits_two_trainings_names_them(local: Place, trainings: Trainings) -> None:
    trainings.start("healthy")
    trainings.start("hung")
    with pytest.raises(SettingsError, match="pid .*pid "):
        check_training("local", "train.py")


def test_a_machine_that_is_slow_to_answer_is_reported_in_time(
    trainings: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As under a load of 90: what lists open files, or reads a log, hangs, and the rest answers."""
    process = trainings.start("healthy")
    real = os.environ["PATH"]
    for tool, ends in {"ls": "finding", "tail": "looking"}.items():
        folder = tmp_path / ends
        folder.mkdir()
        (folder / tool).write_text("#!/bin/sh\nexec sleep 100\n")
        (folder / tool).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{real}")
        began = time.monotonic()
        status = main(["check", "local", "--timeout", "6", "--json"])
        assert time.monotonic() - began < 9
        report = json.loads(capsys.readouterr().out)
        assert status == 3 and report["verdict"] == "unknown"
        if ends == "finding":
            assert "processes" in [each["what"] for each in report["not_seen"]], report
        else:
            [job] = [each for each in report["jobs"] if each["pid"] == process.pid]
            assert (job["verdict"], job["step"]) == ("unknown", None), job
