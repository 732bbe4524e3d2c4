"""`notify`: prove the channels that notices go by, send one, or list those sent."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_monitor.cli.output import BAD, OK, hint, print_json, say
from training_monitor.core.errors import SettingsError
from training_monitor.core.units import plural

if TYPE_CHECKING:
    from training_monitor.notify.channel import Channel
    from training_monitor.notify.notifier import TrainingNotifier
    from training_monitor.notify.people import NotifiedUser

from training_monitor.cli.argument_types import USERS, CommandParser
from training_monitor.cli.command_table import Command

_TEST_TEXT = "This is a test of training-monitor. Notices about your training will arrive here."
_LISTED = 50


def declare(command: CommandParser) -> None:
    command.value("message", "MESSAGE", "text of the notice", nargs="?")
    command.flag("--test", "send a test notice through every channel")
    command.flag("--list", "list recent notices")
    command.several("--channel", "NAME", "use only this channel (may be repeated)")
    command.value("--user", "NAME", "recipient: a user in the settings file (default: that of each channel)", USERS)
    command.value(
        "--priority",
        "P",
        "low, normal, high or urgent (default: %(default)s)",
        default="normal",
        choices=("low", "normal", "high", "urgent"),
    )
    command.value("--job", "JOB", "job that the notice is about; with --list, show only notices about this job")


def run(args: Namespace) -> int:
    """Run the command and return the exit code."""
    if (args.message is not None) + args.test + args.list != 1 or args.message == "":
        raise SettingsError("notify", None, "a message, --test or --list")
    if args.list:
        return _list(args)
    return _test(args) if args.test else _tell(args)


def _tell(args: Namespace) -> int:
    delivery = _notifier(args.channel, with_web=True).notify(args.user, args.message, args.priority, args.job)
    sent = delivery.success and not _is_only_listed(delivery.channel, delivery.error)
    if args.json:
        print_json(args, replace(delivery, success=sent))
    elif sent:
        say(f"{delivery.channel}: sent ({plural(delivery.attempts, 'try', 'tries')})")
    if delivery.error and not args.json:
        only = ", only listed" if delivery.success else ""
        hint(delivery.error if sent else f"not sent{only}: {delivery.error}")
    return OK if sent else BAD


def _is_only_listed(channel: str | None, error: str | None) -> bool:
    """Return whether a notice is in the list of the page only, since all other channels refused it."""
    return channel == "web" and bool(error)


def _test(args: Namespace) -> int:
    notifier = _notifier(args.channel)
    user = notifier.find_user(args.user)
    notifier.require_channel(user)
    channels = [each for each in notifier.channels if not (user.is_person and notifier.obstacle(each, user))]
    results = [_prove(notifier, channel, user) for channel in channels]
    print_json(args, {"channels": results})
    for result in [] if args.json else results:
        advice = f"; try: {result['hint']}" if result["hint"] else ""
        say(f"{result['channel']}: {'ok' if result['success'] else result['error'] + advice}")
    return OK if all(result["success"] for result in results) else BAD


def _prove(notifier: TrainingNotifier, channel: Channel, user: NotifiedUser) -> dict[str, Any]:
    from training_monitor.notify.notifier import plain_notice

    result = {"channel": channel.name, "success": False, "attempts": 0, "error": None, "hint": None}
    if obstacle := notifier.obstacle(channel, user):
        return {**result, "error": f"not tried: {obstacle}", "hint": "add it to the settings"}
    tries, error = notifier.try_channel(channel, user, plain_notice(_TEST_TEXT))
    if error is None:
        return {**result, "success": True, "attempts": tries}
    return {**result, "attempts": tries, "error": error.what, "hint": channel.advise(error)}


def _list(args: Namespace) -> int:
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.notify.notice_text import one_line

    kept = BestEffortStore().recent_notices(args.job, _LISTED)
    if args.json:
        print_json(args, {"notices": kept})
    elif not kept:
        hint("no notices")
    for each in [] if args.json else kept:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.created_at))
        state = "only listed" if _is_only_listed(each.channel, each.error) else each.state
        by = f" by {each.channel}" if each.channel and state == "sent" else ""
        about = f"  {each.notice.job_id}" if each.notice.job_id else ""
        say(f"{when}  {state}{by}{about}  {one_line(each.notice)}" + (f"  ({each.error})" if each.error else ""))
    return OK


def _notifier(names: list[str], *, with_web: bool = False) -> TrainingNotifier:
    """Return the notifier of the settings, with all of its channels or those named."""
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.notify.channels.web import WebList
    from training_monitor.notify.configure import load_channels, load_users
    from training_monitor.notify.notifier import TrainingNotifier

    channels = load_channels()
    there = {channel.name for channel in channels}
    if not channels:
        expected = "a channel: TRAINING_MONITOR_TELEGRAM_TOKEN, ..._SLACK_WEBHOOK or another in the environment"
        raise SettingsError("notifications", None, f"{expected}, or [notifications] in the settings file")
    for name in names:
        if name not in there:
            raise SettingsError("channel", name, f"a configured channel: {', '.join(sorted(there))}")
    if names:
        channels = [channel for channel in channels if channel.name in names]
    elif with_web and "web" not in there:
        channels.append(WebList())
    return TrainingNotifier(channels, users=load_users(), store=BestEffortStore())


COMMAND = Command(run, declare, ("--test", "--list"))
