"""All that is seen beside the ranks of a host, together, and what Kubernetes says of its pods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from training_monitor.core.errors import CommandTimedOut
from training_monitor.core.models import Answer, Reply
from training_monitor.core.results import CommandResult, PodState
from training_monitor.targets.asking import MAX_SCRIPT_BYTES, Site
from training_monitor.targets.transport import Stream
from training_monitor.why.explain import leave_out_repeated
from training_monitor.why.pod_events import parse_pod_events
from training_monitor.why.ranks import MOST_FINDINGS, MOST_TEXT, Collective, Finding, Surroundings, finding, in_brief
from training_monitor.why.surroundings import pod_findings, read_surroundings, surroundings_questions


def test_every_question_has_the_limit_and_a_tool_that_is_not_there_is_no_news() -> None:
    questions = surroundings_questions(5.0)
    assert len({each.name for each in questions}) == len(questions) == 12
    assert {each.limit for each in questions} == {5.0}
    assert max(len(each.script) for each in questions) < MAX_SCRIPT_BYTES
    assert {each.limit for each in surroundings_questions()} == {8.0}
    for each in surroundings_questions():
        assert each.parse(Reply("", 127, 0.1)) == Surroundings()


def test_answers_get_their_place_are_said_once_and_bounded() -> None:
    one = Collective(0, "0", "nccl:all_reduce", 1, "started")
    seen = Surroundings((finding("ecc", "a"),), (one,), ("the kernel's log may not be read",))
    told = read_surroundings([Answer("a", seen), Answer("b", seen), Answer("c", Surroundings())], "ssh://gpu", "gpu")
    [found] = told.findings
    assert (found.host, found.node, found.text) == ("ssh://gpu", "gpu", "a")
    assert (told.collectives, told.unread) == ((one,), ("the kernel's log may not be read",))
    many = Surroundings(tuple(finding("ecc", f"{number} " + "x" * 9000) for number in range(500)))
    told = read_surroundings([Answer("a", many)], "local", None)
    assert len(told.findings) == MOST_FINDINGS
    assert {len(each.text) for each in told.findings} == {MOST_TEXT}
    late = CommandTimedOut("df /tmp: still running after 8 s")
    told = read_surroundings([Answer("df /tmp", None, late)], "local", None)
    assert told == Surroundings(unread=("df /tmp: still running after 8 s",))


def test_secrets_and_control_characters_are_not_shown() -> None:
    said = in_brief("token=hf_AbCdEfGh12345678 \x1b[31mred\x00\nnext")
    assert "AbCdEfGh" not in said and said.isprintable() and "next" in said


def event(
    name: str, reason: str, last: str, *, kind: str = "Warning", about: str = "Pod", **more: Any
) -> dict[str, Any]:
    said = {"reason": reason, "message": f"{reason} happened", "lastTimestamp": last}
    return {"kind": "Event", "type": kind, **said, "involvedObject": {"kind": about, "name": name}, **more}


class Kubectl:
    """A transport that runs nothing but `kubectl get events`."""

    def __init__(self, said: str, exit_code: int = 0, stderr: str = "") -> None:
        self.said, self.exit_code, self.stderr = said, exit_code, stderr
        self.calls: list[tuple[list[str], float]] = []

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        self.calls.append((list(argv), timeout))
        return CommandResult(tuple(argv), self.exit_code, self.said, self.stderr, 0.1)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        raise AssertionError(argv)


def pod(name: str, **more: Any) -> PodState:
    return PodState(**{"name": name, "phase": "Running", "ready": True, "restarts": 0, "node": f"node-{name}", **more})


def found(pods: Sequence[PodState], *events: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    kubectl = Kubectl(json.dumps({"kind": "List", "items": list(events)}))
    said = pod_findings(Site.of("k8s://train/w-0?context=blue", transport=kubectl), pods, 7.0)
    seen = said.findings
    assert said.unread == ()
    assert {each.kind for each in seen} <= {"pod"} and not any(each.is_hardware for each in seen)
    return [(each.host, each.node, each.text) for each in seen]


def test_events_are_asked_in_one_call() -> None:
    kubectl = Kubectl('{"items": []}')
    assert pod_findings(Site.of("k8s://train/w-0?context=blue", transport=kubectl), [pod("w-0")], 7.0) == Surroundings()
    asked = "kubectl --context blue get events -n train --field-selector type!=Normal -o json".split()
    assert kubectl.calls == [(asked, 7.0)]
    assert pod_findings(Site.of("k8s://train/w-0", transport=kubectl), [], 7.0) == Surroundings()
    assert len(kubectl.calls) == 1


def test_what_is_not_well_of_a_pod_is_said_with_its_node() -> None:
    killed = pod("w-1", restarts=2, terminated="OOMKilled", exit_code=137, reason="OOMKilled")
    at = "k8s://train/w-1?context=blue"
    assert found([pod("w-0"), killed]) == [(at, "node-w-1", "pod w-1 has restarted 2 times (OOMKilled, exit code 137)")]
    once = pod("w-1", terminated="OOMKilled", exit_code=137, phase="Failed")
    assert found([once]) == [
        (at, "node-w-1", "a container of pod w-1 was killed because memory ran out (OOMKilled, exit code 137)")
    ]
    for more, text in [
        (
            {"phase": "Pending", "reason": "Unschedulable", "message": "0/4 nodes"},
            "pod w is Pending (Unschedulable: 0/4 nodes)",
        ),
        ({"phase": "Failed"}, "pod w is Failed"),
        ({"deleting": True}, "pod w is being deleted"),
        ({"reason": "CrashLoopBackOff"}, "pod w is Running (CrashLoopBackOff)"),
        ({"restarts": 1}, "pod w has restarted 1 time"),
    ]:
        assert [said for _, _, said in found([pod("w", **more)])] == [text]


def test_warnings_of_these_pods_are_said_the_newest_first() -> None:
    said = found(
        [pod("w-0"), pod("w-1")],
        event("w-0", "FailedMount", "2030-01-01T10:00:00Z", count=7),
        event("w-1", "Unhealthy", "2030-01-01T10:05:00Z"),
        event("w-2", "BackOff", "2030-01-01T10:06:00Z"),
        event("w-0", "Pulled", "2030-01-01T10:07:00Z", kind="Normal"),
        event("w-0", "NodeNotReady", "2030-01-01T10:08:00Z", about="Node"),
    )
    assert [(host, node) for host, node, _ in said] == [
        (f"k8s://train/{name}?context=blue", f"node-{name}") for name in ("w-1", "w-0")
    ]
    assert [text for _, _, text in said] == [
        "pod w-1: Unhealthy, last at 2030-01-01T10:05:00Z: Unhealthy happened",
        "pod w-0: FailedMount 7 times, last at 2030-01-01T10:00:00Z: FailedMount happened",
    ]


def test_without_permission_or_a_list_events_are_unknown_and_pods_reported() -> None:
    kubectl = Kubectl(
        "", 1, 'Error from server (Forbidden): events is forbidden: User "u" cannot list resource "events"'
    )
    found = pod_findings(Site.of("k8s://train/w-0", transport=kubectl), [pod("w-0", restarts=1)], 7.0)
    [unread] = found.unread
    assert unread.startswith("the events of the pods could not be read: ") and "Forbidden" in unread
    assert [each.text for each in found.findings] == ["pod w-0 has restarted 1 time"]
    for said in ["", "{}", "[]", "null", '{"items": 5}', "[" * 100_000]:
        found = pod_findings(Site.of("k8s://train/w-0", transport=Kubectl(said)), [pod("w-0")], 7.0)
        assert found.findings == () and found.unread[0].startswith("the events of the pods could not be read: ")


def test_odd_events_raise_nothing() -> None:
    odd: list[Any] = [None, True, -5, 2**70, "x", [], {}, [5]]
    for value in odd:
        for key in ("type", "reason", "message", "lastTimestamp", "involvedObject", "count", "series", "eventTime"):
            assert len(parse_pod_events(json.dumps({"items": [5, {**event("w", "R", ""), key: value}]}), ["w"])) <= 1


def fault(host: str, node: str | None, kind: str = "ecc") -> Finding:
    return Finding(kind, "GPU 00000000:18:00.0 has uncorrectable ECC errors", host, node, is_hardware=kind == "ecc")


def test_a_fault_of_two_nodes_is_one_of_each_and_of_two_pods_of_one_node_one() -> None:
    two = [fault("ssh://a", "a"), fault("ssh://b", "b")]
    assert leave_out_repeated(two) == tuple(two)
    nameless = [fault("k8s://ml/w-0", None), fault("k8s://ml/w-1", None)]
    assert leave_out_repeated(nameless) == tuple(nameless)
    first, second = fault("k8s://ml/w-0", "node-1"), fault("k8s://ml/w-1", "node-1")
    assert leave_out_repeated([first, second]) == (first,)
    for kind in ("nccl_ras", "flight_recorder"):
        first, second = fault("ssh://a", "a", kind), fault("ssh://b", "b", kind)
        assert leave_out_repeated([first, second]) == (first,)
