"""TrainingMetrics: all that is known of one training and its machine, their health, and the columns that show it. Pure.

None means unknown, never zero: an unknown value is neither healthy nor a reason for an alert.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import isfinite
from typing import Annotated, ClassVar

from training_monitor.core.fields import PublicValue
from training_monitor.core.masking import redact
from training_monitor.core.models import Gpu, Progress
from training_monitor.core.settings_table import Kind, check_fields, number
from training_monitor.core.units import average, format_duration, known_number
from training_monitor.core.values import KeptRollCall, LossAnalysis, Verdict
from training_monitor.fleet.columns import (
    FleetColumn,
    disk_listed,
    memory_listed,
    memory_seen,
    percent,
    positive,
    share,
)
from training_monitor.logs.job_progress import JobProgress, job_progress
from training_monitor.verdict.gpu_load import power_fraction
from training_monitor.verdict.judge import NOBODY_LOOKED, format_verdict

KEPT_LOGS = 10
MOST_REASON, MOST_WORD = 200, 40  # characters
STARTING = ("created", "loading", "pending", "scheduling")
FAILED = ("exited", "failed", "dead")
HALTED = ("stopped", "frozen", "rebooting")
ENDED = ("lost", "offline", "stopped", "succeeded", "finished", *FAILED)
KNOWN = ("running", "frozen", "rebooting", "unknown", *STARTING, *ENDED)
LEVELS = {"ok": "healthy", "warning": "warning", "unknown": "unknown", "failed": "error"}  # by verdict
AT_WORK = ("starting", "running", "slow")
_NUMBER = number("0 or more, or false to disable the check", least=0)
_Level = Annotated[float, Kind(_NUMBER.expected, lambda value, at: None if value is False else _NUMBER.read(value, at))]


@dataclass(frozen=True, slots=True, repr=False)
class Health(PublicValue):
    """The health of a row of a fleet: `level` is healthy | warning | error | unknown, and `reason` is a sentence.

    `brief` is the reason in about twenty characters; it is empty if there is nothing to report. `fields` are the fields
    of TrainingMetrics whose values determined the level. `detail` is displayed beside the row's state: it contains the
    reason without repeating the state.
    """

    level: str
    reason: str
    brief: str = ""
    fields: tuple[str, ...] = ()
    detail: str = ""

    @property
    def beside_state(self) -> str:
        """Return the text to display beside the row's state: the reason, without repeating the state."""
        return self.detail or self.reason


@dataclass(frozen=True, slots=True, repr=False)
class Thresholds(PublicValue):
    """The limits beyond which a value causes a warning. None disables a limit.

    Attributes:
        low_gpu: warn if the GPU utilization of a running training is below this percentage; of several GPUs, the least
            used one counts.
        high_loss: warn if the loss is above this value.
        full_disk: warn if more than this percentage of the disk is in use.
        price_rise: warn if the price of a machine has risen by more than this percentage.
    """

    low_gpu: _Level | None = 10.0
    high_loss: _Level | None = 10.0
    full_disk: _Level | None = 95.0
    price_rise: _Level | None = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(slots=True, repr=False)
