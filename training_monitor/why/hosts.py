"""The hosts that a roll call asks: that of the training, the other pods of its training, and those that are named."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from training_monitor.core.errors import IncompleteAnswer, TrainingMonitorError
from training_monitor.core.models import Answer
from training_monitor.core.regex import regex
from training_monitor.core.results import PodState
from training_monitor.core.units import plural
from training_monitor.jobs.process_jobs import PREFIX
from training_monitor.look.find_trainings import FoundTraining, FoundTrainings
from training_monitor.look.meant import MeantTraining
from training_monitor.targets.asking import Site
from training_monitor.targets.proc_stat import are_one
from training_monitor.targets.target import Target
from training_monitor.why.ranks import Rank

_NUMBER = regex(r"[0-9a-f]{8}")  # of a job of Ray


class Host(NamedTuple):
    """One place where ranks may run.

    Attributes:
        name: its target string. node: its Kubernetes node, if that is known.
        roots: the script that prints the processes of the training there; None if they must be found.
        is_found: whether that is found among all processes of the host, so that no rank of it is left out.
        has_more: whether there are further containers, which are not looked at.
        ask: how to ask it; None: by its site.
    """

    site: Site
    name: str
    node: str | None = None
    roots: str | None = None
    is_found: bool = True
    has_more: bool = False
    ask: Callable[..., list[Answer[Any]]] | None = None


class Pods(NamedTuple):
    """All pods of a pod's training, as Kubernetes lists them; `unknown` is why it does not."""

    listed: tuple[PodState, ...] = ()
    unknown: str | None = None


def ask_pods(site: Site, timeout: float) -> Pods:
    """Ask Kubernetes for the pods of a pod's training, for at most `timeout` seconds; other targets have none."""
    try:
        return Pods(site.target.find_pods_of_training(site.transport, timeout))
    except TrainingMonitorError as error:
        return Pods(unknown=error.what)


def find_hosts(site: Site, pods: Sequence[PodState], also: Sequence[Target]) -> list[Host]:
    """Return all hosts to ask, that of the training first, each once.

    Args:
        site: where the training is.
        pods: all pods of its training.
        also: further hosts, by the user.
    """
    known = {site.target.beside(pod.name).host: (pod.node, len(pod.containers) > 1) for pod in pods}
    targets: dict[object, Target] = {}
    for each in (site.target, *also, *(site.target.beside(pod.name).as_listed(pod) for pod in pods if _may_run(pod))):
        targets.setdefault(each.host, each)
    placed = ((each, *known.get(key, (None, False))) for key, each in targets.items())
    return [Host(site.at(each), str(each), node, has_more=has_more) for each, node, has_more in placed]


def find_silent_pods(site: Site, pods: Sequence[PodState], asked: Sequence[Host]) -> dict[str, str]:
    """Return the pods that are not asked although it is unknown what runs there, and why."""
    known = {each.site.target.host for each in asked}
    unknown = [(site.target.beside(pod.name), pod.phase) for pod in pods if not (_may_run(pod) or _has_no_process(pod))]
    return {
        str(target): f"Kubernetes reports its state as unknown ({phase})"
        for target, phase in unknown
        if target.host not in known
    }


def _may_run(pod: PodState) -> bool:
    """Return whether to ask a pod: a container of a pending one may be up while another one is not."""
    return pod.phase == "Running" or (pod.phase == "Pending" and pod.node is not None)


def _has_no_process(pod: PodState) -> bool:
    return pod.phase in ("Succeeded", "Failed") or (pod.phase == "Pending" and pod.node is None)


def are_all_hosts(ranks: Sequence[Rank], silent: Mapping[str, str], partial: Container[str], pods: Pods) -> bool | None:
    """Return whether all hosts of a training answered or have no process, see `RollCall.is_whole`.

    Kubernetes knows the pods of a training; of other hosts only the numbers of their ranks tell that they are all.
    """
    if silent or pods.unknown or any(each.host in partial for each in ranks):
        return False
    world, sizes = max((each.world_size or 0 for each in ranks), default=0), dict[str, int]()
    for each in ranks:
        sizes[each.host] = max(sizes.get(each.host, 0), each.local_world_size or 0)
    if len(pods.listed) > 1:
        room = len(pods.listed) * max(sizes.values(), default=0)
        return True if world <= room or not room else None
    return True if 0 < world <= sum(sizes.values()) else None


# ---------------------------------------------------------------- the training on another host than its own


def choose_processes(meant: MeantTraining, found: FoundTrainings) -> tuple[int, ...]:
    """Return the processes of a training on another host than its own; () if it has none there.

    Raises:
        IncompleteAnswer: it may be one of those that were found; which one is unknown.
    """
    job_id = meant.job.job_id or ""
    if job_id and not job_id.startswith(PREFIX):
        chosen = _of_ray(meant, found.trainings, job_id)
    elif (meant.script or "").startswith("ray::"):
        chosen = _of_ray(meant, found.trainings)
    else:
        chosen = _of_script(meant, found.trainings)
    if not chosen and found.unlisted:
        raise IncompleteAnswer(f"{plural(found.unlisted, 'process', 'processes')} on this host were not inspected")
    ranked = [each for each in chosen if each.rank is not None or each.ray_job] or chosen
    return tuple(dict.fromkeys(pid for each in ranked for pid in (each.pid, *each.pids)))


def _of_ray(meant: MeantTraining, there: Sequence[FoundTraining], job_id: str = "") -> list[FoundTraining]:
    """Return the workers of a Ray job: where its driver does not run, only a number tells the jobs apart."""
    own = [each for each in there if job_id and each.ray_job == job_id]
    numbered = [each for each in there if _NUMBER.fullmatch(each.ray_job or "")]
    if not own and len({each.ray_job for each in numbered}) > 1:
        raise _several(meant)
    return own or numbered


def _of_script(meant: MeantTraining, found: Sequence[FoundTraining]) -> list[FoundTraining]:
    """Return those that meet where this training does, or else run its script and may meet there."""
    there = [each for each in found if are_one(meant.meeting, each.meeting) is not False]
    if meeting := [each for each in there if are_one(meant.meeting, each.meeting)]:
        return meeting
    if meant.script is None:
        if len(there) > 1:
            raise _several(meant)
        return there
    same = [each for each in there if each.script == meant.script]
    if not same and any(each.ray_job or each.script is None for each in there):
        raise IncompleteAnswer(f"a training is running on this host, but it is unknown whether that is {meant.name}")
    return same


def _several(meant: MeantTraining) -> IncompleteAnswer:
    return IncompleteAnswer(
        f"several trainings are running on this host, and it is unknown which of them is {meant.name}"
    )
