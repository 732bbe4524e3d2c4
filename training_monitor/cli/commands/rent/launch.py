"""`rent launch`: train on a rented vast.ai machine: queue it, or do it here with --watch."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_monitor.cli.argument_types import (
    FILES,
    FOLDERS,
    SECONDS_ABOVE_ZERO,
    CommandParser,
    positive_count,
    positive_number,
)
from training_monitor.cli.command_table import Command
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.output import BAD, OK, UNKNOWN, hint, interrupted_status, print_json, refuse, say
from training_monitor.core.errors import CommandError, JobNotFound, NoOffers, SettingsError
from training_monitor.core.read_fence import check_here
from training_monitor.core.regex import regex
from training_monitor.core.settings_lines import find_line
from training_monitor.core.settings_table import Place, format_path, read_keys, read_table, settings_of

if TYPE_CHECKING:
    from training_monitor.rent import QueuedJob, TrainingRequest

_SPEC = ("trigger", "steps", "save_every", "learning_rate", "rank", "alpha", "base_model")
_WISHES = {"max_price": "max_price_per_hour", "min_vram": "min_vram_gb", "disk": "disk_gb", "num_gpus": "num_gpus"}
_PLAIN = ("name", "dataset", "command", "image", "on_finish", "account", "budget")
_LIMITS = {"soft_limit": "soft_timeout", "hard_limit": "hard_timeout", "max_machines": "max_instances"}


def declare(command: CommandParser) -> None:
    command.value("--name", "NAME", "name of the job and its model")
    command.value("--dataset", "DIR", "folder of images and captions on this machine", FOLDERS)
    command.value("--trigger", "WORD", "trigger word for the subject")
    command.value("--steps", "N", "training steps (default: 4000)", type=positive_count)
    command.value("--save-every", "N", "number of steps between checkpoints (default: 250)", type=positive_count)
    command.value("--learning-rate", "X", "learning rate (default: 0.0001)", type=positive_number)
    command.value("--rank", "N", "rank of the LoRA (default: 32)", type=positive_count)
    command.value("--alpha", "X", "alpha of the LoRA (default: 32)", type=positive_number)
    command.value("--base-model", "OWNER/NAME", "base model to adapt (default: black-forest-labs/FLUX.1-dev)")
    command.value(
        "--command",
        "LINE",
        "command to run instead of a LoRA training; reads $DATASET, writes to $OUTPUT, resumes from "
        "$RESUME_FROM_CHECKPOINT",
    )
    command.value("--image", "IMAGE", "container image (default: ostris/aitoolkit:latest)")
    command.several("--env", "NAME[=VALUE]", "environment variable; NAME alone is read from the worker's environment")
    command.value("--from", "FILE", "a JSON file with the fields of TrainingRequest", FILES, dest="file")
    command.value("--gpu", "NAME", "GPU models, most preferred first: 4090, A100, ...", nargs="+", action="extend")
    command.value(
        "--max-price",
        "DOLLARS",
        "maximum price per hour (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)",
        type=positive_number,
    )
    command.value(
        "--min-vram", "GB", "minimum memory of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)", type=positive_number
    )
    command.value("--disk", "GB", "disk space to rent (default: 64, or VASTAI_DEFAULT_DISK_GB)", type=positive_number)
    command.value("--budget", "DOLLARS", "end the job when it has cost this much", type=positive_number)
    command.duration("--soft-limit", "send a notice after this total time on rented machines", type=SECONDS_ABOVE_ZERO)
    command.duration(
        "--hard-limit",
        "save a checkpoint and end the job after this total time on rented machines (default: 4h)",
        type=SECONDS_ABOVE_ZERO,
    )
    command.value("--num-gpus", "N", "number of GPUs (default: 1)", type=positive_count)
    command.flag("--bid", "rent an interruptible machine: cheaper, but others can outbid you")
    command.value("--max-machines", "N", "maximum number of machines to try (default: 3)", type=positive_count)
    command.several(
        "--upload", "WHERE", "upload destination: hf:OWNER/NAME or s3://BUCKET/PREFIX; may be repeated for fallbacks"
    )
    command.value(
        "--samples",
        "LINE",
        "command that generates samples on the rented machine: it reads $MODEL (the finished model) and writes to "
        "$SAMPLES",
    )
    command.value(
        "--register", "LINE|URL", "command to run on this machine, or URL to call, when the model is finished"
    )
    command.add_argument(
        "--on-finish",
        choices=("destroy", "stop", "keep"),
        help="what to do with the machine when the job completes (default: destroy)",
    )
    command.value("--account", "NAME", "ledger account that pays for the job (default: none)")
    command.value("--id", "ID", "job ID; reuse it to resume that job (default: derived from NAME)")
    command.flag("--force", "queue the job even if no current offer matches")
    command.flag("--watch", "process the job in this terminal and show its progress, instead of leaving it to a worker")
    command.notify()
    command.heartbeat()


def run(args: Namespace) -> int:
    """Queue a training for a rented machine; with --watch, also run it here."""
    from training_monitor.cli.rented_jobs import ServiceDisplay, holder_of, job_keys, need_tools, say_left
    from training_monitor.rent import TrainingQueue, run_worker
    from training_monitor.rent.queue import load_service_config

    config = load_service_config()
    if args.watch:
        need_tools()
    elif args.heartbeat is not None:
        raise SettingsError(
            "--heartbeat",
            None,
            "--watch as well; without --watch a worker runs the job, so use the worker's --heartbeat",
        )
    try:
        job = _submit_request(args)
    except NoOffers as error:
        return refuse(error, args, BAD)
    if job.state.is_terminal:
        return _show_end(job, args)
    if not args.watch:
        if not print_json(args, {"kind": "result", "job": job_keys(job)}):
            say(f"{job.id} {job.state.value.lower()}")
            ours = "training-monitor rent"
            hint(f"run `{ours} worker` to process the queue, `{ours} queue {job.id}` to see the job")
        return OK
    display = ServiceDisplay(args, job_id=job.id)
    if not args.json:
        hint(f"{job.id}: Ctrl-C does not end the job; to continue, repeat the command with --id {job.id}")
        if holder := holder_of(job):
            hint(f"worker {holder} holds the job: it is processed here only if that worker releases it")
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
        print_json(args, {"kind": "interrupted", "job": job_keys(job)})
        say_left(job)
        return interrupted_status(interrupt)
    return _show_end(TrainingQueue().get(job.id), args)


def _show_end(job: QueuedJob, args: Namespace) -> int:
    """Print how a job ended, or that another worker still has it."""
    from training_monitor.cli.rented_jobs import job_keys, print_job
    from training_monitor.rent import JobState

    if not print_json(args, {"kind": "result", "job": job_keys(job)}):
        print_job(job)
    if not job.state.is_terminal:
        hint(f"the job continues elsewhere: see training-monitor rent queue {job.id}")
        return UNKNOWN
    return OK if job.state is JobState.COMPLETED else BAD


def _submit_request(args: Namespace) -> QueuedJob:
    """Queue the training that the command line describes, after checking that the market has a machine for it.

    Raises:
        SettingsError: the request is invalid.
        NoOffers: no suitable offer; nothing is queued, except with --force.
    """
    from training_monitor.rent.worker import check_request, queue_checked

    request = read_request(args)
    check_request(request)
    if not _is_queued(args.id):
        _ask_market(request, force=args.force)
    return queue_checked(request, args.id)


def _is_queued(job_id: str | None) -> bool:
    """Return whether the job exists already: then it goes on, whatever the market offers."""
    from training_monitor.rent import TrainingQueue

    try:
        return job_id is not None and TrainingQueue().get(job_id) is not None
    except JobNotFound:
        return False


def _ask_market(request: TrainingRequest, *, force: bool) -> None:
    """Check and print what the market offers for a request. Raises NoOffers without a suitable offer."""
    from training_monitor.cli.live import Waiting
    from training_monitor.rent import Credits
    from training_monitor.rent.instance_steps import offer_query
    from training_monitor.rent.queue import load_service_config
    from training_monitor.vast.offers import judge_request, search_everything

    balance = None if request.account is None else Credits().balance(request.account)
    daily_budget = load_service_config().daily_budget
    with Waiting() as waiting:
        waiting.on("market", "listing vast.ai's offers")
        try:
            query = offer_query(request)
            everything = search_everything(query)
        except CommandError as error:
            hint(f"could not check whether any offer matches: {error.what}")
            return
    found = judge_request(request, query, everything, balance=balance, daily_budget=daily_budget)
    for note in found.notes:
        hint(note)
    if not force and found.obstacles:
        raise NoOffers(
            f"the job was not queued: {'; '.join(found.obstacles)}",
            hint="change the request, or add --force to queue the job until an offer matches",
        )
    for obstacle in found.obstacles:
        hint(f"queued anyway: {obstacle}")


def read_request(args: Namespace) -> TrainingRequest:
    """Read the request of the command line, which overrides that of a file."""
    from training_monitor.rent import TrainingRequest
    from training_monitor.vast import OfferQuery

    address = regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
    text, of_file = _read_file(args.file) if args.file else ("", {})
    given = {**of_file, **{key: getattr(args, key) for key in _PLAIN if getattr(args, key) is not None}}
    given.update({key: getattr(args, name) for name, key in _LIMITS.items() if getattr(args, name) is not None})
    if args.upload:
        given["upload_to"] = args.upload
    if args.notify:
        given["user"] = args.notify
    for key in ("samples", "register"):
        if (done := getattr(args, key)) is not None:
            given[key] = {"url" if address.match(done) else "command": done}
    for key, more in (("env", dict(_variable(each) for each in args.env)), ("offers", _wishes(args))):
        own = given.get(key) or {}
        given[key] = {**own, **more} if isinstance(own, dict) else own
    chosen = {key: getattr(args, key) for key in _SPEC if getattr(args, key) is not None}
    if given.get("command") is not None and chosen:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in chosen)
        raise SettingsError(
            "--command", given["command"], f"either a command or the options of a LoRA training ({options}), not both"
        )
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
        raise SettingsError("--trigger", None, "the trigger word for the subject, or else --command LINE")
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
        raise SettingsError("--from", path, "a JSON object with the fields of TrainingRequest")
    return text, values


COMMAND = Command(
    run,
    declare,
    ("--dataset ./images --name my-lora --trigger mylora --env HF_TOKEN --upload hf:me/my-lora --watch",),
)
