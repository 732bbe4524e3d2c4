"""The notices of a job on rented machines; each is sent once, see `Notice`. Pure."""

from __future__ import annotations

from dataclasses import replace

from training_monitor.core.values import Notice
from training_monitor.notify.notice_text import command_line, next_command
from training_monitor.notify.templates import ACCOUNT
from training_monitor.vast.cost import BurnForecast
from training_monitor.vast.training_request import JobState, QueuedJob

_TITLES = {
    "machine_lost": "🔁 Machine Given Up",
    "machine_kept": "💸 Instance Kept",
    "job_waiting": "⏳ Training Waits",
    "limit": "🛑 Limit Reached",
    "soft_limit": "⏰ Limit Near",
    "upload_failed": "⚠️ Upload Failed",
}
_LIMITS = ("hard_timeout", "soft_timeout", "budget")
_WAITS = ("budget", *(state.value for state in JobState))
_GENERATIONS = {"job_waiting": _WAITS, "limit": _LIMITS, "soft_limit": _LIMITS}


def problem(kind: str, job: str, reason: str, generation: str | int = 0) -> Notice:
    """Return the notice of a job's problem, which is sent once for each generation.

    The generation is a number or, by its name, what a job waits for (the budget, or its state) or which limit it is.
    """
    number = _GENERATIONS[kind].index(generation) if isinstance(generation, str) else generation
    return Notice(kind, _TITLES[kind], (("Reason", reason),), "", job, number, "high", training=job)


def credit_low(burn: BurnForecast, credit: float, *, day: int) -> Notice:
    """Return the notice, sent once per `day`, that the credit in dollars will soon be used up."""
    fields = (
        ("Credit", f"${credit:.2f}"),
        ("Instances", f"{burn.instances}, ${burn.dollars_per_hour:.2f} per hour"),
        ("Lasts", f"{burn.hours_left or 0.0:.1f} hours" + (" at most" if burn.unknown else "")),
    )
    text = "Without credit vast.ai stops all machines."
    kind, command = "credit_low", next_command("credit_low", ACCOUNT)
    return Notice(kind, "🔥 Credit Runs Out", fields, text, ACCOUNT, day, "urgent", target=ACCOUNT, command=command)


def ended(job: QueuedJob) -> Notice:
    """Return the notice of how a job ended, where its model is, and what it cost."""
    work = job.work
    titles = {JobState.COMPLETED: "🎉 Training Completed", JobState.CANCELLED: "🚫 Training Cancelled"}
    fields: list[tuple[str, str]] = []
    if work.step is not None:
        fields.append(("Progress", f"{work.step}/{work.total_steps or '?'}"))
    if work.model_url or work.saved_path:
        fields.append(("Model", work.model_url or work.saved_path or ""))
    fields.append(("Machines", str(len(work.rentals))))
    if work.spent is not None:
        fields.append(("Cost", f"${work.spent:.2f}"))
    if work.outcome is not JobState.COMPLETED:
        fields.append(("Reason", work.reason or "not known"))
    priority = "high" if work.outcome is JobState.FAILED else "normal"
    title = titles.get(work.outcome or JobState.FAILED, "❌ Training Failed")
    if work.outcome is JobState.COMPLETED and work.unsaved_steps is not None:
        title, priority = "⚠️ Training Completed, Model Is Not Of Its Last Step", "high"
        fields.append(("Model lacks", f"the last {work.unsaved_steps} steps"))
    return Notice("job_ended", title, tuple(fields), "\n".join(work.warnings), job.id, 0, priority, job.id)


def about_job(job_id: str) -> str:
    """Return the subject of a job's notices."""
    return f"job {job_id}"


def command_of_job(job_id: str) -> str:
    """Return the command that shows more of a job."""
    return command_line("queue", job_id)


def of_worker(notice: Notice, owner: str) -> Notice:
    """Return the notice with the owner of its worker, and the command that shows more."""
    return replace(notice, job_id=f"worker of {owner}", training=None, command=command_line("doctor"))


def of_job(notice: Notice, job: QueuedJob) -> Notice:
    """Return the notice with the names of its job and machine, and the command that shows more."""
    machine = job.work.instance_id
    target = ACCOUNT if machine is None else f"vast://{machine}"
    about, command = about_job(job.id), command_of_job(job.id)
    return replace(notice, job_id=about, training=job.id, target=target, command=command)
