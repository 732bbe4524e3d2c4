"""Remember the observations of one training in the store, so that the next command judges with them.

An observation is kept under its target and its training: the job id, or else the path of the log, or else the process.
`check` in one terminal, `watch` in another and `auto_restart` beside them add to the same history. `Observer` looks at
one training again and again, each time in one round trip, and adds to that history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from training_monitor.core.columns import Columns
from training_monitor.core.errors import StateError, TrainingMonitorError
from training_monitor.core.models import Answer, JobStatus, JobView, Progress, Question
from training_monitor.core.records import encode, read_record
from training_monitor.core.store import MOST_LOOKS, Store
from training_monitor.core.values import KeptRollCall, Observation, Verdict, WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.jobs.jobs import read_last_words
from training_monitor.logs.job_progress import EpochCount
from training_monitor.look.looks import Look, observation_of, read_watch, watch_questions
from training_monitor.targets.asking import Site
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.target import Target
from training_monitor.verdict.judge import judge
from training_monitor.verdict.stall import DEFAULT_POLICY, StallPolicy
from training_monitor.verdict.stall_history import place_of, thin_looks

WINDOW = 720  # observations that are judged at most
KEEP_SECONDS = 10.0  # least time between two observations in the store; those in between stay in memory
KNOWN_SECONDS = 600.0  # after a longer gap, the age of the newest step is read from the log again
_STATUSES = {"finished": JobStatus.SUCCEEDED, "failed": JobStatus.FAILED, "stopped": JobStatus.STOPPED}
_DEFAULTS = {each.name: each.default for each in fields(Observation)}
_NAMES = tuple(_DEFAULTS)
_values = attrgetter(*_NAMES)


def _known(observation: Observation) -> dict[str, Any]:
    """Return the fields of an observation that are known: most are not, and many observations are kept."""
    return {name: value for name, value in encode(observation).items() if value != _DEFAULTS[name]}


def _rows_of(observations: Iterable[Observation]) -> Columns:
    """Return observations in little memory: a fleet keeps many of each of its members."""
    return Columns(_NAMES, map(_values, observations))


def _readable(texts: Iterable[str]) -> Iterator[Observation]:
    """Yield the readable observations, without fields that a later version added."""
    for text in texts:
        with suppress(ValueError):
            yield read_record(Observation, text, drop_unknown=True)


def look_key(target: Target, job: WatchedJob, path: str | None) -> str:
    """Return the key of a training, the same for every command that finds it; `path` is that of its log."""
    named = job.job_id or path or job.log_file or " ".join(job.log_paths) or f"pid {job.pid}"
    return f"{target} {named}"


class Looks:
    """The observations of one training, oldest first; with a store and a key, including those made by other commands.

    At most `most` are judged, see `thin_looks`. `problem` is why they can no longer be kept in the store; then they are
    kept in memory only.
    """

    def __init__(self, store: Store | None = None, key: str = "", most: int = WINDOW) -> None:
        self.store, self.key, self.most = store, key, most
        self.problem: str | None = None
        stored = self._stored()
        self._seen, self.last = _rows_of(stored), next(reversed(stored), None)
        self._kept = stored[-2:]  # the newest in the store

    def _stored(self) -> list[Observation]:
        try:
            return list(_readable(self.store.looks(self.key))) if self.store and self.key else []
        except StateError as error:
            self.store, self.problem = None, error.what
            return []

    def add(self, observation: Observation) -> None:
        """Add an observation; those with a later time are dropped: the clock was set back since.

        The time for which a job was seen to wait for its start is no part of its runtime.
        """
        if self.last and self.last.timestamp >= observation.timestamp:
            self._seen = _rows_of(each for each in self.all() if each.timestamp < observation.timestamp)
        statuses, is_waiting = self._seen.column("status"), observation.status is JobStatus.PENDING
        if observation.runtime is not None and not is_waiting and JobStatus.PENDING in statuses:
            times = zip(self._seen.column("timestamp"), statuses)
            waited_at = max(at for at, status in times if status is JobStatus.PENDING)
            observation = replace(observation, runtime=min(observation.runtime, observation.timestamp - waited_at))
        self._kept = [each for each in self._kept if each.timestamp < observation.timestamp]
        self.last = observation
        self._seen.append(_values(observation))
        if len(self._seen) > self.most:
            self._seen = _rows_of(thin_looks(self.all(), self.most))
        if self.store and self.key and self._is_worth_keeping(observation):
            try:
                self._keep(self.store, observation)
            except StateError as error:  # a full disk here is no reason to stop watching the target
                self.store, self.problem = None, error.what

    def _is_worth_keeping(self, observation: Observation) -> bool:
        """Return whether the store has nothing from the last seconds, or would show a different silence without it."""
        return (
            not self._kept
            or observation.timestamp - self._kept[-1].timestamp >= KEEP_SECONDS
            or place_of(observation) not in (place_of(self._kept[-1]), None)
        )

    def _keep(self, store: Store, observation: Observation) -> None:
        """Add it to the store; drop the last one if that is at an older place and came shortly after the one before."""
        before, last = self._kept[:-1], self._kept[-1:]
        is_close = bool(before) and last[0].timestamp - before[0].timestamp < KEEP_SECONDS
        replaced = last[0] if is_close and place_of(last[0]) != place_of(observation) else None
        self._kept = [*(before if replaced else last), observation]
        count = store.add_look(
            self.key,
            observation.timestamp,
            _known(observation),
            replaces=replaced.timestamp if replaced else None,
        )
        if count > MOST_LOOKS:
            store.keep_looks(self.key, [each.timestamp for each in thin_looks(self._stored(), MOST_LOOKS)])

    def all(self) -> tuple[Observation, ...]:
        """Return the observations, oldest first."""
        found = tuple(object.__new__(Observation) for _ in range(len(self._seen)))
        for name, column in zip(_NAMES, self._seen.all()):  # one field of all of them at a time is quickest
            deque(map(getattr(Observation, name).__set__, found, column), maxlen=0)
        return found

    def newest_step(self) -> int | None:
        """Return the newest step that was seen."""
        return next((step for step in reversed(self._seen.column("step")) if step is not None), None)

    def is_known(self, now: float) -> bool:
        """Return whether the training was seen lately, so that the next look need not ask for its past."""
        return self.last is not None and 0 <= now - self.last.timestamp <= KNOWN_SECONDS


class Observer:
    """A watcher of one training; earlier observations by others count as well.

    Each look reads the end of the log. The job's `output_dir`, where known, is where it writes its checkpoints: a file
    that grows there is a sign of life. After a look that failed, the site is that to which `asked` resolves then: the
    target may have moved.
    """

    def __init__(self, site: Site, job: WatchedJob, *, store: Store, asked: Site | None = None, key: str = "") -> None:
        """Add to the observations under `key` (default: that of the job)."""
        self.site, self.job, self._store, self._asked = site, job, store, asked
        self._known: Identity | None = None
        self.looks = Looks(store, key or (look_key(site.target, job, None) if job.job_id else ""))
        self.progress = Progress()  # by the last look
        self._epochs: EpochCount | None = None

    def look(self, now: float) -> Look:
        """Look once, and remember the observation. Raises like `look_beside`."""
        return self.look_beside(now)[0]

    def look_beside(
        self, now: float, *others: Question[Any], timeout: float | None = None
    ) -> tuple[Look, list[Answer[Any]]]:
        """Look once, remember the observation, and ask other questions in the same round trip.

        Args:
            timeout: seconds for the round trip; default: as in `ask`.

        Raises:
            JobNotFound: the target answered and has no such job.
            CommandError: the target could not be asked: nothing is known.
        """
        with_log = self.job.job_id is None
        is_first = self._epochs is None
        questions = watch_questions(
            self.job, None, self._known, with_log=with_log, with_checkpoints=False, is_first=is_first
        )
        try:
            answers = self.site.ask(*questions, *others, timeout=timeout)
        except TrainingMonitorError:
            self.site = self._asked.resolve() if self._asked else self.site
            raise
        mine, beside = answers[: len(questions)], answers[len(questions) :]
        look = read_watch(self.job, mine, with_log=with_log, with_checkpoints=False)
        if look.view:
            look = replace(look, view=read_last_words(self.site, look.view))
        self._epochs = look.epochs or self._epochs or EpochCount()
        look = replace(look, epochs=self._epochs)
        self._known = look.process.identity if look.process else None
        self.progress = look.read_progress()
        self._open_looks(look)
        self.looks.add(observation_of(look, self.progress, look.text, now, first=not self.looks.is_known(now)))
        return look, beside

    def view_of(self, look: Look, now: float) -> JobView:
        """Return the view of a job; that of a training that is not a job has the status that follows from the verdict.

        A training that has ended is UNKNOWN if nothing tells how.
        """
        if look.view:
            return look.view
        verdict = self.judge(now, DEFAULT_POLICY)
        status = _STATUSES.get(verdict.state)
        if status is None:
            status = JobStatus.UNKNOWN if look.is_running is False else JobStatus.RUNNING
        said = verdict.reason if status.is_terminal or look.is_running is False else look.message
        return JobView(
            self.job.label,
            status,
            said,
            progress=self.progress,
            log_age=look.log.age if look.log else None,
            log_tail=look.text,
            log_known=not (look.log and look.log.missing),
        )

    def _open_looks(self, look: Look) -> None:
        """Load the earlier observations once it is known which training this is."""
        if not self.looks.key:
            path = look.log.path if look.log else None
            self.looks = Looks(self._store, look_key(self.site.target, self.job, path))

    def judge(self, now: float, policy: StallPolicy) -> Verdict:
        """Return the verdict on all observations; asks nothing."""
        return judge(self.looks.all(), now=now, policy=policy)


def save_roll_call(store: Store, target: Target, job: WatchedJob, kept: KeptRollCall) -> None:
    """Keep the roll call of a training in place of its last one. Raises StateError: it cannot be written."""
    store.save_run(_key(target, job), kept, finished=True)


def last_roll_call(store: Store, target: Target, job: WatchedJob, path: str | None = None) -> KeptRollCall | None:
    """Return the last roll call of a training before it, or an earlier attempt of it, was ended; None without one.

    It is known by its job or by its log, of which `path` is the path: another process may have its PID by now.
    """
    named = [job] if job.job_id or job.log_file or job.log_paths else []
    named += [WatchedJob(log_file=path)] if path and job.job_id is None else []
    found = [kept for each in named if (kept := _load(store, _key(target, each)))]
    return max(found, key=lambda each: each.at, default=None)


def explained_keys(kept: KeptRollCall | None) -> dict[str, Any]:
    """Return what the last roll call said, by the names that documents have for it."""
    names = {"explanation": "text", "explained_at": "at", "explained_job_id": "job_id"}
    return {name: getattr(kept, field) if kept else None for name, field in names.items()}


def _load(store: Store, key: str) -> KeptRollCall | None:
    try:
        return store.load_run(key, KeptRollCall, finished=True, drop_unknown=True)
    except TrainingMonitorError:
        return None


def _key(target: Target, job: WatchedJob) -> str:
    named = replace(job, job_id=training_name(job.job_id)) if job.job_id else job
    return f"roll call {look_key(target, named, None)}"
