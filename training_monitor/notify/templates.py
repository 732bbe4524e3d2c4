"""The notices of a training run: from an event to plain words. Pure.

`job` is shown to people and, with the kind and `generation` (which start of the job it was), identifies the event: the
same event is reported once. Steps that are None are unknown: '?' if the other one is known, left out if neither is.
"""

from __future__ import annotations

from training_monitor.core.frozen import replace
from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import Notice
from training_monitor.notify.notice_text import next_command

ACCOUNT = "vast.ai"  # the target of a notice that is not about one machine
_Fields = list[tuple[str, str]]


def stall_detected(
    job: str,
    *,
    step: int | None,
    total_steps: int | None,
    reason: str,
    grace_seconds: float | None,
    checkpoint_step: int | None,
    is_spared: bool = False,
    generation: int = 0,
) -> Notice:
    """Report a stall; `grace_seconds` is the time until the run is ended, None if it is left alone.

    `is_spared`: it is left alone only because it shows signs of work.
    """
    if is_spared:
        announced = "No action will be taken: it shows signs of work. With --terminate-busy it would be ended."
    elif grace_seconds is None:
        announced = "No action will be taken."
    else:
        announced = f"Auto-terminating in {_grace(grace_seconds)} unless progress resumes."
    fields = [*_progress(step, total_steps), ("Issue", reason)]
    text = f"{announced}\nLatest checkpoint: {_step(checkpoint_step)}"
    return _notice("stall_detected", "⚠️ Training Stall Detected", job, fields, text, generation, "high")


