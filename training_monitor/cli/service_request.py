"""The request of `launch`: options over a file, checked before anything is queued; and the tools it needs."""

from __future__ import annotations

import json
import os
import shutil
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from training_monitor.cli.live import Waiting
from training_monitor.cli.output import hint
from training_monitor.core.errors import AccessDenied, CommandError, JobNotFound, NoOffers, SettingsError, ToolNotFound
from training_monitor.core.regex import regex
from training_monitor.core.settings import VAST_KEY_PATH, vast_key_path
from training_monitor.core.settings_lines import find_line
from training_monitor.core.settings_table import Place, format_path, read_keys, read_table, settings_of
from training_monitor.service.credits import Credits
from training_monitor.service.instance_steps import offer_query
from training_monitor.service.queue import TrainingQueue, load_service_config
from training_monitor.service.worker import check_request, queue_checked
from training_monitor.vast.account import account_balance
from training_monitor.vast.offers import OfferQuery, judge_request, search_everything
from training_monitor.vast.training_request import QueuedJob, TrainingRequest

_SPEC = ("trigger", "steps", "save_every", "learning_rate", "rank", "alpha", "base_model")
_WISHES = {"max_price": "max_price_per_hour", "min_vram": "min_vram_gb", "disk": "disk_gb", "num_gpus": "num_gpus"}
_PLAIN = ("name", "dataset", "command", "image", "on_finish", "account", "budget")
_LIMITS = {"soft_limit": "soft_timeout", "hard_limit": "hard_timeout", "max_machines": "max_instances"}
_ADDRESS = regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TOOLS = {"vastai": "pip install vastai", "ssh": "install the OpenSSH client"}


def submit_request(args: Namespace) -> QueuedJob:
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
        with open(path, encoding="utf-8") as file:
            text = file.read()
        values = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError("--from", path, f"a JSON file with the fields of TrainingRequest ({error})") from None
    if not isinstance(values, dict):
        raise SettingsError("--from", path, "a table with the fields of TrainingRequest")
    return text, values


def need_tools() -> None:
    """Raise ToolNotFound, AccessDenied or SettingsError if a machine could not be rented or reached from here."""
    for tool, remedy in _TOOLS.items():
        if shutil.which(tool) is None:
            raise ToolNotFound(f"{tool} is not installed here", hint=remedy)
    key = vast_key_path()
    if not os.path.isfile(key):
        if os.environ.get(VAST_KEY_PATH):
            raise SettingsError(VAST_KEY_PATH, key, "a private ssh key (training-monitor keys --setup makes one)")
        hint(f"there is no {key}: ssh takes its own keys (training-monitor keys --setup makes one)")
    try:
        account_balance()
    except AccessDenied:
        raise
    except CommandError:
        return  # unknown; the job asks again
