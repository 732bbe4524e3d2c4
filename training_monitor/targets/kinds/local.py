"""This machine: `local`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from training_monitor.core.errors import LocalFailure
from training_monitor.targets.target import Target

if TYPE_CHECKING:
    from training_monitor.targets.transport import Transport

_PROC = "/proc/self/stat"


@dataclass(frozen=True, slots=True)
class LocalTarget(Target):
    """This machine."""

    name: str = "local"

    is_here: ClassVar[bool] = True
    has_other_users: ClassVar[bool] = True

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> LocalTarget | None:
        return None if namespace is None else cls()

    def __str__(self) -> str:
        return "local"

    def connect(self, transport: Transport | None) -> Transport:
        from training_monitor.targets.transport import LocalTransport

        check_this_machine()
        return transport or LocalTransport()


def check_this_machine() -> None:
    """Raise LocalFailure where the processes of this machine cannot be seen: without them, all would seem to be gone.

    The other targets need nothing of Linux here.
    """
    if not os.path.exists(_PROC):
        raise LocalFailure(
            f"the target `local` requires Linux's /proc, which this machine ({os.uname().sysname}) does not have",
            hint="use a Linux target: ssh://host, a pod or vast://ID",
        )