class TrainingMetrics(PublicValue):
    """One row of a fleet: a training, its machine, and their cost. None means unknown.

    Attributes:
        instance_id: the ID of a vast.ai instance, or the display name of another target.
        gpu_type: the name reported by nvidia-smi or vast.ai; `8x H100` for several GPUs.
        status: for an instance, the status that vast.ai reports (created, loading, running, stopped, frozen, exited,
            rebooting, offline, unknown), or `lost` after it has disappeared from the account. For another target, the
            status of its job (pending, running, succeeded, failed, stopped), or unknown.
        epoch, total_epochs, step, total_steps, loss: the most recent values in the training's log. Steps are counted
            over the whole job.
        gpu_util, memory_util, disk_util: utilization of the GPUs, of their memory, and of the disk that the training
            writes to, in percent.
        cost_per_hour, total_cost: cost in dollars; the total counts from the start of the rental.
        runtime_seconds: how long the training itself has been running. The machine may have been rented for longer.
        started_at: when the rental began, in epoch seconds. last_updated: when the values were read, in epoch seconds.
        recent_logs: the last ten lines of the training's log, oldest first.
        key: `TARGET` or `TARGET#JOB`, unique in the fleet. name: the display name.
        groups: the groups that contain this row, as defined in the settings file.
        gpu_power: power draw divided by the power limit, 0 to 1. gpu_temperature: °C. ram_util: utilization of the
            machine's memory in percent.
        eta_seconds: time until the last step, at the training's current speed. epochs_done: completed epochs, including
            the fraction of the current one; `epoch` is the number of the current epoch.
        extra: values found by your own log patterns.
        is_running: whether the training's process is running. finished: whether `judge` concluded that it completed.
        job_status: status of the training's job in lower case; None if unknown. For a target that is not an instance,
            `job_status` usually equals `status`.
        message: the message of vast.ai or of the job.
        absent: the reason why the training can no longer be found; None if it was found. If `absent` is set, the other
            values are out of date.
        run: a number that distinguishes successive trainings on the same machine; 0: unknown.
        log_age: seconds from the last write to the training's log until the last look.
        error: why the last look failed. stale_since: the time of the first failed look after the last successful look,
            in epoch seconds; None if the last look succeeded. missing: whether the last look failed because the target
            does not exist.
        verdict: the result of `judge` for the training; None if the machine is not running, or if the row was not
            created by a fleet monitor.
        explained: the saved result of the last `why` that ran before this training (or an earlier attempt of it) was
            terminated because of a hang.
        found: whether the training was discovered on the machine of another row, which then contains the costs.
        gpus: the GPUs that the training uses, as reported by its machine; empty if unknown.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("name", "health_status", "status", "progress_percentage", "loss", "steps_per_second"),
        *("gpu_util", "cost_per_hour", "seconds_left"),
    )
    instance_id: int | str
    gpu_type: str | None
    status: str
    epoch: float | None = None
    total_epochs: int | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    gpu_util: float | None = None
    memory_util: float | None = None
    disk_util: float | None = None
    cost_per_hour: float | None = None
    total_cost: float | None = None
    runtime_seconds: float | None = None
    started_at: float | None = None
    last_updated: float | None = None
    recent_logs: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LOGS), repr=False)
    key: str = ""
    name: str = ""
    groups: tuple[str, ...] = ()
    gpu_power: float | None = None
    gpu_temperature: float | None = None
    ram_util: float | None = None
    steps_per_second: float | None = None
    eta_seconds: float | None = None
    epochs_done: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    is_running: bool | None = None
    finished: bool | None = None
    job_status: str | None = None
    loss_analysis: LossAnalysis | None = None
    message: str | None = None
    error: str | None = None
    stale_since: float | None = None
    absent: str | None = None
    run: int = 0
    log_age: float | None = None
    verdict: Verdict | None = None
    missing: bool = False
    explained: KeptRollCall | None = None
    found: bool = False
    gpus: tuple[Gpu, ...] = ()

    def state(self) -> str:
        """Return one word: the status of a machine or job that is down, otherwise the state of the verdict."""
        failure = failure_of(self)
        is_down = self.status in (*HALTED, *STARTING) or self.status not in KNOWN
        if is_down or (failure and self.status in ("lost", "offline", *FAILED)):
            return self.status
        if is_finished(self):
            return "finished"
        if failure or (self.verdict and self.verdict.state == "stopped"):
            return "failed" if failure else "stopped"
        if self.error is not None:
            return "missing" if self.missing else "unreachable"
        if self.absent is not None:
            return "absent"
        if has_nan(self):
            return "NaN"
        return self.verdict.state if self.verdict else self.status

    def lowest_gpu(self) -> float | None:
        """Return the utilization of the least used GPU in percent; None if there is only one GPU."""
        known = [percent(gpu.utilization) for gpu in self.gpus]
        return min((each for each in known if each is not None), default=None) if len(known) > 1 else None

    def progress_percentage(self) -> float | None:
        """Return the percentage of steps completed, or of epochs if the log has no steps; None if unknown."""
        fraction = self._job.fraction
        return None if fraction is None else 100.0 * fraction

    @property
    def _job(self) -> JobProgress:
        progress = Progress(
            step=self.step,
            total_steps=self.total_steps,
            epochs_done=self.epochs_done,
            total_epochs=self.total_epochs,
            steps_per_second=self.steps_per_second,
            eta_seconds=self.eta_seconds,
            eta_scope="job",
        )
        return job_progress(progress)

    def estimated_completion_time(self) -> timedelta | None:
        """Return the estimated time remaining until the last step; see `seconds_left`."""
        left = self.seconds_left()
        return None if left is None else timedelta(seconds=left)

    def seconds_left(self) -> float | None:
        """Return the estimated number of seconds until the last step; None if unknown.

        The result is None if the training has ended, may be hanging, or can no longer be found. The estimate is based
        on the training's speed, otherwise on the ETA in its log.
        """
        has_ended = self.is_running is False or self.finished or {self.status, self.job_status} & {*ENDED}
        may_hang = self.verdict is not None and self.verdict.state not in AT_WORK
        if has_ended or may_hang or self.absent is not None:
            return None
        return self._job.eta_seconds

    def health(self, thresholds: Thresholds = DEFAULT_THRESHOLDS, now: float | None = None) -> Health:
        """Return the health of the row, as determined by the first rule below that applies.

        1. The machine is not running, or this version does not recognize its status. Lost, exited, offline: error.
           Stopped, frozen, rebooting: warning. Created, loading, pending: unknown, because the machine is starting, or
           an error if it cannot start, for example because its image does not exist. Any unrecognized status: unknown.
        2. The training has ended, according to `judge`. Failed: error. Stopped: warning. Finished: healthy, or a
           warning if the machine still costs money.
        3. The last look failed. The health is unknown, because earlier values may be out of date.
        4. Otherwise, the verdict of `judge` determines the health. The health is unknown before the first look, or if
           the job or log cannot be found. A NaN loss is an error. A diverging, jumping or high loss, idle GPUs of a
           running training, or a full disk change the level from healthy to warning; if the level is already worse,
           they are only added to the reason.

        Args:
            thresholds: the limits beyond which a value causes a warning.
            now: the current time in epoch seconds. If `now` is given, the reason includes the time since the target
                last responded.
        """
        return (
            self._machine_health()
            or self._end_health()
            or self._stale_health(now)
            or self._add_warnings(self._training_health(), thresholds)
        )

    def health_status(self) -> str:
        """Return the level of `health` for the default thresholds: healthy, warning, error or unknown."""
        return self.health().level

    # ------------------------------------------------------------ the rules of `health`

    def _machine_health(self) -> Health | None:
        failure, at = failure_of(self), ("status",)
        if failure and self.status == "failed" and self.verdict is not None and self.verdict.state == "failed":
            return Health("error", failure, self._failed_as(), at)  # the message is of the job, which may be gone
        if failure and self.status in ("lost", "offline", *FAILED):
            detail = self.message or "" if self.status in FAILED else ""
            return Health("error", failure, "gone" if self.status == "lost" else detail or failure, at, detail)
        if self.status == "stopped":
            if costs := self._costs():
                return Health("warning", f"stopped, but its disk {costs}", "stopped, costs", at, f"its disk {costs}")
            return Health("warning", "stopped", "stopped", at)
        if self.status in HALTED:
            return Health("warning", f"the machine is {self.status}", self.status, at)
        if self.status in STARTING:
            from training_monitor.core.image_errors import cannot_start  # few machines start

            verdict = self.verdict  # of a machine that starts again, it may be that of a training that failed there
            is_stuck = verdict is not None and (verdict.state, verdict.verdict) == ("starting", "failed")
            is_stuck = is_stuck or (self.status != "pending" and cannot_start(self.message))
            why = redact(self.message or "") if is_stuck or self.status == "pending" else ""
            said = f"starting ({self.status}){why and f': {why}'}"[:MOST_REASON]
            if is_stuck:
                return Health("error", said, "cannot start", at, why)
            return Health("unknown", said, "starting", detail=why or "starting")
        if self.status not in KNOWN:
            word = redact(self.status)[:MOST_WORD]
            return Health(
                "unknown", f"status {word!r} is unknown to this version of training-monitor", "unknown status", at
            )
        return None

    def _end_health(self) -> Health | None:
        said, costs = self.verdict.reason if self.verdict else "", self._costs()
        price = f"{costs}: " if costs else ""  # first: what is behind may be cut
        brief, at = (", costs", ("cost_per_hour",)) if costs else ("", ())
        if is_finished(self):
            level = "warning" if costs else "healthy"
            return Health(level, f"{price}{said or 'finished'}"[:MOST_REASON], f"finished{brief}", at)
        if failure := failure_of(self):
            return Health("error", failure, self._failed_as(), ("status",))
        if self.verdict and self.verdict.state == "stopped":
            return Health("warning", f"{price}{said}"[:MOST_REASON], f"stopped{brief}", at)
        return None

    def _failed_as(self) -> str:
        """Return the failure's category, if the judge knows it."""
        failure = self.verdict.failure if self.verdict else None
        return "failed" if failure is None else f"failed: {failure.category.replace('_', ' ')}"[:MOST_WORD]

    def _stale_health(self, now: float | None) -> Health | None:
        if self.error is None:
            return None
        said, since = "not found" if self.missing else "no answer", ""
        if now is not None and self.stale_since is not None:
            since = format_duration(max(0.0, now - self.stale_since))
        reason = f"{said}{since and f' for {since}'}: {self.error}"[:MOST_REASON]
        return Health("unknown", reason, f"{said} {since}".rstrip())

    def _training_health(self) -> Health:
        if self.absent is not None:
            return Health("unknown", self.absent[:MOST_REASON], "no training found")
        seen = self._seen()
        if self.verdict is not None:
            state, verdict, confidence = self.verdict.state, self.verdict.verdict, self.verdict.confidence
            said, detail = format_verdict(self.verdict), self.verdict.reason
            if seen and (state, verdict, confidence) == ("running", "ok", "high"):
                said = detail = seen
            return Health(LEVELS[verdict], said[:MOST_REASON], *_brief(self.verdict), detail=detail[:MOST_REASON])
        return Health("healthy", seen) if seen else Health("unknown", NOBODY_LOOKED.reason, "not inspected")

    def _add_warnings(self, found: Health, thresholds: Thresholds) -> Health:
        """Add warnings to the reason; they never improve an error or unknown, except in a row made by hand."""
        if has_nan(self):
            if found.level != "error":
                detail = f"the loss is nan; {found.beside_state}"[:MOST_REASON]
                found = Health(
                    "error", f"the loss is nan; {found.reason}"[:MOST_REASON], "loss is nan", found.fields, detail
                )
            found = replace(found, brief=found.brief or "loss is nan", fields=("loss", *found.fields))
        warnings = list(self._warnings(thresholds))
        if not warnings:
            return found
        said, fields = "; ".join(each.reason for each in warnings), tuple(at for each in warnings for at in each.fields)
        is_by_hand = self.verdict is None and self.absent is None
        if found.level == "healthy" or (is_by_hand and found.level == "unknown"):
            detail = f"{said}; {found.beside_state}"[:MOST_REASON]
            return Health("warning", f"{said}; {found.reason}"[:MOST_REASON], warnings[0].brief, fields, detail)
        return replace(
            found,
            reason=f"{found.reason}; {said}"[:MOST_REASON],
            fields=(*found.fields, *fields),
            detail=f"{found.beside_state}; {said}"[:MOST_REASON],
        )

    def _warnings(self, thresholds: Thresholds) -> Iterator[Health]:
        analysis = self.loss_analysis
        if analysis is not None and analysis.kind in ("divergence", "spike"):
            brief = "loss diverges" if analysis.kind == "divergence" else "loss jumped"
            yield Health("warning", analysis.reason, brief, ("loss",))
        if _is_above(self.loss, thresholds.high_loss) and not has_nan(self):
            yield Health("warning", f"the loss of {self.loss:.4g} is high", f"loss {self.loss:.4g}", ("loss",))
        if self.status == "running":
            yield from self._idle_gpus(thresholds)
        if is_full(self, thresholds):
            said = f"disk {self.disk_util:.0f} % full"
            yield Health("warning", said, said, ("disk_util",))

    def _idle_gpus(self, thresholds: Thresholds) -> Iterator[Health]:
        """Warn of GPUs below the threshold: of the mean, or of the least used one where the mean hides it."""
        lowest = self.lowest_gpu()
        if _is_above(thresholds.low_gpu, self.gpu_util):
            used = f"{self.gpu_util:.0f} %"
            yield Health("warning", f"GPU at only {used}", f"GPU at {used}", ("gpu_util",))
        elif lowest is not None and _is_above(thresholds.low_gpu, lowest):
            number = next(gpu.index for gpu in self.gpus if percent(gpu.utilization) == lowest)
            which = "a GPU" if number is None else f"GPU {number}"
            said = f"{which} at only {lowest:.0f} %, {self.gpu_util or 0:.0f} % on average"
            yield Health("warning", said, f"{which} at {lowest:.0f} %", ("lowest_gpu",))

    def _seen(self) -> str | None:
        """Return the progress in the row, which a verdict may lag by half a minute; None without any."""
        if self.step is not None:
            return f"step {self.step} of {self.total_steps}" if self.total_steps else f"step {self.step}"
        if self.epoch is not None:
            return f"epoch {self.epoch:g} of {self.total_epochs}" if self.total_epochs else f"epoch {self.epoch:g}"
        return None if self.loss is None else f"loss {self.loss:.4g}"

    def _costs(self) -> str:
        return f"costs ${self.cost_per_hour:.3f}/h" if self.cost_per_hour else ""


