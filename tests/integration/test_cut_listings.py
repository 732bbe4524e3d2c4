"""More jobs and files than one look shows: nothing that was left out is taken for absent."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import Place, wait_until
from tests.integration.test_target_checkpoints import write_checkpoint, write_safetensors
from training_monitor import JobStatus, check_efa_utilization, start_process_job, stop_job
from training_monitor.checkpoints import get_checkpoint_listing
from training_monitor.cli.main import main
from training_monitor.core.errors import CommandFailed, IncompleteAnswer, ParseError
from training_monitor.core.results import CommandResult
from training_monitor.jobs.jobs import AT_ONCE, find_jobs_named, get_job_listing, list_jobs
from training_monitor.jobs.ray_jobs import signs_question
from training_monitor.look.evidence import file_age_question
from training_monitor.targets.asking import Site, ask
from training_monitor.targets.transport import LocalTransport
from training_monitor.uploads.checkpoint import upload_checkpoint

NOBODY = 65534
MANY = 5000  # entries of one folder that a look takes
MANY_JOBS = 53  # of which a round trip or two do not tell all


def wait_for_end(place: Place, name: str) -> None:
    """Until the last file of a job is in place."""
    folder = place.jobs / name
    assert wait_until(lambda: (folder / "exit_code").exists() and not (folder / "stopped.new").exists())


def test_an_attempt_that_runs_is_found_behind_many_later_ones_that_ended(local: Place) -> None:
    running = start_process_job("local", "sleep 300", "train")
    start_process_job("local", "true", "train-attempt-1")
    wait_for_end(local, "train-attempt-1")
    for number in range(2, AT_ONCE + 5):
        shutil.copytree(local.jobs / "train-attempt-1", local.jobs / f"train-attempt-{number}")
    found = [view for view, _ in find_jobs_named(Site.of("local"), "train", prefix="process:")]
    assert found[0].job_id == running and found[0].status is JobStatus.RUNNING
    assert len(found) == AT_ONCE + 5
    stop_job("local", running)


def process_jobs() -> dict[str, JobStatus]:
    """Those of this test: whatever Ray runs on this machine is another one's."""
    return {view.job_id: view.status for view in list_jobs("local") if view.job_id.startswith("process:")}


def test_a_job_that_runs_is_listed_behind_many_later_ones_that_ended(local: Place) -> None:
    running = start_process_job("local", "sleep 300", "train")
    start_process_job("local", "true", "short")
    wait_for_end(local, "short")
    for number in range(2, MANY_JOBS):
        shutil.copytree(local.jobs / "short", local.jobs / f"short-attempt-{number}")
    found = process_jobs()
    assert len(found) == MANY_JOBS and found[running] is JobStatus.RUNNING
    stop_job("local", running)


def test_a_pipe_in_place_of_a_log_keeps_no_job_from_being_looked_at(local: Place) -> None:
    start_process_job("local", "true", "short")
    wait_for_end(local, "short")
    shutil.copytree(local.jobs / "short", local.jobs / "other")
    (local.jobs / "other" / "log").unlink()
    os.mkfifo(local.jobs / "other" / "log")  # nobody writes to it: reading it would block
    assert process_jobs() == {
        "process:short": JobStatus.SUCCEEDED,
        "process:other": JobStatus.SUCCEEDED,
    }


