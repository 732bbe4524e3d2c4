"""What is found on several hosts of one training is said once, and no host's own trouble is lost for another's."""

from __future__ import annotations

from training_monitor.why.explain import leave_out_repeated
from training_monitor.why.ranks import Finding


def fault(host: str, node: str | None, kind: str = "ecc") -> Finding:
    return Finding(kind, "GPU 00000000:18:00.0 has uncorrectable ECC errors", host, node, is_hardware=kind == "ecc")


def test_the_same_fault_on_two_nodes_is_one_of_each() -> None:
    two = [fault("ssh://a", "a"), fault("ssh://b", "b")]
    assert leave_out_repeated(two) == tuple(two)
    nameless = [fault("k8s://ml/w-0", None), fault("k8s://ml/w-1", None)]
    assert leave_out_repeated(nameless) == tuple(nameless)


def test_two_pods_of_one_node_see_one_fault() -> None:
    first, second = fault("k8s://ml/w-0", "node-1"), fault("k8s://ml/w-1", "node-1")
    assert leave_out_repeated([first, second]) == (first,)


def test_what_nccl_and_the_flight_recorder_say_on_every_host_is_said_once() -> None:
    for kind in ("nccl_ras", "flight_recorder"):
        first, second = fault("ssh://a", "a", kind), fault("ssh://b", "b", kind)
        assert leave_out_repeated([first, second]) == (first,)
