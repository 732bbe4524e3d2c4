"""The steps of a job after its training: save the model, publish it, and release everything that costs money."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from typing import Any

from training_monitor.core.errors import CommandFailed, SettingsError, TrainingMonitorError
from training_monitor.core.models import Checkpoint
from training_monitor.core.outcomes import UploadReport
from training_monitor.jobs.jobs import find_jobs_named
from training_monitor.jobs.kinds import PROCESS
from training_monitor.jobs.stopping import stop_job
from training_monitor.rent.credits import Credits
from training_monitor.rent.instance_steps import destroy, destroy_rented, leave_to_others
from training_monitor.rent.job_context import JobContext, ended
from training_monitor.rent.publish import make_samples, register_model
from training_monitor.rent.training_step import copy_here, fetch_here, newest_on_instance, save_what_there_is
from training_monitor.rent.transfers import clear_below
from training_monitor.uploads.checkpoint import upload_checkpoint
from training_monitor.vast.cost import reached_limit, spent_by
from training_monitor.vast.instances import find_instance, list_instances, stop_instance
from training_monitor.vast.rent import RECOVERY_LOOKS, each_look, seconds_uncertain
from training_monitor.vast.rentals import record_release, record_sight
from training_monitor.vast.rows import read_label
from training_monitor.vast.training_request import Hook, JobState, resolve_env

UPLOAD_ROUNDS = 3
_MOST_LOG_BYTES = 64 * 1024


def upload(ctx: JobContext) -> None:
    """Copy the model here and upload it, both verified; go on only when a copy exists outside the machine."""
    request = ctx.job.request
    model = newest_on_instance(ctx)
    if model is None:
        ctx.end(JobState.FAILED, f"the training left no complete checkpoint in {ctx.checkpoint_dir}")
        return
    _note_unsaved(ctx, model)
    here = _copy_here(ctx, model)
    report = _upload(ctx, model) if request.upload_to else None
    if report is not None and not report.verified:
        ctx.post_problem("upload_failed", f"{report.destination}: {report.error or '?'}")
        if here is None:
            raise TrainingMonitorError(f"the model exists only on the rented machine: {report.error}")
        ctx.end(JobState.FAILED, f"the model was not uploaded ({report.error}); a copy is in {here}")
        return
    if report is None and here is None:
        raise TrainingMonitorError("the model exists only on the rented machine", hint="check the disk of this machine")
    ctx.go(JobState.SAMPLING, progressed=True, model_url=report.destination if report else here)


def _note_unsaved(ctx: JobContext, model: Checkpoint) -> None:
    """Record and warn when the model lacks the last steps. A file name that counts epochs does not tell."""
    spec, work = ctx.job.request.spec, ctx.job.work
    last = spec.steps if spec else work.step or work.total_steps or 0
    is_known = model.step > 0 and "epoch" not in posixpath.basename(model.path).lower()
    if not is_known or model.step + 1 >= last:  # some trainers count from 0
        ctx.note(unsaved_steps=None)
        return
    ctx.note(unsaved_steps=last - model.step)
    name = posixpath.basename(model.path)
    ctx.warn(f"the model, {name}, is from step {model.step} of {last}: it lacks the last {last - model.step} steps")


def _copy_here(ctx: JobContext, model: Checkpoint) -> str | None:
    """Copy the model to this machine and return its path; None where that failed."""
    folder = os.path.join(ctx.local_folder, "model")
    problem = f"{model.path} no longer exists"
    try:
        if path := copy_here(ctx, model, folder, "model"):
            return path
    except (CommandFailed, SettingsError) as error:  # an upload may still work
        problem = error.what
    ctx.warn(f"the model could not be copied to {folder}: {problem}")
    return None


def _upload(ctx: JobContext, model: Checkpoint) -> UploadReport:
    """Upload to the first destination that works; recorded uploads are not repeated."""
    reports = list(ctx.job.work.uploads)
    for destination in UPLOAD_ROUNDS * ctx.job.request.upload_to:
        if any(each.verified for each in reports):
            break
        report = _upload_to(ctx, model, destination)
        reports.append(report)
        ctx.note(progressed=True, uploads=tuple(reports))
        said = "verified" if report.verified else report.error
        ctx.tell("reached" if report.verified else "detected", f"{report.destination}: {said}")
    return next((each for each in reports if each.verified), reports[-1])


def _upload_to(ctx: JobContext, model: Checkpoint, destination: str) -> UploadReport:
    env = {key: value for key, value in ctx.job.request.env.items() if key.startswith("HF_")}
    try:
        given = resolve_env(env, os.environ)
        return upload_checkpoint(
            ctx.target(), model.path, destination, env=given, on_progress=ctx.tell_progress, **ctx.ways
        )
    except SettingsError as error:  # for example missing credentials: the next destination may have them
        return UploadReport(destination.partition("?")[0], False, error=error.what)


# ---------------------------------------------------------------- samples, registration


def _about(ctx: JobContext) -> dict[str, Any]:
    """Return the values that a hook may use."""
    request, work = ctx.job.request, ctx.job.work
    return {
        "name": request.name,
        "trigger": request.spec.trigger if request.spec else "",
        "job_id": ctx.job.id,
        "step": work.saved_step,
        "model": work.saved_path,
        "model_name": os.path.basename(work.saved_path or ""),
        "model_url": work.model_url,
    }


def sample(ctx: JobContext) -> None:
    """Make test images on the machine and copy them here, best effort."""
    hook, saved = ctx.job.request.samples, ctx.job.work.saved_path
    if hook and not saved:
        ctx.warn("no samples: the model could not be copied here")
    if hook and saved:
        try:
            _make_samples(ctx, hook, saved)
        except (CommandFailed, SettingsError) as error:
            ctx.warn(f"no samples: {error.what}")
    ctx.go(JobState.REGISTERING, progressed=True)


def _make_samples(ctx: JobContext, hook: Hook, saved: str) -> None:
    report = make_samples(
        hook,
        ctx.target(),
        folder=ctx.folder,
        model=f"{ctx.checkpoint_dir}/{os.path.basename(saved)}",
        about=_about(ctx),
        env=resolve_env(ctx.job.request.env, os.environ),
        on_progress=ctx.tell_progress,
        **ctx.ways,
    )
    if not report.ok:
        ctx.warn(f"no samples: {report.error}")
    elif hook.command:
        folder = os.path.join(ctx.local_folder, "samples")
        fetched = fetch_here(ctx, "samples", f"{ctx.folder}/samples", folder)
        ctx.tell("reached", f"{fetched.files} samples in {folder}")


def register(ctx: JobContext) -> None:
    """Register the model with a service; repeated calls carry the same idempotency key."""
    if hook := ctx.job.request.register:
        report = register_model(hook, _about(ctx), job_id=ctx.job.id, on_progress=ctx.tell_waiting, **ctx.ways)
        if report.ok:
            ctx.tell("reached", "the model is registered")
        else:
            ctx.warn(f"not registered: {report.error}")
    unsaved = ctx.job.work.unsaved_steps
    reason = "completed" if unsaved is None else f"completed, but its model lacks the last {unsaved} steps"
    ctx.go(JobState.DESTROYING, outcome=JobState.COMPLETED, reason=reason)


# ---------------------------------------------------------------- the end


def leave_instance(ctx: JobContext) -> None:
    """Destroy the machine and verify that it is gone; keep or stop that of a completed job if it says so."""
    work = ctx.job.work
    if work.instance_id is None:
        _destroy_unknown(ctx)
        ctx.go(JobState.SETTLING)
        return
    if work.outcome is not JobState.COMPLETED:
        leave_to_others(ctx)
        _stop_and_save(ctx)
    how, number = ctx.job.request.on_finish, str(work.instance_id)
    limit = reached_limit(ctx.job, ctx.clock.time())
    is_kept = work.outcome is JobState.COMPLETED and not (limit and limit.ends)  # the sweep applies the same rule
    if not is_kept or how == "destroy" or find_instance(number, **ctx.ways) is None:
        destroy_rented(ctx)
    else:
        if how == "stop":
            leave_to_others(ctx)
            stop_instance(number, **ctx.ways)
        text = f"instance {number} is {'stopped' if how == 'stop' else 'kept'} and still costs money"
        ctx.warn(text)
        ctx.post_problem("machine_kept", text)
    ctx.go(JobState.SETTLING)


def _destroy_unknown(ctx: JobContext) -> None:
    """Destroy instances that carry this job's label: a worker may have died right after requesting one."""
    asked_at, create_timeout = ctx.job.work.asked_at, ctx.service.config.create_timeout
    seconds = seconds_uncertain(asked_at, create_timeout, ctx.clock)
    for _ in each_look(seconds, 1 if asked_at is None else RECOVERY_LOOKS, ctx.clock):
        now = ctx.clock.time()
        rows = list_instances(transport=ctx.service.transport)
        labels = {row["id"]: read_label(row.get("label")) for row in rows}
        ours = [row for row in rows if (label := labels[row["id"]]) and label[:2] == (ctx.service.owner, ctx.job.id)]
        for row in ours:
            record_sight(ctx.service.store, row.get("label"), row, now)
            destroy(ctx, row["id"])
        if ours:
            return


