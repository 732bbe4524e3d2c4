"""The steps of a job until its training starts: reserve credits, rent a machine, copy the data, check the machine.

The training is a FLUX LoRA by ai-toolkit (https://github.com/ostris/ai-toolkit). Its YAML configuration is written as
JSON, a subset of YAML, so that no name can break out of it. The keys are those of ai-toolkit's example
`config/examples/train_lora_flux_24gb.yaml`.

The check of a machine is one round trip. A problem is something that the machine or a tool on it reported. A question
that could not be asked is not a problem of the machine: it raises, and the caller retries.
"""

from __future__ import annotations

import json
import os
import posixpath
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from training_monitor.core.errors import (
    AlreadySupervised,
    CommandError,
    CommandFailed,
    CommandTimedOut,
    Hint,
    InstanceNotFound,
    NoOffers,
    ParseError,
    SettingsError,
    ToolNotFound,
    TrainingMonitorError,
    last_lines,
)
from training_monitor.core.models import Answer, Gpu, GpuProcess, GpuTable, Question
from training_monitor.core.units import format_bytes, known_number, plural
from training_monitor.jobs.claims import see_unclaimed
from training_monitor.look.host import Disk, disk_question, gpu_question
from training_monitor.rent.credits import Credits
from training_monitor.rent.file_lists import list_remote
from training_monitor.rent.job_context import JobContext
from training_monitor.rent.sync import SyncProgress, push_folder
from training_monitor.runs.files import write_atomically
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.vast.asking import clean_line
from training_monitor.vast.cost import day_start, decide_daily_budget, estimate_cost, spent_by
from training_monitor.vast.gpu_names import contradicts, is_less_memory
from training_monitor.vast.instances import destroy_instance, find_instance, wait_until_ready
from training_monitor.vast.offers import OfferQuery, load_offer_query, search_offers
from training_monitor.vast.rent import rent_instance
from training_monitor.vast.rentals import record_rental
from training_monitor.vast.training_request import JobState, Rental, TrainingRequest, TrainingSpec, resolve_env

SAMPLE_SIDE = 1024
GPU_SECONDS = 30.0
COMMAND_SECONDS = 120.0
HOTTEST = 90.0
MOST_USED = 0.1
TOLERANCE = 0.98  # of the advertised memory: drivers reserve a little
BUDGET_WAIT = 60.0
_UNPROMISED = (JobState.QUEUED, JobState.CHARGING)
DISK_SHARE = 0.5  # of the rented disk must be free once the data is copied
_GpuAnswer = Answer[tuple[GpuTable, tuple[GpuProcess, ...]]]


def format_training_config(spec: TrainingSpec, *, dataset: str, output: str) -> str:
    """Return a configuration file for ai-toolkit, which runs it as `python run.py FILE`.

    Args:
        dataset: the folder with the images and captions on the instance. output: the folder in which the folder NAME/
            with the checkpoints is created.
    """
    process = {
        "type": "sd_trainer",
        "training_folder": output,
        "device": "cuda:0",
        "trigger_word": spec.trigger,
        "network": {"type": "lora", "linear": spec.rank, "linear_alpha": spec.alpha},
        "save": {"dtype": "float16", "save_every": spec.save_every, "max_step_saves_to_keep": spec.keep},
        "datasets": [
            {
                "folder_path": dataset,
                "caption_ext": "txt",
                "caption_dropout_rate": spec.dropout,
                "shuffle_tokens": False,
                "cache_latents_to_disk": True,
                "resolution": list(spec.resolutions),
            }
        ],
        "train": {
            "batch_size": spec.batch_size,
            "steps": spec.steps,
            "gradient_accumulation_steps": 1,
            "train_unet": True,
            "train_text_encoder": False,
            "gradient_checkpointing": True,
            "noise_scheduler": "flowmatch",
            "optimizer": "adamw8bit",
            "lr": spec.learning_rate,
            "ema_config": {"use_ema": True, "ema_decay": 0.99},
            "dtype": "bf16",
        },
        "model": {"name_or_path": spec.base_model, "is_flux": True, "quantize": True},
        "sample": {
            "sampler": "flowmatch",
            "sample_every": spec.save_every,
            "width": SAMPLE_SIDE,
            "height": SAMPLE_SIDE,
            "prompts": list(spec.samples),
            "neg": "",
            "seed": 42,
            "walk_seed": True,
            "guidance_scale": 4,
            "sample_steps": 20,
        },
    }
    config = {"name": spec.name, "process": [process]}
    whole = {"job": "extension", "config": config, "meta": {"name": "[name]", "version": "1.0"}}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


