"""Requests for the stacks of a process and their answers, in a folder of their own."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training_monitor.runs import stack_answers
from training_monitor.runs.integrations import HuggingFaceCallback
from training_monitor.runs.monitor import TrainingMonitor
from training_monitor.runs.stack_answers import Answers, folder_of
from training_monitor.targets.procfs import identify

NONCE = "0123456789abcdef"
PID = os.getpid()


def wait_until(condition: Callable[[], object]) -> bool:
    end, pause = time.monotonic() + 60, threading.Event()
    while not (found := bool(condition())) and time.monotonic() < end:
        pause.wait(0.01)
    return found


class Asker:
    """Another process that asks this one, in a folder that is not made yet."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.answers = folder, Answers(str(folder), PID)
        self.here, self.request = folder / f"{PID}.{identify().start_ticks}.here", folder / f"{PID}.ask.{NONCE}"

    def begin(self) -> None:
        assert self.answers.start() and wait_until(self.here.exists)

    def said(self, nonce: str = NONCE) -> Path:
        return self.folder / f"{PID}.said.{nonce}"

    def ask(self, nonce: str = NONCE) -> dict[str, Any]:
        request = self.folder / f"{PID}.ask.{nonce}"
        request.mkdir()
        assert wait_until(self.said(nonce).exists)
        document: dict[str, Any] = json.loads(self.said(nonce).read_text())
        assert wait_until(lambda: not request.exists())
        return document

    def answers_nothing(self) -> bool:
        """Whether what is in place of a request is removed, and not answered."""
        return wait_until(lambda: not os.path.lexists(self.request)) and os.listdir(self.folder) == [self.here.name]


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    monkeypatch.setattr(stack_answers, "_UPKEEP_INTERVAL", 0.05)
    asker = Asker(tmp_path / "answers")
    yield asker
    asker.answers.leave()


def dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


# ---------------------------------------------------------------- requests and answers


def test_a_request_is_answered_and_removed(asker: Asker) -> None:
    asker.begin()
    assert stat.S_IMODE(asker.folder.stat().st_mode) == 0o700 and stat.S_IMODE(asker.here.stat().st_mode) == 0o600
    assert asker.here.read_text() == ""
    document = asker.ask()
    assert stat.S_IMODE(asker.said().stat().st_mode) == 0o600
    assert (document["pid"], document["start_ticks"]) == (PID, identify().start_ticks)
    main = document["threads"][0]
    assert main["is_main"] and ["wait_until", __file__] in [frame[:2] for frame in main["frames"]]
    own = asker.answers._thread
    assert own and own.ident not in [each["ident"] for each in document["threads"]]
    assert document["left_out"] == 0 and document["batches"] is None
    for nonce in ("a" * 8, "F" * 64, "0" * 64):
        assert asker.ask(nonce)["pid"] == PID
    training, validation = itertools.count(), itertools.count()
    asker.answers.batches = (training, validation)
    for counter in (training, training, validation):
        next(counter)
    assert asker.ask("1" * 16)["batches"] == 3 and next(training) == 2


def test_several_ask_at_once(asker: Asker) -> None:
    asker.begin()
    nonces = [f"{number:016x}" for number in range(25)]
    for nonce in nonces:
        (asker.folder / f"{PID}.ask.{nonce}").mkdir()
    assert all(wait_until(asker.said(nonce).exists) for nonce in nonces)


def test_what_has_no_nonce_is_no_request(asker: Asker) -> None:
    asker.begin()
    wrong = ["0123456", "0" * 65, "0123456g", "01234567 89", "", "\u0660" * 8, "01234567.tmp"]
    for nonce in wrong:
        (asker.folder / f"{PID}.ask.{nonce}").mkdir()
    asker.ask("f" * 16)
    assert all((asker.folder / f"{PID}.ask.{nonce}").exists() for nonce in wrong)
    assert [path.name for path in asker.folder.glob("*.said.*")] == [f"{PID}.said.{'f' * 16}"]


def test_what_is_no_folder_is_removed_and_not_followed(asker: Asker) -> None:
    asker.begin()
    other = asker.folder.parent / "other"
    other.mkdir()
    for make in (
        lambda: asker.request.write_text("x"),
        lambda: asker.request.symlink_to(other),
        lambda: asker.request.symlink_to("nowhere"),
        lambda: os.mkfifo(asker.request),
    ):
        make()
        assert asker.answers_nothing() and os.listdir(other) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_request_of_another_user_is_removed(asker: Asker) -> None:
    asker.begin()
    (asker.folder / "new").mkdir()
    os.chown(asker.folder / "new", 54321, 54321)
    (asker.folder / "new").rename(asker.request)
    assert asker.answers_nothing()


