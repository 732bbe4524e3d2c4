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
    2: "usage error",
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
    "monitor trainings": {
        "check": "report whether trainings on this machine or TARGET are making progress",
        "why": "explain a hang: the state and stack of each rank, and the one that the others wait for",
        "wait": "wait until a training ends, stalls, reaches a step, writes a checkpoint or logs a given line",
        "status": "print one job's status, or list all jobs of a target",
        "logs": "print the end of a job's log",
        "vast": "show vast.ai instances on one screen: training, GPUs, cost, alerts",
        "fleet": "show pods, ssh hosts, vast.ai instances and local jobs on one screen",
        "web": "show the fleet in a browser: live table, charts, attempts, alerts, cost",
        "metrics": "export the fleet's metrics for Prometheus: to standard output, or to a file for node_exporter",
        "top": "show runs that write progress files: processes, signals, variables, outputs, CSV",
        "history": "show the history of trainings: trends, tables, cost per day, CSV",
    },
    "supervise trainings and upload checkpoints": {
        "run": "supervise a command and restart it from its checkpoints",
        "restart": "supervise a Ray or Slurm job and restart it from its checkpoints",
        "watch": "follow a training in the terminal, send notices, and end it when it stalls (--terminate)",
        "stop": "end a training and verify that it is gone; can upload its newest checkpoint and destroy its instance",
        "upload": "upload a file or folder from the target, and verify that it arrived",
    },
    "inspect hardware and checkpoints": {
        "health": "print one report and verdict on GPUs, network, checkpoints, Ray, pods, disks",
        "gpu": "print GPU utilization, memory, power and processes",
        "checkpoints": "list a folder's checkpoints and whether they are complete",
    },
    "train on rented machines": {
        "rent launch": "train on a rented vast.ai machine: queue the job, or run it now (--watch)",
        "rent queue": "list the trainings on rented machines; show or cancel one",
        "rent worker": "process the queue of jobs on rented machines",
        "rent sweep": "find instances that no training needs; destroy them with --force",
        "rent instances": "list your vast.ai instances, their trainings and costs",
        "rent offers": "list vast.ai's offers, best first",
        "rent dataset": "check whether a folder of images is fit for training",
        "rent keys": "check that rented machines will accept your ssh key",
        "rent credits": "show a ledger account, or your vast.ai credit and how long it will last",
    },
    "set up training-monitor": {
        "mcp": ("run an MCP server on stdin and stdout; its tools only read, unless you pass --allow-write"),
        "demo": "watch a real training process crash, hang and recover (half a minute, no GPU or account needed)",
        "doctor": "check the tools, contexts and keys of this machine, and suggest fixes",
        "notify": "test the notification channels, send a notice, or list the notices sent",
        "skill": "print the skill for AI agents, or install it in their skill folders",
        "completion": "print a script for bash, zsh or fish that completes commands, options, files and known targets",
        "config": "show which settings file is used, check it, or write a new one with every key",
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
        + f"\nexit code:\n{statuses}\n`training-monitor COMMAND --help` shows its options and examples."
    )
