"""Which network NCCL uses: a counter that moves or a provider line proves it, a device that is there does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.fake_reply import FakeTargets
from training_monitor.core.errors import ParseError, TargetUnreachable
from training_monitor.core.models import Reply
from training_monitor.core.reports import EfaClusterReport, EfaReport
from training_monitor.look.nccl import check_efa_utilization, efa_question, format_efa_report

PREFIX = "node-1:100:200 [0] NCCL INFO "


def report_of(*said: str, devices: int = 0, moved: int = 0) -> EfaReport:
    text = f"efa {devices} {moved}\n" + "\n".join(PREFIX + line for line in said)
    return format_efa_report(efa_question().parse(Reply(text, 0, 0.1)))


def test_the_efa_provider_is_active_in_old_and_new_words() -> None:
    for said in [
        "NET/OFI Selected Provider is efa",
        "NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)",
        "NET/OFI Selected Provider is efa (found 4 nics)",
    ]:
        report = report_of(said)
        assert (report["efa_active"], report["transport"], report["provider"]) == (True, "ofi", "efa")
        assert said in report["details"]
    assert report_of("Channel 00 : 0[1a0] -> 1[1b0] [send] via NET/AWS Libfabric/0/GDRDMA")["efa_active"] is True


def test_a_fall_back_to_tcp_is_not_active_and_neither_is_infiniband() -> None:
    for said in [
        ["Using network Socket"],
        ["NET/Socket : Using [0]eth0:10.0.0.1<0>"],
        ["NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"],
        ["NET/OFI Could not find any optimal provider", "Using network Socket"],
        ["NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "Using network AWS Libfabric"],
    ]:
        report = report_of(*said, devices=4)
        assert (report["efa_active"], report["transport"]) == (False, "socket")
    report = report_of("Using network IB")
    assert (report["efa_active"], report["transport"]) == (False, "ib")


def test_where_nothing_is_logged_nothing_is_known_and_no_counters_are_an_error() -> None:
    for devices in [0, 4]:
        report = report_of(devices=devices)
        assert (report["efa_active"], report["transport"], report["efa_devices"]) == (None, "unknown", devices)
        assert "NCCL_DEBUG=INFO" in report["details"]
    for text in ["", "nonsense", "efa x y", "efa 4"]:
        with pytest.raises(ParseError, match="efa"):
            efa_question().parse(Reply(text, 0, 0.1))


def test_a_counter_that_moves_proves_it_and_no_other_disproves_it() -> None:
    report = report_of(devices=4, moved=123456)
    assert (report["efa_active"], report["transport"], report["bytes_moved"]) == (True, "ofi", 123456)
    assert "4 EFA ports moved 123456 bytes" in report["details"]
    assert report_of("NET/OFI Selected Provider is efa", devices=4, moved=0)["efa_active"] is True
    assert report_of(devices=4, moved=-5)["efa_active"] is None


def test_every_report_has_exactly_the_documented_keys_and_is_json() -> None:
    for answer in ["efa 4 0\n", "nonsense", Reply("", 137, 15.0), TargetUnreachable("gone")]:
        said = answer if isinstance(answer, Exception) else {"efa": answer}
        report = check_efa_utilization("head", transport=FakeTargets({"*": said}, []))
        assert set(report) == set(EfaClusterReport.__annotations__)
        assert json.loads(json.dumps(report)) == report
        assert report["efa_active"] is None and (report["error"] is None) == (answer == "efa 4 0\n")


SAYS = {
    "ofi": f"efa 4 900\n{PREFIX}NET/OFI Selected Provider is efa",
    "socket": f"efa 4 0\n{PREFIX}Using network Socket",
    "silent": "efa 4 0\n",
}


def check_pods(**pods: str) -> EfaClusterReport:
    said: dict[str, Any] = {pod: {"efa": SAYS[what]} for pod, what in pods.items()}
    return check_efa_utilization(next(iter(pods)), all_pods=list(pods), transport=FakeTargets(said, []))


def test_pods_are_mixed_only_where_they_differ() -> None:
    report = check_pods(head="ofi", slow="socket", quiet="silent")
    assert (report["efa_active"], report["transport"]) == (False, "mixed")
    assert report["details"] == "ofi on head; socket on slow"
    assert [(node["pod"], node["efa_active"]) for node in report["per_node"]] == [
        ("head", True), ("slow", False), ("quiet", None)
    ]  # fmt: skip
    report = check_pods(head="silent", one="ofi", two="ofi")
    assert (report["efa_active"], report["transport"], report["provider"]) == (True, "ofi", "efa")
    assert check_pods(head="silent", one="silent")["efa_active"] is None
    said: dict[str, Any] = {"head": {"efa": SAYS["socket"]}, "gone": TargetUnreachable("no such pod")}
    report = check_efa_utilization("head", all_pods=["gone"], transport=FakeTargets(said, []))
    assert report["efa_active"] is False and "no such pod" in (report["error"] or "")
