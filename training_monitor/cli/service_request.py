"""What `launch` is asked for: options over a file, checked before anything is queued; and the tools it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
from argparse import Namespace
from dataclasses import fields
from typing import Any

from training_monitor.cli.output import hint
from training_monitor.cli.waiting import Waiting
from training_monitor.errors import AccessDenied, CommandError, JobNotFound, NoOffers, SettingsError, ToolNotFound
from training_monitor.probes.settings_file import load_service_config
from training_monitor.renting import Hook, QueuedJob, TrainingRequest, TrainingSpec
from training_monitor.settings import VAST_KEY_PATH, vast_key_path
from training_monitor.supervise.machine_steps import offer_query
from training_monitor.supervise.worker import check_request, queue_checked
from training_monitor.vast.account import account_balance
from training_monitor.vast.credits import Credits
from training_monitor.vast.job_records import read_record
from training_monitor.vast.market_check import check_market
from training_monitor.vast.offers import OfferQuery
from training_monitor.vast.queue import TrainingQueue

_SPEC = ("trigger", "steps", "save_every", "learning_rate", "rank", "alpha", "base_model")
_WISHES = {"max_price": "max_price_per_hour", "min_vram": "min_vram_gb", "disk": "disk_gb", "num_gpus": "num_gpus"}
_PLAIN = ("name", "dataset", "command", "image", "on_finish", "account", "budget", "soft_timeout", "hard_timeout")
_FILE_TABLES = {"spec": TrainingSpec, "offers": OfferQuery, "samples": Hook, "register": Hook}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TOOLS = {"vastai": "pip install vastai", "ssh": "install the OpenSSH client"}


def submit_request(args: Namespace) -> QueuedJob:
    """Queue what the command line asks for, once the market was asked whether it can be done.

    Raises:
        SettingsError: something is wrong with it, also what is of another kind in a file.
        NoOffers: nothing for rent does for it; nothing is queued, but with --force.
    """
    try:
        request = read_request(args)
        check_request(request)
        if not _is_queued(args.id):
            _ask_market(request, force=args.force)
        return queue_checked(request, args.id)
    except SettingsError:
        raise
    except (TypeError, AttributeError) as error:
        if args.file is None:
            raise
        raise SettingsError("--from", args.file, f"the fields of TrainingRequest ({error})") from None


def _is_queued(job_id: str | None) -> bool:
    """Whether the job is there already: then it goes on, whatever the market has now."""
    try:
        return job_id is not None and TrainingQueue().get(job_id) is not None
    except JobNotFound:
        return False


def _ask_market(request: TrainingRequest, *, force: bool) -> None:
    """Say what the market has for it. Raises NoOffers where that does not do."""
    balance = None if request.account is None else Credits().balance(request.account)
    daily_budget = load_service_config().daily_budget
    with Waiting() as waiting:
        waiting.on("market", "asking vast.ai what is for rent")
        try:
            found = check_market(request, offer_query(request), balance=balance, daily_budget=daily_budget)
        except CommandError as error:
            hint(f"it could not be checked whether anything for rent does: {error.what}")
            return
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
        if (text := getattr(args, key)) is not None:
            given[key] = {"url" if _ADDRESS.match(text) else "command": text}
    if args.env:
        given["env"] = {**given.get("env", {}), **dict(_variable(text) for text in args.env)}
    given["offers"] = {**given.get("offers", {}), **_wishes(args)}
    chosen = {key: getattr(args, key) for key in _SPEC if getattr(args, key) is not None}
    if given.get("command") is not None and chosen:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in chosen)
        raise SettingsError("--command", given["command"], f"either a command, or a LoRA by {options}")
    if not given.get("name"):
        raise SettingsError("--name", None, "a name for the job and its model")
    if given.get("spec") is not None or given.get("command") is None:
        given["spec"] = _spec(given, chosen)
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
    _check_fields(path, values, TrainingRequest)
    for key, kind in _FILE_TABLES.items():
        if values.get(key) is not None:
            _check_fields(path, values[key], kind)
    env, upload_to = values.get("env", {}), values.get("upload_to", [])
    if not isinstance(env, dict) or not all(isinstance(each, str) for each in env.values()):
        raise SettingsError("--from", path, f"a table of texts as env, not {env!r}")
    if not isinstance(upload_to, list) or not all(isinstance(each, str) for each in upload_to):
        raise SettingsError("--from", path, f"a list of texts as upload_to, not {upload_to!r}")
    return dict(values)


def _check_fields(path: str, values: object, kind: type) -> None:
    names = {each.name for each in fields(kind)}
    if not isinstance(values, dict):
        raise SettingsError("--from", path, f"a table with the fields of {kind.__name__}, not {str(values)[:80]!r}")
    if unknown := ", ".join(sorted(set(values) - names)):
        raise SettingsError("--from", path, f"fields of {kind.__name__}, not {unknown}")


def need_tools() -> None:
    """Raise ToolNotFound, AccessDenied or SettingsError for what no machine could be rented or reached without."""
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
        return  # nobody knows; the job asks again
