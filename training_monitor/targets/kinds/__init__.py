"""The kinds of target: each is one class in a module of this folder, and one line here. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of target: `module:class`, how one is written, what it is, and what stands before a folder on it."""

    made_by: str
    form: str
    is_a: str
    before_folder: str = "/"


# By scheme, in the order in which they are listed. BARE is what a name without one means.
KINDS: Mapping[str, Kind] = {
    "local": Kind("local:LocalTarget", "local", "this machine"),
    "k8s": Kind("pod:PodTarget", "k8s://namespace/pod[/container][?context=C]", "a pod", ":"),
    "ssh": Kind("ssh:SshTarget", "ssh://[user@]host[:port]", "a machine"),
    "docker": Kind("container:DockerTarget", "docker://[user@host/]NAME", "a Docker container", ":"),
    "podman": Kind("container:PodmanTarget", "podman://[user@host/]NAME", "a Podman container", ":"),
    "slurm": Kind("slurm:SlurmTarget", "slurm://[user@host/]JOB", "a Slurm job, by its ID or name", ":"),
    "vast": Kind("vast:VastTarget", "vast://ID", "a rented vast.ai instance"),
}
BARE = "k8s"


def is_bare(text: str) -> bool:
    """Return whether a target string is a bare name, that of a pod without its namespace."""
    return "://" not in text and text != "local"


def list_forms(bare: str) -> list[str]:
    """Return how each kind of target is written, with a word for a bare name."""
    first, *rest = (kind.form for kind in KINDS.values())
    return [first, bare, *rest]


def list_folder_forms() -> list[str]:
    """Return how a folder of each kind of target is written."""
    kinds = [kind for kind in KINDS.values() if "://" in kind.form] + [KINDS[BARE]._replace(form="POD")]
    return [f"{each.form}{each.before_folder.replace('/', '')}/path" for each in kinds]


def one_of(forms: Sequence[str]) -> str:
    """Return `a, b or c`."""
    return f"{', '.join(forms[:-1])} or {forms[-1]}"
