"""`instances`, `offers`, `dataset`, `keys`, `credits` and `sweep`: rented machines, offers, what a training needs."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from training_monitor.cli.output import (
    BAD,
    LEAST_WIDTH,
    OK,
    UNKNOWN,
    USAGE,
    complain,
    cut,
    hint,
    interrupted_status,
    number,
    one_line,
    print_json,
    print_table,
    refuse,
    say,
)
from training_monitor.core.errors import (
    CommandError,
    InstanceNotFound,
    InsufficientCredits,
    InvalidTransition,
    SettingsError,
    TrainingMonitorError,
)
from training_monitor.core.frozen import asdict, keys_of, replace
from training_monitor.core.models import Event
from training_monitor.core.settings import vast_key_path
from training_monitor.core.units import format_bytes, format_duration, known_number, plural
from training_monitor.service import Credits, validate_dataset
from training_monitor.service.credits import decimals_to_show, sum_movements
from training_monitor.vast import (
    Offer,
    OfferQuery,
    account_balance,
    check_ssh_keys,
    forecast_burn,
    list_instances,
    load_offer_query,
    search_offers,
    setup_ssh_key,
    show_instance,
)
from training_monitor.vast.cost import BurnForecast
from training_monitor.vast.offers import find_loose_wishes, search_everything
from training_monitor.vast.training_request import JobState, read_label

if TYPE_CHECKING:
    from training_monitor.service import ServiceConfig
    from training_monitor.service.sweeper import SweepReport

_SMALLEST_DISK = 1.0  # GB
FORECAST_KEYS = {"dollars_per_hour": "cost_per_hour", "unknown": "cost_unknown"}  # fields, and their names in JSON
TOLD = ("stopping", "refused", "unreachable")  # events of a sweep; others are in its report


# ---------------------------------------------------------------- instances


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


# Keys copied from vast.ai's row of an instance: the name there, and the function that reads the value.
INSTANCE_KEYS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "intended_status": ("intended_status", _text),
    "status_message": ("status_msg", _text),
    "gpu_name": ("gpu_name", _text),
    "num_gpus": ("num_gpus", _whole),
    "cost_per_hour": ("dph_total", known_number),
    "storage_cost_per_hour": ("storage_total_cost", known_number),
    "label": ("label", _text),
    "disk_gb": ("disk_space", known_number),
    "location": ("geolocation", _text),
    "image": ("image_uuid", _text),
    "machine_id": ("machine_id", _whole),
}


def instances(args: Namespace) -> int:
    """List the account's instances, or describe one, and return the exit status."""
    try:
        if args.id is not None:
            rows: Sequence[Mapping[str, Any]] = [show_instance(args.id)]
        else:
            rows = list_instances()
    except InstanceNotFound as error:
        return refuse(error, args, BAD)
    except CommandError as error:
        hint("nobody knows what is rented")
        return refuse(error, args, UNKNOWN)
    burn, found = forecast_burn(rows, None), [_describe(row) for row in rows]
    costs = {"cost_per_hour": burn.dollars_per_hour, "cost_unknown": burn.unknown}
    if print_json(args, {"instances": found, **costs}):
        return OK
    if args.id is not None:
        _print_instance(found[0])
        return OK
    header = ("ID", "STATUS", "GPU", "$/H", "UPTIME", "LABEL/JOB", "SSH")
    if found:
        print_table(header, [_instance_cells(each) for each in found], gives_way=(5, 2, 6))
    say(_burn_in_words(burn))
    if ours := sum(each["job"] is not None for each in found):
        say(f"* {ours} of training_monitor: OWNER/JOB/ATTEMPT")
    return OK


