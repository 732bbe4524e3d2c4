"""explain_training: a roll call over all ranks of a training, on all its pods and hosts, and why it hangs.

All hosts are asked side by side, each in one round trip once its processes are known, and only read. What has not
answered within the bound is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    CommandError,
    CommandTimedOut,
    SettingsError,
    TargetEnded,
    TargetWaits,
    TrainingMonitorError,
)
from training_monitor.core.masking import redact
from training_monitor.core.models import Answer, GpuProcess, GpuTable, NewLog, Question
from training_monitor.core.store import Store
from training_monitor.core.units import name_some
from training_monitor.core.values import LEAST_ROLL_CALL_SECONDS, LONG_ENOUGH, LongEnoughSeconds, Verdict, WatchedJob
from training_monitor.logs.following import FIRST_BYTES
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.training_log import parse_progress
from training_monitor.look.evidence import pids_of
from training_monitor.look.find_trainings import FoundTrainings, find_question
from training_monitor.look.host import gpu_question
from training_monitor.look.kept_looks import Observer, last_roll_call
from training_monitor.look.looks import roots_of, source_of
from training_monitor.look.meant import MOST_NAMED, MeantTraining, is_pid, process_alone, reach
from training_monitor.look.remembered import find_known
from training_monitor.targets.asking import Site, longest_limit, side_by_side
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import MOST_PROGRAMS, Transport
from training_monitor.verdict.stall import stall_policy
from training_monitor.why.find_ranks import are_all_of_host, build_ranks, choose_training
from training_monitor.why.hosts import (
    Host,
    Pods,
    are_all_hosts,
    ask_pods,
    choose_processes,
    find_hosts,
    find_silent_pods,
)
from training_monitor.why.meetings import leave_out_others
from training_monitor.why.processes import (
    LOOK_SECONDS,
    HostFacts,
    SeenTraining,
    processes_question,
    remedies_of,
)
from training_monitor.why.ranks import (
    Collective,
    Finding,
    Rank,
    RollCall,
    finding,
)
from training_monitor.why.report import Explained, ExplanationReport, format_explanation
from training_monitor.why.roll_call import explain_roll_call
from training_monitor.why.stacks import MORE_SECONDS, SeenStacks, read_spy, remove_spy, send_spy, stacks_question
from training_monitor.why.surroundings import pod_findings, read_surroundings, surroundings_questions
from training_monitor.why.waits import WAITS, find_causes, with_awaited

TIMEOUT = 20.0  # seconds
_SHARE_OF_FINDING = 0.4  # of the time
_PROMPTS = ("(Pdb)", "(Pdb++)", "ipdb>")
_INTERVALS = 3.0  # between steps, after which a training is no longer at its usual pace


def explain_training(
    target: str | Target = "local",
    what: str | int | None = None,
    namespace: str = "default",
    *,
    also: Sequence[str | Target] = (),
    timeout: LongEnoughSeconds = TIMEOUT,
    py_spy: str | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ExplanationReport:
    """Explain why a training hangs: compare the Python stacks of all ranks, and name the rank that differs.

    This function is read-only and does not stop any process. Stacks come from a `TrainingMonitor` in the script, from
    an installed `py-spy`, or from `sys.remote_exec` of Python 3.14, whichever works first. If none of these works, only
    information from the kernel is used.

    Args:
        target: where the training runs (see `Target`). If this is a pod, the other pods of its training are found
            automatically.
        what: a PID, a log, a job or a job name, as in `check_training`; None: the only training on the target.
        also: other targets on which ranks of the same training run, such as further ssh hosts.
        timeout: maximum seconds in total, at least 5. At most 32 hosts are queried at the same time, each for at least
            3 seconds.
        py_spy: the path of a py-spy executable on this machine, which is copied to the targets and removed afterwards.

    Returns:
        A report, see `training_monitor.why.ExplanationReport`. Hosts that do not respond are listed in `silent`.

    Raises:
        SettingsError: the name matches two trainings, or an argument is invalid.
        JobNotFound: there is no such training.
        CommandError: the target could not be queried.
    """
    if not timeout >= LEAST_ROLL_CALL_SECONDS:
        raise SettingsError("timeout", timeout, LONG_ENOUGH.expected)
    others = [parse_target(each, namespace=namespace) for each in also]
    spy = None if py_spy is None else read_spy(py_spy)
    end = clock.monotonic() + timeout
    site = reach(Site.of(target, namespace, transport, clock), _SHARE_OF_FINDING * timeout)
    left = min(_time_left(clock, end), _SHARE_OF_FINDING * timeout)
    store = store or BestEffortStore()
    try:
        meant = find_known(site, what, store=store, timeout=left, of_any=True)
    except CommandTimedOut:
        if not is_pid(str(what)):
            raise
        meant = process_alone(int(str(what)))
    pace = _Pace(Observer(site, meant.job, store=store))
    told = call_roll(site, meant, also=others, timeout=_time_left(clock, end), spy=spy, pace=pace)
    kept = None if told.seen.ranks else last_roll_call(store, site.target, meant.job)
    if kept:
        before = f"Before {kept.job_id or meant.name} was terminated, the roll call reported: {kept.text}"
        told = told._replace(explanation=told.explanation._replace(text=f"{told.explanation.text} {before}"))
    return format_explanation(told)


class _Pace:
    """Looks at the training as a whole in the round trip of its ranks, twice, and tells whether it makes steps."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._first: int | None = None
        self._second: int | None = None
        self.is_at_prompt = False  # whether the last that it printed is the prompt of a debugger

    def ask(self, *questions: Question[Any], timeout: float) -> list[Answer[Any]]:
        """Ask the target, for its processes first; its log is read at once, and again a moment later.

        Raises like `Observer.look_beside`, and JobNotFound where no process is left of the training.
        """
        observer = self._observer
        now, again = observer.site.clock.time(), _later_log_question(observer.job)
        look, [*answers, later] = observer.look_beside(now, *questions, again, timeout=timeout)
        if answers[0].value and not answers[0].value.processes:
            look.require(observer.job)
        self.is_at_prompt = look.text.rstrip().endswith(_PROMPTS)
        self._first = job_progress(parse_progress(look.text)).step
        self._second = job_progress(parse_progress(later.value.text)).step if later.value else None
        return answers

    def judge(self) -> Verdict | None:
        """Return the verdict on the training as a whole; None if it was not seen."""
        observer = self._observer
        return observer.judge(observer.site.clock.time(), stall_policy(None)) if observer.looks.last else None

    def is_moving(self, verdict: Verdict | None) -> bool | None:
        """Return whether steps come at the usual pace; None if that is unknown."""
        if self._first is not None and self._second is not None and self._second > self._first:
            return True
        last = self._observer.looks.last
        if verdict is None or last is None or verdict.state not in ("running", "slow"):
            return None
        interval = last.step_interval or (1 / last.steps_per_second if last.steps_per_second else None)
        waited = verdict.seconds_without_step
        return None if interval is None or waited is None else waited <= _INTERVALS * interval


