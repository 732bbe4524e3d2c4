"""What came of a signal to a process, in words. Pure: the outcomes are found here and on other machines alike."""

from __future__ import annotations

from training_monitor.errors import SettingsError
from training_monitor.policy.run_values import Identity

ENDED_STATES = ("Z", "X", "x")  # zombie: it has ended, and waits for its parent
STOP, CONTINUE = 19, 18  # numbers of Linux, as all are here: the watched side has /proc, whatever this one is
SIGNAL_NUMBERS = {
    "TERM": 15,
    "INT": 2,
    "KILL": 9,
    "STOP": STOP,
    "CONT": CONTINUE,
    "HUP": 1,
    "USR1": 10,
    "USR2": 12,
    "QUIT": 3,
}
_NAMES = {number: name for name, number in SIGNAL_NUMBERS.items()}
_LAST = 64
_NOTHING = {
    "own": "it is the one that looks",
    "never": "it is never sent a signal",
    "boot": "its machine was started again since, or its boot is not known",
    "namespace": "its number is that of another container (pid namespace)",
    "unsure": "when it began is not known, so it may be another one",
    "hidden": "this user may not see it",
}
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk",
    "I": "idle",
    "T": "stopped",
    "t": "held by a debugger",
}


def check_signal(number: int) -> None:
    """Raise SettingsError when there is no such signal."""
    if not 1 <= number <= _LAST:
        raise SettingsError("signal", number, f"the number of a signal, from 1 to {_LAST}")


def signal_name(number: int) -> str:
    """SIGTERM of 15; of one that is seldom sent, `signal 40`."""
    return f"SIG{_NAMES[number]}" if number in _NAMES else f"signal {number}"


def describe_outcome(process: Identity, number: int, outcome: str, name: str = "", state: str = "") -> str:
    """Say in one sentence what a process was sent and what it did, or why it was sent nothing.

    Args:
        outcome: own, never, host, boot, namespace, unsure, hidden, gone, other, zombie: it was sent nothing; denied,
            failed: it could not be sent; ended, left: it was sent, and the process has ended, or is still there. All
            else: nobody knows.
        name: of the program that has this number now, "" when it is not known.
        state: in which the process was seen that is still there, a letter as in /proc.
    """
    what, sent = f"process {process.pid}", signal_name(number)
    held = f"{what} ({name})" if name else what
    if outcome in _NOTHING:
        return f"{what}: nothing was sent, {_NOTHING[outcome]}"
    if outcome == "left" and state:
        return f"{held}: {sent} was sent, {_left(state, number)}"
    sentences = {
        "host": f"{what}: nothing was sent, it runs on {process.hostname or 'a host that is not known'}",
        "gone": f"{what} has ended: nothing was sent",
        "other": f"{what} has ended; its number now belongs to another one ({name}): nothing was sent",
        "zombie": f"{held} is a zombie: it has ended, and waits for its parent",
        "denied": f"{held} belongs to another user: {sent} may not be sent",
        "failed": f"{held}: {sent} could not be sent",
        "ended": f"{held}: {sent} was sent, it has ended",
    }
    return sentences.get(outcome, f"{what}: what came of {sent} is not known")


def has_obeyed(state: str, number: int) -> bool:
    """Whether a process in this state is stopped, or goes on, as the signal told it to."""
    return (number == STOP and state == "T") or (number == CONTINUE and state != "T")


def _left(state: str, number: int) -> str:
    if has_obeyed(state, number):
        return "it is stopped" if number == STOP else "it goes on"
    if state == "T" and number != CONTINUE:
        return "it is still there, stopped: it gets that with SIGCONT"
    return f"it is still there ({_STATES.get(state, '?')})"
