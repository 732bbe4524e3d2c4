"""A container of Docker or Podman, here or behind ssh: `docker://[user@host[:port]/]NAME`; all, without a name.

Sources: docker-exec(1), docker-logs(1), docker-inspect(1); podman prints the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from training_monitor.core.errors import SettingsError
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult, PodState
from training_monitor.core.units import name_some, parse_time
from training_monitor.targets.kinds.local import LocalTarget
from training_monitor.targets.kinds.ssh import SshTarget
from training_monitor.targets.target import RESOLVE_SECONDS, Target
from training_monitor.targets.transport import LocalTransport, Through, Transport, explain_failure

_SECONDS = 20.0
_MOST_NAMED = 5
_NAME = regex(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,252}")
_STANDS = {  # by its status
    "created": "Pending",
    "configured": "Pending",
    "initialized": "Pending",
    "restarting": "Pending",
    "paused": "Suspended",
    "exited": "Failed",
    "stopped": "Failed",
    "dead": "Failed",
}
_RESUMES = {"paused": "unpause", **dict.fromkeys(("created", "configured", "initialized"), "start")}


@dataclass(frozen=True, slots=True)
class ContainerTransport(Through):
    """Runs commands in a container through `docker exec -i`."""

    program: str
    name: str

    def words(self, argv: Sequence[str]) -> list[str]:
        return [self.program, "exec", "-i", self.name, *argv]


@dataclass(frozen=True, slots=True)
class DockerTarget(Target):
    """A container, or all that run if its name is empty, on the machine where the program runs."""

    machine: Target = LocalTarget("local")

    program: ClassVar[str] = "docker"
    has_rsync: ClassVar[bool] = False
    is_machine: ClassVar[bool] = False
    output: ClassVar[str] = "container:"

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> DockerTarget | None:
        before, slash, name = text.rpartition("/")
        machine = SshTarget.parse(before, None) if slash else LocalTarget("local")
        return cls(name, machine) if machine and (not name or _NAME.fullmatch(name)) else None

    def __str__(self) -> str:
        before = "" if self.machine.is_here else f"{str(self.machine).partition('://')[2]}/"
        return f"{self.program}://{before}{self.name}"

    @property
    def called(self) -> str:
        return f"container {self.name}"

    @property
    def host(self) -> object:
        return type(self), self.machine.host, self.name

    @property
    def gpu_machine(self) -> Target:
        return self.machine

    def connect(self, transport: Transport | None) -> Transport:
        inner = self._reach(transport)
        if not self.name:
            names = name_some([each.name for each in self.list_targets(transport)], _MOST_NAMED)
            raise SettingsError("target", str(self), f"one of these running containers: {names or '(none)'}")
        return ContainerTransport(inner, self.program, self.name)

    @property
    def is_list(self) -> bool:
        return not self.name

    def list_targets(self, transport: Transport | None) -> tuple[Target, ...]:
        result = self._run("ps", "--format", "{{.Names}}", transport=transport)
        names = (line.split(",")[0].strip() for line in result.stdout.splitlines())
        return tuple(replace(self, name=name) for name in names if _NAME.fullmatch(name))

    def read_output(self, transport: Transport | None, *, since: str = "", lines: int = 0, former: bool = False) -> str:
        """Return what its process 1 printed on both outputs, in the order of its times; it keeps no former one."""
        words = [*([f"--since={since}"] if since else []), *([f"--tail={lines}"] if lines else [])]
        result = self._run("logs", "--timestamps", *words, self.name, transport=transport)
        if not result.stderr:
            return result.stdout
        both = (result.stdout + result.stderr).splitlines(keepends=True)
        return "".join(sorted(both, key=lambda line: line.partition(" ")[0]))

    def may_stand(self, said: str) -> bool:
        return True

    def read_standing(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> PodState | None:
        words = ("inspect", "--type", "container", "--format", "{{json .State}}", self.name)
        result = self._run(*words, transport=transport, timeout=min(_SECONDS, timeout))
        try:
            state = json.loads(result.stdout)
        except (ValueError, RecursionError):
            state = {}
        phase = _STANDS.get(str(state.get("Status"))) if isinstance(state, dict) else None
        word = _RESUMES.get(str(state.get("Status"))) if phase else None
        resume = f"{self.program} {word} {self.name}" if word else None
        return replace(_standing(self.name, phase, state), resume=resume) if phase else None

    def _reach(self, transport: Transport | None) -> Transport:
        """Return the way to the machine's programs; unlike the target `local`, they work where there is no /proc."""
        return (transport or LocalTransport()) if self.machine.is_here else self.machine.connect(transport)

    def _run(self, *words: str, transport: Transport | None, timeout: float = _SECONDS) -> CommandResult:
        """Run the program on its machine. Raises CommandError."""
        result = self._reach(transport).run([self.program, *words], timeout=timeout)
        if result.exit_code:
            raise explain_failure(result, str(self))
        return result


class PodmanTarget(DockerTarget):
    """A container of Podman."""

    __slots__ = ()
    program: ClassVar[str] = "podman"


def _standing(name: str, phase: str, state: dict[str, object]) -> PodState:
    code, is_restarted = state.get("ExitCode"), state.get("Status") == "restarting"
    if phase != "Failed" and not is_restarted and not (phase == "Pending" and code):  # with a code, its start failed
        return PodState(name, phase, False, 0, kind="container")
    exit_code = code if type(code) is int else None
    ended = str(state.get("FinishedAt"))
    reason = "OOMKilled" if state.get("OOMKilled") is True else "Completed" if exit_code == 0 else "Error"
    return PodState(
        name,
        phase if is_restarted else "Succeeded" if exit_code == 0 else "Failed",
        False,
        0,
        message=str(state.get("Error") or "") or None,
        terminated=reason,
        exit_code=exit_code,
        terminated_at=None if ended < "1971" else parse_time(ended),  # year 1 stands for never
        kind="container",
    )
