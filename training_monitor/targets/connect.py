"""Choose the transport that reaches a target."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from training_monitor.core.errors import InstanceNotFound, LocalFailure, SettingsError, TargetUnreachable
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.models import CommandResult
from training_monitor.core.settings import VAST_KEY_PATH, runtime_dir, state_dir, vast_key_path
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import (
    KubectlTransport,
    LocalTransport,
    SshTransport,
    Transport,
    explain_failure,
)

VAST_TIMEOUT = 60.0
_SSH_CONFIG_SECONDS = 10.0
_Signature = tuple[int, ...]  # of a file; None stands for a missing one
_PAGE, _MOST_PAGES = 25, 400
_PROC = "/proc/self/stat"
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


def connect(target: Target, transport: Transport | None = None) -> Transport:
    """Return the transport that runs commands on `target`, over `transport` (default: this machine).

    Raises:
        LocalFailure: the target is this machine, and this is no Linux.
        CommandError: vast.ai does not tell the address of an instance.
    """
    inner = transport or LocalTransport()
    if target.kind == "local":
        if transport is None:
            check_this_machine()
        return inner
    if target.kind == "pod":
        return KubectlTransport(inner, target.namespace or "default", target.name, target.container, target.context)
    if target.kind == "vast" and target.address is None:
        return _ssh(resolve_vast(target, inner), inner)
    return _ssh(target, inner)


def check_this_machine() -> None:
    """Raise LocalFailure where the processes of this machine cannot be seen: without them, all would seem to be gone.

    The other targets need nothing of Linux here.
    """
    if not os.path.exists(_PROC):
        raise LocalFailure(
            f"the target local needs Linux's /proc, which this machine ({os.uname().sysname}) does not have",
            hint="watch from here what runs on Linux: ssh://host, a pod, vast://ID",
        )


def resolve_target(
    target: str | Target,
    *,
    namespace: str = "default",
    transport: Transport | None = None,
    timeout: float = VAST_TIMEOUT,
) -> Target:
    """Resolve a vast.ai instance to its current ssh address; return other targets unchanged.

    Args:
        timeout: seconds for each call of the vastai CLI.
    """
    parsed = parse_target(target, namespace=namespace)
    return resolve_vast(parsed, transport or LocalTransport(), timeout) if parsed.kind == "vast" else parsed


def resolve_vast(target: Target, inner: Transport, timeout: float = VAST_TIMEOUT) -> Target:
    """Ask the vastai CLI for the instance's ssh address; the CLI exits 0 with empty output when it could not ask."""
    result = inner.run(["vastai", "show", "instance", target.name, "--raw"], timeout=timeout)
    row = _read_json(result)
    if row is None and result.exit_code:  # the CLI fails so for a row without a start date; the list has the row
        row = _listed_row(int(target.name), inner, timeout)
    if row == {"instances": None}:
        raise InstanceNotFound(f"{target}: no such instance in this account", hint="vastai show instances")
    if not isinstance(row, dict):
        raise explain_failure(result, str(target))
    return read_address(target, row)


def _listed_row(number: int, inner: Transport, timeout: float) -> Mapping[str, Any] | None:
    """Return the instance's row in the listing, page by page; None if it cannot be fetched or found."""
    token = ""
    for _ in range(_MOST_PAGES):
        paged = ["vastai", "show", "instances", "--raw", "--limit", str(_PAGE)]
        page = _read_json(inner.run([*paged, *([f"--next-token={token}"] if token else [])], timeout=timeout))
        rows = page.get("instances") if isinstance(page, dict) else None
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("id") == number:
                return row
        following = page.get("next_token") if isinstance(page, dict) else None
        if not isinstance(following, str) or following in ("", token):
            break
        token = following
    return None


def _read_json(result: CommandResult) -> Any:
    """Parse the output of a command; None if it is not JSON."""
    try:
        return json.loads(result.stdout)
    except (ValueError, RecursionError):
        return None


def read_address(target: Target, row: Mapping[str, Any]) -> Target:
    """Return the target with the ssh address from its vast.ai description. Raises TargetUnreachable."""
    host, port = row.get("ssh_host"), row.get("ssh_port")
    if not host or not port:
        raise TargetUnreachable(
            f"it has no ssh address yet (status {str(row.get('actual_status')):.40})",
            target=str(target),
            hint="wait until it is running, or rent another",
        )
    try:
        found = parse_target(f"ssh://root@{host}:{port}")
    except SettingsError as error:
        shown = f"{host}:{port}"[:100]
        raise TargetUnreachable(f"vast.ai names an unusable ssh address {shown!r}", target=str(target)) from error
    return replace(target, user="root", address=found.name, port=found.port)


def _ssh(target: Target, inner: Transport) -> SshTransport:
    options = [
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=15",
        "-o",
        "ServerAliveInterval=15",
        "-o",
        "ServerAliveCountMax=3",
        "-o",
        "LogLevel=ERROR",
    ]
    host = target.address or target.name
    destination = f"{target.user}@{host}" if target.user else host
    sockets, socket = _private_folder(runtime_dir()), ""
    if sockets:
        socket = f"{sockets}/{_socket_name(target, destination)}"
        options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", f"ControlPath={socket}"]
    known = _NOTHING_KNOWN
    if _is_ours(target, inner):
        known = _known_hosts(destination, target.port, _signature(socket))
    options += _host_key_options(known)
    if target.kind == "vast":
        options += _vast_options(target)
    if target.port:
        options += ["-p", str(target.port)]
    return SshTransport(inner, destination, tuple(options))


def _socket_name(target: Target, destination: str) -> str:
    """Return the name of a shared connection's socket, whose path may have about 100 characters."""
    import hashlib

    if target.kind == "vast":
        return f"vast-{target.name}-{target.port}"
    return hashlib.sha256(f"{destination}:{target.port}".encode()).hexdigest()[:32]


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


_NOTHING_KNOWN = _KnownHosts("")


def _host_key_options(known: _KnownHosts) -> list[str]:
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


def _is_ours(target: Target, inner: Transport) -> bool:
    """Whether the user's ssh configuration on this machine is read for a target."""
    while not isinstance(inner, LocalTransport) and hasattr(inner, "inner"):
        inner = inner.inner
    return target.kind == "ssh" and isinstance(inner, LocalTransport)


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


def _vast_options(target: Target) -> list[str]:
    """Bind the host key (and control socket) to the instance, because vast.ai reuses addresses.

    The machine is a stranger's: the user's own configuration, which may forward an agent, X11 or variables, is not
    read, and one key is offered, so that the owner of the machine does not learn which others there are.
    """
    key = find_vast_key()
    alone = ["-F", "none", "-a", "-x", "-o", "IdentitiesOnly=yes", "-o", "ClearAllForwardings=yes"]
    return [*alone, "-o", f"HostKeyAlias=vast-{target.name}", *(["-i", key] if key else ["-o", "IdentityFile=none"])]


def find_vast_key() -> str | None:
    """Return the one key for rented machines: that of the settings, else the first of the usual ones that exists.

    Without private keys, a public key names the one of an agent.
    """
    key = vast_key_path()
    if os.environ.get(VAST_KEY_PATH):
        return key
    usual = [os.path.join(os.path.expanduser("~/.ssh"), name) for name in _USUAL_KEYS]
    return next(filter(os.path.isfile, (key, *usual, *(f"{each}.pub" for each in usual))), None)


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
