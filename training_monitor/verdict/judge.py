"""The only judge: derives one verdict from all observations of a training. Pure.

`auto_restart`, `wait`, `watch`, `rent launch`, `fleet`, `top`, `status`, `health` and `check` show its verdict; none
of them judges for itself. docs/verdicts.md defines each state and how reliably it is detected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

from training_monitor.core.models import Failure, JobStatus, Progress
from training_monitor.core.units import format_duration, format_pace, is_same_speed, plural
from training_monitor.core.values import LossAnalysis, Observation, StallAnalysis, Verdict
from training_monitor.verdict.loss import analyze_loss, needs_analysis
from training_monitor.verdict.stall import DEFAULT_POLICY, StallPolicy, all_steps_done, analyze_stall, format_silence

STATES = (
    "starting",
    "running",
    "slow",
    "suspended",
    "stalled",
    "finished",
    "failed",
    "stopped",
    "unknown",
)  # of a `Verdict`
ENDS = ("finished", "failed", "stopped")  # terminal states; their reasons begin with the state
VERDICTS = ("ok", "warning", "unknown", "failed")  # best first
NOBODY_LOOKED = Verdict("unknown", "unknown", "not checked yet")
UNNAMED_FAILURES = ("none", "unknown")
_WATCHED = ("ignore", "monitor")  # actions
LEFT_SECONDS = 30.0  # after which the log may be that of a dead process, if no process has it open and it never grew
IF_IT_RAN_HERE = (
    "if it ran on this target, as this user, it has ended, since no process there has its log open; otherwise, run "
    "this command where it runs, as the user who runs it"
)
AT_ONCE_SECONDS = 5.0  # after which a log whose processes were seen and are gone is that of a dead one, if it was quick
QUIET_SECONDS = 30.0  # from which on a silence is mentioned although the verdict is ok
AS_FAST = 1.3  # times its usual step time: a training whose steps take longer may become slow
_state_of = attrgetter(
    *("status", "exit_code", "message", "resume", "is_running", "finished", "failure", "process", "boot", "phase"),
    *("total_steps", "suspended", "gpu_errors", "oom_kills", "unseen_output", "bar_held"),
)  # what may change a verdict, of an observation with a new step


def not_seen(why: str) -> Verdict:
    """Return the verdict on a training that could not be looked at, whatever earlier looks showed."""
    return Verdict("unknown", "unknown", why)


def judge(observations: Sequence[Observation], *, now: float, policy: StallPolicy = DEFAULT_POLICY) -> Verdict:
    """Return the state of a training, a verdict and a reason, based on all its observations.

    Args:
        observations: any number of observations from any commands, oldest first. Old observations count as much as new
            observations.
        now: the current time in epoch seconds. The time since the last observation is not used as evidence.
        policy: the limits for stalls and slowness.
    """
    seen = [each for each in observations if each.timestamp <= now]
    if not seen:
        return NOBODY_LOOKED
    return _judge_end(seen, policy) or _judge_running(seen, now, policy)


def renew(
    found: Verdict,
    loss: LossAnalysis | None,
    before: Observation,
    last: Observation,
    policy: StallPolicy = DEFAULT_POLICY,
) -> Verdict | None:
    """Return a verdict with the numbers of a new observation that shows new steps, and nothing else that is new.

    That costs a hundredth of `judge`, which knows more: of the past, and of what changes slowly. Ask it now and then.

    Args:
        found: the verdict up to the observation `before`, and `loss` what `analyze_loss` returned then.

    Returns:
        None if only `judge` can tell: no step was made, steps take longer than usual, or anything else has changed.
    """
    stall = found.stall
    if stall is None or (found.state, found.verdict) != ("running", "ok") or stall.signals["proof"] != "step":
        return None
    signals, waited = stall.signals, last.log_age if last.step_age is None else last.step_age
    usual, limit = signals["step_time"], signals["pause_limit"]
    if None in (usual, before.step, last.step) or _state_of(before) != _state_of(last) or all_steps_done(last):
        return None
    steps, seconds, waited = (last.step or 0) - (before.step or 0), last.timestamp - before.timestamp, waited or 0.0
    ratio = min(1.0, signals["speed_ratio"] or 1.0)
    is_slow = steps <= 0 or AS_FAST * ratio < 1.0 or seconds > AS_FAST * ratio * usual * steps
    if is_slow or waited > min(seconds, limit / 2.0) or needs_analysis(loss, last.loss):
        return None
    signals = {**signals, "seconds_without_step": waited, "since": last.timestamp - waited}
    stall = replace(stall, current_step=last.step, signals=signals)
    return replace(_judge_progress(last, stall, policy), seconds_without_step=waited, limit_seconds=limit, stall=stall)


# ---------------------------------------------------------------- ended, or not begun


def _judge_end(seen: Sequence[Observation], policy: StallPolicy) -> Verdict | None:
    """Return the verdict on a training that does not run; None while it runs or may run."""
    last = seen[-1]
    if last.status is JobStatus.SUCCEEDED:
        return _finished(seen)
    if last.status is JobStatus.FAILED:
        return _failed(seen)
    if last.status is JobStatus.STOPPED:
        return Verdict("stopped", "warning", _said(f"stopped{_at(last)}", last.message), _ended_at(seen))
    if last.status is JobStatus.PENDING:
        waits = "it is held" if last.resume else "it cannot start" if last.is_stuck else "it is waiting to start"
        found, todo = ("failed", "alert") if last.is_stuck else ("unknown", "continue")
        remedies, reason = tuple(filter(None, (last.resume, last.advice))), _said(waits, last.message)
        return Verdict("starting", found, reason, _ended_at(seen), recommendation=todo, remedies=remedies)
    if last.resume:
        reason = _said(f"suspended{_at(last)}", last.message)
        return Verdict("suspended", "warning", reason, _ended_at(seen), remedies=(last.resume,))
    if last.status is JobStatus.RUNNING or last.is_running:
        return None
    if last.is_running is None:
        return _judge_log_end(seen, policy)
    has_failed = _names_failure(last) or last.exit_code
    if last.finished or last.exit_code == 0 or (all_steps_done(last) and not has_failed):
        return _finished(seen)
    if has_failed or _is_partial(last):
        return _failed(seen)
    return _ended_somehow(seen)


def _judge_log_end(seen: Sequence[Observation], policy: StallPolicy) -> Verdict | None:
    """Do the same by its log alone, when it is unknown whether its processes run."""
    last = seen[-1]
    is_known = last.finished is not False or any(each.processes for each in seen)
    if last.finished or (all_steps_done(last) and is_known and not _names_failure(last)):
        return _finished(seen)
    age = last.log_age or 0.0
    before = seen[-2] if len(seen) > 1 else last
    survived = _names_failure(before) and before.step not in (None, last.step)
    if _names_failure(last) and (
        age >= policy.unknown_pause or (last.processes == 0 and not survived and not _is_warning(last))
    ):
        return _failed(seen)
    pause = min(QUIET_SECONDS, max(AT_ONCE_SECONDS, 10.0 * (last.step_interval or QUIET_SECONDS)))
    grew = any(each.processes == 0 and _grown(each) != _grown(last) for each in seen)  # no process keeps it open
    if last.processes == 0 and any(each.processes for each in seen) and not grew and age >= pause:
        return _failed(seen) if _is_partial(last) else _ended_somehow(seen)
    if last.processes == 0 and not grew and age >= max(LEFT_SECONDS, 3.0 * (last.step_interval or 0.0)):
        silence = f"its log has not changed for {format_duration(age)}"
        reason = f"{_position(last)}: {silence}, and none of its processes is visible"
        return Verdict("unknown", "unknown", reason, remedies=(IF_IT_RAN_HERE,))
    if last.message and not last.processes and {last.step, last.log_age, last.gpu_utilization} == {None}:
        return Verdict("unknown", "unknown", _said("its state is unknown", last.message))
    return None


def _ended_somehow(seen: Sequence[Observation]) -> Verdict:
    return Verdict("unknown", "unknown", "it ended, and no log shows whether it succeeded", _ended_at(seen))


def _finished(seen: Sequence[Observation]) -> Verdict:
    """Return that it finished, and what its log says against that at its end.

    A script or pipe around it, such as `train.py | tee`, exits with 0 also where it failed before its last step.
    """
    last, since, reason = seen[-1], _ended_at(seen), f"finished{_at(seen[-1])}"
    failure = last.failure if _names_failure(last) else None
    is_done = last.finished or all_steps_done(last) or not _is_partial(last)
    if failure and not is_done:
        reason = f"the job reported success{_at(last)}"
        if last.message == failure.evidence:  # what happened to its pod
            return Verdict("unknown", "unknown", f"{reason}: {last.message}", since, failure=failure)
        reason = _with_last_words(reason, failure)
        remedies = (
            "if the training runs in a script or a pipeline such as `train.py | tee`, make that exit with the "
            "training's exit code (in bash: set -o pipefail)",
        )
        return Verdict("unknown", "unknown", reason, since, remedies=remedies, failure=failure)
    is_success = last.status is JobStatus.SUCCEEDED or last.exit_code == 0
    if failure is None or is_success or failure.error_class not in ("user", "ambiguous"):
        return Verdict("finished", "ok", reason, since, "high")
    reason = _with_last_words(reason, failure)
    return Verdict("finished", "warning", reason, since, "high", "alert", remedies=(failure.advice,), failure=failure)


def _failed(seen: Sequence[Observation]) -> Verdict:
    last = seen[-1]
    failure = last.failure if _names_failure(last) else None
    said = (last.failure.evidence if last.failure else "") or last.message
    if said:
        reason = f"failed{_at(last)}: {said}"
    elif last.exit_code:
        reason = f"failed{_at(last)} with exit code {last.exit_code}"
    else:
        reason = f"failed{_at(last)} without a message"
    memory = _memory_evidence(seen) if failure is None else None
    if memory:
        reason += f", probably killed because memory ran out ({memory})"
    elif not said and not last.exit_code:
        reason += ", probably killed"
    if last.oom_kills and failure is None and memory is None and len(seen) == 1:  # perhaps before it began
        kills = plural(last.oom_kills, "process", "processes")
        reason += f"; the kernel has killed {kills} there for lack of memory, at an unknown time"
    failure = failure or last.failure
    advice = (failure.advice,) if failure and failure.advice else ()
    return Verdict("failed", "failed", reason, _ended_at(seen), "high", "alert", remedies=advice, failure=failure)


def _memory_evidence(seen: Sequence[Observation]) -> str | None:
    """Return the evidence that the kernel's out-of-memory killer ended it."""
    counts = [each.oom_kills for each in seen if each.oom_kills is not None]
    if counts and counts[-1] > counts[0]:
        return "oom_kill count rose"
    return "exit code 137" if seen[-1].exit_code == 137 else None


