"""`rent credits`: vast.ai's credit and how long it lasts; or an account of the ledger."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict

from training_monitor.cli.argument_types import CommandParser, dollars
from training_monitor.cli.command_table import Command
from training_monitor.cli.commands.rent.instances import burn_in_words
from training_monitor.cli.output import BAD, OK, UNKNOWN, complain, hint, one_line, print_json, print_table, refuse, say
from training_monitor.core.errors import CommandError, InsufficientCredits, InvalidTransition, SettingsError
from training_monitor.core.fields import keys_of
from training_monitor.core.units import format_duration
from training_monitor.rent import Credits
from training_monitor.rent.credits import decimals_to_show, sum_movements
from training_monitor.vast import account_balance, forecast_burn, list_instances

FORECAST_KEYS = {"dollars_per_hour": "cost_per_hour", "unknown": "cost_unknown"}  # fields, and their names in JSON


def declare(command: CommandParser) -> None:
    command.value("account", "ACCOUNT", "local ledger account (default: your vast.ai credit)", nargs="?")
    change = command.add_mutually_exclusive_group()
    change.add_argument("--deposit", type=dollars, metavar="DOLLARS", help="amount to deposit into ACCOUNT")
    change.add_argument(
        "--withdraw",
        type=dollars,
        metavar="DOLLARS",
        help="amount to withdraw from ACCOUNT, to correct a mistaken deposit",
    )
    command.value("--reason", "TEXT", "reason for the deposit or withdrawal")
    command.value("--payment", "ID", "ID of the payment; a payment with the same ID counts only once")


def run(args: Namespace) -> int:
    """Show vast.ai's credit and how long it lasts, or an account of the ledger here, and return the exit code."""
    option, amount = ("--deposit", args.deposit) if args.withdraw is None else ("--withdraw", args.withdraw)
    if amount is None and (args.reason is not None or args.payment is not None):
        raise SettingsError(
            "--deposit or --withdraw",
            None,
            "one of these options, because --reason and --payment describe a deposit or withdrawal",
        )
    if amount is not None and (args.account is None or not (args.reason or "").strip()):
        raise SettingsError(option, amount, "an ACCOUNT and a --reason as well")
    if args.payment is not None and not args.payment.strip():
        raise SettingsError("--payment", args.payment, "the ID of the payment, such as an invoice number")
    return _show_balance(args) if args.account is None else _show_account(args)


def _show_balance(args: Namespace) -> int:
    try:
        balance = account_balance()
    except CommandError as error:
        hint("the credit is unknown")
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
        say(f"  {burn_in_words(burn)}")
        if burn.hours_left is not None:
            most = "at most " if burn.unknown else ""
            say(f"  lasts {most}{format_duration(3600 * burn.hours_left)}")
    if failure:
        hint("it is unknown how long the credit will last")
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
        hint(f"{args.account}: no such account, because no deposit was ever made")
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
        hint(f"payment {args.payment} was already counted and is not counted again")


COMMAND = Command(run, declare, ("",))
