"""`metrics`: what a fleet sees, in the text format of Prometheus, once on stdout or again and again in a file."""

from __future__ import annotations

import os
import stat
import threading
from argparse import Namespace
from typing import TYPE_CHECKING, NoReturn

from training_monitor.cli.argument_types import FILES, CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_any_members, add_fleet_looks
from training_monitor.cli.output import complain, hint, put_masked
from training_monitor.core.errors import SettingsError, TrainingMonitorError

if TYPE_CHECKING:
    from training_monitor.fleet import FleetConfig, FleetMonitor

LEAST_SECONDS = 1.0  # between two writes: the looks of a round do not end all at once


def declare(command: CommandParser) -> None:
    add_any_members(command)
    command.value(
        "--textfile",
        "PATH",
        "write this .prom file for node_exporter after every look",
        FILES,
    )
    command.flag("--once", "exit after one look (default without --textfile)")
    add_fleet_looks(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.fleet import changed_config, open_meant
    from training_monitor.fleet import FleetConfig, load_fleet_config

    if args.json:
        args.parser.error("metrics has no JSON output; use `fleet --once --json`")
    config = changed_config(FleetConfig() if args.mock else load_fleet_config(), args)
    with open_meant(args, config) as monitor:
        if args.textfile and not args.once:
            _keep_written(monitor, os.path.abspath(args.textfile), config)
        return _write_once(monitor, args.textfile, config)


def _write_once(monitor: FleetMonitor, path: str | None, config: FleetConfig) -> int:
    from training_monitor.cli.fleet import fleet_status
    from training_monitor.fleet.prometheus import format_metrics

    monitor.update_all_metrics()
    snapshot = monitor.snapshot()
    text = format_metrics(snapshot, config.thresholds)
    if path:
        write_textfile(os.path.abspath(path), text)
    else:
        put_masked(text)
    if snapshot.error:
        complain(snapshot.error)
    return fleet_status(snapshot, config)


def _keep_written(monitor: FleetMonitor, path: str, config: FleetConfig) -> NoReturn:
    """Write after every look, until a signal ends it. Then the file only says when the last look was."""
    from training_monitor.cli.fleet import log_beside_the_screen
    from training_monitor.core.long_running import prepare_for_long
    from training_monitor.fleet.prometheus import format_last_look, format_metrics
    from training_monitor.runs.files import remove_left_beside

    prepare_for_long()
    log_beside_the_screen()
    changed, said = threading.Event(), ""
    monitor.listen(changed.set)
    try:
        write_textfile(path, format_metrics(monitor.snapshot(), config.thresholds))
        remove_left_beside(path)
        hint(f"writing metrics to {path} every {config.interval:g} s, until SIGTERM or Ctrl-C")
        monitor.start()
        while True:
            monitor.clock.wait(changed, config.interval)
            changed.clear()
            said = _write_again(path, format_metrics(monitor.snapshot(), config.thresholds), said)
            monitor.clock.sleep(LEAST_SECONDS)
    except KeyboardInterrupt:
        _write_again(path, format_last_look(monitor.snapshot()), said)
        raise


def _write_again(path: str, text: str, said: str) -> str:
    """Write, and print the error if it differs from the one before. Returns the current error."""
    try:
        write_textfile(path, text)
        return ""
    except TrainingMonitorError as error:
        if str(error) != said:
            complain(error.spell("shell"))
        return str(error)


def write_textfile(path: str, text: str) -> None:
    """Replace a file at once by one that all users can read.

    Raises:
        SettingsError: it is not a regular file, or its folder takes no file.
    """
    from training_monitor.runs.files import write_atomically

    try:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise SettingsError("--textfile", path, "a regular file, or the path of a new file")
        write_atomically(path, text, public=True)
    except OSError as error:
        raise SettingsError("--textfile", path, f"a writable file ({error.strerror})") from error


COMMAND = Command(
    run,
    declare,
    ("my-pod ssh://me@gpu1", "nightly --textfile /var/lib/prometheus/node-exporter/fleet.prom"),
)