def _later_log_question(job: WatchedJob) -> Question[NewLog]:
    question = source_of(job).read(None, FIRST_BYTES)
    return replace(question, script=f"sleep {LOOK_SECONDS}\n{question.script}", limit=question.limit + LOOK_SECONDS)


class _HostSeen(NamedTuple):
    """What was seen on one host.

    `is_partial`: there may be more ranks on it. `processes` tell its ranks from those of any other host, however that
    is named. `is_unclear`: what runs there was not recognized, or taken for other trainings. `unseen` is why its
    processes are unknown.
    """

    ranks: tuple[Rank, ...] = ()
    is_partial: bool = False
    processes: frozenset[object] = frozenset()
    findings: tuple[Finding, ...] = ()
    collectives: tuple[Collective, ...] = ()
    remedies: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    is_unclear: bool = False
    unseen: str | None = None


def call_roll(
    site: Site,
    meant: MeantTraining,
    *,
    also: Sequence[Target] = (),
    timeout: float = TIMEOUT,
    spy: bytes | None = None,
    pace: _Pace | None = None,
) -> Explained:
    """Take the roll call of a training whose job is known. Never takes longer than `timeout` seconds.

    Args:
        spy: a py-spy that is sent to the hosts.
        pace: looks at the training as a whole in the same round trip; a training known to hang needs none.

    Raises:
        CommandError: the target itself did not answer, and neither did any other host.
    """
    clock = site.clock
    began, end = clock.time(), clock.monotonic() + timeout
    pods = ask_pods(site, _time_left(clock, end) / 3)
    roots = pids_of(*meant.pids) if meant.pids else roots_of(meant.job, None, None)
    main, *others = find_hosts(site, pods.listed, also)
    hosts = [main._replace(roots=roots, is_found=bool(meant.pids), ask=pace.ask if pace else None), *others]
    calls: list[Callable[[], Any]] = [partial(pod_findings, site, pods.listed, _time_left(clock, end))]
    last = len(hosts) - MOST_PROGRAMS
    calls += [partial(_ask_host, each, meant, end, spy, has_next=0 < at < last) for at, each in enumerate(hosts)]
    results: list[Any] = side_by_side(calls)
    of_pods, *answers = results
    if all(isinstance(each, TrainingMonitorError) for each in answers):
        raise answers[0]
    heard = list(_tell_apart(answers))
    silent = {host.name: why for host, each in zip(hosts, answers) if (why := _why_unseen(host, each))}
    silent |= find_silent_pods(site, pods.listed, hosts)
    beside = of_pods.findings
    if pace and pace.is_at_prompt and heard and (first := next(iter(heard[0].ranks), None)):
        text = f"pid {first.pid} is waiting for debugger input: its output ends with a debugger prompt"
        beside += (replace(finding("debugger", text, pids=(first.pid,)), host=first.host, node=first.node),)
    seen = _collect(heard, silent, beside, pods)
    verdict, ranks = pace.judge() if pace else None, seen.ranks
    is_moving = pace.is_moving(verdict) if pace else None
    return Explained(
        str(site.target),
        meant,
        seen,
        explain_roll_call(seen, is_moving=is_moving),
        began,
        clock.time() - began,
        (*(each for host in heard for each in host.remedies), *(verdict.remedies if verdict and not ranks else ())),
        (*_unknown_pods(pods), *of_pods.unread, *(each for host in heard for each in host.unknown)),
        verdict,
    )