def _names_failure(last: Observation) -> bool:
    """Whether the log names what ended it; what is only to be watched, such as heat, ends nothing."""
    failure = last.failure
    return failure is not None and failure.category not in UNNAMED_FAILURES and failure.action not in _WATCHED


def _is_warning(last: Observation) -> bool:
    """Whether what its log names is a mere warning, after which a training may go on."""
    from training_monitor.verdict.failure import is_warning  # most trainings run

    return last.failure is not None and is_warning(last.failure)


def _grown(seen: Observation) -> tuple[int | None, float | None, int | None]:
    return seen.step, seen.epoch, seen.log_size


def _is_partial(last: Observation) -> bool:
    """Whether it is known to have unfinished work."""
    return last.step is not None and bool(last.total_steps)


def _ended_at(seen: Sequence[Observation]) -> float:
    """Return when it was first seen in its present state."""
    last, since = seen[-1], seen[-1].timestamp
    for each in reversed(seen):
        if (each.status, each.is_running, each.finished) != (last.status, last.is_running, last.finished):
            break
        since = each.timestamp
    return since


# ---------------------------------------------------------------- running


def _judge_running(seen: Sequence[Observation], now: float, policy: StallPolicy) -> Verdict:
    last, stall = seen[-1], analyze_stall(seen, now=now, policy=policy)
    is_held = last.bar_held and stall.is_stalling and stall.signals["works"] and stall.kind != "slow"
    if stall.kind != "suspended" and (is_held or (last.unseen_output and not stall.signals["has_step"])):
        stall = replace(stall, is_stalling=False, kind=None, confidence="none", recommendation="continue")
        held = _judge_held(stall, _position(last)) if is_held else _judge_unseen(stall, seen, policy)
        return _add_findings(replace(held, stall=stall), seen)
    if stall.kind == "slow":
        found = Verdict("slow", "warning", f"{_position(last)}: {stall.reason}", stall.signals["slow_since"])
    elif stall.kind == "suspended":
        remedy = f"kill -CONT {' '.join(map(str, stall.signals['suspended']))}"
        reason = f"{_position(last)}: {stall.reason}"
        found = Verdict("suspended", "warning", reason, stall.signals["since"], remedies=(remedy,))
    elif stall.is_stalling:
        found = Verdict("stalled", "failed", _with_last_words(stall.reason, last.failure), stall.signals["since"])
    else:
        found = _judge_progress(last, stall, policy)
    found = replace(
        found,
        confidence=stall.confidence if stall.is_stalling else found.confidence,
        recommendation=stall.recommendation if stall.is_stalling else found.recommendation,
        seconds_without_step=stall.signals["seconds_without_step"] or (0.0 if stall.signals["since_known"] else None),
        limit_seconds=stall.signals["pause_limit"],
        stall=stall,
    )
    return _add_findings(found, seen)


