"""`launch`, `queue`, `worker` and `sweep`: trainings on rented machines."""

from __future__ import annotations

import json
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from training_monitor.cli.commands import BAD, OK, UNKNOWN
from training_monitor.cli.live import LiveLine, print_event, progress_parts
from training_monitor.cli.output import complain, hint, interrupted_status, print_json, say
from training_monitor.errors import SettingsError
from training_monitor.models import Event
from training_monitor.policy.cost import spent_by
from training_monitor.probes.settings_file import load_service_config
from training_monitor.renting import JobState, QueuedJob, TrainingRequest
from training_monitor.supervise.sweeper import SweepReport, sweep_instances, watch_sweeps
from training_monitor.supervise.worker import run_worker, submit_training
from training_monitor.units import format_duration, plural
from training_monitor.vast.instances import list_instances
from training_monitor.vast.job_records import read_record
from training_monitor.vast.queue import TrainingQueue
from training_monitor.watching import LogUpdate

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox

_SPEC = ("trigger", "steps", "save_every", "learning_rate", "rank", "alpha", "base_model")
_WISHES = {"max_price": "max_price_per_hour", "min_vram": "min_vram_gb", "disk": "disk_gb", "num_gpus": "num_gpus"}
_PLAIN = ("name", "dataset", "command", "image", "on_finish", "account", "budget", "soft_timeout", "hard_timeout")
_UNFINISHED = [state for state in JobState if not state.is_terminal]
PLAIN_SECONDS = 5.0


@contextmanager
def _told(args: Namespace) -> Iterator[Outbox | None]:
    if args.notify is None:
        yield None
        return
    from training_monitor.cli.notifying import open_outbox

    with open_outbox(args.notify) as outbox:
        yield outbox


# ---------------------------------------------------------------- launch


def launch(args: Namespace) -> int:
    """Queue a training for a rented machine; with --watch do it here."""
    config = load_service_config()
    job = submit_training(read_request(args), args.id)
    if not args.watch:
        if args.json:
            print_json(_as_json(job))
        else:
            say(f"{job.id} {job.state.value.lower()}")
            hint(f"`training-monitor worker` works through the queue; `training-monitor queue {job.id}` shows it")
        return OK
    display = _Display(as_json=args.json)
    if not args.json:
        hint(f"{job.id}: Ctrl-C leaves it as it is; the same command with --id {job.id} goes on")
    try:
        with _told(args) as outbox:
            run_worker(
                job.id,
                sweep=False,
                config=config,
                outbox=outbox,
                on_event=display.event,
                on_line=display.line,
            )
    except KeyboardInterrupt as interrupt:
        display.clear()
        _say_left(TrainingQueue().get(job.id))
        return interrupted_status(interrupt)
    display.clear()
    job = TrainingQueue().get(job.id)
    if args.json:
        print_json({"kind": "result", **_as_json(job)})
    else:
        _print_job(job)
    return OK if job.state is JobState.COMPLETED else BAD


def _say_left(job: QueuedJob) -> None:
    """What an interrupted launch leaves behind."""
    machine = job.work.instance_id
    costs = f"; instance {machine} goes on costing money" if machine is not None else ""
    hint(f"\n{job.id} is {job.state.value.lower()}{costs}. Go on with it, or end it:")
    hint(f"  training-monitor worker --until-empty\n  training-monitor queue {job.id} --cancel")


def read_request(args: Namespace) -> TrainingRequest:
    """The request of the command line, over that of a file."""
    given = _read_file(args.file) if args.file else {}
    given.update({key: getattr(args, key) for key in _PLAIN if getattr(args, key) is not None})
    if args.max_machines:
        given["max_instances"] = args.max_machines
    if args.upload:
        given["upload_to"] = args.upload
    if args.notify:
        given["user"] = args.notify
    for key in ("samples", "register"):
        if text := getattr(args, key):
            given[key] = {"url" if text.startswith(("http://", "https://")) else "command": text}
    if args.env:
        given["env"] = {**given.get("env", {}), **dict(_variable(text) for text in args.env)}
    given["offers"] = {**given.get("offers", {}), **_wishes(args)}
    chosen = {key: getattr(args, key) for key in _SPEC if getattr(args, key) is not None}
    if chosen or (given.get("spec") is None and given.get("command") is None):
        given["spec"] = _spec(given, chosen)
    if not given.get("name"):
        raise SettingsError("--name", None, "a name for the job and its model")
    return read_record(TrainingRequest, json.dumps(given))