def terminated(
    job: str,
    *,
    checkpoint_step: int | None,
    reason: str = "Stall detected, grace period expired",
    upload: bool = True,
    explanation: str | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a run was ended; `upload` says whether its last checkpoint is saved elsewhere."""
    fields = [("Reason", reason), *_why(explanation), ("Final checkpoint", _step(checkpoint_step))]
    text = "Model will be uploaded as incomplete." if upload else "The model stays where it is: no upload is planned."
    return _notice("terminated", "🛑 Training Terminated", job, fields, text, generation, "high")


def not_terminated(job: str, *, reason: str, generation: int = 0) -> Notice:
    """Report that a run was to be ended, but its end could not be verified."""
    fields = [("Reason", reason)]
    text = "Something of it may still run."
    return _notice("not_terminated", "⚠️ Training Not Terminated", job, fields, text, generation, "urgent")


def recovered(job: str, *, step: int | None, total_steps: int | None, generation: int = 0) -> Notice:
    """Report that a stalled run makes steps again."""
    fields = _progress(step, total_steps)
    return _notice("recovered", "✅ Training Recovered", job, fields, "It makes progress again.", generation)


def restarted(
    job: str,
    *,
    reason: str,
    resumes_from: str,
    attempt: int,
    explanation: str | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a run was started again; `resumes_from` is the checkpoint's path, or "the start".

    explanation: what the roll call said of the attempt before, if that hung.
    """
    fields = [("Reason", reason), *_why(explanation), ("Resumes from", resumes_from), ("Attempt", str(attempt))]
    return _notice("restarted", "🔄 Training Restarted", job, fields, "", generation)


def checkpoint_ignored(job: str, *, reason: str, generation: int = 0) -> Notice:
    """Report that a run that was started again did not resume from its checkpoint."""
    fields = [("Issue", reason)]
    return _notice("checkpoint_ignored", "⚠️ Checkpoint Ignored", job, fields, "", generation, "high")


def finished(
    job: str,
    *,
    step: int | None,
    total_steps: int | None = None,
    runtime: float | None = None,
    cost: float | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a run ended well. runtime: seconds; cost: dollars."""
    fields = [*_progress(step, total_steps), *_spent(runtime, cost)]
    return _notice("finished", "🎉 Training Finished", job, fields, "", generation)


def failed(
    job: str,
    *,
    reason: str,
    evidence: str | None = None,
    explanation: str | None = None,
    step: int | None = None,
    total_steps: int | None = None,
    checkpoint_step: int | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a run failed, with the line of its log that says why."""
    fields = [*_progress(step, total_steps), ("Reason", reason), *_why(explanation)]
    if evidence:
        fields.append(("Log", evidence))
    text = f"Latest checkpoint: {_step(checkpoint_step)}"
    return _notice("failed", "❌ Training Failed", job, fields, text, generation, "high")


def ended(
    job: str,
    *,
    reason: str,
    step: int | None = None,
    total_steps: int | None = None,
    checkpoint_step: int | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a run has ended without evidence that it failed or finished."""
    fields = [*_progress(step, total_steps), ("Reason", reason)]
    text = f"Latest checkpoint: {_step(checkpoint_step)}"
    return _notice("ended", "⏹️ Training Ended", job, fields, text, generation)


def loss_nan(
    job: str, *, step: int | None, total_steps: int | None, checkpoint_step: int | None, generation: int = 0
) -> Notice:
    """Report that the loss is no longer a number."""
    fields = [*_progress(step, total_steps), ("Issue", "The loss is NaN or infinite")]
    text = f"Latest checkpoint: {_step(checkpoint_step)}"
    return _notice("loss_nan", "⚠️ Loss Is Not a Number", job, fields, text, generation, "high")


def budget_passed(
    job: str,
    *,
    cost: float,
    budget: float,
    step: int | None = None,
    total_steps: int | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a run cost more than its budget, both in dollars."""
    fields = [*_progress(step, total_steps), ("Cost", f"{_dollars(cost)} of {_dollars(budget)}")]
    return _notice("budget_passed", "💰 Budget Passed", job, fields, "", generation, "high")


def milestone(
    job: str,
    *,
    percent: int,
    done: int,
    step: int | None,
    total_steps: int | None,
    runtime: float | None = None,
    generation: int = 0,
) -> Notice:
    """Report that `done` per cent of the steps are done, and with it the milestone `percent`, an event of its own."""
    fields = [*_progress(step, total_steps), *_spent(runtime, None)]
    return _notice(f"milestone_{percent}", f"📈 Training {done}% Done", job, fields, "", generation, "low")


def soft_limit(
    job: str, *, reason: str, step: int | None = None, total_steps: int | None = None, generation: int = 0
) -> Notice:
    """Report that a limit was passed that only warns."""
    fields = [*_progress(step, total_steps), ("Limit", reason)]
    return _notice("soft_limit", "⚠️ Limit Passed", job, fields, "No action will be taken.", generation)


def upload_finished(
    job: str, *, destination: str, checkpoint_step: int | None, files: int | None = None, generation: int = 0
) -> Notice:
    """Report that a checkpoint was uploaded and verified."""
    fields = [("Destination", destination), ("Checkpoint", _step(checkpoint_step))]
    if files is not None:
        fields.append(("Verified", plural(files, "file")))
    return _notice("upload_finished", "📦 Upload Finished", job, fields, "", generation)


def upload_failed(
    job: str, *, destination: str, reason: str, checkpoint_step: int | None, generation: int = 0
) -> Notice:
    """Report that a checkpoint did not arrive, or that its arrival could not be verified."""
    fields = [("Destination", destination), ("Checkpoint", _step(checkpoint_step)), ("Reason", reason)]
    text = "The files are still where the training wrote them."
    return _notice("upload_failed", "❌ Upload Failed", job, fields, text, generation, "high")


def instance_destroyed(
    job: str, *, instance: str, runtime: float | None = None, cost: float | None = None, generation: int = 0
) -> Notice:
    """Report that the rented instance was destroyed, and is gone. runtime: seconds; cost: dollars."""
    text = "It costs no more."
    return _about_machine(
        "instance_destroyed", "🗑️ Instance Destroyed", job, instance, _spent(runtime, cost), text, generation, "normal"
    )


def instance_gone(job: str, *, instance: str, generation: int = 0) -> Notice:
    """Report that the instance no longer exists, although no request to destroy it was acknowledged."""
    text = "vast.ai no longer lists it."
    return _about_machine("instance_gone", "🗑️ Instance Gone", job, instance, [], text, generation, "normal")


def instance_kept(
    job: str, *, instance: str, reason: str, cost_per_hour: float | None = None, generation: int = 0
) -> Notice:
    """Report that the rented instance was not destroyed and still costs money, and why. cost_per_hour: dollars."""
    price = "" if cost_per_hour is None else f" ({_dollars(cost_per_hour)} per hour)"
    text = f"It was not destroyed and still costs money{price}."
    return _about_machine("instance_kept", "💸 Instance Kept", job, instance, [("Reason", reason)], text, generation)


def instance_swept(
    job: str,
    *,
    instance: str,
    reason: str,
    runtime: float | None = None,
    cost_per_hour: float | None = None,
    generation: int = 0,
) -> Notice:
    """Report that a sweep destroyed an instance that no job needs. runtime: seconds; cost_per_hour: dollars."""
    fields = [("Reason", reason), *_spent(runtime, None)]
    if cost_per_hour is not None:
        fields.append(("Cost", f"{_dollars(cost_per_hour)} per hour"))
    text = "It is gone and costs no more."
    return _about_machine("instance_swept", "🧹 Instance Swept", job, instance, fields, text, generation)


def instance_not_destroyed(job: str, *, instance: str, reason: str, error: str, generation: int = 0) -> Notice:
    """Report that an instance could not be destroyed: each sweep retries it."""
    fields = [("Reason", reason), ("Error", error)]
    text = "It may go on costing money. Each sweep tries it again."
    title = "💸 Instance Not Destroyed"
    return _about_machine("instance_not_destroyed", title, job, instance, fields, text, generation, "urgent")


def orphan_instance(job: str, *, instance: str, grace: float, generation: int = 0) -> Notice:
    """Report an instance of ours whose job is unknown. grace: the age in seconds at which it is destroyed."""
    fields = [("Reason", "it carries the label of a training that is not in the queue")]
    text = f"It is destroyed when it is {_grace(grace)} old."
    return _about_machine("orphan_instance", "👻 Orphan Instance", job, instance, fields, text, generation)


def listing_failed(owner: str, *, seconds: float, error: str, generation: int = 0) -> Notice:
    """Report that it is unknown which instances are rented; generation: the number of the outage."""
    fields = [("Owner", owner), ("For", format_duration(seconds)), ("Error", error)]
    text = "Nothing is destroyed meanwhile: what is rented goes on costing money."
    return _about_account("listing_failed", "📡 Instances Cannot Be Listed", owner, fields, text, generation, "high")


def listing_works(owner: str, *, seconds: float, generation: int = 0) -> Notice:
    """Report that the instances can be listed again, after `seconds`."""
    fields = [("Owner", owner), ("After", format_duration(seconds))]
    return _about_account("listing_works", "✅ Instances Are Listed Again", owner, fields, "", generation, "normal")


def unreachable(job: str, *, seconds: float, error: str, generation: int = 0) -> Notice:
    """Report that the state of a run has been unknown for `seconds`; generation: since when."""
    fields = [("For", format_duration(seconds)), ("Error", error)]
    text = "Nothing is known of the training meanwhile, and nothing is done to it."
    return _notice("unreachable", "📡 Target Cannot Be Reached", job, fields, text, generation, "high")


def reached(job: str, *, seconds: float, generation: int = 0) -> Notice:
    """Report that a target answers again after `seconds`."""
    return _notice("reached", "✅ Target Reached Again", job, [("After", format_duration(seconds))], "", generation)


def state_unwritable(job: str, *, seconds: float, error: str, generation: int = 0) -> Notice:
    """Report that the watcher's own machine has kept it from working for `seconds`; generation: since when."""
    fields = [("For", format_duration(seconds)), ("Error", error)]
    text = "The watcher's own machine is at fault. Nothing is concluded or done meanwhile; the training is left alone."
    return _notice("state_unwritable", "💾 State Folder Cannot Be Used", job, fields, text, generation, "high")


def state_writable(job: str, *, seconds: float, folder: str, generation: int = 0) -> Notice:
    """Report that the state folder can be used again, after `seconds`."""
    fields = [("After", format_duration(seconds)), ("Folder", folder)]
    return _notice("state_writable", "✅ State Folder Used Again", job, fields, "", generation)


def taken_over(job: str, *, reason: str, number: int) -> Notice:
    """Report that another supervisor has taken over the run; `number` counts its supervisors."""
    text = "Nothing more is done or told from here."
    return _notice("taken_over", "🤝 Training Taken Over", job, [("Reason", reason)], text, number, "high")


def _notice(
    kind: str, title: str, job: str, fields: _Fields, text: str, generation: int, priority: str = "normal"
) -> Notice:
    return Notice(kind, title, tuple(fields), text, job, generation, priority, training=job)


def _about_machine(
    kind: str,
    title: str,
    job: str,
    instance: str,
    fields: _Fields,
    text: str,
    generation: int,
    priority: str = "high",
) -> Notice:
    """Return a notice about a rented instance, and perhaps the training on it."""
    notice = _notice(kind, title, job, fields, text, generation, priority)
    training = None if job == instance else job
    return replace(notice, training=training, target=instance, command=next_command(kind, instance))


def _about_account(
    kind: str, title: str, owner: str, fields: _Fields, text: str, generation: int, priority: str
) -> Notice:
    command = next_command(kind, None)
    return Notice(kind, title, tuple(fields), text, owner, generation, priority, target=ACCOUNT, command=command)


def _why(explanation: str | None) -> _Fields:
    return [("Why", explanation)] if explanation else []


def _progress(step: int | None, total_steps: int | None) -> _Fields:
    if step is None and total_steps is None:
        return []
    percent = f" ({100 * step // total_steps}%)" if step is not None and total_steps else ""
    shown = f"{'?' if step is None else step}/{'?' if total_steps is None else total_steps}"
    return [("Progress", shown + percent)]


def _step(step: int | None) -> str:
    return "none known" if step is None else f"step {step}"


def _spent(runtime: float | None, cost: float | None) -> _Fields:
    time = [] if runtime is None else [("Runtime", format_duration(runtime))]
    return time + ([] if cost is None else [("Cost", _dollars(cost))])


def _dollars(amount: float) -> str:
    return f"${amount:.2f}"


def _grace(seconds: float) -> str:
    if seconds < 60:
        return plural(round(seconds), "second")
    minutes = f"{seconds / 60:.1f}".removesuffix(".0")
    return f"{minutes} {'minute' if minutes == '1' else 'minutes'}"
