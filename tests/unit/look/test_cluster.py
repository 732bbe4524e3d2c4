"""Resources of a Ray cluster, and free space of disks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_reply import FakeTargets, cli, rest
from training_monitor.core.errors import ParseError, TargetUnreachable
from training_monitor.core.models import Reply
from training_monitor.core.reports import RayResourcesReport
from training_monitor.look.cluster import verify_ray_resources
from training_monitor.look.host import Disk, disk_question

RECORDED = Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0"


def verify(answer: Any) -> RayResourcesReport:
    said = answer if isinstance(answer, Exception) else {"resources": answer}
    return verify_ray_resources("head", transport=FakeTargets({"*": said}, []))


def test_the_answers_of_the_dashboard_and_of_the_ray_command_are_read() -> None:
    report = verify(rest((RECORDED / "rest_cluster_status.json").read_text()))
    assert (report["healthy"], report["error"]) == (True, None)
    assert (report["gpus_used"], report["gpus_available"]) == (0, 4)
    assert (report["cpus_used"], report["cpus_available"]) == (0, 2)
    report = verify(rest((RECORDED / "rest_cluster_status_busy.json").read_text()))
    assert report["healthy"] and report["gpus_used"] and report["pending_demands"]
    report = verify(cli((RECORDED / "ray_status_busy.txt").read_text()))
    assert (report["gpus_used"], report["gpus_available"], report["cpus_used"]) == (2, 4, 2)
    assert len(report["pending_demands"]) == 1 and "'GPU': 1.0" in report["pending_demands"][0]


def test_what_could_not_be_asked_is_not_known_and_never_zero() -> None:
    for answer in [
        rest("no", 401),
        rest("Traceback", 500),
        rest("not json", 200),
        rest((RECORDED / "rest_cluster_status_starting.json").read_text()),
        cli("sh: 1: ray: not found", 127),
        cli("ConnectionError: Could not find any running Ray instance.", 1),
        Reply("", 137, 20.0),
        "",
        TargetUnreachable("gone"),
    ]:
        report = verify(answer)
        assert report["healthy"] is False and report["error"]
        assert {report[key] for key in ("gpus_used", "gpus_available", "cpus_used", "cpus_available")} == {None}
    report = verify(rest((RECORDED / "rest_cluster_status_starting.json").read_text()))
    assert "no node has reported its resources yet: Ray has just started" in (report["error"] or "")


def test_every_report_has_exactly_the_documented_keys_and_is_json() -> None:
    for answer in [rest((RECORDED / "rest_cluster_status.json").read_text()), TargetUnreachable("x")]:
        report = verify(answer)
        assert set(report) == set(RayResourcesReport.__annotations__)
        assert json.loads(json.dumps(report)) == report


HEAD = "Filesystem     1024-blocks      Used Available Capacity Mounted on\n"
ROOT = "overlay          1000       750       250      75% /\n"
NFS = "server:/x y/z     4000      3960        40      99% /data\n"


def disks(text: str) -> tuple[Disk, ...]:
    return disk_question("/", "/data").parse(Reply(text, 0, 0.1))


def test_every_path_has_its_free_bytes_and_use_of_what_a_user_can_have() -> None:
    assert disks("/\n--\n" + HEAD + ROOT) == (Disk("/", 250 * 1024, 75.0),)
    reserved = "/dev/sda1 1000 990 -8 101% /\n"  # root has taken of what is kept for it
    assert disks("/\n--\n" + HEAD + reserved) == (Disk("/", 0, 100.0),)
    found = disks("/\n/proc\n/data\n--\n" + HEAD + ROOT + (sizeless := "proc 0 0 0 - /proc\n") + NFS)
    assert [(each.path, each.used_percent) for each in found] == [("/", 75.0), ("/data", 99.0)]
    for text in [
        "",
        "--\n",
        "/\n--\n",
        "/\n--\n" + HEAD,
        "/proc\n--\n" + HEAD + sizeless,
        "/\n--\ndf: not found\n",
        "nonsense",
    ]:
        with pytest.raises(ParseError, match="df"):
            disks(text)
