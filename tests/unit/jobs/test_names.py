"""Which job a name means, and what is said when it means none or several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes import FakeTransport, is_call
from training_monitor import check_job_status, get_current_step, get_job_logs
from training_monitor.core.errors import JobNotFound, SettingsError
from training_monitor.core.models import JobStatus, RayJob
from training_monitor.jobs import look_at_job
from training_monitor.jobs.attempts import process_job_called
from training_monitor.jobs.names import describe_running, ray_jobs_called, ray_jobs_with

RUNNING, FAILED, PENDING = JobStatus.RUNNING, JobStatus.FAILED, JobStatus.PENDING


def job(job_id: str, status: JobStatus = RUNNING, name: str | None = None, command: str = "") -> RayJob:
    return RayJob(job_id, status, entrypoint=command, metadata={"job_name": name} if name else {})


def ids(jobs: list[RayJob]) -> list[str]:
    return [each.submission_id for each in jobs]


def test_an_id_comes_before_a_name_and_a_name_before_a_word() -> None:
    jobs = [job("r9", FAILED), job("raysubmit_a", name="r9"), job("raysubmit_b", command="train --run r9")]
    assert ids(ray_jobs_called(jobs, "r9")) == ["r9"]
    assert ids(ray_jobs_called(jobs[1:], "r9")) == ["raysubmit_a"]
    assert ray_jobs_called(jobs[2:], "r9") == [] and ids(ray_jobs_with(jobs[2:], "r9")) == ["raysubmit_b"]


def test_of_one_training_the_job_that_runs_is_meant_or_else_the_newest() -> None:
    ended = [job("raysubmit_a", FAILED, "r9"), job("r9-attempt-2", FAILED), job("raysubmit_b", FAILED, "r9")]
    assert ids(ray_jobs_called(ended, "r9")) == ["raysubmit_b"]
    assert ids(ray_jobs_called([job("raysubmit_c", PENDING, "r9"), *ended], "r9")) == ["raysubmit_c"]
    assert len(ray_jobs_called([job("raysubmit_c", name="r9"), *ended, job("raysubmit_d", name="r9")], "r9")) == 2


def test_a_word_is_not_a_part_of_a_word_or_an_id_of_a_later_entrypoint() -> None:
    jobs = [job("a", command="python /home/me/r9/train.py --out=/runs/r95 --name=base-r9x")]
    assert ids(ray_jobs_with(jobs, "r9")) == ids(ray_jobs_with(jobs, "train.py")) == ["a"]
    for other in ("r", "r9x", "rain", "me/train", "base"):
        assert ray_jobs_with(jobs, other) == [], other
    jobs = [job("lora-attempt-4", command="train --resume /c/lora-attempt-3/step_40 --from raysubmit_a")]
    assert ray_jobs_with(jobs, "lora-attempt-3") == ray_jobs_with(jobs, "raysubmit_a") == []


def test_a_word_means_a_job_that_runs_rather_than_those_that_have_ended() -> None:
    jobs = [job("a", FAILED, command="train.py"), job("b", command="train.py"), job("c", FAILED, command="train.py")]
    assert ids(ray_jobs_with(jobs, "train.py")) == ["b"]
    assert ids(ray_jobs_with(jobs[::2], "train.py")) == ["a", "c"]


def test_the_latest_attempt_of_a_process_job_is_meant() -> None:
    names = ["run-attempt-10", "run-attempt-9", "run", "other"]
    assert process_job_called(names, "run") == "process:run-attempt-10"
    assert process_job_called(names, "other") == "process:other" and process_job_called(names, "ru") is None


def test_the_jobs_that_run_are_described_in_brief() -> None:
    secret = "sk-proj-" + "a1B2" * 12
    jobs = [job(f"raysubmit_{n}", name="r8\nx", command=f"python\n{'train ' * 50}") for n in range(8)]
    said = describe_running([job("gone", FAILED), *jobs, job("z", command=f"OPENAI_API_KEY={secret} x")])
    assert said.startswith("Ray has raysubmit_0 (r8 x: python train train") and said.endswith(" and 4 more")
    assert "gone" not in said and "\n" not in said and len(said) < 600
    assert describe_running([job("gone", FAILED)]) == "no Ray job is running"
    assert secret not in describe_running([job("z", command=f"OPENAI_API_KEY={secret} x")])


def ray(*jobs: RayJob) -> FakeTransport:
    """A dashboard with these jobs; each has a log of one step."""
    known = {}
    for each in jobs:
        told = {"status": each.status.value, "entrypoint": each.entrypoint, "metadata": dict(each.metadata)}
        known[each.submission_id] = {"submission_id": each.submission_id, **told}

    def answer(script: str) -> tuple[str, int]:
        if is_call(script, "ray_log"):
            return "file 9 10 10\nstep 7/9\n", 0
        if "/api/jobs/ " in script:
            return f"{json.dumps(list(known.values()))}\nhttp 200\n", 0
        found = next((each for each in known if f"/api/jobs/{each} " in script), None)
        return (f"{json.dumps(known[found])}\nhttp 200\n" if found else "no such job\nhttp 404\n"), 0

    return FakeTransport(answer)


def test_a_job_is_looked_at_by_its_name_and_in_one_round_trip_by_its_id() -> None:
    transport = ray(job("raysubmit_a", name="r9", command="python train.py"), job("raysubmit_b"))
    assert look_at_job("local", "r9", transport=transport).job_id == "raysubmit_a"
    assert check_job_status("local", "train.py", transport=transport) == "RUNNING"
    assert get_job_logs("local", "r9", transport=transport) == "step 7/9\n"
    assert get_current_step("local", "r9", transport=transport) == 7
    transport = ray(job("raysubmit_a", name="r9"))
    look_at_job("local", "raysubmit_a", transport=transport)
    assert len(transport.asked) == 1


def test_a_name_that_means_none_or_several_is_answered_with_those() -> None:
    transport = ray(job("raysubmit_a", name="r8", command="python train.py --lr 1"), job("raysubmit_b", FAILED))
    with pytest.raises(JobNotFound, match=r"named 'r9'; Ray has raysubmit_a \(r8: python train.py --lr 1\)\."):
        look_at_job("local", "r9", transport=transport)
    assert check_job_status("local", "r9", transport=transport) == "UNKNOWN"
    transport = ray(job("raysubmit_a", name="r9"), job("raysubmit_b", name="r9", command="x"), job("raysubmit_c"))
    with pytest.raises(SettingsError, match=r"raysubmit_a \(r9\); raysubmit_b \(r9: x\)$"):
        look_at_job("local", "r9", transport=transport)


BAD = (Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0" / "cli_rest_bad1.json").read_text()
EARLY, LATE = "step 24/60 loss=0.1\n", "step 24/60 loss=0.1\nRuntimeError: CUDA error: uncorrectable ECC error\n"


def failed_ray(age: int, *logs: str | None) -> FakeTransport:
    """Where a job has failed, and its log is one text after the other, written to `age` seconds before it is read."""
    left = list(logs)

    def answer(script: str) -> tuple[str, int]:
        if not is_call(script, "ray_log"):
            return f"{BAD}\nhttp 200\n", 0
        text = left.pop(0)
        return ("cli\nno\nray exit 1\n", 0) if text is None else (f"file {len(text)} {9000 - age} 9000\n{text}", 0)

    return FakeTransport(answer)


def test_a_log_is_read_again_only_when_its_job_has_just_failed() -> None:
    transport = failed_ray(0, EARLY, LATE)
    view = look_at_job("local", "bad1", transport=transport)
    assert (view.status, view.log_tail, view.progress.step) == (JobStatus.FAILED, LATE, 24)
    assert len(transport.asked) == 2
    transport = failed_ray(3600, LATE)
    assert look_at_job("local", "bad1", transport=transport).log_tail == LATE
    assert len(transport.asked) == 1
    view = look_at_job("local", "bad1", transport=failed_ray(0, EARLY, None))
    assert (view.status, view.log_tail, view.log_known) == (JobStatus.FAILED, EARLY, True)
