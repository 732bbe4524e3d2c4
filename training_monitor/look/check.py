"""check_training: find the trainings on a target, look at each, remember the observation, and judge.

It takes at most two round trips: one to find the trainings and one to look at all of them. When the caller names the
training, one is enough. The sibling pods of a pod are asked at the same time, since the GPUs are often not in the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.envelope import schema_name
from training_monitor.core.errors import CommandError, JobNotFound, ToolNotFound, TrainingMonitorError
from training_monitor.core.models import Answer, Gpu, JobStatus, JobView, Progress
from training_monitor.core.reports import CheckReport, GpuCheckReport, JobCheckReport, report_of
from training_monitor.core.store import Store
from training_monitor.core.units import name_some
from training_monitor.core.values import JobListing, KeptRollCall, NotSeen, Verdict, WatchedJob
from training_monitor.jobs.jobs import get_job_listing
from training_monitor.logs.job_progress import job_progress
from training_monitor.look.find_trainings import SEARCHED_FOR
from training_monitor.look.host import GPU_SECONDS, gpu_question
from training_monitor.look.kept_looks import Looks, explained_keys, last_roll_call, look_key
from training_monitor.look.looks import Look, observation_of, read_watch, watch_questions
from training_monitor.look.meant import MOST_NAMED, Meant, MeantTraining, find_meant, reach
from training_monitor.notify.notice_text import command_line, word_for
from training_monitor.targets.asking import Site, ask_many, side_by_side
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.gpu_load import gpu_load, gpu_mode, power_fraction
from training_monitor.verdict.judge import ENDS, IF_IT_RAN_HERE, VERDICTS, judge, not_seen, with_speed
from training_monitor.verdict.stall import stall_policy

if TYPE_CHECKING:
    from training_monitor.look.remembered import KeptTraining

MOST_TRAININGS = 20
_LATER_SECONDS = 30.0  # a supervisor writes to its own log after the last line of its job
CHECK_SECONDS, _TO_FIND = 16.0, 0.75  # a check, and the share of it in which the trainings have to be found
_LIST_SECONDS = 40.0  # for the pods of a training, however long a check may take


def check_training(
    target: str | Target = "local",
    what: str | int | None = None,
    namespace: str = "default",
    *,
    stagnation_threshold: float | None = None,
    forget_ended: bool = False,
    timeout: float = CHECK_SECONDS,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> CheckReport:
    """Check whether the trainings on a target are making progress now.

    Without `what`, the result also includes trainings that have ended but were found by a check in the last 24 hours.

    Args:
        target: where the training runs (see `Target`).
        what: a PID, a log file or a pattern for log files, or the ID or name of a Ray job or process job; None: every
            training found on the target.
        stagnation_threshold: see `stall_policy`; None: derived from the evidence of each training.
        forget_ended: discard the results of earlier checks of the target, so that trainings that have ended are not
            reported again.
        timeout: maximum seconds for all queries together. Anything that could not be read within this time is reported
            as unknown.
        store: where observations are stored; default: this user's store.

    Returns:
        A `reports.CheckReport`.

    Raises:
        SettingsError: the name matches two trainings, or the log is a folder.
        JobNotFound: no process, job or log matches `what`.
        CommandError: the target could not be queried.
    """
    from training_monitor.look.remembered import ended_since, forget, recall, remember

    asked = Site.of(target, namespace, transport, clock).within(timeout)
    if asked.target.is_list and what is None:
        again = partial(check_training, stagnation_threshold=stagnation_threshold, forget_ended=forget_ended)
        return _check_list(asked, partial(again, store=store, transport=transport, clock=clock))
    to_find = asked.within(_TO_FIND * timeout)
    siblings = _Siblings(to_find if asked.target.cluster else reach(to_find))
    kept = store or BestEffortStore()
    find = partial(_find, kept, what)
    calls: list[Callable[[], Any]] = [partial(find, siblings.site), siblings.find]
    found = side_by_side(calls)[0]
    site = siblings.site
    meant = _found(find(site) if site.target.others else found)  # in the container that is meant, which is known by now
    siblings.site = site = replace(site, until=asked.until)
    now = site.clock.time()
    known, forgotten = recall(kept, site.target, now), 0
    if forget_ended:
        forget(kept, site.target)
        known, forgotten = (), len(ended_since(known, meant.trainings))
    meant, ended = _with_ended(meant, what, known)
    before = [each.as_meant() for each in ended]
    chosen = (*meant.trainings[:MOST_TRAININGS], *before, *([meant.log] if meant.log else []))
    seen = _beside(siblings.ask, partial(_look_at, site, chosen, alone=what is not None))
    seen = _without_twins(_without_older(seen, meant.log), before)
    if what is not None and seen and seen[0].meant.job.process is None:
        seen[0].require()
    complete = [
        siblings.complete(each)
        for each in seen
        if what is not None or (not each.was_stopped if each.meant in before else not each.is_gone)
    ]
    if what is None:
        gone = [each.meant for each in seen if each.is_gone and each.meant not in before]
        over = ended_since(known, meant.trainings) if meant.not_seen else ended
        remember(kept, site.target, now, [each for each in meant.trainings if each not in gone], over)
    elif seen and seen[0].meant.job.process and seen[0].look and seen[0].look.is_running:
        one = replace(seen[0].meant, name=f"pid {seen[0].meant.job.pid}")
        remember(kept, site.target, now, [one], ended_since(known, [one]))
    jobs = [
        _report(site, each, _judge(site, each, kept, stagnation_threshold), _explained(site, each, kept))
        for each in complete
    ]
    left = meant.trainings[MOST_TRAININGS:]
    not_seen = [*meant.not_seen, *(() if jobs else meant.hidden), *_not_looked_at(left)]
    was_searched = what is None and not before and not meant.has_ended
    is_idle = was_searched and all(job["state"] in ENDS for job in jobs)
    remedies = [*siblings.remedies(), *([SEARCHED_FOR] if is_idle else [])]
    return _sum_up(site, jobs, not_seen, remedies, len(left), forgotten)


def _check_list(site: Site, check: Callable[..., CheckReport]) -> CheckReport:
    """Check all that a target stands for, side by side; what runs no training is left out."""

    def check_one(target: Target) -> CheckReport:
        return check(target, timeout=site.left())

    targets = site.target.list_targets(site.transport)
    reports = dict(zip(targets, side_by_side([partial(check_one, each) for each in targets])))
    jobs = list[JobCheckReport]()
    not_seen, remedies, left, forgotten = list[NotSeen](), list[str](), 0, 0
    for target, report in reports.items():
        if isinstance(report, TrainingMonitorError):
            not_seen.append(NotSeen(str(target), report.what))
            continue
        for job in report["jobs"]:
            job["name"] = target.name if len(report["jobs"]) == 1 else f"{target.name} {job['name']}"
        jobs += report["jobs"]
        for each in report["not_seen"]:
            not_seen.append(NotSeen(f"{each['what']} of {target.called}", each["why"], each["count"]))
        remedies += report["remedies"]
        left += report["not_looked_at"]
        forgotten += report["forgotten"]
    return _sum_up(site, jobs, not_seen, remedies, left, forgotten)


def judge_jobs(
    target: str | Target,
    namespace: str = "default",
    *,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[list[tuple[JobView, Verdict]], JobListing]:
    """Judge all Ray jobs and process jobs of a target, each by a new look and by earlier ones.

    Returns:
        The jobs with their verdicts, oldest first, and the listing, which records what could not be listed.

    Raises:
        CommandError: the target could not be asked.
    """
    site, kept = Site.of(target, namespace, transport, clock), store or BestEffortStore()
    listing = get_job_listing(site.target, transport=transport)
    views = {view.job_id: view for view in listing.jobs}
    meant = {job_id: MeantTraining(WatchedJob(job_id=job_id), job_id) for job_id in views}
    running = [meant[job_id] for job_id, view in views.items() if not view.status.is_terminal]
    seen = {job_id: _Seen(meant[job_id], Look(view), progress=view.progress) for job_id, view in views.items()}
    looked_at = [
        each
        for first in range(0, len(running), MOST_TRAININGS)
        for each in _look_at(site, running[first : first + MOST_TRAININGS], alone=False)
    ]
    seen |= {each.meant.name: each for each in looked_at if each.look}
    judged = {job_id: _judge(site, each, kept, None) for job_id, each in seen.items()}
    return [(_with_speed(views[job_id], verdict), verdict) for job_id, verdict in judged.items()], listing


def _with_speed(view: JobView, verdict: Verdict) -> JobView:
    return replace(view, progress=with_speed(view.progress, verdict))


def _find(store: Store, what: str | int | None, site: Site) -> Meant:
    """Find what is meant, or else the one of that name that was seen before it ended."""
    from training_monitor.look.remembered import ended_called, recall

    try:
        return find_meant(site, what)
    except JobNotFound:
        if ended := ended_called(recall(store, site.target, site.clock.time()), what, site.target):
            return Meant((ended,))
        raise


def _with_ended(
    meant: Meant, what: str | int | None, known: Sequence[KeptTraining]
) -> tuple[Meant, list[KeptTraining]]:
    """Return what is meant, and what was seen earlier and may have ended; a PID or a log may mean one of these."""
    from training_monitor.look.remembered import ended_since, ended_with

    if what is None:
        # a log alone shows no process that runs in the place of one that was seen
        running = [each for each in meant.trainings if not (meant.is_last and each.is_log)]
        return meant, ended_since(known, running) if not meant.not_seen else []
    if meant.trainings and (named := ended_with(known, meant.trainings[0].job)):
        return meant._replace(trainings=(named,)), []
    logs = [each.job.log_file for each in meant.trainings if each.is_log]
    return meant, [each for each in known if each.job.log_file in logs and each.job.pid][-1:]


def _without_older(seen: list[_Seen], log: MeantTraining | None) -> list[_Seen]:
    """Leave out a log that shows no step, or that changed before the end of the jobs, or was written by them."""
    ages = [each.log_age for each in seen if each.meant is not log]
    first = min((age for age in ages if age is not None), default=float("inf"))
    return [
        each
        for each in seen
        if each.meant is not log
        or (each.progress.step is not None and each.log_age is not None and each.log_age < first - _LATER_SECONDS)
    ]


def _without_twins(seen: Sequence[_Seen], before: Sequence[MeantTraining]) -> list[_Seen]:
    """Leave one of a log and the training that was seen to write it: the log if another process writes it now."""
    left = list(seen)
    for log in [each for each in seen if each.meant.is_log]:
        path, found = log.meant.job.log_file, [each for each in left if each.meant in before and not each.meant.is_log]
        if writer := next((each for each in found if each.meant.job.log_file == path), None):
            evidence = log.look.evidence if log.look else None
            left.remove(log if writer.look and evidence and evidence.boot and not evidence.pids else writer)
    return left


# ---------------------------------------------------------------- looking


class _Seen(NamedTuple):
    """A training and the result of a look at it; `error` is why the look failed."""

    meant: MeantTraining
    look: Look | None
    all_gpus: tuple[Gpu, ...] = ()
    error: TrainingMonitorError | None = None
    progress: Progress = Progress()

    @property
    def is_gone(self) -> bool:
        """Whether the target answered, and has neither the training, any more, nor a log of it."""
        return isinstance(self.error, JobNotFound) or bool(self.look and self.look.has_nothing(self.meant.job))

    @property
    def log_age(self) -> float | None:
        """Seconds since its log was written."""
        view, log = (self.look.view, self.look.log) if self.look else (None, None)
        return view.log_age if view else log.age if log else None

    @property
    def was_stopped(self) -> bool:
        """Whether a person or a supervisor stopped it."""
        view = self.look.view if self.look else None
        return view is not None and (view.status is JobStatus.STOPPED or view.stopped_by is not None)

    def require(self) -> None:
        """Raise JobNotFound if the training is gone."""
        if isinstance(self.error, JobNotFound):
            raise self.error
        if self.look:
            self.look.require(self.meant.job)


def _beside(other: Callable[[], object], call: Callable[[], Any]) -> Any:
    """Return the result of a call while another one runs, whose result and error are left out. Raises its error."""
    return _found(side_by_side([call, other])[0])


def _found(result: Any) -> Any:
    """Return the result of a call of `side_by_side`. Raises its error."""
    if isinstance(result, TrainingMonitorError):
        raise result
    return result


def _look_at(site: Site, trainings: Sequence[MeantTraining], *, alone: bool) -> list[_Seen]:
    """Look at all trainings in one round trip; with `alone`, raise the error that kept us from the only one."""
    # without the GPUs, which are asked once for all
    asked = [
        watch_questions(each.job, None, None, with_log=each.job.job_id is None, is_first=True)[1:] for each in trainings
    ]
    try:
        answers = site.ask(gpu_question(GPU_SECONDS), *(each for group in asked for each in group))
    except CommandError as error:
        if alone:
            raise
        return [_Seen(meant, None, error=error) for meant in trainings]
    gpus, rest, seen = answers[0], answers[1:], []
    for meant, group in zip(trainings, asked):
        mine, rest = rest[: len(group)], rest[len(group) :]
        seen.append(_read(meant, [gpus, *mine], alone=alone))
    return seen


def _read(meant: MeantTraining, answers: list[Answer[Any]], *, alone: bool) -> _Seen:
    """Build the look from its answers; with `alone`, raise the error that kept us from the log of what is there."""
    table = answers[0].value[0].gpus if answers[0].value else ()
    try:
        look = read_watch(meant.job, answers, with_log=meant.job.job_id is None)
    except TrainingMonitorError as error:
        if alone and not isinstance(error, JobNotFound):
            raise
        return _Seen(meant, None, table, error)
    return _Seen(meant, look, table, progress=look.read_progress())


# ---------------------------------------------------------------- the pods beside a pod


class _Siblings:
    """The other pods of the training that runs in the target's pod: their GPUs belong to it too.

    Where a container sees no GPU, those of its machine are asked for.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._pods: tuple[Target, ...] = ()
        self._gpus: list[Gpu] = []
        self._unread: list[str] = []

    def find(self) -> None:
        """Choose the container of the target's pod, and list the pods beside it."""
        if machine := self.site.target.gpu_machine:
            self._pods = (machine,)
        if self.site.target.cluster:
            self.site = reach(self.site)
        target = self.site.target
        found = target.find_siblings(self.site.transport, self.site.left(_LIST_SECONDS))
        self._pods += tuple(target.beside(pod.name).as_listed(pod) for pod in found)

    def ask(self) -> None:
        """Read the GPUs of all sibling pods, side by side."""
        site = self.site
        answers = ask_many(self._pods, gpu_question(GPU_SECONDS), timeout=site.left(), transport=site.transport)
        for pod, [answer] in zip(self._pods, answers):
            if answer.failure and not (self.site.target.gpu_machine or isinstance(answer.failure, ToolNotFound)):
                self._unread.append(f"{pod.called}: {answer.failure.what}")
            elif answer.value:
                self._gpus += answer.value[0].gpus

    def complete(self, seen: _Seen) -> _Seen:
        """Add the GPUs of the sibling pods to a training."""
        if seen.look is None or not self._gpus or (self.site.target.gpu_machine and seen.look.gpus):
            return seen
        gpus = (*seen.look.gpus, *self._gpus)
        utilization, power = gpu_load(gpus)
        look = replace(seen.look, gpus=gpus, gpu_utilization=utilization, gpu_power=power)
        return seen._replace(look=look, all_gpus=gpus)

    def remedies(self) -> Iterator[str]:
        if self._unread:
            yield f"the GPUs of these targets could not be queried: {name_some(self._unread, MOST_NAMED, '; ')}"
        if others := self.site.target.others:
            yield f"to inspect another container of this pod, use one of these targets: {name_some(others, MOST_NAMED)}"