def _spec(given: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    spec = {**(given.get("spec") or {}), **chosen}
    if not spec.get("trigger"):
        raise SettingsError("--trigger", None, "the word that stands for what is trained, or --command LINE")
    return {"name": given.get("name"), **spec}


def _wishes(args: Namespace) -> dict[str, Any]:
    wishes = {key: getattr(args, name) for name, key in _WISHES.items() if getattr(args, name) is not None}
    if args.gpu:
        wishes["preferred_gpus"] = args.gpu
    return {**wishes, "kind": "bid"} if args.bid else wishes


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    return name, value if equals else f"env:{name}"  # a secret is kept in no file: its name is enough


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError) as error:
        raise SettingsError("--from", path, f"a JSON file with the fields of TrainingRequest ({error})") from None
    names = {each.name for each in fields(TrainingRequest)}
    if not isinstance(values, dict) or set(values) - names:
        unknown = ", ".join(sorted(set(values) - names)) if isinstance(values, dict) else "a table"
        raise SettingsError("--from", path, f"fields of TrainingRequest, not {unknown}")
    return values


class _Display:
    """Events as lines, and the newest step as one live line."""

    def __init__(self, *, as_json: bool) -> None:
        self._json, self._live, self._started = as_json, LiveLine(PLAIN_SECONDS), time.monotonic()
        self._lock = threading.Lock()

    def event(self, event: Event) -> None:
        with self._lock:
            if self._json:
                print_json({"kind": event.kind, "text": event.text, "job_id": event.job_id})
            elif event.kind == "progress":
                self._live.draw(f"{time.monotonic() - self._started:6.1f}s  {event.text}")
            else:
                self._live.clear()
                print_event(event, time.monotonic() - self._started)

    def line(self, update: LogUpdate) -> None:
        parts = progress_parts(update.progress, update.progress.steps_per_second)
        with self._lock:
            if not self._json and update.progress.step is not None:
                self._live.draw("  ".join([f"{time.monotonic() - self._started:6.1f}s", *parts]))

    def clear(self) -> None:
        with self._lock:
            self._live.clear()


# ---------------------------------------------------------------- queue


def queue(args: Namespace) -> int:
    """List the jobs, show one, or end one."""
    jobs = TrainingQueue()
    if args.cancel and not args.job:
        raise SettingsError("--cancel", None, "the job that is to end")
    if args.job:
        job = jobs.request_end(args.job, JobState.CANCELLED, args.reason) if args.cancel else jobs.get(args.job)
        if args.json:
            print_json(_as_json(job))
            return OK
        _print_job(job)
        if args.cancel:
            hint("the worker that has it ends it; without one: training-monitor worker --until-empty")
        return OK
    found = jobs.list_jobs(None if args.all else _UNFINISHED)
    if args.json:
        print_json({"jobs": [_as_json(job) for job in found]})
        return OK
    if not found:
        hint("no job waits or runs" + ("" if args.all else " (--all lists those that have ended)"))
        return OK
    say(f"{'JOB':<28} {'STATE':<12} {'STEP':>13} {'MACHINE':>10} {'COST':>8} {'AGE':>7}  WORKER")
    for job in found:
        say(_row(job))
    return OK


def _cost(job: QueuedJob) -> float:
    return job.work.spent if job.work.spent is not None else spent_by(job.work.rentals, time.time()).dollars


def _row(job: QueuedJob) -> str:
    work = job.work
    step = "-" if work.step is None else f"{work.step}/{work.total_steps or '?'}"
    machine = "-" if work.instance_id is None else str(work.instance_id)
    age, worker = format_duration(time.time() - job.created_at), job.worker or "-"
    if job.worker and (job.lease_until or 0.0) < time.time():
        worker = "(its worker is gone)"
    state = f"{job.state.value}{'*' if job.to_end else ''}"
    return (
        f"{job.id:<28.28} {state:<12} {step:>13} {machine:>10} {'$' + format(_cost(job), '.2f'):>8} {age:>7}  {worker}"
    )