def _describe(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an instance that may be shown: the service's row also has tokens and the environment."""
    label, started = read_label(row.get("label")), known_number(row.get("start_date"))
    return {
        "instance_id": row["id"],
        "status": _text(row.get("actual_status") or row.get("cur_state")),
        "runtime_seconds": None if started is None else max(0.0, time.time() - started),
        "job": None if label is None else {"owner": label[0], "job_id": label[1], "attempt": label[2]},
        "ssh": f"{row['ssh_host']}:{row['ssh_port']}" if row.get("ssh_host") and row.get("ssh_port") else None,
        **{key: read(row.get(name)) for key, (name, read) in INSTANCE_KEYS.items()},
    }


def _instance_cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    label = each["label"] or "-"
    if each["job"]:
        label = "* {owner}/{job_id}/{attempt}".format_map(
            {**each["job"], "owner": cut(each["job"]["owner"], LEAST_WIDTH)}
        )
    price = number(each["cost_per_hour"], 3)
    return str(each["instance_id"]), each["status"] or "?", _gpus(each), price, _uptime(each), label, each["ssh"] or "-"


def _gpus(each: Mapping[str, Any]) -> str:
    count = each["num_gpus"]
    return f"{f'{count}x ' if count and count != 1 else ''}{each['gpu_name'] or '?'}"


def _uptime(each: Mapping[str, Any]) -> str:
    return format_duration(each["runtime_seconds"])


def _print_instance(each: Mapping[str, Any]) -> None:
    job = "-"
    if each["job"]:
        job = "{job_id}, machine {attempt} of it, queued by {owner}".format_map(each["job"])
    lines = (
        ("target", f"vast://{each['instance_id']}"),
        ("status", f"{each['status'] or '?'}, wanted: {each['intended_status'] or '?'}"),
        ("message", each["status_message"]),
        ("GPU", _gpus(each)),
        ("price", f"${number(each['cost_per_hour'], 3)}/h, stopped ${number(each['storage_cost_per_hour'], 3)}/h"),
        ("uptime", _uptime(each)),
        ("job", job),
        ("label", each["label"]),
        ("ssh", each["ssh"]),
        ("disk", f"{number(each['disk_gb'])} GB"),
        ("image", each["image"]),
        ("where", f"{each['location'] or '?'}, machine {number(each['machine_id'])}"),
    )
    for name, value in lines:
        say(f"{name:<8} {one_line(value or '-')}")


def _burn_in_words(burn: BurnForecast) -> str:
    if not burn.instances:
        return "no instances"
    more = f", {burn.storage_only} stopped: only for the disk" if burn.storage_only else ""
    least = f", and of {burn.unknown} nobody knows the price" if burn.unknown else ""
    return f"{plural(burn.instances, 'instance')}: ${burn.dollars_per_hour:.3f} per hour{more}{least}"


# ---------------------------------------------------------------- offers


def offers(args: Namespace) -> int:
    """List suitable offers, best first, and return the exit status."""
    if args.limit < 1:
        raise SettingsError("--limit", args.limit, "1 or more")
    query = load_offer_query(**_wishes(args))
    try:
        found = search_offers(query)
        loose = {} if found else _find_loose_wishes(query)
    except CommandError as error:
        hint("nobody knows what is for rent")
        return refuse(error, args, UNKNOWN)
    shown = found[: args.limit]
    if print_json(args, {"offers": shown, "found": len(found), "query": query, "loosen": loose}):
        return OK if found else BAD
    if shown:
        header = ("ID", "GPU", "N", "VRAM", "$/H", "RELIABILITY", "COUNTRY", "DOWN", "MACHINE")
        print_table(header, [_offer_cells(each) for each in shown], gives_way=(1,))
    if len(found) > len(shown):
        hint(f"and {len(found) - len(shown)} more: --limit")
    if not found:
        hint("no offers: nothing that is for rent is good enough")
        for option, told in loose.items():
            hint(f"  without {option}: {plural(told['offers'], 'offer')}, from ${told['from']:.3f} per hour")
        if not loose:
            hint("  no single wish is in the way: loosen several, such as --max-price and --min-vram")
    return OK if found else BAD


def _wishes(args: Namespace) -> dict[str, Any]:
    given = {
        "max_price_per_hour": args.max_price,
        "min_vram_gb": args.min_vram,
        "disk_gb": args.disk,
        "min_reliability": args.reliability,
        "preferred_gpus": None if args.gpu is None else tuple(args.gpu),
        "only_preferred": None if args.gpu is None else True,
        "blocked_countries": None if args.country_not is None else tuple(each.upper() for each in args.country_not),
        "kind": "bid" if args.bid else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _find_loose_wishes(query: OfferQuery) -> dict[str, dict[str, Any]]:
    """Return the options that alone exclude all offers: how many offers there are without each, and from what price."""
    found = find_loose_wishes(query, search_everything(query))
    if there := search_offers(replace(query, disk_gb=min(query.disk_gb, _SMALLEST_DISK))):
        found["disk"] = there
    return {
        f"--{name.replace('_', '-')}": {"offers": len(there), "from": min(each.price_per_hour or 0.0 for each in there)}
        for name, there in found.items()
    }


def _offer_cells(each: Offer) -> tuple[str, ...]:
    reliability = "?" if each.reliability is None else f"{100 * each.reliability:.1f}%"
    count, down = number(each.num_gpus), number(each.inet_down_mbps)
    vram = number(None if each.vram_gb is None else int(10 * each.vram_gb) / 10, 1)  # so that --min-vram finds it
    price, country = number(each.price_per_hour, 3), each.country or "?"
    return str(each.id), each.gpu_name, count, vram, price, reliability, country, down, number(each.machine_id)


# ---------------------------------------------------------------- datasets and keys


def dataset(args: Namespace) -> int:
    """Validate a folder of images for training, and return the exit status."""
    report = validate_dataset(
        args.path, min_images=args.min_images, require_captions=args.require_captions, trigger=args.trigger
    )
    if print_json(args, report):
        return OK if report.is_valid else BAD
    formats = ", ".join(f"{count} {name}" for name, count in sorted(report.formats.items()))
    say(f"{one_line(report.path)}: {plural(report.images, 'image')}{f' ({formats})' if formats else ''}")
    sides = f", sides of {report.smallest_side} to {report.largest_side} pixels" if report.images else ""
    say(f"  {plural(report.captions, 'caption')}, {format_bytes(report.total_bytes)}{sides}")
    if report.hidden or report.other:
        other = plural(report.other, "other file or folder", "other files or folders")
        say(f"  ignored: {report.hidden} hidden, {other}")
    for kind, texts in (("error", report.errors), ("warning", report.warnings)):
        for text in texts:
            say(f"  {kind}: {one_line(text)}")
    say("valid" if report.is_valid else f"NOT valid: {plural(len(report.errors), 'error')}")
    return OK if report.is_valid else BAD


def keys(args: Namespace) -> int:
    """Check, or with --setup ensure, that instances accept our ssh key, and return the exit status."""
    path = args.path or vast_key_path()
    if not args.setup and not os.path.lexists(path):
        more = "" if args.path is None else f" --path {shlex.quote(path)}"
        error = TrainingMonitorError(f"there is no ssh key {path}", hint=f"training-monitor keys --setup{more}")
        return refuse(error, args, BAD if args.path is None else USAGE)
    report = setup_ssh_key(args.path) if args.setup else check_ssh_keys(args.path)
    good = report.registered and not report.open_to_others
    if print_json(args, report):
        return OK if good else BAD
    say(f"{one_line(report.private_key)}{': made' if report.made else ''}")
    say(f"  {one_line(report.public_key)}")
    if report.registered:
        say(f"  registered with vast.ai as key {report.key_id}: each new instance gets it")
    else:
        say("  NOT registered with vast.ai: training-monitor keys --setup")
    if report.open_to_others:
        say(f"  others may read it, and so ssh refuses it: chmod 600 {shlex.quote(report.private_key)}")
    return OK if good else BAD


# ---------------------------------------------------------------- credits


def credits(args: Namespace) -> int:
    """Show vast.ai's credit and how long it lasts, or an account of the ledger here, and return the exit status."""
    option, amount = ("--deposit", args.deposit) if args.withdraw is None else ("--withdraw", args.withdraw)
    if amount is None and (args.reason is not None or args.payment is not None):
        raise SettingsError("--deposit or --withdraw", None, "the dollars that --reason and --payment are about")
    if amount is not None and (args.account is None or not (args.reason or "").strip()):
        raise SettingsError(option, amount, "an ACCOUNT, and --reason TEXT that says why")
    if args.payment is not None and not args.payment.strip():
        raise SettingsError("--payment", args.payment, "the id of the payment, such as the number of an invoice")
    return _show_balance(args) if args.account is None else _show_account(args)


def _show_balance(args: Namespace) -> int:
    try:
        balance = account_balance()
    except CommandError as error:
        hint("nobody knows the credit")
        return refuse(error, args, UNKNOWN)
    burn, failure = None, None
    try:
        burn = forecast_burn(list_instances(), balance.credit)
    except CommandError as error:
        failure = error
    if args.json:
        said = None if failure is None else failure.what
        print_json(args, {**asdict(balance), "forecast": burn and keys_of(burn, **FORECAST_KEYS), "error": said})
    else:
        say(f"vast.ai credit ${balance.credit:.2f}")
    if burn and not args.json:
        say(f"  {_burn_in_words(burn)}")
        if burn.hours_left is not None:
            most = "at most " if burn.unknown else ""
            say(f"  lasts {most}{format_duration(3600 * burn.hours_left)}")
    if failure:
        hint("nobody knows how long it lasts")
        complain(str(failure))
        return UNKNOWN
    return OK if balance.credit > 0 else BAD


def _show_account(args: Namespace) -> int:
    ledger = Credits()
    if args.deposit is not None or args.withdraw is not None:
        try:
            _move(ledger, args)
        except (InvalidTransition, InsufficientCredits) as error:
            return refuse(error, args, BAD)
    moved = ledger.movements(args.account)
    balance = sum_movements(moved)
    if print_json(args, {"account": args.account, "credit": balance, "movements": moved}):
        return OK if moved else BAD
    if not moved:
        hint(f"{args.account}: no such account, nothing was ever paid in")
        return BAD
    rows, digits = [], decimals_to_show([balance, *(each.amount for each in moved)])
    for each in moved:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.created_at))
        rows.append((when, each.kind, f"{each.amount:+.{digits}f}", each.job_id or "-", each.reason))
    print_table(("WHEN", "KIND", "DOLLARS", "JOB/PAYMENT", "REASON"), rows, gives_way=(4, 3))
    say(f"{one_line(args.account)} has ${balance:.{digits}f}")
    return OK


