"""`rent offers`: what is for rent at vast.ai, best first."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Any

from training_monitor.cli.argument_types import CommandParser, amount, count
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, UNKNOWN, hint, number, print_json, print_table, refuse
from training_monitor.core.errors import CommandError, SettingsError
from training_monitor.core.units import plural
from training_monitor.vast import Offer, OfferQuery, load_offer_query, search_offers
from training_monitor.vast.offers import find_loose_wishes, search_everything

_SMALLEST_DISK = 1.0  # GB


def declare(command: CommandParser) -> None:
    command.value(
        "--gpu",
        "NAME",
        "GPU models, most preferred first (default: any, those in VASTAI_PREFERRED_GPUS first)",
        nargs="+",
        action="extend",
    )
    command.value(
        "--max-price",
        "DOLLARS",
        "maximum price per hour, including the disk (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)",
        type=amount,
    )
    command.value("--min-vram", "GB", "minimum memory of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)", type=amount)
    command.value("--disk", "GB", "disk space to rent (default: 64, or VASTAI_DEFAULT_DISK_GB)", type=amount)
    command.value(
        "--reliability", "SHARE", "minimum reliability of a machine, from 0 to 1 (default: 0.95)", type=amount
    )
    command.value("--country-not", "XX", "exclude these countries (default: CN HK)", nargs="*")
    command.flag("--bid", "list interruptible machines: cheaper, but others can outbid you")
    command.value("--limit", "N", "maximum number of offers (default: %(default)s)", type=count, default=20)


def run(args: Namespace) -> int:
    """List suitable offers, best first, and return the exit code."""
    if args.limit < 1:
        raise SettingsError("--limit", args.limit, "1 or more")
    query = load_offer_query(**_wishes(args))
    try:
        found = search_offers(query)
        loose = {} if found else _find_loose_wishes(query)
    except CommandError as error:
        hint("the offers could not be listed")
        return refuse(error, args, UNKNOWN)
    shown = found[: args.limit]
    if print_json(args, {"offers": shown, "found": len(found), "query": query, "loosen": loose}):
        return OK if found else BAD
    if shown:
        header = ("ID", "GPU", "N", "VRAM", "$/H", "RELIABILITY", "COUNTRY", "DOWN", "MACHINE")
        print_table(header, [_offer_cells(each) for each in shown], gives_way=(1,))
    if len(found) > len(shown):
        hint(f"and {len(found) - len(shown)} more: raise --limit to see them")
    if not found:
        hint("no offer meets the requirements")
        for option, told in loose.items():
            hint(f"  without {option}: {plural(told['offers'], 'offer')}, from ${told['from']:.3f} per hour")
        if not loose:
            hint("  dropping a single requirement does not help: relax several, such as --max-price and --min-vram")
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


COMMAND = Command(run, declare, ("--gpu 4090",))
