"""`top`: runs that write progress files: processes, signals, variables, outputs, CSV."""

from __future__ import annotations

import os
import sys
import threading
from argparse import Namespace
from typing import Any

from training_monitor.cli.argument_types import FOLDERS, CommandParser, positive_number, seconds_from
from training_monitor.cli.command_table import Command
from training_monitor.cli.keys import verdict_keys
from training_monitor.cli.output import EXITS, OK, can_show_screen, complain, hint, print_json, put_lines, table_width
from training_monitor.core.engine import begin_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.fields import keys_of
from training_monitor.core.units import plural
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.csv_export import RunCsv
from training_monitor.runs.local_runs import open_runs
from training_monitor.runs.rows import loss_of, metric_value
from training_monitor.runs.values import EDITABLE_TYPES, RUNNING, UNKNOWN, Limits, RunsSnapshot
from training_monitor.targets.kinds import list_folder_forms, one_of
from training_monitor.verdict.judge import VERDICTS

PIPED_WIDTH = 200
_CPU_SECONDS, _WRITE_SECONDS = 1.0, 2.5  # a run writes every two seconds
LEAVE_SECONDS, INTERRUPTED_SECONDS = 2.0, 0.3  # how long to wait for pending actions
CSV_DIR = "./train/statistics/data"
_SECONDS = seconds_from(0.1, below=1e6)


def declare(command: CommandParser) -> None:
    command.value(
        "folder",
        "FOLDER",
        f"folder with the runs' progress files: {one_of(['a local folder', *list_folder_forms()])}",
        FOLDERS,
    )
    command.namespace()
    command.duration("--interval", "time between refreshes (default: 2s)", default=2.0, type=_SECONDS, short="-i")
    command.value("--max-cpus", "CORES", "CPU cores that the runs may use (default: all)", type=positive_number)
    command.value("--max-ram", "GB", "host memory that the runs may use (default: all)", type=positive_number)
    command.value("--max-gpu", "GB", "GPU memory that the runs may use (default: all)", type=positive_number)
    command.duration("--csv-interval", "time between rows in CSV files (default: no CSV files)", type=_SECONDS)
    command.value("--csv-dir", "PATH", "folder for the CSV files (default: %(default)s)", FOLDERS, default=CSV_DIR)
    mode = command.add_mutually_exclusive_group()
    mode.add_argument(
        "--headless",
        action="store_true",
        help="do not show a screen: only write CSV files, or with --json print one line per refresh",
    )
    mode.add_argument("--once", action="store_true", help="print one table and exit (default without a terminal)")
    command.flag("--read-only", "disable all keys that signal, edit or delete anything")
    page = command.add_mutually_exclusive_group()
    page.add_argument("--output", metavar="RUN", help="open the screen at the output of this run")
    page.add_argument("--edit", metavar="RUN", help="open the screen at the variables of this run")


def run(args: Namespace) -> int:
    """Run the command and return the exit code."""
    is_screen = can_show_screen() and not (args.headless or args.once or args.json)
    _check(args, is_screen)
    collector = RunCollector(
        open_runs(args.folder, namespace=args.namespace),
        interval=args.interval,
        limits=Limits(args.max_cpus, args.max_ram, args.max_gpu),
        where=args.folder,
    )
    if args.headless:
        _collect(collector, args)
    elif is_screen:
        _show(collector, args)
        return OK
    snapshot = look_twice_if_needed(collector)
    if args.json:
        print_json(args, snapshot_keys(snapshot), _verdict_of(snapshot))
    elif snapshot.error is None:
        _print_table(snapshot)
    if snapshot.error:
        complain(snapshot.error)
    return EXITS[_verdict_of(snapshot)]


def look_twice_if_needed(collector: RunCollector) -> RunsSnapshot:
    """Look once, and again soon for what takes two looks: the CPU usage, and whether a file of elsewhere changes."""
    first = collector.look_once()
    is_silent = any(row.status == UNKNOWN and row.run.status == RUNNING and row.run.updated_at for row in first.rows)
    if first.error or not (is_silent or any(row.cpu_percent is None for row in first.rows if row.tree)):
        return first
    collector.clock.sleep(_WRITE_SECONDS if is_silent else _CPU_SECONDS)
    second = collector.look_once()
    return first if second.error else second


def _check(args: Namespace, is_screen: bool) -> None:
    """End with status 2 when the options contradict one another."""
    if args.headless and not (args.csv_interval or args.json):
        args.parser.error("--headless needs --csv-interval or --json, because it shows no screen")
    if args.csv_interval and not (args.headless or is_screen):
        args.parser.error("--csv-interval needs --headless or a terminal")


