"""`wait`: wait until a training ends, stalls, reaches a step, writes a checkpoint or logs a given line."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace

from training_monitor.cli.argument_types import SECONDS_ABOVE_ZERO, STALLS, CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, UNKNOWN, hint, interrupted_status, print_json, print_table, say
from training_monitor.core.errors import SettingsError
from training_monitor.core.outcomes import WaitReport
from training_monitor.core.units import format_duration

TOLD_EVERY = 300.0  # seconds between two lines on a terminal
_EXITS = {"met": OK, "missed": BAD}


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)
    command.what()
    command.several(
        "--for",
        "CONDITION",
        "finished (default), failed, stalled, step=N, epoch=N, gpu-idle[=DURATION] (default: 5m), "
        "checkpoint (new and complete) or log=REGEX (new line); if repeated, wait for any of them",
        dest="conditions",
    )
    command.value("--handle", "NAME", "name of the wait; without --for, resume this wait")
    command.flag("--list", "list the saved waits")
    command.duration("--timeout", "maximum time to wait (default: no limit)")
    command.duration(
        "--leave-after",
        "return after this time; resume the wait with --handle",
        type=SECONDS_ABOVE_ZERO,
    )
    command.duration("--interval", "time between looks (default: it grows from 2s to 1m)")
    command.duration("--stall-after", f"{STALLS} (default: derived from the pace)")
    command.value(
        "--checkpoint-dir",
        "DIR",
        "the training's checkpoint folder, for --for checkpoint (default: detected if possible)",
    )


def run(args: Namespace) -> int:
    if args.list:
        return _list_waits(args)
    if args.checkpoint_dir is not None and "checkpoint" not in args.conditions:
        raise SettingsError("--checkpoint-dir", args.checkpoint_dir, "--for checkpoint as well")
    from training_monitor.supervision.kept_waits import new_handle

    handle = args.handle or new_handle()
    try:
        report = _wait(args, handle)
    except KeyboardInterrupt as interrupt:
        hint(f"\nno longer waiting; to resume: training-monitor wait --handle {handle}")
        raise SystemExit(interrupted_status(interrupt)) from None
    if not print_json(args, report):
        say(f"{report.name or report.target}: {report.reason}")
        for error in report.errors:
            hint(f"not known: {error}")
        for remedy in () if report.outcome in _EXITS else report.remedies:  # the end of a training is one line
            hint(f"try: {remedy}")
    return _exit_of(report)


def _wait(args: Namespace, handle: str) -> WaitReport:
    from training_monitor.supervision.waiting import continue_wait, wait_for

    news, stopping = _News(handle), None
    if args.leave_after:
        stopping = threading.Event()
        leave = threading.Timer(args.leave_after, stopping.set)
        leave.daemon = True
        leave.start()
    begins = any(each is not None for each in (args.what, args.timeout, args.interval, args.stall_after))
    if args.handle and not (args.conditions or begins):
        return continue_wait(handle, on_look=news.tell, stopping=stopping)
    if args.handle and not (args.conditions or args.leave_after):
        raise SettingsError("--for", None, "a condition (or only --handle, to resume a wait)")
    return wait_for(
        args.target,
        args.what,
        args.conditions or ("finished",),
        args.timeout,
        handle,
        args.namespace,
        interval=args.interval,
        stagnation_threshold=args.stall_after,
        checkpoint_dir=args.checkpoint_dir,
        on_look=news.tell,
        stopping=stopping,
    )


def _exit_of(report: WaitReport) -> int:
    """Return 0 for a condition that holds and is not bad, 1 for another end, 3 if time ran out or nothing is known."""
    from training_monitor.supervision.conditions import BAD as BAD_CONDITIONS

    return BAD if report.condition in BAD_CONDITIONS else _EXITS.get(report.outcome, UNKNOWN)


class _News:
    """Tells on a terminal what is waited for, at first and then rarely; elsewhere nothing."""

    def __init__(self, handle: str) -> None:
        self._handle = handle
        self._told_at: float | None = None

    def tell(self, said: str) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or (self._told_at is not None and now - self._told_at < TOLD_EVERY):
            return
        hint(f"waiting (handle {self._handle})  {said}" if self._told_at is None else said)
        self._told_at = now


def _list_waits(args: Namespace) -> int:
    """Print the waits that are kept, the last written first."""
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.supervision.kept_waits import list_waits

    waits = list_waits(BestEffortStore())
    if print_json(Namespace(subcommand=args.subcommand, json=args.json), {"waits": waits}):  # of all targets
        return OK
    now = time.time()
    rows = []
    for each in waits:
        said = f"{each.result.outcome}: {each.result.reason}" if each.result else "not ended"
        began = f"{format_duration(max(0.0, now - each.began_at))} ago"
        what = " ".join(filter(None, (each.asked.target, each.asked.what)))
        rows.append((each.handle, began, what, " or ".join(each.asked.conditions), said))
    if rows:
        print_table(("HANDLE", "BEGAN", "TRAINING", "FOR", "RESULT"), rows, gives_way=(4, 3, 2))
    else:
        hint("no saved waits")
    return OK


COMMAND = Command(
    run,
    declare,
    (
        "local 12345 && ./evaluate.sh",
        "my-pod my-training --timeout 1h",
        "my-pod my-training --for step=1000 --for checkpoint --handle first-save --json",
        "ssh://me@gpu1 --for gpu-idle=10m --for 'log=val_acc=0\\.9'",
        "--handle first-save --leave-after 1m",
    ),
)
