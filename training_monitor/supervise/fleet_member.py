"""One member of a fleet: one round trip a look, and what the looks add up to; what the judge takes goes to the store.

A look costs as little as what is new: only lines that came since the last one are read, of lines drawn over by a
progress bar the last drawing; of many, the last FIRST_PARSED or PARSED characters are parsed for progress. The verdict
is renewed every JUDGE_SECONDS.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.errors import JobNotFound, TargetUnreachable, TrainingMonitorError
from training_monitor.models import Answer, NewLog
from training_monitor.parse.log_patterns import LogPattern, parse_metrics
from training_monitor.policy.fleet_alerts import ToldMember
from training_monitor.policy.fleet_config import DEFAULT_LOG_PATHS, FleetConfig
from training_monitor.policy.fleet_rows import Billed, metrics_of
from training_monitor.policy.fleet_values import (
    MOST_RUN,
    REPORTED,
    FleetEntry,
    FleetSample,
    TargetReading,
    sample_of,
)
from training_monitor.policy.observing import FRESH_SECONDS
from training_monitor.policy.training_metrics import KEPT_LOGS, TrainingMetrics
from training_monitor.policy.watch_config import WatchConfig
from training_monitor.probes.host import LogHost, log_host_question
from training_monitor.probes.watched_jobs import Look, gpus_behind, log_expression, read_watch, watch_questions
from training_monitor.store import Store
from training_monitor.supervise.fleet_samples import LINE_LENGTH, LastLines, LastSamples, last_drawing
from training_monitor.supervise.logs import get_logger
from training_monitor.supervise.meant import find_meant, named_job
from training_monitor.supervise.watch_state import WatchState
from training_monitor.targets.asking import ask
from training_monitor.targets.connect import read_address
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.verdicts import Observation
from training_monitor.watching import TrainingStatus, WatchedJob

JUDGE_SECONDS = 30.0
FIRST_PARSED, PARSED = 8192, 2048  # at the first look, and later
FIND_SECONDS = 300.0  # at least between two looks for a training of which nothing is found
READ_AGAIN = 400
KEPT_SAMPLES = 720
SPEED_SECONDS = 600.0  # over which the speed of a training is measured whose log does not tell it
ROW_SECONDS = 5.0
WATCH = WatchConfig(poll_interval=JUDGE_SECONDS)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a member by looks: the last good reading, its log's last lines, and why the last look failed."""

    reading: TargetReading | None = None
    logs: tuple[str, ...] = ()
    error: str | None = None
    stale_since: float | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing of the account says of a member, at `listed_at`; `error` is why nobody knows more of it, `billed`
    what it had come to by prices that were seen before."""

    row: Mapping[str, Any] | None = None
    listed_at: float | None = None
    lost: bool = False
    error: str | None = None
    stale_since: float | None = None
    billed: Billed | None = None


class FleetMember:
    """One member. `look` is called by one thread at a time; what others read of it is replaced whole.

    `turn` is held while answers are read: members that are read one after the other leave the interpreter to the
    keyboard, which would wait for all of them. `store` has what others saw of it; None: it is judged by what is seen
    here.

    Raises:
        SettingsError: a target or a log path that is none.
    """

    def __init__(
        self,
        entry: FleetEntry,
        config: FleetConfig,
        patterns: Sequence[LogPattern],
        namespace: str,
        turn: threading.Lock | None = None,
        store: Store | None = None,
    ) -> None:
        self.entry, self.key, self._turn = entry, entry.key, turn or threading.Lock()
        self.target = parse_target(entry.target, namespace=namespace)
        self.job = named_job(entry.job) if entry.job else WatchedJob(log_paths=entry.log_paths or config.log_paths)
        self._is_named = bool(entry.log_paths) or config.log_paths != DEFAULT_LOG_PATHS  # by its log: no other is meant
        self._found_at: float | None = None  # when its training was last looked for
        self.seen, self.listed = Seen(), Listed()
        self.told = ToldMember()
        self.before: TrainingMetrics | None = None  # the row that was judged last
        self.ending: str | None = None  # what somebody does to it: stop or destroy
        self.remembered = False
        self._patterns, self._fresh_seconds = tuple(patterns), config.fresh_seconds
        self._store = store
        self._state = self._new_state()
        self._lines, self._extra = LastLines(), dict[str, float]()
        self._log_path: str | None = None
        self._lock = threading.Lock()
        self._row: tuple[Seen, Listed, float, TrainingMetrics] | None = None
        self._past = LastSamples(KEPT_SAMPLES)
        self._sampled_at: float | None = None

    @property
    def instance(self) -> int | None:
        """Its number, of a vast.ai instance."""
        return int(self.target.name) if self.target.kind == "vast" else None

    @property
    def place(self) -> str:
        """What is stopped or destroyed with it: its instance, or itself."""
        return self.key if self.instance is None else str(self.target)

    # ------------------------------------------------------------ looking

    def address(self) -> Target | None:
        """Where to ask; None of an instance that is not running or has no address yet.

        Raises:
            TargetUnreachable: the service names an address that is none.
        """
        if self.target.kind != "vast":
            return self.target
        row = self.listed.row
        if self.listed.lost or row is None or row.get("actual_status") != "running":
            return None
        return read_address(self.target, row) if row.get("ssh_host") and row.get("ssh_port") else None

    @property
    def is_asked(self) -> bool:
        """Whether there is anybody to ask."""
        try:
            return self.address() is not None
        except TargetUnreachable:
            return True

    def look(self, now: float, transport: Transport | None) -> bool:
        """Ask in one round trip; False when nobody answered, and then the last good reading is kept."""
        try:
            address = self.address()
            if address is None:
                return True
            cursor, identity = self._state.cursor, self._state.identity
            is_first = cursor is None
            asked = watch_questions(self.job, cursor, identity, with_log=True, parse_tail=False, is_first=is_first)
            host = log_host_question(log_expression(self.job, cursor))
            answers = ask(address, *asked, host, transport=transport)
            with self._turn:
                reading = self._take(answers, now)
            if reading.absent and self._find(address, now, transport):
                return self.look(now, transport)
        except TrainingMonitorError as error:
            self.fail(str(error), now)
            return False
        if self.seen.error is not None:
            get_logger().info("%s: it answers again", self.key)
        with self._lock:
            self.seen = Seen(reading, reading.log_lines)
        return True

    def _find(self, address: Target, now: float, transport: Transport | None) -> bool:
        """Look for its training where nothing was found that it is known by; True when there is one."""
        is_due = self._found_at is None or now - self._found_at >= FIND_SECONDS
        is_known = self._state.cursor is not None or self._state.identity is not None
        if is_known or self._is_named or not is_due:
            return False
        self._found_at = now
        try:
            meant = find_meant(address, self.entry.job, transport=transport)
        except TrainingMonitorError:
            return False
        found = meant.trainings
        if meant.not_seen or not found or found[0].job == self.job:
            return False
        self.job, self._state = found[0].job, self._new_state()
        return True

    def _new_state(self) -> WatchState:
        state = WatchState(read_again=READ_AGAIN)
        state.looks.store = self._store
        return state

    def fail(self, error: str, now: float) -> None:
        """A look failed."""
        if self.seen.error is None:
            get_logger().warning("%s: no answer: %s", self.key, error)
        with self._lock:
            before = self.seen
            last = before.reading.timestamp if before.reading else now
            since = last if before.stale_since is None else before.stale_since
            self.seen = replace(before, error=error, stale_since=since)

    def clear_logs(self) -> None:
        """Forget the lines seen so far."""
        with self._lock:
            self._lines.clear()
            self.seen = replace(self.seen, logs=())

    def _take(self, answers: Sequence[Answer[Any]], now: float) -> TargetReading:
        """The reading out of the answers. Raises what kept us from asking for the training."""
        host: LogHost = answers[-1].value or LogHost(None, None, None)
        is_first = self._state.cursor is None
        look, absent = self._read(answers[:-1], is_first=is_first)
        if look.log and look.log.missing and not look.log_tail and (self._state.cursor or not look.view):
            absent = absent or self._say_without_log(look)
        moved = None not in (host.log_path, self._log_path) and host.log_path != self._log_path
        self._log_path = host.log_path or self._log_path
        if look.log and look.log.reset and moved:
            look = replace(look, process=None)  # that of the log before
            self._begin_anew()
        elif self._is_begun_anew(look):
            self._begin_anew()
        if look.epochs:
            self._state.totals.learn_epochs(look.epochs)
        if look.log:
            self._take_log(look.log, look.log_tail)
        if _was_just_written(look.log) and look.process and look.process.running is False:
            look = replace(look, process=replace(look.process, running=None))  # by somebody
        if absent is None:
            self._state.open_looks(self.target, self.job, look)
        status = self._state.take_look(look, now, WATCH, judge_every=JUDGE_SECONDS)
        return TargetReading(
            timestamp=now,
            status=self._shorten(status, absent),
            gpus=look.gpus,
            disk_percent=host.disk_percent,
            ram_percent=host.ram_percent,
            log_lines=self._lines.shown(),
            extra=dict(self._extra),
            absent=absent,
            run=self._run_number(look),
            log_age=host.log_age,
        )

    def _say_without_log(self, look: Look) -> str:
        if self._state.cursor is None:
            return "no log found"
        return "its process and its log are gone" if look.is_running is False else "its log is there no more"

    def _shorten(self, status: TrainingStatus, absent: str | None) -> TrainingStatus:
        """What is shown of a status: a thousand losses of each member would be too much to keep twice."""
        progress = status.progress
        if progress.steps_per_second is None:
            progress = replace(progress, steps_per_second=_speed_of(self._state.looks.all()))
        message = status.message if absent is None else absent
        return replace(status, progress=progress, totals={}, recent_output="", message=message)

    def _run_number(self, look: Look) -> int:
        """A number of the process or job that was started, the same in every monitor; 0: nobody knows which."""
        started: object = self._state.identity or (look.view and look.view.started_at)
        return zlib.crc32(str(started).encode()) % MOST_RUN if started else 0

    def _read(self, answers: Sequence[Answer[Any]], *, is_first: bool) -> tuple[Look, str | None]:
        """The look, and why there is no such job; that is no failure of the machine."""
        try:
            return read_watch(self.job, answers, with_log=True, parse_tail=False, is_first=is_first), None
        except JobNotFound as error:
            log = NewLog("", self._state.cursor, missing=True)
            return Look(log=log, gpus=gpus_behind(answers[0], ())), error.what

    def _is_begun_anew(self, look: Look) -> bool:
        """Whether another process trains now, or a log that had come to its end begins anew."""
        process, known = look.process and look.process.identity, self._state.identity
        if known and process and process != known:
            return True
        return bool(look.log and look.log.reset and self._state.totals.progress.finished)

    def _begin_anew(self) -> None:
        before, self._state = self._state, self._new_state()
        self._state.cursor, self._state.generation = before.cursor, before.generation + 1
        self._extra.clear()

    def _take_log(self, new: NewLog, tail: str) -> None:
        """Add what is new in the log: all of it for the user's patterns, the end of it for the rest."""
        drawn = _as_drawn(new.text)
        text = _end_of(drawn, PARSED if self._state.cursor else FIRST_PARSED)
        short = replace(new, text=text, partial=new.partial[-LINE_LENGTH:])
        lines = self._state.take_log(short, tail)
        text = _end_of(drawn, KEPT_LOGS * LINE_LENGTH) or "".join(f"{line}\n" for line, _ in lines)
        with self._lock:
            self._lines.add(text, short.partial)
        if self._patterns:
            found = parse_metrics(new.text or text, self._patterns)
            self._extra |= {name: value for name, value in found.items() if not isinstance(value, str)}

    # ------------------------------------------------------------ what there is to show

    def metrics(self, now: float) -> TrainingMetrics:
        """The row as it is now; while nothing was seen, of a moment ago."""
        seen, listed, last = self.seen, self.listed, self._row
        if last and last[0] is seen and last[1] is listed and abs(now - last[2]) < ROW_SECONDS:
            return last[3]
        row = self._make_row(seen, listed, now)
        self._row = (seen, listed, now, row)
        return row

    def _make_row(self, seen: Seen, listed: Listed, now: float) -> TrainingMetrics:
        asked = self.is_asked
        error, since = (seen.error, seen.stale_since) if asked else (listed.error, listed.stale_since)
        if asked and seen.reading and error is None and now - seen.reading.timestamp > self._fresh_seconds:
            error, since = "nobody has looked since", seen.reading.timestamp
        return metrics_of(
            self.entry,
            row=listed.row,
            listed_at=listed.listed_at,
            reading=seen.reading,
            logs=seen.logs,
            now=now,
            error=error,
            stale_since=since,
            lost=listed.lost,
            billed=listed.billed,
        )

    def sample(self, metrics: TrainingMetrics, now: float) -> tuple[FleetSample, bool]:
        """What is known for the rules, when it was seen, and whether it is new: only that is remembered.

        Of one that does not answer, only its status in a listing that succeeded is known.
        """
        if metrics.error is not None:
            is_listed = self.listed.lost or (self.listed.row is not None and self.listed.error is None)
            return FleetSample(now, dict.fromkeys(REPORTED), metrics.status if is_listed else None), False
        seen = self._seen_at()
        if seen is None or metrics.status == "lost":
            return sample_of(metrics, now), False
        sample = sample_of(metrics, seen)
        if seen == self._sampled_at:
            return sample, False
        self._sampled_at = seen
        self._past.add(sample)
        return sample, True

    def _seen_at(self) -> float | None:
        """When what it shows was seen."""
        reading = self.seen.reading
        return reading.timestamp if reading and self.is_asked else self.listed.listed_at

    def remember(self, samples: Sequence[FleetSample]) -> None:
        """Put what was seen before, by others, in front of what was seen here."""
        here, past = self._past.all(), LastSamples(KEPT_SAMPLES)
        for each in (*(each for each in samples if not here or each.timestamp < here[0].timestamp), *here):
            past.add(each)
        self._past = past

    def recent(self) -> tuple[FleetSample, ...]:
        """What was seen of it, oldest first."""
        return self._past.all()


def _was_just_written(log: NewLog | None) -> bool:
    """Whether there is something new in a log that was written to lately; what a first look reads may be old."""
    return log is not None and log.text != "" and (log.age is None or log.age < FRESH_SECONDS)


def _as_drawn(text: str) -> str:
    """A piece of log with each line as it was drawn last."""
    return "\n".join(last_drawing(line) for line in text.split("\n"))


def _end_of(text: str, length: int) -> str:
    """The end of a text, from a whole line on where there is one."""
    end = text[-length:]
    return end if len(text) <= length else re.split(r"[\r\n]", end, maxsplit=1)[-1] or end


def _speed_of(samples: Sequence[Observation]) -> float | None:
    """Steps per second over the last ten minutes, by the watcher's clock; None: nobody knows yet."""
    last = samples[-1] if samples else None
    if last is None or last.step is None:
        return None
    first, step = last, last.step
    for each in reversed(samples):
        if each.step is None or each.step > step or last.timestamp - each.timestamp > SPEED_SECONDS:
            break
        first, step = each, each.step
    seconds, steps = last.timestamp - first.timestamp, last.step - step
    return steps / seconds if steps > 0 and seconds > 0 else None
