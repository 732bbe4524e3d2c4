"""Before a silent job is ended: what its checkpoints and its GPUs say."""

from __future__ import annotations

from training_monitor.policy.stagnation import BUSY_FACTOR, Stagnation, describe_stall, gpus_work, silence_limit
from training_monitor.probes.checkpoints import list_checkpoints
from training_monitor.probes.gpu import check_gpu_utilization
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport


def proof_of_stall(
    seen: Stagnation, threshold: float, checkpoint_dir: str, target: Target, transport: Transport | None
) -> str | None:
    """What the GPUs add to a stall; None when checkpoints or the GPUs say that the job works after all.

    A checkpoint that is being written, or just was, is the progress of a job that logs into a file of its own.
    """
    found = list_checkpoints(checkpoint_dir, target, transport=transport)
    if any(each.age is not None and each.age < silence_limit(seen.position, threshold) for each in found):
        return None
    gpus = check_gpu_utilization(target, timeout=5.0, transport=transport)
    if gpus_work(gpus) and not describe_stall(seen, BUSY_FACTOR * threshold):
        return None
    used = gpus["avg_utilization"]
    return "" if used is None else f"; GPUs {used:.0f} % busy"
