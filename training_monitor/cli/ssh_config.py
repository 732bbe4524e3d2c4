"""The names of hosts in an ssh configuration. Pure."""

from __future__ import annotations

from training_monitor.core.regex import regex

_LINE = regex(r"[ \t]*(?P<keyword>[A-Za-z]+)(?:[ \t]*=[ \t]*|[ \t]+)(?P<values>\S.*)")
_WORD = regex(r'"([^"]*)"|([^\s"]+)')
_PATTERN = frozenset("*?!")


def read_ssh_config(text: str) -> tuple[list[str], list[str]]:
    """Return the hosts that an ssh configuration names, without patterns, and the files that it includes."""
    found: dict[str, list[str]] = {"host": [], "include": []}
    for line in text.splitlines():
        if (read := _LINE.match(line)) and read["keyword"].lower() in found:
            words = [quoted or plain for quoted, plain in _WORD.findall(read["values"])]
            found[read["keyword"].lower()] += words
    return [host for host in found["host"] if not _PATTERN & {*host}], found["include"]
