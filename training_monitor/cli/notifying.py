"""What the options --notify and --heartbeat open, and how --upload, --heartbeat and others read env:NAME."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from training_monitor.cli.output import hint
from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import keep_secret
from training_monitor.core.units import plural

if TYPE_CHECKING:
    from training_monitor.core.store import Store
    from training_monitor.notify.heartbeat import Heartbeat
    from training_monitor.notify.outbox import Outbox

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
        hint("no channel is configured: notices are only listed by training-monitor notify --list")
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
        raise SettingsError(option, text, "env:NAME, where NAME is an environment variable that is set and not empty")
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
