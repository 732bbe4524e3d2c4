"""Target strings: where commands run. Pure.

local                                          this machine
my-pod                                         a pod in the caller's namespace
k8s://namespace/pod[/container][?context=C]    a pod, spelled out
ssh://[user@]host[:port]                       a machine
vast://ID                                      a rented vast.ai instance (resolved to ssh when used)
"""

from __future__ import annotations

import re

from training_monitor.core.errors import SettingsError, did_you_mean
from training_monitor.core.frozen import dataclass
from training_monitor.core.regex import regex

_EXPECTED = "local, a pod name, k8s://namespace/pod[/container][?context=C], ssh://[user@]host[:port] or vast://ID"
_SCHEMES = ("k8s", "ssh", "vast")
_POD = regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SSH = regex(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.@+-]*)@)?"
    r"(?:(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*)|\[(?P<ipv6>[0-9A-Fa-f:][0-9A-Fa-f:.]*)\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_CONTEXT = regex(r"[A-Za-z0-9_][^\s\x00-\x1f\x7f]*")


@dataclass(frozen=True, slots=True)
class Target:
    """One place where commands run; `name` is the pod, host or instance id.

    `address` is the ssh server of a vast.ai instance once it is resolved; `port` is then its port.
    """

    kind: str
    name: str = "local"
    namespace: str | None = None
    container: str | None = None
    context: str | None = None
    user: str | None = None
    port: int | None = None
    address: str | None = None

    def __str__(self) -> str:
        if self.kind == "pod":
            from urllib.parse import quote

            container = f"/{self.container}" if self.container else ""
            context = f"?context={quote(self.context, safe='/:@')}" if self.context else ""
            return f"k8s://{self.namespace}/{self.name}{container}{context}"
        if self.kind == "ssh":
            host = f"[{self.name}]" if ":" in self.name else self.name
            return f"ssh://{self.user + '@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"
        return f"vast://{self.name}" if self.kind == "vast" else "local"


def parse_target(text: str | Target, *, namespace: str = "default") -> Target:
    """Parse a target string; a bare name is a pod in `namespace`. Raises SettingsError."""
    if isinstance(text, Target):
        return text
    if not isinstance(text, str):
        raise SettingsError("target", text, _EXPECTED)
    if text == "local":
        return Target("local")
    if "://" not in text:
        return Target("pod", _checked(_POD, text, text), namespace=_checked(_POD, namespace, namespace))
    scheme, _, rest = text.partition("://")
    if scheme == "k8s":
        return _pod(text, rest)
    if scheme == "ssh" and (found := _SSH.fullmatch(rest)) and int(found["port"] or 22) <= 65535:
        port = int(found["port"]) if found["port"] else None
        return Target("ssh", found["host"] or found["ipv6"], user=found["user"], port=port)
    if scheme == "vast" and rest.isascii() and rest.isdigit():
        return Target("vast", rest)
    meant = "" if scheme in _SCHEMES else did_you_mean(f"{scheme}://", [f"{each}://" for each in _SCHEMES])
    raise SettingsError("target", text, _EXPECTED + meant)


def _pod(text: str, rest: str) -> Target:
    from urllib.parse import unquote

    path, mark, query = rest.partition("?")
    names = path.split("/")
    if len(names) not in (2, 3) or (mark and not re.fullmatch(r"context=[^&#]+", query)):
        raise SettingsError("target", text, _EXPECTED)
    namespace, name, *container = (_checked(_POD, part, text) for part in names)
    context = _checked(_CONTEXT, unquote(query.removeprefix("context=")), text) if query else None
    return Target("pod", name, namespace=namespace, container=container[0] if container else None, context=context)


def _checked(pattern: re.Pattern[str], part: str, text: str) -> str:
    if not pattern.fullmatch(part):
        raise SettingsError("target", text, _EXPECTED)
    return part
