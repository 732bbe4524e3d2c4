"""Ray's own words, recorded from Ray 2.60.0, and the traps in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training_monitor.core.errors import ParseError
from training_monitor.core.models import JobStatus, RayResources
from training_monitor.jobs.ray_output import (
    is_already_exists,
    parse_cluster_status,
    parse_ray_job,
    parse_ray_jobs,
    parse_ray_list_cli,
    parse_ray_resources,
    parse_ray_status_cli,
    parse_ray_submit,
)

RECORDED = Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0"
NO_CAPACITY = {
    "nodeType": "p.gpu",
    "isAvailable": False,
    "unavailableNodeInformation": {"category": "NoCapacity", "description": "none left"},
}
LONG_ID = "raysubmit_6wjaEaW83r1C7JzP"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def test_a_job_is_read_with_times_in_seconds_and_so_are_all() -> None:
    job = parse_ray_job(recorded("cli_rest_bad1.json"))
    assert (job.submission_id, job.status, job.exit_code) == ("bad1", JobStatus.FAILED, 3)
    assert job.start_time == 1795236724.678
    assert (job.message or "").startswith("Job entrypoint command failed with exit code 3")
    jobs = parse_ray_jobs(recorded("rest_jobs.json"))
    assert {job.submission_id: job.status for job in jobs}["raysubmit_long1"] is JobStatus.SUCCEEDED
    assert jobs[0].runtime_env["env_vars"] == {"STEPS": "600"}
    assert parse_ray_jobs("[]") == ()
    driver = '[{"type": "DRIVER", "job_id": "01000000", "submission_id": null, "status": "RUNNING"}]'
    assert parse_ray_jobs(driver) == ()


def test_an_answer_without_a_job_is_an_error_and_an_unknown_status_unknown() -> None:
    for text in ["", "Job nope does not exist", "<html>", "[]", "{}", "null"]:
        with pytest.raises(ParseError) as caught:
            parse_ray_job(text)
        assert caught.value.source == "ray rest"
    assert parse_ray_job('{"submission_id": "a", "status": "NEW"}').status is JobStatus.UNKNOWN


def test_every_status_of_the_command_is_read_with_its_message() -> None:
    for name, job_id, status in [
        ("cli_status_ok1.out", "ok1", JobStatus.SUCCEEDED),
        ("cli_status_bad1.out", "bad1", JobStatus.FAILED),
        ("cli_status_stopped.out", LONG_ID, JobStatus.STOPPED),
        ("cli_status_pend1.out", "pend1", JobStatus.PENDING),
        (f"cli_status_{LONG_ID}.out", LONG_ID, JobStatus.RUNNING),
        ("job_status_fail1.txt", "raysubmit_fail1", JobStatus.FAILED),
    ]:
        job = parse_ray_status_cli(recorded(name), job_id)
        assert job is not None and (job.submission_id, job.status) == (job_id, status)
    job = parse_ray_status_cli(recorded("cli_status_bad1.out"), "bad1")
    assert job is not None and job.exit_code == 3
    assert (job.message or "").endswith("step 3")
    assert parse_ray_status_cli(recorded("job_status_nope.txt"), "raysubmit_nope") is None
    assert parse_ray_status_cli(recorded("cli_status_nope.out") + recorded("cli_status_nope.err"), "nope") is None


def test_log_text_behind_the_message_never_wins() -> None:
    text = "Status for job 'a': RUNNING\nStatus message: Job 'a' failed\nJob 'a' succeeded\nJob a does not exist."
    job = parse_ray_status_cli(text, "a")
    assert job is not None and job.status is JobStatus.RUNNING
    with pytest.raises(ParseError):
        parse_ray_status_cli("Status message: x\nJob 'a' succeeded", "a")


def test_no_verdict_or_one_on_another_job_is_an_error() -> None:
    no_ray = "ConnectionError: Failed to connect to Ray at address: http://127.0.0.1:8265."
    for text, job_id in [(recorded("cli_status_ok1.out"), "ok2"), ("", "a"), (no_ray, "a")]:
        with pytest.raises(ParseError):
            parse_ray_status_cli(text, job_id)


def test_the_list_of_the_command_is_read_and_agrees_with_rest() -> None:
    for name, job_id, code in (("cli_list.out", "bad1", 3), ("job_list.txt", "raysubmit_fail1", 1)):
        failed = {job.submission_id: job for job in parse_ray_list_cli(recorded(name))}[job_id]
        assert (failed.status, failed.exit_code) == (JobStatus.FAILED, code)
        assert "\n" in (failed.message or "") and (failed.start_time or 0) > 1.7e9
        assert job_id != "bad1" or failed == parse_ray_job(recorded("cli_rest_bad1.json"))


def test_quotes_brackets_and_enum_words_inside_a_command_do_no_harm() -> None:
    entry = "echo \"a'b\" ') ]' <JobStatus.FAILED: 'FAILED'>\n[JobDetails("
    text = (
        f"x cli.py:600 -- [JobDetails(type=<JobType.SUBMISSION: 'SUBMISSION'>, submission_id='a', "
        f"driver_info=DriverInfo(id='01'), status=<JobStatus.RUNNING: 'RUNNING'>, entrypoint={entry!r}, "
        f"start_time=None)]\nwarning: ] something else ["
    )
    (job,) = parse_ray_list_cli(text)
    assert (job.status, job.entrypoint) == (JobStatus.RUNNING, entry)


def test_an_empty_list_is_empty_and_no_list_is_an_error() -> None:
    assert parse_ray_list_cli("2030-01-01 00:00:00,000\tINFO cli.py:600 -- []") == ()
    for text in ("", "ConnectionError", "[JobDetails(submission_id='a"):
        with pytest.raises(ParseError):
            parse_ray_list_cli(text)


def test_the_submission_id_is_read_and_a_taken_one_recognised() -> None:
    assert parse_ray_submit(recorded("cli_submit_auto.out")) == LONG_ID
    assert parse_ray_submit(recorded("cli_submit_wait_fail.out")) == "bad2"
    assert parse_ray_submit(recorded("cli_submit_seed.err")) is None
    assert is_already_exists(recorded("cli_submit_dup.err"))
    assert is_already_exists(recorded("rest_submit_duplicate.txt"))
    assert not is_already_exists(recorded("cli_submit_seed.err"))


def test_the_usage_and_the_demands_of_ray_status_are_read() -> None:
    busy = RayResources(2, 4, 2, 2, ("{'CPU': 1.0, 'GPU': 1.0}: 4+ pending tasks/actors",))
    assert parse_ray_resources(recorded("ray_status_busy.txt")) == busy
    text = (
        "Resources\n-----\nUsage:\n 4.0/8.0 GPU (4.0 used of 4.0 reserved in placement groups)\n 2.0/16.0 CPU\n\n"
        "Demands:\n {'GPU': 1.0} * 2 (PACK): 1+ pending placement groups\n\nNode: a\n Usage:\n  1.0/4.0 GPU\n"
    )
    groups = "{'GPU': 1.0} * 2 (PACK): 1+ pending placement groups"
    assert parse_ray_resources(text.replace("Demands:", "Total Demands:")) == RayResources(4, 8, 2, 16, (groups,))
    assert parse_ray_resources(text) == RayResources(4, 8, 2, 16, (groups,))
    for shown in ("0.0/8.0 GPU (0.0 used of 8.0", "1.0/8.0 GPU (0.0 used of 7.0", "-7.0/8.0 GPU (1.0 used of 16.0"):
        assert parse_ray_resources(text.replace("4.0/8.0 GPU (4.0 used of 4.0", shown)).gpus_used == 8
    text = "Total Usage:\n 1.0/4.0 CPU\n 0B/1GiB memory\n\nPending Demands:\n (no resource demands)\n"
    assert parse_ray_resources(text) == RayResources(0, 0, 1, 4)
    text = "Total Usage:\n 96.0/96.0 CPU\n -1.0/8.0 GPU\n 0B/1GiB memory\n\nDemands:\n (no resource demands)\n"
    assert parse_ray_resources(text) == RayResources(None, 8, 96, 96)


def test_no_usage_block_and_no_report_is_an_error() -> None:
    for text in ["", "{}", '{"data": {"clusterStatus": null}}', '{"data": []}']:
        with pytest.raises(ParseError):
            parse_cluster_status(text)
    for text in ("", recorded("ray_status_http_address_error.txt"), "Usage: ray status [OPTIONS]\n"):
        with pytest.raises(ParseError):
            parse_ray_resources(text)


def test_the_dashboards_cluster_status_agrees() -> None:
    assert parse_cluster_status(recorded("rest_cluster_status.json")) == RayResources(0, 4, 0, 2)
    busy = RayResources(2, 4, 2, 2, ("{'GPU': 1.0, 'CPU': 1.0}: 1+ pending tasks/actors",))
    assert parse_cluster_status(recorded("rest_cluster_status_busy.json")) == busy
    text = (
        '{"data": {"clusterStatus": {"loadMetricsReport": {"usage": {"CPU": [0.0, 2.0]}, "resourceDemand": [], '
        '"pgDemand": [[{"strategy": "PACK", "bundles": [[{"GPU": 1.0}, 2]]}, 1]]}}}}'
    )
    assert parse_cluster_status(text).pending_demands == ("{'GPU': 1.0} * 2 (PACK): 1+ pending placement groups",)


def test_nodes_that_failed_are_named_as_ray_status_does() -> None:
    text = (
        "Active:\n 1 head\nPending:\n (no pending nodes)\nRecent failures:\n gpu: NodeTerminated (ip: 10.0.0.3)\n\n"
        "Resources\n-----\nUsage:\n 0.0/8.0 CPU\n\nDemands:\n (no resource demands)\n"
    )
    assert parse_ray_resources(text).failed_nodes == ("gpu: NodeTerminated (ip: 10.0.0.3)",)
    assert parse_ray_resources(text.replace(" gpu: NodeTerminated (ip: 10.0.0.3)", " (no failures)")).failed_nodes == ()
    for report, expected in [
        ({"failedNodes": [["10.0.0.3", "gpu"]]}, ("gpu: NodeTerminated (ip: 10.0.0.3)",)),
        ({"nodeAvailabilitySummary": {"nodeAvailabilities": {"gpu": NO_CAPACITY}}}, ("p.gpu: NoCapacity: none left",)),
        ({"nodeAvailabilitySummary": {"nodeAvailabilities": {"gpu": {"isAvailable": True}}}}, ()),
        ({"failedNodes": None, "nodeAvailabilitySummary": {"nodeAvailabilities": [1]}}, ()),
        ([], ()),
    ]:
        status = {"loadMetricsReport": {"usage": {"CPU": [0.0, 2.0]}}, "autoscalerReport": report}
        assert parse_cluster_status(json.dumps({"data": {"clusterStatus": status}})).failed_nodes == expected


def test_a_cluster_that_has_just_started_does_not_have_zero_gpus() -> None:
    with pytest.raises(ParseError, match="no node has reported its resources yet"):
        parse_cluster_status(recorded("rest_cluster_status_starting.json"))
    with pytest.raises(ParseError, match="no node has reported its resources yet"):
        parse_ray_resources("Resources\n-----\nTotal Usage:\n\nPending Demands:\n (no resource demands)\n")


def test_an_amount_that_cannot_be_read_is_not_zero() -> None:
    for amounts in ['"x"', "7", "[]", "[1]", '["a", null]', "[NaN, -1]", "[1, 2, 3]", "[Infinity, 1]"]:
        usage = f'{{"CPU": [1, 2], "GPU": {amounts}}}'
        text = f'{{"data": {{"clusterStatus": {{"loadMetricsReport": {{"usage": {usage}}}}}}}}}'
        found = parse_cluster_status(text)
        assert None in (found.gpus_used, found.gpus_available)
        assert 0 not in (found.gpus_used, found.gpus_available) and found.cpus_available == 2
