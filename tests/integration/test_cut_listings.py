"""More jobs and files than one look shows: nothing that was left out is taken for absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from training_monitor import JobStatus, start_process_job, stop_job
from training_monitor.cli.main import main
from training_monitor.errors import CommandFailed, IncompleteAnswer
from training_monitor.probes.evidence import file_age_question
from training_monitor.probes.jobs import AT_ONCE, find_jobs_named, get_job_listing, list_jobs
from training_monitor.targets.asking import ask
from training_monitor.targets.target import parse_target
from training_monitor.uploads.checkpoint import upload_checkpoint

MANY = 5000  # entries of one folder that a look takes
MANY_JOBS = 53  # of which a round trip or two do not tell all


def test_an_attempt_that_runs_is_found_behind_many_later_ones_that_ended(local: Place) -> None:
    running = start_process_job("local", "sleep 300", "train")
    start_process_job("local", "true", "train-attempt-1")
    for number in range(2, AT_ONCE + 5):
        shutil.copytree(local.jobs / "train-attempt-1", local.jobs / f"train-attempt-{number}")
    found = [view for view, _ in find_jobs_named(parse_target("local"), "train", process=True)]
    assert found[0].job_id == running and found[0].status is JobStatus.RUNNING
    assert len(found) == AT_ONCE + 5
    stop_job("local", running)


def test_a_job_that_runs_is_listed_behind_many_later_ones_that_ended(local: Place) -> None:
    running = start_process_job("local", "sleep 300", "train")
    start_process_job("local", "true", "short")
    for number in range(2, MANY_JOBS):
        shutil.copytree(local.jobs / "short", local.jobs / f"short-attempt-{number}")
    found = {view.job_id: view.status for view in list_jobs("local")}
    assert len(found) == MANY_JOBS and found[running] is JobStatus.RUNNING
    stop_job("local", running)


def test_a_job_that_could_not_be_looked_at_is_listed_as_unknown(local: Place) -> None:
    start_process_job("local", "true", "short")
    shutil.copytree(local.jobs / "short", local.jobs / "other")
    (local.jobs / "other" / "log").unlink()
    os.mkfifo(local.jobs / "other" / "log")  # nobody writes into it: to read it takes for ever
    assert {view.job_id: view.status for view in list_jobs("local")} == {
        "process:short": JobStatus.SUCCEEDED,
        "process:other": JobStatus.UNKNOWN,
    }


def test_jobs_of_a_kind_that_could_not_be_listed_are_unknown_beside_those_that_were(
    local: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    job = start_process_job("local", "echo step 1; sleep 300", "train")
    assert main(["status", "local"]) == 0, "nothing says that there ever was a Ray"
    local.set_environment({"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"})
    listing = get_job_listing("local")
    assert [view.job_id for view in listing.jobs] == [job]
    assert [each.what for each in listing.not_seen] == ["Ray jobs"]
    with pytest.raises(IncompleteAnswer, match="Ray jobs"):
        list_jobs("local")
    capsys.readouterr()
    for arguments in ([], ["--json"]):
        assert main(["status", "local", *arguments]) == 3
        said = capsys.readouterr()
        assert job in said.out and "Ray jobs" in said.err
    stop_job("local", job)


def test_a_target_whose_jobs_could_not_be_listed_is_not_said_to_have_none(
    local: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "no folder").touch()
    local.set_environment({"TRAINING_MONITOR_JOBS_DIR": str(tmp_path / "no folder")})
    assert main(["status", "local"]) == 3
    said = capsys.readouterr()
    assert "no jobs" not in said.out and "process jobs" in said.err


def test_the_newest_file_counts_wherever_a_large_folder_has_it(local: Place) -> None:
    """Each of many files is the newest once: whatever the order of the directory, none is left out."""
    folder = local.folder / "checkpoints"
    folder.mkdir()
    names = [folder / f"{number}.bin" for number in range(2 * MANY)]
    for name in names:
        name.touch()
        os.utime(name, (1_000_000_000, 1_000_000_000))
    for name in names[:: MANY // 4]:
        os.utime(name)
        [answer] = ask("local", file_age_question(str(folder)))
        assert (answer.get() or 0) < 1000
        os.utime(name, (1_000_000_000, 1_000_000_000))


def test_a_file_whose_name_cannot_be_listed_is_not_left_out_of_an_upload(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    folder = local.folder / "step_5"
    folder.mkdir()
    (folder / "model.pt").write_text("x")
    (folder / "optim\nizer.pt").write_text("x")
    with pytest.raises(CommandFailed, match="line break"):
        upload_checkpoint("local", str(folder), "s3://bucket/models")
