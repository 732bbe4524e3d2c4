"""How a fleet is watched: the table `fleet` of the settings file. Pure.

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
when = "gpu_utilization < 5 for 10m"  # see alert_rules
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from training_monitor.errors import SettingsError, closest
from training_monitor.parse.settings_lines import Path, format_path
from training_monitor.policy.alert_rules import AlertRule
from training_monitor.policy.fleet_values import FleetEntry
from training_monitor.policy.training_metrics import Thresholds
from training_monitor.policy.watch_config import OUTAGE_AFTER
from training_monitor.units import known_number

DEFAULT_LOG_PATHS = (
    "/workspace/output/*/training.log",
    "/workspace/training_monitor/*/log",
    "~/.training_monitor/jobs/*/log",
    "/workspace/*.log",
    "/tmp/ray/session_latest/logs/job-driver-*.log",  # on the head pod of a Ray cluster
)

_JOB = re.compile(r"process:[A-Za-z0-9][A-Za-z0-9._-]{0,127}|(?!process:|-)[!\"$-.0-~]{1,256}")
_PATHS = "a list of paths or shell patterns"
_ENTRY = "TARGET, TARGET#JOB, TARGET#LOG, or a table of target, job, log_paths and name"
_LIMITS = {  # the least, the most, and what they are
    "interval": (1.0, 1e6, "seconds, from 1"),
    "budget": (1e-9, 1e12, "dollars, above 0"),
    "warn_hours_left": (0.0, 1e6, "hours, from 0"),
    "keep_days": (1e-9, 36500.0, "days, above 0"),
    "outage_after": (0.0, 1e6, "seconds, from 0"),
}


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Times in seconds, money in dollars.

    Attributes:
        interval: between two refreshes.
        log_paths: shell patterns on the targets; the newest file that matches one of them is a training's log.
        thresholds: see `Thresholds`.
        groups: what is watched together, by name.
        rules: alerts of the user's own.
        budget: what the members shown may have cost together; None: there is no limit.
        warn_hours_left: somebody is told when the account's credit lasts no longer than this; 0: nobody is.
        keep_days: of history.
        outage_after: what could not be asked for so long, and a state folder that could not be used, is told.

    Raises:
        SettingsError: a value makes no sense.
    """

    interval: float = 10.0
    log_paths: tuple[str, ...] = DEFAULT_LOG_PATHS
    thresholds: Thresholds = Thresholds()
    groups: Mapping[str, tuple[FleetEntry, ...]] = field(default_factory=dict)
    rules: tuple[AlertRule, ...] = ()
    budget: float | None = None
    warn_hours_left: float = 12.0
    keep_days: float = 31.0
    outage_after: float = OUTAGE_AFTER

    def __post_init__(self) -> None:
        for name in _LIMITS:
            if (value := getattr(self, name)) is not None or name != "budget":
                _read_number(name, value)
        _read_log_paths(self.log_paths)

    @property
    def fresh_seconds(self) -> float:
        """Longer between two looks, and it was not watched."""
        return 3.0 * self.interval + 30.0

    def entries_of(self, target: str) -> tuple[FleetEntry, ...]:
        """What the groups say of a target; one that is in none is watched as it is."""
        found = tuple(each for group in self.groups.values() for each in group if each.target == target)
        return found or (FleetEntry(target),)


@dataclass(frozen=True, slots=True)
class FleetFault:
    """One thing that is wrong in the table: where (keys and indices below `fleet`), what is there, what should be."""

    path: Path
    value: object
    expected: str


def read_fleet_config(
    table: Mapping[str, Any], *, check_target: Callable[[str], object] = lambda target: None
) -> FleetConfig:
    """Read a configuration out of the settings file's table; None is not given.

    Args:
        table: as the file has it.
        check_target: called with every target of the groups; raises SettingsError for what is none.

    Raises:
        SettingsError: a value makes no sense, or a key is none; `key` names it from the top of the file.
    """
    reading = _Reading(check_target)
    values = reading.fleet(table)
    for fault in reading.faults:
        raise SettingsError(format_path(("fleet", *fault.path)), fault.value, fault.expected)
    return FleetConfig(**values)


