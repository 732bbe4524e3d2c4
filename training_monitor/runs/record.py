"""Everything that a script has reported of its run, and the document that is written from it.

The training thread counts and sets metrics without a lock: counters are `itertools.count`, whose steps are atomic, and
metrics are one dict, from which they are taken one by one. Everything else is under `lock`, which is never held while a
file is written. Metrics are written as numbers, booleans and short texts, whatever the script passed in.

Values of a script may be edited while it runs: `take` reads the edits of the control file, in the background; `apply`
puts them into the script's own dict, in the training thread, between two of its steps, and answers them.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import numbers
import re
import reprlib
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import PurePath
from typing import Any, NamedTuple

from training_monitor.core.clock import Clock
from training_monitor.core.masking import redact, redact_named
from training_monitor.core.regex import regex
from training_monitor.core.shown import text_of
from training_monitor.runs.clock import IDLE, VALIDATION, RunClock
from training_monitor.runs.endings import Outcome, outcome_after
from training_monitor.runs.progress_file import MAX_VALUE, MOST_ATTEMPTS, Edit, convert
from training_monitor.runs.resources import Busiest
from training_monitor.runs.rows import is_complete
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    EarlierAttempt,
    Estimate,
    MetricHistory,
    OwnResources,
    Run,
    Scalar,
)
from training_monitor.targets.proc_stat import Identity

MOST_METRICS, MOST_TEXT, MOST_NAME = 200, 200, 100
MOST_HISTORIES, MOST_POINTS = 32, 64
PLAIN = frozenset({int, float, bool, str, type(None)})  # values that nobody can change
_LARGEST = 2**63
FORMAT = 1
MOST_VARIABLES, MOST_ERROR, MOST_SETTINGS = 200, 200, 100
RESTARTS_DATALOADER = ("batch_size", "num_workers")
_SMALL = (numbers.Number, PurePath, enum.Enum, date, timedelta, range, type, type(None))
_IMPORTANT = regex(r"loss|(?<![a-z])lr(?![a-z])|learning.?rate", re.IGNORECASE)
_EARLIER_RUN = "was requested from an earlier run"

Point = tuple[int, float | None]  # step and value
Change = tuple[str, object, object]  # name, old value, new value
Callback = Callable[[str, Any, Any], object]


class MetricValues:
    """The metrics as last converted, and their histories: at most 200 and 32, losses and learning rates first."""

    def __init__(self) -> None:
        self._known: dict[str, Scalar] = {}
        self._histories: dict[str, GrowingHistory] = {}
        self._earlier: Mapping[str, GrowingHistory] = {}  # until it is known where this attempt continues

    def update(self, metrics: Mapping[str, Scalar], step: int | None) -> dict[str, list[str]]:
        """Take over the values of a step; return the names for which there is no room, by what they have no room in.

        Args:
            step: None where it is not known: the histories are left as they are.
        """
        left_out: dict[str, list[str]] = {
            f"{MOST_METRICS} metrics": [],
            f"the histories of {MOST_HISTORIES} metrics": [],
        }
        without_room, without_history = left_out.values()
        for name, value in metrics.items():
            short = short_name(name)
            if not _has_room(self._known, MOST_METRICS, short):
                without_room.append(short)
                continue
            self._known[short] = redact_named(name, value)
            if step is None or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if _has_room(self._histories, MOST_HISTORIES, short):
                self._histories.setdefault(short, GrowingHistory()).add(step, value)
            else:
                without_history.append(short)
        return left_out

    def follow(self, earlier: Mapping[str, MetricHistory]) -> None:
        """Keep the histories of earlier attempts until `join` is called."""
        self._earlier = {name: GrowingHistory(zip(past.steps, past.values)) for name, past in earlier.items()}

    def join(self, made_before: int) -> None:
        """Put the histories of earlier attempts before those of this one, which continues from this step."""
        for name, past in self._earlier.items():
            points = [each for each in past.points if each[0] <= made_before]
            if points and _has_room(self._histories, MOST_HISTORIES, name):
                own = self._histories.get(name, GrowingHistory()).points
                self._histories[name] = GrowingHistory([*points, *(each for each in own if each[0] > made_before)])
        self._earlier = {}

    def plain(self) -> dict[str, Scalar]:
        """Return the metrics for the file."""
        return {name: written(value) for name, value in self._known.items()}

    def histories(self) -> dict[str, dict[str, list[Any]]]:
        """Return the histories for the file."""
        return {name: history.written() for name, history in {**self._earlier, **self._histories}.items()}


def _has_room(table: dict[str, Any], most: int, name: str) -> bool:
    """Whether a name has a place among so many; the newest that is less important gives its place up."""
    if name in table or len(table) < most:
        return True
    other = next((each for each in reversed(table) if not _is_important(each)), None) if _is_important(name) else None
    if other is not None:
        del table[other]
    return other is not None


@functools.lru_cache(1024)
def _is_important(name: str) -> bool:
    return _IMPORTANT.search(name) is not None


def short_name(name: str) -> str:
    """Return at most 100 characters that no other name has: the end of a long name often says most."""
    if len(name) <= MOST_NAME:
        return name
    return f"{name[:30]}~{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}~{name[-60:]}"


class Discarded(dict[str, object]):
    """A sink for metrics that are no longer written: it keeps nothing."""

    def update(self, *mappings: object, **metrics: object) -> None: ...

    def __setitem__(self, name: str, value: object) -> None: ...

    def __ior__(self, metrics: object) -> Discarded:  # type: ignore[override, misc]
        return self


class GrowingHistory:
    """The values of a metric over a whole run, thinned evenly by step: at most 64, always including the last one."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._kept: list[Point] = []
        self._spacing = 1.0  # steps between those that are kept
        self._last: Point | None = None
        for point in points:
            self.add(*point)

    def add(self, step: int, value: float | None) -> None:
        """Add a value; it takes the place of those of its step and of all later ones."""
        self._last = step, None if value is None else float(f"{value:.6g}")
        while self._kept and self._kept[-1][0] >= step:
            self._kept.pop()
        if len(self._kept) == MOST_POINTS - 1:
            del self._kept[1::2]
            self._spacing = (self._kept[-1][0] - self._kept[0][0]) / (len(self._kept) - 1)
        if not self._kept or step >= self._kept[-1][0] + self._spacing:
            self._kept.append(self._last)

    @property
    def points(self) -> list[Point]:
        """The steps and the values, oldest first."""
        last = self._last
        return self._kept if last is None or self._kept[-1] == last else [*self._kept, last]

    def written(self) -> dict[str, list[Any]]:
        """Return the points for the file."""
        return {
            "steps": [step for step, _ in self.points],
            "values": [written(value) for _, value in self.points],
        }


