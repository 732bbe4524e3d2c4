"""Read the settings file's table `fleet`. Pure.

[fleet]
interval = 10
log_paths = ["/workspace/output/*/training.log"]
[fleet.thresholds]
low_gpu = 10
high_loss = false                     # never
[fleet.groups]
nightly = ["vast://1234", "ssh://gpu1#process:train", { target = "k8s://ns/pod", job = "raysubmit_x" }]
[[fleet.alerts]]
name = "idle"
when = "gpu_utilization < 5 for 10m"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.settings_table import (
    MISFIT,
    Example,
    Kind,
    Place,
    check_fields,
    choice,
    items,
    named,
    number,
    read_table,
    seconds,
    table,
    text,
)
from training_monitor.core.values import PRIORITIES
from training_monitor.fleet.metrics import Thresholds
from training_monitor.fleet.values import JOB_ID, LOG_PATHS, MemberSpec
from training_monitor.verdict.limits import OUTAGE_AFTER, FromZero

DEFAULT_LOG_PATHS = (
    "/workspace/output/*/training.log",
    "/workspace/training_monitor/*/log",
    "~/.training_monitor/jobs/*/log",
    "/workspace/*.log",
    "/tmp/ray/session_latest/logs/job-driver-*.log",  # on the head pod of a Ray cluster
)
_MEMBER = "TARGET, TARGET#JOB, TARGET#LOG, or a table with target, job, log_paths and name"
_GROUPS = "a table: NAME = [TARGET, ...]"
_ALERTS = "one or more [[fleet.alerts]] tables"
CheckTarget = Callable[[str], object]
_CONDITION = "gpu_utilization < 5 for 10m"


@dataclass(frozen=True, slots=True, repr=False)
class AlertRule(PublicValue):
    """An alert that is raised when its condition holds.

    Attributes:
        name: the name of the alert; each rule needs a different name.
        when: the condition; see docs/fleet.md.
        priority: the priority of its notice: low | normal | high | urgent.
        message: the text of its notice; None: the condition itself.

    Raises:
        SettingsError: the name is empty, or the priority or the condition is invalid.
    """

    name: Annotated[str, Kind("a string without line breaks", _read_name), Example("idle")]
    when: Annotated[str, Kind(f"a condition such as `{_CONDITION}`", _read_when), Example(_CONDITION)]
    priority: Annotated[str, choice(*PRIORITIES)] = "normal"
    message: Annotated[str, text("a text"), Example("The GPUs are idle")] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


def _read_name(value: Any, place: Place) -> Any:
    return value if isinstance(value, str) and value.strip() and value.isprintable() else MISFIT


def _read_when(value: Any, place: Place) -> Any:
    if not isinstance(value, str):
        return MISFIT
    from training_monitor.fleet.conditions import parse_condition  # most users have no rules

    parse_condition(value)
    return value


@dataclass(frozen=True, slots=True, repr=False)
class FleetConfig(PublicValue):
    """Settings of a fleet. Times are in seconds, and amounts of money in dollars.

    Attributes:
        interval: time between two refreshes.
        log_paths: shell patterns on the targets; the newest file that matches one of them is the log of a training.
        thresholds: see `Thresholds`.
        groups: targets to watch together, by the name of the group.
        rules: the user's alert rules.
        budget: limit on the total cost of the displayed members; None: no limit.
        warn_hours_left: a notice is sent when the account's credit will last for at most this time; 0: never.
        keep_days: how long history is kept.
        outage_after: a notice is sent when a member, the listing or the state folder is unavailable for this long.

    Raises:
        SettingsError: a value is invalid.
    """

    interval: Annotated[float, seconds(least=1)] = 10.0
    log_paths: Annotated[tuple[str, ...], LOG_PATHS] = DEFAULT_LOG_PATHS
    thresholds: Annotated[Thresholds, table(Thresholds)] = Thresholds()
    groups: Annotated[Mapping[str, tuple[MemberSpec, ...]], _groups()] = field(default_factory=dict)
    rules: Annotated[tuple[AlertRule, ...], Kind(_ALERTS, _read_rules), "alerts"] = ()
    budget: Annotated[float, number("dollars, above 0", above=0), Example(100)] | None = None
    warn_hours_left: Annotated[float, number("hours, 0 or more", least=0)] = 12.0
    keep_days: Annotated[float, number("days, above 0", above=0, most=36500)] = 31.0
    outage_after: FromZero = OUTAGE_AFTER

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def fresh_seconds(self) -> float:
        """Return the longest gap between two looks that does not count as an interruption."""
        return 3.0 * self.interval + 30.0

    def specs_of(self, target: str) -> tuple[MemberSpec, ...]:
        """Return the members in all groups that are on this target; if there are none, a member for the target."""
        found = tuple(each for group in self.groups.values() for each in group if each.target == target)
        return found or (MemberSpec(target),)


def read_fleet_config(table: object, place: Place, check_target: CheckTarget = lambda target: None) -> FleetConfig:
    """Read a configuration from the settings file's table.

    Args:
        table: the parsed table; None if the file has none.
        place: the table's position in the file; collects the errors.
        check_target: called with every target of the groups; raises SettingsError for an invalid one.

    Returns:
        MISFIT where anything is invalid.
    """
    config: FleetConfig = read_table(FleetConfig, table, place, {"groups": _groups(check_target)})
    return config


def parse_member(text: str, *, groups: tuple[str, ...] = ()) -> MemberSpec:
    """Parse `TARGET`, `TARGET#JOB` or `TARGET#LOG`.

    Args:
        text: JOB is a Ray submission id or process:NAME; LOG is a path or a shell pattern that begins with / or ~/.
        groups: the groups of the member.

    Raises:
        SettingsError: the target is missing, or the part after the # is neither. The target itself is not checked.
    """
    target, mark, which = text.partition("#")
    if not target.strip() or "\0" in target:
        raise SettingsError("target", text, _MEMBER)
    if which.startswith(("/", "~/")) and "\0" not in which:
        return MemberSpec(target, log_paths=(which,), groups=groups)
    if mark and JOB_ID.read(which, Place()) is MISFIT:
        raise SettingsError(
            "target", text, "TARGET#JOB, where JOB is a submission ID, process:NAME, or a path that begins with / or ~/"
        )
    return MemberSpec(target, which or None, groups=groups)


def _groups(check_target: CheckTarget = lambda target: None) -> Kind:
    return named(
        lambda name: Kind(f"a list in which each item is {_MEMBER}", partial(_read_group, name, check_target)), _GROUPS
    )


def _read_group(name: str, check_target: CheckTarget, value: Any, place: Place) -> Any:
    plain = name == name.strip() and name.isprintable() and not name.startswith("-")
    if not name or not plain or name == "local" or "://" in name or "#" in name:
        return place.note(name, "a group name such as nightly, not a target")
    if not isinstance(value, (list, tuple)) or not value:
        return MISFIT
    specs: dict[str, MemberSpec] = {}
    for index, each in enumerate(value):
        spec = (place / index).read(Kind(_MEMBER, partial(_read_spec, name, check_target)), each)
        if spec is not MISFIT and specs.setdefault(spec.key, spec) is not spec:
            (place / index).note(each, "each member at most once per group")
    return tuple(specs.values())


def _read_spec(group: str, check_target: CheckTarget, value: Any, place: Place) -> Any:
    def read_target(target: Any, at: Place) -> Any:
        if not isinstance(target, str) or not target.strip() or "\0" in target:
            return MISFIT
        if "#" in target:
            return at.note(target, "only the target; set job and log_paths with their own keys")
        check_target(target)
        return target

    if isinstance(value, str):
        spec = parse_member(value, groups=(group,))
        check_target(spec.target)
        return spec
    if not isinstance(value, (Mapping, MemberSpec)):
        return MISFIT
    kinds = {"target": Kind("a non-empty string", read_target)}
    return read_table(MemberSpec, value, place, kinds, groups=(group,))


def _read_rules(value: Any, place: Place) -> Any:
    rules = items(table(AlertRule), least=0).read(value, place)
    tables = value if isinstance(value, list) else ()
    names = [each.get("name", index) if isinstance(each, Mapping) else index for index, each in enumerate(tables)]
    for index, name in enumerate(names):
        if name in names[:index]:
            rules = (place / index / "name").note(name, "a unique name")
    return rules
