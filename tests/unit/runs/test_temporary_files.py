"""Which temporary files were left by writers that are gone, and are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from training_monitor.runs.files import OLD_SECONDS, remove_left_beside, temporary_beside, temporary_of_script

NAME = """
import sys
from training_monitor.runs.files import temporary_beside
open(temporary_beside(sys.argv[1]), "w").close()
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "run.json").touch()
    return tmp_path / "run.json"


def names_beside(written: Path) -> set[str]:
    return set(os.listdir(written.parent)) - {written.name}


def make(*paths: str) -> set[str]:
    for path in paths:
        Path(path).touch()
    return {os.path.basename(path) for path in paths}


def test_what_a_process_of_this_machine_left_that_has_ended_goes_at_once(written: Path) -> None:
    subprocess.run([sys.executable, "-c", NAME, str(written)], check=True)
    mine = make(temporary_beside(str(written)))
    assert len(names_beside(written)) == 2
    remove_left_beside(str(written))
    assert names_beside(written) == mine


def test_possibly_unused_files_are_removed_when_old(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = temporary_beside(str(written))
    with monkeypatch.context() as patch:
        patch.setattr(os, "uname", lambda: os.uname_result(("Linux", "another", "", "", "")))
        left = make(temporary_beside(str(written)), str(written.with_name(temporary_of_script())))
    make(mine)
    os.utime(written.parent / sorted(left)[0], (0, 0))  # as of a record that was only renamed just now
    remove_left_beside(str(written))
    assert left < names_beside(written)
    later = written.stat().st_mtime + OLD_SECONDS + 5
    os.utime(written, (later, later))
    remove_left_beside(str(written))
    assert names_beside(written) == {os.path.basename(mine)}


def test_what_is_not_ours_stays_however_old_it_is(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = temporary_of_script()
    (written.parent / name).mkdir()
    (written.parent / temporary_of_script()).symlink_to(written)
    (written.parent / temporary_of_script()).symlink_to("nowhere")
    make(*(str(written.with_name(each)) for each in (f"{name}.txt", ".training-monitor-mine.tmp", "a.tmp", f"a{name}")))
    os.utime(written, (2e9, 2e9))
    before = names_beside(written)
    remove_left_beside(str(written))
    assert names_beside(written) == before
    make(str(written.with_name(temporary_of_script())))
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        remove_left_beside(str(written))
    assert len(names_beside(written)) == len(before) + 1
    remove_left_beside(str(written))
    assert names_beside(written) == before