def plain_value(value: object) -> Scalar:
    """Return a number, boolean or text for any object, such as a tensor or array of one element; never raises."""
    try:
        return _plain(value)
    except Exception as error:  # any class may raise anything
        return redact(f"{type(value).__name__}: {text_of(error)}")[:MOST_TEXT]


def _plain(value: object) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return redact(str(value)[: 2 * MOST_TEXT])[:MOST_TEXT]
    if isinstance(value, int):
        return int(value) if abs(value) < _LARGEST else _large(value)
    if isinstance(value, float):
        return float(value)
    return _converted(value)


def written(value: Scalar) -> Scalar:
    """Return the value for JSON, which has no nan and no infinity: they become texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _large(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _converted(value: object) -> Scalar:
    """Convert by `item()`, which tensors, arrays and their scalars have, else by float()."""
    item = getattr(value, "item", None)
    number = item() if callable(item) else float(value)  # type: ignore[arg-type]
    return _plain(number) if isinstance(number, bool | int | float | str) else float(number)


def value_now(value: object) -> object:
    """Return what a metric is at this moment, whatever happens to the object later; never raises an Exception.

    Only a GPU is not waited for: what lies there is copied there, without the graph behind it, and converted later.
    """
    if type(value) in PLAIN:
        return value
    with suppress(Exception):  # any class may raise anything: the conversion reports it
        if _is_elsewhere(value) and _count(value) == 1:
            return _copied(value)
    return plain_value(value)


def _is_elsewhere(value: object) -> bool:
    """Whether an array lies in the memory of a device, by torch's type, JAX's platform or TensorFlow's text."""
    device = getattr(value, "device", None)
    name = getattr(device, "type", None) or getattr(device, "platform", None) or device
    return name is not None and "cpu" not in str(name).lower()


