"""How the training service works through its queue: leases, intervals, limits and budgets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from training_monitor.errors import SettingsError, closest
from training_monitor.policy.watch_config import OUTAGE_AFTER
from training_monitor.units import known_number

MOST_JOBS_AT_ONCE = 64  # of one worker
_FOLDER = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+")
_NOT_SECONDS = ("max_retries", "remote_root", "daily_budget", "warn_hours_left", "failed_refund")


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Times in seconds unless the name says more, money in dollars.

    Attributes:
        lease_seconds: a worker that was not heard of for so long has lost its job to the next one.
        poll_interval: between two looks at a queue that has nothing to do.
        check_interval: between two looks at a training.
        stagnation_threshold: without a new step for so long, a training is started again.
        max_retries: how often it is started again without progress in between.
        retry_delay: before a training is started again; it doubles with every time.
        retry_wait: before a step that could not be done is tried again; it doubles with every time.
        patience: a job that has no machine yet, and cannot get on, is ended after so long.
        save_interval: between two copies of a checkpoint to the worker's machine.
        create_timeout: for the request that rents a machine.
        ready_timeout: until a rented machine lets ssh in; after it another one is taken.
        remote_root: the folder on the machine in which all of a job lies.
        sweep_interval: between two sweeps.
        max_runtime: a machine that runs longer is destroyed by the sweep, unless its job may take longer.
        stuck_after: a job that made no progress for so long is ended by the sweep.
        orphan_grace: how long a machine of ours may be without a job before it is destroyed.
        unreachable_after: a machine that is listed as running and cannot be reached for so long counts as lost.
        outage_after: what could not be asked for so long, and a state folder that could not be used, is told.
        daily_budget: what all jobs together may spend in a day, UTC; None: there is no limit.
        warn_hours_left: somebody is told when the account's credit lasts no longer than this; 0: nobody is.
        failed_refund: the share (0 to 1) of what a failed job was charged that its account gets back.
    """

    lease_seconds: float = 60.0
    poll_interval: float = 10.0
    check_interval: float = 30.0
    stagnation_threshold: float = 600.0
    max_retries: int = 5
    retry_delay: float = 60.0
    retry_wait: float = 10.0
    patience: float = 24 * 3600.0
    save_interval: float = 600.0
    create_timeout: float = 60.0
    ready_timeout: float = 900.0
    remote_root: str = "/workspace/training_monitor"
    sweep_interval: float = 300.0
    max_runtime: float = 4 * 3600.0
    stuck_after: float = 7200.0
    orphan_grace: float = 600.0
    unreachable_after: float = 900.0
    outage_after: float = OUTAGE_AFTER
    daily_budget: float | None = None
    warn_hours_left: float = 12.0
    failed_refund: float = 0.0

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name not in _NOT_SECONDS):
            if (known_number(getattr(self, name)) or 0.0) <= 0:
                raise SettingsError(name, getattr(self, name), "seconds, above 0")
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise SettingsError("max_retries", self.max_retries, "a whole number, from 0")
        if not isinstance(self.remote_root, str) or not _FOLDER.fullmatch(self.remote_root):
            raise SettingsError(
                "remote_root", self.remote_root, "a folder from / on, of letters, digits, '.', '_', '-'"
            )
        if self.daily_budget is not None and (known_number(self.daily_budget) or 0.0) <= 0:
            raise SettingsError("daily_budget", self.daily_budget, "dollars, above 0")
        if (hours := known_number(self.warn_hours_left)) is None or hours < 0:
            raise SettingsError("warn_hours_left", self.warn_hours_left, "hours, from 0")
        if (share := known_number(self.failed_refund)) is None or not 0 <= share <= 1:
            raise SettingsError("failed_refund", self.failed_refund, "a share, 0 to 1")


def read_service_config(*tables: Mapping[str, Any]) -> ServiceConfig:
    """A configuration out of tables such as a settings file has; a later one overrides, None is not given.

    Raises:
        SettingsError: a value makes no sense, or a key is none.
    """
    values: dict[str, Any] = {}
    for table in tables:
        if not isinstance(table, Mapping):
            raise SettingsError("service", table, "a table")
        values.update({key: value for key, value in table.items() if value is not None})
    names = [each.name for each in fields(ServiceConfig)]
    if unknown := [key for key in values if key not in names]:
        raise SettingsError("setting of the service", unknown[0], closest(unknown[0], names))
    return ServiceConfig(**values)
