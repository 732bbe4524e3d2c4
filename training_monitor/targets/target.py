"""Target strings: where commands run. Pure.

A kind is one class, and one line of `targets/kinds/__init__.py`: how it is written and reached, what it can tell beside
the shell, and what is different there. Nothing else asks which kind a target is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

from training_monitor.core.errors import SettingsError, did_you_mean
from training_monitor.core.fields import PublicValue
from training_monitor.core.results import PodState
from training_monitor.targets.kinds import BARE, KINDS, list_forms, one_of

if TYPE_CHECKING:
    from training_monitor.targets.transport import Transport

RESOLVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Target(PublicValue):
    """One place where commands run: `local`, a pod by its name, and the other forms in docs/targets.md.

    Attributes:
        name: the name of the pod or host, or the ID of an instance.
        is_here: whether the target is this machine.
        has_other_users: whether people who are not part of the training may have write access.
        has_rsync: whether rsync works over its transport.
        is_machine: whether its host name is that of a machine, not of a container.
        output: the source of the output that the target's runtime keeps; "" if there is none.
        longest: the maximum duration of one round trip, in seconds.
    """

    name: str

    is_here: ClassVar[bool] = False
    has_other_users: ClassVar[bool] = False
    has_rsync: ClassVar[bool] = True
    is_machine: ClassVar[bool] = True
    output: ClassVar[str] = ""
    longest: ClassVar[float] = math.inf

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> Target | None:
        """Parse a target string without its scheme. `namespace` is for bare names. Return None if it does not match."""
        raise NotImplementedError

    @property
    def called(self) -> str:
        """Return the name of the target as used in sentences."""
        return self.name

    @property
    def host(self) -> object:
        """Return a value that is equal for all targets on the same host, regardless of user and container."""
        return type(self), self.name

    @property
    def instance_id(self) -> int | None:
        """Return the ID of a rented instance; None for other targets."""
        return None

    @property
    def cluster(self) -> object:
        """Return the cluster that lists this target among others; None if there is none.

        Without a cluster, the methods about pods do not apply.
        """
        return None

    def connect(self, transport: Transport | None) -> Transport:
        """Return a transport to the target, which uses `transport` (default: this machine). Raises CommandError."""
        raise NotImplementedError

    def resolve(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> Target:
        """Return the target with its current address. Each call takes at most `timeout` s. Raises CommandError."""
        return self

    def at_address(self, row: Mapping[str, Any]) -> Target:
        """Return the target with the address in a row of a listing. Raises TargetUnreachable if the row has none."""
        return self

    def as_listed(self, pod: PodState) -> Target:
        """Return the target in its listed container (see `PodState.main_container`), unless a container was named."""
        return self

    @property
    def is_list(self) -> bool:
        """Return whether the target stands for all targets that `list_targets` returns, such as `docker://`."""
        return False

    def list_targets(self, transport: Transport | None) -> tuple[Target, ...]:
        """Return the targets that this one stands for. Raises CommandError if they could not be listed."""
        return ()

    @property
    def own_processes(self) -> Mapping[str, str]:
        """Return the environment variables that distinguish its processes from others there; {}: all are its own."""
        return {}

    @property
    def scheduled(self) -> tuple[Target, str] | None:
        """Return where to query its scheduler, and its job's ID; None: jobs are started on the target itself."""
        return None

    @property
    def gpu_machine(self) -> Target | None:
        """Return the machine whose GPUs it uses, if the target itself cannot see them."""
        return None

    @property
    def may_be(self) -> tuple[Target, ...]:
        """Return the containers of a pod that may be meant, the default one first; () if the container is known."""
        return ()

    @property
    def others(self) -> tuple[str, ...]:
        """Return the target strings of the other containers of a pod, as far as they are known."""
        return ()

    def beside(self, pod: str) -> Target:
        """Return another pod of the same cluster, by its name."""
        raise NotImplementedError

    def list_pods(self, *names: str, transport: Transport | None = None) -> tuple[PodState, ...]:
        """Return the named pods in its namespace, omitting those that do not exist.

        Raises:
            CommandError: the pods could not be queried, or one is neither described nor reported as missing.
        """
        return ()

    def find_pods_of_training(self, transport: Transport | None, timeout: float = 40.0) -> tuple[PodState, ...]:
        """Return all pods of its training, itself included, within `timeout` seconds; none if it no longer exists.

        Raises:
            CommandError: the pods could not be queried.
        """
        return ()

    def find_siblings(self, transport: Transport | None, timeout: float = 40.0) -> tuple[PodState, ...]:
        """Return the other pods of its training. Raises CommandError if they could not be queried."""
        return tuple(pod for pod in self.find_pods_of_training(transport, timeout) if pod.name != self.name)

    def explain_no_pods(self, transport: Transport | None = None) -> tuple[str, ...]:
        """Return why jobs of its name have no pods: they are suspended, or the cluster warns of them (over quota)."""
        return ()

    def find_replacement(
        self, labels: Mapping[str, str], transport: Transport | None, ended_at: float | None = None
    ) -> Target | None:
        """Return the one pod that replaced this one, which had these labels; None if unknown."""
        return None

    def read_output(self, transport: Transport | None, *, since: str = "", lines: int = 0, former: bool = False) -> str:
        """Return the output of its process 1 with a timestamp on each line: from a given time on, or the last lines.

        Args:
            since: RFC 3339; return all output from that second on, oldest first, up to a limit. lines: return only this
                number of lines.
            former: return the output of the process 1 before the last restart.

        Raises:
            CommandError: the output could not be queried, or none of it was kept.
        """
        raise NotImplementedError

    def output_files(self, transport: Transport | None) -> tuple[Target, tuple[str, ...], int | str]:
        """Return where its output is read without it, in which files, and since when, or "". Raises CommandError."""
        return self, (), ""

    def may_stand(self, said: str) -> bool:
        """Return whether `read_standing` should be called, given the error message of an unreachable target."""
        return False

    def read_standing(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> PodState | None:
        """Return the state of a target on which no commands can run: ended, not started, suspended or running.

        Args:
            timeout: maximum seconds.

        Returns:
            None if the state is unknown, or can only be found out by commands on the target.

        Raises:
            CommandError: the system that runs the target could not be queried.
        """
        return None

    def get_warnings(self, transport: Transport | None, timeout: float) -> str:
        """Return the warnings about the pods in its namespace, as JSON from the cluster. Raises CommandError."""
        return '{"items": []}'


def parse_target(text: str | Target, *, namespace: str = "default") -> Target:
    """Parse a target string; a bare name is a pod in `namespace`. Raises SettingsError."""
    if isinstance(text, Target):
        return text
    meant = ""
    if isinstance(text, str):
        scheme, mark, rest = text.partition("://")
        if not mark:
            scheme, rest = next((each for each, kind in KINDS.items() if kind.form == text), BARE), text
        if scheme not in KINDS:
            meant = did_you_mean(f"{scheme}://", [f"{each}://" for each, kind in KINDS.items() if kind.form != each])
        elif target := class_of(scheme).parse(rest, None if mark else namespace):
            return target
        elif "/" in text and not mark:
            meant = "; for a file on this machine, use the target local, followed by the path"
    raise SettingsError("target", text, one_of(list_forms("a pod name")) + meant)


def split_folder(where: str, namespace: str = "default") -> tuple[Target, str]:
    """Return the target and the folder on it of `TARGET/path`, or `POD:/path`; the path begins with / or ~.

    Raises:
        SettingsError: it names no target and folder.
    """
    scheme, mark, _ = where.partition("://")
    kind = KINDS.get(scheme if mark else BARE)
    begins = f"{re.escape(scheme)}://.+?" if mark else "[^/:]+"
    rest = "/(.*)" if kind and kind.before_folder == "/" else ":([/~].*)"
    found = re.fullmatch(f"({begins}){rest}", where, re.DOTALL)
    if not found or not kind:
        raise SettingsError("folder", where, "a target and a folder, such as ssh://HOST/FOLDER or POD:/FOLDER")
    at_root = kind.before_folder == "/" and not re.match(r"~(?:/|\Z)", found[2])
    return parse_target(found[1], namespace=namespace), f"/{found[2]}" if at_root else found[2]


def call_host(text: str) -> str:
    """Return how people call the host of a target string in a sentence: pod worker-2."""
    if "://" not in text:
        return text
    try:
        return parse_target(text).called
    except SettingsError:
        return text


def instance_of(text: str) -> int | None:
    """Return the id of the rented instance that a target string names; None for any other text."""
    try:
        return parse_target(text).instance_id
    except SettingsError:
        return None


def class_of(scheme: str) -> type[Target]:
    """Return the class of a kind of target, imported when it is first asked for."""
    module, _, name = KINDS[scheme].made_by.partition(":")
    return cast("type[Target]", getattr(import_module(f"training_monitor.targets.kinds.{module}"), name))


def resolve_target(
    target: str | Target,
    *,
    namespace: str = "default",
    transport: Transport | None = None,
    timeout: float = RESOLVE_SECONDS,
) -> Target:
    """Resolve a vast.ai instance to its current ssh address. Return other targets unchanged.

    Args:
        timeout: maximum seconds for each call of the vastai CLI.
    """
    return parse_target(target, namespace=namespace).resolve(transport, timeout)