def test_a_request_that_is_not_empty_is_answered_and_stays(asker: Asker) -> None:
    asker.begin()
    asker.request.mkdir()
    (asker.request / "file").touch()
    assert wait_until(asker.said().exists) and (asker.request / "file").exists()


def test_a_link_in_place_of_an_answer_is_replaced(asker: Asker) -> None:
    asker.begin()
    other = asker.folder.parent / "other"
    other.write_text("kept")
    asker.said().symlink_to(other)
    asker.request.mkdir()
    assert wait_until(lambda: not asker.said().is_symlink()) and other.read_text() == "kept"


# ---------------------------------------------------------------- the folder


def test_a_folder_that_others_could_use_is_not_used(asker: Asker) -> None:
    real = asker.folder.parent / "real"

    def make_open() -> None:
        asker.folder.mkdir()
        asker.folder.chmod(0o750)

    def make_link() -> None:
        real.mkdir(0o700)
        asker.folder.symlink_to(real)

    def make_file() -> None:
        asker.folder.write_text("")

    for make in (make_open, make_link, make_file):
        make()
        answers = Answers(str(asker.folder), PID)
        assert answers.start()
        threading.Event().wait(0.3)  # some looks
        assert not (asker.folder.is_dir() and os.listdir(asker.folder))
        answers.leave()
        asker.folder.rmdir() if make is make_open else asker.folder.unlink()
    assert os.listdir(real) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_not_used(asker: Asker) -> None:
    asker.folder.mkdir(0o700)
    os.chown(asker.folder, 54321, 54321)
    assert asker.answers.start()
    threading.Event().wait(0.3)  # some looks
    assert os.listdir(asker.folder) == []


def test_a_folder_that_becomes_private_is_used_from_then_on(asker: Asker) -> None:
    asker.folder.mkdir()
    asker.folder.chmod(0o755)  # whatever the umask
    assert asker.answers.start()
    threading.Event().wait(0.3)  # some looks
    assert os.listdir(asker.folder) == []
    asker.folder.chmod(0o700)
    assert wait_until(asker.here.exists) and asker.ask()["pid"] == PID


def test_what_a_clean_up_program_removes_is_made_again(asker: Asker) -> None:
    asker.begin()
    asker.here.unlink()
    assert wait_until(asker.here.exists)
    os.utime(asker.here, (1, 1))
    assert wait_until(lambda: asker.here.stat().st_mtime > 1)
    asker.here.unlink()
    asker.folder.rmdir()
    assert wait_until(asker.here.exists) and asker.ask()["pid"] == PID


def test_the_files_of_processes_that_are_gone_are_removed_at_the_start(asker: Asker) -> None:
    asker.folder.mkdir(0o700)
    gone, parent = dead_process(), os.getppid()
    of_gone = [f"{gone}.7.here", f"{gone}.ask.{NONCE}", f"{gone}.said.{NONCE}", f"{gone}.said.{NONCE}.0a1b2c3d.tmp"]
    of_earlier = [f"{PID}.ask.{NONCE}", f"{PID}.said.{NONCE}", f"{PID}.7.here"]
    kept = [f"{parent}.7.here", f"{parent}.said.{NONCE}", "a1b2c3", f"{gone}.log", f"0{gone}.7.here", "here"]
    for name in (*of_gone, *of_earlier, *kept):
        (asker.folder / name).write_text("0" * 16)
    asker.begin()
    assert sorted(os.listdir(asker.folder)) == sorted([*kept, asker.here.name])


def look(asker: Asker, pid: int, *names: str) -> Path:
    """The folder of an asker that was killed after it had moved an answer there."""
    folder = asker.folder / f"{pid}.look.{NONCE}"
    folder.mkdir(0o700)
    for name in names:
        (folder / name).write_text("{")
    return folder