def _brief(verdict: Verdict) -> tuple[str, tuple[str, ...]]:
    """Return a verdict in some twenty characters, and the fields that it is about."""
    silence = verdict.seconds_without_step
    if verdict.state == "stalled":
        return "stalled" if silence is None else f"no step for {format_duration(silence)}", ("step",)
    if verdict.state == "slow":
        return "slow", ("steps_per_second",)
    return "" if verdict.state in AT_WORK else verdict.state, ()


# ---------------------------------------------------------------- shared with alerts


def is_finished(metrics: TrainingMetrics) -> bool:
    """Return whether the training completed."""
    return bool(metrics.finished) and metrics.status != "lost"


def failure_of(metrics: TrainingMetrics) -> str | None:
    """Return why a training does not go on although it neither finished nor was stopped; None if unknown."""
    said = f": {metrics.message}" if metrics.message else ""
    if metrics.status == "lost":
        return (metrics.error or "it is no longer in the account")[:MOST_REASON]
    if metrics.status == "offline":
        return f"the machine is offline{said}"[:MOST_REASON]
    if is_finished(metrics) or "stopped" in (metrics.status, metrics.job_status):
        return None
    if metrics.verdict is not None and metrics.verdict.state == "failed":
        return metrics.verdict.reason[:MOST_REASON]
    failed = next((each for each in (metrics.status, metrics.job_status) if each in FAILED), None)
    return f"{failed}{said}"[:MOST_REASON] if failed else None