# ---------------------------------------------------------------- checking a machine


class PreflightReport(NamedTuple):
    """The result of checking a machine; `ok` when there are no `problems`, each of which is one sentence.

    `free_disk_gb` is in 10^9 bytes; None if unknown.
    """

    ok: bool
    problems: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    free_disk_gb: float | None


def check_instance(
    target: str | Target,
    *,
    num_gpus: int = 1,
    min_vram_gb: float = 0,
    min_disk_gb: float = 0,
    folder: str = "/",
    command: str | None = None,
    gpu_name: str | None = None,
    vram_gb: float | None = None,
    transport: Transport | None = None,
) -> PreflightReport:
    """Check the GPUs and the disk of a machine, and run your own check command there.

    Args:
        num_gpus: the number of rented GPUs; a GPU that cannot be queried does not count.
        min_vram_gb: minimum memory of each GPU, in the units of the market: a 4090 has 24.564.
        min_disk_gb: minimum free space on the disk of `folder`, in 10^9 bytes.
        folder: an absolute path on the machine, which need not exist yet.
        command: a shell command line, run by `sh` on the machine. It must exit with 0 within two minutes if the machine
            is good.
        gpu_name: the GPU that was rented. vram_gb: its memory, as stated in the offer.

    Raises:
        SettingsError: `folder` is not absolute.
        CommandError: a query failed or timed out, so the machine could not be judged.
    """
    gpu, disk, *own = ask(target, *_questions(folder, command), transport=transport)
    gpus, problems = _read_gpus(gpu)
    if not problems or gpus:
        problems += _judge_gpus(gpus, num_gpus, min_vram_gb)
        problems += [problem for gpu in gpus for problem in _find_difference(gpu, gpu_name, vram_gb)]
    free = _read_disk(disk, is_needed=min_disk_gb > 0)
    if free is not None and free < min_disk_gb:
        problems.append(f"{free:.1f} GB are free for {folder}, but {min_disk_gb:g} GB are needed")
    for reply in (answer.get() for answer in own):
        if reply and reply.exit_code:
            said = last_lines(reply.output) or "it printed nothing"
            problems.append(f"the check command exited with {reply.exit_code}: {said}")
    return PreflightReport(not problems, tuple(problems), gpus, free)


def _questions(folder: str, command: str | None) -> list[Question[Any]]:
    if not folder.startswith("/") or "\n" in folder or "\0" in folder:
        raise SettingsError("folder", folder, "an absolute path")
    above = [folder]
    while above[-1] != posixpath.dirname(above[-1]):
        above.append(posixpath.dirname(above[-1]))
    questions: list[Question[Any]] = [gpu_question(GPU_SECONDS), disk_question(*above)]
    if command is not None:
        script = f"sh -c {shlex.quote(command)} 2>&1"
        questions.append(Question("command", script, lambda reply: reply, COMMAND_SECONDS))
    return questions


def _read_gpus(answer: _GpuAnswer) -> tuple[tuple[Gpu, ...], list[str]]:
    """Return the GPUs, or why the machine cannot list them. Raises when it could not be asked."""
    if isinstance(answer.failure, (ToolNotFound, ParseError)):
        return (), [f"its GPUs cannot be read: {answer.failure}"]
    table, _ = answer.get() or (GpuTable(()), ())
    return table.gpus, [f"nvidia-smi fails: {table.error}"] if table.error else []


def _judge_gpus(gpus: tuple[Gpu, ...], num_gpus: int, min_vram_gb: float) -> list[str]:
    usable = sum(not gpu.error for gpu in gpus)
    problems = [] if usable >= num_gpus else [f"it has {plural(usable, 'usable GPU')}, but {num_gpus} were rented"]
    for gpu in gpus:
        name = f"GPU {'?' if gpu.index is None else gpu.index}"
        problems += [f"{name} {problem}" for problem in _judge_gpu(gpu, min_vram_gb)]
    return problems


