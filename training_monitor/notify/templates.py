"""The notices of a training run: from an event to plain words. Pure.

The job is shown to people and, with the kind and the generation, identifies the event: the same event is reported once.
Steps that are None are unknown: '?' if the other one is known, left out if neither is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import Notice
from training_monitor.notify.notice_text import next_command

ACCOUNT = "vast.ai"  # the target of a notice that is not about one machine
_Fields = list[tuple[str, str]]


class About(NamedTuple):
    """What a notice is about: a job, how far it is, its newest complete checkpoint, and the machine rented for it.

    `generation` is which start of the job it was, or which of several events of a kind. `loss` is the newest, `log` the
    end of its log.
    """

    job: str
    step: int | None = None
    total_steps: int | None = None
    checkpoint_step: int | None = None
    instance: str = ""
    generation: int = 0
    loss: float | None = None
    log: str = ""


def stall_detected(about: About, *, reason: str, grace_seconds: float | None, is_spared: bool = False) -> Notice:
    """Report a stall; `grace_seconds` is the time until the run is ended, None if it is left alone.

    `is_spared`: it is left alone only because it shows signs of work.
    """
    if is_spared:
        announced = (
            "No action will be taken, because the training shows signs of activity. "
            "Use --terminate-busy to terminate it anyway."
        )
    elif grace_seconds is None:
        announced = "No action will be taken."
    else:
        announced = f"Auto-terminating in {_grace(grace_seconds)} unless progress resumes."
    fields = [*_progress(about), ("Issue", reason)]
    return _notice(
        "stall_detected", "⚠️ Training Stall Detected", about, fields, f"{announced}\n{_saved(about)}", "high"
    )


def terminated(
    about: About,
    *,
    reason: str = "Stall detected, grace period expired",
    upload: bool = True,
    explanation: str | None = None,
) -> Notice:
    """Report that a run was ended; `upload` says whether its last checkpoint is saved elsewhere."""
    fields = [("Reason", reason), *_why(explanation), ("Final checkpoint", _step(about.checkpoint_step))]
    text = "Model will be uploaded as incomplete." if upload else "The model stays on the target: no upload is planned."
    return _notice("terminated", "🛑 Training Terminated", about, fields, text, "high")


def not_terminated(about: About, *, reason: str) -> Notice:
    """Report that a run was to be ended, but its end could not be verified."""
    text = "Some of its processes may still be running."
    return _notice("not_terminated", "⚠️ Training Not Terminated", about, [("Reason", reason)], text, "urgent")


def recovered(about: About) -> Notice:
    """Report that a stalled run makes steps again."""
    return _notice(
        "recovered", "✅ Training Recovered", about, _progress(about), "The training is making progress again."
    )


def restarted(about: About, *, reason: str, resumes_from: str, attempt: int, explanation: str | None = None) -> Notice:
    """Report that a run was started again; `resumes_from` is the checkpoint's path, or "the start".

    explanation: what the roll call said of the attempt before, if that hung.
    """
    fields = [("Reason", reason), *_why(explanation), ("Resumes from", resumes_from), ("Attempt", str(attempt))]
    return _notice("restarted", "🔄 Training Restarted", about, fields)


def checkpoint_ignored(about: About, *, reason: str) -> Notice:
    """Report that a run that was started again did not resume from its checkpoint."""
    return _notice("checkpoint_ignored", "⚠️ Checkpoint Ignored", about, [("Issue", reason)], "", "high")


def finished(about: About, *, runtime: float | None = None, cost: float | None = None) -> Notice:
    """Report that a run ended well. runtime: seconds; cost: dollars."""
    fields = [*_progress(about), *_loss(about), *_spent(runtime, cost)]
    return _notice(
        "finished", "🎉 Training Finished", about, fields, "" if about.checkpoint_step is None else _saved(about)
    )


def failed(about: About, *, reason: str, explanation: str | None = None, runtime: float | None = None) -> Notice:
    """Report that a run failed, and why, with the end of its log. runtime: seconds."""
    fields = [*_progress(about), *_loss(about), *_spent(runtime), ("Reason", reason), *_why(explanation)]
    return replace(_notice("failed", "❌ Training Failed", about, fields, _saved(about), "high"), log=about.log)


def ended(about: About, *, reason: str, runtime: float | None = None) -> Notice:
    """Report that a run has ended without evidence that it failed or finished. runtime: seconds."""
    fields = [*_progress(about), *_loss(about), *_spent(runtime), ("Reason", reason)]
    return replace(_notice("ended", "⏹️ Training Ended", about, fields, _saved(about)), log=about.log)


def loss_nan(about: About) -> Notice:
    """Report that the loss is no longer a number."""
    fields = [*_progress(about), ("Issue", "The loss is NaN or infinite")]
    return _notice("loss_nan", "⚠️ NaN Loss", about, fields, _saved(about), "high")


def budget_passed(about: About, *, cost: float, budget: float) -> Notice:
    """Report that a run cost more than its budget, both in dollars."""
    fields = [*_progress(about), ("Cost", f"{_dollars(cost)} of {_dollars(budget)}")]
    return _notice("budget_passed", "💰 Budget Passed", about, fields, "", "high")


def milestone(about: About, *, percent: int, done: int, runtime: float | None = None) -> Notice:
    """Report that `done` per cent of the steps are done, and with it the milestone `percent`, an event of its own."""
    fields = [*_progress(about), *_spent(runtime)]
    return _notice(f"milestone_{percent}", f"📈 Training {done}% Done", about, fields, "", "low")


def soft_limit(about: About, *, reason: str) -> Notice:
    """Report that a limit was passed that only warns."""
    fields = [*_progress(about), ("Limit", reason)]
    return _notice("soft_limit", "⚠️ Limit Passed", about, fields, "No action will be taken.")


def upload_finished(about: About, *, destination: str, files: int) -> Notice:
    """Report that a checkpoint was uploaded and verified."""
    saved = ("Checkpoint", _step(about.checkpoint_step))
    fields = [("Destination", destination), saved, ("Verified", plural(files, "file"))]
    return _notice("upload_finished", "📦 Upload Finished", about, fields)


def upload_failed(about: About, *, destination: str, reason: str) -> Notice:
    """Report that a checkpoint did not arrive, or that its arrival could not be verified."""
    fields = [("Destination", destination), ("Checkpoint", _step(about.checkpoint_step)), ("Reason", reason)]
    text = "The files are still where the training wrote them."
    return _notice("upload_failed", "❌ Upload Failed", about, fields, text, "high")


def instance_destroyed(about: About) -> Notice:
    """Report that the rented instance was destroyed, and is gone."""
    return _about_machine(
        "instance_destroyed", "🗑️ Instance Destroyed", about, [], "The instance no longer costs money.", "normal"
    )


def instance_gone(about: About) -> Notice:
    """Report that the instance no longer exists, although no request to destroy it was acknowledged."""
    return _about_machine(
        "instance_gone", "🗑️ Instance Gone", about, [], "vast.ai no longer lists the instance.", "normal"
    )


def instance_kept(about: About, *, reason: str, cost_per_hour: float | None = None) -> Notice:
    """Report that the rented instance was not destroyed and still costs money, and why. cost_per_hour: dollars."""
    price = "" if cost_per_hour is None else f" ({_dollars(cost_per_hour)} per hour)"
    text = f"The instance was not destroyed and still costs money{price}."
    return _about_machine("instance_kept", "💸 Instance Kept", about, [("Reason", reason)], text)


def instance_swept(
    about: About, *, reason: str, runtime: float | None = None, cost_per_hour: float | None = None
) -> Notice:
    """Report that a sweep destroyed an instance that no job needs. runtime: seconds; cost_per_hour: dollars."""
    fields = [("Reason", reason), *_spent(runtime)]
    if cost_per_hour is not None:
        fields.append(("Cost", f"{_dollars(cost_per_hour)} per hour"))
    return _about_machine(
        "instance_swept", "🧹 Instance Swept", about, fields, "The instance is gone and no longer costs money."
    )


def instance_not_destroyed(about: About, *, reason: str, error: str) -> Notice:
    """Report that an instance could not be destroyed: each sweep retries it."""
    fields = [("Reason", reason), ("Error", error)]
    text = "The instance may still be costing money. Each sweep will try to destroy it again."
    return _about_machine("instance_not_destroyed", "💸 Instance Not Destroyed", about, fields, text, "urgent")


def orphan_instance(about: About, *, grace: float) -> Notice:
    """Report an instance of ours whose job is unknown. grace: the age in seconds at which it is destroyed."""
    fields = [("Reason", "its label names a training that is not in the queue")]
    return _about_machine(
        "orphan_instance", "👻 Orphan Instance", about, fields, f"It will be destroyed when it is {_grace(grace)} old."
    )


def listing_failed(owner: str, *, seconds: float, error: str, generation: int = 0) -> Notice:
    """Report that it is unknown which instances are rented; generation: the number of the outage."""
    fields = [("Owner", owner), ("For", format_duration(seconds)), ("Error", error)]
    text = (
        "Until the instances can be listed again, none of them will be destroyed, "
        "and rented instances will keep costing money."
    )
    return _about_account("listing_failed", "📡 Instances Cannot Be Listed", owner, fields, text, generation, "high")


def listing_works(owner: str, *, seconds: float, generation: int = 0) -> Notice:
    """Report that the instances can be listed again, after `seconds`."""
    fields = [("Owner", owner), ("After", format_duration(seconds))]
    return _about_account("listing_works", "✅ Instances Can Be Listed Again", owner, fields, "", generation, "normal")


def unreachable(about: About, *, seconds: float, error: str) -> Notice:
    """Report that the state of a run has been unknown for `seconds`; generation: since when."""
    fields = [("For", format_duration(seconds)), ("Error", error)]
    text = "Until the target responds again, the state of the training is unknown, and no action will be taken."
    return _notice("unreachable", "📡 Target Cannot Be Reached", about, fields, text, "high")


def reached(about: About, *, seconds: float) -> Notice:
    """Report that a target answers again after `seconds`."""
    return _notice("reached", "✅ Target Reached Again", about, [("After", format_duration(seconds))])


def state_unwritable(about: About, *, seconds: float, error: str) -> Notice:
    """Report that the watcher's own machine has kept it from working for `seconds`; generation: since when."""
    fields = [("For", format_duration(seconds)), ("Error", error)]
    text = (
        "The problem is on the watcher's own machine. "
        "Until it is fixed, the training is not checked and will not be stopped."
    )
    return _notice("state_unwritable", "💾 State Folder Cannot Be Used", about, fields, text, "high")