def _judge_progress(last: Observation, stall: StallAnalysis, policy: StallPolicy) -> Verdict:
    """Judge a training without a proven stall: running, if something rules a stall out, else unknown."""
    signals = stall.signals
    waited, limit, shown = signals["seconds_without_step"], signals["pause_limit"], _position(last)
    if not signals["has_step"]:
        return _judge_start(stall)
    if all_steps_done(last):
        return _judge_last_step(stall, shown, policy)
    if signals["proof"] in ("step", "age"):
        speed = _speed(_shown_speed(last.steps_per_second, signals))
        silent = f", {format_silence(waited, limit)}"
        note = silent if waited >= max(QUIET_SECONDS, limit / 4.0) else speed
        sure = "high" if waited <= max(QUIET_SECONDS, signals["usual_pause"]) else "medium"
        return Verdict("running", "ok", shown + note, signals["started_at"], sure)
    if signals["proof"] == "busy":
        reason = f"{shown}: its GPUs are busy; its log does not show when it reached that step"
        return Verdict("running", "ok", reason, signals["started_at"], "low")
    remedy = f"check again in {format_duration(60)}"
    if signals["reports_news"] and waited >= limit:
        reason = f"its log is growing, but no step could be read from it for {format_duration(waited)}; {remedy}"
    elif signals["since_known"]:
        if waited >= limit:
            why = "it has not been watched long enough"
        elif signals["pause"] in ("quiet", "blocked", "spinning"):
            why = "no activity was seen, but it was watched for less than a minute"
        else:
            why = "the usual length of its pauses is unknown"
        reason = f"{format_silence(waited, limit)}: {why}; {remedy}"
    elif signals["looks"] == 1:
        reason = f"a single check does not show when it reached {shown}: {remedy}"
    else:
        silence = format_silence(waited, limit, "with no new step for at least")
        reason = f"{shown} was already reached at the first check, {silence}"
    return Verdict("unknown", "unknown", reason, remedies=(remedy,))


