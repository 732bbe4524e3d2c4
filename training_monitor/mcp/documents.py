"""The documents of tools that answer what a command prints with `--json`: its most important keys. Pure.

A document may have more keys, and lack some: an unknown reading is null, never 0.
"""

from __future__ import annotations

from typing import Any, TypedDict


class CommandDocument(TypedDict, total=False):
    """`exit_status`: 0 ok, 1 bad or failed, 3 unknown (then `said` tells why)."""

    exit_status: int
    said: str


class JobsDocument(CommandDocument, total=False):
    target: str
    jobs: list[dict[str, Any]]
    not_seen: list[dict[str, Any]]


class StepDocument(CommandDocument, total=False):
    job_id: str
    step: int | None
    total_steps: int | None
    progress: float | None
    loss: float | None
    steps_per_second: float | None
    eta_seconds: float | None


class LogDocument(CommandDocument, total=False):
    job_id: str
    text: str


class HealthDocument(CommandDocument, total=False):
    verdict: str
    healthy: bool
    issues: list[str]
    remedies: list[str]
    silent: list[str]
    gpu: dict[str, Any]
    efa: dict[str, Any]
    checkpoints: dict[str, Any]
    ray: dict[str, Any]
    job: dict[str, Any] | None
    pods: list[dict[str, Any]]
    disk: list[dict[str, Any]]


class CheckpointsDocument(CommandDocument, total=False):
    checkpoints: list[dict[str, Any]]
    checkpoint: dict[str, Any] | None
    unlisted_checkpoints: int


class WatchDocument(CommandDocument, total=False):
    is_running: bool | None
    step: int | None
    total_steps: int | None
    progress: float | None
    loss: float | None
    verdict: str
    state: str
    reason: str
    checkpoints: list[dict[str, Any]] | None
    errors: list[str]
    end: str | None


class FleetDocument(CommandDocument, total=False):
    verdict: str
    timestamp: float
    members: list[dict[str, Any]]
    summary: dict[str, Any]
    alerts: list[dict[str, Any]]
    error: str | None


class RunsDocument(CommandDocument, total=False):
    verdict: str
    runs: list[dict[str, Any]]
    usage: dict[str, Any]
    where: str
    error: str | None


class HistoryDocument(CommandDocument, total=False):
    members: list[dict[str, Any]]


class ComparisonDocument(CommandDocument, total=False):
    members: list[dict[str, Any]]


class CostDocument(CommandDocument, total=False):
    """Dollars by day: `at_least` where not every machine was watched all the time."""

    days: list[str]
    members: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    all: dict[str, Any]


class InstancesDocument(CommandDocument, total=False):
    instances: list[dict[str, Any]]
    cost_per_hour: float
    cost_unknown: int


class OffersDocument(CommandDocument, total=False):
    offers: list[dict[str, Any]]
    found: int
    query: dict[str, Any]
    loosen: dict[str, Any]


class CreditsDocument(CommandDocument, total=False):
    credit: float
    balance: float | None
    forecast: dict[str, Any] | None
    account: str
    movements: list[dict[str, Any]]
    error: str | None


class KeyDocument(CommandDocument, total=False):
    private_key: str
    public_key: str
    registered: bool
    open_to_others: bool


class QueueDocument(CommandDocument, total=False):
    jobs: list[dict[str, Any]]


class SweepDocument(CommandDocument, total=False):
    """`planned`: what would be destroyed; `terminated`: what was; `kept`, `foreign`: what stays."""

    instances_checked: int | None
    planned: list[dict[str, Any]]
    terminated: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    foreign: list[dict[str, Any]]
    alerts: list[dict[str, Any]]
    errors: list[dict[str, Any]]


class NoticesDocument(CommandDocument, total=False):
    notices: list[dict[str, Any]]


class DoctorDocument(CommandDocument, total=False):
    checks: list[dict[str, Any]]


class SettingsDocument(CommandDocument, total=False):
    file: str
    problems: list[dict[str, Any]]
    counts: dict[str, int]


class ActDocument(CommandDocument, total=False):
    """What an act did, as its command says it; or, without `confirm`, what it would do: then `done` is false."""

    done: bool
    would: str
    command: str
    confirm: str


class WorkDocument(TypedDict):
    """Work that goes on without this server: `handle` names it for `work_status` and `stop_work`.

    status: PENDING | RUNNING | SUCCEEDED | FAILED | STOPPED | UNKNOWN. `result` is the last JSON document that it
    printed, `output` the end of what it printed; `exit_code` as for the command, None while it runs.
    """

    handle: str
    status: str
    message: str | None
    exit_code: int | None
    seconds: float | None
    result: dict[str, Any] | None
    output: str


class WorkListDocument(TypedDict):
    work: list[dict[str, Any]]


class StartedDocument(TypedDict, total=False):
    handle: str
    status: str
    command: str
    done: bool
    would: str
    confirm: str


class LogReading(TypedDict):
    """What a log text says: its newest progress, and the metrics of the user's own patterns."""

    progress: dict[str, Any]
    metrics: dict[str, Any]