def _move(ledger: Credits, args: Namespace) -> None:
    """Deposit or withdraw; report a payment that was recorded before."""
    kind, change, amount = "deposit", ledger.deposit, args.deposit
    if args.withdraw is not None:
        kind, change, amount = "withdraw", ledger.withdraw, args.withdraw
    before = [(each.kind, each.job_id) for each in ledger.movements(args.account)]
    change(args.account, amount, args.reason, payment_id=args.payment)
    if args.payment is not None and (kind, args.payment) in before:
        hint(f"payment {args.payment} was counted before, and is not counted again")


# ---------------------------------------------------------------- sweep


def sweep(args: Namespace) -> int:
    """Find the rented instances that no job needs; with --force destroy them."""
    from training_monitor.service.queue import load_service_config

    config = load_service_config()
    if args.all and args.every:
        raise SettingsError("--all", "--every", "one of them: everything is destroyed once, by hand")
    if args.confirm is not None and not (args.all and args.force):
        raise SettingsError("--confirm", args.confirm, "--all and --force with it: nothing else asks")
    try:
        return _sweep(args, config)
    except KeyboardInterrupt as interrupt:
        left = "; training-monitor instances shows what is left" if args.force else ""
        hint(f"\ninterrupted{left}")
        return interrupted_status(interrupt)