def _judge_start(stall: StallAnalysis) -> Verdict:
    signals = stall.signals
    waited, limit = signals["seconds_without_step"], signals["pause_limit"]
    reason = format_silence(waited, limit, "no step yet after")
    if signals["saves"] and waited < limit:
        saved = f"its log shows no step; a file was written to its checkpoint folder {format_duration(waited)} ago"
        return Verdict("running", "ok", f"{saved}, limit {format_duration(limit)}", signals["started_at"], "medium")
    if signals["works"] and waited < limit:
        return Verdict("starting", "ok", f"{reason}: {signals['works']}", signals["started_at"], "medium")
    if signals["works"]:
        return Verdict("starting", "unknown", f"{reason}, although {signals['works']}", signals["started_at"])
    remedy = f"check again in {format_duration(60)}"
    return Verdict(
        "starting",
        "unknown",
        f"{reason}; no sign of activity",
        signals["started_at"],
        "none",
        remedies=(remedy,),
    )


def _judge_unseen(stall: StallAnalysis, seen: Sequence[Observation], policy: StallPolicy) -> Verdict:
    """Judge a training whose output cannot be read: only by whether it works."""
    now = seen[-1].timestamp
    idle, works = now - stall.signals["worked_at"], stall.signals["works"]
    reason, began = "its output cannot be read, so its steps are unknown", stall.signals["started_at"]
    if works and idle < policy.quiet_pause:
        return Verdict("running", "ok", f"{reason}; {works}", began, "low")
    if stall.signals["looks"] == 1:
        reason += ", and a single check does not show whether it is active"
    else:
        reason += (
            f"; none of its processes has been active for {format_duration(idle)}, limit "
            f"{format_duration(policy.quiet_pause)}"
        )
    if idle < policy.quiet_pause:
        return Verdict("unknown", "unknown", reason, began, remedies=(f"check again in {format_duration(60)}",))
    if _still_writes([each for each in seen[-10:] if each.timestamp >= stall.signals["worked_at"]]):
        reason += ", but they still write a few bytes, as for lines of a log"
        return Verdict("unknown", "unknown", reason, began, remedies=("redirect its output to a file",))
    return Verdict("stalled", "failed", reason, now - idle, "low", "alert")


def _still_writes(seen: Sequence[Observation]) -> bool:
    """Whether a training was seen to write again and again, however little: /dev/null counts what it is given."""
    sizes = [each.written_bytes for each in seen if each.written_bytes is not None]
    return sum(before < after for before, after in pairwise(sizes)) > len(sizes) // 3


