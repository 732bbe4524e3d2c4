"""`check` and `stall`: whether the trainings of a target make progress, as one block, one line each, or JSON."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from time import sleep

from training_monitor.cli.commands import BAD, OK, UNKNOWN, USAGE, tell_error
from training_monitor.cli.output import hint, paint, print_json, printable, put, say
from training_monitor.core.errors import CommandFailed, IncompleteAnswer, JobNotFound
from training_monitor.core.reports import CheckReport, JobCheckReport
from training_monitor.core.units import format_bytes, format_duration
from training_monitor.core.values import NotSeen
from training_monitor.judging.judge import ENDS
from training_monitor.observe.check import check_training

EXITS = {"ok": OK, "warning": OK, "failed": BAD, "unknown": UNKNOWN}
_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red", "unknown": "blue"}
BAR_WIDTH = 24
_LABEL = 11
_WITHOUT_ETA = ("stalled", *ENDS)  # states without remaining time


def check(args: Namespace) -> int:
    """Run `check` and return the exit status."""
    try:
        report = check_training(args.target, args.what, args.namespace)
    except (JobNotFound, CommandFailed) as error:  # not found, or of another kind: nothing was judged
        tell_error(error, as_json=args.json)
        return USAGE
    if args.json:
        print_json(report)
    else:
        show(report)
    return EXITS[report["verdict"]]


def stall(args: Namespace) -> int:
    """Run `stall` and return the exit status."""
    report = check_training(args.target, args.what, args.namespace, stagnation_threshold=args.stall_after)
    if report["verdict"] == "unknown" and args.sample > 0:
        sleep(args.sample)
        report = check_training(args.target, args.what, args.namespace, stagnation_threshold=args.stall_after)
    if not report["jobs"]:
        kind = IncompleteAnswer if report["not_seen"] else JobNotFound
        raise kind(report["reason"], hint="name a PID, a log file or a job")
    for found in report["jobs"]:
        if args.json:
            stalled = None if found["verdict"] == "unknown" else found["state"] == "stalled"
            print_json({"job_id": found["job"], "stalled": stalled, "threshold": args.stall_after, **found})
        else:
            is_said = found["state"] in ENDS
            say(f"{found['name']} " + (found["reason"] if is_said else f"is {found['state']}: {found['reason']}"))
    for each in report["not_seen"]:
        hint(f"not seen: {NotSeen(**each)}")
    return EXITS[report["verdict"]]


def show(report: CheckReport) -> None:
    """Print one block for one training, one line each for several, worst first."""
    jobs = report["jobs"]
    if len(jobs) == 1:
        put("".join(f"{line}\n" for line in _block(jobs[0])))
    else:
        put("".join(f"{_line(job)}\n" for job in jobs))
    if not jobs:
        put(f"{paint('UNKNOWN', _COLOURS['unknown'], sys.stdout):<9} {printable(report['reason'])}\n")
    for each in report["not_seen"]:
        put(f"? {printable(str(NotSeen(**each)))}\n")
    for remedy in report["remedies"]:
        hint(f"try: {remedy}")


def _verdict(job: JobCheckReport) -> str:
    return paint(f"{job['state'].upper():<9}", _COLOURS[job["verdict"]], sys.stdout)


def _line(job: JobCheckReport) -> str:
    """Format one training on one line: position, reason of the verdict, and log."""
    said = ", ".join(_numbers(job)) if job["state"] == "running" and job["verdict"] == "ok" else job["reason"]
    text = printable(f"{job['name']:<22} {_position(job):<18} {said}" + (f" ({job['log']})" if job["log"] else ""))
    return f"{_verdict(job)} {' '.join(text.splitlines()).rstrip()}"


def _position(job: JobCheckReport) -> str:
    if job["step"] is not None:
        return f"step {job['step']}/{job['total_steps']}" if job["total_steps"] else f"step {job['step']}"
    return f"epoch {job['epoch']:.3g}" if job["epoch"] is not None else "-"


def _block(job: JobCheckReport) -> Iterator[str]:
    yield f"{_verdict(job)} {printable(job['reason'])}"
    for label, text in _facts(job):
        yield f"  {label:<{_LABEL}}{printable(text)}"
    for remedy in job["remedies"]:
        yield f"  {'try':<{_LABEL}}{printable(remedy)}"
    for error in job["errors"]:
        yield f"  {'not known':<{_LABEL}}{printable(error)}"


def _facts(job: JobCheckReport) -> Iterator[tuple[str, str]]:
    """Yield label and text of each known fact."""
    if job["progress"] is not None:
        filled = round(job["progress"] * BAR_WIDTH)
        bar = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {job['progress']:.0%}"
        yield "progress", "  ".join([bar, _position(job), *_numbers(job)])
    elif job["step"] is not None or job["loss"] is not None:
        yield "progress", "  ".join([_position(job), *_numbers(job)])
    if job["seconds_without_step"] is not None and job["state"] not in ENDS:
        limit = "" if job["limit_seconds"] is None else f", limit {format_duration(job['limit_seconds'])}"
        yield "silence", f"{format_duration(job['seconds_without_step'])} without a step{limit}"
    if job["job"]:
        yield "job", job["job"]
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


def _numbers(job: JobCheckReport) -> Iterator[str]:
    if job["loss"] is not None:
        yield f"loss {job['loss']:.4g}"
    if job["steps_per_second"]:
        yield f"{job['steps_per_second']:.3g} steps/s"
    if job["eta_seconds"] is not None and job["state"] not in _WITHOUT_ETA:
        yield f"ETA {format_duration(job['eta_seconds'])}"


def _gpu(gpu: dict[str, object]) -> str:
    if gpu["error"]:
        return f"{gpu['index']}: {gpu['error']}"
    used, power = gpu["utilization"], gpu["power_fraction"]
    words = ["?" if used is None else f"{used:.0f} %"]
    if isinstance(power, float):
        words.append(f"{power:.0%} of its power")
    return f"{gpu['index']}: {' at '.join(words)}"
