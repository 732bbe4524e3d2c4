"""The tools that only look: their names, arguments and docstrings are what a client sees.

A function of the library is called as it is; where a command makes the document, the command is run.
"""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.agents.mcp.answers import Table
from training_monitor.agents.mcp.calls import options, positional, run_command
from training_monitor.agents.mcp.documents import ROWS, TABLE, TEXTS, LogReading, functions_in, tells
from training_monitor.core.models import Failure
from training_monitor.core.reports import (
    CheckReport,
    EfaClusterReport,
    GpuReport,
    RayResourcesReport,
)
from training_monitor.rent.dataset import DatasetReport
from training_monitor.why.report import ExplanationReport


def check_training(
    target: str = "local", what: str | None = None, namespace: str = "default", stall_after: float | None = None
) -> CheckReport:
    """Say whether trainings make progress: finds all on a target, or looks at one. Begin here.

    Read `verdict` (ok, warning, failed, unknown), then `state`, `reason` and `remedies` of each of `jobs`. unknown
    means could not be told, not failed: look again in a minute. null is not known, never 0.

    Args:
        what: a PID, a log file or pattern, a Ray submission id, process:NAME, or a name. Default: all that is found.
        stall_after: seconds without a step that are a stall. Default: by the evidence.
    """
    from training_monitor.look.check import check_training

    return check_training(target, what, namespace, stagnation_threshold=stall_after)


def explain_training(
    target: str = "local",
    what: str | None = None,
    also: Sequence[str] = (),
    timeout: float = 20.0,
    stacks: bool = False,
    namespace: str = "default",
) -> ExplanationReport:
    """Say why a training hangs: looks at all its ranks, and names the one that the others wait for. Reads only.

    It takes up to `timeout` seconds. Read `explanation` and `confidence` (none: not known), then `culprits`, `findings`
    and `remedies`; `unknown` is what could not be read. Of a training that was ended already, check_training has the
    `explanation`.

    Args:
        target: {TARGET}. The other pods of its training are found.
        what: as in check_training. Default: the only training there.
        also: other targets with ranks of the same training, such as further ssh hosts.
        timeout: seconds for all of it, at least 5.
        stacks: with the stacks of all threads of each rank. Default: `where` tells where its main thread is.
        namespace: of bare pod names.
    """
    from training_monitor.why import explain_training

    report = explain_training(target, what, namespace, also=also, timeout=timeout)
    return report if stacks else {**report, "ranks": [_without_stacks(each) for each in report["ranks"]]}


def _without_stacks(rank: Table) -> Table:
    children = [{**each, "stacks": []} for each in rank["children"]]
    return {**rank, "stacks": [], "children": children}


@tells(target=str, jobs=ROWS, not_seen=ROWS)
def list_jobs(target: str = "local", namespace: str = "default") -> Table:
    """List the Ray jobs and process jobs of a target, each with its verdict."""
    return run_command("status", *options(namespace=namespace), *positional(target=target))


@tells(target=str, jobs=ROWS, not_seen=ROWS)
def job_status(target: str, job: str, namespace: str = "default") -> Table:
    """Look at one job: its status, step, verdict, supervisor, and the kind of its failure."""
    return run_command("status", *options(namespace=namespace), *positional(target=target, job=job))


@tells(job_id=str, text=str)
def job_logs(target: str, job: str, tail: int = 50, namespace: str = "default") -> Table:
    """Read the end of a job's log.

    Args:
        tail: how many lines.
    """
    return run_command("logs", *options(namespace=namespace, tail=tail), *positional(target=target, job=job))


@tells(
    verdict=str, healthy=bool, issues=TEXTS, remedies=TEXTS, silent=TEXTS, gpu=TABLE, efa=TABLE, checkpoints=TABLE,
    ray=TABLE, job=TABLE | None, pods=ROWS, disk=ROWS,
)  # fmt: skip
def check_health(
    target: str,
    pods: Sequence[str] = (),
    checkpoint_dir: str | None = None,
    job: str | None = None,
    namespace: str = "default",
) -> Table:
    """Report on GPUs, network, checkpoints, Ray, pods and disks, with one verdict, issues and remedies.

    Args:
        target: the head pod, or any other target.
        pods: all pods of the job.
        checkpoint_dir: a folder on the target. Default: found, if it can be.
        job: also report on this job.
        namespace: of bare pod names.
    """
    named = positional(target=target, pods=pods)
    words = options(namespace=namespace, checkpoint_dir=checkpoint_dir, job=job)
    return run_command("health", named[0], *words, *(["--pods", *named[1:]] if pods else []))


def check_gpus(target: str = "local", namespace: str = "default") -> GpuReport:
    """Read the GPUs of a target: utilization, memory, power, temperature, errors, processes."""
    from training_monitor.look import check_gpu_utilization

    return check_gpu_utilization(target, namespace)


