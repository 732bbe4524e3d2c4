"""Paths among the arguments of a tool: what they name can be read if it belongs to a training that was found.

`core/read_fence.py` refuses all others, wherever a question of this package reads a file; no tool has to ask for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from training_monitor.core.errors import TrainingMonitorError

_FOLDERS = frozenset({"checkpoint_dir", "directory", "log", "output_dir", "path", "pid_file"})
_NO_PATHS = frozenset(
    {"target", "targets", "namespace", "pods", "also", "name", "job_name", "command", "destination", "reason"}
)


def find_first(arguments: Mapping[str, Any]) -> None:
    """Find the trainings of the target, where an argument may name a file: those of trainings can be read then."""
    targets = [*_targets_of_files(arguments)]
    if not targets:
        return
    from training_monitor.look.find_trainings import find_question
    from training_monitor.look.meant import note_found, reach
    from training_monitor.targets.asking import Site

    for target in dict.fromkeys(targets):
        with suppress(TrainingMonitorError):  # the tool itself says what is wrong with the target
            site = reach(Site.of(target, arguments.get("namespace", "default")))
            note_found(site, site.ask_one(find_question()))


def _targets_of_files(arguments: Mapping[str, Any]) -> Iterator[str]:
    texts = [*_texts(arguments)]
    if "target" in arguments and any(_may_name_file(name, text) for name, text in texts):
        yield arguments["target"]
    for name, text in texts:
        target, _, file = text.partition("#")
        if name == "targets" and _may_name_file("what", file):
            yield target


def _may_name_file(name: str, text: str) -> bool:
    from training_monitor.look.meant import is_path, is_pid

    return name not in _NO_PATHS and (name in _FOLDERS or is_path(text) or is_pid(text))


def _texts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in arguments.items():
        yield from ((name, each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
