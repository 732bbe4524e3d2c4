"""`notify`: test the channels, send a notice, or list the notices sent."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from training_monitor.cli.output import BAD, OK, hint, print_json, say
from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import keep_secret
from training_monitor.core.units import plural

if TYPE_CHECKING:
    from training_monitor.core.store import Store
    from training_monitor.notify.channels import Channel, NotifiedUser
    from training_monitor.notify.heartbeat import Heartbeat
    from training_monitor.notify.notifier import TrainingNotifier
    from training_monitor.notify.outbox import Outbox

_TEST_TEXT = "This is a test of training-monitor. Notices about your training will arrive here."
_LISTED = 50
_ADDRESSES = ("hf:", "s3://")  # of destinations that hold no secret, but names of models
LEAVING_SECONDS, INTERRUPTED_SECONDS = 60.0, 0.3


@contextmanager
def open_outbox(user: str | None, store: Store | None = None) -> Iterator[Outbox | None]:
    """Open the outbox of --notify: to one of the settings file's users, "" for the channels' own; None without it.

    At the end it waits until posted notices are sent; only briefly when interrupted.
    """
    if user is None:
        yield None
        return
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.notify.configure import load_notifier
    from training_monitor.notify.outbox import Outbox

    store = store or BestEffortStore()
    notifier = load_notifier(store=store)
    if [channel.name for channel in notifier.channels] == ["web"]:
        hint("no channel is configured: notices are only listed, see training-monitor notify --list")
    outbox, patience = Outbox(notifier, store, user or None), INTERRUPTED_SECONDS
    outbox.start()  # an earlier command may have left notices
    try:
        yield outbox
        patience = LEAVING_SECONDS
    finally:
        outbox.close(patience)
        if waiting := len(store.pending_notices(user)):
            later = f"lost: {store.problem.what}" if store.problem else "sent by the next command with --notify"
            hint(f"{plural(waiting, 'notice')} could not be sent yet, and will be {later}")


def typed_or_variable(option: str, text: str) -> str:
    """Return an option's value, or that of the variable for env:NAME: a URL may be a secret, which argv would expose.

    Raises:
        SettingsError: the variable is not set.
    """
    name = text.removeprefix("env:")
    if name == text:
        return text
    if not os.environ.get(name):
        raise SettingsError(option, text, "env:NAME of a variable that is set here")
    if not os.environ[name].startswith(_ADDRESSES):
        keep_secret(os.environ[name])
    return os.environ[name]


@contextmanager
def open_heartbeat(url: str | None, on_problem: Callable[[str], None] = hint) -> Iterator[Heartbeat | None]:
    """Open the heartbeat of --heartbeat: a URL, or env:NAME of a variable that holds it; None without the option.

    At the end a pending ping may still be sent. `on_problem` is called with what goes wrong.

    Raises:
        SettingsError: it is not a URL, or the variable is not set.
    """
    if url is None:
        yield None
        return
    from training_monitor.notify.heartbeat import Heartbeat

    heartbeat, patience = Heartbeat(typed_or_variable("--heartbeat", url), on_problem=on_problem), INTERRUPTED_SECONDS
    try:
        yield heartbeat
        patience = 5.0
    finally:
        heartbeat.close(patience)


def notify(args: Namespace) -> int:
    """Run the command and return the exit status."""
    if (args.message is not None) + args.test + args.list != 1 or args.message == "":
        raise SettingsError("notify", None, "a message, --test or --list")
    if args.list:
        return _list(args)
    return _test(args) if args.test else _tell(args)


def _tell(args: Namespace) -> int:
    delivery = _notifier(args.channel, with_web=True).notify(args.user, args.message, args.priority, args.job)
    sent = delivery.success and not (delivery.channel == "web" and delivery.error)
    if args.json:
        print_json(args, delivery)
    elif sent:
        say(f"{delivery.channel}: sent ({plural(delivery.attempts, 'try', 'tries')})")
    if delivery.error and not args.json:
        only = ", only listed" if delivery.success else ""
        hint(delivery.error if sent else f"not sent{only}: {delivery.error}")
    return OK if sent else BAD


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
    from training_monitor.notify.channels import advise
    from training_monitor.notify.notifier import plain_notice

    result = {"channel": channel.name, "success": False, "attempts": 0, "error": None, "hint": None}
    if obstacle := notifier.obstacle(channel, user):
        return {**result, "error": f"not tried: {obstacle}", "hint": "add it to the settings"}
    tries, error = notifier.try_channel(channel, user, plain_notice(_TEST_TEXT))
    if error is None:
        return {**result, "success": True, "attempts": tries}
    return {**result, "attempts": tries, "error": error.what, "hint": advise(channel.name, error)}


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
        by = f" by {each.channel}" if each.channel and each.state == "sent" else ""
        about = f"  {each.notice.job_id}" if each.notice.job_id else ""
        say(f"{when}  {each.state}{by}{about}  {one_line(each.notice)}" + (f"  ({each.error})" if each.error else ""))
    return OK


def _notifier(names: list[str] | None, *, with_web: bool = False) -> TrainingNotifier:
    """Return the notifier of the settings, with all of its channels or those named."""
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.notify.channels import WebList
    from training_monitor.notify.configure import load_channels, load_users
    from training_monitor.notify.notifier import TrainingNotifier

    channels = load_channels()
    there = {channel.name for channel in channels}
    if not channels:
        expected = "a channel: TRAINING_MONITOR_TELEGRAM_TOKEN, ..._SLACK_WEBHOOK or another in the environment"
        raise SettingsError("notifications", None, f"{expected}, or [notifications] in the settings file")
    for name in names or ():
        if name not in there:
            raise SettingsError("channel", name, f"one that is configured: {', '.join(sorted(there))}")
    if names:
        channels = [channel for channel in channels if channel.name in names]
    elif with_web and "web" not in there:
        channels.append(WebList())
    return TrainingNotifier(channels, users=load_users(), store=BestEffortStore())
