"""Decide whether, when and from where a job is restarted. Pure.

The rules follow NVIDIA's Resiliency Extension: restarting is the default and stopping needs proof; progress refills the
budget; the same failure three times without progress is proof; unknown progress is not "no progress".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.models import Checkpoint, Failure, RunOutcome
from training_monitor.core.units import plural
from training_monitor.core.values import (
    Bound,
    CheckpointListing,
    RollCallSeconds,
    check_roll_call_timeout,
    is_at_least,
)

_SOME = Bound("more than 0 seconds")
PositiveSeconds = Annotated[float, _SOME]
SAME_FAILURES = 3
FAILED_LOADS = 2
DEATHS_OF_A_SUSPECT = 3
SUSPECT = (
    "several attempts resumed from this checkpoint and failed before their first step: "
    "older checkpoints are tried first"
)
TIMES_SUSPECTED = 2
_LOST = "lost"  # of an attempt that Ray forgot, see `own_failure`
_KINDS = {  # by `Failure.error_class`, in words
    "hardware": "a hardware failure, ",
    "transient": "a transient failure, ",
    "user": "an error in the script, ",
    "external_stop": "stopped from outside, ",
}
_EVIDENCE = 160  # characters
_ADVICE = {
    "restart_elsewhere": "restarting it, on another node if possible",
    "restart_previous_checkpoint": "restarting it from the previous checkpoint",
    "stop": "restarting it, because it made progress before",
}


@dataclass(frozen=True, slots=True, repr=False)
class RestartPolicy(PublicValue):
    """The limits for restarting a training; see `auto_restart`.

    Attributes:
        max_retries: maximum number of consecutive restarts without progress; see `decide_restart`.
        retry_delay: seconds before a restart. The delay doubles while there is no progress, up to `max_delay` seconds.
        jitter: maximum share of the delay (0 to 1) that is added to the delay at random.
        stagnation_threshold: seconds without progress after which a running job counts as stalled.
        check_interval: seconds between looks. The exit of a process job is detected at once.
        fresh_start: allow restarting from step 0 even if checkpoints were written but none is usable.
        keep_attempts: number of earlier attempts whose run directories (logs) are kept on the target; at least 1.
        roll_call_timeout: maximum seconds for inspecting the ranks of a hung job (see `explain_training`) before the
            job is ended; at least 5, or 0 to skip the inspection.
    """

    max_retries: int = 10
    retry_delay: float = 60.0
    max_delay: float = 900.0
    jitter: float = 0.1
    stagnation_threshold: PositiveSeconds = 300.0
    check_interval: PositiveSeconds = 30.0
    fresh_start: bool = False
    keep_attempts: int = 10
    roll_call_timeout: RollCallSeconds = 20.0

    def __post_init__(self) -> None:
        from training_monitor.core.arguments import check_values

        check_values(self)
        least = {"max_retries": 0, "retry_delay": 0, "max_delay": 0, "jitter": 0, "keep_attempts": 1}
        check_roll_call_timeout(self.roll_call_timeout)
        for name, lowest in least.items():
            if not is_at_least(lowest, getattr(self, name)):
                raise SettingsError(name, getattr(self, name), f"a number of at least {lowest}")
        if self.jitter > 1:
            raise SettingsError("jitter", self.jitter, "a fraction of the delay, from 0 to 1")
        for name in ("stagnation_threshold", "check_interval"):
            if getattr(self, name) == 0 or not is_at_least(0, getattr(self, name)):
                raise SettingsError(name, getattr(self, name), _SOME.expected)


def restart_delay(policy: RestartPolicy, retry: int) -> float:
    """Return the seconds before restart number `retry` (from 1) since the last progress, before jitter.

    >>> [restart_delay(RestartPolicy(), retry) for retry in (1, 2, 3, 9)]
    [60.0, 120.0, 240.0, 900.0]
    """
    return min(policy.retry_delay * 2.0 ** min(retry - 1, 60), max(policy.max_delay, policy.retry_delay))


@dataclass(frozen=True, slots=True, repr=False)
class LedgerEntry(PublicValue):
    """A record of an attempt that has ended. None means unknown.

    `progress` is true if the attempt reached a higher step than all earlier attempts; `stepped` is true if it completed
    at least one step. `checkpoint` identifies the content of the checkpoint that the attempt started from, and `node`
    is the node that it ran on. `suspect_nodes` are the nodes of the ranks that other ranks waited for; `faulty_nodes`
    had a hardware fault.
    """

    failure: Failure
    progress: bool | None = None
    checkpoint: str | None = None
    node: str | None = None
    suspect_nodes: tuple[str, ...] = ()
    faulty_nodes: tuple[str, ...] = ()
    stepped: bool | None = None

    @property
    def is_from_outside(self) -> bool:
        return _is_from_outside(self.failure) or self.failure.error_class in ("external_stop", "hardware")


@dataclass(frozen=True, slots=True, repr=False)
class RestartDecision(PublicValue):
    """The decision whether to restart, and its reason. `delay` is in seconds, without jitter.

    The next attempt should avoid `bad_checkpoints` and `excluded_nodes`. `suspect_checkpoints` contains a checkpoint
    once for every three attempts that started from it and died before their first step. The checkpoints that appear
    least often in `suspect_checkpoints` are tried first. `refusal` is the outcome of the run if it is not restarted.
    """

    restart: bool
    reason: str
    delay: float = 0.0
    bad_checkpoints: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    refusal: RunOutcome | None = None
    suspect_checkpoints: tuple[str, ...] = ()


def decide_restart(
    ledger: Sequence[LedgerEntry],
    failure: Failure,
    progress: bool | None,
    policy: RestartPolicy,
    *,
    checkpoint: str | None = None,
    node: str | None = None,
    suspect_nodes: tuple[str, ...] = (),
    faulty_nodes: tuple[str, ...] = (),
    stepped: bool | None = None,
) -> RestartDecision:
    """Decide whether to restart after an attempt died.

    Args:
        ledger: the earlier attempts, oldest first.
        failure: why the attempt died, from `classify_failure`.
        progress: whether the attempt reached a higher step than all earlier attempts; None if unknown.
        checkpoint, node, suspect_nodes, faulty_nodes, stepped: see `LedgerEntry`.

    Returns:
        The decision. At most `max_retries` consecutive restarts without progress are allowed. After a user error, the
        run is restarted once if it made progress before, otherwise not at all. After a NaN loss, or if a person stopped
        the run, it is never restarted. A node is avoided after a hardware fault, or if other ranks twice waited for a
        rank on this node. If an attempt started from a checkpoint and completed a step, that checkpoint is never
        blamed. A checkpoint is bad after two failed attempts to load it. A checkpoint becomes suspect when three
        attempts that started from it died before their first step. Three identical failures without progress end the
        run, unless a checkpoint has just become suspect.
    """
    attempts = (*ledger, LedgerEntry(failure, progress, checkpoint, node, suspect_nodes, faulty_nodes, stepped))
    bad, suspect = _blamed_checkpoints(attempts)
    is_newly_suspect = suspect != _blamed_checkpoints(ledger)[1]
    futile = _since_progress(attempts)
    same = [each for each in futile if each.failure.fingerprint == failure.fingerprint]
    evidence = failure.evidence
    if len(evidence) > _EVIDENCE:
        evidence = f"{evidence[:_EVIDENCE].rstrip()} ..."
    category = "an unknown failure" if failure.category == "unknown" else failure.category
    what = f"{category} ({evidence})" if evidence else category
    advice = _ADVICE.get(failure.action, "restarting it")
    if failure.action == "restart_previous_checkpoint" and checkpoint not in bad:
        advice = "restarting it from the same checkpoint once more" if checkpoint else "restarting it"
    refusal, why = None, ""
    if failure.action == "stop" and not _may_be_confirmed(attempts, failure):
        refusal, why = RunOutcome.RESTART_FAILED, f"{what}: a restart cannot help"
    elif (
        sum(each.progress is False for each in same) >= SAME_FAILURES
        and not _is_from_outside(failure)
        and not is_newly_suspect
    ):
        refusal, why = RunOutcome.MAX_RETRIES_REACHED, f"failed {SAME_FAILURES} times without progress: {what}"
    elif len(futile) > policy.max_retries:
        refusal, why = (
            RunOutcome.MAX_RETRIES_REACHED,
            f"{plural(policy.max_retries, 'restart')} without progress; last failure: {what}",
        )
    if refusal:
        return RestartDecision(False, f"{refusal}: {why}", refusal=refusal)
    return RestartDecision(
        True,
        f"{_KINDS.get(failure.error_class, '')}{what}: {advice}",
        restart_delay(policy, len(futile)),
        bad,
        _nodes_to_avoid(attempts),
        suspect_checkpoints=suspect,
    )


def _is_from_outside(failure: Failure) -> bool:
    from training_monitor.verdict.failure_table import CATEGORIES

    known = CATEGORIES.get(failure.category)
    return known.from_outside if known else failure.category == _LOST


def _nodes_to_avoid(attempts: Sequence[LedgerEntry]) -> tuple[str, ...]:
    failed = [each.node for each in attempts if each.node and each.failure.action == "restart_elsewhere"]
    faulty = [node for each in attempts for node in each.faulty_nodes]
    suspected = Counter(node for each in attempts for node in set(each.suspect_nodes))
    late = [node for node, times in suspected.items() if times >= TIMES_SUSPECTED]
    return tuple(dict.fromkeys([*failed, *faulty, *sorted(late)]))


def _since_progress(attempts: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return the attempts since the last one with progress, inclusive: each costs one restart of the budget."""
    last = max((index for index, each in enumerate(attempts) if each.progress), default=0)
    return list(attempts[last:])


