"""The text of a new settings file: every key with its meaning, what it may hold and its default, commented out.

A line that begins with # and a space is a remark; what begins with # alone is a setting. Tables that mean nothing while
they are empty are not commented out, so that a key can be uncommented alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any

from training_monitor.core.settings_table import Setting, meanings_of, settings_of
from training_monitor.fleet.config import AlertRule, FleetConfig
from training_monitor.fleet.metrics import Thresholds
from training_monitor.fleet.values import MemberSpec
from training_monitor.logs.patterns import LogPattern
from training_monitor.notify.channels import CHANNELS, classes_of
from training_monitor.notify.configure import settings_of_channel
from training_monitor.notify.people import NotifiedUser
from training_monitor.rent.config import ServiceConfig
from training_monitor.verdict.limits import WatchConfig

_WIDTH = 100
_HEAD = """\
# Settings of training-monitor: every key with its default, or with an example where it has none.
# Nothing here is in force: to change a setting, remove the # in front of its line, and the one in
# front of the [table] above it, if any. `training-monitor config --check` shows errors.
"""
_SECRET = """\
To keep a secret out of this file, write token_env = "NAME" instead of token: it is read from the environment \
variable NAME. {} work in the same way. Only you may have permission to read a file with secrets (chmod 600)."""
_CONDITIONS = """\
A condition tests fields (gpu_utilization, loss, step, status, ...) of one training, and can require a duration."""
_JOBS = "The same keys, for one job only, by its name."
_MEMBERS = {"nightly": ["vast://30007012", "ssh://gpu1#process:train"]}
_MEMBER = {"target": "k8s://ml/trainer-0", "job": "raysubmit_x", "name": "llama"}


def settings_template() -> str:
    """Return the text, valid TOML that sets nothing."""
    service = ("[service]", *_keys(ServiceConfig))
    return "\n".join([_HEAD, *_fleet(), *_monitoring(), *service, *_log_patterns(), *_notifications(), *_users()])


def _fleet() -> Iterator[str]:
    tables = ("thresholds", "groups", "alerts")
    yield from ("[fleet]", *_keys(FleetConfig, left_out=tables))
    yield from ("[fleet.thresholds]", *_keys(Thresholds))
    yield from (
        "[fleet.groups]",
        *_remark(f"{_meaning(FleetConfig, 'groups')} A member is a target, or a table with these keys:"),
    )
    yield from _terms(meanings_of(MemberSpec))
    yield from (f"#{name} = {_value(members)}" for name, members in _MEMBERS.items())
    yield from (f"#cluster = [{_value(_MEMBER)}, {_value({'target': 'local', 'log_paths': ['/data/*.log']})}]", "")
    yield from (*_remark(f"{_meaning(FleetConfig, 'alerts')} {_CONDITIONS}"), "#[[fleet.alerts]]")
    yield from _keys(AlertRule)


def _monitoring() -> Iterator[str]:
    yield from ("[monitoring]", *_keys(WatchConfig))
    yield from (*_remark(_JOBS), '#[monitoring.jobs."process:train"]', '#stall_after = "1h"', "")


def _log_patterns() -> Iterator[str]:
    yield "[log_patterns]"
    yield from _remark("Your own metrics, by name. Each is a pattern, or a table with these keys:")
    yield from _terms(meanings_of(LogPattern))
    yield from (r"#reward = 'reward[=: ]+(\S+)'", r"""#tokens = { pattern = 'tokens=(\d+)', kind = "int" }""", "")


def _notifications() -> Iterator[str]:
    secret = (key for name in CHANNELS for key, each in settings_of_channel(name).items() if each.kind.is_secret)
    others = " and ".join(f"{key}_env" for key in dict.fromkeys(secret) if key != "token")
    yield from ("[notifications]", *_remark(_SECRET.format(others)))
    yield from _remark("The order in which the channels are tried.")
    yield from (f"#order = {_value([name for name in CHANNELS if name != 'web'])}", "")
    for name, classes in ((name, classes_of(name)) for name in CHANNELS):
        yield from _remark(" Or: ".join((made.__doc__ or "").partition("\n")[0] for made in classes))
        yield f"#[notifications.{name}]"
        meanings = {key: meaning for made in classes for key, meaning in meanings_of(made).items()}
        settings = settings_of_channel(name)
        defaults = {key: value for made in classes for key, value in _defaults(made).items()}
        for key, setting in settings.items():
            yield from _key(key, setting, meanings.get(key, ""), defaults)
        yield ""


def _users() -> Iterator[str]:
    yield from _remark("People to notify: a table for each, with the name that --notify USER takes.")
    yield from ("#[users.anna]", *_keys(NotifiedUser))


# ---------------------------------------------------------------- keys


def _keys(made: Any, left_out: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of all keys of a table, and an empty one."""
    meanings, defaults = meanings_of(made), _defaults(made)
    for key, setting in settings_of(made).items():
        if key not in left_out:
            yield from _key(key, setting, meanings.get(key, ""), defaults)
    yield ""


def _key(key: str, setting: Setting, meaning: str, defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield a remark with the meaning of a key and what it may be, and the key with its default or an example."""
    default = defaults.get(setting.field)
    yield from _remark(_sentence(f"{meaning.rstrip('.')} ({setting.kind.expected})"))
    example = setting.kind.expected if setting.example is None else setting.example
    yield f"#{key} = {_value(example if default is None or default == () else default)}"


def _defaults(made: Any) -> Mapping[str, Any]:
    return MappingProxyType({each.name: each.default for each in fields(made) if each.default is not MISSING})


def _meaning(made: Any, key: str) -> str:
    return _sentence(meanings_of(made).get(key, ""))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _terms(meanings: Mapping[str, str]) -> Iterator[str]:
    for key, meaning in meanings.items():
        yield from _remark(f"{key}: {meaning}", indent="#     ", first="#   ")


def _remark(text: str, indent: str = "# ", first: str = "# ") -> Iterator[str]:
    from textwrap import TextWrapper

    wrapper = TextWrapper(
        _WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    yield from wrapper.wrap(text.replace(" None: ", " not set: "))


def _value(value: Any) -> str:
    """Format a value as TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)