def check_efa(target: str, pods: Sequence[str] = (), namespace: str = "default") -> EfaClusterReport:
    """Tell whether NCCL uses EFA or fell back to TCP. efa_active null: nothing shows it (set NCCL_DEBUG=INFO).

    Args:
        target: the head pod, or any other target.
        pods: all pods of the job.
        namespace: of bare pod names.
    """
    from training_monitor.look import check_efa_utilization

    return check_efa_utilization(target, namespace, all_pods=pods)


def check_ray_resources(target: str, namespace: str = "default") -> RayResourcesReport:
    """Read how many GPUs and CPUs of a Ray cluster are used, and what waits for some.

    Args:
        target: the head pod, or any other target with Ray.
    """
    from training_monitor.look import verify_ray_resources

    return verify_ray_resources(target, namespace)


@tells(checkpoints=ROWS, checkpoint=TABLE | None, unlisted_checkpoints=int)
def list_checkpoints(target: str, directory: str, namespace: str = "default") -> Table:
    """List the checkpoints of a folder: which are complete, which are damaged and why, and the latest complete one.

    Args:
        directory: a folder on the target.
    """
    return run_command("checkpoints", *options(namespace=namespace), *positional(target=target, directory=directory))


@tells(
    is_running=bool | None, step=int | None, total_steps=int | None, progress=float | None, loss=float | None,
    verdict=str, state=str, reason=str, checkpoints=ROWS | None, errors=TEXTS, end=str | None,
)  # fmt: skip
def look_at_training(
    target: str,
    what: str | None = None,
    log: str | None = None,
    pid_file: str | None = None,
    output_dir: str | None = None,
    namespace: str = "default",
) -> Table:
    """Look once at a training that somebody else started: progress, verdict, checkpoints.

    Args:
        what: a PID, a log file or pattern, a job or a name. Default: the one training that runs there.
        log: what the training writes, instead of `what`.
        pid_file: the file with its pid, with `log`.
        output_dir: the folder of its checkpoints. Default: found, if it can be.
    """
    words = options(once=True, namespace=namespace, log=log, pid_file=pid_file, output_dir=output_dir)
    return run_command("watch", *words, *positional(target=target, what=what))


@tells(verdict=str, timestamp=float, members=ROWS, summary=TABLE, alerts=ROWS, error=str | None)
def list_fleet(targets: Sequence[str] = (), group: str | None = None, namespace: str = "default") -> Table:
    """Look at many trainings at once: step, loss, GPUs, cost and alerts of each.

    Args:
        targets: TARGET, TARGET#JOB, TARGET#LOG, or groups of the settings file. Default: all groups.
        group: only the members of this group.
        namespace: of bare pod names.
    """
    return run_command("fleet", *options(namespace=namespace, group=group), *positional(targets=targets))


@tells(verdict=str, timestamp=float, members=ROWS, summary=TABLE, alerts=ROWS, error=str | None)
def list_vast(instances: Sequence[int] = (), mock: bool = False) -> Table:
    """Look at the trainings on all running vast.ai instances: step, loss, GPUs, cost and alerts of each.

    Args:
        instances: only these.
        mock: made-up instances, which need no account.
    """
    chosen = ",".join(map(str, instances)) or None
    return run_command("vast", *options(instances=chosen, mock=mock))


@tells(verdict=str, runs=ROWS, usage=TABLE, where=str, error=str | None)
def list_runs(folder: str, namespace: str = "default") -> Table:
    """Look at runs that write progress files with TrainingMonitor: how far, at what speed, which stall or are dead.

    Args:
        folder: with the progress files: {FOLDER}.
    """
    return run_command("top", *options(namespace=namespace, once=True), *positional(folder=folder))


@tells(members=ROWS)
def show_history(
    members: Sequence[str] = (), since: str = "24h", until: str | None = None, fields: Sequence[str] = ()
) -> Table:
    """Show what was seen of trainings in the past: first, last, low, high and trend of each field, and the cost.

    Args:
        members: keys of members, such as vast://30007012, or parts of them. Default: all, the newest values only.
        fields: only these, such as loss or gpu_utilization.
    """
    return run_command("history", *options(since=since, until=until, field=list(fields)), *positional(members=members))


@tells(members=ROWS)
def compare_runs(members: Sequence[str] = (), since: str = "24h", until: str | None = None) -> Table:
    """Compare trainings over the steps that all have reached: loss, speed, cost."""
    return run_command("history", "--compare", *options(since=since, until=until), *positional(members=members))