def _may_be_confirmed(attempts: Sequence[LedgerEntry], failure: Failure) -> bool:
    if failure.error_class != "user" or failure.category == "loss_nan":
        return False
    before = [each.failure.fingerprint for each in attempts[:-1]]
    return any(each.progress for each in attempts) and failure.fingerprint not in before


def _blamed_checkpoints(attempts: Sequence[LedgerEntry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the bad and the suspect checkpoints, by the attempts that died before a first step from them."""
    worked = {each.checkpoint for each in attempts if each.stepped}
    died = [each for each in attempts if each.stepped is False and each.checkpoint not in {None, *worked}]
    unloaded = Counter(each.checkpoint for each in died if each.failure.action == "restart_previous_checkpoint")
    deaths = Counter(each.checkpoint for each in died if not each.is_from_outside)
    bad = tuple(each for each, times in unloaded.items() if each and times >= FAILED_LOADS)
    return bad, tuple(each for each, times in deaths.items() if each for _ in range(times // DEATHS_OF_A_SUSPECT))


class ResumeChoice(NamedTuple):
    """Where the next attempt starts: a checkpoint, or fresh; `refusal` if it must not start at all."""

    checkpoint: Checkpoint | None
    refused: tuple[Checkpoint, ...] = ()
    refusal: str | None = None


def choose_resume(
    listing: CheckpointListing,
    *,
    wrote_one: bool,
    fresh_start: bool,
    problem_of: Callable[[Checkpoint], str | None] = lambda checkpoint: None,
    suspect: Collection[str] = (),
) -> ResumeChoice:
    """Choose the newest complete checkpoint; start fresh only if there never was one, or `fresh_start` is set.

    `problem_of` says why a complete one is not to be used. One that is named in `suspect` comes after those that are
    named less often. `refused` are newer ones that are damaged, unusable, suspect or not fully inspected. If none is
    complete and some were not inspected, it is unknown whether to start from zero, which is a refusal.
    """
    problems = {each.path: problem_of(each) for each in listing.checkpoints if each.complete}
    usable = [each for each in listing.checkpoints if each.complete and not problems[each.path]]
    times = Counter(suspect)
    chosen = min(reversed(usable), key=lambda each: times[each.content], default=None)
    problems |= {each.path: SUSPECT for each in usable if chosen and times[each.content] > times[chosen.content]}
    checkpoints = tuple(
        replace(each, complete=False, problem=problem) if (problem := problems.get(each.path)) else each
        for each in listing.checkpoints
    )
    listing = replace(listing, checkpoints=checkpoints)
    refused = tuple(each for each in checkpoints if not each.complete and (chosen is None or each.step > chosen.step))
    if chosen or not listing.unknown and (fresh_start or not (checkpoints or wrote_one)):
        return ResumeChoice(chosen, refused)
    if not listing.count:
        return ResumeChoice(None, refused, "the job wrote checkpoints earlier, but none is left")
    return ResumeChoice(None, refused, listing.why_none_is_complete)