# ---------------------------------------------------------------- judging


def _not_looked_at(left: Sequence[MeantTraining]) -> Iterator[NotSeen]:
    """Report the trainings beyond the limit of one check."""
    if left:
        named = name_some([each.name for each in left], MOST_NAMED)
        yield NotSeen(
            "more trainings", f"not inspected; to inspect one of them, specify its PID or job ID: {named}", len(left)
        )


def _sum_up(
    site: Site,
    jobs: list[JobCheckReport],
    not_seen: Sequence[NotSeen],
    remedies: list[str],
    left: int,
    forgotten: int,
) -> CheckReport:
    jobs = sorted(jobs, key=lambda job: -VERDICTS.index(job["verdict"]))
    verdict, reason = _worst(site, jobs, not_seen)
    return CheckReport(
        schema=schema_name("check"),
        target=str(site),
        verdict=verdict,
        reason=reason,
        not_looked_at=left,
        forgotten=forgotten,
        not_seen=[asdict(each) for each in not_seen],
        remedies=remedies,
        jobs=jobs,
    )


def _worst(site: Site, jobs: Sequence[JobCheckReport], not_seen: Sequence[NotSeen]) -> tuple[str, str]:
    """Return the target's verdict and reason: those of its worst training, or unknown if some were not seen."""
    missed = "; ".join(map(str, not_seen))
    if not jobs:
        return "unknown", f"no training was found on {site}" + (
            (f", and the search was incomplete: {missed}") if missed else ""
        )
    worst = jobs[0]
    if not_seen and VERDICTS.index(worst["verdict"]) < VERDICTS.index("unknown"):
        return "unknown", f"no problem was found, but the search was incomplete: {missed}"
    return worst["verdict"], worst["reason"]


