"""A rented vast.ai instance: `vast://ID`, which is reached by ssh at the address that the service names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from training_monitor.core.errors import CommandTimedOut, InstanceNotFound, TargetUnreachable, last_lines
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult
from training_monitor.core.settings import VAST_KEY_PATH, vast_key_path
from training_monitor.targets.kinds.ssh import NOTHING_KNOWN, SshTarget, host_key_options, shared_socket, ssh_to
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, SshTransport, Transport, explain_failure

VAST_TIMEOUT = 60.0
_PAGE, _MOST_PAGES = 25, 400
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
# The machine is a stranger's: the user's own configuration, which may forward an agent, X11 or variables, is not read,
# and one key is offered, so that the owner of the machine does not learn which others there are.
_ALONE = ("-F", "none", "-a", "-x", "-o", "IdentitiesOnly=yes", "-o", "ClearAllForwardings=yes")
_NO_SERVER = regex(r"ssh: connect to host|ssh: Could not resolve hostname|kex_exchange_identification: ")
_NO_STATUS = "not known yet"  # of an instance that has just been rented
_STOPPED = "start it: vastai start instance {}; it may have been outbid, or stopped by someone else"
_SCHEDULED = "scheduled"  # stopped, and to run again when a GPU is free
_AFTER = {
    _SCHEDULED: "wait until a GPU of its machine is free, rent another machine, or raise the bid if it was outbid",
    **dict.fromkeys(("exited", "stopped", "stopping"), _STOPPED),
    "running": "wait a minute if it has just started; otherwise, it may have been rented without ssh: see vastai show "
    "instance {}, or rent it again with --ssh --direct",
    "offline": "its machine has lost the connection to vast.ai: wait until it is back, or rent another machine",
}


@dataclass(frozen=True, slots=True)
class VastTarget(Target):
    """A rented instance, with what the service says of it, once that is known.

    Attributes:
        address, port: of its ssh server: that of the service's proxy, if there is one.
        direct: the same of the machine itself, where a proxy is before it.
        status: what the service calls its state, unless that is running; `said` is its message on that.
    """

    address: str | None = None
    port: int | None = None
    direct: tuple[str, int | None] | None = None
    status: str | None = None
    said: str | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> VastTarget | None:
        return cls(text) if re.fullmatch("[0-9]{1,4000}", text) else None

    def __str__(self) -> str:
        return f"vast://{self.name}"

    @property
    def called(self) -> str:
        return f"instance {self.name}"

    @property
    def instance_id(self) -> int:
        return int(self.name)

    def connect(self, transport: Transport | None) -> Transport:
        inner = transport or LocalTransport()
        here = self if self.address else self.resolve(inner)
        ways = [here._way(inner, *each) for each in ((here.address, here.port), here.direct) if each]
        if here.status is None and len(ways) == 1:
            return ways[0]
        found = next(filter(here._is_open, ways), None)
        if found is None and here.status:
            raise here._unreachable("no response over ssh", here.status, here.said)
        return found or ways[0]

    def _way(self, inner: Transport, address: str | None, port: int | None) -> SshTransport:
        # vast.ai gives an address to one instance after another: the host key and the socket belong to the instance.
        options = [*host_key_options(NOTHING_KNOWN), *_ALONE, "-o", f"HostKeyAlias=vast-{self.name}"]
        key = find_vast_key()
        options += ["-i", key] if key else ["-o", "IdentityFile=none"]
        return ssh_to(inner, f"root@{address}", port, shared_socket(f"vast-{self.name}-{port}"), options)

    def _is_open(self, way: SshTransport) -> bool:
        """Whether an ssh server answers there, whatever it says; where a connection is shared, it did a minute ago."""
        if os.path.exists(shared_socket(f"vast-{self.name}-{way.options[-1]}")):
            return True
        try:
            result = way.run(["true"], timeout=20.0)
        except CommandTimedOut:
            return False
        return result.exit_code != 255 or not _NO_SERVER.search(result.stderr)

    def _unreachable(self, what: str, status: object, said: str | None) -> TargetUnreachable:
        from training_monitor.core.image_errors import ELSEWHERE, cannot_start

        hint = _AFTER.get(str(status), "wait until it is running, or rent another instance").format(self.name)
        hint = ELSEWHERE if cannot_start(said) else hint
        more = f": {last_lines(said)}" if said else ""
        return TargetUnreachable(f"{what} (status {str(status or _NO_STATUS):.40}{more})", target=str(self), hint=hint)

    def resolve(self, transport: Transport | None, timeout: float = VAST_TIMEOUT) -> VastTarget:
        """Ask the vastai CLI for its address; the CLI exits 0 with empty output when it could not ask."""
        inner = transport or LocalTransport()
        result = inner.run(["vastai", "show", "instance", self.name, "--raw"], timeout=timeout)
        row = _read_json(result)
        if row is None and result.exit_code:  # the CLI fails so for a row without a start date; the list has the row
            row = _listed_row(int(self.name), inner, timeout)
        if row == {"instances": None}:
            raise InstanceNotFound(
                f"{self}: no such instance in this account", hint="list the instances with `vastai show instances`"
            )
        if not isinstance(row, dict):
            raise explain_failure(result, str(self))
        return self.at_address(row)

    def at_address(self, row: Mapping[str, Any]) -> VastTarget:
        status, message, intended = row.get("actual_status"), row.get("status_msg"), row.get("intended_status")
        is_down, is_stopped = (row.get(each) in ("stopped", "exited") for each in ("actual_status", "cur_state"))
        if is_down and is_stopped and intended == "running":
            status = _SCHEDULED
        elif intended == "stopped" and status in (None, "created", "loading", "running"):
            status = "stopped" if is_stopped else "stopping"
        said = message.strip() if isinstance(message, str) else ""
        if status == "running" or said.lower().startswith("success"):  # of when it began to run
            said = ""
        usable = (SshTarget.parse(f"root@{host}:{port}", None) for host, port in addresses_of(row))
        found = [*dict.fromkeys((each.name, each.port) for each in usable if each)]
        if not found:
            raise self._unreachable("no usable ssh address", status, said)
        is_running = row.get("actual_status", "running") == "running" and status != "stopping"
        stated = None if is_running else f"{status or _NO_STATUS}"
        (address, port), direct = found[0], next(iter(found[1:]), None)
        return replace(self, address=address, port=port, direct=direct, status=stated, said=said or None)


def addresses_of(row: Mapping[str, Any]) -> Iterator[tuple[object, object]]:
    """Yield the addresses of an instance's ssh server: the service's proxy, and the machine if its port is open."""
    if row.get("ssh_host") and row.get("ssh_port"):
        yield row["ssh_host"], row["ssh_port"]
    ports = row.get("ports")
    of_ssh = ports.get("22/tcp") if isinstance(ports, dict) else None
    first = of_ssh[0] if isinstance(of_ssh, list) and of_ssh else None
    if row.get("public_ipaddr") and isinstance(first, dict) and first.get("HostPort"):
        yield str(row["public_ipaddr"]).strip(), first["HostPort"]


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


def find_vast_key() -> str | None:
    """Return the one key for rented machines: that of the settings, else the first of the usual ones that exists.

    Without private keys, a public key names the one of an agent.
    """
    key = vast_key_path()
    if os.environ.get(VAST_KEY_PATH):
        return key
    folder = os.path.expanduser("~/.ssh")
    usual = [f"{folder}/{name}" for name in _USUAL_KEYS]
    return next(filter(os.path.isfile, (key, *usual, *(f"{each}.pub" for each in usual))), None)
