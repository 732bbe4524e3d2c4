"""A rented vast.ai instance: `vast://ID`, which is reached by ssh at the address that the service names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from training_monitor.core.errors import InstanceNotFound, TargetUnreachable
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.models import CommandResult
from training_monitor.core.settings import VAST_KEY_PATH, vast_key_path
from training_monitor.targets.kinds.ssh import NOTHING_KNOWN, SshTarget, host_key_options, shared_socket, ssh_to
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport, explain_failure

VAST_TIMEOUT = 60.0
_PAGE, _MOST_PAGES = 25, 400
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
# The machine is a stranger's: the user's own configuration, which may forward an agent, X11 or variables, is not read,
# and one key is offered, so that the owner of the machine does not learn which others there are.
_ALONE = ("-F", "none", "-a", "-x", "-o", "IdentitiesOnly=yes", "-o", "ClearAllForwardings=yes")


@dataclass(frozen=True, slots=True)
class VastTarget(Target):
    """A rented instance; `address` and `port` are those of its ssh server, once they are known."""

    address: str | None = None
    port: int | None = None

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
        # vast.ai gives an address to one instance after another: the host key and the socket belong to the instance.
        options = [*host_key_options(NOTHING_KNOWN), *_ALONE, "-o", f"HostKeyAlias=vast-{self.name}"]
        key = find_vast_key()
        options += ["-i", key] if key else ["-o", "IdentityFile=none"]
        return ssh_to(inner, f"root@{here.address}", here.port, shared_socket(f"vast-{here.name}-{here.port}"), options)

    def resolve(self, transport: Transport | None, timeout: float = VAST_TIMEOUT) -> VastTarget:
        """Ask the vastai CLI for its address; the CLI exits 0 with empty output when it could not ask."""
        inner = transport or LocalTransport()
        result = inner.run(["vastai", "show", "instance", self.name, "--raw"], timeout=timeout)
        row = _read_json(result)
        if row is None and result.exit_code:  # the CLI fails so for a row without a start date; the list has the row
            row = _listed_row(int(self.name), inner, timeout)
        if row == {"instances": None}:
            raise InstanceNotFound(f"{self}: no such instance in this account", hint="vastai show instances")
        if not isinstance(row, dict):
            raise explain_failure(result, str(self))
        return self.at_address(row)

    def at_address(self, row: Mapping[str, Any]) -> VastTarget:
        host, port = row.get("ssh_host"), row.get("ssh_port")
        if not host or not port:
            raise TargetUnreachable(
                f"it has no ssh address yet (status {str(row.get('actual_status')):.40})",
                target=str(self),
                hint="wait until it is running, or rent another",
            )
        found = SshTarget.parse(f"root@{host}:{port}", None)
        if found is None:
            shown = f"{host}:{port}"[:100]
            raise TargetUnreachable(f"vast.ai names an unusable ssh address {shown!r}", target=str(self))
        return replace(self, address=found.name, port=found.port)


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
    usual = [os.path.join(os.path.expanduser("~/.ssh"), name) for name in _USUAL_KEYS]
    return next(filter(os.path.isfile, (key, *usual, *(f"{each}.pub" for each in usual))), None)
