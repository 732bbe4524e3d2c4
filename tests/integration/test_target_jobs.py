"""Process jobs on this machine, in a pod through kubectl, and on a host through ssh."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.conftest import KINDS as EVERY, Place, kill, plain, wait_until
from tests.integration.test_targets import restricted_path
from tests.loopback.kubernetes import KubernetesApi
from training_monitor.core.errors import CommandFailed, JobExists, JobNotFound, SettingsError, TargetUnreachable
from training_monitor.core.models import JobStatus, JobView
from training_monitor.jobs.jobs import look_at_job
from training_monitor.jobs.process_jobs import start_process_job
from training_monitor.jobs.stopping import stop_job
from training_monitor.targets.asking import ask

KINDS = ("local",)  # of targets; what a way to a target could change is tried on every kind
ON_EVERY_KIND = pytest.mark.parametrize("target", EVERY, indirect=True)


def start(target: Place, command: str | list[str], name: str = "job", **more: object) -> str:
    return start_process_job(target.address, command, name, **more)  # type: ignore[arg-type]


def look(target: Place, job_id: str = "process:job") -> JobView:
    return look_at_job(target.address, job_id)


def ended(target: Place, job_id: str = "process:job") -> JobView:
    assert wait_until(lambda: look(target, job_id).status.is_terminal)
    return look(target, job_id)


def until(file: Path) -> str:
    """A command that goes on until a file is there."""
    return f"until [ -e '{file}' ]; do sleep 0.05; done"


def job_pid(target: Place) -> int:
    return int((target.jobs / "job" / "pid").read_text().split()[0])


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no job has anything to do with, the leader of a session."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


class TestJobs:
    def test_a_job_runs_and_then_has_succeeded(self, target: Place) -> None:
        go = target.folder / "go"
        assert start(target, f"echo begun; {until(go)}; echo 'step: 7/10'") == "process:job"
        assert wait_until(lambda: look(target).log_tail == "begun\n")
        running = look(target)
        assert (running.status, running.exit_code) == (JobStatus.RUNNING, None)
        assert running.started_at is not None
        go.touch()
        view = ended(target)
        assert (view.status, view.exit_code, view.survivors) == (JobStatus.SUCCEEDED, 0, 0)

    def test_a_job_that_fails_says_with_which_exit_status(self, target: Place) -> None:
        start(target, "echo boom >&2; exit 3")
        view = ended(target)
        assert (view.status, view.exit_code, view.message) == (JobStatus.FAILED, 3, "exit code 3")
        assert view.log_tail == "boom\n"

    def test_a_job_that_is_no_shell_command_fails(self, local: Place) -> None:
        start(local, "no-such-program --flag")
        view = ended(local)
        assert (view.status, view.exit_code) == (JobStatus.FAILED, 127)
        assert "no-such-program" in view.log_tail

    def test_a_name_that_is_no_plain_word_is_refused(self, local: Place) -> None:
        for name in ("it's", 'a"b', "a b", "a/b", "..", "-n", "", "$(id)", "a\nb", "ü", "x" * 200):
            with pytest.raises(SettingsError):
                start(local, "true", name)
        assert not local.jobs.exists()

    @ON_EVERY_KIND
    def test_command_environment_and_folder_arrive_intact(self, target: Place) -> None:
        folder = target.folder / "a 'quoted' \"folder\""
        folder.mkdir()
        values = {"PLAIN": "1", "SPACED": "  two  words ", "QUOTED": 'it\'s "it" `id` $HOME \\n', "LINES": "a\n\nb"}
        command = 'printf \'<%s>\' "it\'s" \'$HOME\' "$PLAIN" "$SPACED" "$QUOTED" "$LINES"\necho; pwd'
        start(target, command, env=values, working_dir=str(folder))
        shown = "".join(f"<{text}>" for text in ("it's", "$HOME", *values.values()))
        assert ended(target).log_tail == f"{shown}\n{folder}\n"

    @pytest.mark.parametrize("name", ["-", "-P", "plain", "~"])
    def test_a_working_folder_can_be_relative(self, local: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        (local.folder / name).mkdir()
        monkeypatch.chdir(local.folder)
        local.set_environment({"CDPATH": "/", "OLDPWD": "/"})
        start(local, "pwd", working_dir=name)
        assert ended(local).log_tail == f"{local.folder / name}\n"

    def test_a_command_of_words_is_quoted_for_the_shell(self, target: Place) -> None:
        words = ["a b", "it's", "$HOME", "*", "`id`", "", "two\nlines", "ü 训练"]
        start(target, ["printf", "<%s>", *words])
        assert ended(target).log_tail == "".join(f"<{word}>" for word in words)

    def test_variables_of_our_own_scripts_are_not_those_of_the_job(self, local: Place) -> None:
        ours = ["base", "dir", "n", "starter", "boot", "child", "code", "line", "pid", "start"]
        local.set_environment({name: f"the target's {name}" for name in ours[5:]})
        command = "; ".join(f'echo "${name}"' for name in ours)
        start(local, command, env={name: f"the user's {name}" for name in ours[:5]})
        shown = [f"the user's {name}" for name in ours[:5]] + [f"the target's {name}" for name in ours[5:]]
        assert ended(local).log_tail.splitlines() == shown

    def test_words_of_our_own_scripts_are_text_like_any_other(self, local: Place) -> None:
        text = "COMMAND WRAPPER WORKING_DIR EXPORTS BYTES JOB BY ROUNDS NONCE MAX"
        start(local, ["echo", text], env={"TEXT": text})
        assert ended(local).log_tail == f"{text}\n"

    @ON_EVERY_KIND
    def test_a_secret_in_the_environment_is_in_no_file_and_no_argv(self, target: Place) -> None:
        go, word = target.folder / "go", f"hunter-{os.urandom(8).hex()}"
        start(target, until(go), env={"API_TOKEN": word})
        files = [path.read_text("utf-8", "replace") for path in (target.jobs / "job").iterdir()]
        lines = [line for line in target.surroundings.processes().values()]
        go.touch()
        assert lines and not [text for text in files + lines if word in text]

    def test_a_working_folder_that_is_missing_is_an_error_and_starts_nothing(self, local: Place) -> None:
        with pytest.raises(CommandFailed, match="working directory"):
            start(local, "true", working_dir=str(local.folder / "nowhere"))
        with pytest.raises(JobNotFound):
            look(local)

    def test_a_jobs_folder_that_cannot_be_made_is_an_error(self, target: Place) -> None:
        target.set_environment({"TRAINING_MONITOR_JOBS_DIR": "/proc/jobs"})
        with pytest.raises(CommandFailed, match="cannot create"):
            start(target, "true")

    @ON_EVERY_KIND
    def test_a_name_starts_once(self, target: Place) -> None:
        go, starts = target.folder / "go", target.folder / "starts"
        command = f"echo start >>'{starts}'; {until(go)}"

        def attempt(_: int) -> str:
            try:
                return start(target, command)
            except JobExists:
                return "exists"

        with ThreadPoolExecutor(4) as pool:
            results = sorted(pool.map(attempt, range(4)))
        assert results == ["exists"] * 3 + ["process:job"]
        assert wait_until(starts.exists)
        go.touch()
        assert ended(target).status is JobStatus.SUCCEEDED
        with pytest.raises(JobExists):
            start(target, command)
        assert starts.read_text() == "start\n"

    @ON_EVERY_KIND
    def test_stopping_ends_the_whole_tree_and_says_by_whom(self, target: Place) -> None:
        deaf = "(trap '' TERM; touch deaf; while :; do sleep 71; done) & sleep 72 & "
        away = "setsid sh -c 'touch away; sleep 73' & (setsid sh -c 'trap \"\" TERM; touch both; sleep 74' &) ; wait"
        start(target, deaf + away, working_dir=str(target.folder))
        assert wait_until(lambda: all((target.folder / name).exists() for name in ("deaf", "away", "both")))
        assert len(target.surroundings.processes()) >= 6
        assert stop_job(target.address, "process:job", by="O'Brien & ROUNDS \\n", grace=0.5) == "STOPPED"
        view = look(target)
        assert (view.status, view.message) == (JobStatus.STOPPED, "stopped by O'Brien & ROUNDS \\n")
        assert view.survivors == 0
        assert not target.surroundings.processes()

    def test_a_job_that_saves_on_term_is_given_the_time(self, target: Place) -> None:
        command = f"trap 'sleep 0.3; echo saved; exit 1' TERM; echo begun; {until(target.folder / 'never')}"
        start(target, command)
        assert wait_until(lambda: "begun" in look(target).log_tail)
        assert stop_job(target.address, "process:job", grace=10) == "STOPPED"
        assert look(target).log_tail.endswith("saved\n")

    def test_stopping_what_has_ended_leaves_its_status(self, target: Place) -> None:
        start(target, "true")
        ended(target)
        assert stop_job(target.address, "process:job") == "SUCCEEDED"
        assert look(target).status is JobStatus.SUCCEEDED
        with pytest.raises(JobNotFound):
            stop_job(target.address, "process:other")

    def test_stopping_leaves_other_jobs_alone(self, target: Place) -> None:
        go = target.folder / "go"
        for name in ("job", "job-2", "jo"):
            start(target, until(go), name)
        assert stop_job(target.address, "process:job", grace=1) == "STOPPED"
        assert look(target, "process:job-2").status is look(target, "process:jo").status is JobStatus.RUNNING

    def test_the_log_is_followed_by_its_end_and_its_age(self, target: Place) -> None:
        start(target, "head -c 100000 /dev/zero | tr '\\0' x; printf '\\nstep 5/10\\r\\nlast'")
        ended(target)
        log = target.jobs / "job" / "log"
        os.utime(log, (log.stat().st_mtime - 500,) * 2)
        view = look(target)
        assert (len(view.log_tail), view.log_size) == (65536, log.stat().st_size)
        assert view.log_tail.endswith("\nstep 5/10\r\nlast")
        assert view.log_age is not None and 500 <= view.log_age < 560

    def test_a_job_whose_processes_are_killed_from_outside_has_failed(self, target: Place) -> None:
        start(target, "sleep 75; echo never")
        os.killpg(job_pid(target), signal.SIGKILL)
        view = ended(target)
        assert (view.status, view.exit_code) == (JobStatus.FAILED, None)
        assert view.message is not None and "SIGKILL" in view.message

    def test_a_training_that_is_killed_names_the_signal(self, target: Place) -> None:
        start(target, "kill -9 $$")
        assert ended(target).message == "exit code 137 (SIGKILL)"

    def test_what_a_killed_job_left_running_is_counted_and_can_be_stopped(self, target: Place) -> None:
        start(target, "exec sleep 76")
        assert wait_until(lambda: "sleep 76" in "".join(target.surroundings.processes().values()))
        kill(job_pid(target))
        view = ended(target)
        assert (view.status, view.survivors) == (JobStatus.FAILED, 1)
        assert stop_job(target.address, "process:job", grace=1) == "FAILED"
        assert not target.surroundings.processes()

    @pytest.mark.parametrize("target", ["in_pod", "over_ssh"], indirect=True)
    def test_a_job_goes_on_when_the_connection_that_started_it_is_gone(self, target: Place) -> None:
        go = target.folder / "go"
        start(target, until(go))
        target.disconnect()
        assert look(target).status is JobStatus.RUNNING
        go.touch()
        assert ended(target).status is JobStatus.SUCCEEDED

    def test_the_process_id_of_another_process_is_not_believed(
        self, target: Place, bystander: subprocess.Popen[bytes]
    ) -> None:
        start(target, "sleep 77")
        os.killpg(job_pid(target), signal.SIGKILL)
        identity = target.jobs / "job" / "pid"
        _, started, boot = identity.read_text().split()
        identity.write_text(f"{bystander.pid} {int(started) + 1} {boot}\n")  # the bystander is older than the job
        view = look(target)
        assert (view.status, view.survivors) == (JobStatus.FAILED, 0)
        assert stop_job(target.address, "process:job", grace=0.5) == "FAILED"
        assert bystander.poll() is None

    def test_a_process_of_an_earlier_boot_is_not_believed(
        self, local: Place, bystander: subprocess.Popen[bytes]
    ) -> None:
        start(local, "sleep 78")
        os.killpg(job_pid(local), signal.SIGKILL)
        started = Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (local.jobs / "job" / "pid").write_text(f"{bystander.pid} {started} 00000000-0000-0000-0000-000000000000\n")
        assert look(local).status is JobStatus.FAILED
        stop_job(local.address, "process:job", grace=0.5)
        assert bystander.poll() is None

    def test_a_job_whose_folder_is_out_of_sight_is_unknown_and_not_started_again(self, target: Place) -> None:
        start(target, "sleep 300")
        away = target.jobs.with_name("unmounted")
        target.jobs.rename(away)
        with pytest.raises(TargetUnreachable, match="run directory is missing"):
            look(target)
        with pytest.raises(CommandFailed, match="processes of this job are running"):
            start(target, "sleep 300")
        assert not (target.jobs / "job").exists()
        if target.jobs.exists():
            target.jobs.rmdir()
        away.rename(target.jobs)
        assert look(target).status is JobStatus.RUNNING

    def test_a_process_with_a_session_and_an_environment_of_its_own_is_ended_too(self, target: Place) -> None:
        start(target, "env -i setsid sleep 4242 & env -i setsid sleep 4242")
        assert wait_until(lambda: subprocess.run(["pgrep", "-xf", "sleep 4242"], stdout=-3).returncode == 0)
        assert stop_job(target.address, "process:job", grace=1) == "STOPPED"
        assert subprocess.run(["pgrep", "-xf", "sleep 4242"], stdout=-3).returncode == 1

    def test_a_command_that_leaves_processes_behind_says_so(self, target: Place) -> None:
        start(target, "sleep 300 & echo begun")
        assert wait_until(lambda: look(target).status is JobStatus.SUCCEEDED)
        found = look(target)
        assert found.survivors == 1 and found.message == "exit code 0, but 1 of its processes are still running"

    def test_a_relative_jobs_folder_is_the_same_for_all(self, local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(local.folder)
        monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", "relative jobs")
        start(local, "pwd", working_dir="/")
        assert ended(local).status is JobStatus.SUCCEEDED and look(local).log_tail == "/\n"
        assert (local.folder / "relative jobs" / "job" / "exit_code").exists()

    def test_a_job_works_where_there_is_no_setsid(self, target: Place) -> None:
        names = ("sh", "head", "sleep", "cat", "mkdir", "mv", "rm", "date", "stat", "tail", "grep", "sort")
        target.set_environment({"PATH": restricted_path(target.folder / "bin", names)})
        start(target, "sleep 79 & sleep 80")
        assert look(target).status is JobStatus.RUNNING
        assert stop_job(target.address, "process:job", grace=1) == "STOPPED"
        assert not target.surroundings.processes()


def test_a_job_that_is_stopped_before_its_process_is_there_runs_nothing(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, ran = local.folder / "bin" / "setsid", local.folder / "ran"
    slow.parent.mkdir()
    wait = "sh -c 'exec >/dev/null 2>&1; sleep 1.5; exec \"$@\"' sh"
    hidden = f'exec env -i PATH="$PATH" TRAINING_MONITOR_JOBS_DIR="{local.jobs}" {wait}'
    slow.write_text(f'#!/bin/sh\n{hidden} {shutil.which("setsid")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(start, local, f"touch '{ran}'; sleep 60")
        assert wait_until(lambda: (local.jobs / "job" / "stopped.new").exists())
        assert stop_job("local", "process:job") == "STOPPED"
        assert starting.result() == "process:job"  # it came all the same
    view = ended(local)
    assert (view.status, view.exit_code) == (JobStatus.STOPPED, 143) and not ran.exists()


def test_a_start_whose_answer_was_lost_is_a_start(in_pod: Place, kube: KubernetesApi) -> None:
    kube.exec_empty_ok = 1
    starts = in_pod.folder / "starts"
    assert start(in_pod, f"echo start >>'{starts}'") == "process:job"
    assert len(kube.execs) == 2
    assert ended(in_pod).status is JobStatus.SUCCEEDED
    assert starts.read_text() == "start\n"


@pytest.mark.parametrize("target", ["local", "in_pod"], indirect=True)
def test_the_log_of_a_job_has_no_more_than_its_own_output(target: Place) -> None:
    start(target, "env | grep -c '^TM_SCRIPT=\\|^LC_ALL='; cat; [ -t 0 ] || echo no terminal")
    assert ended(target).log_tail == "0\nno terminal\n"
    assert only_output(target, "echo next") == "next\n"


def only_output(target: Place, script: str) -> str:
    [answer] = ask(target.address, plain(script))
    return answer.get().output
