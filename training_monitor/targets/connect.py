"""From a target to the transport that reaches it."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

from training_monitor.errors import InstanceNotFound, SettingsError, TargetUnreachable
from training_monitor.settings import runtime_dir, state_dir
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import (
    KubectlTransport,
    LocalTransport,
    SshTransport,
    Transport,
    explain_failure,
)

VAST_TIMEOUT = 60.0


def connect(target: Target, transport: Transport | None = None) -> Transport:
    """The transport that runs commands on `target`, over `transport` (default: this machine)."""
    inner = transport or LocalTransport()
    if target.kind == "local":
        return inner
    if target.kind == "pod":
        return KubectlTransport(inner, target.namespace or "default", target.name, target.container, target.context)
    if target.kind == "vast":
        return _ssh(resolve_vast(target, inner), inner, f"vast-{target.name}")
    return _ssh(target, inner, None)


def resolve_target(target: str | Target, *, namespace: str = "default", transport: Transport | None = None) -> Target:
    """A target that needs no look-up any more: vast://ID becomes its ssh address."""
    parsed = parse_target(target, namespace=namespace)
    return resolve_vast(parsed, transport or LocalTransport()) if parsed.kind == "vast" else parsed


def resolve_vast(target: Target, inner: Transport) -> Target:
    """Ask the vastai CLI for the instance's ssh address; it exits 0 with empty output when it could not ask."""
    result = inner.run(["vastai", "show", "instance", target.name, "--raw"], timeout=VAST_TIMEOUT)
    try:
        row = json.loads(result.stdout)
    except ValueError:
        raise explain_failure(result, str(target)) from None
    if not isinstance(row, dict) or ("instances" in row and not row["instances"]):
        raise InstanceNotFound(f"{target}: no such instance in this account", hint="vastai show instances")
    host, port, status = row.get("ssh_host"), row.get("ssh_port"), row.get("actual_status")
    if not host or not port:
        raise TargetUnreachable(
            f"it has no ssh address yet (status {status})",
            target=str(target),
            hint="wait until it is running, or rent another",
        )
    try:
        return replace(parse_target(f"ssh://root@{host}:{port}"))
    except SettingsError as error:
        raise TargetUnreachable(f"vast.ai names an unusable ssh address {host}:{port}", target=str(target)) from error


def _ssh(target: Target, inner: Transport, alias: str | None) -> SshTransport:
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
        "StrictHostKeyChecking=accept-new",
        "-o",
        "LogLevel=ERROR",
    ]
    known_hosts = _private_folder(state_dir())
    if known_hosts:
        quoted = os.path.join(known_hosts, "known_hosts").replace("%", "%%")
        options += ["-o", f'UserKnownHostsFile="{quoted}"']
    sockets = _private_folder(runtime_dir())
    if sockets:
        options += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", f"ControlPath={sockets}/%C"]
    if alias:
        options += ["-o", f"HostKeyAlias={alias}"]
    if key := os.environ.get("VASTAI_SSH_KEY_PATH") if alias else None:
        options += ["-i", os.path.expanduser(key)]
    if target.port:
        options += ["-p", str(target.port)]
    destination = f"{target.user}@{target.name}" if target.user else target.name
    return SshTransport(inner, destination, tuple(options))


def _private_folder(path: str) -> str | None:
    """The folder, made if need be; None where it cannot be made or is not ours alone to write."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        seen = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022
    return path if ours else None
