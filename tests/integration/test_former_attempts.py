"""What former attempts leave on a target, and what of it is removed as the next one starts."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import Place, counted_programs, wait_until
from tests.loopback.ray_dashboard import RayDashboard
from training_monitor import RestartPolicy, auto_restart
from training_monitor.core.errors import TargetUnreachable
from training_monitor.core.models import Event, JobStatus, JobView, Progress
from training_monitor.core.store import Store
from training_monitor.jobs.attempts import MOST_REMOVED, OLD_SECONDS, Removed, remove_question
from training_monitor.jobs.jobs import find_jobs_named, look_at_job, start_job
from training_monitor.jobs.process_jobs import (
    hold_key,
    hold_question,
    look_question,
    start_process_job,
    states_question,
)
from training_monitor.jobs.stopping import stop_job
from training_monitor.targets.asking import Site, ask

KINDS = ("local",)  # of targets: what a shell does is the same on all
HOSTILE = ("run-attempt-4 $(touch pwned)", "run-attempt--rf", "run-attempt-04", "run-attempt-1-attempt-2", "-rf", "*")


def remove(target: Place, job_id: str, keep: int) -> Removed:
    [answer] = ask(target.address, remove_question(job_id, keep))
    found = answer.get()
    assert found is not None
    return found


def make(target: Place, *names: str, command: str = "true") -> None:
    """Start jobs, and see them ended."""
    for name in names:
        start_process_job(target.address, command, name)
    ids = [f"process:{name}" for name in names]
    assert wait_until(lambda: all(look_at_job(target.address, each).status.is_terminal for each in ids), 60)


def make_old(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (time.time() - OLD_SECONDS - 60,) * 2)


def names_in(target: Place) -> set[str]:
    return {each.name for each in target.jobs.iterdir() if not each.name.startswith(".")}


def test_only_ended_attempts_of_ours_are_removed_and_the_newest_stay(target: Place) -> None:
    make(target, *(f"run-attempt-{number}" for number in (1, 2, 4, 6, 8, 9, 12)), "other-attempt-1")
    start_process_job(target.address, "sleep 300", "run-attempt-3")
    ask(target.address, hold_question("process:run-attempt-4", "a person"))
    (target.jobs / "run-attempt-2" / "checkpoint.pt").touch()
    elsewhere = target.folder / "elsewhere"
    (target.jobs / "run-attempt-1").rename(elsewhere)
    (target.jobs / "run-attempt-1").symlink_to(elsewhere)
    (target.jobs / "run-attempt-5").mkdir()
    for name in HOSTILE:
        (target.jobs / name).mkdir()
    before = names_in(target)
    found = remove(target, "process:run-attempt-10", keep=1)
    assert found == Removed(("run-attempt-8", "run-attempt-6"), ("run-attempt-2",))
    assert names_in(target) == before - set(found.removed)
    assert {"starter", "command", "log"} <= {each.name for each in elsewhere.iterdir()}
    assert not list(target.folder.rglob("pwned"))
    assert remove(target, "process:run-attempt-10", keep=1).removed == (), "a second call removes nothing more"


def test_a_start_that_goes_on_is_left_alone(local: Place) -> None:
    for name in ("starter", "command", "exit_code.new"):
        file = local.jobs / "run-attempt-1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert remove(local, "process:run-attempt-2", keep=0) == Removed()
    assert half_written(local) == {"run-attempt-1/exit_code.new"}


def half_written(target: Place) -> set[str]:
    return {f"{each.parent.name}/{each.name}" for each in target.jobs.glob("*/*.new")}


def test_what_a_job_has_not_put_in_place_goes_with_its_end(target: Place) -> None:
    start_process_job(target.address, "sleep 300", "stopped-attempt-1")
    make(target, "ended-attempt-1")
    of_running = {"stopped-attempt-1/exit_code.new", "stopped-attempt-1/stopped.new"}
    assert wait_until(lambda: half_written(target) == of_running)
    wrapper = int((target.jobs / "stopped-attempt-1" / "pid").read_text().split()[0])
    os.kill(wrapper, signal.SIGKILL)
    stop_job(target.address, "process:stopped-attempt-1")
    assert half_written(target) == set()


def test_what_a_killed_job_has_not_put_in_place_goes_as_the_next_attempt_starts(target: Place) -> None:
    for name in ("run-attempt-1", "run-attempt-2", "run-attempt-3", "other-attempt-1"):
        start_process_job(target.address, "sleep 300", name)
    for name in ("run-attempt-1", "run-attempt-3", "other-attempt-1"):
        os.killpg(int((target.jobs / name / "pid").read_text().split()[0]), signal.SIGKILL)
    beside = target.jobs / "run-attempt-3" / "mine.new"
    beside.touch()
    ask(target.address, hold_question("process:run-attempt-1", "a person"))
    before, killed = half_written(target), [f"process:run-attempt-{number}" for number in (1, 3)]
    assert wait_until(lambda: not any(look_at_job(target.address, each).survivors for each in killed))
    assert remove(target, "process:run-attempt-4", keep=2) == Removed()
    gone = {f"run-attempt-{number}/{name}.new" for number in (1, 3) for name in ("exit_code", "stopped")}
    assert gone < before and half_written(target) == before - gone
    assert remove(target, "process:run-attempt-4", keep=0) == Removed((), ("run-attempt-3",))
    stop_job(target.address, "process:run-attempt-2")
    stop_job(target.address, "process:other-attempt-1")


def test_what_is_old_and_unneeded_goes_and_what_is_new_stays(target: Place) -> None:
    old, fresh = f"upload-{'0a' * 8}-1", f"upload-{'0b' * 8}-1"
    make(target, old, fresh, "upload-mine-1")
    for name in (old, "upload-mine-1"):
        make_old(target.jobs / name / "exit_code")
    held, claims = target.jobs / ".held", target.jobs / ".claims" / "key"
    ask(target.address, hold_question("process:gone", "a person"), hold_question(f"process:{fresh}", "a person"))
    make_old(*held.iterdir(), held / "a.new", claims / "new.1", claims / "look.2", claims / "7")
    (held / "b.new").touch()
    (target.jobs / ".former" / "half-removed").mkdir(parents=True)
    assert remove(target, "process:run-attempt-1", keep=10) == Removed((old,))
    assert names_in(target) == {fresh, "upload-mine-1"}
    assert len(list(held.iterdir())) == 2 and (held / "b.new").exists(), "the hold of a job that is there"
    assert [each.name for each in claims.iterdir()] == ["7"]
    assert list((target.jobs / ".former").iterdir()) == []


def test_old_holds_of_jobs_unknown_to_ray_are_removed(local: Place) -> None:
    held = local.jobs / ".held"
    names = {job: hold_key(job) for job in ("known", "gone $(touch pwned)", "gone-attempt-1", "new")}

    def held_after_a_start(number: int) -> set[str]:
        start_job(Site.of("local"), f"process:run-attempt-{number}", {"command": "true"}, None, keep_attempts=10)
        return {each.name for each in held.iterdir()}

    for job in names:
        ask("local", hold_question(job, "a person"))
    make_old(*(held / name for job, name in names.items() if job != "new"))
    (held / ("0" * 32)).write_text("a person\nknown-to-nobody\n")  # no hold of that job
    make_old(held / ("0" * 32))
    before = {*names.values(), "0" * 32}
    with RayDashboard() as ray:
        local.set_environment({"RAY_API_SERVER_ADDRESS": ray.address})
        ray.add_job("known", "STOPPED")
        found = held_after_a_start(1)
    assert found == before - {names["gone $(touch pwned)"], names["gone-attempt-1"]}
    make_old(held / names["new"])
    assert held_after_a_start(2) == found, "nobody answers there any more"


def test_a_run_keeps_keep_attempts_and_reports_what_it_removes(local: Place, tmp_path: Path) -> None:
    events = list[Event]()
    command = f"echo x >>'{tmp_path}/tries'; [ $(wc -l <'{tmp_path}/tries') -ge 3 ]"
    report = auto_restart(
        "local",
        "run",
        None,
        policy=RestartPolicy(retry_delay=0, check_interval=0.2, keep_attempts=1),
        job_config={"command": command},
        on_event=events.append,
        store=Store(str(tmp_path / "state")),
    )
    assert report["success"] and report["job_id"] == "process:run-attempt-3", report
    assert names_in(local) == {"run-attempt-2", "run-attempt-3"}
    [removed] = [event.text for event in events if event.kind == "removed"]
    assert removed.endswith(": run-attempt-1")


def test_a_restart_starts_as_many_programs_after_many_attempts_as_after_two(local: Place) -> None:
    counts = []
    for name, attempts in (("few", 2), ("many", 40)):
        first = local.jobs / f"{name}-attempt-1"
        make(local, first.name)
        process = Path("/proc", (first / "pid").read_text().split()[0])
        assert wait_until(lambda at=process: not at.exists()), "until then, what it leaves is looked for"
        for number in range(2, attempts + 1):
            shutil.copytree(first, local.jobs / f"{name}-attempt-{number}")
        with counted_programs(local) as programs:
            found = find_jobs_named(Site.of("local"), name, prefix="process:")
            assert remove(local, f"process:{name}-attempt-{attempts + 1}", keep=1).left == ()
        assert [view.status for view, _ in found] == [JobStatus.SUCCEEDED] * attempts
        removed = min(attempts - 1, MOST_REMOVED)
        # a folder, its new name, its end
        counts.append(Counter(programs()) - Counter({"mkdir": removed, "mv": removed, "rm": removed}))
    few, many = counts
    assert few == many and few["grep"] and few.total() < 40


def test_one_look_at_many_jobs_tells_the_same_as_a_look_at_each(target: Place) -> None:
    make(target, "ended", "left", "stopped", "failed-1", command="exit 3")
    start_process_job(target.address, "setsid sleep 300 & sleep 0.1; exit 0", "leaves")
    start_process_job(target.address, "sleep 300", "runs")
    start_process_job(target.address, "sleep 300", "killed")
    start_process_job(target.address, "sleep 300", "hidden")
    start_process_job(target.address, "sleep 300", "to-stop")
    stop_job(target.address, "process:to-stop", by="a person\tand more")
    assert wait_until(lambda: (target.jobs / "hidden" / "pid").exists() and (target.jobs / "killed" / "pid").exists())
    os.kill(int((target.jobs / "killed" / "pid").read_text().split()[0]), signal.SIGKILL)
    assert wait_until(lambda: look_at_job(target.address, "process:leaves").status.is_terminal)
    assert wait_until(lambda: look_at_job(target.address, "process:killed").status.is_terminal)
    (target.jobs / "made").mkdir()
    (target.jobs / "ended" / "log").unlink()
    (target.jobs / "left" / "pid").write_text(". .* damaged")
    names = ["ended", "left", "failed-1", "leaves", "runs", "killed", "to-stop", "made", "missing"]
    job_ids = [f"process:{name}" for name in names]
    site = Site.of(target.address)
    together = site.ask_one(states_question(job_ids))
    for job_id, view in zip(job_ids, together):
        [alone] = site.ask(look_question(job_id))
        assert seen(view) == seen(alone.value), job_id
    assert [view.job_id for view in together if view and view.survivors] == ["process:leaves", "process:killed"]
    assert together[names.index("missing")] is None
    (target.jobs / "hidden").rename(target.folder / "elsewhere")
    for question in (look_question("process:hidden"), states_question(["process:hidden"])):
        with pytest.raises(TargetUnreachable, match="its run directory is missing"):
            site.ask_one(question)
    (target.folder / "elsewhere").rename(target.jobs / "hidden")


def seen(view: JobView | None) -> JobView | None:
    """What does not change from one look to the next, without the log."""
    return view and replace(view, log_tail="", log_known=True, progress=Progress(), log_age=None, age=None)
