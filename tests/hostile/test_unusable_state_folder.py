"""A state folder that cannot be used: looks, verdicts and notices do not depend on it, and acts are refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, Behaviour
from tests.hostile.disks import fill_up, small_disk
from tests.hostile.test_clocks_and_disks import command, running_training
from tests.hostile.tries import Tries
from tests.integration.commands import run_command
from tests.unit.rent.test_sweeper import Bench as SweepBench
from tests.unit.supervision.test_auto_restart import Bench as RestartBench
from tests.unit.supervision.test_terminate import SAVE_AND_DESTROY, Bench as TerminateBench
from training_monitor.core.best_effort_store import RETRY_SECONDS, BestEffortStore
from training_monitor.core.errors import StateError
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.rent.sweeper import sweep_instances
from training_monitor.supervision import terminate_training
from training_monitor.vast.training_request import JobState

FAULTS = ("full", "full from the start", "read-only", "locked", "open to others", "of a later version", "damaged")
LOOKS: tuple[tuple[str, ...], ...] = (
    ("check", "local", "LOG", "--json"),
    ("check", "local", "LOG", "--stall-after", "5m", "--json"),
    ("status", "local", "--json"),
    ("watch", "local", "LOG", "--once", "--json"),
    ("wait", "local", "LOG", "--for", "step=1", "--json"),
    ("wait", "--list", "--json"),
    ("fleet", "local#LOG", "--once", "--json"),
    ("metrics", "local#LOG", "--once"),
    ("history", "--json"),
    ("why", "local", "LOG", "--json"),
    ("notify", "--list", "--json"),
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of a running training."""
    with running_training(tmp_path_factory.mktemp("training")) as log:
        yield log


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own for a state folder."""
    with small_disk(tmp_path / "disk") as folder:
        yield folder


@contextmanager
def broken(disk: Path, fault: str) -> Iterator[Path]:
    """A state folder in which earlier commands have kept something, and which can no longer be used."""
    folder = disk / "state"
    if fault != "full from the start":
        Store(str(folder)).save_run("before", {"kept": True}, finished=False)
    path = folder / "training_monitor.db"
    with ExitStack() as stack:
        if fault in ("locked", "of a later version"):
            other = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
            other.execute("BEGIN EXCLUSIVE" if fault == "locked" else "PRAGMA user_version = 999")
        elif fault == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        elif fault == "open to others":
            folder.chmod(0o777)
        else:
            if fault == "damaged":
                path.write_bytes(b"\0" * 100_000)
            fill_up(disk)
        yield folder


def ask(words: tuple[str, ...], log: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [word.replace("LOG", str(log)) for word in words]
    if words[:2] == ("status", "local"):  # which must not see the trainings of other tests
        within = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        return command(*argv, within=within, TRAINING_MONITOR_STATE_DIR=str(folder))
    return run_command(*argv, TRAINING_MONITOR_STATE_DIR=str(folder))


def verdict_of(text: str) -> Any:
    """What an answer concludes, without what changes from one look to the next."""
    try:
        document = json.loads(text)
    except ValueError:
        return [line for line in text.splitlines() if "up{" in line or "verdict" in line]
    return {key: document[key] for key in ("verdict", "state", "outcome", "schema", "kind") if key in document}


@cache
def sound_answer(words: tuple[str, ...], log: Path) -> subprocess.CompletedProcess[str]:
    """What the command answers with a state folder that can be used."""
    return ask(words, log, log.parent / "state")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_look_answers_as_ever_where_the_store_cannot_be_used(
    disk: Path, log: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    with broken(disk, fault) as folder:
        for words in LOOKS[FAULTS.index(fault) % 3 :: 3]:  # each look with each third
            Tries.count += 1
            sound = sound_answer(words, log)
            caplog.clear()
            done = ask(words, log, folder)
            assert "Traceback" not in done.stderr, (words, done.stderr)
            assert done.returncode == sound.returncode, (words, done.stderr, sound.stderr)
            assert verdict_of(done.stdout) == verdict_of(sound.stdout), (words, done.stdout, sound.stdout)
            said = [*done.stderr.splitlines(), *caplog.messages]  # pytest takes what this process would log to stderr
            lines = [line for line in said if "could not be saved" in line]
            assert len(lines) == 1, (words, done.stderr)
            assert not fault.startswith("full") or all("no space left" in line for line in lines), (words, lines)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "locked"])  # that one is waited for
def test_nothing_is_started_rented_or_claimed_without_a_record(
    disk: Path, log: Path, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(tmp_path / "jobs"))
    started, data = tmp_path / "started", tmp_path / "data"
    data.mkdir()
    (data / "one.txt").write_text("a cat")
    (tmp_path / "pid").write_text("1")
    acts = (
        ("run", "--name", "one", "--max-retries", "1", "--", "touch", str(started)),
        ("watch", "local", "--log", "LOG", "--pid-file", str(tmp_path / "pid"), "--terminate", "--plain"),
        ("rent", "worker", "--until-empty"),
    )
    with broken(disk, fault) as folder:
        for words in acts if fault == "full" else acts[FAULTS.index(fault) % 3 :][:1]:
            Tries.count += 1
            done = ask(words, log, folder)
            assert done.returncode == 3 and "Try:" in done.stderr and "Traceback" not in done.stderr, (words, done)
    assert not started.exists() and not (tmp_path / "jobs").exists()


def test_a_supervised_job_is_seen_to_its_end_while_the_disk_is_full(disk: Path) -> None:
    bench = RestartBench(disk)
    bench.clock.at(60.0, lambda: fill_up(disk))
    report = bench.restart()
    assert (report["success"], report["final_step"]) == (True, 300)
    assert [text for text in bench.said("detected") if text.startswith("the state could not be saved: no space left")]
    (disk / "fill").unlink()
    again = bench.restart()  # the end was not written down, so that it is seen once more
    assert (again["success"], again["final_step"], len(bench.jobs.starts)) == (True, 300, 1)


def test_a_failed_job_starts_again_only_when_that_can_be_written_down(disk: Path) -> None:
    bench = RestartBench(disk)
    bench.jobs.behaviours = [Behaviour(crash_after=120), Behaviour()]
    bench.clock.at(60.0, lambda: fill_up(disk))
    bench.clock.at(2000.0, lambda: (disk / "fill").unlink())
    report = bench.restart()
    assert report["success"] and report["total_retries"] == 1 and len(bench.jobs.starts) == 2
    assert (report["attempts"][1]["started_at"] or 0) >= EPOCH + 2000.0


def test_a_full_disk_does_not_stop_ending_saving_and_destroying(disk: Path) -> None:
    bench = TerminateBench(disk)
    Store(bench.folder)
    fill_up(disk)
    report = terminate_training(bench.watcher(BestEffortStore(bench.folder)), SAVE_AND_DESTROY)
    assert (report.success, report.stopped, report.destroyed) == (True, True, True)
    assert report.uploads[0].verified and bench.vast.destroyed == ["7"]


@pytest.mark.parametrize("fault", ["full", "read-only", "damaged"])
def test_a_sweep_destroys_what_no_job_needs_only_where_it_can_read_the_queue(disk: Path, fault: str) -> None:
    bench = SweepBench(disk)
    bench.add_job("over", JobState.COMPLETED, instance_id=1)
    bench.add_job("at-work", JobState.TRAINING, instance_id=2)
    for number, job in ((1, "over"), (2, "at-work"), (3, "unknown")):
        bench.add_machine(number, job)
    bench.see_before()
    with broken(disk, fault):
        store = BestEffortStore(bench.folder)
        report = sweep_instances(False, owner="me", store=store, transport=bench.transport, clock=bench.clock)
    if fault == "damaged":
        assert bench.account.destroyed == [] and len(report["errors"]) == 3
        assert "cannot determine which machines are needed" in report["errors"][0]["error"]
    else:
        assert sorted(bench.account.destroyed) == [1, 3] and not report["errors"]


# ---------------------------------------------------------------- in one process


def test_what_was_kept_before_is_still_read_and_runs_reach_the_disk_later(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, now = str(disk / "state"), time.monotonic
    kept = Store(folder)
    kept.save_run("before", {"number": 1}, finished=False)
    kept.add_look("local train", 1.0, {"timestamp": 1.0})
    kept.add_notice("", Notice("failed", "waits", text="waits"), now=1.0)
    fill_up(disk)
    store = BestEffortStore(folder)
    assert store.load_run("before", dict) == {"number": 1} and len(store.looks("local train")) == 1
    assert store.pending_notices("") == []  # whoever can mark them as sent sends them
    store.save_run("before", {"number": 2}, finished=False)
    store.add_look("local train", 20.0, {"timestamp": 20.0})
    assert store.load_run("before", dict) == {"number": 2} and len(store.looks("local train")) == 2
    assert store.problem and "no space left" in store.problem.what
    assert caplog.text.count("could not be saved") == 1
    (disk / "fill").unlink()
    assert store.load_run("before", dict) == {"number": 2}
    assert Store(folder).load_run("before", dict) == {"number": 1}
    assert 10.0 < RETRY_SECONDS <= 60.0
    monkeypatch.setattr(time, "monotonic", lambda: now() + RETRY_SECONDS)
    assert store.load_run("before", dict) == {"number": 2} and store.problem is None
    assert Store(folder).load_run("before", dict) == {"number": 2}
    assert [kept.notice.text for kept in store.pending_notices("")] == ["waits"]


def test_a_file_that_others_could_have_changed_is_not_read(tmp_path: Path) -> None:
    Store(str(tmp_path / "state")).save_run("before", {"number": 1}, finished=False)
    (tmp_path / "state").chmod(0o777)
    store = BestEffortStore(str(tmp_path / "state"))
    assert store.load_run("before", dict) is None and store.problem


def test_a_strict_store_raises_where_it_cannot_write(disk: Path) -> None:
    store = Store(str(disk / "state"))
    fill_up(disk)
    with pytest.raises(StateError, match="no space left"):
        store.save_run("run", "x" * 20_000, finished=False)
