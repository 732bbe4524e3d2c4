"""`rent launch`, `rent queue` and `rent worker`: trainings on rented machines, and the display of their jobs."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from typing import Any

from training_monitor.cli.keys import event_keys
from training_monitor.cli.live import LiveLine, Waiting, progress_parts, view_parts
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.output import (
    BAD,
    OK,
    UNKNOWN,
    complain,
    hint,
    interrupted_status,
    print_json,
    print_table,
    refuse,
    say,
)
from training_monitor.core.errors import (
    AccessDenied,
    CommandError,
    InvalidTransition,
    JobNotFound,
    NoOffers,
    SettingsError,
    ToolNotFound,
    TrainingMonitorError,
)
from training_monitor.core.frozen import keys_of, replace
from training_monitor.core.masking import MASK
from training_monitor.core.models import Event
from training_monitor.core.read_fence import check_here
from training_monitor.core.regex import regex
from training_monitor.core.settings import VAST_KEY_PATH, vast_key_path
from training_monitor.core.settings_lines import find_line
from training_monitor.core.settings_table import Place, format_path, read_keys, read_table, settings_of
from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import LogUpdate, UploadReport
from training_monitor.logs.job_progress import job_progress
from training_monitor.rent import Credits, JobState, QueuedJob, TrainingQueue, TrainingRequest, run_worker
from training_monitor.rent.instance_steps import offer_query
from training_monitor.rent.limits import reached_limit
from training_monitor.rent.queue import load_service_config
from training_monitor.rent.worker import check_request, queue_checked
from training_monitor.targets.kinds.vast import find_vast_key
from training_monitor.vast import OfferQuery, account_balance
from training_monitor.vast.cost import Limit, spent_by
from training_monitor.vast.offers import judge_request, search_everything

_SPEC = ("trigger", "steps", "save_every", "learning_rate", "rank", "alpha", "base_model")
_WISHES = {"max_price": "max_price_per_hour", "min_vram": "min_vram_gb", "disk": "disk_gb", "num_gpus": "num_gpus"}
_PLAIN = ("name", "dataset", "command", "image", "on_finish", "account", "budget")
_LIMITS = {"soft_limit": "soft_timeout", "hard_limit": "hard_timeout", "max_machines": "max_instances"}
_ADDRESS = regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TOOLS = {"vastai": "pip install vastai", "ssh": "install the OpenSSH client"}
PLAIN_SECONDS = 5.0
_UNFINISHED = [state for state in JobState if not state.is_terminal]


class ServiceDisplay:
    """Shows events as lines and the newest step as a live line; reports the state of a silent job on stderr.

    A context manager: while it lasts, a thread checks for silent jobs.
    """

    def __init__(self, args: Namespace, *, job_id: str | None = None) -> None:
        """Show only `job_id`; without it, each line names its job."""
        self._args, self._job_id = args, job_id
        self._live = LiveLine(PLAIN_SECONDS)
        self._lock = threading.Lock()
        self._waiting = Waiting(self._aside)

    def __enter__(self) -> ServiceDisplay:  # noqa: PYI034 (Self is not in Python 3.10)
        self._waiting.__enter__()
        if self._job_id:
            self._heard_of(self._job_id)
        return self

    def __exit__(self, *raised: object) -> None:
        self._waiting.__exit__()
        with self._lock:
            self._live.clear()

    def event(self, event: Event) -> None:
        """Show an event."""
        if event.job_id:
            self._heard_of(self._job_id or event.job_id)
        with self._lock:
            if print_json(self._args, event_keys(event)):
                return
            if event.job_id is None:  # an event of the worker itself
                self._live.clear()
                hint(event.text)
                return
            if self._job_id is None and event.job_id:
                event = replace(event, text=f"{event.job_id}: {event.text}")
            if event.kind == "progress":
                self._live.draw(*([event.text] if self._job_id is None else _progress_of(event)))
            else:
                self._live.print_event(event)

    def line(self, update: LogUpdate) -> None:
        """Show the step in a line of the job's log."""
        if self._job_id:
            self._heard_of(self._job_id)
        with self._lock:
            if not self._args.json and job_progress(update.progress).step is not None:
                self._live.draw(*progress_parts(update.progress, update.progress.steps_per_second))

    def _aside(self, text: str) -> None:
        with self._lock:
            self._live.clear()
            hint(text)

    def _heard_of(self, job_id: str) -> None:
        self._waiting.on(job_id, lambda: _where_it_stands(job_id))


