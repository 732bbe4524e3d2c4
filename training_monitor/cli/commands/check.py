"""`check`: report whether trainings are making progress, here or on TARGET: all of them, or one."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator

from training_monitor.cli.argument_types import STALLS, CommandParser, left_to_look
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import (
    EXITS,
    OK,
    UNCUT,
    UNKNOWN,
    USAGE,
    hint,
    padded,
    paint,
    print_json,
    put,
    refuse,
    say,
    table_width,
    wrapped,
)
from training_monitor.core.errors import CommandFailed, JobNotFound, SettingsError, closest
from training_monitor.core.reports import CheckReport, GpuCheckReport, JobCheckReport
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.units import format_bytes, format_duration, format_pace, plural
from training_monitor.core.values import NotSeen
from training_monitor.verdict.judge import ENDS

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red", "unknown": "blue"}
BAR_WIDTH = 24
_LABEL, _VERDICT, _LONGEST_NAME, _REACHED = 11, 10, 48, 18
_WITHOUT_ETA = ("stalled", "suspended", *ENDS)  # states without remaining time


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)
    command.what(or_all=True)
    command.duration("--stall-after", f"{STALLS} (default: derived from the pace)")
    command.duration("--sample", "take a second look after this time if the first is inconclusive (default: 0)", 0.0)
    command.value(
        "--field",
        "KEY",
        "print only the value of this JSON key (for example, step), one line per training; the exit code is 0 if "
        "the value is known",
    )
    command.time_limit(16)
    command.flag("--forget", "forget the ended trainings that earlier checks of TARGET found")


def run(args: Namespace) -> int:
    from training_monitor.look.check import check_training

    options = {"stagnation_threshold": args.stall_after, "forget_ended": args.forget, "timeout": left_to_look(args)}
    try:
        report = check_training(args.target, args.what, args.namespace, **options)
        if report["verdict"] == "unknown" and args.sample > 0:
            time.sleep(args.sample)
            first = report
            report = check_training(args.target, args.what, args.namespace, **options)
            report["forgotten"] += first["forgotten"]
    except (JobNotFound, CommandFailed) as error:  # not found, or of another kind: nothing was judged
        return refuse(error, args, USAGE)
    if print_json(args, report):
        return EXITS[report["verdict"]]
    if args.field is not None:
        return _print_field(report, args.field)
    show(report)
    if args.forget:
        hint(f"forgot {plural(report['forgotten'], 'ended training')} that earlier checks saw")
    return EXITS[report["verdict"]]


def _print_field(report: CheckReport, key: str) -> int:
    """Print one key of each training, and return OK, or UNKNOWN where one is not known."""
    if key not in JobCheckReport.__annotations__:
        raise SettingsError("--field", key, closest(key, JobCheckReport.__annotations__))
    if not (is_known := bool(report["jobs"])):
        hint(report["reason"])
    for job in report["jobs"]:
        value = job[key]  # type: ignore[literal-required]
        is_known &= value is not None
        if value is None:
            hint(f"{job['name']}: its {key} is unknown")
        else:
            say(value if isinstance(value, str) else json.dumps(value))
    return OK if is_known else UNKNOWN


def show(report: CheckReport) -> None:
    """Print one block for one training, one line each for several, worst first."""
    jobs = report["jobs"]
    if len(jobs) == 1:
        put("".join(f"{line}\n" for line in _block(jobs[0])))
    else:
        from training_monitor.ui.kit.text import cells

        room = (table_width(piped=UNCUT) - _VERDICT - _REACHED) // 2  # as much is left for what is said
        width = min(_LONGEST_NAME, room, max((cells(_name(job)) for job in jobs), default=0))
        put("".join(f"{_line(job, width)}\n" for job in jobs))
    if not jobs:
        put(f"{paint('UNKNOWN', _COLOURS['unknown'], sys.stdout):<9} {shown(report['reason'])}\n")
    for each in report["not_seen"]:
        put(f"? {_indented(str(NotSeen(**each)), 2)}\n")
    for remedy in report["remedies"]:
        hint(f"try: {_indented(remedy, 5)}")


def _verdict(job: JobCheckReport) -> str:
    return paint(f"{job['state'].upper():<9}", _COLOURS[job["verdict"]], sys.stdout)


def _name(job: JobCheckReport) -> str:
    """Return the name of a training; a PID alone says little."""
    is_pid_alone = job["script"] and job["name"] == f"pid {job['pid']}"
    return f"{job['script']} ({job['name']})" if is_pid_alone else job["name"]


def _line(job: JobCheckReport, width: int) -> str:
    """Format one training on one line: position, reason of the verdict, and log."""
    is_well = job["state"] == "running" and job["verdict"] == "ok"
    said = ", ".join([*_numbers(job), *_last_step(job)]) if is_well else job["reason"]
    begun = f"{padded(shown(_name(job)), width)} {_reached(job):<{_REACHED}} "
    text = f"{begun}{shown(said)}" + (f" ({shown(job['log'])})" if job["log"] else "")
    return f"{_verdict(job)} {wrapped(text, _VERDICT).rstrip()}"


def _last_step(job: JobCheckReport) -> Iterator[str]:
    if job["seconds_without_step"] is not None:
        yield f"last step {format_duration(job['seconds_without_step'])} ago"


def _reached(job: JobCheckReport) -> str:
    if job["step"] is not None:
        return f"step {job['step']}/{job['total_steps']}" if job["total_steps"] else f"step {job['step']}"
    return f"epoch {job['epoch']:.3g}" if job["epoch"] is not None else "-"


def _block(job: JobCheckReport) -> Iterator[str]:
    yield f"{_verdict(job)} {_indented(job['reason'], _VERDICT)}"
    for label, text in _facts(job):
        yield f"  {label:<{_LABEL}}{_indented(text)}"
    if job["explanation"]:
        yield f"  {'why':<{_LABEL}}{_indented(_explanation(job))}"
    for remedy in job["remedies"]:
        yield f"  {'try':<{_LABEL}}{_indented(remedy)}"
    for error in job["errors"]:
        yield f"  {'not known':<{_LABEL}}{_indented(error)}"


def _indented(text: str, width: int = _LABEL + 2) -> str:
    """Return what is shown of a text; its further lines are indented, so that none looks like one of ours."""
    return wrapped(shown_lines(text), width)


def _facts(job: JobCheckReport) -> Iterator[tuple[str, str]]:
    """Yield label and text of each known fact."""
    if job["progress"] is not None:
        filled = round(job["progress"] * BAR_WIDTH)
        bar = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {job['progress']:.0%}"
        yield "progress", "  ".join([bar, _reached(job), *_numbers(job)])
    elif job["step"] is not None or job["loss"] is not None:
        yield "progress", "  ".join([_reached(job), *_numbers(job)])
    if job["seconds_without_step"] is not None and job["state"] not in ENDS:
        limit = "" if job["limit_seconds"] is None else f", limit {format_duration(job['limit_seconds'])}"
        yield "silence", f"{format_duration(job['seconds_without_step'])} without a step{limit}"
    if job["job_id"]:
        yield "job", job["job_id"]
    if job["pid"] is not None:
        yield "process", f"{job['pid']}  {job['command'] or ''}".rstrip()
    elif job["command"]:
        yield "command", job["command"]
    if job["log"]:
        yield "log", job["log"]
    if checkpoint := job["checkpoint"]:
        yield "checkpoint", f"step {checkpoint['step']}  {format_bytes(checkpoint['size_bytes'])}  {checkpoint['path']}"
    if job["gpus"]:
        yield "GPUs", ", ".join(_gpu(gpu) for gpu in job["gpus"])


def _explanation(job: JobCheckReport) -> str:
    """Return what the last roll call said, when, and of which attempt."""
    of = job["explained_job_id"]
    whose = "it" if of in (None, job["job_id"]) else of
    ago = "" if job["explained_at"] is None else f"{format_duration(max(0.0, time.time() - job['explained_at']))} ago, "
    return f"{ago}before {whose} was terminated: {job['explanation']}"


def _numbers(job: JobCheckReport) -> Iterator[str]:
    if job["loss"] is not None:
        yield f"loss {job['loss']:.4g}"
    if job["steps_per_second"]:
        yield format_pace(1.0 / job["steps_per_second"])
    if job["eta_seconds"] is not None and job["state"] not in _WITHOUT_ETA:
        yield f"ETA {format_duration(job['eta_seconds'])}"


def _gpu(gpu: GpuCheckReport) -> str:
    if gpu["error"]:
        return f"{gpu['index']}: {gpu['error']}"
    used, power = gpu["gpu_utilization"], gpu["gpu_power"]
    words = ["?" if used is None else f"{used:.0f} %"]
    if isinstance(power, float):
        words.append(f"{power:.0%} of its power limit")
    return f"{gpu['index']}: {' at '.join(words)}"


COMMAND = Command(
    run,
    declare,
    (
        "",
        "ssh://me@gpu1",
        "my-pod raysubmit_x --json",
        "local '~/runs/*/train.log'",
        "local --stall-after 5m --sample 1m",
        "my-pod my-training --field step",
    ),
)
