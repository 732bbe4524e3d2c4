"""The columns of a table of runs: titles, and what stands in them before anybody formats it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from training_monitor.policy.run_values import LOSSES, Estimate, RunRow, Scalar

MIB = 2.0**20
_WORDED = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}  # what JSON has no number for


def loss_of(row: RunRow) -> float | None:
    """The loss a run told last, by the first of LOSSES: nan and infinities are values, None is not known."""
    for name in LOSSES:
        loss = row.run.metrics.get(name)
        if isinstance(loss, str):
            loss = _WORDED.get(loss)
        if loss is not None and not isinstance(loss, bool):
            return float(loss)
    return None


def _estimate(part: Callable[[RunRow], Estimate], title: str) -> dict[str, Callable[[RunRow], Scalar]]:
    return {
        f"{title} Elapsed": lambda row: part(row).elapsed,
        f"{title} Remaining": lambda row: part(row).remaining,
        f"{title} Total": lambda row: part(row).total,
    }


# Title -> value. Times in seconds, CPU in per cent of one core, RAM in MB of 2**20 bytes, GPU in MiB, Rate in batches
# a second; None is not known.
DOCUMENTED: Mapping[str, Callable[[RunRow], Scalar]] = {
    "Run Name": lambda row: row.run.name,
    "Status": lambda row: row.status,
    "Phase": lambda row: row.run.phase,
    "Epoch": lambda row: row.run.epoch,
    "Batch": lambda row: row.run.batch,
    **_estimate(lambda row: row.run.run, "Run"),
    **_estimate(lambda row: row.run.epoch_time, "Epoch"),
    **_estimate(lambda row: row.run.training, "Train"),
    "Val Time": lambda row: row.run.validation_seconds,
    **_estimate(lambda row: row.run.validation, "Val"),
    "CPU": lambda row: row.cpu_percent,
    "RAM": lambda row: None if row.rss_bytes is None else row.rss_bytes / MIB,
    "GPU": lambda row: row.gpu_mib,
    "Procs": lambda row: row.processes,
    "Threads": lambda row: row.threads,
    "PID": lambda row: row.run.process.pid if row.run.process else None,
    "Wandb URL": lambda row: row.run.wandb_url,
}
ADDED: Mapping[str, Callable[[RunRow], Scalar]] = {
    "Rate": lambda row: row.rate,
    "Val Batch": lambda row: row.run.validation_batch,
    "Loss": loss_of,
    "ETA": lambda row: row.eta_seconds,
    "State": lambda row: None if row.verdict.state == "unknown" else row.verdict.state,
}
COLUMNS: Mapping[str, Callable[[RunRow], Scalar]] = {**DOCUMENTED, **ADDED}
