"""A machine behind ssh: `ssh://[user@]host[:port]`; its connections, which are shared, and its host keys."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from training_monitor.core.regex import regex
from training_monitor.core.settings import runtime_dir, state_dir
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, SshTransport, Transport, explain_failure

_FORM = regex(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.@+-]*)@)?"
    r"(?:(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*)|\[(?P<ipv6>[0-9A-Fa-f:][0-9A-Fa-f:.]*)\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=3", "LogLevel=ERROR")
_SSH_CONFIG_SECONDS = 10.0
_Signature = tuple[int, ...]  # of a file; None stands for a missing one


@dataclass(frozen=True, slots=True)
class SshTarget(Target):
    """A machine behind ssh, as the user's own ssh configuration knows it."""

    user: str | None = None
    port: int | None = None

    has_other_users: ClassVar[bool] = True

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> SshTarget | None:
        found = _FORM.fullmatch(text)
        if not found or int(found["port"] or 22) > 65535:
            return None
        return cls(found["host"] or found["ipv6"], found["user"], int(found["port"]) if found["port"] else None)

    def __str__(self) -> str:
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"ssh://{self.user + '@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"

    @property
    def host(self) -> object:
        return SshTarget, self.name, self.port

    @property
    def called(self) -> str:
        return str(self).partition("://")[2]

    def connect(self, transport: Transport | None) -> Transport:
        import hashlib

        inner, port = transport or LocalTransport(), self.port
        destination = f"{self.user}@{self.name}" if self.user else self.name
        socket = shared_socket(hashlib.sha256(f"{destination}:{port}".encode()).hexdigest()[:32])
        known = _known_hosts(destination, port, _signature(socket)) if _is_local(inner) else NOTHING_KNOWN
        return ssh_to(inner, destination, port, socket, host_key_options(known))


def ssh_to(inner: Transport, destination: str, port: int | None, socket: str, more: list[str]) -> SshTransport:
    """Return the transport to an ssh server, whose connection is shared by a socket if there is one."""
    options = ["-T"]
    for each in _OPTIONS:
        options += ["-o", each]
    if socket:
        options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", f"ControlPath={socket}"]
    return SshTransport(inner, destination, (*options, *more, *(("-p", str(port)) if port else ())))


def shared_socket(name: str) -> str:
    """Return the path of a shared connection's socket, which may have about 100 characters; "" without a folder."""
    sockets = _private_folder(runtime_dir())
    return f"{sockets}/{name}" if sockets else ""


# ---------------------------------------------------------------- host keys


@dataclass(frozen=True)
class _KnownHosts:
    """The user's own files of host keys for a destination, as ssh reads them, and the name by which it looks there."""

    name: str
    users: tuple[str, ...] = ()
    everybodys: tuple[str, ...] = ()

    @property
    def know_it(self) -> bool:
        """Whether one of the files holds a key of the host, or of an authority for it; a revoked key is none."""
        return any(_holds(self.name, file, _signature(file)) for file in (*self.users, *self.everybodys))


NOTHING_KNOWN = _KnownHosts("")


def host_key_options(known: _KnownHosts) -> list[str]:
    """Return the options by which ssh checks a host's key.

    Where the user's files know the host, only those count. Otherwise our own file does, and takes new hosts: ssh writes
    to the first file. It gets the user's as well, for the keys that they revoke.
    """
    if known.know_it:
        return ["-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no"]
    options = ["-o", "StrictHostKeyChecking=accept-new"]
    if folder := _private_folder(state_dir()):
        files = [os.path.join(folder, "known_hosts"), *known.users]
        quoted = " ".join(f'"{file}"' for file in files).replace("%", "%%")
        options += ["-o", f"UserKnownHostsFile={quoted}"]
    return options


def _is_local(inner: Transport) -> bool:
    """Whether ssh runs on this machine, so that the user's own configuration is read."""
    while not isinstance(inner, LocalTransport) and hasattr(inner, "inner"):
        inner = inner.inner
    return isinstance(inner, LocalTransport)


def _known_hosts(destination: str, port: int | None, socket: _Signature | None) -> _KnownHosts:
    """Ask ssh which files of host keys the user's configuration names for a destination. Raises CommandError.

    It is asked for each new connection, and once for as long as the `socket` of a shared one is there.
    """
    return _ask_known_hosts(destination, port) if socket is None else _kept_known_hosts(destination, port, socket)


@lru_cache(maxsize=1000)
def _kept_known_hosts(destination: str, port: int | None, socket: _Signature) -> _KnownHosts:
    return _ask_known_hosts(destination, port)


def _ask_known_hosts(destination: str, port: int | None) -> _KnownHosts:
    argv = ["ssh", "-G", *(["-p", str(port)] if port else []), "--", destination]
    result = LocalTransport().run(argv, timeout=_SSH_CONFIG_SECONDS)
    if result.exit_code:
        raise explain_failure(result, f"ssh://{destination}")
    found = dict(line.partition(" ")[::2] for line in result.stdout.splitlines())
    name = found.get("hostname", "").lower()
    if found.get("port", "22") != "22":
        name = f"[{name}]:{found['port']}"
    files = (_existing(found.get(f"{whose}knownhostsfile", "")) for whose in ("user", "global"))
    return _KnownHosts(found.get("hostkeyalias", name), *files)


def _existing(text: str) -> tuple[str, ...]:
    """Return the files that are there of a list with spaces between, which ssh prints without quotes."""
    words = text.split(" ")
    ends = range(len(words) + 1)
    found = (os.path.expanduser(" ".join(words[start:end])) for start in ends for end in ends[start + 1 :])
    return tuple(path for path in found if os.path.isabs(path) and os.path.exists(path))


@lru_cache(maxsize=1000)
def _holds(name: str, file: str, signature: _Signature | None) -> bool:
    """Whether a file of host keys, as it is now, holds one for this name. Raises CommandError."""
    if signature is None:
        return False
    result = LocalTransport().run(["ssh-keygen", "-F", name, "-f", file], timeout=_SSH_CONFIG_SECONDS)
    return any(line and not line.startswith(("#", "@revoked")) for line in result.stdout.splitlines())


def _signature(file: str) -> _Signature | None:
    try:
        state = os.stat(file)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _private_folder(path: str) -> str | None:
    """Create a folder and return it; None if that fails or others can write to it."""
    try:
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            os.makedirs(path, mode=0o700, exist_ok=True)
            seen = os.lstat(path)
    except OSError:
        return None
    ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022
    return path if ours else None