def state_writable(about: About, *, seconds: float, folder: str) -> Notice:
    """Report that the state folder can be used again, after `seconds`."""
    fields = [("After", format_duration(seconds)), ("Folder", folder)]
    return _notice("state_writable", "✅ State Folder Can Be Used Again", about, fields)


def taken_over(job: str, *, reason: str, number: int) -> Notice:
    """Report that another supervisor has taken over the run; `number` counts its supervisors."""
    about = About(job, generation=number)
    text = "This supervisor will take no more actions and send no more notices."
    return _notice("taken_over", "🤝 Training Taken Over", about, [("Reason", reason)], text, "high")


def _notice(kind: str, title: str, about: About, fields: _Fields, text: str = "", priority: str = "normal") -> Notice:
    return Notice(kind, title, tuple(fields), text, about.job, about.generation, priority, training=about.job)


def _about_machine(kind: str, title: str, about: About, fields: _Fields, text: str, priority: str = "high") -> Notice:
    """Return a notice about a rented instance, and perhaps the training on it."""
    training = None if about.job == about.instance else about.job
    notice = _notice(kind, title, about, fields, text, priority)
    return replace(notice, training=training, target=about.instance, command=next_command(kind, about.instance))


def _about_account(
    kind: str, title: str, owner: str, fields: _Fields, text: str, generation: int, priority: str
) -> Notice:
    command = next_command(kind, None)
    return Notice(kind, title, tuple(fields), text, owner, generation, priority, target=ACCOUNT, command=command)


