"""A hang that is ended under supervision: the roll call comes first, is kept, told and bounded."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, wait_until
from tests.integration.roll_call_training import BROKEN_GPU, PLACES, PROGRAMS, PYTHON, Plan
from tests.loopback.messaging import Services
from tests.requirements import require
from training_monitor import (
    RestartPolicy,
    TerminationPlan,
    auto_restart,
    check_training,
    explain_training,
    get_job_logs,
    start_process_job,
)
from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Event
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import KeptRollCall, WatchedJob
from training_monitor.look.kept_looks import last_roll_call, save_roll_call
from training_monitor.supervision import TrainingWatcher, watch_training
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target
from training_monitor.targets.transport import LocalTransport, Stream, Transport
from training_monitor.why.before_end import explain_before_end

BOUND = 8.0
PLACE = "{}:{}".format(*PLACES["pipe"])


@pytest.fixture
def place(surroundings: Surroundings) -> Iterator[Path]:
    """The folder of a training whose rank 2 hangs; its second attempt ends well at once."""
    require("py-spy")
    folder = surroundings.folder / "training"
    shutil.copytree(PROGRAMS, folder)
    Plan(world=4, odd={2: "pipe"}).write(folder)
    yield folder
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd") == str(folder):
                os.kill(pid, signal.SIGKILL)


def command_of(folder: Path) -> list[str]:
    """Hangs the first time, and then says which nodes it should avoid."""
    python = shlex.quote(PYTHON)
    again = 'echo "avoids ${TRAINING_MONITOR_AVOID_NODES:-none}"; echo "step 9/9 loss 0.1"; exit 0'
    script = f"cd {shlex.quote(str(folder))} && if [ -e second ]; then {again}; fi; touch second; "
    return ["sh", "-c", f"{script}tail -f /dev/null | {python} launch.py 0 4"]


class Heard:
    """The events of a supervisor, and when they came."""

    def __init__(self) -> None:
        self.events: list[tuple[float, Event]] = []

    def __call__(self, event: Event) -> None:
        self.events.append((time.monotonic(), event))

    def at(self, beginning: str) -> float:
        return next(at for at, event in self.events if event.text.startswith(beginning))

    def until_term(self, job_id: str) -> float:
        """Seconds from the verdict to TERM."""
        return self.at(f"stopping {job_id}: ") - self.at(f"{job_id} stalled")


class SilentInTheMiddle:
    """A target on which a roll call begins and never ends; everything else is answered."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        if input and ": roll_call call_roll" in input:
            self.calls += 1
            input = f"(sleep 1; kill -STOP $$) &\n{input}"
        return LocalTransport().run(argv, timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return LocalTransport().stream(argv, input=input)


def supervise(folder: Path, heard: Heard, transport: Transport | None = None, **more: Any) -> Any:
    limits: dict[str, Any] = {"retry_delay": 0.1, "stagnation_threshold": 2, "check_interval": 0.5}
    policy = RestartPolicy(3, **{**limits, "roll_call_timeout": BOUND, **more})
    config = {"command": command_of(folder)}
    return auto_restart("local", "hangs", None, policy=policy, job_config=config, on_event=heard, transport=transport)


def test_a_hang_is_explained_before_it_is_ended(place: Path, surroundings: Surroundings) -> None:
    heard, bound = Heard(), 60.0  # long enough for the stacks of all ranks, also beside other programs
    report = supervise(place, heard, roll_call_timeout=bound)
    assert report["success"] and [each["status"] for each in report["attempts"]] == ["STALLED", "SUCCEEDED"]
    first, second = report["attempts"]
    assert report["explanation"] == first["explanation"] and second["explanation"] is None
    assert "of 4 ranks wait" in first["explanation"] and f"{PLACE} load_batch" in first["explanation"]
    assert "rank 2" in first["explanation"] and "pipe" in first["explanation"]
    assert heard.until_term("process:hangs-attempt-1") <= bound + 2
    folder = Path(first["roll_call"])
    assert folder.is_relative_to(surroundings.folder / "state") and folder.stat().st_mode & 0o077 == 0
    assert (folder / "explanation.txt").read_text() == first["explanation"] + "\n"
    kept = json.loads(gzip.decompress((folder / "report.json.gz").read_bytes()))
    assert [each["rank"] for each in kept["ranks"]] == [0, 1, 2, 3] and all(each["stacks"] for each in kept["ranks"])
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    last = last_roll_call(Store(), parse_target("local"), WatchedJob(job_id="process:hangs-attempt-2"))
    assert last is not None and last.text == first["explanation"]


def test_a_target_that_falls_silent_delays_only_up_to_the_bound(place: Path) -> None:
    heard, transport = Heard(), SilentInTheMiddle()
    report = supervise(place, heard, transport=transport)
    assert report["success"] and transport.calls == 1
    assert heard.until_term("process:hangs-attempt-1") <= BOUND + 2
    assert "unknown" in report["attempts"][0]["explanation"] and report["attempts"][0]["roll_call"] is None


def test_who_asks_after_the_end_is_told_what_was_seen_before(place: Path) -> None:
    (place / "second").touch()
    start_process_job("local", command_of(place), "over")
    assert wait_until(lambda: check_training("local", "process:over")["jobs"][0]["state"] == "finished", 60)
    kept = KeptRollCall(time.time(), "rank 2 is late", job_id="process:over")
    save_roll_call(Store(), parse_target("local"), WatchedJob(job_id="process:over"), kept)
    found = explain_training("local", "process:over")
    assert found["explanation"].endswith("Before process:over was terminated, the roll call reported: rank 2 is late")
    assert (found["confidence"], found["culprits"]) == ("none", [])


def test_no_roll_call_is_taken_where_none_is_wanted(place: Path) -> None:
    heard = Heard()
    report = supervise(place, heard, roll_call_timeout=0)
    assert report["success"] and report["explanation"] is None
    assert not [event for _, event in heard.events if event.kind == "explained"]


def test_a_bound_in_which_nobody_can_answer_is_wrong_use(place: Path) -> None:
    for timeout in (1, 4.9, -1, float("nan")):
        with pytest.raises(SettingsError, match="roll_call_timeout: .* 0, or at least 5 seconds"):
            supervise(place, Heard(), roll_call_timeout=timeout)
        with pytest.raises(SettingsError, match="roll_call_timeout: .* 0, or at least 5 seconds"):
            TerminationPlan(roll_call_timeout=timeout)
    assert TerminationPlan(roll_call_timeout=0).roll_call_timeout == 0
    for command in ("run --roll-call-timeout 1s -- true", "watch local --log x --terminate --roll-call-timeout 1s"):
        done = run_command(*command.split())
        assert done.returncode == 2 and "0, or at least 5 seconds" in done.stderr and done.stdout == "", done


def test_the_notice_of_the_restart_says_why_and_a_faulty_node_is_handed_to_the_next_attempt(
    place: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, node = surroundings.tools / "nvidia-smi", os.uname().nodename
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = -q ] || exit 9\ncat <<'END'\n{BROKEN_GPU}END\n")
    tool.chmod(0o755)
    with Services() as services:
        monkeypatch.setenv("TRAINING_MONITOR_WEBHOOK", services.webhook)
        options = ["--name", "hangs", "--retry-delay", "0.1", "--stall-after", "2", "--interval", "0.5"]
        done = run_command("run", *options, "--notify", "--json", "--", *command_of(place))
        assert done.returncode == 0, done
        assert wait_until(lambda: len(services.hooked) >= 2, 60)
        restarted = next(each for each in services.hooked if each["kind"] == "restarted")
    assert "rank 2" in restarted["message"] and PLACE in restarted["message"]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["text"] for each in events if each.get("kind") == "explained"] == [events[-1]["explanation"]]
    first = events[-1]["attempts"][0]
    assert first["faulty_nodes"] == [node] and first["failure"]["action"] == "restart_elsewhere"
    assert f"avoids {node}\n" in get_job_logs("local", "process:hangs-attempt-2")
    assert any(f"avoiding suspect node {node}" in str(each.get("text")) for each in events)


