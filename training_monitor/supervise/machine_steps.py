"""The steps of a job until its training starts: credits, a machine, the data on it, and whether it is fit."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from training_monitor.errors import (
    AlreadySupervised,
    CommandFailed,
    CommandTimedOut,
    InstanceNotFound,
    NoOffers,
    TrainingMonitorError,
)
from training_monitor.notify import service_notices
from training_monitor.policy.cost import day_start, decide_daily_budget, estimate_cost, spent_by, spent_since
from training_monitor.renting import JobState, Rental, TrainingRequest, resolve_env
from training_monitor.supervise.claiming import see_unclaimed
from training_monitor.supervise.job_context import JobContext
from training_monitor.units import format_bytes, plural
from training_monitor.vast.booting import wait_until_ready
from training_monitor.vast.credits import Credits
from training_monitor.vast.file_lists import list_remote
from training_monitor.vast.instances import destroy_instance
from training_monitor.vast.offers import OfferQuery, load_offer_query, search_offers
from training_monitor.vast.preflight import check_instance
from training_monitor.vast.rent import rent_instance
from training_monitor.vast.sync import SyncProgress, push_folder
from training_monitor.vast.training_config import format_training_config

BUDGET_WAIT = 60.0
_UNPROMISED = (JobState.QUEUED, JobState.CHARGING)
DISK_SHARE = 0.5  # of the disk that was rented must be free when the data is there


def offer_query(request: TrainingRequest) -> OfferQuery:
    """What the job wants to rent: the environment's wishes, and its own, which win."""
    wishes: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in request.offers.items()
    }
    return load_offer_query(os.environ, **wishes)


def charge(ctx: JobContext) -> None:
    """Set aside what the job is estimated to cost, before anything is rented."""
    request = ctx.job.request
    resolve_env(request.env)  # what this worker lacks would fail only on a machine that is paid for
    if ctx.job.work.estimate is None:
        query = offer_query(request)
        offers = search_offers(query, transport=ctx.service.transport)
        if not offers:
            raise NoOffers("nothing that is good enough is for rent", hint="see training-monitor offers")
        cost = estimate_cost(request, offers[0].price_per_hour or query.max_price_per_hour)
        ctx.note(estimate=min(cost, request.budget or cost))
    estimate = ctx.job.work.estimate or 0.0
    limit = ctx.service.config.daily_budget
    with nullcontext() if limit is None else ctx.service.store.hold("daily budget"):  # no two may take the same rest
        reason = _over_daily_budget(ctx, limit, estimate)
        if reason is None:
            _reserve(ctx, estimate)
            return
    ctx.tell("waiting", reason)
    ctx.post(service_notices.waiting(ctx.job.id, reason=reason, what="budget"))
    ctx.clock.sleep(BUDGET_WAIT)


def _reserve(ctx: JobContext, estimate: float) -> None:
    account = ctx.job.request.account
    if account is not None:
        Credits(ctx.service.store, clock=ctx.clock).reserve(account, ctx.job.id, estimate)
        ctx.tell("progress", f"${estimate:.2f} reserved of the credits of {account}")
    ctx.go(JobState.RENTING, attempt=1)


def _over_daily_budget(ctx: JobContext, limit: float | None, estimate: float) -> str | None:
    """Why the job has to wait for another day."""
    if limit is None:
        return None
    now = ctx.clock.time()
    jobs = ctx.service.queue.list_jobs()
    today = spent_since((rental for job in jobs for rental in job.work.rentals), day_start(now), now)
    others = [job for job in jobs if job.state not in _UNPROMISED and not job.state.is_terminal]
    promised = sum(max(0.0, (job.work.estimate or 0.0) - spent_by(job.work.rentals, now).dollars) for job in others)
    return decide_daily_budget(limit, today, promised, estimate)


def rent(ctx: JobContext) -> None:
    """Rent a machine under the job's label: one for each attempt, whoever is killed when."""
    request, work = ctx.job.request, ctx.job.work
    rented = rent_instance(
        offer_query(request),
        ctx.label,
        image=request.image,
        bad_machines=work.bad_machines,
        bad_hosts=work.bad_hosts,
        create_timeout=ctx.service.config.create_timeout,
        asked_at=work.asked_at,
        on_asking=lambda offer: ctx.note(asked_at=ctx.clock.time()),
        on_event=ctx.tell_waiting,
        transport=ctx.service.transport,
        clock=ctx.clock,
    )
    rental = Rental(
        rented.id,
        work.attempt,
        rented.price_per_hour,
        ctx.job.work.asked_at or ctx.clock.time(),
        machine_id=rented.machine_id,
        gpu_name=rented.gpu_name,
        host_id=rented.host_id,
    )
    ctx.go(JobState.PREPARING, instance_id=rented.id, rentals=(*work.rentals, rental))
    price = "at an unknown price" if rented.price_per_hour is None else f"for ${rented.price_per_hour:.2f} per hour"
    ctx.tell("started", f"instance {rented.id} rented: {rented.gpu_name or 'unknown GPU'} {price}")


def prepare(ctx: JobContext) -> None:
    """Wait until the machine answers over ssh; one that will not is given up."""
    assert ctx.rental
    left = ctx.service.config.ready_timeout - (ctx.clock.time() - ctx.rental.started_at)
    try:
        wait_until_ready(
            str(ctx.job.work.instance_id),
            timeout=max(left, 30.0),
            on_event=ctx.tell_waiting,
            transport=ctx.service.transport,
            clock=ctx.clock,
        )
    except (CommandFailed, InstanceNotFound, CommandTimedOut) as error:
        give_up_host(ctx, error.what)
        return
    ctx.forget_address()
    ctx.go(JobState.SYNCING)