def _why_unseen(host: Host, answer: Any) -> str | None:
    """Return why it is unknown what runs on a host; None if that is known, also because nothing can run there."""
    stands = answer.pod if isinstance(answer, TargetEnded | TargetWaits) else None
    if stands and stands.phase != "Suspended" and not host.has_more:
        return None
    why: str | None = answer.what if isinstance(answer, TrainingMonitorError) else answer.unseen
    return why


def _collect(heard: Sequence[_HostSeen], silent: dict[str, str], of_pods: Sequence[Finding], pods: Pods) -> RollCall:
    """Put together what all hosts said, without the ranks of other trainings."""
    first = heard[0].ranks
    others = [rank for each in heard[1:] for rank in each.ranks]
    own = leave_out_others(first, others)
    ranks = (*first, *own)
    is_unclear = len(own) < len(others) or any(each.is_unclear for each in heard)
    partial = frozenset(rank.host for each in heard if each.is_partial for rank in each.ranks)
    findings = [*of_pods, *(found for each in heard for found in each.findings)]
    return RollCall(
        ranks,
        leave_out_repeated(findings),
        tuple(dict.fromkeys(record for each in heard for record in each.collectives)),
        silent,
        None if is_unclear else are_all_hosts(ranks, silent, partial, pods),
        partial,
    )