def _where_it_stands(job_id: str) -> str | None:
    """Return the state of a job, and its worker; None once it is over."""
    try:
        job = TrainingQueue().get(job_id)
    except TrainingMonitorError as error:
        return f"the state of {job_id} is unknown ({error.what})"
    if job.state.is_terminal:
        return None
    return f"{job_id} is {job.state.value.lower()}, held by {_holder(job) or 'no worker'}"


def _holder(job: QueuedJob) -> str | None:
    """Return the worker that has the job now."""
    return job.worker if (job.lease_until or 0.0) > time.time() else None


def _progress_of(event: Event) -> list[str]:
    """Format the progress like `line` does, so that the live line keeps its form; else the event's text."""
    view = event.view
    if view is None or job_progress(view.progress).step is None:
        return [event.text]
    return view_parts(view, view.progress.steps_per_second)


# ---------------------------------------------------------------- launch


def launch(args: Namespace) -> int:
    """Queue a training for a rented machine; with --watch, also run it here."""
    config = load_service_config()
    if args.watch:
        _need_tools()
    elif args.heartbeat is not None:
        raise SettingsError("--heartbeat", None, "--watch with it, or a worker, which is what is watched")
    try:
        job = _submit_request(args)
    except NoOffers as error:
        return refuse(error, args, BAD)
    if job.state.is_terminal:
        return _show_end(job, args)
    if not args.watch:
        if not print_json(args, {"kind": "result", "job": _job_keys(job)}):
            say(f"{job.id} {job.state.value.lower()}")
            ours = "training-monitor rent"
            hint(f"`{ours} worker` works through the queue; `{ours} queue {job.id}` shows it")
        return OK
    display = ServiceDisplay(args, job_id=job.id)
    if not args.json:
        hint(f"{job.id}: Ctrl-C leaves it as it is; the same command with --id {job.id} goes on")
        if holder := _holder(job):
            hint(f"{holder} has it now: it is watched here only if that one leaves it")
    try:
        with open_outbox(args.notify) as outbox, open_heartbeat(args.heartbeat) as heartbeat, display:
            run_worker(
                job.id,
                sweep=False,
                config=config,
                outbox=outbox,
                heartbeat=heartbeat,
                on_event=display.event,
                on_line=display.line,
            )
    except KeyboardInterrupt as interrupt:
        job = TrainingQueue().get(job.id)
        print_json(args, {"kind": "interrupted", "job": _job_keys(job)})
        _say_left(job)
        return interrupted_status(interrupt)
    return _show_end(TrainingQueue().get(job.id), args)


def _show_end(job: QueuedJob, args: Namespace) -> int:
    """Print how a job ended, or that another worker still has it."""
    if not print_json(args, {"kind": "result", "job": _job_keys(job)}):
        _print_job(job)
    if not job.state.is_terminal:
        hint(f"it goes on elsewhere: training-monitor rent queue {job.id}")
        return UNKNOWN
    return OK if job.state is JobState.COMPLETED else BAD