def _sweep(args: Namespace, config: ServiceConfig) -> int:
    if args.all and args.force:
        _confirm_all(args)
    from training_monitor.cli.live import Waiting
    from training_monitor.cli.notifying import open_outbox
    from training_monitor.service.sweeper import sweep_instances, watch_sweeps

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
        waiting.on("sweep", "asking vast.ai what is rented")
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
        complain(f"this destroys every instance of the account, whoever rented it, with all that is on it: {count}")
        typed = input(f"type `{sentence}` to go on: ")
    if typed != sentence:
        raise SettingsError("--confirm", typed, f"{sentence!r}, typed out")


def _show_sweep(report: SweepReport, args: Namespace) -> None:
    if print_json(args, report):
        return
    if args.every:
        say(time.strftime("%Y-%m-%d %H:%M:%S"))
    if report["skipped"]:
        hint("another sweep is going on")
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
            "" if kept["seconds_left"] is None else f"; goes in {format_duration(kept['seconds_left'])} if it stays so"
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
        say(f"  {other['instance_id']} is not ours{label}: left alone{_price(other['cost_per_hour'])}")
    for error in report["errors"]:
        complain(f"{error['instance_id'] or 'the listing'}: {error['error']}")
    if report["planned"] or (report["dry_run"] and report["jobs"]):
        hint("nothing was destroyed: --force does it")


def _price(cost_per_hour: float | None) -> str:
    return ", unknown cost" if cost_per_hour is None else f", ${cost_per_hour:.3f} per hour"