def _judge_gpu(gpu: Gpu, min_vram_gb: float) -> list[str]:
    if gpu.error:
        return [f"cannot be used: {gpu.error}"]
    problems = []
    total, used, heat = gpu.memory_total_mb, gpu.memory_used_mb, gpu.temperature_celsius
    if min_vram_gb > 0 and total is None:
        problems.append("does not report its memory size")
    if total is not None and total / 1000 < min_vram_gb * TOLERANCE:
        problems.append(f"has {total / 1000:.1f} GB of memory, but {min_vram_gb:g} GB were promised")
    if total and used is not None and used > total * MOST_USED:
        problems.append(f"is in use by other processes: {used / 1000:.1f} of {total / 1000:.1f} GB are used")
    if heat is not None and heat >= HOTTEST:
        problems.append(f"is at {heat:g} °C while idle")
    return problems


def _find_difference(gpu: Gpu, gpu_name: str | None, vram_gb: float | None) -> list[str]:
    """Return what a GPU has that contradicts the one that was rented."""
    name, total = gpu.name, gpu.memory_total_mb
    if gpu_name and name and contradicts(gpu_name, name):
        return [f"it has {clean_line(name, 60)}, but {clean_line(gpu_name, 60)} was rented"]
    if vram_gb and total is not None and is_less_memory(vram_gb, total):
        return [f"its GPU has {total / 1000:.1f} GB of memory, but {vram_gb:g} GB were rented"]
    return []


def find_other_gpu(row: Mapping[str, Any], rental: Rental, num_gpus: int) -> str | None:
    """Return what the listing of an instance says that contradicts what was rented; None: nothing."""
    name, count, ram = row.get("gpu_name"), row.get("num_gpus"), known_number(row.get("gpu_ram"))
    if type(count) is int and count < num_gpus:
        return f"it is listed with {plural(count, 'GPU')}, but {num_gpus} were rented"
    gpu = Gpu(None, name=name if isinstance(name, str) else None, memory_total_mb=ram)
    problems = _find_difference(gpu, rental.gpu_name, rental.vram_gb)
    return f"according to its listing, {problems[0]}" if problems else None


def _read_disk(answer: Answer[tuple[Disk, ...]], *, is_needed: bool) -> float | None:
    """Return the free space where `folder` or its nearest existing parent lies. Raises when it could not be asked."""
    if isinstance(answer.failure, CommandError):
        raise answer.failure
    if answer.failure and is_needed:
        raise CommandFailed(f"the disk of the rented machine cannot be read: {answer.failure}") from answer.failure
    disks = answer.value or ()
    return disks[0].free_bytes / 1e9 if disks else None


# ---------------------------------------------------------------- the steps


def offer_query(request: TrainingRequest) -> OfferQuery:
    """Return what the job wants to rent: the environment's query, overridden by its own."""
    wishes: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in request.offers.items()
    }
    return load_offer_query(os.environ, **wishes)


def charge(ctx: JobContext) -> None:
    """Reserve the estimated cost of the job before anything is rented."""
    request = ctx.job.request
    resolve_env(request.env, os.environ)  # otherwise a missing variable would fail only on a paid machine
    if ctx.job.work.estimate is None:
        query = offer_query(request)
        offers = search_offers(query, transport=ctx.service.transport)
        if not offers:
            raise NoOffers("no offer meets the requirements", hint=Hint("see {search_offers}"))
        cost = estimate_cost(request, offers[0].price_per_hour or query.max_price_per_hour)
        ctx.note(estimate=min(cost, request.budget or cost))
    estimate = ctx.job.work.estimate or 0.0
    limit = ctx.service.config.daily_budget
    with nullcontext() if limit is None else ctx.service.store.hold("daily budget"):  # no two may take the same rest
        reason = _over_daily_budget(ctx, limit, estimate)
        if reason is None:
            if request.account is not None:
                Credits(ctx.service.store, clock=ctx.clock).reserve(request.account, ctx.job.id, estimate)
                ctx.tell("progress", f"reserved ${estimate:.2f} from account {request.account}")
            ctx.go(JobState.RENTING, attempt=1)
            return
    ctx.tell("waiting", reason)
    ctx.post_problem("job_waiting", reason, "budget")
    ctx.clock.sleep(BUDGET_WAIT)