def _say_left(job: QueuedJob) -> None:
    """Print what an interrupted launch leaves behind."""
    machine = job.work.instance_id
    costs = f"; instance {machine} goes on costing money" if machine is not None else ""
    if machine is None and job.state is JobState.RENTING and job.work.asked_at is not None:
        costs = "; a machine was asked for, and may be there and cost money"
    hint(f"\n{job.id} is {job.state.value.lower()}{costs}. Go on with it, or end it:")
    hint(f"  training-monitor rent worker --until-empty\n  training-monitor rent queue {job.id} --cancel")


# ---------------------------------------------------------------- the request of `rent launch`


def _submit_request(args: Namespace) -> QueuedJob:
    """Queue the training that the command line describes, after checking that the market has a machine for it.

    Raises:
        SettingsError: the request is invalid.
        NoOffers: no suitable offer; nothing is queued, except with --force.
    """
    request = read_request(args)
    check_request(request)
    if not _is_queued(args.id):
        _ask_market(request, force=args.force)
    return queue_checked(request, args.id)


def _is_queued(job_id: str | None) -> bool:
    """Return whether the job exists already: then it goes on, whatever the market offers."""
    try:
        return job_id is not None and TrainingQueue().get(job_id) is not None
    except JobNotFound:
        return False


def _ask_market(request: TrainingRequest, *, force: bool) -> None:
    """Check and print what the market offers for a request. Raises NoOffers without a suitable offer."""
    balance = None if request.account is None else Credits().balance(request.account)
    daily_budget = load_service_config().daily_budget
    with Waiting() as waiting:
        waiting.on("market", "asking vast.ai what is for rent")
        try:
            query = offer_query(request)
            everything = search_everything(query)
        except CommandError as error:
            hint(f"it could not be checked whether anything for rent does: {error.what}")
            return
    found = judge_request(request, query, everything, balance=balance, daily_budget=daily_budget)
    for note in found.notes:
        hint(note)
    if not force and found.obstacles:
        raise NoOffers(
            f"nothing is queued: {'; '.join(found.obstacles)}",
            hint="that, or --force: the job is queued all the same, and waits until something for rent does",
        )
    for obstacle in found.obstacles:
        hint(f"queued all the same: {obstacle}")


def read_request(args: Namespace) -> TrainingRequest:
    """Read the request of the command line, which overrides that of a file."""
    text, of_file = _read_file(args.file) if args.file else ("", {})
    given = {**of_file, **{key: getattr(args, key) for key in _PLAIN if getattr(args, key) is not None}}
    given.update({key: getattr(args, name) for name, key in _LIMITS.items() if getattr(args, name) is not None})
    if args.upload:
        given["upload_to"] = args.upload
    if args.notify:
        given["user"] = args.notify
    for key in ("samples", "register"):
        if (done := getattr(args, key)) is not None:
            given[key] = {"url" if _ADDRESS.match(done) else "command": done}
    for key, more in (("env", dict(_variable(each) for each in args.env or ())), ("offers", _wishes(args))):
        own = given.get(key) or {}
        given[key] = {**own, **more} if isinstance(own, dict) else own
    chosen = {key: getattr(args, key) for key in _SPEC if getattr(args, key) is not None}
    if given.get("command") is not None and chosen:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in chosen)
        raise SettingsError("--command", given["command"], f"either a command, or a LoRA by {options}")
    if not given.get("name"):
        raise SettingsError("--name", None, "a name for the job and its model")
    if given.get("spec") is not None or given.get("command") is None:
        given["spec"] = _spec(given, chosen)
    place = Place()
    request: TrainingRequest = read_table(TrainingRequest, given, place)
    if isinstance(given["offers"], Mapping):
        read_keys(settings_of(OfferQuery), given["offers"], place / "offers")
    for fault in place.faults:
        line = find_line(text, fault.path, toml=False)
        file = f"{args.file}:{line}" if line else args.file or ""
        raise SettingsError(format_path(fault.path), fault.value, fault.expected, file=file)
    return request