def end_with_machine(metrics: TrainingMetrics) -> str | None:
    """Return the state of a training whose machine or job has ended: failed or stopped; None if it may go on.

    Of a machine that is offline nobody knows whether its training goes on.
    """
    if metrics.status == "stopped":
        return "stopped"
    return "failed" if metrics.status != "offline" and failure_of(metrics) else None


def has_nan(metrics: TrainingMetrics) -> bool:
    """Return whether the newest loss is nan or infinite."""
    loss, analysis = metrics.loss, metrics.loss_analysis
    return (loss is not None and not isfinite(loss)) or (analysis is not None and analysis.kind == "nan")


def is_full(metrics: TrainingMetrics, thresholds: Thresholds) -> bool:
    """Return whether the disk is above its threshold."""
    return _is_above(metrics.disk_util, thresholds.full_disk)


def _is_above(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


# ---------------------------------------------------------------- the columns


# In the order of the terminal's menu of orders, which but for `beside` is that of its columns from left to right.
FLEET_COLUMNS = (
    FleetColumn("name", "NAME", "text", align="<", widths={10: 10, 104: 28, 152: 40, 190: 64}, letter="n"),
    FleetColumn("instance_id", "ID", "text", align="<", widths={128: 8, 192: 14, 245: 22, 279: 34}, letter="i"),
    FleetColumn("state", "STATUS", "text", align="<", widths={25: 14}, letter="s",
                page=(10, "Status", "status of the machine or job, or the verdict", 1)),
    FleetColumn("gpu_type", "GPU", "text", align="<", widths={81: 8, 218: 12}, optional=True, letter="c",
                page=(20, "GPU", "type and number of GPUs", 2)),
    FleetColumn("progress_percentage", "PROGRESS", "percent", "log",
                align="<", widths={34: 8, 175: 15, 227: 24}, letter="p",
                page=(30, "Progress", "epoch, and percentage of steps done", 0),
                metric=("progress_ratio", "Completed fraction of the training.")),
    FleetColumn("epoch", "", "{:g}", "log", "epoch", 7, "last",
                metric=("epoch", "The epoch number that the log shows.")),
    FleetColumn("gpu_util", "GPU%", "percent", "machine", "gpu_utilization", 0,
                seen=lambda reading: percent(average(gpu.utilization for gpu in reading.gpus)),
                listed=lambda listed: percent(listed.get("gpu_util")),
                widths={39: 4}, optional=True, letter="u", page=(60, "GPU %", "utilization of the GPUs", 1),
                fact=("GPU use", "{} %"), metric=("gpu_utilization_ratio", "Mean utilization of the GPUs.")),
    FleetColumn("lowest_gpu", "LOW%", "percent", "machine", "lowest_gpu_utilization", 16,
                widths={44: 4}, optional=True, letter="b",
                page=(65, "Low %", "lowest utilization among several GPUs", 1),
                fact=("GPU low", "{} %"),
                metric=("gpu_lowest_utilization_ratio", "Lowest utilization among several GPUs.")),
    FleetColumn("memory_util", "MEM%", "percent", "machine", "memory_utilization", 1,
                seen=memory_seen, listed=memory_listed,
                widths={86: 4}, optional=True, letter="m", falling=True, page=(70, "Mem %", "GPU memory in use", 2),
                fact=("GPU use", "memory {} %"),
                metric=("gpu_memory_utilization_ratio", "Fraction of the GPU memory that is in use.")),
    FleetColumn("disk_util", "DISK%", "percent", "machine", "disk_utilization", 2,
                seen=lambda reading: percent(reading.disk_percent), listed=disk_listed,
                widths={140: 5}, optional=True, letter="d", falling=True,
                page=(80, "Disk %", "use of the disk that the training writes to", 2), fact=("in use", "disk {} %"),
                metric=("disk_utilization_ratio", "Fraction of space in use on the disk that the training writes to.")),
    FleetColumn("ram_util", "RAM%", "percent", "machine", "ram_utilization", 3,
                seen=lambda reading: percent(reading.ram_percent),
                listed=lambda listed: share(positive(listed.get("mem_usage")), positive(listed.get("mem_limit"))),
                widths={255: 4}, optional=True, letter="r", falling=True, fact=("in use", "RAM {} %"),
                metric=("memory_utilization_ratio", "Fraction of the machine's memory that is in use.")),
    FleetColumn("gpu_temperature", "TEMP", "{:.0f}", "machine", "gpu_temperature", 5,
                seen=lambda reading: max(
                    (each.temperature_celsius for each in reading.gpus if each.temperature_celsius is not None),
                    default=None),
                listed=lambda listed: known_number(listed.get("gpu_temp")),
                widths={250: 4}, cell="{}C", optional=True, letter="y", falling=True,
                page=(90, "Temp", "temperature of the hottest GPU", 2), fact=("GPU heat", "{} C"),
                metric=("gpu_temperature_celsius", "Temperature of the hottest GPU.")),
    FleetColumn("gpu_power", "", "share", "machine", "gpu_power", 4,
                seen=lambda reading: average(map(power_fraction, reading.gpus)), fact=("GPU heat", "power {} %"),
                metric=("gpu_power_ratio", "Mean power draw of the GPUs as a fraction of the power limit.")),
    FleetColumn("loss", "LOSS", "number", "log", "loss", 8,
                widths={65: 6}, letter="l", falling=True, page=(40, "Loss", "most recent loss in the log", 1),
                fact=("loss", "{}"), metric=("loss", "The loss; NaN if the log shows NaN.")),
    FleetColumn("step", "STEP", "{:.0f}", "log", "step", 6, "last",
                beside="PROGRESS", widths={214: 13}, letter="x", metric=("step", "The optimizer step.")),
    FleetColumn("loss", "TREND", align="<", heading="LOSS TREND", widths={186: 10, 237: 20}),
    FleetColumn("steps_per_second", "STEPS/S", "number", "machine", "steps_per_second", 11,
                widths={160: 7}, optional=True, letter="v", page=(50, "Steps/s", "optimizer steps per second", 1),
                fact=("speed", "{} steps/s"),
                metric=("steps_per_second", "Steps per second, if the training is making progress.")),
    FleetColumn("learning_rate", "", "number", "log", "learning_rate", 9, "last",
                fact=("LR", "{}"), metric=("learning_rate", "The learning rate.")),
    FleetColumn("grad_norm", "", "number", "log", "grad_norm", 10,
                fact=("LR", "gradient norm {}"), metric=("gradient_norm", "The norm of the gradient.")),
    FleetColumn("cost_per_hour", "$/H", "price", "account", "cost_per_hour", 13, "last",
                widths={51: 6}, optional=True, letter="h", falling=True, page=(100, "$/h", "price of the machine", 1),
                fact=("price", "{}/h"), metric=("price_dollars_per_hour", "Price of the rented machine.")),
    FleetColumn("total_cost", "TOTAL", "total", "account", "total_cost", 14, "last",
                widths={72: 6}, optional=True, letter="t", falling=True,
                page=(110, "Total", "cost since the rental began", 2), fact=("price", "so far {}"),
                metric=("cost_dollars", "Cost of the rented machine since its rental began.")),
    FleetColumn("runtime_seconds", "", "duration", "machine", "runtime_seconds", 15, "last",
                metric=("runtime_seconds", "Time since the training began.")),
    FleetColumn("seconds_left", "ETA", "duration", "machine", "eta_seconds", 12, "last",
                widths={58: 6}, letter="e", page=(120, "ETA", "estimated time until the final step", 1),
                metric=("remaining_seconds", "Estimated remaining time of the training.")),
    FleetColumn("health_status", "HEALTH", "text",
                align="<", widths={119: 14, 134: 20, 168: 28, 200: 36, 267: 48}, letter="w"),
)  # fmt: skip