def _over_daily_budget(ctx: JobContext, limit: float | None, estimate: float) -> str | None:
    """Return why the job has to wait for another day; None if it need not."""
    if limit is None:
        return None
    now = ctx.clock.time()
    jobs = ctx.service.queue.list_jobs()
    today = spent_by((rental for job in jobs for rental in job.work.rentals), now, since=day_start(now))
    others = [job for job in jobs if job.state not in _UNPROMISED and not job.state.is_terminal]
    promised = sum(max(0.0, (job.work.estimate or 0.0) - spent_by(job.work.rentals, now).dollars) for job in others)
    return decide_daily_budget(limit, today, promised, estimate)


def rent(ctx: JobContext) -> None:
    """Rent a machine under the job's label: exactly one per attempt, even after a crash."""
    request, work = ctx.job.request, ctx.job.work
    rented = rent_instance(
        offer_query(request),
        ctx.label,
        image=request.image,
        bad_machines=work.bad_machines,
        bad_hosts=work.bad_hosts,
        create_timeout=ctx.service.config.create_timeout,
        asked_at=work.asked_at,
        on_asking=lambda offer: ctx.note(
            asked_at=ctx.clock.time(), asked_gpu=offer.gpu_name, asked_vram_gb=offer.vram_gb
        ),
        on_event=ctx.tell_waiting,
        store=ctx.service.store,
        **ctx.ways,
    )
    work = ctx.job.work
    rental = Rental(
        rented.id,
        work.attempt,
        rented.price_per_hour,
        work.asked_at or ctx.clock.time(),
        machine_id=rented.machine_id,
        gpu_name=work.asked_gpu or rented.gpu_name,
        host_id=rented.host_id,
        vram_gb=work.asked_vram_gb,
    )
    record_rental(ctx.service.store, ctx.job.id, rental)
    ctx.go(JobState.PREPARING, instance_id=rented.id)
    price = "at an unknown price" if rented.price_per_hour is None else f"for ${rented.price_per_hour:.2f} per hour"
    ctx.tell("started", f"instance {rented.id} rented: {rented.gpu_name or 'unknown GPU'} {price}")


def prepare(ctx: JobContext) -> None:
    """Wait until the machine accepts ssh; give it up if it does not."""
    assert ctx.rental
    if _has_other_gpu(ctx):
        return
    left = ctx.service.config.ready_timeout - (ctx.clock.time() - ctx.rental.started_at)
    try:
        wait_until_ready(str(ctx.job.work.instance_id), timeout=max(left, 30.0), on_event=ctx.tell_waiting, **ctx.ways)
    except (CommandFailed, InstanceNotFound, CommandTimedOut) as error:
        give_up_host(ctx, error.what)
        return
    ctx.forget_address()
    ctx.go(JobState.SYNCING)


def sync(ctx: JobContext) -> None:
    """Copy the dataset, the configuration and the newest checkpoint of an earlier machine."""
    request, target = ctx.job.request, ctx.target()
    pushes = [(request.dataset, ctx.dataset_dir)] if request.dataset else []
    if request.spec:
        local = os.path.join(ctx.local_folder, "config")
        os.makedirs(local, mode=0o700, exist_ok=True)
        config = format_training_config(request.spec, dataset=ctx.dataset_dir, output=ctx.output_dir)
        write_atomically(os.path.join(local, "training.yaml"), config)
        pushes.append((local, f"{ctx.folder}/config"))
    if ctx.job.work.saved_path:
        pushes.append((os.path.dirname(ctx.job.work.saved_path), ctx.checkpoint_dir))
    try:
        list_remote(ctx.site(), ctx.output_dir, make=True)  # the command starts above it
        for local, remote in pushes:
            tell = partial(tell_copying, ctx, local)
            report = push_folder(local, target, remote, on_progress=tell, **ctx.ways)
            said = f"{plural(report.files, 'file')}, {format_bytes(report.total_bytes)} verified on the machine"
            if report.hidden or report.empty:
                said += f"; left out: {report.hidden} hidden, {plural(report.empty, 'empty folder')}"
            ctx.tell("reached", f"{local}: {said} ({report.by})")
    except CommandFailed as error:
        give_up_instance(ctx, error.what)
        return
    ctx.go(JobState.CHECKING)


