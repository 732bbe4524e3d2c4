"""The health report: exactly the documented keys and more, one exec per pod, and unknown is never healthy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_reply import FakeTargets, cli, pod_json, rest
from training_monitor.core import reports
from training_monitor.core.errors import CommandTimedOut, TargetNotFound, TargetUnreachable
from training_monitor.core.models import Reply
from training_monitor.core.reports import HealthReport
from training_monitor.core.results import CommandResult
from training_monitor.look.health_report import get_training_health, print_training_health
from training_monitor.look.health_verdict import format_training_health
from training_monitor.targets.transport import Stream

RAY_FOLDER = Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0"
RAY = (RAY_FOLDER / "rest_cluster_status_busy.json").read_text()
GPU = "0, GPU-1, NVIDIA H100, 97, 40, 70000, 81559, 650.25, 700.00, 61, Disabled\n-- processes --\n"
IDLE = GPU.replace("97, 40", "0, 0")
EFA = "efa 4 0\nn:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa\nn:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] "
EFA += "[send] via NET/AWS Libfabric/0/GDRDMA\n"
TCP = "efa 4 0\nn:1:2 [0] NCCL INFO Using network Socket\n"
DISK = (
    "/\n/c\n--\nFilesystem 1024-blocks Used Available Capacity Mounted\nx 1000 500 500 50% /\nx 1000 900 100 90% /c\n"
)
SAVED = (
    "state=there\nlooked .\nnow 2000\nfile 100 1000 ./global_step_400/model.pt\n"
    "file 100 1500 ./global_step_500/model.pt\n"
)
JOB = {"submission_id": "job1", "status": "RUNNING", "type": "SUBMISSION", "start_time": 1000}
LOG = "file 5000 1990 2000\nstep 5/100 loss: 0.5\n"
WELL = {"gpu": GPU, "efa": EFA, "disk": DISK, "resources": rest(RAY), "checkpoints": SAVED}
WELL |= {"job": rest(json.dumps(JOB)), "log": LOG, "waiting": "", "evidence": "end\n"}
HEAD, WORKER = "train-head-pgbtb", "train-worker-8v7pg"


def report_of(
    head: Any = None, worker: Any = None, pods: Any = None, job_id: str | None = None, **changes: Any
) -> tuple[HealthReport, FakeTargets]:
    """The report where all is well but for the changes; `worker` adds a second pod."""
    said = {HEAD: head or {**WELL, **changes}, WORKER: worker or WELL}
    names = [HEAD, WORKER] if worker else [HEAD]
    transport = FakeTargets(said, [pod_json(name) for name in names] if pods is None else pods)
    return get_training_health(HEAD, "/c", names, job_id=job_id, transport=transport), transport


def issue(report: HealthReport, words: str) -> str:
    """The remedy of the only issue with these words."""
    [found] = [remedy for text, remedy in zip(report["issues"], report["remedies"]) if words in text]
    return found


def test_where_all_is_well_the_verdict_is_ok_without_issues() -> None:
    usage = "Resources\n-----\nTotal Usage:\n 2.0/2.0 CPU\n 2.0/4.0 GPU\n\nPending Demands:\n (no resource demands)\n"
    report, _ = report_of(resources=cli(usage), job_id="job1")
    assert (report["verdict"], report["healthy"], report["issues"], report["remedies"]) == ("ok", True, [], [])


def test_every_documented_key_has_its_value() -> None:
    report, _ = report_of(worker=WELL, job_id="job1")
    assert report["gpu"]["total_gpus"] == 2 and report["gpu"]["avg_utilization"] == 97
    node = report["gpu"]["per_node"][0]
    assert (node["pod"], node["util"], node["mem_used"], node["mem_total"]) == (HEAD, 97, 70000, 81559)
    assert [each["pod"] for each in report["gpu"]["per_node"]] == [HEAD, WORKER]
    assert [each["pod"] for each in report["efa"]["per_node"]] == [HEAD, WORKER]
    assert {each["pod"] for each in report["disk"]} == {HEAD, WORKER}
    assert (report["efa"]["active"], report["efa"]["transport"]) == (True, "ofi (EFA)")
    assert report["efa"]["channels"] == "2 channels via NET/OFI"
    saved = report["checkpoints"]
    assert (saved["latest_step"], saved["checkpoint_count"], saved["checkpoint_dir"]) == (500, 2, "/c")
    assert saved["latest_path"] == "/c/global_step_500"
    assert report["ray"]["gpus_available"] == 4 and report["ray"]["gpus_used"]
    job = report["job"]
    assert job and (job["status"], job["step"]) == ("RUNNING", 5)
    assert (job["state"], job["verdict"]) == ("running", "ok") and job["reason"].startswith("step 5 of 100")
    pods = [(pod["pod"], pod["phase"], pod["error"]) for pod in report["pods"]]
    assert pods == [(HEAD, "Running", None), (WORKER, "Running", None)]
    assert [(disk["path"], disk["used_percent"]) for disk in report["disk"]][:2] == [("/", 50.0), ("/c", 90.0)]


def test_pods_have_short_names_unless_those_are_equal() -> None:
    names = ["trainer-0", "eval-0"]
    transport = FakeTargets({"*": WELL}, [pod_json(name) for name in names])
    report = get_training_health(names[0], "/c", names, transport=transport)
    assert [each["pod"] for each in report["gpu"]["per_node"]] == names
    text = format_training_health(report)
    assert "\n    trainer-0   97 %  70000/81559 MB" in text and "\n    eval-0      97 %  70000/81559 MB" in text
    report = get_training_health("k8s://a/main", "/c", ["k8s://b/main"], transport=FakeTargets({"*": WELL}, []))
    assert [each["pod"] for each in report["gpu"]["per_node"]] == ["k8s://a/main", "k8s://b/main"]


def test_each_of_several_gpus_has_its_line() -> None:
    idle = IDLE.replace("0, GPU-1", "1, GPU-2", 1).replace("-- processes --\n", "")
    report, _ = report_of(worker=WELL, gpu=idle + GPU)
    node = report["gpu"]["per_node"][0]
    assert [(each["index"], each["util"], each["mem_used"]) for each in node["gpus"]] == [(1, 0, 70000), (0, 97, 70000)]
    text = format_training_health(report)
    assert "\n      GPU 1" in text and "   0 %  70000/81559 MB  650 W\n" in text
    assert text.count("GPU 0") == 1  # the other node has only one


def documented(report: dict[str, Any], kind: Any) -> None:
    assert set(report) == set(kind.__annotations__), kind


def test_the_keys_are_the_same_whatever_happened_and_all_of_it_is_json() -> None:
    for head, pods in [
        (WELL, None),
        (TargetUnreachable("gone"), CommandTimedOut("no answer")),
        ({**WELL, "gpu": Reply("", 127, 0.1), "disk": "", "efa": "", "checkpoints": ""}, []),
    ]:
        report, _ = report_of(head, worker=WELL, pods=pods, job_id="job1")
        documented(report, HealthReport)  # type: ignore[arg-type]
        for key, kind in (("gpu", "HealthGpuReport"), ("efa", "HealthEfaReport"), ("ray", "HealthRayReport")):
            documented(report[key], getattr(reports, kind))  # type: ignore[literal-required]
        documented(report["checkpoints"], reports.HealthCheckpointReport)  # type: ignore[arg-type]
        documented(report["job"], reports.JobReport)  # type: ignore[arg-type]
        for key, kind in (("pods", "PodReport"), ("disk", "DiskReport")):
            for each in report[key]:  # type: ignore[literal-required]
                documented(each, getattr(reports, kind))
        for each in report["gpu"]["per_node"]:
            documented(each, reports.NodeGpuReport)  # type: ignore[arg-type]
        assert len(report["issues"]) == len(report["remedies"]) and all(report["remedies"])
        assert json.loads(json.dumps(report)) == report


def test_one_exec_per_pod_and_one_look_at_kubernetes() -> None:
    _, transport = report_of(worker=WELL, job_id="job1")
    execs = [call for call in transport.calls if "exec" in call]
    assert len(execs) == 2 and len(transport.calls) == 3
    for others in (None, [], [HEAD], [HEAD, HEAD]):
        transport = FakeTargets({HEAD: WELL}, [pod_json(HEAD)])
        report = get_training_health(HEAD, "/c", others, transport=transport)
        assert len(report["pods"]) == 1 and sum("exec" in call for call in transport.calls) == 1


def test_idle_gpus_are_unhealthy_and_those_that_spin_beside_a_lost_one_are_told() -> None:
    report, _ = report_of(gpu=IDLE, job_id="job1")
    assert (report["verdict"], report["healthy"]) == ("failed", False)
    assert issue(report, "GPU utilization < 10% -- training may not be running although the job is RUNNING")
    row, lost = GPU.partition("\n")[0].replace("97, 40", "100, 40").replace("650.25", "110.00"), "[GPU is lost]"
    rows = [row.replace("0, GPU-1", f"{index}, GPU-{index}", 1) for index in range(7)]
    rows.append(", ".join(["7", "GPU-7", "NVIDIA H100", *[lost] * 8]))
    report, _ = report_of(gpu="\n".join(rows) + "\n-- processes --\n")
    assert issue(report, "GPU 7: ") and issue(report, "GPUs 0-6 at 100 % utilization but idle power (110 of 700 W)")


def test_tcp_is_unhealthy_where_there_is_efa_and_no_log_is_no_verdict() -> None:
    report, _ = report_of(efa=TCP)
    assert report["verdict"] == "failed" and report["efa"]["transport"] == "socket (TCP fallback)"
    assert "NCCL_NET=ofi" in issue(report, "EFA not active -- NCCL using TCP sockets")
    report, _ = report_of(efa="efa 4 0\n")
    assert report["healthy"] and report["efa"]["transport"] == "no NCCL logs yet" and report["efa"]["active"] is None
    report, _ = report_of(worker={**WELL, "efa": TCP})
    assert report["efa"]["transport"] == "mixed" and report["efa"]["active"] is False
    assert issue(report, "on 1 of 2 pods")


def test_only_damaged_checkpoints_are_a_failure_and_none_yet_is_no_fault() -> None:
    damaged = SAVED + "bad truncated ./global_step_500/model.pt\n"
    report, _ = report_of(checkpoints=damaged)
    assert report["healthy"] and report["checkpoints"]["latest_step"] == 400
    assert "400" in issue(report, "the newest checkpoint (step 500) is not complete")
    assert [each["step"] for each in report["checkpoints"]["refused"]] == [500]
    report, _ = report_of(checkpoints=damaged + "bad truncated ./global_step_400/model.pt\n")
    assert report["verdict"] == "failed" and report["checkpoints"]["latest_step"] is None
    assert issue(report, "none of 2 checkpoints is complete")
    for said in ("state=missing\n", "state=there\nnow 5\n"):
        report, _ = report_of(checkpoints=said)
        found = report["checkpoints"]
        assert report["healthy"] and (found["checkpoint_count"], found["error"]) == (0, None)
    damaged = "".join(f"bad truncated ./global_step_{step}/model.pt\n" for step in (400, 500))
    report, _ = report_of(checkpoints=f"{SAVED}{damaged}cut\nlisted .\nrest 19 300\n")
    saved = report["checkpoints"]
    assert report["verdict"] == "unknown" and issue(report, "none of 21 checkpoints is known to be complete (19 not")
    assert (saved["checkpoint_count"], saved["not_looked_at"], saved["latest_step"]) == (21, 19, None)


def test_a_job_that_failed_or_is_gone_and_a_full_disk_are_unhealthy() -> None:
    report, _ = report_of(job_id="job1", job=rest(json.dumps({**JOB, "status": "FAILED", "message": "exit 3"})))
    assert report["verdict"] == "failed" and issue(report, "job job1: failed at step 5 of 100: exit 3")
    report, _ = report_of(disk=DISK.replace("900 100", "995 5"))
    assert report["verdict"] == "failed" and issue(report, "/c is 100 % full")
    report, _ = report_of(job_id="job1", job=rest("Job job1 does not exist", 404))
    assert report["verdict"] == "failed" and issue(report, "no job job1").startswith("run `status` in a shell")


def test_the_one_judge_decides_of_a_job() -> None:
    report, _ = report_of(job_id="job1", log="file 5000 2000 9200\nstep 5/100 loss: 0.5\n")
    job = report["job"]
    assert job and (job["state"], job["verdict"]) == ("stalled", "failed") and report["verdict"] == "failed"
    assert issue(report, f"job job1: stalled: {job['reason']}")
    assert "stalled, see below" in format_training_health(report)
    report, _ = report_of(job_id="job1", job=rest(json.dumps({**JOB, "status": "BOILING"})), gpu=IDLE)
    assert report["job"] and report["job"]["state"] != "finished" and report["verdict"] == "failed"
    report, _ = report_of(job_id="job1", job=rest(json.dumps({**JOB, "status": "SUCCEEDED"})), gpu=IDLE)
    assert report["job"] and report["job"]["state"] == "finished" and report["healthy"]


WAITS = """boot=b
hz=100
awake=90000
oom=0
roots=10
up=600.00
table=read
proc 10 S 1 10 10 100 50 30 20 9000 python3
/proc/10/io:wchar: 1000
again=600.50
proc 10 S 1 10 10 100 50 30 20 9000 python3
/proc/10/io:wchar: 1000
end
"""


SILENT = "file 5000 2000 2600\nstep 5/100 loss: 0.5\n"


def test_a_job_whose_processes_do_nothing_is_stalled() -> None:
    report, _ = report_of(job_id="job1", log=SILENT, gpu=IDLE, evidence=WAITS)
    assert report["job"] and report["job"]["state"] == "stalled" and issue(report, "use no CPU, nothing written")


def test_a_job_whose_processes_write_is_not_stalled_yet() -> None:
    saves = WAITS.replace("again=600.50\n", "again=600.50\n/proc/10/io:write_bytes: 900000000\n")
    report, _ = report_of(job_id="job1", log=SILENT, gpu=IDLE, evidence=saves.replace("1000\nend", "900000000\nend"))
    assert report["job"] and report["job"]["state"] != "stalled"


def test_a_pod_that_cannot_be_asked_is_unknown_and_the_rest_is_still_reported() -> None:
    for error in (TargetUnreachable("no route to host"), CommandTimedOut("no answer")):
        report, _ = report_of(worker=error)
        assert (report["verdict"], report["healthy"]) == ("unknown", False)
        assert issue(report, f"pod {WORKER} could not be queried: {error}")
        assert report["gpu"]["total_gpus"] == 1 and report["gpu"]["per_node"][1]["error"] == str(error)


def test_a_head_that_cannot_be_asked_is_said_once_and_so_is_what_to_do() -> None:
    report, _ = report_of(TargetUnreachable("no kubeconfig", hint="set KUBECONFIG"), job_id="job1")
    text = format_training_health(report)
    assert (text.count("no kubeconfig"), text.count("set KUBECONFIG")) == (1, 1)
    assert issue(report, f"pod {HEAD} could not be queried: no kubeconfig") == "set KUBECONFIG"


def test_this_machine_without_a_gpu_is_told_nothing_of_pods() -> None:
    said = {"local": {**WELL, "gpu": Reply("", 127, 0.1)}}
    report = get_training_health("local", "/c", transport=FakeTargets(said, []))
    assert "has no GPU" in issue(report, "Could not read GPU utilization from any node: nvidia-smi was not found")
    assert "  GPUs         unknown, see below\n" in format_training_health(report)


def test_a_pod_that_is_gone_is_a_failure_and_kubernetes_away_hides_no_pod() -> None:
    report, _ = report_of(worker=TargetNotFound("not found"), pods=[pod_json(HEAD)])
    assert report["verdict"] == "failed" and issue(report, f"pod {WORKER} does not exist")
    report, _ = report_of(pods=TargetUnreachable("API server down"))
    assert report["healthy"] and report["pods"][0]["phase"] is None
    assert report["pods"][0]["error"] == "API server down"


def test_what_could_not_be_read_is_unknown_and_never_healthy() -> None:
    for name, reply, words in [
        ("gpu", Reply("", 137, 10.0), "Could not read GPU utilization from any node"),
        ("gpu", Reply("", 127, 0.1), "Could not read GPU utilization from any node"),
        ("gpu", "Failed to initialize NVML: Driver/library version mismatch\n-- processes --\n", "from any node"),
        ("checkpoints", "state=no permission to enter it\n", "checkpoints in /c could not be listed"),
        ("job", rest("Unauthorized", 401), "job job1 could not be queried"),
        ("resources", cli("sh: ray: not found", 127), "Ray could not be queried"),
    ]:
        report, _ = report_of(job_id="job1", **{name: reply})
        assert (report["verdict"], report["healthy"]) == ("unknown", False) and issue(report, words)


def test_one_node_whose_gpus_cannot_be_read_is_not_healthy_unless_it_has_none() -> None:
    for gpu in [Reply("", 137, 10.0), "Failed to initialize NVML: Driver/library version mismatch\n-- processes --\n"]:
        report, _ = report_of(worker={**WELL, "gpu": gpu})
        assert report["verdict"] == "unknown" and issue(report, "Could not query the GPUs")
    report, _ = report_of({**WELL, "gpu": Reply("", 127, 0.1)}, worker=WELL)
    assert report["healthy"] and report["gpu"]["total_gpus"] == 1


def test_a_ray_that_has_just_started_does_not_have_zero_gpus() -> None:
    starting = (RAY_FOLDER / "rest_cluster_status_starting.json").read_text()
    report, _ = report_of(job_id="job1", resources=rest(starting))
    assert (report["verdict"], report["ray"]["gpus_available"]) == ("unknown", None)
    assert issue(report, "no node has reported its resources yet") and "0/0" not in format_training_health(report)


@pytest.mark.parametrize("head", [WELL, TargetUnreachable("gone"), {**WELL, "gpu": Reply("", 127, 0.1)}])
def test_the_report_as_text_never_shows_none(head: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report, _ = report_of(head, job_id="job1")
    text = format_training_health(report)
    assert text.startswith(f"Training health: {report['verdict'].upper()}") and "None" not in text
    assert all(each in text for each in [*report["issues"], *report["remedies"]])
    print_training_health(report)
    assert capsys.readouterr().out == text + "\n"


def test_an_unreadable_log_leaves_the_job_unknown() -> None:
    report, _ = report_of(job_id="job1", log=cli("Killed", 137), evidence="end\n")
    job = report["job"]
    assert job and (job["state"], job["verdict"], report["verdict"]) == ("unknown", "unknown", "unknown")
    assert "its log could not be read: ray job logs was killed" in job["reason"]
    assert issue(report, "its log could not be read") == "check that the ray command works in the head pod"


def test_targets_that_never_respond_hold_no_report_up() -> None:
    limits = list[float]()

    class Silent:
        def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
            limits.append(timeout)
            raise CommandTimedOut("kubectl did not respond")

        def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
            raise AssertionError

    report = get_training_health(HEAD, "/c", [WORKER], transport=Silent(), timeout=7.0)
    assert report["verdict"] == "unknown" and report["silent"] == [HEAD, WORKER]
    assert sorted(each > 7.0 for each in limits) == [False, False, True]  # the list of pods takes 20 s at most