def _judge(site: Site, seen: _Seen, store: Store | None, threshold: float | None) -> Verdict:
    if seen.look is None:
        return not_seen(f"the training could not be inspected: {seen.error.what if seen.error else '?'}")
    path, now = seen.look.log.path if seen.look.log else None, site.clock.time()
    looks = Looks(store, look_key(site.target, seen.meant.job, path))
    looks.add(observation_of(seen.look, seen.progress, seen.look.text, now, first=True))
    return judge(looks.all(), now=now, policy=stall_policy(threshold))


def _explained(site: Site, seen: _Seen, store: Store) -> KeptRollCall | None:
    path = seen.look.log.path if seen.look and seen.look.log else None
    return last_roll_call(store, site.target, seen.meant.job, path)


def _report(site: Site, seen: _Seen, verdict: Verdict, explained: KeptRollCall | None) -> JobCheckReport:
    from training_monitor.checkpoints.checkpoints import newest_complete

    look, meant = seen.look or Look(), seen.meant
    progress = with_speed(seen.progress, verdict)
    done, newest = job_progress(progress), newest_complete(look.checkpoints or ())
    identity = look.process.identity if look.process else None
    return report_of(
        JobCheckReport,
        meant.job,
        meant,
        look.evidence,
        progress,
        done,
        verdict,
        target=str(site),
        remedies=[*verdict.remedies, *meant.remedies, *_sharpen(site, seen, verdict)],
        progress=done.fraction,
        eta_seconds=done.eta_seconds if verdict.state in ("running", "slow") else None,
        pid=identity.pid if identity else meant.job.pid,
        command=meant.command or (look.process.command if look.process else None),
        log=look.log.path if look.log else meant.job.log_file,
        checkpoint=asdict(newest) if newest else None,
        gpus=[_gpu_report(gpu) for gpu in look.gpus],
        errors=list(look.errors),
        **explained_keys(explained),
    )


