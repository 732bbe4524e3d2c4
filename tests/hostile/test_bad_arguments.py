"""Invalid values for each parameter of the public functions: refused by name in a short message, or taken as valid."""

from __future__ import annotations

import inspect
import math
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, is_typeddict

import pytest

import training_monitor
from tests.fakes import FakeClock
from tests.hostile.tries import tried
from training_monitor.core.errors import SettingsError, TargetUnreachable, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.notify import WebList
from training_monitor.targets.transport import Stream

MOST_MESSAGE = 3100
OUTSIDE = ("transport", "store", "clock", "environ")
SMALL = ("count",)  # of members with a past


class Untold:
    """A value without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        return "<untold>"


class Stop(BaseException):
    """Ends a loop that would go on for ever."""


BAD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, 10**400, -(10**400), 0.0, -0.5, 1e308, math.nan, math.inf, -math.inf, 1j,
    "", " ", "x", "7", "nan", "-1", "\0", "a\0b", "\n", "a\nb\r\x1b[2J", "\ud800", "a\udcffb", "x" * 100_000,
    b"", b"x", bytearray(b"x"), [], [1], ["x", None], (), {}, {1: 2}, {None: "x"}, set(), object(), Untold(), Untold,
    lambda: None, iter(()), Ellipsis, Exception("x"), range(3), ["\ud800"], [math.nan], {"x": Untold()}, type,
)  # fmt: skip


class Nowhere:
    """A transport whose target never answers."""

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        raise TargetUnreachable("it does not answer", argv=tuple(argv))

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        raise TargetUnreachable("it does not answer", argv=tuple(argv))


class ShortClock(FakeClock):
    """A clock for a loop of at most a few waits."""

    left = 5

    def _pass(self, seconds: float, event: threading.Event | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stop
        super()._pass(seconds, event)


@pytest.fixture
def valid(tmp_path: Path) -> dict[str, Callable[[], Any]]:
    """What makes a value that fits, by the name of the parameter."""
    t, store = training_monitor, Store(str(tmp_path))
    command = {"command": "true"}

    def watcher() -> training_monitor.TrainingWatcher:
        return t.TrainingWatcher("pod", "process:x", store=store, transport=Nowhere(), clock=ShortClock())

    def writer() -> training_monitor.TrainingMonitor:
        return t.TrainingMonitor(tmp_path / "run.json", handle_signals=False, transport=Nowhere())

    same = {
        "target": "pod", "head_pod": "pod", "job_id": "process:x", "job_name": "x", "name": "x", "command": "true",
        "checkpoint_dir": "/c", "path": "/c/step-1", "destination": "hf:me/x", "text": "step 1", "config": command,
        "handle": "h", "samples": [], "observations": [], "now": 1.0, "events": [], "ledger": [], "patterns": [],
        "failure": t.Failure("none", "", "", ""), "policy": t.RestartPolicy(), "value": 1, "store": store, "job": "pod",
        "channels": [WebList()], "environ": {}, "what": "it failed", "source": "a log", "key": "interval",
        "expected": "seconds", "open_monitor": lambda: None, "make_watch": lambda monitor: None, "report": {},
        "count": 1,
    }  # fmt: skip
    made = {"watcher": watcher, "monitor": writer, "transport": Nowhere, "clock": ShortClock}
    return {**{name: lambda value=value: value for name, value in same.items()}, **made}


def wrong(call: Callable[..., Any], values: dict[str, Any]) -> str | None:
    """What a call does that it must not do."""
    try:
        call(**values)
    except TrainingMonitorError as error:
        try:
            said = f"{error}{error.hint or ''}"
            said.encode()
        except UnicodeEncodeError:
            return "its message cannot be encoded"
        return None if len(said) <= MOST_MESSAGE else f"a message of {len(said)} characters"
    except Stop:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return None


def public(is_wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    for name in training_monitor.__all__:
        found = getattr(training_monitor, name)
        if is_wanted(found):
            yield name, found


def parameters(call: Any) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    if isinstance(call, type) and issubclass(call, Enum):
        return [inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    return [each for each in inspect.signature(call).parameters.values() if each.kind not in kinds]


def sweep(name: str, call: Any, valid: dict[str, Callable[[], Any]]) -> Iterator[str]:
    """Call with bad values for each parameter, and fitting ones for the others.

    Parameters take turns: each has a third of the values, and with TRAINING_MONITOR_FUZZ all.
    """
    wanted = parameters(call)
    for at, parameter in enumerate(wanted):
        for bad in BAD if os.environ.get("TRAINING_MONITOR_FUZZ") else BAD[at % 3 :: 3]:
            given = {each.name: valid[each.name]() if each.name in valid else None for each in wanted if needs(each)}
            if (parameter.name in OUTSIDE and bad is None) or (takes_function(parameter) and callable(bad)):
                continue  # this machine itself, or a function of the caller's own
            tried()
            if found := wrong(call, {**given, parameter.name: bad}):
                yield f"{name}({parameter.name}={shown(bad)}): {found}"


def needs(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty or parameter.name in OUTSIDE + SMALL


def takes_function(parameter: inspect.Parameter) -> bool:
    return parameter.name.startswith(("on_", "open_", "make_")) or parameter.name == "guard"


def shown(bad: object) -> str:
    return ascii(bad)[:40] if isinstance(bad, (str, bytes, int, float)) else type(bad).__name__


@pytest.mark.usefixtures("no_home")
def test_functions_refuse_bad_values_by_name(valid: dict[str, Callable[[], Any]]) -> None:
    refuse_or_take(valid, lambda found: not isinstance(found, type))


@pytest.mark.usefixtures("no_home")
@pytest.mark.filterwarnings("ignore")
def test_constructors_refuse_bad_values_by_name(valid: dict[str, Callable[[], Any]]) -> None:
    refuse_or_take(valid, lambda found: isinstance(found, type) and not is_typeddict(found))


@pytest.mark.usefixtures("no_home")
@pytest.mark.filterwarnings("ignore")
def test_methods_refuse_bad_values_by_name(valid: dict[str, Callable[[], Any]]) -> None:
    t, way = training_monitor, {"transport": Nowhere(), "clock": ShortClock()}
    made = (
        t.TrainingNotifier([WebList()], store=valid["store"]()),
        t.StallDetector(),
        t.LogTotals(),
        t.JobMonitor("pod", "process:x", store=valid["store"](), **way),
        valid["monitor"](),
    )
    failures = []
    for value in made:
        for name, method in inspect.getmembers(value, inspect.ismethod):
            if not name.startswith("_"):
                failures += sweep(f"{type(value).__name__}.{name}", method, {**valid, "message": lambda: "x"})
    assert not failures, f"{len(failures)} wrong:\n" + "\n".join(failures[:200])


def refuse_or_take(valid: dict[str, Callable[[], Any]], is_wanted: Callable[[Any], bool]) -> None:
    failures = [each for name, call in public(is_wanted) for each in sweep(name, call, valid)]
    assert not failures, f"{len(failures)} wrong:\n" + "\n".join(failures[:200])


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the functions write in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))


LIMITS = [training_monitor.StallPolicy, training_monitor.TerminationPlan, training_monitor.RestartPolicy]


@pytest.mark.parametrize("made", LIMITS)
def test_limits_refuse_what_is_no_number(made: Any) -> None:
    for each in parameters(made):
        if isinstance(each.default, (int, float)) and not isinstance(each.default, bool):
            for bad in (math.nan, -1, -0.5, "seven", True, None, b"1"):
                tried()
                with pytest.raises(SettingsError, match=each.name):
                    made(**{each.name: bad})


def test_each_function_of_the_package_keeps_its_signature_and_docstring() -> None:
    for name, call in public(lambda found: not isinstance(found, type)):
        inner = inspect.unwrap(call)
        assert inspect.signature(call) == inspect.signature(inner) and call.__doc__ == inner.__doc__
        assert call.__name__ == name and pickle.loads(pickle.dumps(call)) is call
