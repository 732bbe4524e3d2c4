"""`rent sweep`: find rented instances that no training needs; destroy them with --force."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

from training_monitor.cli.output import BAD, OK, UNKNOWN, complain, hint, interrupted_status, one_line, print_json, say
from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Event
from training_monitor.core.units import format_duration, plural
from training_monitor.vast import list_instances
from training_monitor.vast.training_request import JobState

if TYPE_CHECKING:
    from training_monitor.rent import ServiceConfig
    from training_monitor.rent.sweeper import SweepReport

from training_monitor.cli.argument_types import SECONDS_ABOVE_ZERO, CommandParser
from training_monitor.cli.command_table import Command

TOLD = ("stopping", "refused", "unreachable")  # events of a sweep; others are in its report


def declare(command: CommandParser) -> None:
    command.flag("--force", "destroy the instances (default: only list them)")
    command.flag(
        "--all", "with --force: destroy every instance of the account, even those that this package did not rent"
    )
    command.value("--confirm", "TEXT", "confirmation phrase that --all --force requires without a terminal")
    command.value(
        "--every",
        "DURATION",
        "repeat the sweep at this interval (default: 15m)",
        type=SECONDS_ABOVE_ZERO,
        nargs="?",
        const=900.0,
    )
    command.notify()


def run(args: Namespace) -> int:
    """Find the rented instances that no job needs; with --force destroy them."""
    from training_monitor.rent.queue import load_service_config

    config = load_service_config()
    if args.all and args.every:
        raise SettingsError(
            "--all", "--every", "only one of --all and --every, because --all requires confirmation each time"
        )
    if args.confirm is not None and not (args.all and args.force):
        raise SettingsError(
            "--confirm", args.confirm, "--all and --force as well: only --all with --force requires confirmation"
        )
    try:
        return _sweep(args, config)
    except KeyboardInterrupt as interrupt:
        left = "; run training-monitor rent instances to see what is left" if args.force else ""
        hint(f"\ninterrupted{left}")
        return interrupted_status(interrupt)


def _sweep(args: Namespace, config: ServiceConfig) -> int:
    if args.all and args.force:
        _confirm_all(args)
    from training_monitor.cli.live import Waiting
    from training_monitor.cli.notifying import open_outbox
    from training_monitor.rent.sweeper import sweep_instances, watch_sweeps

    with open_outbox(args.notify) as outbox, Waiting() as waiting:

        def tell(event: Event) -> None:
            waiting.on("sweep", event.text)
            if event.kind in TOLD and args.force:
                hint(event.text)

        def show(report: SweepReport) -> None:
            waiting.end("sweep")
            _show_sweep(report, args)

        sweep = partial(sweep_instances, not args.force, config=config, outbox=outbox, on_event=tell)
        if args.every:  # until an interrupt ends it
            watch_sweeps(sweep, args.every, threading.Event(), on_event=tell, on_report=show)
        waiting.on("sweep", "listing the rented instances")
        report = sweep(all_instances=args.all)
        show(report)
    if report["instances_checked"] is None:
        return UNKNOWN
    is_left = any(not JobState(job["state"]).is_terminal for job in report["jobs"])
    return BAD if report["errors"] or report["planned"] or is_left else OK


def _confirm_all(args: Namespace) -> None:
    """Require typing a sentence before everything is destroyed. Raises SettingsError."""
    count = len(list_instances())
    sentence = f"destroy all {plural(count, 'instance')}"
    typed = args.confirm
    if typed is None and sys.stdin.isatty():
        complain(
            f"this destroys all {plural(count, 'instance')} of the account, whoever rented them, with all their data"
        )
        typed = input(f"type `{sentence}` to continue: ")
    if typed != sentence:
        raise SettingsError("--confirm", typed, f"{sentence!r}, typed out")


def _show_sweep(report: SweepReport, args: Namespace) -> None:
    if print_json(args, report):
        return
    if args.every:
        say(time.strftime("%Y-%m-%d %H:%M:%S"))
    if report["skipped"]:
        hint("another sweep is running")
        return
    if report["instances_checked"] is not None:
        say(f"{plural(report['instances_checked'], 'instance')} checked")
    for row in (*report["terminated"], *report["planned"]):
        gone = "destroyed" if row["acknowledged"] else "gone"
        title = gone if row in report["terminated"] else "would be destroyed"
        say(f"  {row['instance_id']} {title}: {row['reason']}{_price(row['cost_per_hour'])}")
    for swept in report["jobs"]:
        became = "would be ended" if report["dry_run"] else f"is {swept['state'].lower()}"
        say(f"  job {swept['job_id']} {became}: {one_line(swept['reason'])}")
    for kept in report["kept"]:
        job = "" if kept["job_id"] is None else f" (job {kept['job_id']})"
        left = (
            ""
            if kept["seconds_left"] is None
            else f"; destroyed in {format_duration(kept['seconds_left'])} if nothing changes"
        )
        say(f"  {kept['instance_id']} stays{job}: {kept['reason']}{left}{_price(kept['cost_per_hour'])}")
    for alert in report["alerts"]:
        if alert["instance_id"] is None:  # the others are listed above
            say(f"  ! {alert['type']}: {alert['reason']}")
    named = {row["instance_id"] for row in (*report["terminated"], *report["planned"], *report["errors"])}
    for other in report["foreign"]:
        if other["instance_id"] in named:  # --all destroys foreign ones, too
            continue
        label = f" labelled {other['label']!r}" if other["label"] else ""
        what = f"{other['instance_id']} was not rented by this package{label}, and is left alone"
        say(f"  {what}{_price(other['cost_per_hour'])}")
    for error in report["errors"]:
        complain(f"{error['instance_id'] or 'the listing'}: {error['error']}")
    if report["planned"] or (report["dry_run"] and report["jobs"]):
        hint("nothing was destroyed: add --force")


def _price(cost_per_hour: float | None) -> str:
    return ", unknown cost" if cost_per_hour is None else f", ${cost_per_hour:.3f} per hour"


COMMAND = Command(run, declare, ("", "--force", "--every 15m"))
