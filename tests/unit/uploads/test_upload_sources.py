"""Which files of a checkpoint are uploaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from training_monitor.core.errors import CommandFailed
from training_monitor.targets.asking import ask
from training_monitor.uploads.checkpoint import _files_question


def test_weights_that_are_symbolic_links_are_uploaded_too(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").symlink_to("../blob")
    (folder / "gone.pt").symlink_to("nowhere")
    (folder / "all").symlink_to("/")
    [answer] = ask("local", _files_question(str(folder)))
    assert answer.get() == ["config.json", "model.safetensors"]


def test_a_folder_that_cannot_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = tmp_path / "bin" / "find"  # as it ends where it may not read a folder
    find.parent.mkdir()
    find.write_text(f'#!/bin/sh\n{shutil.which("find")} "$@"; exit 1\n')
    find.chmod(0o755)
    monkeypatch.setenv("PATH", f"{find.parent}:{os.environ['PATH']}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    [answer] = ask("local", _files_question(str(tmp_path)))
    with pytest.raises(CommandFailed, match="a folder that cannot be read"):
        answer.get()