def _count(value: Any) -> int:
    """Return the number of elements: torch has a method for it, others a field."""
    return int(value.numel() if hasattr(value, "numel") else getattr(value, "size", 1))


def _copied(value: Any) -> object:
    """Return a copy on the same device; TensorFlow's tensors have no method for it, and never change."""
    alone = value.detach() if hasattr(value, "detach") else value
    copy = getattr(alone, "clone", None) or getattr(alone, "copy", None)
    return copy() if copy else alone


# ---------------------------------------------------------------- variables


class Answered(NamedTuple):
    """The result of the last edit of a variable; `error` is None if it was applied."""

    edit: str
    error: str | None = None
    applied_at: float | None = None


def type_name(value: object) -> str | None:
    """Return float, int, bool or str; None for a value that cannot be edited."""
    kinds = (("bool", bool), ("int", int), ("float", float), ("str", str))
    with suppress(Exception):  # the object may hide its class
        return next((name for name, kind in kinds if isinstance(value, kind)), None)
    return None


def read_only_text(value: object) -> str:
    """Return a text for a value that cannot be edited, without calling the repr of large objects."""
    with suppress(Exception):  # any class may raise
        return redact(_Brief().repr(value))[:MAX_VALUE]
    return f"<{type(value).__name__}>"


def plain_settings(settings: Mapping[Any, object]) -> dict[str, Scalar]:
    """Return settings by their names, those of nested mappings as `optimizer.lr`: at most 100, without secrets."""
    return dict(itertools.islice(_settings(settings), MOST_SETTINGS))


def _settings(settings: Mapping[Any, object], above: str = "") -> Iterator[tuple[str, Scalar]]:
    for key, value in settings.items():
        name = f"{above}{text_of(key)}"
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{name}.")
        else:
            plain = value if isinstance(value, bool | int | float | str) else read_only_text(value)
            yield short_name(name), redact_named(name, written(plain_value(plain)))


class _Brief(reprlib.Repr):
    """A repr that shows the beginnings of containers, and the text of other objects only if they are small."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, 200, 200
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 50

    def repr_instance(self, x: object, level: int) -> str:
        """Return a short text: a tensor's own would wait for its GPU, and that of a model is long."""
        if isinstance(x, _SMALL):
            return text_of(x)[: self.maxother]
        return f"<{type(x).__name__}>"