def find_fleet_faults(
    table: object, *, check_target: Callable[[str], object] = lambda target: None
) -> tuple[FleetFault, ...]:
    """All that is wrong in the table, in its order; the arguments are those of `read_fleet_config`."""
    reading = _Reading(check_target)
    reading.fleet(table)
    return tuple(reading.faults)


def parse_entry(text: str, *, groups: tuple[str, ...] = ()) -> FleetEntry:
    """Read `TARGET`, `TARGET#JOB` or `TARGET#LOG`.

    Args:
        text: JOB is a Ray submission id or process:NAME; LOG, from / or ~/ on, a path or a shell pattern there.
        groups: those it is in.

    Raises:
        SettingsError: there is no target, or what is after the # is neither. Whether the target is one is not judged.
    """
    target, mark, which = text.partition("#")
    if not target.strip() or "\0" in target:
        raise SettingsError("target", text, _ENTRY)
    if which.startswith(("/", "~/")) and "\0" not in which:
        return FleetEntry(target, log_paths=(which,), groups=groups)
    if mark and not _JOB.fullmatch(which):
        raise SettingsError("target", text, "after the #: a submission id, process:NAME, or a path from / or ~/ on")
    return FleetEntry(target, which or None, groups=groups)


class _Reading:
    """One pass over the table: what is fine is returned, all that is not is noted."""

    def __init__(self, check_target: Callable[[str], object]) -> None:
        self.check_target = check_target
        self.faults: list[FleetFault] = []

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Note the error of what is read within."""
        try:
            yield
        except SettingsError as error:
            self.faults.append(FleetFault(path, error.value, error.expected))

    def known(self, table: Mapping[str, Any], keys: Collection[str], *path: str | int) -> dict[str, Any]:
        """What of a table has a key that is one, and a value; all other keys are noted."""
        for key in table:
            if key not in keys:
                self.faults.append(FleetFault((*path, key), key, closest(key, keys)))
        return {key: value for key, value in table.items() if key in keys and value is not None}

    def fleet(self, table: object) -> dict[str, Any]:
        """The fields of a FleetConfig."""
        values: dict[str, Any] = {}
        with self.at():
            given = self.known(_table(table, "a table of settings"), (*_LIMITS, *_PARTS))
            for key, value in given.items():
                with self.at(key):
                    if key in _LIMITS:
                        values[key] = _read_number(key, value)
                    else:
                        name, read = _PARTS[key]
                        values[name] = read(self, value)
        return values

    def log_paths(self, value: object) -> tuple[str, ...]:
        for index, each in enumerate(value if isinstance(value, list) else ()):
            with self.at("log_paths", index):
                _read_log_paths([each])
        return tuple(value) if isinstance(value, list) and value else _read_log_paths(value)

    def thresholds(self, value: object) -> Thresholds:
        names = [each.name for each in fields(Thresholds)]
        levels = dict[str, float | None]()
        for name, level in self.known(_table(value, f"a table of {', '.join(names)}"), names, "thresholds").items():
            with self.at("thresholds", name):
                levels[name] = _read_threshold(level)
        return Thresholds(**levels)

    def groups(self, value: object) -> dict[str, tuple[FleetEntry, ...]]:
        groups = {}
        for name, entries in _table(value, "a table: NAME = [TARGET, ...]").items():
            with self.at("groups", name):
                groups[name] = self.group(_group_name(name), entries)
        return groups

    def group(self, name: str, value: object) -> tuple[FleetEntry, ...]:
        if not isinstance(value, list) or not value:
            raise SettingsError(name, value, f"a list, each of it {_ENTRY}")
        entries: dict[str, FleetEntry] = {}
        for index, each in enumerate(value):
            with self.at("groups", name, index):
                entry = self.entry(each, name, index)
                if entry and entry.key in entries:
                    raise SettingsError(name, each, "each only once in a group")
                if entry:
                    entries[entry.key] = entry
        return tuple(entries.values())

    def entry(self, value: object, group: str, index: int) -> FleetEntry | None:
        if isinstance(value, str):
            entry = parse_entry(value, groups=(group,))
            self.check_target(entry.target)
            return entry
        where, parts, before = ("groups", group, index), dict[str, Any](), len(self.faults)
        given = self.known(_table(value, _ENTRY), tuple(_ENTRY_PARTS), *where)
        for key, each in given.items():
            with self.at(*where, key):
                parts[key] = _ENTRY_PARTS[key](each)
                if key == "target":
                    self.check_target(each)
        if "target" not in given:
            raise SettingsError(group, value, "a target = ...")
        return FleetEntry(**parts, groups=(group,)) if len(self.faults) == before else None

    def alerts(self, value: object) -> tuple[AlertRule, ...]:
        if not isinstance(value, list):
            raise SettingsError("alerts", value, "tables, each under [[fleet.alerts]]")
        rules, names = list[AlertRule](), list[object]()
        for index, each in enumerate(value):
            with self.at("alerts", index):
                rules += self.alert(each, index)
            names.append(each.get("name", index) if isinstance(each, Mapping) else index)
            if names[-1] in names[:-1]:
                self.faults.append(FleetFault(("alerts", index, "name"), names[-1], "a name of its own"))
        return tuple(rules)

    def alert(self, value: object, index: int) -> list[AlertRule]:
        """A rule, or none; each of its values is tried in one that is fine, so that all that are not are noted."""
        names, fine = [each.name for each in fields(AlertRule)], {"name": "x", "when": "step > 0"}
        before = len(self.faults)
        given = self.known(_table(value, f"a table of {', '.join(names)}"), names, "alerts", index)
        for key, each in given.items():
            with self.at("alerts", index, key):
                AlertRule(**{**fine, key: each})
        if missing := [key for key in fine if key not in given]:
            raise SettingsError("alerts", value, f"also {' and '.join(f'{key} = ...' for key in missing)}")
        return [AlertRule(**given)] if len(self.faults) == before else []


# Keys of the table that are more than a number: the field that each is, and who reads it.
_PARTS: Mapping[str, tuple[str, Callable[[_Reading, object], object]]] = {
    "log_paths": ("log_paths", _Reading.log_paths),
    "thresholds": ("thresholds", _Reading.thresholds),
    "groups": ("groups", _Reading.groups),
    "alerts": ("rules", _Reading.alerts),
}


def _table(value: object, expected: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError("table", value, expected)
    return value


def _read_number(key: str, value: object) -> float:
    least, most, expected = _LIMITS[key]
    number = known_number(value)
    if number is None or not least <= number <= most:
        raise SettingsError(key, value, expected)
    return number


def _read_threshold(value: object) -> float | None:
    if value is False:
        return None
    number = known_number(value)
    if number is None or number < 0:
        raise SettingsError("threshold", value, "a number from 0 on, or false for never")
    return number


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise SettingsError("text", value, "a text that is not empty")
    return value


def _read_target(value: object) -> str:
    if "#" in _read_text(value):
        raise SettingsError("target", value, "a target alone; its job and log_paths have keys of their own")
    return str(value)


def _read_job(value: object) -> str:
    if not isinstance(value, str) or not _JOB.fullmatch(value):
        raise SettingsError("job", value, "a Ray submission id, or process:NAME")
    return value


def _read_log_paths(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise SettingsError("log_paths", value, _PATHS)
    for each in value:
        if not isinstance(each, str) or not each.strip() or "\0" in each:
            raise SettingsError("log_paths", each, _PATHS)
    return tuple(value)


_ENTRY_PARTS: Mapping[str, Callable[[object], object]] = {
    "target": _read_target,
    "job": _read_job,
    "log_paths": _read_log_paths,
    "name": _read_text,
}


def _group_name(name: str) -> str:
    plain = name == name.strip() and name.isprintable() and not name.startswith("-")
    if not name or not plain or name == "local" or "://" in name or "#" in name:
        raise SettingsError("groups", name, "a name that is no target: a word such as nightly")
    return name
