"""`demo`: watch a real training process crash, hang and recover (20 s, needs nothing)."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.command_table import Command


def run(args: Namespace) -> int:
    from training_monitor.cli.supervising import demo

    return demo(args)


COMMAND = Command(run, None, ("",))
