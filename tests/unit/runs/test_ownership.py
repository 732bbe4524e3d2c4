"""Whose a run's files are, as processes of several hosts see it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from training_monitor.runs.files import owner_path, run_files
from training_monitor.runs.ownership import DEAD_AFTER, Candidate, Place, Standing, is_related, precedes
from training_monitor.runs.progress_file import parse_owner
from training_monitor.runs.values import Owner
from training_monitor.targets.proc_stat import Identity

RUN = "run.json"


def on(host: str, pid: int = 7) -> Owner:
    return Owner(Identity(pid, 1, host, f"boot of {host}", "pid:[1]"))


def place(folder: Path, host: str, clock: FakeClock) -> Place:
    return Place(run_files(folder / RUN), on(host), Candidate(lambda: True), clock)


def test_an_owner_elsewhere_is_alive_when_it_beats_and_dead_when_it_does_not(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = place(tmp_path, "gpu-1", clock), place(tmp_path, "gpu-2", clock)
    assert first.settle() is Standing.OURS
    assert second.settle() is Standing.UNSURE
    clock.sleep(DEAD_AFTER - 1)
    assert second.settle() is Standing.UNSURE
    clock.sleep(1)
    assert second.settle() is Standing.OURS and second.files.name == "run"
    assert first.settle() is Standing.OURS and first.files.name == f"run_{os.getpid()}"
    third = place(tmp_path, "gpu-3", clock)
    assert third.settle() is Standing.UNSURE
    os.utime(owner_path(second.files), ns=(0, 0))  # a beat, also by a clock that is far off
    clock.sleep(DEAD_AFTER)
    third.settle()
    assert third.holder == on("gpu-2")


def test_a_run_that_wakes_up_after_another_one_has_ended_leaves_its_file_alone(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = place(tmp_path, "gpu-1", clock), place(tmp_path, "gpu-2", clock)
    assert (first.settle(), second.settle()) == (Standing.OURS, Standing.UNSURE)
    clock.sleep(DEAD_AFTER)
    assert second.settle() is Standing.OURS
    (tmp_path / RUN).write_text(json.dumps({"status": "FINISHED", "metadata": {"pid": 7, "hostname": "gpu-2"}}))
    second.leave()
    assert first.settle() is Standing.OURS and first.files.name != "run"


def test_a_file_system_without_links_has_owners_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    clock = FakeClock()
    first, second = place(tmp_path, "gpu-1", clock), place(tmp_path, "gpu-2", clock)
    assert first.settle() is Standing.OURS and second.settle() is Standing.UNSURE
    first.leave()
    assert second.settle() is Standing.OURS
    second.leave()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": 5}', '{"process": {"pid": -1}}', "x" * 10_000])
def test_a_record_that_names_nobody_is_believed_by_its_beats(tmp_path: Path, text: str) -> None:
    clock = FakeClock()
    asking = place(tmp_path, "gpu-1", clock)
    Path(owner_path(asking.files)).write_text(text)
    assert parse_owner(text) is None
    assert asking.settle() is Standing.UNSURE
    clock.sleep(DEAD_AFTER)
    assert asking.settle() is Standing.OURS


def test_of_a_family_the_parent_precedes_and_then_the_oldest_child() -> None:
    parent = on("gpu-1", 1)
    children = [Owner(Identity(pid, 1, "gpu-1"), parent.process, (pid,)) for pid in (3, 4)]
    stranger = Owner(Identity(5, 1, "gpu-1"), on("gpu-1", 2).process, (1,))
    assert precedes(parent, children[0]) and precedes(children[0], children[1])
    assert not precedes(children[1], children[0]) and not precedes(children[0], parent)
    assert not precedes(stranger, children[0]) and not precedes(children[0], stranger)
    assert is_related(children[1], children[0]) and is_related(children[0], parent)
    assert not is_related(stranger, children[0]) and not is_related(parent, stranger)