def _spec(given: dict[str, Any], chosen: dict[str, Any]) -> Any:
    spec = given.get("spec") or {}
    if not isinstance(spec, dict):
        return spec
    spec = {**spec, **chosen}
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
    return name, value if equals else f"env:{name}"  # only the name is stored, so no secret gets into a file


def _read_file(path: str) -> tuple[str, dict[str, Any]]:
    """Read a request file; return its text and its contents."""
    try:
        with open(check_here(path), encoding="utf-8") as file:
            text = file.read()
        values = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError("--from", path, f"a JSON file with the fields of TrainingRequest ({error})") from None
    if not isinstance(values, dict):
        raise SettingsError("--from", path, "a table with the fields of TrainingRequest")
    return text, values


def _need_tools() -> None:
    """Raise ToolNotFound, AccessDenied or SettingsError if a machine could not be rented or reached from here."""
    for tool, remedy in _TOOLS.items():
        if shutil.which(tool) is None:
            raise ToolNotFound(f"{tool} is not installed here", hint=remedy)
    key = find_vast_key()
    if key is None:
        hint("there is no ssh key here, and rented machines need one (training-monitor rent keys --setup makes one)")
    elif not os.path.isfile(key):
        raise SettingsError(VAST_KEY_PATH, key, "a private ssh key (training-monitor rent keys --setup makes one)")
    elif key != vast_key_path():
        hint(f"rented machines are offered {key} (training-monitor rent keys --setup makes one for them alone)")
    try:
        account_balance()
    except AccessDenied:
        raise
    except CommandError:
        return  # unknown; the job asks again


# ---------------------------------------------------------------- queue


def queue(args: Namespace) -> int:
    """List the jobs, show one, or cancel one."""
    jobs = TrainingQueue()
    if args.cancel and not args.job:
        raise SettingsError("--cancel", None, "the job that is to end")
    if args.job:
        try:
            job = jobs.cancel(args.job, args.reason) if args.cancel else jobs.get(args.job)
        except InvalidTransition as error:  # it is over
            return refuse(error, args, BAD)
        if print_json(args, {"jobs": [_job_keys(job)]}):
            return OK
        _print_job(job)
        if args.cancel:
            hint(_who_ends(job))
        return OK
    damaged = dict[str, TrainingMonitorError]()
    found = jobs.list_jobs(None if args.all else _UNFINISHED, on_damaged=damaged.__setitem__)
    for problem in damaged.values():
        complain(str(problem))
    status = UNKNOWN if damaged else OK
    unread = [{"job_id": job_id, "error": problem.what} for job_id, problem in damaged.items()]
    if print_json(args, {"jobs": [_job_keys(job) for job in found], "damaged": unread}):
        return status
    if not found:
        hint("no job waits or runs" + ("" if args.all else " (--all lists those that have ended)"))
        return status
    header = ("JOB", "STATE", "STEP", "MACHINE", "COST", "AGE", "WORKER")
    print_table(header, [_row(job) for job in found], gives_way=(6,))
    for job in found:
        if limit := _limit(job):
            hint(f"! {job.id}: {limit.reason}")
    if any(_is_to_end(job) for job in found):
        hint("* to be ended by its worker; without one: training-monitor rent sweep --force")
    return status


def _who_ends(job: QueuedJob) -> str:
    """Format what happens to a job that was just cancelled."""
    if job.state.is_terminal:
        account = job.request.account
        return "it has no machine, and is over" + (f"; what it had reserved is back with {account}" if account else "")
    if holder := _holder(job):
        return f"{holder} has it, and ends it: it saves what there is and destroys the machine"
    return (
        "no worker has it, and it may have a machine: training-monitor rent sweep --force ends both, as does a worker"
    )


def _is_to_end(job: QueuedJob) -> bool:
    return job.to_end is not None and job.work.outcome is None and not job.state.is_terminal


def _last_step(job: QueuedJob) -> int | None:
    """Return the last known step, of the log or of the saved checkpoint."""
    return max((each for each in (job.work.step, job.work.saved_step) if each is not None), default=None)


