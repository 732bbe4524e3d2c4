"""Keep waits in the store, so that a wait can be taken up by its handle after its caller died."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from training_monitor.core.errors import Hint, JobNotFound, SettingsError
from training_monitor.core.models import LogCursor
from training_monitor.core.outcomes import WaitReport
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.supervision.conditions import KnownCheckpoints

MOST_ENDED = 100  # kept
ENDED_SECONDS = 7 * 86400.0  # for which an ended wait is kept
LEFT_SECONDS = 30 * 86400.0  # and one that nobody goes on with
_PREFIX = "wait "


@dataclass(frozen=True, slots=True)
class AskedWait:
    """What a caller waits for; see `wait_for`, whose arguments these are."""

    target: str
    what: str | None
    conditions: tuple[str, ...]
    timeout: float | None = None
    interval: float | None = None
    stagnation_threshold: float | None = None
    checkpoint_dir: str | None = None


@dataclass
class WaitState:
    """A wait, as it is kept after each look; times are epoch seconds.

    `attempt` is the number of the newest attempt, 0 for a job that is none, and None where that is unknown. `has_begun`
    tells whether it has looked. `cursor` is how far its log was searched, `tail` the end of one that has no cursor, and
    `known` are the checkpoints of the beginning. `idle_since` is since when the GPUs have been idle, `looked_at` the
    time of the last answer. `target` is the one asked for, in the container that was found.
    """

    asked: AskedWait
    began_at: float
    target: str | None = None
    job: WatchedJob | None = None
    name: str = ""
    attempt: int | None = None
    has_begun: bool = False
    cursor: LogCursor | None = None
    tail: str = ""
    known: KnownCheckpoints | None = None
    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    idle_since: float | None = None
    looked_at: float | None = None
    unseen_seconds: float = 0.0
    result: WaitReport | None = None


@dataclass(frozen=True, slots=True)
class KeptWait:
    """One line of the list of waits: `updated_at` is when it was last written, in epoch seconds."""

    handle: str
    asked: AskedWait
    began_at: float
    updated_at: float
    result: WaitReport | None


def wait_key(handle: str) -> str:
    """Return the key of a wait in the store. Raises SettingsError for a handle that is not one."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", handle):
        raise SettingsError("handle", handle[:200], "at most 100 letters, digits, dots, dashes and underscores")
    return _PREFIX + handle


def new_handle() -> str:
    """Return a handle that nobody has."""
    return os.urandom(6).hex()


def load_wait(store: Store, handle: str) -> WaitState | None:
    """Return a wait, ended or not; None if there is none."""
    key = wait_key(handle)
    return store.load_run(key, WaitState) or store.load_run(key, WaitState, finished=True)


def find_wait(store: Store, handle: str) -> WaitState:
    """Return a wait. Raises JobNotFound if there is none."""
    state = load_wait(store, handle)
    if state is None:
        raise JobNotFound(f"no saved wait has the handle {handle!r}", hint=Hint("list them with {list_waits}"))
    return state


def save_wait(store: Store, handle: str, state: WaitState) -> None:
    """Save a wait; it is on disk when this returns. Raises StateError."""
    store.save_run(wait_key(handle), state, finished=state.result is not None)


def list_waits(store: Store) -> list[KeptWait]:
    """Return the waits that are kept, the last written first."""
    found = []
    for key, updated_at, _ in _rows(store):
        handle = key[len(_PREFIX) :]
        if state := load_wait(store, handle):
            found.append(KeptWait(handle, state.asked, state.began_at, updated_at, state.result))
    return found


def forget_old_waits(store: Store, now: float) -> None:
    """Forget the waits that ended long ago, all but the last MOST_ENDED that ended, and those nobody goes on with."""
    ended = 0
    for key, updated_at, is_ended in _rows(store):
        ended += is_ended
        is_old = now - updated_at > (ENDED_SECONDS if is_ended else LEFT_SECONDS)
        if is_old or (is_ended and ended > MOST_ENDED):
            store.forget_run(key)
            store.forget_lock(key)


def _rows(store: Store) -> list[tuple[str, float, bool]]:
    """Return key, time of the last write, and whether it has ended, of every wait, the last written first."""
    with store.transaction(durable=False) as execute:
        asked = "SELECT key, updated_at, finished FROM runs WHERE key GLOB ? ORDER BY updated_at DESC"
        return [(key, at, bool(ended)) for key, at, ended in execute(asked, (f"{_PREFIX}*",))]