def leave_out_repeated(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return each finding once: of a machine as its pods see it, and of the training as all hosts do."""
    found: dict[object, Finding] = {}
    for each in findings:
        of_all = each.kind in ("nccl_ras", "flight_recorder")
        found.setdefault((each.text, None if of_all else each.node or each.host), each)
    return tuple(found.values())


def _tell_apart(answers: Sequence[Any]) -> Iterator[_HostSeen]:
    """Yield what was seen on each host; one that was asked under two names has the same processes twice."""
    known: set[object] = set()
    for each in answers:
        if isinstance(each, _HostSeen) and known.isdisjoint(each.processes):
            known |= each.processes
            yield each


def _unknown_pods(pods: Pods) -> Iterator[str]:
    if pods.unknown:
        yield f"the other pods of the training could not be listed: {pods.unknown}"


def _time_left(clock: Clock, end: float) -> float:
    """Return the seconds that are left, in tenths, since messages name them. Raises CommandTimedOut: none are."""
    left = (end - clock.monotonic()) * 10 // 1 / 10
    if left <= 0:
        raise CommandTimedOut("there was no time left to query this host", hint="use a longer timeout")
    return left


# ---------------------------------------------------------------- one host


def _ask_host(host: Host, meant: MeantTraining, end: float, spy: bytes | None, *, has_next: bool) -> _HostSeen:
    """Look at all ranks on one host. Raises CommandError: it did not answer.

    Args:
        has_next: another host waits until this one is done: one that hangs may take only half of the time.
    """
    clock = host.site.clock
    end -= _time_left(clock, end) / 2 if has_next else 0
    site = host.site.resolve(_time_left(clock, end))
    roots = host.roots
    if roots is None:
        [answer] = site.ask(find_question(own=site.target.own_processes), timeout=_time_left(clock, end))
        found = answer.get() or FoundTrainings(())
        if not (pids := choose_processes(meant, found)):
            is_unclear = bool(found.trainings or found.unrecognized or host.has_more)
            return _HostSeen(unknown=tuple(_others(host, found)), is_unclear=is_unclear)
        roots = pids_of(*pids)
    sent, problem = _send_spy(host, site, spy, timeout=_time_left(clock, end) / 2)
    ask = host.ask or site.ask
    is_removed = False
    try:
        left = _time_left(clock, end)
        of_stacks = stacks_question(roots, max(1.0, longest_limit(left) - MORE_SECONDS), sent)
        asked: list[Question[Any]] = [processes_question(roots), of_stacks, gpu_question(8.0)]
        processes, stacks, gpus, *rest = ask(*asked, *surroundings_questions(roots=roots), timeout=left)
        is_removed = stacks.value is not None
    finally:
        if sent and not is_removed:
            remove_spy(site, sent)
    named = meant.named if host.roots else None
    late = processes.failure if isinstance(processes.failure, CommandTimedOut) else None
    nothing = SeenTraining(HostFacts(), {}, (named,) if named else ())
    seen = _read_host(host, nothing if late else processes.get() or nothing, stacks, gpus, rest, named)
    return seen._replace(unknown=(*problem, *seen.unknown), unseen=late.what if late else None)


def _others(host: Host, found: FoundTrainings) -> Iterator[str]:
    if found.trainings:
        names = name_some([each.script or each.command[:60] for each in found.trainings], MOST_NAMED)
        yield f"{host.name}: the processes there appear to belong to other trainings: {names}"


def _send_spy(host: Host, site: Site, program: bytes | None, timeout: float) -> tuple[str, tuple[str, ...]]:
    """Return the folder with the py-spy that was sent, and what is to be said if it could not be: the rest is asked."""
    if program is None:
        return "", ()
    try:
        return send_spy(site, program, timeout), ()
    except CommandError as error:
        return "", (f"{host.name}: py-spy could not be copied there: {error.what}",)


def _read_host(
    host: Host,
    training: SeenTraining,
    stacks: Answer[SeenStacks],
    gpus: Answer[tuple[GpuTable, tuple[GpuProcess, ...]]],
    rest: Sequence[Answer[Any]],
    named: int | None = None,
) -> _HostSeen:
    node = host.node if not host.site.target.is_machine else training.facts.name or None
    known = stacks.value or SeenStacks({})
    beside = read_surroundings(rest, host.name, node)
    waits = [each for each in beside.findings if each.kind in WAITS]
    others = [each for each in beside.findings if each.kind not in WAITS]
    marks = host.site.target.own_processes.items()  # of a job that shares its machine with others
    training = with_awaited(training, waits)
    built = build_ranks(training, known, gpus.value, host.name, node)
    ranks = choose_training(
        [each for each in built if marks <= training.processes[each.pid].variables.items()], training, named
    )
    answers = [known.answers[each.pid] for each in ranks if each.pid in known.answers]
    remedies = remedies_of(training.facts, answers, redact(host.name))
    unknown = [f"{host.name}: {each}" for each in beside.unread]
    if training.is_cut:
        unknown.append(f"{host.name}: no time was left to inspect all its processes")
    if stacks.failure:
        unknown.append(f"{host.name}: the stacks could not be read: {stacks.failure.what}")
    starts = {pid: each.process.start for pid, each in training.processes.items()}
    processes = frozenset((training.facts.name, each.rank, each.pid, starts[each.pid]) for each in ranks)
    is_partial = not host.is_found and not are_all_of_host(training, ranks)
    causes = [replace(each, host=host.name, node=node) for each in find_causes(training, waits, ranks)]
    findings = (*causes, *others)
    return _HostSeen(ranks, is_partial, processes, findings, beside.collectives, tuple(remedies), tuple(unknown))