class TrackedVariables:
    """The variables of a run. `values` is what the script reads; a dict that it passed in is kept up to date too."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.answers: dict[str, Answered] = {}
        self._owners: dict[str, MutableMapping[str, object]] = {}
        self._kinds: dict[str, str | None] = {}
        self._pending: dict[str, tuple[Edit, object]] = {}
        self._untold: dict[str, tuple[object, object]] = {}
        self._told: dict[str, tuple[object, object]] = {}
        self._needs_dataloader = False
        self._callbacks: list[tuple[str | None, Callback]] = []

    def track(self, variables: Mapping[str, object]) -> None:
        """Let these be edited.

        Raises:
            ValueError: There are too many, or a name is not a text of at most 100 characters.
        """
        for name in variables:
            if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
                raise ValueError(
                    f"a variable's name must be a string of 1 to {MOST_NAME} characters, not {name!r:.200}"
                )
        if len({*self.values, *variables}) > MOST_VARIABLES:
            raise ValueError(f"at most {MOST_VARIABLES} variables can be tracked")
        for name, value in variables.items():
            self.values[name], self._kinds[name] = value, type_name(value)
            if isinstance(variables, MutableMapping):
                self._owners[name] = variables

    def current(self, name: str) -> object:
        """Return the value that the script uses now: it may have set it itself."""
        owner = self._owners.get(name)
        with suppress(Exception):  # a mapping of the script's own may raise
            if owner is not None and name in owner:
                return owner[name]
        return self.values.get(name)

    def kind(self, name: str) -> str | None:
        """Return the type to which edits are converted; None if the value cannot be edited."""
        return self._kinds.get(name) if type_name(self.current(name)) else None

    def take(self, edits: Mapping[str, Edit], *, of_earlier_run: bool = False) -> bool:
        """Accept edits; True if something is to be applied. Edits that cannot be applied are answered at once."""
        for name, edit in edits.items():
            waiting, answer = self._pending.get(name), self.answers.get(name)
            seen = waiting[0].edit if waiting else answer.edit if answer else None
            if name not in self.values or seen == edit.edit:
                continue
            self._pending.pop(name, None)
            kind = self.kind(name)
            if of_earlier_run or kind is None:
                why = _EARLIER_RUN if kind else f"values of type {type(self.current(name)).__name__} cannot be edited"
                self.answers[name] = Answered(edit.edit, why)
                continue
            try:
                self._pending[name] = edit, convert(edit.value, kind)
            except ValueError as error:
                self.answers[name] = Answered(edit.edit, f"{edit.value[:50]!r}: {error}")
        return bool(self._pending)

    def apply(self, now: float) -> list[Change]:
        """Put the accepted edits into the script's values; return the changes. `now` is epoch seconds."""
        changes: list[Change] = []
        while self._pending:
            name = next(iter(self._pending))
            edit, value = self._pending.pop(name)
            old = self.current(name)
            owner = self._owners.get(name)
            try:
                if owner is not None:
                    owner[name] = value
            except Exception as error:  # a mapping of the script's own may raise
                self.answers[name] = Answered(edit.edit, f"{type(error).__name__}: {text_of(error)}"[:MOST_ERROR])
                continue
            self.values[name] = value
            self.answers[name] = Answered(edit.edit, None, now)
            changes.append((name, old, value))
            self._untold[name] = (self._untold[name][0] if name in self._untold else old), value
            self._needs_dataloader = self._needs_dataloader or name in RESTARTS_DATALOADER
        return changes

    def call_back(self, callback: Callback, name: str | None = None) -> None:
        """Register a callback with (name, old value, new value) for this variable, or for all."""
        self._callbacks.append((name, callback))

    def tell_callbacks(self, changes: Iterable[Change]) -> list[str]:
        """Call the callbacks; return a message for each that failed."""
        failures = []
        for name, old, new in changes:
            for wanted, callback in list(self._callbacks):
                try:
                    if wanted in (None, name):
                        callback(name, old, new)
                except Exception as error:  # the script's own function
                    failures.append(f"a callback for {name!r} failed: {type(error).__name__}: {text_of(error)}")
        return failures

    def tell(self, name: str | None = None) -> list[Change]:
        """Return the changes since the last call, of one variable or of all."""
        if name is None:
            told, self._untold = self._untold, {}
        else:
            told = {name: self._untold.pop(name)} if name in self._untold else {}
        if told:
            self._told = told
        return [(key, old, new) for key, (old, new) in told.items()]

    def summary(self) -> str:
        """Describe the last changes, one line each."""
        changes = {**self._told, **self._untold}
        return (
            "\n".join(f"{name}: {old!r:.200} -> {new!r:.200}" for name, (old, new) in changes.items()) or "no changes"
        )

    def needs_dataloader(self) -> bool:
        """Return whether the batch size or the number of workers changed since the last call."""
        needed, self._needs_dataloader = self._needs_dataloader, False
        return needed


# ---------------------------------------------------------------- the run


def counted(counter: itertools.count[int]) -> int:
    """Return how often a counter that began at 0 was stepped: only its text tells without stepping it."""
    return int(repr(counter)[6:-1])