def test_a_kind_that_could_not_be_listed_is_unknown(local: Place, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_ray_that_runs_or_whose_address_is_set_is_expected_to_answer(local: Place) -> None:
    def is_expected() -> bool | None:
        [answer] = ask("local", signs_question())
        return answer.get()

    local.set_environment({"RAY_TMPDIR": str(local.folder / "ray")})
    assert is_expected() is False
    (local.folder / "ray" / "session_latest").mkdir(parents=True)
    shutil.copy(shutil.which("sleep") or "", local.folder / "raylet")
    job = start_process_job("local", f"exec '{local.folder}/raylet' 300", "ray")
    assert wait_until(is_expected)
    stop_job("local", job)
    local.set_environment({"RAY_TMPDIR": "/nowhere", "RAY_ADDRESS": "127.0.0.1:6379"})
    assert is_expected()


def test_a_target_whose_jobs_could_not_be_listed_is_not_said_to_have_none(
    local: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "no folder").touch()
    local.set_environment({"TRAINING_MONITOR_JOBS_DIR": str(tmp_path / "no folder")})
    assert main(["status", "local"]) == 3
    said = capsys.readouterr()
    assert "no jobs" not in said.out and "process jobs" in said.err


def test_where_no_job_is_listed_nobody_asks_who_supervises_it(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    local.set_environment({"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"})  # no Ray that runs here
    scripts: list[str] = []
    run = LocalTransport.run

    def record(self: LocalTransport, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        scripts.append(input or "")
        return run(self, argv, timeout=timeout, input=input)

    monkeypatch.setattr(LocalTransport, "run", record)
    assert main(["status", "local"]) == 3
    assert scripts and not any("/.claims/" in script for script in scripts)


def test_the_newest_file_counts_wherever_a_large_folder_has_it(local: Place) -> None:
    """Each of many files is the newest once: whatever the order of the directory, none is left out."""
    folder = local.folder / "checkpoints"
    folder.mkdir()
    names = [folder / f"{number}.bin" for number in range(2 * MANY)]
    for name in names:
        name.touch()
        os.utime(name, (1_000_000_000, 1_000_000_000))
    for name in names[:: MANY - 1]:
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


def test_what_nccl_says_into_the_own_log_of_a_training_counts(local: Place) -> None:
    log = local.folder / "a log.txt"
    words = "n:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)"
    script = f"export NCCL_DEBUG=INFO; exec >'{log}'; echo '{words}'; exec sleep 300"
    local.set_environment({"RAY_TMPDIR": str(local.folder)})
    job = start_process_job("local", f"sh -c {shlex.quote(script)}", "speaks")
    assert wait_until(lambda: check_efa_utilization("local")["efa_active"])
    stop_job("local", job)


def test_the_newest_words_of_nccl_count_behind_many_older_ones(local: Place) -> None:
    logs = local.folder / "ray" / "session_latest" / "logs"
    logs.mkdir(parents=True)
    local.set_environment({"RAY_TMPDIR": str(local.folder / "ray")})
    said = "n:1:2 [0] NCCL INFO "
    begun = f"{said}NET/OFI Selected Provider is efa (found 4 nics)\n"
    channels = "".join(f"{said}Channel {n} : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0\n" for n in range(99))
    (logs / "worker-a-01000000-1.out").write_text(f"{begun}{channels}{said}Using network Socket\n")
    for number in range(40):
        (logs / f"worker-{number}.err").touch()
    assert check_efa_utilization("local")["transport"] == "socket"
    for number in range(40):
        (logs / f"worker-{number}.err").write_text("nothing of NCCL\n")
    os.utime(logs / "worker-a-01000000-1.out", (0, 0))
    report = check_efa_utilization("local")
    assert report["efa_active"] is None and "9 older logs" in report["details"]


class SomebodyElse(LocalTransport):
    """Asks this machine as a user without rights, since nothing is closed to root."""

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        return super().run([*user, *argv], timeout=timeout, input=input)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may read."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        for path in Path(name).rglob("*"):
            path.chmod(0o755)


def test_a_checkpoint_that_may_not_be_entered_is_unknown_and_not_absent(folder: Path) -> None:
    for step in (100, 200, 300):
        write_checkpoint(folder / f"checkpoint-{step}")
    (folder / "checkpoint-300").chmod(0)
    (folder / "checkpoint-200" / "global_step").mkdir(0o700)
    (folder / "checkpoint-200" / "global_step").chmod(0)
    found = get_checkpoint_listing(str(folder), transport=SomebodyElse())
    assert found
    assert [(each.step, each.complete) for each in found.checkpoints] == [(100, True), (200, None), (300, None)]
    assert "cannot be read" in (found.checkpoints[-1].problem or "")


def test_an_unreadable_folder_hides_no_other_checkpoints(folder: Path) -> None:
    write_checkpoint(folder / "models" / "checkpoint-300")
    (folder / "models").chmod(0)
    (folder / "lost+found").mkdir(0)
    found = get_checkpoint_listing(str(folder), transport=SomebodyElse())
    assert found and (found.checkpoints, found.unlisted, found.unknown) == ((), 1, 1)
    write_safetensors(folder / "last.safetensors")
    found = get_checkpoint_listing(str(folder), transport=SomebodyElse())
    assert found and [each.complete for each in found.checkpoints] == [True] and found.unlisted == 1
    (folder / "models").chmod(0o755)
    found = get_checkpoint_listing(str(folder), transport=SomebodyElse())
    assert found and found.unlisted == 0 and found.newest_complete, "every disk of ext4 has a closed lost+found"


def test_a_folder_whose_names_may_not_be_read_is_not_empty(folder: Path) -> None:
    write_checkpoint(folder / "runs" / "checkpoint-300")
    (folder / "runs").chmod(0o711)
    with pytest.raises(ParseError, match="permission"):
        get_checkpoint_listing(str(folder / "runs"), transport=SomebodyElse())