def test_a_watch_that_ends_a_hang_explains_it(place: Path, surroundings: Surroundings) -> None:
    start_process_job("local", command_of(place), "watched")
    settings = {"poll_interval": 0.5, "grace_period": 0.5, "stall_after": 2, "min_samples": 2}
    report = watch_training(TrainingWatcher("local", "process:watched", settings), plan=TerminationPlan())
    assert report and report.end == "terminated" and report.termination and report.termination.stopped
    assert report.termination.explanation and PLACE in report.termination.explanation
    assert report.termination.roll_call and Path(report.termination.roll_call).is_dir()


# ---------------------------------------------------------------- what is kept


def hanging(place: Path) -> Site:
    """Where the training hangs."""
    start_process_job("local", command_of(place), "hangs")
    assert wait_until(lambda: (place / "rank-2").exists() and (place / "rank-2").read_text() == "odd", 60)
    return Site.of("local")


def test_only_the_last_ten_are_kept_and_of_a_full_state_folder_nothing_but_the_words(
    place: Path, surroundings: Surroundings
) -> None:
    store, job, site = Store(), WatchedJob(job_id="process:hangs"), hanging(place)
    first = explain_before_end(site, job, store)
    assert first.folder
    training = Path(first.folder).parent
    for number in range(12):
        shutil.copytree(first.folder, training / f"{number:011d}-hangs")
    (training / "killed.new").mkdir()
    os.utime(training / "killed.new", (0, 0))
    last = explain_before_end(site, job, store)
    names = sorted(path.name for path in training.iterdir())
    assert len(names) == 10 and last.folder and names[-1] == Path(last.folder).name
    shutil.rmtree(surroundings.folder / "state" / "roll_calls")
    (surroundings.folder / "state" / "roll_calls").write_text("in the way")
    kept = explain_before_end(site, job, store)
    assert isinstance(kept, KeptRollCall) and kept.folder is None and PLACE in kept.text