class RunRecord:
    """The state of one run. Methods are called with `lock` held, except the training thread's counting."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()  # a signal handler may interrupt its holder
        self.training, self.validation = itertools.count(), itertools.count()
        self.metrics: dict[str, object] = {}  # reported since they were last taken
        self.progress = RunClock(clock.monotonic())
        self.variables = TrackedVariables()
        self.started_at = clock.time()
        self.step_at: float | None = None
        self.status, self.is_explicit = RUNNING, False
        self.message: str | None = None
        self.exit_code: int | None = None
        self.signal: str | None = None
        self.ended_at: float | None = None
        self.needs_training_thread = True  # to begin the monitoring, or to apply edits
        self.version = 0  # grows with every change that should be written
        self.calls = 0  # grows with every report of the script besides counting
        self.attempt, self.earlier = 1, tuple[EarlierAttempt, ...]()
        self._values = MetricValues()
        self._takes = 0  # of metrics: the steps of a history where the script counts none

    def observe(self) -> None:
        """Let time pass up to now, and look at the counters."""
        if self.progress.observe(self.clock.monotonic(), counted(self.training), counted(self.validation)):
            self.step_at = self.clock.time()
            self.version += 1

    def take_metrics(self) -> dict[str, list[str]]:
        """Convert the metrics that the script has reported since; without the lock, since this may wait for a GPU.

        Returns:
            The names for which there is no room, see `MetricValues.update`.
        """
        taken = {}
        for name in list(self.metrics):
            with suppress(KeyError):  # the run ended meanwhile
                taken[name if type(name) is str else text_of(name)] = plain_value(self.metrics.pop(name))
        if not taken:
            return {}
        with self.lock:
            self.version += 1
            self._takes += 1
            self.observe()
            if self._continues_somewhere:
                self._values.join(self.progress.made_before)
                return self._values.update(taken, self._step or self._takes)
            return self._values.update(taken, None)

    @property
    def _continues_somewhere(self) -> bool:
        """Whether it is known at which step this attempt continues; where none counted steps, at none."""
        return bool(self._step or self.progress.epoch is not None or not any(each.step for each in self.earlier))

    def follow(self, earlier: Run, me: Identity, *, has_moved: bool = False) -> None:
        """Note which attempt of its run this is, by the progress file of the one before.

        An attempt that says RUNNING is not: it was killed, unless it had made its last batch, or is of this process.

        Args:
            has_moved: the file is that of a living process of this training, which made room: the attempt is the same.
        """
        is_known = earlier.status not in (None, RUNNING)
        ended = FINISHED if is_complete(earlier) else CANCELED if earlier.process == me else KILLED
        last = EarlierAttempt(
            str(earlier.status) if is_known else ended,
            earlier.started_at,
            earlier.ended_at if is_known else earlier.updated_at,
            earlier.step,
        )
        with self.lock:
            self.attempt = earlier.attempt + (not has_moved)
            self.earlier = earlier.earlier if has_moved else (*earlier.earlier, last)[-MOST_ATTEMPTS:]
            if earlier.epochs_from_zero:
                self.progress.count_from_zero()
            self._values.follow(earlier.history)
            if self._step:
                self._values.join(self.progress.made_before)
            self.version += 1

    def end(self, outcome: Outcome, *, is_explicit: bool) -> bool:
        """Set how the run ended; False if an earlier report stands.

        Args:
            is_explicit: the script reports it itself; otherwise its end was observed.
        """
        if self.status != RUNNING and not (is_explicit and self._is_corrected_by(outcome.status)):
            return False
        self.observe()
        if self.status == RUNNING:
            self.ended_at = self.clock.time()
            self.progress.end()
        self.status, self.is_explicit = outcome.status, is_explicit
        self.message, self.exit_code = outcome.message, outcome.exit_code
        self.version += 1
        return True

    def _is_corrected_by(self, status: str) -> bool:
        """Return whether the script's own report overrides an end that is already known.

        Its first report does; after that only a failure overrides FINISHED. A report of FINISHED, as from a `finally`,
        is not better evidence than an exception that was seen.
        """
        if self.is_explicit:
            return self.status == FINISHED and status == FAILED
        return status != FINISHED

    def after_signal(self, outcome: Outcome) -> Outcome:
        """Return how the run ended, given a possible signal: then CANCELED, unless it reached its last batch."""
        with self.lock:
            self.observe()
            if self.signal is None or (outcome.status == FINISHED and self.progress.is_complete):
                return outcome
        return outcome_after(self.signal, outcome)

    def before_its_time(self, outcome: Outcome) -> Outcome:
        """Return how the run ended, with where it stood if that was not its announced end.

        An exit with status 0 in the middle of an epoch is CANCELED, if the training was left by it. A loop may end
        early, as may the whole script: that is FINISHED.
        """
        with self.lock:
            self.observe()
            progress = self.progress
            batch, total = progress.training.batch or 0, progress.training.total or 0
            is_within_epoch = progress.mode != IDLE and batch < total
            where = []
            if progress.epoch and (progress.total_epochs or 0) > 1:
                where.append(f"epoch {progress.epoch} of {progress.total_epochs}")
            if is_within_epoch:
                where.append(f"batch {batch} of {total}")
            if not where and progress.total_steps:
                where.append(f"step {self._step} of {progress.made_before + progress.total_steps}")
        if outcome.status != FINISHED or outcome.message or not where or progress.is_complete:
            return outcome
        how = "ended" if outcome.exit_code is None else "exited with status 0"
        status = CANCELED if outcome.is_exit and is_within_epoch else FINISHED
        return outcome._replace(status=status, message=f"{how} at {', '.join(where)}")

    def document(self, metadata: Mapping[str, object], resources: OwnResources, busiest: Busiest) -> dict[str, object]:
        """Return the progress file of docs/progress_files.md."""
        return {
            "format": FORMAT,
            "status": self.status,
            "start_time": self.started_at,
            "updated_at": self.clock.time(),
            "end_time": self.ended_at,
            "error_message": self.message or (f"{self.signal} was received" if self.signal else None),
            "exit_code": self.exit_code,
            "metadata": {**metadata, "start_time": self.started_at},
            "state": self._state(),
            "estimates": self._estimates(),
            "metrics": self._values.plain(),
            "history": self._values.histories(),
            "attempt": self.attempt,
            "earlier_attempts": [
                {"status": each.status, "start_time": each.started_at, "end_time": each.ended_at, "step": each.step}
                for each in self.earlier
            ],
            "variables": {name: self._variable(name) for name in self.variables.values},
            "resources": {**asdict(resources), "busiest_threads": busiest},
        }

    @property
    def _step(self) -> int:
        """The training batches of the run that have begun."""
        return self.progress.made_before + self.progress.training.count

    def _state(self) -> dict[str, object]:
        progress = self.progress
        total = progress.total_steps
        return {
            "phase": progress.phase,
            "epoch": progress.epoch,
            "total_epochs": progress.total_epochs,
            "epochs_from_zero": progress.from_zero,
            "batch": progress.training.batch,
            "total_batches": progress.training.total,
            "validation_batch": progress.validation.batch if progress.mode == VALIDATION else None,
            "total_validation_batches": progress.validation.total,
            "step": self._step or None,
            "total_steps": None if total is None else progress.made_before + total,
            "step_at": self.step_at,
        }

    def _estimates(self) -> dict[str, object]:
        progress, estimates = self.progress, self.progress.estimates()
        run = estimates["run"]
        if self.status == FINISHED:
            run = Estimate(run.rate, run.elapsed, 0.0, run.elapsed)
        durations = {
            "epoch": progress.epoch_durations,
            "training": [span.seconds for span in progress.training.past],
            "validation": [span.seconds for span in progress.validation.past],
        }
        parts = {
            name: {**_rounded(estimates[name]), "durations": [round(each, 3) for each in seconds]}
            for name, seconds in durations.items()
        }
        return {"run": _rounded(run), **parts, "dataset_ratio": progress.dataset_ratio}

    def _variable(self, name: str) -> dict[str, object]:
        answer, kind = self.variables.answers.get(name), self.variables.kind(name)
        value = self.variables.current(name)
        return {
            "value": redact_named(name, _shown(value, kind)),
            "type": kind or type(value).__name__,
            "edit": answer.edit if answer else None,
            "error": answer.error if answer else None,
            "applied_at": answer.applied_at if answer else None,
        }


def _shown(value: object, kind: str | None) -> Scalar:
    if kind is None:
        return read_only_text(value)
    return text_of(value)[:MAX_VALUE] if kind == "str" else written(plain_value(value))


def _rounded(estimate: Estimate) -> dict[str, float | None]:
    return {
        name: None if value is None else float(f"{value:.6g}") if name == "rate" else round(value, 3)
        for name, value in asdict(estimate).items()
    }