def _sharpen(site: Site, seen: _Seen, verdict: Verdict) -> Iterator[str]:
    """Yield hints on how to learn more."""
    look, job = seen.look or Look(), seen.meant.job
    is_seen = bool(look.evidence.processes)
    if seen.error and seen.error.hint:
        yield seen.error.hint
    is_unknown = verdict.verdict == "unknown" and verdict.state != "starting"
    if is_unknown and not is_seen and look.is_running is not False and IF_IT_RAN_HERE not in verdict.remedies:
        yield (
            "specify the PID of the training, or run this command as the user who runs it, so that its processes can "
            "be inspected"
        )
    if verdict.state == "stalled" and verdict.failure is None and is_seen:
        word = str(job.pid) if job.pid and job.job_id is None else word_for(job)
        yield f"run `{command_line('why', str(site.target), word)}` to see where each rank is and which one is late"
    if verdict.state == "stalled" and gpu_mode(look.gpu_utilization, look.gpu_power) == "spinning":
        yield "set NCCL_DEBUG=INFO at the next start to see which rank is missing"
    if verdict.state == "stalled" and verdict.failure is None and not is_seen and not look.gpus:
        yield "its processes and GPUs are not visible on this target: check the pod or host where the training runs"


def _gpu_report(gpu: Gpu) -> GpuCheckReport:
    return report_of(GpuCheckReport, gpu, gpu_utilization=gpu.utilization, gpu_power=power_fraction(gpu))
