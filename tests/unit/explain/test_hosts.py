"""Which hosts a roll call asks: each once, however it is named."""

from __future__ import annotations

from typing import Any

from training_monitor.core.models import PodState
from training_monitor.explain.hosts import find_hosts
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target


def pod(name: str, **more: Any) -> PodState:
    return PodState(**{"name": name, "phase": "Running", "ready": True, "restarts": 0, "node": f"node-{name}", **more})


def hosts(target: str, *also: str, pods: tuple[PodState, ...] = ()) -> list[tuple[str, str | None]]:
    found = find_hosts(Site.of(target), pods, [parse_target(each) for each in also])
    assert all(each.name == str(each.site.target) for each in found)
    return [(each.name, each.node) for each in found]


def test_a_host_that_is_named_twice_is_asked_once() -> None:
    assert hosts("local", "local") == [("local", None)]
    also = ("ssh://root@gpu1", "ssh://gpu1:22", "ssh://gpu2", "ssh://gpu2")
    assert [name for name, _ in hosts("ssh://gpu1", *also)] == [
        "ssh://gpu1",
        "ssh://gpu1:22",  # which may be another one, by the user's own configuration of ssh
        "ssh://gpu2",
    ]


def test_a_pod_that_is_found_and_named_is_asked_once_in_the_container_that_was_named() -> None:
    pods = (pod("w-0"), pod("w-1"), pod("w-2"))
    assert hosts("k8s://ml/w-0/train", "k8s://ml/w-1/train", "k8s://ml/w-0", pods=pods) == [
        ("k8s://ml/w-0/train", "node-w-0"),
        ("k8s://ml/w-1/train", "node-w-1"),
        ("k8s://ml/w-2", "node-w-2"),
    ]
    elsewhere = hosts("k8s://ml/w-0", "k8s://other/w-1", "k8s://ml/w-1?context=blue", pods=pods)
    assert [name for name, _ in elsewhere] == [
        "k8s://ml/w-0",
        "k8s://other/w-1",
        "k8s://ml/w-1?context=blue",
        "k8s://ml/w-1",
        "k8s://ml/w-2",
    ]
    assert elsewhere[1][1] is None
