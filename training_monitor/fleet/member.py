"""One member of a fleet: looks at it in one round trip each, and accumulates the results.

A member that names no training is also asked what else runs on its target: each of these is a member beside it, which
is looked at in the same round trip.

A look costs as little as possible: only new log lines are read, and of a line redrawn by a progress bar only the last
drawing. At most the last FIRST_PARSED or PARSED characters are parsed for progress. The verdict is renewed every
JUDGE_SECONDS, and of a training that only makes further steps from all observations every RENEW_SECONDS. Observations
go to the store.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from training_monitor.core.errors import (
    JobNotFound,
    TargetEnded,
    TargetNotFound,
    TargetUnreachable,
    TargetWaits,
    TrainingMonitorError,
)
from training_monitor.core.fields import shared_fields
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Answer, JobStatus, NewLog, Question
from training_monitor.core.read_fence import keep_configured
from training_monitor.core.store import MOST_LOOKS, Store
from training_monitor.core.values import KeptRollCall, WatchedJob
from training_monitor.fleet.alerts import ToldMember
from training_monitor.fleet.buffers import LINE_LENGTH, LastLines, LastSamples, last_drawing
from training_monitor.fleet.config import DEFAULT_LOG_PATHS, FleetConfig
from training_monitor.fleet.metrics import KEPT_LOGS, TrainingMetrics
from training_monitor.fleet.rows import Listed, Seen, metrics_of
from training_monitor.fleet.search import Found, Search, identity_of, name_of
from training_monitor.fleet.values import (
    MOST_BESIDE,
    MOST_RUN,
    REPORTED,
    FleetSample,
    MemberSpec,
    TargetReading,
    sample_of,
)
from training_monitor.jobs.process_jobs import is_log_of
from training_monitor.logs.patterns import LogPattern, parse_metrics
from training_monitor.logs.sources import OUTPUT, PROGRESS, place_of
from training_monitor.look.host import GPU_SECONDS, LogHost, gpu_question, log_host_question
from training_monitor.look.kept_looks import Looks, last_roll_call
from training_monitor.look.looks import (
    FRESH_SECONDS,
    Look,
    gpus_behind,
    read_watch,
    source_of,
    watch_questions,
)
from training_monitor.look.meant import MeantTraining, find_meant, named_job, reach
from training_monitor.supervision.watch_state import WatchState
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.limits import WatchConfig

if TYPE_CHECKING:
    from training_monitor.runs.values import Run

JUDGE_SECONDS, RENEW_SECONDS = 30.0, 120.0  # between two judgements; for a training that only makes further steps
FIRST_PARSED, PARSED = 8192, 2048  # at the first look, and later
FIND_NAMED_SECONDS = 300.0  # between two searches for a named training that was not found
KEPT_SAMPLES, KEPT_SECONDS = 240, 6 * 3600.0
KEPT_LOOKS = MOST_LOOKS  # judged by fewer, a training that stays slow may seem well again
ROW_SECONDS = 5.0
WATCH = WatchConfig(poll_interval=JUDGE_SECONDS)


class FleetMember:
    """One member. `look` is called by one thread at a time; values that others read are replaced as a whole.

    `turn` is a lock held while a reply is read: one member at a time leaves the interpreter responsive to the keyboard,
    and many threads would compete for it. `store` shares observations with other commands; None: only this member's own
    are judged. `found` is the training of a member that a search found.

    Attributes:
        beside: the members for the other trainings of its target.
        training: the display name of the training that a search found for it.
        instance: the id of a rented instance; None for another target.

    Raises:
        SettingsError: a target or a log path is invalid.
    """

    def __init__(
        self,
        spec: MemberSpec,
        config: FleetConfig,
        patterns: Sequence[LogPattern],
        namespace: str,
        turn: threading.Lock | None = None,
        store: Store | None = None,
        found: MeantTraining | None = None,
    ) -> None:
        self.spec, self.key, self._turn = spec, spec.key, turn or threading.Lock()
        self.target = parse_target(spec.target, namespace=namespace)
        self.instance = self.target.instance_id
        self._config, self._namespace = config, namespace
        self.job = found.job if found else named_job(spec.job) if spec.job else self._by_log
        self.training, self.beside = name_of(found) if found else None, NONE_BESIDE
        self._search = Search(store)
        keep_configured(self.target, self._configured)
        self.seen, self.listed = Seen(), Listed()
        self.told = ToldMember()
        self.before: TrainingMetrics | None = None  # the last judged row
        self.ending: str | None = None  # the action in progress: stop or destroy
        self.remembered = False
        self._patterns = tuple(patterns)
        self._store = store
        self._state = self._new_state()
        self._lines, self._extra = LastLines(), dict[str, float]()
        self._log_path: str | None = None
        self._lock = threading.Lock()
        self._explained: KeptRollCall | None = None
        self._explained_at = -JUDGE_SECONDS
        self._row: tuple[Seen, Listed, float, TrainingMetrics] | None = None
        self._past = LastSamples(KEPT_SAMPLES, KEPT_SECONDS)
        self._sampled_at: float | None = None
        self._is_over = False
        self._not_there: str | None = None  # why nothing on the target has the name that was given, if that is known
        self._reached_at: float | None = None  # when its container was last chosen
        self._address: tuple[Listed, list[tuple[object, object]], Target] | None = None  # as listed, and read
        self._way: tuple[Target, Transport] | None = None  # to a rented machine, until a look fails

    @property
    def _configured(self) -> list[str]:
        """The logs that the settings name for its target."""
        own = [each for group in self._config.groups.values() for each in group if each.target == self.spec.target]
        return [*self._config.log_paths, *(path for each in own for path in each.log_paths)]

    @property
    def shown(self) -> list[FleetMember]:
        """This member and those beside it, but for what a person had stopped before it was found."""
        beside = self.beside
        if not beside.members:
            return [self]
        return [self, *(each for each in beside.members if not (each.was_stopped and each.key in beside.over))]

    @property
    def is_found(self) -> bool:
        """Whether nobody named its training, and it is beside another member."""
        return self.training is not None and self.spec.job is not None

    @property
    def _by_log(self) -> WatchedJob:
        if self._has_output and not self.spec.log_paths:
            return WatchedJob(log_file=OUTPUT)
        return WatchedJob(log_paths=self.spec.log_paths or self._config.log_paths)

    @property
    def _has_output(self) -> bool:
        """Whether what runs it knows its log: others on the same machine are not its own."""
        return self.target.output == OUTPUT

    @property
    def was_stopped(self) -> bool:
        """Whether its job was seen to have been stopped by a person."""
        reading = self.seen.reading
        return reading is not None and reading.status.status is JobStatus.STOPPED

    @property
    def place(self) -> str:
        """What an action on it affects: its instance, or the member itself."""
        return self.key if self.instance is None else str(self.target)

    # ------------------------------------------------------------ looks

    def address(self) -> Target | None:
        """Return the target to ask; None for an instance that is not running.

        Raises:
            TargetUnreachable: the service lists no address, or an invalid one.
        """
        if self.instance is None:
            return self.target
        listed, known = self.listed, self._address
        if known and known[0] is listed:
            return known[2]
        if listed.lost or listed.row is None or listed.row.get("actual_status") != "running":
            return None
        from training_monitor.targets.kinds.vast import addresses_of

        addresses = [*addresses_of(listed.row)]
        target = known[2] if known and known[1] == addresses else self.target.at_address(listed.row)
        self._address = listed, addresses, target
        return target

    @property
    def is_asked(self) -> bool:
        """Whether there is a target to ask."""
        try:
            return self.address() is not None
        except TargetUnreachable:
            return True

    def look(self, now: float, transport: Transport | None, others: Others = tuple) -> None:
        """Look at it and at those beside it in one round trip, and in a second one at what was found only now.

        Args:
            others: returns the members whose trainings are not found again.

        Raises:
            TrainingMonitorError: there was no answer; the last good reading is kept.
        """
        address = self.address()
        if address is None:
            return
        if self._way is None or self._way[0] is not address:  # of several addresses, each look takes one that answers
            is_only = self._address is not None and len(self._address[1]) == 1
            self._way = (address, address.connect(transport)) if is_only else None
        site = Site(address, transport, turn=self._turn, reach=self._way and self._way[1])
        if self.instance is None and (self._reached_at is None or now - self._reached_at >= FIND_NAMED_SECONDS):
            site, self._reached_at = reach(site), now
            if site.target is not self.target:  # in the container of a pod
                self.target = site.target
                keep_configured(self.target, self._configured)
        questions = self._search.questions(site) if self._is_search_due(now) else []
        answers = self._ask(site, (self, *self.beside.members), now, questions)
        if questions:
            if new := self._take_found(self._search.read(site, answers, now), others()):
                self._ask(site, new, now)
        elif self._is_search_due(now) or self._find(site, now):
            self.look(now, transport, others)

    def _ask(
        self, site: Site, members: Sequence[FleetMember], now: float, more: Sequence[Question[Any]] = ()
    ) -> list[Answer[Any]]:
        """Look at members of this target in one round trip; return the answers to `more` questions."""
        asked = [member.questions() for member in members]
        gpus, *answers = site.ask(gpu_question(GPU_SECONDS), *chain(*asked), *more)
        for member, questions in zip(members, asked):
            member.take([gpus, *answers[: len(questions)]], now)
            del answers[: len(questions)]
        return answers

    def questions(self) -> list[Question[Any]]:
        """Return the questions of a look, without that for the GPUs."""
        cursor, identity = self._state.cursor, self._state.identity
        is_first = cursor is None
        asked = watch_questions(self.job, cursor, identity, with_log=True, parse_tail=False, is_first=is_first)
        return [*asked[1:], log_host_question(source_of(self.job, cursor).file)]

    def take(self, answers: Sequence[Answer[Any]], now: float) -> None:
        """Take in a look, from the answers about the GPUs and to its questions."""
        self._is_over = isinstance(answers[0].failure, TargetEnded)  # only what its container printed is left
        try:
            with self._turn:
                reading = self._take(answers, now)
        except TrainingMonitorError as error:
            self.fail(error, now)
            return
        if self.seen.error is not None:
            get_logger().info("%s: it responds again", self.key)
        with self._lock:
            self.seen = Seen(reading, reading.log_lines)

    def read_run(self, transport: Transport | None) -> Run | None:
        """Read the progress file that its training writes in one round trip; None if no such file is its output.

        Raises:
            TrainingMonitorError: the file cannot be read now.
        """
        source = self.job.log_file or ""
        if not source.startswith(PROGRESS):
            return None
        address = self.address()
        if address is None:
            raise TargetUnreachable("the machine is not running, or has no address yet", target=str(self.target))
        from training_monitor.runs.progress_source import ProgressSource  # few trainings write such a file

        site = Site(address, transport)
        site = site if self.instance is not None else site.resolve()
        return site.ask_one(ProgressSource(place_of(source), self.key).read_run())

    def _find(self, site: Site, now: float) -> bool:
        """Search the target for a named training where the expected one was not found; return whether there is one.

        A name may also be that of a process where Ray does not answer, and where a process prints may be no file.
        """
        is_due = self._search.is_due(now, FIND_NAMED_SECONDS)
        is_known = self.seen.reading is not None and not self.is_lost and (self.job.pid is None or self.job.log_file)
        if self.spec.job is None or self.is_found or is_known or not is_due:
            return False
        self._search.searched_at = now
        try:
            meant = find_meant(site, self.spec.job)
        except JobNotFound as error:
            is_news, self._not_there = self._not_there is None, error.what
            return is_news and self.seen.error is not None
        except TrainingMonitorError:
            self._not_there = None
            return False
        found, self._not_there = meant.trainings, None
        if meant.not_seen or not found or found[0].job == self.job:
            return False
        self.job, self._state = found[0].job, self._new_state()
        return True

    # ------------------------------------------------------------ trainings that a search finds

    def _is_search_due(self, now: float) -> bool:
        """Return whether to search now: for one that names no training, but not on an instance whose log is known."""
        is_due = self._search.is_due(now) or (self._is_over and self.is_lost)
        is_named = self.spec.which is not None or self._config.log_paths != DEFAULT_LOG_PATHS
        if is_named or not is_due:
            return False
        return self.instance is None or self.training is not None or self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether it was looked for, and nothing of it was ever seen, or can be seen now that its pod has ended."""
        if self._is_over:
            return self.job.log_file != self.target.output
        is_absent = self.seen.reading is not None and self.seen.reading.absent is not None
        return is_absent and self._state.cursor is None and self._state.identity is None

    def _take_found(self, found: Found, others: Iterable[FleetMember]) -> list[FleetMember]:
        """Make each training that was found a member beside this one, or its own; return those to look at again."""
        found = found.without(lambda each: any(other.watches(each) for other in others))
        own, new = self._choose_own(found)
        known = {identity_of(each.job): each for each in self.beside.members}
        beside = {} if found.is_complete else {each.key: each for each in self.beside.members}
        over = set(self.beside.over)
        for each in found.every:
            spec = replace(self.spec, job=each.job.job_id or str(each.job.pid or each.job.log_file))
            member = known.get(identity_of(each.job))
            if each is own or beside.get(spec.key, member) is not member:  # the PID of one that ended is used again
                continue
            if member is None:
                member = FleetMember(spec, self._config, self._patterns, self._namespace, self._turn, self._store, each)
                member.listed, member.target = self.listed, self.target
                over |= {member.key} if each in found.ended else set()
                new.append(member)
            elif member._follow(each):
                new.append(member)
            beside[member.key] = member
        shown = tuple(beside.values())[:MOST_BESIDE]
        self.beside = Beside(shown, len(beside) - len(shown), frozenset(over & beside.keys()))
        return [each for each in new if each in (self, *shown)]

    def _choose_own(self, found: Found) -> tuple[MeantTraining | None, list[FleetMember]]:
        """Return which of these is the training of this member itself, and this member if it is another one now.

        Where one runs, and its log is known, that log is followed: the next training may write another one.
        """
        own = next((each for each in found.every if self.watches(each)), None)
        is_gone = self.training is not None and own is None and found.is_complete
        if is_gone or self.is_lost or (own is None and found.running and self._is_left_log):
            shown = {identity_of(each.job) for each in self.beside.members}
            rest = found.every or found.last
            own = next((each for each in rest if identity_of(each.job) not in shown), next(iter(rest), None))
        elif own is None or (self.training is None and len(found.running) < 2 and not self._has_output):
            return own, []
        return own, [self] if self._follow(own) else []

    @property
    def _is_left_log(self) -> bool:
        """Whether it follows a log that no process was seen to write: a training that was seen outranks it."""
        verdict = self.seen.reading.status.verdict if self.seen.reading else None
        return self.training is None and verdict is not None and verdict.state == "unknown"

    def watches(self, meant: MeantTraining) -> bool:
        """Return whether its training is the one that was found."""
        if self.training is not None or identity_of(meant.job) == identity_of(self.job):
            return identity_of(meant.job) == identity_of(self.job)
        is_same_log = not {self.job.log_file, self._log_path}.isdisjoint((meant.job.log_file or "", *meant.logs))
        is_its_log = is_log_of(self._log_path or "", meant.job.job_id or "")
        return is_same_log or is_its_log or (self.job.pid is not None and self.job.pid == meant.job.pid)

    def _follow(self, meant: MeantTraining | None) -> bool:
        """Watch a training that was found, or none; return whether another one, or another log, is watched now."""
        job, before = meant.job if meant else self._by_log, self.job
        self.training = name_of(meant) if meant else None
        if identity_of(job) == identity_of(before) and job.log_file in (None, before.log_file):
            return False
        self.job, generation = job, self._state.generation + 1
        self._state, self._lines = self._new_state(), LastLines()
        self._state.generation, self._log_path = generation, None
        self._extra.clear()
        return True

    def _new_state(self) -> WatchState:
        state = WatchState()
        state.looks = Looks(self._store, most=KEPT_LOOKS)
        return state

    def fail(self, error: TrainingMonitorError, now: float) -> None:
        """Record why a look failed."""
        if self.seen.error is None:
            get_logger().warning("%s: no answer: %s", self.key, error)
        self._way = None
        with self._lock:
            before = self.seen
            last = before.reading.timestamp if before.reading else now
            since = last if before.stale_since is None else before.stale_since
            missing = isinstance(error, TargetNotFound)
            self.seen = before._replace(error=str(error), missing=missing, stale_since=since)

    def clear_logs(self) -> None:
        """Forget the lines seen so far."""
        with self._lock:
            self._lines.clear()
            self.seen = self.seen._replace(logs=())

    def _take(self, answers: Sequence[Answer[Any]], now: float) -> TargetReading:
        """Build the reading from the answers. Raises when the training could not be asked for."""
        host: LogHost = answers[-1].value or LogHost(None, None, None)
        look, absent = self._read(answers[:-1])
        is_seen = look.view is not None or (self.job.process is not None and look.process is not None)
        if look.log and look.log.missing and not look.log_tail and (self._state.cursor or not is_seen):
            absent = absent or self._say_without_log(look)
        moved = None not in (host.log_path, self._log_path) and host.log_path != self._log_path
        self._log_path = host.log_path or self._log_path
        if look.log and look.log.reset and moved:
            look = replace(look, process=None)  # it belongs to the previous log
            self._begin_anew()
        elif self._is_begun_anew(look):
            self._begin_anew()
        if look.epochs:
            self._state.totals.epochs = look.epochs
        if look.log:
            self._take_log(look.log, look.log_tail)
        is_gone = look.process is not None and look.process.running is False
        if look.process and is_gone and self.job.process is None and _was_just_written(look.log):
            look = replace(look, process=look.process._replace(running=None))  # something still writes the log
        if absent is None:
            self._state.open_looks(self.target, self.job, look)
        status = self._state.take_look(look, now, WATCH, judge_every=JUDGE_SECONDS, renew_for=RENEW_SECONDS)
        return TargetReading(
            timestamp=now,
            status=status if absent is None else replace(status, message=absent),
            **shared_fields(TargetReading, look, host),
            log_lines=self._lines.shown(),
            extra=dict(self._extra),
            absent=absent,
            run=self._run_number(look),
            explained=self._last_explained(now),
        )

    def _last_explained(self, now: float) -> KeptRollCall | None:
        """Return the last roll call of its training; the store is asked every JUDGE_SECONDS."""
        if self._store and not 0.0 <= now - self._explained_at < JUDGE_SECONDS:
            self._explained = last_roll_call(self._store, self.target, self.job, self._log_path)
            self._explained_at = now
        return self._explained

    def _say_without_log(self, look: Look) -> str:
        if self._state.cursor is None:
            return "no log found"
        return "its process and its log no longer exist" if look.is_running is False else "its log no longer exists"

    def _run_number(self, look: Look) -> int:
        """Return a number for the process or job, the same in every monitor; 0: unknown."""
        started: object = self._state.identity or (look.view and look.view.started_at)
        return zlib.crc32(str(started).encode()) % MOST_RUN if started else 0

    def _read(self, answers: Sequence[Answer[Any]]) -> tuple[Look, str | None]:
        """Return the look, and why the job is absent; that is not a failure of the machine."""
        try:
            look = read_watch(self.job, answers, with_log=True, parse_tail=False)
            self._not_there = None
            return look, None
        except JobNotFound as error:
            absent = error.what
        except TargetUnreachable as error:
            if self._not_there is None or isinstance(error, TargetEnded | TargetWaits):
                raise
            absent = self._not_there
        log = NewLog("", self._state.cursor, missing=True)
        return Look(log=log, gpus=gpus_behind(answers[0], ())), absent

    def _is_begun_anew(self, look: Look) -> bool:
        """Return whether another process trains now, or the log of a finished training starts over."""
        process, known = look.process and look.process.identity, self._state.identity
        if known and process and process != known:
            return True
        return bool(look.log and look.log.reset and self._state.totals.progress.finished)

    def _begin_anew(self) -> None:
        before, self._state = self._state, self._new_state()
        self._state.cursor, self._state.generation = before.cursor, before.generation + 1
        self._extra.clear()

    def _take_log(self, new: NewLog, tail: str) -> None:
        """Parse what is new in the log: all of it with the user's patterns, its end for progress."""
        drawn = _drawn_end(new.text, max(FIRST_PARSED, KEPT_LOGS * LINE_LENGTH))
        text = _end_of(drawn, PARSED if self._state.cursor else FIRST_PARSED)
        short = replace(new, text=text, partial=new.partial[-LINE_LENGTH:])
        lines = self._state.take_log(short, tail)
        self._state.totals.losses.clear()  # samples and observations have them
        text = _end_of(drawn, KEPT_LOGS * LINE_LENGTH) or "".join(f"{line}\n" for line, _ in lines)
        with self._lock:
            self._lines.add(text, short.partial)
        if self._patterns:
            found = parse_metrics(new.text or text, self._patterns)
            self._extra |= {name: value for name, value in found.items() if not isinstance(value, str)}

    # ------------------------------------------------------------ rows and samples

    def metrics(self, now: float) -> TrainingMetrics:
        """Return the row; without a new look, it may be ROW_SECONDS old."""
        seen, listed, last = self.seen, self.listed, self._row
        if not last or last[0] is not seen or last[1] is not listed or abs(now - last[2]) >= ROW_SECONDS:
            self._row = last = seen, listed, now, self._make_row(seen, listed, now)
        return last[3]

    def _make_row(self, seen: Seen, listed: Listed, now: float) -> TrainingMetrics:
        if not self.is_asked:
            seen = seen._replace(error=listed.error, missing=False, stale_since=listed.stale_since)
        elif seen.reading and seen.error is None and now - seen.reading.timestamp > self._config.fresh_seconds:
            seen = seen._replace(error="not checked since", stale_since=seen.reading.timestamp)
        return metrics_of(
            self.spec, listed, seen, now, rented=self.instance, training=self.training, is_found=self.is_found
        )

    def sample(self, metrics: TrainingMetrics, now: float) -> tuple[FleetSample, bool]:
        """Return the sample for the rules and whether it is new; only new ones are stored.

        Of a member that does not answer, only the status in a successful listing is known; of one that is lost, what it
        cost, too. That is new when it is first seen.
        """
        if metrics.error is not None:
            is_listed = self.listed.lost or (self.listed.row is not None and self.listed.error is None)
            return FleetSample(now, dict.fromkeys(REPORTED), metrics.status if is_listed else None), False
        seen = self._seen_at()
        if metrics.status == "lost":
            values = {**dict.fromkeys(REPORTED), "total_cost": metrics.total_cost}
            return FleetSample(now, values, metrics.status), self.before is not None and self.before.status != "lost"
        if seen is None:
            return sample_of(metrics, now), False
        sample = sample_of(metrics, seen)
        if seen == self._sampled_at:
            return sample, False
        self._sampled_at = seen
        self._past.add(sample)
        return sample, True

    def _seen_at(self) -> float | None:
        """Return when the values shown were seen."""
        reading = self.seen.reading
        return reading.timestamp if reading and self.is_asked else self.listed.listed_at

    def remember(self, samples: Sequence[FleetSample]) -> None:
        """Prepend earlier samples, read from the history."""
        here, past = self._past.all(), LastSamples(KEPT_SAMPLES, KEPT_SECONDS)
        for each in (*(each for each in samples if not here or each.timestamp < here[0].timestamp), *here):
            past.add(each)
        self._past = past

    def recent(self) -> tuple[FleetSample, ...]:
        """Return its recent samples, oldest first."""
        return self._past.all()

    def recent_losses(self) -> list[float | None]:
        """Return the losses of its recent samples, oldest first."""
        return self._past.values("loss")


class Beside(NamedTuple):
    """The members beside one, for the trainings that a search found.

    `left_out` counts those beyond MOST_BESIDE, `over` has the keys of those whose training had ended before.
    """

    members: tuple[FleetMember, ...] = ()
    left_out: int = 0
    over: frozenset[str] = frozenset()


NONE_BESIDE = Beside()
Others = Callable[[], Iterable[FleetMember]]


def _was_just_written(log: NewLog | None) -> bool:
    """Return whether a recently written log has new lines; those of a first look may be old."""
    return log is not None and log.text != "" and (log.age is None or log.age < FRESH_SECONDS)


def _drawn_end(text: str, length: int) -> str:
    """Return the last drawings of the last lines of a text: more than `length` characters, or all of them."""
    lines, end, size = list[str](), len(text), -1
    while end >= 0 and size <= length:
        start = text.rfind("\n", 0, end) + 1
        lines.append(last_drawing(text[start:end]))
        size += len(lines[-1]) + 1
        end = start - 1
    return "\n".join(reversed(lines))


def _end_of(text: str, length: int) -> str:
    """Return the end of a text, from the start of a line if possible."""
    end = text[-length:]
    return end if len(text) <= length else re.split(r"[\r\n]", end, maxsplit=1)[-1] or end
