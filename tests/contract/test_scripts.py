"""The sh scripts that run on targets, as shellcheck (https://www.shellcheck.net) sees them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.requirements import require
from training_monitor.core.read_fence import READ_UNDER
from training_monitor.targets.scripts import format_call, read_subject

FOLDER = Path(__file__).parents[2] / "training_monitor" / "targets" / "sh"
USUAL = "SC2034"  # what functions set for whoever calls them
NAMES = ("dir", "file", "files", "folder", "log", "model", "path", "paths", "pid_file", "root", "old", "new", "owned")
NOT_READ = {  # variables with a name of a path whose contents no question of a person or model gets
    "slurm_jobs._folder": "where a job is submitted",
    "copying.folder": "copies of a rented machine's folder, into the folder that a job has here",
    "hub._path": "an upload, which begins with a question of upload_sources",
    "job_start._folder": "where a command is run",
    "pid_file.owned": "only its owner is looked at",
    "ray_forgotten._log": "the name of a log in Ray's own folder",
    "ray_driver_log._log": "the name of a log in Ray's own folder",
    "ray_log._path": "of Ray's REST interface",
    "ray_wait._path": "of Ray's REST interface",
    "run_changes.root": "a screen's edits of runs, which no tool of a model makes",
    "run_changes.old": "the same",
    "run_changes.new": "the same",
    "run_changes.paths": "the same",
    "run_changes.control_folder": "the same",
    "run_changes.run_folder": "the same",
    "run_signals.files": "the same",
    "former_attempts.old": "seconds",
    "samples._folder": "samples of a model that was just trained on a rented machine",
    "samples._model": "the same",
    "upload_pieces.file": "an upload, which begins with a question of upload_sources",
}


def test_every_variable_that_names_a_file_is_declared_as_a_path() -> None:
    for path in sorted(FOLDER.glob("*.sh")):
        text = path.read_text(encoding="utf-8")
        needed = {name for line in re.findall(r"^# needs: (.*)$", text, re.MULTILINE) for name in line.split()}
        declared = {name for line in re.findall(r"^# paths: (.*)$", text, re.MULTILINE) for name in line.split()}
        named = {name for name in needed if _is_name_of_file(name)}
        unread = {name.partition(".")[2] for name in NOT_READ if name.startswith(f"{path.stem}.")}
        assert declared <= needed and unread <= named, path.name
        assert named - declared == unread, f"{path.name}: declare them after `# paths:`, so that fence.sh checks them"


def _is_name_of_file(name: str) -> bool:
    return (name.rpartition("_")[2] in NAMES or name.lstrip("_") in NAMES) and not name.lstrip("_").startswith("most_")


def test_a_path_is_checked_only_where_a_fence_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(READ_UNDER, raising=False)
    assert "fence" not in format_call("log", "read_new", file="x", inode="")
    monkeypatch.setenv(READ_UNDER, "[]")
    assert format_call("log", "read_new", file="x", inode="").endswith("fence file 8\nread_new\n")
    assert "fence" not in format_call("gpu", "show")


def test_shellcheck_finds_nothing_in_them() -> None:
    shellcheck, said = require("shellcheck"), ""
    for path in sorted(FOLDER.glob("*.sh")):
        needed, text = read_subject(path.stem)
        given = "".join(f"{name}=$1\n" for name in sorted(needed))
        command = [shellcheck, "--shell=sh", "--severity=warning", f"--exclude={USUAL}", "-"]
        found = subprocess.run(command, input=given + text, capture_output=True, text=True, timeout=60)
        said += f"{path.name}: {found.stdout}\n" if found.returncode else ""
    assert not said, said
