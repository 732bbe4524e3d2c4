"""What a sweep reports of an instance; JSON-ready. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from training_monitor.policy.cost import forecast_burn
from training_monitor.policy.sweep import Verdict

MOST_SHOWN = 200  # characters of a label, which may be anybody's
_ALERTS = {"max_runtime": "MAX_RUNTIME_EXCEEDED", "orphan": "ORPHAN_INSTANCE", "kept": "INSTANCE_KEPT"}


class SweptInstance(TypedDict):
    """An instance that is gone by the sweep, or would be; `cost_per_hour` in dollars, None when nobody knows.

    `acknowledged`: vast.ai took a request to destroy it. Without that it went by itself, or the answer was lost.
    """

    instance_id: int
    reason: str
    job_id: str | None
    label: str | None
    cost_per_hour: float | None
    acknowledged: bool


class KeptInstance(TypedDict):
    """An instance of ours that stays.

    kind: at_work | kept | and, while it is given `seconds_left` before it goes: left_over | stuck | max_runtime |
    orphan | down. `seconds_left` is None where it stays while nothing changes; `cost_per_hour` in dollars, None when
    nobody knows.
    """

    instance_id: int
    kind: str
    reason: str
    job_id: str | None
    status: str | None
    seconds_left: float | None
    cost_per_hour: float | None


class SweepError(TypedDict):
    """What failed, for one instance or for the whole listing (None)."""

    instance_id: int | None
    error: str


class SweepAlert(TypedDict):
    """What somebody should know. type: MAX_RUNTIME_EXCEEDED | ORPHAN_INSTANCE | INSTANCE_KEPT | LISTING_FAILED.

    `seconds` is how long the instance has been there, or the listing failed; None when nobody knows.
    """

    type: str
    instance_id: int | None
    reason: str
    job_id: str | None
    seconds: float | None
    cost_per_hour: float | None


class ForeignInstance(TypedDict):
    """An instance that is not this owner's; `cost_per_hour` in dollars."""

    instance_id: int
    label: str | None
    status: str | None
    cost_per_hour: float | None


def describe_swept(row: Mapping[str, Any], verdict: Verdict) -> SweptInstance:
    """An instance that is to go."""
    return SweptInstance(
        instance_id=row["id"],
        reason=verdict.reason,
        job_id=verdict.job_id,
        label=_text(row.get("label")),
        cost_per_hour=cost_per_hour(row),
        acknowledged=False,
    )


def describe_kept(row: Mapping[str, Any], verdict: Verdict) -> KeptInstance:
    """An instance of ours that stays."""
    return KeptInstance(
        instance_id=row["id"],
        kind=verdict.kind,
        reason=verdict.reason,
        job_id=verdict.job_id,
        status=_text(row.get("actual_status")),
        seconds_left=verdict.seconds_left,
        cost_per_hour=cost_per_hour(row),
    )


def describe_alert(row: Mapping[str, Any], verdict: Verdict) -> SweepAlert | None:
    """What somebody should know of an instance; None when there is nothing."""
    if verdict.kind not in _ALERTS:
        return None
    return SweepAlert(
        type=_ALERTS[verdict.kind],
        instance_id=row["id"],
        reason=verdict.reason,
        job_id=verdict.job_id,
        seconds=verdict.runtime,
        cost_per_hour=cost_per_hour(row),
    )


def describe_outage(reason: str, seconds: float) -> SweepAlert:
    """What somebody should know of a listing that fails for `seconds`."""
    return SweepAlert(
        type="LISTING_FAILED", instance_id=None, reason=reason, job_id=None, seconds=seconds, cost_per_hour=None
    )


def describe_foreign(row: Mapping[str, Any]) -> ForeignInstance:
    """An instance that is not this owner's."""
    label, status = _text(row.get("label")), _text(row.get("actual_status"))
    return ForeignInstance(instance_id=row["id"], label=label, status=status, cost_per_hour=cost_per_hour(row))


def cost_per_hour(row: Mapping[str, Any]) -> float | None:
    """Dollars that it costs as it stands: a stopped one only bills its storage. None when the row does not say."""
    burn = forecast_burn([row], None)
    return None if burn.unknown else burn.dollars_per_hour


def _text(value: object) -> str | None:
    return value[:MOST_SHOWN] if isinstance(value, str) else None
