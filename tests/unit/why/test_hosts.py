"""Which hosts a roll call asks: each once, however it is named, and whether they are all hosts of the training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from training_monitor.core.errors import IncompleteAnswer
from training_monitor.core.results import PodState
from training_monitor.core.values import WatchedJob
from training_monitor.look.find_trainings import FoundTraining, FoundTrainings
from training_monitor.look.meant import MeantTraining
from training_monitor.look.training_command import script_of
from training_monitor.targets.asking import Site
from training_monitor.targets.proc_stat import Meeting
from training_monitor.targets.target import parse_target
from training_monitor.why.hosts import Pods, are_all_hosts, choose_processes, find_hosts, find_silent_pods
from training_monitor.why.ranks import Rank


def pod(name: str, **more: Any) -> PodState:
    return PodState(**{"name": name, "phase": "Running", "ready": True, "restarts": 0, "node": f"node-{name}", **more})


def hosts(target: str, *also: str, pods: tuple[PodState, ...] = ()) -> list[tuple[str, str | None]]:
    found = find_hosts(Site.of(target), pods, [parse_target(each) for each in also])
    assert all(each.name == str(each.site.target) for each in found)
    return [(each.name, each.node) for each in found]


def test_a_host_or_pod_that_is_found_or_named_twice_is_asked_once() -> None:
    assert hosts("local", "local") == [("local", None)]
    also = ("ssh://root@gpu1", "ssh://gpu1:22", "ssh://gpu2", "ssh://gpu2")
    assert [name for name, _ in hosts("ssh://gpu1", *also)] == [
        "ssh://gpu1",
        "ssh://gpu1:22",  # which may be another one, by the user's own configuration of ssh
        "ssh://gpu2",
    ]
    pods = (pod("w-0"), pod("w-1"), pod("w-2"))
    assert hosts("k8s://ml/w-0/train", "k8s://ml/w-1/train", "k8s://ml/w-0", pods=pods) == [
        ("k8s://ml/w-0/train", "node-w-0"),
        ("k8s://ml/w-1/train", "node-w-1"),
        ("k8s://ml/w-2", "node-w-2"),
    ]
    elsewhere = hosts("k8s://ml/w-0", "k8s://other/w-1", "k8s://ml/w-1?context=blue", pods=pods)
    names = "k8s://ml/w-0 k8s://other/w-1 k8s://ml/w-1?context=blue k8s://ml/w-1 k8s://ml/w-2"
    assert [name for name, _ in elsewhere] == names.split()
    assert elsewhere[1][1] is None


def test_pods_in_which_processes_may_run_are_asked() -> None:
    pods = (
        pod("running"),
        pod("deleting", deleting=True),
        pod("starting", phase="Pending", reason="ImagePullBackOff"),  # another container of it may be up
        pod("waiting", phase="Pending", reason="Unschedulable", node=None),
        pod("done", phase="Succeeded"),
        pod("broken", phase="Failed"),
        pod("lost", phase="Unknown"),
    )
    asked = find_hosts(Site.of("k8s://ml/running"), pods, [])
    assert [each.site.target.name for each in asked] == ["running", "deleting", "starting"]
    assert find_silent_pods(Site.of("k8s://ml/running"), pods, asked) == {
        "k8s://ml/lost": "Kubernetes reports its state as unknown (Unknown)"
    }
    pods, site = (pod("w-0", phase="Unknown"), pod("w-1")), Site.of("k8s://ml/w-0")
    assert find_silent_pods(site, pods, find_hosts(site, pods, [])) == {}


def ranks(host: str, *numbers: int, world: int | None = 8, local: int | None = 4) -> list[Rank]:
    return [Rank(host, 100 + each, rank=each, world_size=world, local_world_size=local) for each in numbers]


TWO = Pods((pod("w-0"), pod("w-1")))


def test_the_training_was_seen_as_a_whole_only_where_that_is_known() -> None:
    for seen, silent, pods, whole in [
        (ranks("a", 0, 1, 2), {}, Pods(), None),  # the others may be on hosts that were not named
        (ranks("a", 0, 1, 2, world=24, local=8) + ranks("b", 8, 9, world=24, local=8), {}, Pods(), None),
        (ranks("a", 0, 1, 2) + ranks("b", 4), {}, Pods(), True),
        (ranks("a", 0, 1, 2) + ranks("b", 4, local=None), {}, Pods(), None),
        (ranks("a", 0, world=None, local=None), {}, Pods(), None),
        (ranks("a", 0, 1, world=2, local=2), {}, Pods(), True),
        (ranks("a", 0, 1, world=2, local=2), {"b": "no answer"}, Pods(), False),
        ([], {}, Pods(), None),
        ([], {}, TWO, True),
        (ranks("a", 0, 1, 2), {}, TWO, True),
        (ranks("a", 0, 1, 2), {"k8s://ml/w-1": "no answer"}, TWO, False),
        (ranks("a", 0, 1, 2), {}, Pods((pod("w-0"), pod("w-1", phase="Failed"))), True),
        (ranks("a", 0, 1, 2, world=24, local=4), {}, TWO, None),  # more ranks than these pods have place for
        (ranks("a", 0, 1, 2), {}, Pods((pod("w-0"),)), None),
        (ranks("a", 0, 1, 2), {}, Pods(unknown="forbidden"), False),
    ]:
        assert are_all_hosts(seen, silent, (), pods) is whole


def found(pid: int, command: str, **more: Any) -> FoundTraining:
    return FoundTraining(pid, 1, "boot", 1, command, pids=(pid, pid + 1), script=script_of(command.split()), **more)


def meant(command: str | None = None, **job: Any) -> MeantTraining:
    return MeantTraining(WatchedJob(**(job or {"pid": 7})), "mine", command, script=script_of((command or "").split()))


def chosen(training: MeantTraining, *there: FoundTraining, unlisted: int = 0) -> list[int]:
    return sorted(choose_processes(training, FoundTrainings(there, unlisted)))


MINE, THEIRS = found(10, "python /a/train.py --lr 1", rank=4), found(20, "python /b/other.py", rank=0)
WORKER, OTHER_WORKER = found(30, "ray::Worker.train", ray_job="02000000"), found(40, "ray::X", ray_job="03000000")


def test_the_training_of_another_host_is_known_by_its_script_or_meeting() -> None:
    by_launcher = "torchrun --nnodes 2 /elsewhere/train.py"
    for command in ("python train.py --lr 2", by_launcher):
        assert chosen(meant(command), MINE) == chosen(meant(command), THEIRS, MINE) == [10, 11]
        assert chosen(meant(command), found(10, by_launcher)) == [10, 11]
        assert chosen(meant(command), MINE, found(50, "python train.py")) == [10, 11]  # which has no rank
        assert chosen(meant(command), THEIRS) == chosen(meant(command)) == []
    here, there = (Meeting("gpu-1", port, "a") for port in ("1", "2"))
    mine, other = found(10, "python run.py", meeting=here._replace(network="b")), MINE._replace(pid=60, meeting=there)
    training = replace(meant("python train.py"), meeting=here)
    assert chosen(training, mine, other) == [10, 11]
    assert chosen(training, other) == []
    assert chosen(training, MINE._replace(meeting=None)) == [10, 11]  # which is open


def test_without_a_script_only_a_single_training_is_taken_and_none_if_unknown() -> None:
    for command in (None, "python -c x"):
        assert chosen(meant(command), MINE) == [10, 11] and chosen(meant(command)) == []
        with pytest.raises(IncompleteAnswer, match="several trainings are running on this host"):
            chosen(meant(command), MINE, THEIRS)
    with pytest.raises(IncompleteAnswer, match="it is unknown whether"):
        chosen(meant("python train.py"), THEIRS, found(50, "python -c x"))
    with pytest.raises(IncompleteAnswer, match="it is unknown whether"):
        chosen(meant("python driver.py"), WORKER)
    with pytest.raises(IncompleteAnswer, match="not inspected"):
        chosen(meant("python train.py"), THEIRS, unlisted=3)


def test_the_workers_of_a_ray_job_are_found_whatever_its_entrypoint_is() -> None:
    for entrypoint in (None, "python train.py", "cd /a && exec python train.py | tee log"):
        training = meant(entrypoint, job_id="raysubmit_x")
        assert chosen(training, WORKER) == chosen(training, THEIRS, WORKER) == [30, 31]
        assert chosen(training, WORKER, found(60, "python train.py", ray_job="raysubmit_x")) == [60, 61]
        assert chosen(training, WORKER, found(60, "python train.py", ray_job="raysubmit_y")) == [30, 31]
        assert chosen(training, MINE, found(60, "python train.py", ray_job="raysubmit_y")) == []
        with pytest.raises(IncompleteAnswer, match="several trainings are running on this host"):
            chosen(training, WORKER, OTHER_WORKER)
    assert chosen(meant("ray::Worker.train"), WORKER) == [30, 31]
    assert chosen(meant(job_id="process:mine"), MINE) == [10, 11]
