"""Paths among the arguments of a tool: what they name can be read if it belongs to a training that was found.

`core/read_fence.py` refuses all others, wherever a question of this package reads a file; no tool has to ask for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from training_monitor.core.errors import TrainingMonitorError

_FOLDERS = ("checkpoint_dir", "directory", "path")
_TRAININGS = ("what", "job")


def find_first(arguments: Mapping[str, Any]) -> None:
    """Find the trainings of the target, where an argument may name a file: those of trainings can be read then."""
    targets = dict.fromkeys(_targets_of_files(arguments))
    if not targets:
        return
    from training_monitor.look.find_trainings import find_question
    from training_monitor.look.meant import note_found, reach
    from training_monitor.targets.asking import Site
    from training_monitor.targets.kinds import is_bare
    from training_monitor.targets.kinds.pod import namespace_of_context

    for target in targets:
        with suppress(TrainingMonitorError):  # the tool itself says what is wrong with the target
            namespace = arguments.get("namespace") or (namespace_of_context() if is_bare(target) else "default")
            site = reach(Site.of(target, namespace))
            note_found(site, site.ask_one(find_question(own=site.target.own_processes)))


def _targets_of_files(arguments: Mapping[str, Any]) -> Iterator[str]:
    from training_monitor.look.meant import is_path, is_pid

    named = [arguments.get(name, "") for name in _TRAININGS]
    if any(name in arguments for name in _FOLDERS) or any(is_path(each) or is_pid(each) for each in named):
        yield arguments.get("target", "local")
    for text in arguments.get("targets", ()):
        target, _, file = text.partition("#")
        if is_path(file) or is_pid(file):
            yield target