def _judge_held(stall: StallAnalysis, shown: str) -> Verdict:
    """Judge a training that works while what keeps its output holds its bar back."""
    waited = format_duration(stall.signals["seconds_without_step"])
    reason = (
        f"{shown}: its log has not changed for {waited} and ends with an incomplete progress bar, likely buffered; "
    )
    remedy = "log a line every N steps with print(..., flush=True), or use tqdm(mininterval=60)"
    return Verdict("unknown", "unknown", reason + stall.signals["works"], stall.signals["since"], remedies=(remedy,))


def _judge_last_step(stall: StallAnalysis, shown: str, policy: StallPolicy) -> Verdict:
    """Judge a training whose steps are all done and that still runs: a last save may take long."""
    waited, since = stall.signals["seconds_without_step"], stall.signals["since"]
    if waited < policy.startup_pause:
        return Verdict("running", "ok", f"{shown}: all steps are done, and it is shutting down", since, "medium")
    reason = f"it finished its last step {format_duration(waited)} ago but is still running"
    return Verdict("running", "warning", reason, since, "low", "alert")


def _add_findings(found: Verdict, seen: Sequence[Observation]) -> Verdict:
    """Add a non-finite loss of its present process, and GPU errors, to the verdict."""
    last = seen[-1]
    mine = [each for each in seen[-60:] if None in (each.process, last.process) or each.process == last.process]
    loss, errors = analyze_loss(mine), last.gpu_errors
    if loss.kind == "nan":
        found = _worse(found, "failed", loss.reason)
        if found.failure is None:
            from training_monitor.verdict.failure_table import CATEGORIES

            found = replace(found, remedies=(*found.remedies, CATEGORIES["loss_nan"].advice))
    return _worse(found, "warning", "; ".join(errors)) if errors else found


def _worse(found: Verdict, verdict: str, reason: str) -> Verdict:
    told = "alert" if found.recommendation == "continue" else found.recommendation
    worst = max(found.verdict, verdict, key=VERDICTS.index)
    said = f"{reason}; {found.reason}" if found.verdict == "ok" else f"{found.reason}; {reason}"  # the worst first
    return replace(found, verdict=worst, reason=said, recommendation=told)


# ---------------------------------------------------------------- words


def with_speed(progress: Progress, verdict: Verdict) -> Progress:
    """Return the progress with the observed speed in place of a refuted one, or of a missing one if it makes steps."""
    if not verdict.stall or not (progress.steps_per_second or verdict.state in ("running", "slow")):
        return progress
    speed = _shown_speed(progress.steps_per_second, verdict.stall.signals)
    return progress if speed == progress.steps_per_second else replace(progress, steps_per_second=speed)


def _shown_speed(printed: float | None, signals: Mapping[str, Any]) -> float | None:
    """Return the printed speed, or the observed speed if that differs or nothing was printed."""
    seen = signals.get("speed")
    return printed if printed and (not seen or is_same_speed(printed, seen)) else seen


def reason_beside_silence(verdict: Verdict) -> str:
    """Return the reason of a verdict without its silence, for who shows that beside it, as it grows."""
    waited, limit = verdict.seconds_without_step, verdict.limit_seconds
    if waited is None or limit is None:
        return verdict.reason
    reason = verdict.reason
    for what in ("no step for", "with no new step for at least", "no step after", "no step yet after"):
        silence = format_silence(waited, limit, what)
        reason = reason.replace(f", {silence}", "").removeprefix(silence)
    return reason.lstrip(":;, ")


def format_verdict(verdict: Verdict) -> str:
    """Format the reason, after the state if that adds something: `stalled: no step for 20m, limit 7m30s: GPUs idle`."""
    is_said = verdict.state in (*ENDS, "running", "unknown")
    return verdict.reason if is_said else f"{verdict.state}: {verdict.reason}"


def _position(last: Observation) -> str:
    """Format `step 40 of 200`, or the epochs if the step is unknown."""
    if last.step is not None:
        return f"step {last.step} of {last.total_steps}" if last.total_steps else f"step {last.step}"
    if last.epoch is not None:
        return f"epoch {last.epoch:.4g} of {last.total_epochs:g}" if last.total_epochs else f"epoch {last.epoch:.4g}"
    return "no step"


def _at(last: Observation) -> str:
    return "" if last.step is None and last.epoch is None else f" at {_position(last)}"


def _speed(speed: float | None) -> str:
    return f", {format_pace(1.0 / speed)}" if speed else ""


def _said(what: str, message: str | None) -> str:
    return f"{what}: {message}" if message else what


def _with_last_words(reason: str, failure: Failure | None) -> str:
    named = failure is not None and failure.category not in UNNAMED_FAILURES
    return f"{reason}; its log ends with: {failure.evidence}" if failure and named else reason
