"""Settings of the training service: leases, intervals, limits and budgets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from training_monitor.core.fields import PublicValue
from training_monitor.core.settings_table import Example, check_fields, number, text, whole
from training_monitor.verdict.limits import OUTAGE_AFTER, AboveZero

MOST_JOBS_AT_ONCE = 64  # of one worker
_FOLDER = text("an absolute path of letters, digits, '.', '_' and '-'", r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+")


@dataclass(frozen=True, slots=True, repr=False)
class ServiceConfig(PublicValue):
    """Settings of the training service. Times are in seconds unless the name states another unit; money is in dollars.

    Attributes:
        lease_seconds: a worker that does not renew its lease for this long loses its job to the next worker.
        poll_interval: time between two checks of an idle queue.
        check_interval: time between two looks at a training.
        stagnation_threshold: a training without a new step for this long is restarted.
        max_retries: maximum number of consecutive restarts without progress.
        retry_delay: time before the first restart. It doubles with each further restart.
        retry_wait: time before the first retry of a failed step of the job. It doubles with each further retry.
        patience: a job that has no machine yet and cannot proceed fails after this long.
        save_interval: time between two copies of a checkpoint to the worker's machine.
        create_timeout: maximum time for the request that rents a machine.
        ready_timeout: maximum time until a rented machine accepts ssh connections. Then another machine is rented.
        remote_root: the folder on the machine that contains all files of a job.
        sweep_interval: time between two sweeps.
        max_runtime: the sweep destroys a machine that has run for longer, unless its job has its own limit
            (hard_timeout).
        stuck_after: the sweep ends a job that has made no progress for this long.
        abandoned_after: the sweep ends a job that has had a machine but no worker for this long.
        orphan_grace: how long an instance of ours may exist without a job before it is destroyed.
        unreachable_after: a machine counts as lost if it is listed as running but has been unreachable for this long.
        outage_after: a notice is sent when a machine, a service or the state folder has been unavailable for this long.
        daily_budget: limit for all jobs together per day (UTC); None: no limit.
        warn_hours_left: a notice is sent when the account's credit will last for at most this time; 0: never.
        failed_refund: share (0 to 1) of a failed job's charge that is refunded to its account.
    """

    lease_seconds: AboveZero = 60.0
    poll_interval: AboveZero = 10.0
    check_interval: AboveZero = 30.0
    stagnation_threshold: AboveZero = 600.0
    max_retries: Annotated[int, whole("a whole number, 0 or more", least=0)] = 5
    retry_delay: AboveZero = 60.0
    retry_wait: AboveZero = 10.0
    patience: AboveZero = 24 * 3600.0
    save_interval: AboveZero = 600.0
    create_timeout: AboveZero = 60.0
    ready_timeout: AboveZero = 900.0
    remote_root: Annotated[str, _FOLDER] = "/workspace/training_monitor"
    sweep_interval: AboveZero = 300.0
    max_runtime: AboveZero = 4 * 3600.0
    stuck_after: AboveZero = 7200.0
    abandoned_after: AboveZero = 1800.0
    orphan_grace: AboveZero = 600.0
    unreachable_after: AboveZero = 900.0
    outage_after: AboveZero = OUTAGE_AFTER
    daily_budget: Annotated[float, number("dollars, above 0", above=0), Example(100)] | None = None
    warn_hours_left: Annotated[float, number("hours, 0 or more", least=0)] = 12.0
    failed_refund: Annotated[float, number("a fraction from 0 to 1", least=0, most=1)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