def _verdict_of(snapshot: RunsSnapshot) -> str:
    """Return the worst verdict of the runs; unknown when the folder could not be asked."""
    if snapshot.error:
        return "unknown"
    return max((row.verdict.verdict for row in snapshot.rows), key=VERDICTS.index, default="ok")


def snapshot_keys(snapshot: RunsSnapshot) -> dict[str, Any]:
    """Return the keys of the JSON document."""
    keys = keys_of(snapshot, is_refreshing="refreshing", rows="runs")
    for row, told in zip(snapshot.rows, keys["runs"]):
        told |= {**verdict_keys(row.verdict), "loss": loss_of(row.run)}
        if row.status == RUNNING and row.reason:  # otherwise the verdict includes it
            told["reason"] += f"; {row.reason}"
        told["run"]["metrics"] = {name: metric_value(value) for name, value in row.run.metrics.items()}
        for variable in told["run"]["variables"]:
            variable["editable"] = variable["type"] in EDITABLE_TYPES
    return keys


def _print_table(snapshot: RunsSnapshot) -> None:
    """Print the screen's table."""
    from training_monitor.ui.kit.terminal import terminal_glyphs
    from training_monitor.ui.top.main import table_text

    put_lines(table_text(snapshot, table_width(PIPED_WIDTH), terminal_glyphs()))


def _collect(collector: RunCollector, args: Namespace) -> None:
    """Look and write, until a signal ends it."""
    file = RunCsv(args.csv_dir) if args.csv_interval else None
    every, clock, said = args.csv_interval or args.interval, collector.clock, ""
    what = f"CSV files in {os.path.abspath(args.csv_dir)}" if file else "JSON lines"
    hint(f"{args.folder}: {what} every {every:g} s, until SIGTERM or Ctrl-C")
    while True:
        began = clock.monotonic()
        snapshot = collector.look_once()
        if args.json:
            print_json(args, snapshot_keys(snapshot), _verdict_of(snapshot))
        said = _complain_once(snapshot, said)
        if file:
            try:
                file.write(snapshot)
            except TrainingMonitorError as error:
                complain(error.spell("shell"))
        clock.sleep(began + every - clock.monotonic())


def _complain_once(snapshot: RunsSnapshot, said: str) -> str:
    """Print the error of a look if it differs from the one before. Returns the current error."""
    error = snapshot.error or snapshot.machine_error or ""
    if error and error != said:
        complain(error)
    elif said and not error:
        hint(f"{snapshot.where}: it responds again, with {plural(len(snapshot.rows), 'run')}")
    return error


def _show(collector: RunCollector, args: Namespace) -> None:
    """Show the screen, and write CSV files if requested."""
    from training_monitor.ui.top.app import run_top

    ended = threading.Event()
    if args.csv_interval:
        file = RunCsv(args.csv_dir)
        if not begin_thread(lambda: _keep_csv(collector, file, args.csv_interval, ended), "CSV"):
            raise TrainingMonitorError(
                "cannot start a thread to write the CSV files", hint="stop other programs on this machine"
            )
    patience = INTERRUPTED_SECONDS
    try:
        begin = ("output", args.output) if args.output else ("editor", args.edit) if args.edit else None
        command = _command_of(args)
        run_top(collector, read_only=args.read_only, title=args.folder, begin=begin, command=command)
        patience = LEAVE_SECONDS
    finally:
        ended.set()
        _await_acts(collector, patience)


def _command_of(args: Namespace) -> list[str]:
    """Return the command line that starts this screen again."""
    command = [sys.executable, "-m", "training_monitor", "top", f"--interval={args.interval:g}"]
    command += [f"--namespace={args.namespace}", *(["--read-only"] if args.read_only else [])]
    limits = (("--max-cpus", args.max_cpus), ("--max-ram", args.max_ram), ("--max-gpu", args.max_gpu))
    return [*command, *(f"{name}={value:g}" for name, value in limits if value is not None), args.folder]


def _await_acts(collector: RunCollector, seconds: float) -> None:
    """Wait briefly for pending actions, which would end with this program, perhaps half done."""
    from training_monitor.ui.kit.text import gain

    acts, told = collector.acts(), collector.messages()
    if not acts:
        return
    hint(f"waiting for at most {seconds:g} s for: {'; '.join(acts)}")
    left = collector.wait_for_acts(seconds)
    for message in gain(told, collector.messages()):
        hint(message.text)
    for act in left:
        complain(f"{act}: no response yet, so the result is unknown. Try: check the run again")


def _keep_csv(collector: RunCollector, file: RunCsv, every: float, ended: threading.Event) -> None:
    while not ended.wait(every):
        try:
            file.write(collector.snapshot())
        except TrainingMonitorError as error:
            collector.tell(f"failed to write CSV files: {error}")


COMMAND = Command(run, declare, ("progress", "ssh://me@gpu1/home/me/progress", "progress --once"))
