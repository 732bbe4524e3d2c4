"""What a copying leaves in its folders while it goes on, and the removal of that when nothing goes on any more."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable

from training_monitor.models import Question
from training_monitor.parse.file_list import PARTIAL
from training_monitor.targets.asking import read_text


def clear_question(root: str, names: Iterable[str]) -> Question[str]:
    """Remove what was cut of these files, which are whole now, from their folders on a target."""
    folders = " ".join(shlex.quote(f"./{folder}") for folder in _folders(names))
    script = f"""cd {shlex.quote(root)} || exit
for _folder in {folders}; do
  _partial=$_folder/{PARTIAL}
  [ ! -d "$_partial" ] || [ -L "$_partial" ] || rm -rf "$_partial"
done 2>&1
"""
    return Question("cleared", script, read_text, limit=60.0)


def clear_here(root: str, names: Iterable[str]) -> None:
    """The same in a folder of this machine."""
    for folder in _folders(names):
        _remove(os.path.join(root, folder))


def clear_below(root: str) -> None:
    """Remove what was cut of any file below a folder of ours on this machine: nobody copies into it any more."""
    for folder, below, _ in os.walk(root):
        if PARTIAL in below:
            _remove(folder)
            below.remove(PARTIAL)


def _folders(names: Iterable[str]) -> list[str]:
    return sorted({os.path.dirname(name) for name in names} | {""})


def _remove(folder: str) -> None:
    shutil.rmtree(os.path.join(folder, PARTIAL), ignore_errors=True)  # which follows no links