def sync(ctx: JobContext) -> None:
    """Bring the dataset, the configuration and the newest checkpoint of an earlier machine."""
    request, target = ctx.job.request, ctx.target()
    pushes = [(request.dataset, ctx.dataset_dir)] if request.dataset else []
    if request.spec:
        config = format_training_config(request.spec, dataset=ctx.dataset_dir, output=ctx.output_dir)
        pushes.append(
            (_write(os.path.join(ctx.local_folder, "config"), "training.yaml", config), ctx.folder + "/config")
        )
    if ctx.job.work.saved_path:
        pushes.append((os.path.dirname(ctx.job.work.saved_path), ctx.checkpoint_dir))
    try:
        list_remote(target, ctx.output_dir, make=True, transport=ctx.service.transport)  # a command starts above it
        for local, remote in pushes:
            _push(ctx, local, remote)
    except CommandFailed as error:
        give_up_machine(ctx, error.what)
        return
    ctx.go(JobState.CHECKING)


def _push(ctx: JobContext, local: str, remote: str) -> None:
    report = push_folder(
        local,
        ctx.target(),
        remote,
        on_progress=lambda seen: tell_copying(ctx, local, seen),
        transport=ctx.service.transport,
        clock=ctx.clock,
    )
    size = format_bytes(report.total_bytes)
    ctx.tell("reached", f"{local}: {plural(report.files, 'file')}, {size} verified on the machine ({report.by})")


def tell_copying(ctx: JobContext, name: str, seen: SyncProgress) -> None:
    """Tell how far a copying is; ends it where the step is not to go on."""
    percent = 100 * seen.bytes // seen.total_bytes if seen.total_bytes else 100
    ctx.tell_progress(f"copying {os.path.basename(name)}: {percent}%, {seen.files}/{seen.total_files} files")
    ctx.check()


def _write(folder: str, name: str, text: str) -> str:
    """Write a small file; returns its folder."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
    return folder


def check(ctx: JobContext) -> None:
    """Look whether the machine is what was rented."""
    query = offer_query(ctx.job.request)
    report = check_instance(
        ctx.target(),
        num_gpus=query.num_gpus,
        min_vram_gb=query.min_vram_gb,
        min_disk_gb=query.disk_gb * DISK_SHARE,
        folder=ctx.folder,
        transport=ctx.service.transport,
    )
    if not report.ok:
        give_up_host(ctx, "; ".join(report.problems))
        return
    ctx.go(JobState.TRAINING)


def give_up_host(ctx: JobContext, reason: str) -> None:
    """Write down that the machine did not boot or is not fit, and is to be replaced by one of another host."""
    host = ctx.rental.host_id if ctx.rental else None
    bad = {*ctx.job.work.bad_hosts, *([] if host is None else [host])}
    give_up_machine(ctx, reason, bad_hosts=tuple(sorted(bad)))


def give_up_machine(ctx: JobContext, reason: str, **changes: Any) -> None:
    """Write down that the machine is no good, or lost, and is to be replaced."""
    text = f"instance {ctx.job.work.instance_id} is given up: {reason}"
    ctx.warn(text)
    ctx.post(service_notices.machine_lost(ctx.job.id, reason=text, attempt=ctx.job.work.attempt))
    ctx.go(JobState.REPLACING, **changes)


def replace_machine(ctx: JobContext) -> None:
    """Destroy the machine and see it gone; then another one, unless there were enough."""
    destroy_rented(ctx)
    work = ctx.job.work
    rental = work.rentals[-1] if work.rentals else None
    if len(work.rentals) >= ctx.job.request.max_instances:
        last = work.warnings[-1] if work.warnings else "it was lost"
        ctx.end(JobState.FAILED, f"{plural(len(work.rentals), 'machine')} used up; {last}")
        return
    bad = {*work.bad_machines, *([rental.machine_id] if rental and rental.machine_id else [])}
    ctx.go(JobState.RENTING, attempt=work.attempt + 1, asked_at=None, bad_machines=tuple(sorted(bad)))


def leave_to_others(ctx: JobContext) -> None:
    """Raise AlreadySupervised while a supervisor from elsewhere has the training on the job's machine.

    A machine that cannot be asked is the job's own all the same.
    """
    try:
        see_unclaimed(ctx.target(), ctx.run_name, ctx.service.store, ctx.service.transport)
    except AlreadySupervised:
        raise
    except TrainingMonitorError as error:
        ctx.tell("progress", f"nobody knows whether another supervisor has it: {error.what}")


def destroy_rented(ctx: JobContext) -> None:
    """Destroy the machine the job has, see it gone, and write down when. Raises AlreadySupervised."""
    number = ctx.job.work.instance_id
    if number is None:
        return
    leave_to_others(ctx)
    destroy(ctx, number)
    close_rental(ctx)


def destroy(ctx: JobContext, number: int) -> None:
    """Destroy an instance, see it gone, and tell which of the two is known."""
    done = destroy_instance(
        str(number), on_event=ctx.tell_waiting, transport=ctx.service.transport, clock=ctx.clock
    )
    ctx.tell("stopped", f"instance {number} is {'destroyed' if done.acknowledged else 'gone'}")


def close_rental(ctx: JobContext) -> None:
    """Write down that the job has no machine any more, and until when it paid for it."""
    work, now = ctx.job.work, ctx.clock.time()
    rentals = [
        replace(each, ended_at=now) if each.instance_id == work.instance_id and each.ended_at is None else each
        for each in work.rentals
    ]
    ctx.note(instance_id=None, rentals=tuple(rentals))