def _print_job(job: QueuedJob) -> None:
    work = job.work
    say(f"{job.id}  {job.state.value}")
    if work.reason:
        say(f"  {work.reason}")
    if job.to_end and not job.state.is_terminal:
        say(f"  to be ended: {job.to_end[1]}")
    if work.step is not None:
        say(f"  step {work.step} of {work.total_steps or '?'}")
    for rental in work.rentals:
        ended = "runs" if rental.ended_at is None else f"{format_duration(rental.ended_at - rental.started_at)}"
        price = "unknown price" if rental.price_per_hour is None else f"${rental.price_per_hour:.2f}/h"
        say(f"  machine {rental.attempt}: instance {rental.instance_id}, {rental.gpu_name or '?'}, {price}, {ended}")
    for upload in work.uploads:
        became = f"{plural(len(upload.files), 'file')} verified" if upload.verified else upload.error
        say(f"  {upload.destination}: {became}")
    if work.saved_path:
        say(f"  step {work.saved_step} is in {work.saved_path}")
    for warning in work.warnings:
        say(f"  ! {warning}")
    say(f"  cost ${_cost(job):.2f}" + (f" of ${work.estimate:.2f} estimated" if work.estimate else ""))


def _as_json(job: QueuedJob) -> dict[str, Any]:
    return {**asdict(job), "cost": _cost(job)}


# ---------------------------------------------------------------- worker


def worker(args: Namespace) -> int:
    """Work through the queue."""
    config = load_service_config()
    display = _Display(as_json=args.json)
    if not args.json:
        hint("Ctrl-C ends the worker, not the trainings: their machines go on")
    try:
        with _told(args) as outbox:
            done = run_worker(
                jobs=args.jobs,
                until_empty=args.until_empty,
                sweep=not args.no_sweep,
                config=config,
                outbox=outbox,
                on_event=display.event,
            )
    except KeyboardInterrupt as interrupt:
        display.clear()
        for job in TrainingQueue().list_jobs(_UNFINISHED):
            if job.work.instance_id is not None:
                _say_left(job)
        return interrupted_status(interrupt)
    display.clear()
    failed = [job for job in done if job.state is JobState.FAILED]
    return BAD if failed else OK


# ---------------------------------------------------------------- sweep


def sweep(args: Namespace) -> int:
    """Find the rented instances that nobody needs; with --force destroy them."""
    config = load_service_config()
    if args.all and args.every:
        raise SettingsError("--all", "--every", "one of them: everything is destroyed once, by hand")
    if args.all and args.force:
        _confirm_all(args)
    with _told(args) as outbox:
        if args.every:
            stopping = threading.Event()
            try:
                watch_sweeps(
                    args.every,
                    stopping,
                    dry_run=not args.force,
                    config=config,
                    outbox=outbox,
                    on_report=lambda report: _show_sweep(report, args),
                )
            finally:
                stopping.set()
        report = sweep_instances(not args.force, all_instances=args.all, config=config, outbox=outbox)
    _show_sweep(report, args)
    if report["instances_checked"] is None:
        return UNKNOWN
    return BAD if report["errors"] or report["planned"] else OK


def _confirm_all(args: Namespace) -> None:
    """Have it typed out that everything is to go. Raises SettingsError."""
    count = len(list_instances())
    sentence = f"destroy all {plural(count, 'instance')}"
    typed = args.confirm
    if typed is None and sys.stdin.isatty():
        complain(f"this destroys every instance of the account, whoever rented it, with all that is on it: {count}")
        typed = input(f"type `{sentence}` to go on: ")
    if typed != sentence:
        raise SettingsError("--confirm", typed, f"{sentence!r}, typed out")


def _show_sweep(report: SweepReport, args: Namespace) -> None:
    if args.json:
        print_json(report)
        return
    if report["skipped"]:
        hint("another sweep is going on")
        return
    if report["instances_checked"] is not None:
        say(f"{plural(report['instances_checked'], 'instance')} checked")
    for title, rows in (("destroyed", report["terminated"]), ("would be destroyed", report["planned"])):
        for row in rows:
            say(f"  {row['instance_id']} {title}: {row['reason']}{_price(row['cost_per_hour'])}")
    for alert in report["alerts"]:
        say(f"  ! {alert['type']} {alert['instance_id'] or ''}: {alert['reason']}")
    for other in report["foreign"]:
        label = f" labelled {other['label']!r}" if other["label"] else ""
        say(f"  {other['instance_id']} is not ours{label}: left alone{_price(other['cost_per_hour'])}")
    for error in report["errors"]:
        complain(f"{error['instance_id'] or 'the listing'}: {error['error']}")
    if report["planned"]:
        hint("nothing was destroyed: --force does it")


def _price(cost_per_hour: float | None) -> str:
    return ", unknown cost" if cost_per_hour is None else f", ${cost_per_hour:.3f} per hour"
