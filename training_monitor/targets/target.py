"""Target strings: where commands run.

local                                          this machine
my-pod                                         a pod in the caller's namespace
k8s://namespace/pod[/container][?context=C]    a pod, spelled out
ssh://[user@]host[:port]                       a machine
vast://ID                                      a rented vast.ai instance (resolved to ssh when used)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from training_monitor.errors import SettingsError

_EXPECTED = "local, a pod name, k8s://namespace/pod[/container][?context=C], ssh://[user@]host[:port] or vast://ID"
_POD = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
_CONTEXT = re.compile(r"[A-Za-z0-9_][^\s]*")


@dataclass(frozen=True, slots=True)
class Target:
    """One place where commands run; `name` is the pod, host or instance id."""

    kind: str
    name: str = "local"
    namespace: str | None = None
    container: str | None = None
    context: str | None = None
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        if self.kind == "pod":
            container = f"/{self.container}" if self.container else ""
            context = f"?context={self.context}" if self.context else ""
            return f"k8s://{self.namespace}/{self.name}{container}{context}"
        if self.kind == "ssh":
            host = f"[{self.name}]" if ":" in self.name else self.name
            return f"ssh://{self.user + '@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"
        return f"vast://{self.name}" if self.kind == "vast" else "local"


def parse_target(text: str | Target, *, namespace: str = "default") -> Target:
    """Read a target string; a bare name is a pod in `namespace`. Raises SettingsError."""
    if isinstance(text, Target):
        return text
    if text == "local":
        return Target("local")
    if "://" not in text:
        return Target("pod", _checked(_POD, text, text), namespace=_checked(_POD, namespace, namespace))
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise SettingsError("target", text, _EXPECTED) from error
    if parts.scheme == "k8s":
        return _pod(text, [parts.netloc, *parts.path.strip("/").split("/")], parse_qs(parts.query))
    if parts.scheme == "ssh" and parts.hostname and not parts.path.strip("/") and parts.password is None:
        user = _checked(_USER, parts.username, text) if parts.username else None
        return Target("ssh", _checked(_HOST, parts.hostname, text), user=user, port=port)
    if parts.scheme == "vast" and parts.netloc.isascii() and parts.netloc.isdigit():
        return Target("vast", parts.netloc)
    raise SettingsError("target", text, _EXPECTED)


def _pod(text: str, names: list[str], query: dict[str, list[str]]) -> Target:
    if len(names) not in (2, 3) or set(query) - {"context"}:
        raise SettingsError("target", text, _EXPECTED)
    namespace, name, *container = (_checked(_POD, part, text) for part in names)
    context = _checked(_CONTEXT, query["context"][0], text) if "context" in query else None
    return Target("pod", name, namespace=namespace, container=container[0] if container else None, context=context)


def _checked(pattern: re.Pattern[str], part: str, text: str) -> str:
    if not pattern.fullmatch(part):
        raise SettingsError("target", text, _EXPECTED)
    return part