def test_what_killed_askers_left_is_removed_with_the_answer_in_it(asker: Asker) -> None:
    asker.folder.mkdir(0o700)
    for pid, names in ((dead_process(), ["said"]), (dead_process(), []), (PID, ["said"])):
        look(asker, pid, *names)
    kept = [look(asker, os.getppid(), "said"), look(asker, dead_process(), "other")]
    asker.begin()
    assert sorted(os.listdir(asker.folder)) == sorted([asker.here.name, *(each.name for each in kept)])
    old, new = look(asker, PID, "said"), asker.folder / f"{PID}.look.{'f' * 16}"
    new.mkdir()
    os.utime(old, (time.time() - 61.0, time.time() - 61.0))
    assert wait_until(lambda: not old.exists()) and new.exists()
    asker.answers.leave()
    assert not new.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_folder_that_root_left_to_a_user_is_removed(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot look into it can remove it, as long as it is empty."""
    asker.folder.mkdir(0o700)
    left = look(asker, PID)
    os.chown(asker.folder, 54321, 54321)
    monkeypatch.chdir(asker.folder)  # the folders above are root's alone
    os.seteuid(54321)
    try:
        answers = Answers(".", PID)
        assert answers.start() and wait_until(lambda: os.listdir(".") == [asker.here.name])
        answers.leave()
    finally:
        os.seteuid(0)
    assert not left.exists()


def test_a_link_in_place_of_a_folder_is_removed_and_not_followed(asker: Asker) -> None:
    other = asker.folder.parent / "other"
    other.mkdir()
    (other / "said").write_text("kept")
    asker.folder.mkdir(0o700)
    (asker.folder / f"{PID}.look.{NONCE}").symlink_to(other)
    asker.begin()
    assert os.listdir(asker.folder) == [asker.here.name] and (other / "said").read_text() == "kept"


def test_at_most_a_hundred_files_of_others_are_removed(asker: Asker) -> None:
    asker.folder.mkdir(0o700)
    gone = dead_process()
    for number in range(150):
        (asker.folder / f"{gone}.said.{number:016x}").touch()
    asker.begin()
    assert len(os.listdir(asker.folder)) == 51


def test_old_answers_are_removed_and_those_of_others_kept(asker: Asker) -> None:
    asker.begin()
    asker.ask()
    other = asker.folder / f"{os.getppid()}.said.{NONCE}"
    other.touch()
    for path in (asker.said(), other):
        os.utime(path, (time.time() - 61.0, time.time() - 61.0))
    assert wait_until(lambda: not asker.said().exists()) and other.exists()
    asker.ask("f" * 16)
    asker.answers.leave()
    assert os.listdir(asker.folder) == [other.name]


# ---------------------------------------------------------------- which processes answer


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "training_monitor answers"]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process, as if no monitor had begun in it."""
    monkeypatch.setattr(stack_answers, "_known", {})
    before = len(threads())
    yield
    for answers in stack_answers._known.values():
        answers.leave()
    assert len(threads()) == before


def begun() -> list[int]:
    return list(stack_answers._known)


@pytest.mark.parametrize("rank", [0, 3])
def test_all_ranks_answer_from_the_first_call_on_and_once(silent: None, tmp_path: Path, rank: int) -> None:
    monitor = TrainingMonitor(tmp_path / "run.json", rank=rank, handle_signals=False)
    before = len(threads())
    assert begun() == []
    monitor.start_batch()
    assert begun() == [PID] and len(threads()) == before + 1
    monitor.start_epoch(1)
    monitor.set_finished()
    with TrainingMonitor(tmp_path / "other.json", rank=rank, handle_signals=False) as other:
        other.start_batch()
    assert begun() == [PID] and len(threads()) == before + 1
    assert (tmp_path / "run.json").exists() is (rank == 0)
    assert wait_until((Path(folder_of(os.geteuid())) / f"{PID}.{identify().start_ticks}.here").exists)


@pytest.mark.parametrize(
    "begin", ["start_batch", "start_monitoring", "start_epoch", "__enter__", "is_change", "set_finished"]
)
def test_any_call_begins_on_a_rank_that_writes_nothing_and_costs_no_more_later(silent: None, begin: str) -> None:
    monitor = TrainingMonitor(rank=3)
    assert monitor._record.needs_training_thread
    getattr(monitor, begin)()
    assert begun() == [PID] and not monitor._record.needs_training_thread


@pytest.mark.parametrize("rank", [0, 3])
def test_pickled_copies_and_workers_of_a_data_loader_do_not_answer(
    silent: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monitor = TrainingMonitor(tmp_path / "run.json", rank=rank)
    with pickle.loads(pickle.dumps(monitor)) as copy:
        copy.start_batch()
    monkeypatch.setitem(sys.modules, "torch.utils.data", SimpleNamespace(get_worker_info=lambda: object()))
    with monitor:
        monitor.start_batch()
    assert begun() == [] and list(tmp_path.iterdir()) == []


def test_other_processes_of_a_framework_answer(silent: None) -> None:
    callback = HuggingFaceCallback(TrainingMonitor(rank=0))
    callback.on_train_begin(None, SimpleNamespace(is_world_process_zero=False), None)
    assert begun() == [PID]