def _why(explanation: str | None) -> _Fields:
    return [("Why", explanation)] if explanation else []


def _progress(about: About) -> _Fields:
    step, total_steps = about.step, about.total_steps
    if step is None and total_steps is None:
        return []
    percent = f" ({100 * step // total_steps}%)" if step is not None and total_steps else ""
    shown = f"{'?' if step is None else step}/{'?' if total_steps is None else total_steps}"
    return [("Progress", shown + percent)]


def _loss(about: About) -> _Fields:
    return [] if about.loss is None else [("Loss", f"{about.loss:.4g}")]


def _step(step: int | None) -> str:
    return "none known" if step is None else f"step {step}"


def _saved(about: About) -> str:
    return f"Latest checkpoint: {_step(about.checkpoint_step)}"


def _spent(runtime: float | None, cost: float | None = None) -> _Fields:
    time = [] if runtime is None else [("Runtime", format_duration(runtime))]
    return time + ([] if cost is None else [("Cost", _dollars(cost))])


def _dollars(amount: float) -> str:
    return f"${amount:.2f}"


def _grace(seconds: float) -> str:
    if seconds < 60:
        return plural(round(seconds), "second")
    minutes = f"{seconds / 60:.1f}".removesuffix(".0")
    return f"{minutes} {'minute' if minutes == '1' else 'minutes'}"