@tells(days=TEXTS, members=ROWS, groups=ROWS, all=TABLE)
def cost_by_day(members: Sequence[str] = (), since: str = "7d", until: str | None = None) -> Table:
    """Say what each training, each group and all together cost on each day, in dollars."""
    return run_command("history", "--cost", *options(since=since, until=until), *positional(members=members))


@tells(instances=ROWS, cost_per_hour=float, cost_unknown=int)
def list_instances() -> Table:
    """List what is rented at vast.ai, for which training, and what it costs."""
    return run_command("rent", "instances")


@tells(offers=ROWS, found=int, query=TABLE, loosen=TABLE)
def list_offers(
    gpu: Sequence[str] = (),
    max_price: float | None = None,
    min_vram: float | None = None,
    disk: float | None = None,
    limit: int = 10,
    bid: bool = False,
) -> Table:
    """List what is for rent at vast.ai, best first; without offers, which wish is in the way.

    Args:
        gpu: names such as 4090, most wanted first.
        max_price: dollars per hour, with the disk.
        min_vram: GB of each GPU.
        disk: GB.
        limit: at most so many.
        bid: cheaper machines that may be taken away at any time.
    """
    words = options(gpu=list(gpu), max_price=max_price, min_vram=min_vram, disk=disk, limit=limit, bid=bid)
    return run_command("rent", "offers", *words)


@tells(credit=float, balance=float | None, forecast=TABLE | None, account=str, movements=ROWS, error=str | None)
def show_credits(account: str | None = None) -> Table:
    """Show the credit at vast.ai and how long it lasts, or an account of the ledger here.

    Args:
        account: of the ledger. Default: vast.ai's own.
    """
    return run_command("rent", "credits", *positional(account=account))


@tells(private_key=str, public_key=str, registered=bool, open_to_others=bool)
def check_ssh_key() -> Table:
    """Check whether rented machines will let this machine's ssh key in."""
    return run_command("rent", "keys")


@tells(jobs=ROWS)
def list_queue(ended: bool = False) -> Table:
    """List the trainings on rented machines: state, step, machine, cost.

    Args:
        ended: also those that have ended.
    """
    return run_command("rent", "queue", *options(all=ended))


@tells(jobs=ROWS)
def show_queued(job: str) -> Table:
    """Show one training on rented machines: state, reason, warnings, machines, uploads, cost.

    Args:
        job: its id.
    """
    return run_command("rent", "queue", *positional(job=job))


@tells(instances_checked=int | None, planned=ROWS, terminated=ROWS, kept=ROWS, foreign=ROWS, alerts=ROWS, errors=ROWS)
def plan_sweep() -> Table:
    """Say which rented instances no training needs. Nothing is destroyed."""
    return run_command("rent", "sweep")


@tells(notices=ROWS)
def list_notices(job: str | None = None) -> Table:
    """List the notices that were sent.

    Args:
        job: only those about this job.
    """
    return run_command("notify", "--list", *options(job=job))


def check_dataset(
    path: str, min_images: int = 10, require_captions: bool = False, trigger: str | None = None
) -> DatasetReport:
    """Check a folder of images and captions on this machine for a training.

    Args:
        path: the folder.
        min_images: fewer are an error.
        require_captions: an image without a caption is an error.
        trigger: a word that captions have to hold.
    """
    from training_monitor.rent.dataset import validate_dataset

    return validate_dataset(path, min_images=min_images, require_captions=require_captions, trigger=trigger)


@tells(checks=ROWS)
def run_doctor(targets: Sequence[str] = ()) -> Table:
    """Say which tools, contexts and keys work on this machine, and what mends those that do not.

    Args:
        targets: also see whether these answer.
    """
    return run_command("doctor", *positional(targets=targets))


@tells(file=str, problems=ROWS, counts=dict[str, int])
def check_config(file: str | None = None) -> Table:
    """Check the settings file: all that is wrong in it, by line.

    Args:
        file: default: the one that is read.
    """
    return run_command("config", "--check", *options(file=file))


def classify_failure(text: str, exit_code: int | None = None) -> Failure:
    """Say why a job failed, by the end of its log: category, the decisive line, and whether a restart can help.

    Args:
        text: the end of the log.
        exit_code: the exit status as a shell reports it (137 is SIGKILL).
    """
    from training_monitor.verdict.failure import classify_failure

    return classify_failure(text, exit_code=exit_code)


def read_log(text: str) -> LogReading:
    """Read the newest progress from the text of a log: step, epoch, loss, speed, time left.

    Args:
        text: the log, or its end.
    """
    from training_monitor.core.frozen import asdict
    from training_monitor.logs import load_log_patterns, parse_metrics, parse_progress

    return {"progress": asdict(parse_progress(text)), "metrics": parse_metrics(text, load_log_patterns())}


READS = functions_in(globals())
