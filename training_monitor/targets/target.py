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
    """One place where commands run: `local`, a pod by its name, and what docs/targets.md lists.

    Attributes:
        name: of the pod or host, or the id of an instance.
        is_here: it is this machine.
        has_other_users: people who are no part of the training may write there.
        has_rsync: rsync works through its transport.
        is_machine: its host name is that of a machine, and not of a container.
        output: the name of the source that has what its runtime keeps of its output; "" for none.
        longest: the seconds that one round trip may take.
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
        """Return the target of a text without its scheme, None if it is not written so; a bare name has a namespace."""
        raise NotImplementedError

    @property
    def called(self) -> str:
        """What people call it in a sentence."""
        return self.name

    @property
    def host(self) -> object:
        """What two targets have in common that are one host, whoever asks there, and in which container."""
        return type(self), self.name

    @property
    def instance_id(self) -> int | None:
        """The id of a rented instance; None for what is not rented."""
        return None

    @property
    def cluster(self) -> object:
        """What lists it, with others, beside the shell; None if nothing does, and so for the methods about pods."""
        return None

    def connect(self, transport: Transport | None) -> Transport:
        """Return what runs commands on it, over `transport` (default: this machine). Raises CommandError."""
        raise NotImplementedError

    def resolve(self, transport: Transport | None, timeout: float = RESOLVE_SECONDS) -> Target:
        """Return it with the address at which it is now, after calls of `timeout` seconds each. Raises CommandError."""
        return self

    def at_address(self, row: Mapping[str, Any]) -> Target:
        """Return it at the address that a row of a listing names. Raises TargetUnreachable: it has none."""
        return self

    def as_listed(self, pod: PodState) -> Target:
        """Return it in the container that its listing gives, see `PodState.main_container`; a named one stays."""
        return self

    @property
    def is_list(self) -> bool:
        """Whether it stands for all that `list_targets` returns, such as `docker://`."""
        return False

    def list_targets(self, transport: Transport | None) -> tuple[Target, ...]:
        """Return what it stands for. Raises CommandError: that could not be asked for."""
        return ()

    @property
    def own_processes(self) -> Mapping[str, str]:
        """The environment variables by which its processes differ from others where it runs; {}: all are its own."""
        return {}

    @property
    def scheduled(self) -> tuple[Target, str] | None:
        """Where its scheduler is asked, and the id of its job there; None: jobs are started on the target itself."""
        return None

    @property
    def gpu_machine(self) -> Target | None:
        """The machine whose GPUs it uses, where it sees none itself."""
        return None

    @property
    def may_be(self) -> tuple[Target, ...]:
        """The containers of a pod one of which is meant, the default one first; () where it is known which one."""
        return ()

    @property
    def others(self) -> tuple[str, ...]:
        """The target strings of the other containers of a pod, as far as they are known."""
        return ()

    def beside(self, pod: str) -> Target:
        """Return another pod of its cluster."""
        raise NotImplementedError

    def list_pods(self, *names: str, transport: Transport | None = None) -> tuple[PodState, ...]:
        """Return the named pods beside it, without missing ones.

        Raises:
            CommandError: they could not be asked for, or one is neither described nor said to be missing.
        """
        return ()

    def find_pods_of_training(self, transport: Transport | None, timeout: float = 40.0) -> tuple[PodState, ...]:
        """Return all pods of its training, itself among them, within `timeout` seconds; none if it is gone.

        Raises:
            CommandError: they could not be asked for.
        """
        return ()

    def find_siblings(self, transport: Transport | None) -> tuple[PodState, ...]:
        """Return the other pods of its training. Raises CommandError: they could not be asked for."""
        return tuple(pod for pod in self.find_pods_of_training(transport) if pod.name != self.name)

    def find_replacement(
        self, labels: Mapping[str, str], transport: Transport | None, ended_at: float | None = None
    ) -> Target | None:
        """Return the one pod that took the place of this one, which had these labels; None if that is not known."""
        return None

    def read_output(self, transport: Transport | None, *, since: str = "", lines: int = 0, former: bool = False) -> str:
        """Return what its process 1 printed, each line with its time: from a time on, or its last lines.

        Args:
            since: RFC 3339; everything from that second on, the oldest first, up to a limit. lines: only that many.
            former: of the process 1 before the last restart.

        Raises:
            CommandError: it could not be asked for, or nothing of it is kept.
        """
        raise NotImplementedError

    def output_files(self, transport: Transport | None) -> tuple[Target, tuple[str, ...]]:
        """Return where its output can be read without it, and in which files. Raises CommandError."""
        return self, ()

    def may_stand(self, said: str) -> bool:
        """Whether `read_standing` is to be asked, after what was said when it could not be reached."""
        return False

    def read_standing(self, transport: Transport | None) -> PodState | None:
        """Return how it stands where nothing can be asked: it has ended, was not started, is suspended, or runs.

        Returns:
            None if that is unknown, or nothing can be known of it without asking there.

        Raises:
            CommandError: what runs it could not be asked.
        """
        return None

    def get_warnings(self, transport: Transport | None, timeout: float) -> str:
        """Return the warnings about the pods beside it, as its cluster's JSON. Raises CommandError."""
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
    """Resolve a vast.ai instance to its current ssh address; return other targets unchanged.

    Args:
        timeout: seconds for each call of the vastai CLI.
    """
    return parse_target(target, namespace=namespace).resolve(transport, timeout)