def tell_copying(ctx: JobContext, name: str, seen: SyncProgress) -> None:
    """Report the progress of a copy; raises Interrupted where the step should stop."""
    percent = 100 * seen.bytes // seen.total_bytes if seen.total_bytes else 100
    ctx.tell_progress(f"copying {os.path.basename(name)}: {percent}%, {seen.files}/{seen.total_files} files")
    ctx.check()


def check(ctx: JobContext) -> None:
    """Check that the machine is what was rented, by its listing and by its own answers."""
    if _has_other_gpu(ctx):
        return
    query, rental = offer_query(ctx.job.request), ctx.rental
    report = check_instance(
        ctx.target(),
        num_gpus=query.num_gpus,
        min_vram_gb=query.min_vram_gb,
        min_disk_gb=query.disk_gb * DISK_SHARE,
        folder=ctx.folder,
        gpu_name=rental.gpu_name if rental else None,
        vram_gb=rental.vram_gb if rental else None,
        transport=ctx.service.transport,
    )
    if not report.ok:
        give_up_host(ctx, "; ".join(report.problems))
        return
    ctx.go(JobState.TRAINING)


def _has_other_gpu(ctx: JobContext) -> bool:
    """Give the machine up if its listing contradicts what was rented."""
    now, rental = ctx.clock.time(), ctx.rental
    row = find_instance(str(ctx.job.work.instance_id), **ctx.ways)
    if row is None or rental is None:
        return False
    ctx.saw(row, now)
    problem = find_other_gpu(row, rental, offer_query(ctx.job.request).num_gpus)
    if problem is not None:
        give_up_host(ctx, problem)
    return problem is not None


def give_up_host(ctx: JobContext, reason: str) -> None:
    """Give up a machine that did not boot or is unfit, and avoid its host."""
    host = ctx.rental.host_id if ctx.rental else None
    bad = {*ctx.job.work.bad_hosts, *([] if host is None else [host])}
    give_up_instance(ctx, reason, bad_hosts=tuple(sorted(bad)))


def give_up_instance(ctx: JobContext, reason: str, **changes: Any) -> None:
    """Record that the machine is unfit or lost and is to be replaced."""
    text = f"giving up instance {ctx.job.work.instance_id}: {reason}"
    ctx.warn(text)
    ctx.post_problem("machine_lost", text, ctx.job.work.attempt)
    ctx.go(JobState.REPLACING, **changes)


def replace_instance(ctx: JobContext) -> None:
    """Destroy the machine and verify that it is gone; rent another one unless the limit of machines is reached."""
    destroy_rented(ctx)
    work = ctx.job.work
    if work.attempt >= ctx.job.request.max_instances:
        last = work.warnings[-1] if work.warnings else "it was lost"
        ctx.end(JobState.FAILED, f"tried {plural(work.attempt, 'machine')}, which is the maximum; {last}")
        return
    left = {each.machine_id for each in work.rentals if each.attempt == work.attempt and each.machine_id}
    bad = {*work.bad_machines, *left}
    ctx.go(JobState.RENTING, attempt=work.attempt + 1, asked_at=None, bad_machines=tuple(sorted(bad)))


def leave_to_others(ctx: JobContext) -> None:
    """Raise AlreadySupervised while a supervisor elsewhere holds the claim on the training on the job's machine.

    An unreachable machine counts as the job's own.
    """
    try:
        see_unclaimed(ctx.site(), ctx.run_name, ctx.service.store)
    except AlreadySupervised:
        raise
    except TrainingMonitorError as error:
        ctx.tell("progress", f"another supervisor may be supervising the training: {error.what}")


def destroy_rented(ctx: JobContext) -> None:
    """Destroy the job's machine, and verify that it is gone. Raises AlreadySupervised."""
    number = ctx.job.work.instance_id
    if number is None:
        return
    leave_to_others(ctx)
    destroy(ctx, number)
    ctx.note(instance_id=None)


def destroy(ctx: JobContext, number: int) -> None:
    """Destroy an instance, verify that it is gone, and report whether vast.ai acknowledged it."""
    done = destroy_instance(str(number), on_event=ctx.tell_waiting, store=ctx.service.store, **ctx.ways)
    ctx.tell("stopped", f"instance {number} is {'destroyed' if done.acknowledged else 'no longer listed'}")
