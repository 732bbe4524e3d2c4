"""A jobs folder with entries that are not jobs: they are reported, and all jobs are shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from training_monitor.cli.main import main
from training_monitor.core.errors import CommandFailed
from training_monitor.core.models import JobStatus
from training_monitor.core.results import CommandResult
from training_monitor.jobs.jobs import get_job_listing, list_jobs, next_job_id
from training_monitor.jobs.process_jobs import JobNames, jobs_question, start_process_job, start_question
from training_monitor.targets.asking import Site
from training_monitor.targets.kinds.vast import VastTarget
from training_monitor.targets.transport import LocalTransport, Stream

GOOD = ("good", "also.good-2", "x" * 128)
NAMES = (
    b"-x", b"--help", b"-", b"latin-\xe9", b"\xff\xfe", b"\x1b[2J\x1b]0;owned\x07", b"two\nlines", b"good\ngood",
    b"nothing\nalso.good-2\n", b"a b", b"  ", b"*", b"? not a folder: good", b"$(touch owned)", b"`id`", b"it's",
    b"\\", b"\xe2\x80\xae\xe8\xae\xad", b"y" * 255, b"z" * 129,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    jobs = tmp_path / "jobs"
    for number, name in enumerate(GOOD):
        run = jobs / name
        run.mkdir(parents=True)
        (run / "command").write_text("python train.py")
        (run / "log").write_text(f"step {number + 1}/10 loss: 0.5\n")
        (run / "exit_code").write_text("0 1700000000\n")
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(jobs))
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")  # without Ray: it takes seconds
    monkeypatch.chdir(tmp_path)
    return jobs


def by_name(name: bytes) -> Callable[[Path], None]:
    return lambda folder: os.mkdir(os.path.join(os.fsencode(folder), name))


ODD: dict[str, Callable[[Path], object]] = {
    **{ascii(name): by_name(name) for name in NAMES},
    "a file": lambda folder: (folder / "file").write_text("x"),
    "a dangling link": lambda folder: (folder / "link").symlink_to(folder / "nowhere"),
    "a link to itself": lambda folder: (folder / "loop").symlink_to("loop"),
    "a link out": lambda folder: (folder / "lnk").symlink_to("/etc"),
    "a link to the folder": lambda folder: (folder / "self").symlink_to("."),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
}


def names_of(folder: Path) -> set[str]:
    return {view.job_id for view in list_jobs("local")}


def test_one_odd_entry_is_named_and_all_jobs_are_listed(folder: Path, subtests: pytest.Subtests) -> None:
    before = set(os.listdir(folder))
    for what, make in ODD.items():
        tried()
        with subtests.test(what):
            make(folder)
            names = Site.of("local").ask_one(jobs_question())
            assert sorted(names) == sorted(GOOD)
            said = "".join(map(str, names.odd))
            assert said and said.isascii() and said.isprintable() and len(said) < 400
            [added] = set(os.listdir(folder)) - before
            path = folder / added
            path.unlink() if path.is_symlink() or not path.is_dir() else path.rmdir()
    assert not (folder.parent / "owned").exists()


def test_each_command_works_beside_all_of_them(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for make in ODD.values():
        make(folder)
    assert [view.status for view in get_job_listing("local").jobs] == [JobStatus.SUCCEEDED] * 3
    for argv, status in [
        (["status", "local"], 0),
        (["status", "local", "--json"], 0),
        (["status", "local", "good"], 0),
        (["logs", "local", "good"], 0),
        (["check", "local", "good", "--field", "step"], 0),
        (["watch", "local", "good", "--once"], 0),
        (["stop", "local", "process:good"], 0),
        (["fleet", "local", "--once"], None),  # it depends on the other trainings on this machine
        (["top", str(folder), "--once"], 0),
    ]:
        tried()
        assert main(argv) in ((0, 1, 3) if status is None else (status,)), (argv, capfd.readouterr())
        out, err = capfd.readouterr()
        assert "\x1b" not in out + err and "Traceback" not in err and len(err) < 2000
        if argv[0] == "fleet":
            assert "lnk" not in out
        if argv == ["status", "local"]:
            assert all(f"process:{name} " in out for name in GOOD)
            assert "entry of the jobs folder: not a job name: -\n" in err
            assert "and 19 more" in err
        if argv[0] == "status" and "--json" in argv:
            assert {job["job_id"] for job in json.loads(out)["jobs"]} == {f"process:{name}" for name in GOOD}


def test_a_link_to_no_job_is_not_taken_for_one(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "lnk").symlink_to("/etc")
    for name in GOOD[1:]:
        shutil.rmtree(folder / name)
    for argv, status in ((["check", "local", "lnk"], 2), (["status", "local", "process:lnk"], 2)):
        assert main(argv) == status, capfd.readouterr()
    capfd.readouterr()
    main(["check", "local", "--json"])  # other trainings may run on this machine
    named = [job["job_id"] for job in json.loads(capfd.readouterr().out)["jobs"]]
    assert [job for job in named if job and job.startswith("process:")] in ([], ["process:good"])


def test_a_run_directory_that_was_moved_and_linked_is_still_a_job(folder: Path, tmp_path: Path) -> None:
    (folder / "good").rename(tmp_path / "moved")
    (folder / "good").symlink_to(tmp_path / "moved")
    assert names_of(folder) == {f"process:{name}" for name in GOOD}


# ---------------------------------------------------------------- a folder of others


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o703])
def test_no_job_starts_in_a_folder_to_which_others_can_write(folder: Path, mode: int) -> None:
    """They could have made its run directory, whose files name what `stop` ends."""
    folder.chmod(mode)
    with pytest.raises(CommandFailed, match=f"others can write to it: {folder}.*chmod go-w"):
        start_process_job("local", "true", "new")
    assert not (folder / "new").exists()
    folder.chmod(0o775)  # the group of a user is often their own
    assert start_process_job("local", "true", "new") == "process:new"


def test_a_rented_machine_has_no_other_users(folder: Path) -> None:
    rented = start_question(VastTarget("7"), "process:new", "true", {}, {})
    folder.chmod(0o777)
    assert Site.of("local").ask_one(rented) == "started"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    os.chown(folder, 65534, -1)
    with pytest.raises(CommandFailed, match="belongs to another user .uid 65534"):
        start_process_job("local", "true", "new")


def test_a_listing_says_that_others_could_make_up_jobs(folder: Path, tmp_path: Path) -> None:
    as_nobody_sees_it(folder, tmp_path)
    folder.chmod(0o777)
    [odd] = get_job_listing("local", transport=AsNobody()).odd
    assert "others can write to it, and could make up jobs" in str(odd)


def test_an_entry_that_spells_a_job_over_two_lines_makes_no_second_one(folder: Path) -> None:
    os.mkdir(folder / "made-up\ngood")
    names = Site.of("local").ask_one(jobs_question())
    assert sorted(names) == sorted(GOOD) and len(names.odd) == 1
    assert next_job_id(Site.of("local"), "good", prefix="process:") == "process:good-attempt-1"


def test_more_jobs_than_one_command_line_holds_are_listed(folder: Path) -> None:
    many = {f"{'n' * 120}-{number}" for number in range(18_000)}  # 2.2 MB
    for name in many:
        os.mkdir(folder / name)
    names = Site.of("local").ask_one(jobs_question())
    assert set(names) == many | set(GOOD)


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_every_shell_lists_the_same(folder: Path, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (found := shutil.which(shell)):
        pytest.skip(f"no {shell}: nothing here was tested")
    for make in ODD.values():
        make(folder)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(found)
    if shell == "busybox":
        for tool in ("ls", "tr"):
            (tmp_path / "bin" / tool).symlink_to(found)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for number, name in enumerate(GOOD):
        os.utime(folder / name, (2_000_000_000 + number, 2_000_000_000 + number))
    names = Site.of("local").ask_one(jobs_question())
    assert list(names) == list(reversed(GOOD)) and len(names.odd) == 6


def test_what_a_target_makes_up_is_never_a_name() -> None:
    from training_monitor.core.models import Reply

    lines = ["good", "-x", "good", "a/b", "..", "", "? no folder: f\x1b[2J", "x" * 129, "\ufffd", *["? y"] * 100]
    names = jobs_question().parse(Reply("\n".join(lines), 0, 0.1))
    assert names == ["good"] and isinstance(names, JobNames) and len(names.odd) == 6
    assert all(each.isascii() and each.isprintable() and len(each) < 300 for each in names.odd)


# ---------------------------------------------------------------- inside of a run directory


class AsNobody(LocalTransport):
    """This machine, as a user who owns nothing."""

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
        return super().run([*self._words(), *argv], timeout=timeout, input=input)

    def stream(self, argv: Sequence[str], *, input: str | None = None) -> Stream:
        return super().stream([*self._words(), *argv], input=input)

    @staticmethod
    def _words() -> list[str]:
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def as_nobody_sees_it(folder: Path, tmp_path: Path) -> None:
    """Make the folder readable to all."""
    able = subprocess.run([*AsNobody._words(), "true"], capture_output=True, check=False)
    if able.returncode:
        pytest.skip("only root can become another user: nothing here was tested")
    outside = next(each for each in tmp_path.parents if each.parent == Path("/tmp"))
    for each in (folder, *folder.parents):
        if outside in (each, *each.parents):
            each.chmod(0o755)


def test_a_closed_run_directory_is_unknown_and_others_are_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_nobody_sees_it(folder, tmp_path)
    (folder / "closed").mkdir(mode=0o700)
    (folder / "closed" / "exit_code").write_text("0 1700000000\n")
    listing = get_job_listing("local", transport=AsNobody())
    views = {view.job_id: view for view in listing.jobs}
    assert views.pop("process:closed").status is JobStatus.UNKNOWN
    assert [view.status for view in views.values()] == [JobStatus.SUCCEEDED] * 3


def test_pipes_and_endless_files_in_a_run_directory_hold_nobody_up(folder: Path) -> None:
    for name in ("pid", "exit_code", "stopped", "log", "command"):
        for how, make in (("pipe", os.mkfifo), ("zero", lambda path: os.symlink("/dev/zero", path))):
            run = folder / f"{how}-{name}"
            run.mkdir()
            make(str(run / name))
    views = list_jobs("local")
    assert sorted(view.job_id for view in views if view.status is JobStatus.SUCCEEDED) == sorted(
        f"process:{name}" for name in GOOD
    )
    assert len(views) == 13 and all(view.log_known for view in views), [v for v in views if not v.log_known]
