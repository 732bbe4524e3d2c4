"""Which command a notice gives to be typed next, as a line for a shell. Pure."""

from __future__ import annotations

import shlex

from training_monitor.watching import WatchedJob

_OF_MACHINES = (
    "instance_destroyed", "instance_gone", "instance_kept", "instance_swept", "instance_not_destroyed",
    "orphan_instance", "fleet_lost", "fleet_price", "fleet_destroyed", "fleet_gone", "fleet_stopped",
)  # fmt: skip
_OF_CREDIT = ("credit_low", "fleet_credit", "fleet_budget")
_OF_REACHING = ("unreachable", "state_unwritable", "fleet_unreachable", "fleet_state_unwritable")


def command_line(*words: str) -> str:
    """Our program with these words, quoted; from a word on that no terminal can show or that begins like an option,
    the rest is left out."""
    fit = [word.isprintable() and not word.startswith("-") for word in words]
    shown = words[: fit.index(False)] if False in fit else words
    return shlex.join(("training-monitor", *shown))


def next_command(kind: str, target: str | None, what: str | None = None) -> str:
    """What to type after a notice of this kind, about a training (`what`, as `check` takes it) on a target."""
    if kind in _OF_MACHINES:
        return command_line("instances")
    if kind in _OF_CREDIT:
        return command_line("credits")
    if kind in _OF_REACHING or target is None:
        return command_line("doctor", *([target] if target else []))
    if kind == "taken_over":
        return command_line("status", target)
    return command_line("check", target, *([what] if what else []))


def word_for(job: WatchedJob) -> str:
    """The word by which `check` finds this training."""
    return job.job_id or job.log_file or next(iter(job.log_paths), None) or str(job.pid)
