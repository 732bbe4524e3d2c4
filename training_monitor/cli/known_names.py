"""The names that this machine knows: targets, members, groups and users, for completion and "did you mean".

They come from the settings file, the state file and ~/.ssh/config; nothing is asked of the network. Pressing Tab runs
this, so it imports little, waits for nobody, and leaves out what cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from training_monitor.core.errors import SettingsError, TrainingMonitorError, meant_name, similar_names
from training_monitor.core.regex import regex
from training_monitor.core.settings_file import load_settings
from training_monitor.core.shown import shown
from training_monitor.core.store import read_column
from training_monitor.targets.target import parse_target

MOST_NAMES, MOST_CHARACTERS, MOST_LIKE = 500, 300, 3
MOST_FILES, MOST_BYTES = 32, 1 << 20  # of the ssh configuration
_SSH_LINE = regex(r"[ \t]*(?P<keyword>[A-Za-z]+)(?:[ \t]*=[ \t]*|[ \t]+)(?P<values>\S.*)")
_SSH_WORD = regex(r'"([^"]*)"|([^\s"]+)')
_SSH_PATTERN = frozenset("*?!")
_MEMBERS = f"SELECT key FROM history_members ORDER BY last DESC LIMIT {MOST_NAMES}"
_LOOKED_AT = f"SELECT DISTINCT substr(key, 1, instr(key, ' ') - 1) FROM looks LIMIT {MOST_NAMES}"


def known_names(kind: str) -> list[str]:
    """Return the known names of a kind of KINDS; what a terminal would not show as it is, is left out."""
    names = KINDS[kind]() if kind in KINDS else ()
    plain = (name for name in names if name and len(name) <= MOST_CHARACTERS and shown(name) == name)
    return [*dict.fromkeys(plain)][:MOST_NAMES]


def meant_target(target: str, namespace: str = "default") -> str | None:
    """Return the target or group of which an unknown target is probably a typo, if any.

    Only names that somebody wrote down are suggested: what was only seen may have a name that was made up for it.
    """
    with suppress(SettingsError):
        if {target, str(parse_target(target, namespace=namespace))} & {*known_names("targets")}:
            return None
    hosts = [*_ssh_targets()]
    if f"ssh://{target}" in hosts:
        return f"ssh://{target}"
    return meant_name(target, [*_targets(["local", *_configured_members(), *hosts]), *_groups()])


def pods_like(target: str, namespace: str) -> list[str]:
    """Return the pods with names like that of one that there is not, or that begin with it; its cluster is asked."""
    with suppress(TrainingMonitorError):
        missing = parse_target(target, namespace=namespace)
        names = [pod.name for pod in missing.list_pods()]
        near = [name for name in names if name.startswith(missing.name)] or similar_names(missing.name, names)
        return [str(missing.beside(name)) for name in near[:MOST_LIKE]]
    return []


def _all_targets() -> Iterator[str]:
    seen = [*read_column(_MEMBERS), *read_column(_LOOKED_AT)]
    return _targets(["local", *_configured_members(), *seen, *_ssh_targets()])


def _all_members() -> Iterator[str]:
    """Yield groups, and members: targets with and without their job or log."""
    yield from _groups()
    for member in ["local", *_configured_members(), *read_column(_MEMBERS), *_ssh_targets()]:
        for target in _targets([member]):
            yield from (target, member)


def _targets(members: Iterable[str]) -> Iterator[str]:
    """Yield the targets of the members, without their job or log."""
    for member in members:
        target = member.partition("#")[0]
        with suppress(SettingsError):
            parse_target(target)
            yield target


# ---------------------------------------------------------------- where names are


def _table(*path: str) -> Mapping[str, Any]:
    """Return a table of the settings file; an empty one if there is none."""
    table: Any = {}
    with suppress(TrainingMonitorError):
        table = load_settings()[1]
    for name in path:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


def _groups() -> Iterator[str]:
    return iter(_table("fleet", "groups"))


def _configured_members() -> Iterator[str]:
    for group in _table("fleet", "groups").values():
        for each in group if isinstance(group, list) else ():
            member = each.get("target") if isinstance(each, Mapping) else each
            if isinstance(member, str):
                yield member


def _ssh_targets() -> Iterator[str]:
    return (f"ssh://{host}" for host in _ssh_hosts(os.path.expanduser("~/.ssh/config")))


def _ssh_hosts(file: str) -> Iterator[str]:
    """Yield the hosts of an ssh configuration and of the files that it includes, each file once."""
    from glob import glob

    waiting, read = [file], set[str]()
    while waiting and len(read) < MOST_FILES:
        file = waiting.pop(0)
        if file in read:
            continue
        read.add(file)
        hosts, included = read_ssh_config(_text(file))
        yield from hosts
        for pattern in included:
            waiting += sorted(glob(os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(pattern))))


def read_ssh_config(text: str) -> tuple[list[str], list[str]]:
    """Return the hosts that an ssh configuration names, without patterns, and the files that it includes."""
    found: dict[str, list[str]] = {"host": [], "include": []}
    for line in text.splitlines():
        if (read := _SSH_LINE.match(line)) and read["keyword"].lower() in found:
            words = [quoted or plain for quoted, plain in _SSH_WORD.findall(read["values"])]
            found[read["keyword"].lower()] += words
    return [host for host in found["host"] if not _SSH_PATTERN & {*host}], found["include"]


def _text(file: str) -> str:
    if not os.path.isfile(file):
        return ""
    with suppress(OSError), open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read(MOST_BYTES)
    return ""


KINDS: Mapping[str, Callable[[], Iterable[str]]] = {
    "targets": _all_targets,
    "members": _all_members,
    "groups": _groups,
    "users": lambda: _table("users"),
    "history": lambda: read_column(_MEMBERS),
}