def _stop_and_save(ctx: JobContext) -> None:
    """Stop the training on the machine and copy its newest checkpoint here, best effort."""
    try:
        for view, _ in find_jobs_named(ctx.site(), ctx.run_name, prefix=PROCESS):
            if not view.status.is_terminal:
                stop_job(ctx.target(), view.job_id, **ctx.ways)
    except TrainingMonitorError as error:
        ctx.tell("detected", f"the training could not be stopped before its machine was released: {error.what}")
    save_what_there_is(ctx)


def settle(ctx: JobContext) -> None:
    """Settle the job's reservation with what its machines cost."""
    request, config, now = ctx.job.request, ctx.service.config, ctx.clock.time()
    if ctx.job.work.spent is None:
        ctx.reread()
        spending = spent_by(ctx.job.work.rentals, now)
        if spending.unknown_rentals:
            numbers = ", ".join(map(str, spending.unknown_rentals))
            ctx.warn(f"the cost of instance {numbers} is unknown and not included")
        ctx.note(spent=spending.dollars)
    if (kept := ctx.job.work.instance_id) is not None:
        record_release(ctx.service.store, ctx.job.id, kept, now)
    spent, outcome = ctx.job.work.spent, ctx.job.work.outcome
    assert spent is not None and outcome is not None
    credits = Credits(ctx.service.store, clock=ctx.clock)
    if request.account is not None and credits.reservation(request.account, ctx.job.id) is not None:
        credits.settle(request.account, ctx.job.id, spent, f"{outcome.value.lower()}: {ctx.job.work.reason}")
        if outcome is JobState.FAILED and config.failed_refund:
            credits.refund(request.account, ctx.job.id, config.failed_refund, "the job failed")
    ctx.tell("reached", f"it cost ${spent:.2f}")
    ctx.go(JobState.NOTIFYING)


def notify(ctx: JobContext) -> None:
    """Send the final notice and remove partial copies here. This is the last step."""
    work = ctx.job.work
    assert work.outcome is not None
    if work.instance_id is not None:
        ctx.note(instance_id=None)
    clear_below(ctx.local_folder)
    ctx.post(ended(ctx.job, _end_of_log(ctx) if work.outcome is JobState.FAILED else ""))
    ctx.go(work.outcome)
    ctx.tell("finished", f"{work.outcome.value.lower()}: {work.reason}")


def _end_of_log(ctx: JobContext) -> str:
    """Return the end of the copy of its log here; "" if there is none."""
    with suppress(OSError), open(ctx.local_log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_LOG_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""