def _cost(job: QueuedJob) -> float:
    return job.work.spent if job.work.spent is not None else spent_by(job.work.rentals, time.time()).dollars


def _limit(job: QueuedJob) -> Limit | None:
    """Return the limit that an unfinished job has reached, or will reach."""
    is_over = job.state.is_terminal or job.work.outcome is not None
    return None if is_over else reached_limit(job, time.time())


def _row(job: QueuedJob) -> tuple[str, ...]:
    work, last = job.work, _last_step(job)
    step = "-" if last is None else f"{last}/{work.total_steps or '?'}"
    machine = "-" if work.instance_id is None else str(work.instance_id)
    age = format_duration(time.time() - job.created_at)
    worker = _holder(job) or ("(its worker is gone)" if job.worker else "-")
    state = f"{job.state.value}{'*' if _is_to_end(job) else ''}"
    return job.id, state, step, machine, f"${_cost(job):.2f}", age, worker


def _print_job(job: QueuedJob) -> None:
    work = job.work
    say(f"{job.id}  {job.state.value}")
    if work.reason:
        say(f"  {work.reason}")
    if job.to_end and _is_to_end(job):
        say(f"  to be ended: {job.to_end[1]}")
    if (last := _last_step(job)) is not None:
        say(f"  step {last} of {work.total_steps or '?'}")
    for rental in work.rentals:
        ended = "runs" if rental.ended_at is None else f"{format_duration(rental.ended_at - rental.started_at)}"
        price = "unknown price" if rental.newest_price is None else f"${rental.newest_price:.2f}/h"
        say(f"  machine {rental.attempt}: instance {rental.instance_id}, {rental.gpu_name or '?'}, {price}, {ended}")
    for line, times in Counter(_upload_line(upload) for upload in work.uploads).items():
        say(f"  {line}{f' ({times} times)' if times > 1 else ''}")
    if work.saved_path:
        say(f"  step {work.saved_step} is in {work.saved_path}")
    limit = _limit(job)
    for warning in (*work.warnings, *([limit.reason] if limit else [])):
        say(f"  ! {warning}")
    say(f"  cost ${_cost(job):.2f}" + (f" of ${work.estimate:.2f} estimated" if work.estimate else ""))


def _upload_line(upload: UploadReport) -> str:
    became = f"{plural(len(upload.files), 'file')} verified" if upload.verified else upload.error
    return f"{upload.destination}: {became}"


def _job_keys(job: QueuedJob) -> dict[str, Any]:
    """Return a job with its cost; of its variables only the names are shown, and which variable has the value."""
    shown = keys_of(job, id="job_id")
    shown["request"]["env"] = {
        name: value if value.startswith("env:") else MASK for name, value in job.request.env.items()
    }
    return {**shown, "total_cost": _cost(job), "limit": _limit(job)}


# ---------------------------------------------------------------- worker


def worker(args: Namespace) -> int:
    """Run the jobs of the queue."""
    config = load_service_config()
    _need_tools()
    display = ServiceDisplay(args)
    if not args.json:
        hint("Ctrl-C ends the worker, not the trainings: their machines go on")
    try:
        with open_outbox(args.notify) as outbox, open_heartbeat(args.heartbeat) as heartbeat, display:
            done = run_worker(
                jobs=args.jobs,
                until_empty=args.until_empty,
                sweep=not args.no_sweep,
                config=config,
                outbox=outbox,
                heartbeat=heartbeat,
                on_event=display.event,
            )
    except KeyboardInterrupt as interrupt:
        for job in TrainingQueue().list_jobs(_UNFINISHED, on_damaged=lambda _, error: complain(str(error))):
            if job.work.instance_id is not None:
                _say_left(job)
        return interrupted_status(interrupt)
    failed = [job for job in done if job.state is JobState.FAILED]
    return BAD if failed else OK
