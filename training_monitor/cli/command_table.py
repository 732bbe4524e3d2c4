"""The commands of the command line, and its first page. A command is a line of GROUPS, and a file in `commands/`:
`rent keys` is `commands/rent/keys.py`.

Nothing is imported here.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from training_monitor.cli.argument_types import CommandParser

DESCRIPTION = "Watch GPU training from outside and act on it."
EXIT_STATUSES = {
    0: "ok",
    1: "unhealthy or failed",
    2: "wrong use",
    3: "unknown",
    4: "taken over by another supervisor",
}


class Command:
    """What the file of a command declares: the function that runs it, the one that declares its arguments, examples."""

    __slots__ = ("declare", "examples", "run")

    def __init__(
        self,
        run: Callable[[Namespace], int],
        declare: Callable[[CommandParser], None] | None,
        examples: tuple[str, ...],
    ) -> None:
        self.run = run
        self.declare = declare
        self.examples = examples


GROUPS: dict[str, dict[str, str]] = {
    "look at trainings": {
        "check": "whether trainings make progress, here or on TARGET: all that are found, or one",
        "why": "why a training hangs: what all its ranks do, their stacks, and which one the others wait for",
        "wait": "wait until a training ends or stalls, or until a step, a checkpoint, a line of its log",
        "status": "one job's status, or all jobs of a target",
        "logs": "the end of a job's log",
        "vast": "vast.ai instances on one screen: training, GPUs, cost, alerts",
        "fleet": "pods, ssh hosts, vast.ai instances and local jobs on one screen",
        "web": "the same in a browser: live table, charts, attempts, alerts, cost",
        "metrics": "what `fleet` sees, for Prometheus: on stdout, or in a file for node_exporter",
        "top": "runs that write progress files: processes, signals, variables, outputs, CSV",
        "history": "what was seen of trainings earlier: trends, tables, cost by day, CSV",
    },
    "supervise and save": {
        "run": "supervise a command: run it and restart it from its checkpoints",
        "restart": "supervise a Ray or Slurm job and restart it from its checkpoints",
        "watch": "follow a training on a screen, send notices, and end it when it stalls, if you say so",
        "stop": "end a training and see it gone; upload its newest checkpoint, destroy what was rented",
        "upload": "upload a file or folder from the target, and see that it arrived",
    },
    "read one thing": {
        "health": "one report and verdict on GPUs, network, checkpoints, Ray, pods, disks",
        "gpu": "GPU utilisation, memory, power, processes",
        "checkpoints": "checkpoints of a folder, and which are complete",
    },
    "train on rented machines": {
        "rent launch": "train on a rented vast.ai machine: queue it, or do it here with --watch",
        "rent queue": "the trainings on rented machines; show or cancel one",
        "rent worker": "work through the queue: rent, train, save, destroy",
        "rent sweep": "find rented instances that no training needs; destroy them with --force",
        "rent instances": "what is rented at vast.ai, for which training, and what it costs",
        "rent offers": "what is for rent at vast.ai, best first",
        "rent dataset": "whether a folder of images is fit to train with",
        "rent keys": "whether rented machines will let your ssh key in",
        "rent credits": "vast.ai's credit and how long it lasts; or an account of the ledger",
    },
    "set up": {
        "mcp": "a server for MCP clients, on stdin and stdout: a tool for each look, and acts if you allow them",
        "demo": "watch a real training process crash, hang and recover (about half a minute, needs nothing)",
        "doctor": "which tools, contexts and keys work here, and what to do",
        "notify": "prove the channels that notices go by, send one, or list those sent",
        "skill": "the skill for AI agents: print it, or put it where they look",
        "completion": "a script for bash, zsh or fish that completes commands, options, files and known targets",
        "config": "which settings file is read, what is wrong with it, or a new one with every key",
    },
}


def list_commands() -> dict[str, str]:
    """Return the help of each command, by its name."""
    return {name: help for group in GROUPS.values() for name, help in group.items()}


def find_command(words: Sequence[str]) -> str | None:
    """Return the command that a command line begins with, or `rent` of which it names none; None if there is none."""
    names = list_commands()
    for name in (" ".join(words[:2]), *words[:1]):
        if name in names or any(each.startswith(f"{name} ") for each in names):
            return name
    return None


def command_named(name: str) -> Command:
    """Return a command of the table, from its file."""
    module = f"training_monitor.cli.commands.{name.replace(' ', '.')}"
    __import__(module)
    found: Command = sys.modules[module].COMMAND
    return found


def format_groups(only: str = "") -> str:
    """Return the commands by group, or those of one, and what is to be known of all."""
    groups = (
        f"{title}:\n" + "".join(f"  {name:<15} {help}\n" for name, help in group.items() if name.startswith(only))
        for title, group in GROUPS.items()
        if any(name.startswith(only) for name in group)
    )
    statuses = "".join(f"  {number:<15} {meaning}\n" for number, meaning in EXIT_STATUSES.items())
    return (
        "\n".join(groups)
        + f"\nexit status:\n{statuses}\n`training-monitor COMMAND --help` shows its options and examples."
    )
