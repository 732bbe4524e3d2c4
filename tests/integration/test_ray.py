"""A real Ray cluster, asked as in production: through the real kubectl and Ray's dashboard or command."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import kill, pids, wait_until
from tests.integration.ray_cluster import (
    ACTORS,
    CRASH,
    HEAD,
    LABELS,
    LIES,
    Census,
    LosesAnswers,
    RayHead,
    Supervised,
    command_of,
    environment_of,
    record_calls,
    start_jobs,
    supervise,
    training,
)
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.requirements import require
from training_monitor import (
    JobStatus,
    TrainingWatcher,
    check_job_status,
    check_training,
    detect_stall,
    get_current_step,
    get_job_logs,
    get_throughput,
    get_training_health,
    monitor_job,
    stop_job,
    submit_job_with_resume,
    verify_ray_resources,
    watch_training,
)
from training_monitor.cli.main import main
from training_monitor.core.errors import CommandFailed, JobNotFound, SettingsError, TargetUnreachable
from training_monitor.core.models import Event
from training_monitor.core.reports import JobCheckReport, MonitorReport
from training_monitor.jobs import look_at_job
from training_monitor.jobs.jobs import find_jobs_named, start_job
from training_monitor.jobs.process_jobs import hold_key, hold_question
from training_monitor.jobs.ray_jobs import pids_of_ray_job
from training_monitor.jobs.stopping import STOP_SECONDS, ExitWatch
from training_monitor.logs import LogUpdate
from training_monitor.look.evidence import evidence_question
from training_monitor.look.find_trainings import find_question
from training_monitor.targets.asking import Site, ask
from training_monitor.why import explain_training


@pytest.fixture(scope="module")
def ray_head(ray_command: Path) -> Iterator[RayHead]:
    head = RayHead(ray_command, RAY_DEDUP_LOGS_AGG_WINDOW_S="1")
    try:
        head.start()
        yield head
    finally:
        head.stop()


@pytest.fixture
def ray_pod(request: pytest.FixtureRequest, ray_head: RayHead, kube: KubernetesApi) -> Pod:
    """The pod of the cluster, which begins anew where a test is run once more: its jobs are there already."""
    if getattr(request.node, "execution_count", 1) > 1:
        ray_head.start_anew()
    return kube.add_pod(HEAD, env=ray_head.pod_environment, labels=LABELS)


@pytest.fixture
def jobs(ray_head: RayHead, ray_pod: Pod) -> RayHead:
    """The cluster with one job of each fate; started once, all at the same time, and not to be changed."""
    if "jobs" not in ray_head.prepared:
        start_jobs(ray_head)
        ray_head.prepared.add("jobs")
    return ray_head


class TestWatching:
    """TrainingWatcher on Ray jobs."""

    def test_polls_tell_how_jobs_are_and_what_they_said(self, jobs: RayHead) -> None:
        good = TrainingWatcher(HEAD, "good").poll()
        assert (good.is_running, good.status, good.progress.step, good.totals["last_loss"]) == (
            False,
            JobStatus.SUCCEEDED,
            3,
            0.5,
        )
        bad = TrainingWatcher(HEAD, "bad").poll()
        assert (bad.is_running, bad.status, bad.exit_code, bad.progress.step) == (False, JobStatus.FAILED, 3, 5)
        silent = TrainingWatcher(HEAD, "silent").poll()
        assert silent.is_running is True and "begun" in silent.recent_output and (silent.runtime or 0) > 0
        assert TrainingWatcher(HEAD, "waiting").poll().status is JobStatus.PENDING
        with pytest.raises(JobNotFound):
            TrainingWatcher(HEAD, "nope").poll()

    def test_the_lines_of_a_job_are_streamed_once_each_and_its_end_is_told(self, ray_pod: Pod) -> None:
        command = "for i in $(seq 1 60); do echo step $i/60 loss=0.$i; sleep 0.05; done"
        assert start_job(Site.of(HEAD), "streamed", {"entrypoint": command}, None) == "started"
        steps = list[int]()

        def heard(update: LogUpdate) -> None:
            if update.line.startswith("step "):
                steps.append(update.progress.step or -1)

        watcher = TrainingWatcher(HEAD, "streamed", {"poll_interval": 1})
        report = watch_training(watcher, on_line=heard)
        assert report is not None and (report.end, steps) == ("finished", list(range(1, 61)))


class TestStatus:
    def test_a_job_has_the_status_that_ray_gives_it(self, jobs: RayHead, ray_pod: Pod) -> None:
        for job, known in {
            "good": ("SUCCEEDED", 0),
            "bad": ("FAILED", 3),
            "silent": ("RUNNING", None),
            "waiting": ("PENDING", None),
            "liar": ("FAILED", 1),
            'a\'b "c"; rm -rf x': ("SUCCEEDED", 0),
        }.items():
            assert check_job_status(HEAD, job) == known[0]
            view = look_at_job(HEAD, job)
            assert (view.status, view.exit_code) == known
            path, ray_pod.env["PATH"] = ray_pod.env["PATH"], jobs.bare_path()
            view = look_at_job(HEAD, job)
            ray_pod.env["PATH"] = path
            assert view.status == known[0], "by the ray command"
            assert known[0] != "FAILED" or view.exit_code == known[1]

    def test_a_job_that_does_not_exist_is_unknown_and_not_found(self, jobs: RayHead, ray_pod: Pod) -> None:
        for job, gets in (("../jobs", (get_job_logs, look_at_job)), ("'; touch x; '", (get_throughput, stop_job))):
            assert check_job_status(HEAD, job) == "UNKNOWN"
            assert get_current_step(HEAD, job) is None
            for get in gets:
                with pytest.raises(JobNotFound):
                    get(HEAD, job)
        ray_pod.env["PATH"] = jobs.bare_path()
        assert check_job_status(HEAD, "nope") == "UNKNOWN", "by the ray command"
        with pytest.raises(JobNotFound):
            look_at_job(HEAD, "nope")
        assert list(ray_pod.root.iterdir()) == []

    def test_a_stopped_job_is_stopped_and_stays_so(self, jobs: RayHead, ray_pod: Pod) -> None:
        names = [submit_job_with_resume(HEAD, None, {"entrypoint": "sleep 600"}, job_name="halt") for _ in range(2)]
        assert names == ["halt-attempt-1", "halt-attempt-2"]
        assert wait_until(lambda: set(jobs.named("halt").values()) == {"RUNNING"}, 120)
        assert [stop_job(HEAD, names[0]) for _ in range(2)] == ["STOPPED", "STOPPED"]
        ray_pod.env["PATH"] = jobs.bare_path()
        assert stop_job(HEAD, names[1]) == "STOPPED"
        assert monitor_job(HEAD, names[0])["status"] == "STOPPED"

    def test_a_job_that_waits_for_resources_is_cancelled_and_never_runs(
        self, jobs: RayHead, ray_pod: Pod, tmp_path: Path
    ) -> None:
        for path in (ray_pod.env["PATH"], jobs.bare_path()):
            ray_pod.env["PATH"] = path
            name = f"it's impossible {len(jobs.jobs())}"
            jobs.submit(name, f"touch '{tmp_path}/ran'", entrypoint_num_gpus=99)
            told = list[str]()
            started = time.monotonic()
            assert stop_job(HEAD, name, on_progress=told.append) == "STOPPED"
            assert time.monotonic() - started < STOP_SECONDS / 2 and "cancelling" in told[0]
            assert look_at_job(HEAD, name).message == "cancelled before it started"
        assert not (tmp_path / "ran").exists()

    def test_a_job_that_cannot_be_cancelled_is_explained_at_once(self, jobs: RayHead, ray_pod: Pod) -> None:
        folder = jobs.folder / "only curl"
        folder.mkdir()
        for program in ("sh", "cat", "head", "tail", "stat", "date", "sleep", "mkdir", "mv", "curl"):
            (folder / program).symlink_to(shutil.which(program) or program)
        ray_pod.env["PATH"] = str(folder)
        jobs.submit("queued", "true", entrypoint_num_gpus=99)
        started = time.monotonic()
        with pytest.raises(CommandFailed, match="is waiting for resources .* as soon as it starts.*ray kill-actor"):
            stop_job(HEAD, "queued")
        assert time.monotonic() - started < STOP_SECONDS / 2

    def test_a_job_that_has_ended_keeps_its_end_when_it_is_stopped(self, jobs: RayHead) -> None:
        assert [stop_job(HEAD, "good"), stop_job(HEAD, "bad")] == ["SUCCEEDED", "FAILED"]

    def test_no_dashboard_is_unknown_and_no_failure_of_the_job(self, jobs: RayHead, ray_pod: Pod) -> None:
        ray_pod.env["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:9"
        assert check_job_status(HEAD, "good") == "UNKNOWN"
        with pytest.raises(TargetUnreachable, match="Ray does not respond"):
            look_at_job(HEAD, "good")
        assert verify_ray_resources(HEAD)["gpus_available"] == 4, "ray status asks the cluster, not the dashboard"
        (Path(jobs.bare_path()).parent / "no ray").mkdir()
        ray_pod.env["PATH"] = f"{jobs.folder}/no ray:/usr/bin:/bin"
        with pytest.raises(TargetUnreachable, match="not found"):
            look_at_job(HEAD, "good")

    def test_ray_address_as_a_url_names_the_dashboard(self, jobs: RayHead, ray_pod: Pod) -> None:
        del ray_pod.env["RAY_API_SERVER_ADDRESS"]
        ray_pod.env["RAY_ADDRESS"] = jobs.address + "/"
        assert check_job_status(HEAD, "bad") == "FAILED"
        ray_pod.env["PATH"] = jobs.bare_path()
        assert check_job_status(HEAD, "bad") == "FAILED"
        assert verify_ray_resources(HEAD)["healthy"]


class TestNames:
    """A job with an id that Ray made up is named by its metadata or by a word of its entrypoint."""

    def test_a_job_is_found_by_training_name_or_a_word_of_its_command(
        self, jobs: RayHead, ray_pod: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def said(*words: str) -> str:
            assert main([words[0], HEAD, *words[1:]]) == 0, capsys.readouterr()
            return capsys.readouterr().out

        (tmp_path / "tune.sh").write_text("echo step 4/9 loss=0.5; sleep 600")
        job = "raysubmit_Nm9"
        jobs.submit(job, f"sh {tmp_path}/tune.sh", metadata={"job_name": "r9"})
        jobs.says(job, "step 4/9")
        assert said("check", "r9", "--field", "step") == "4\n" and said("status", "tune.sh").startswith(
            f"{job} RUNNING"
        )
        assert "step 4/9 loss=0.5\n" in said("logs", "r9", "--tail", "2")
        assert (get_current_step(HEAD, "tune.sh"), check_job_status(HEAD, "r9")) == (4, "RUNNING")
        report = get_training_health(HEAD, None, job_id="r9")
        assert report["job"] and report["job"]["job_id"] == job
        with pytest.raises(JobNotFound, match="no Ray job named 'r8'; Ray has "):
            supervise("r8", tmp_path / "c")
        with pytest.raises(SettingsError, match=r"steady .*frozen|frozen .*steady"):
            supervise("sleep", tmp_path / "c")
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(supervise, "r9", tmp_path / "c", stagnation_threshold=60)
            assert said("stop", "r9").startswith(f"{job} has ended (STOPPED)")
            assert run.result(120)["reason"].startswith("stopped")
        assert not jobs.named("r9")


class TestLog:
    def test_the_tail_is_the_last_lines(self, jobs: RayHead) -> None:
        jobs.says("silent", "begun")
        assert get_job_logs(HEAD, "silent", 1) == "begun\n"
        assert get_job_logs(HEAD, "silent", 0) == ""
        assert get_current_step(HEAD, "silent") == 3

    def test_the_log_comes_over_rest_or_by_the_command_when_the_file_is_not_here(
        self, jobs: RayHead, ray_pod: Pod
    ) -> None:
        ray_pod.env["RAY_TMPDIR"] = "/nonexistent"
        view = look_at_job(HEAD, "silent")
        assert (view.log_known, view.log_size, view.progress.step) == (True, None, 3)
        assert detect_stall(HEAD, "silent", stagnation_threshold=1, sample_duration=1.2)
        ray_pod.env["PATH"] = jobs.bare_path()
        assert get_job_logs(HEAD, "silent").rstrip().endswith("begun")
        assert LIES in get_job_logs(HEAD, "liar"), "whatever a log says, it has been read"

    def test_the_log_of_a_cluster_with_rays_own_folder_names_is_read_from_its_file(
        self, jobs: RayHead, ray_pod: Pod, tmp_path: Path
    ) -> None:
        for folder in (jobs.folder, jobs.temporary, tmp_path):  # RAY_TMPDIR, --temp-dir, TMPDIR
            ray_pod.env["RAY_TMPDIR"] = str(folder)
            if folder == tmp_path:
                (tmp_path / "ray").symlink_to(jobs.temporary)
                ray_pod.env["TMPDIR"] = ray_pod.env.pop("RAY_TMPDIR")
            view = look_at_job(HEAD, "silent")
            assert view.log_size and view.log_age is not None

    def test_a_job_that_does_nothing_more_is_stalled(self, jobs: RayHead) -> None:
        time.sleep(max(0.0, 1.5 - (look_at_job(HEAD, "silent").log_age or 0.0)))
        assert detect_stall(HEAD, "silent", stagnation_threshold=1)
        stalls: list[None] = []
        report = monitor_job(HEAD, "silent", 0.2, 20, 1, on_stall=lambda: stalls.append(None))
        assert (report["status"], report["final_step"], len(stalls)) == ("STALLED", 3, 1)
        assert jobs.status("silent") == "RUNNING", "watching does nothing to the job"

    def test_a_job_that_waits_or_has_ended_is_not_stalled_and_its_end_is_reported(self, jobs: RayHead) -> None:
        assert not any(detect_stall(HEAD, name, stagnation_threshold=0.1) for name in ("waiting", "good"))
        reports = [monitor_job(HEAD, name) for name in ("good", "liar")]
        assert [each["status"] for each in reports] == ["SUCCEEDED", "FAILED"] and reports[0]["final_step"] == 3

    def test_steps_in_the_entrypoint_are_no_progress(self, ray_head: RayHead, ray_pod: Pod) -> None:
        start_job(Site.of(HEAD), "script", {"entrypoint": "true 'usage:\nstep 80/90 loss=1 5.0 it/s'\nprintf ''"}, None)
        ray_head.ended("script")
        assert "step 80/90" in get_job_logs(HEAD, "script")
        assert (get_current_step(HEAD, "script"), get_throughput(HEAD, "script")) == (None, None)


def check(job: str, **more: Any) -> JobCheckReport:
    """The one job of that name, as `check_training` sees it."""
    [found] = check_training(HEAD, job, **more)["jobs"]
    assert found["job_id"] == job
    return found


class TestEnd:
    """The end of a job is told at once, by one held connection, however rarely it is looked at."""

    @pytest.mark.parametrize("way", ["by REST", "by the entrypoint's process alone"])
    def test_the_end_of_a_job_is_seen_long_before_the_next_look(
        self, jobs: RayHead, ray_pod: Pod, kube: KubernetesApi, tmp_path: Path, way: str
    ) -> None:
        if way != "by REST":
            (tmp_path / "bin").mkdir()
            (tmp_path / "bin" / "grep").symlink_to(shutil.which("grep") or "/bin/grep")
            ray_pod.env["PATH"] = f"{tmp_path}/bin:{jobs.bare_path()}"
        jobs.submit(way, f"until [ -e '{tmp_path}/enough' ]; do sleep 0.1; done")
        assert wait_until(lambda: jobs.status(way) == "RUNNING", 120)
        assert self.ends(kube, way, (tmp_path / "enough").touch)["status"] == "SUCCEEDED"

    def test_a_job_without_a_process_on_this_machine_is_asked_of_ray(
        self, jobs: RayHead, ray_pod: Pod, kube: KubernetesApi
    ) -> None:
        jobs.submit("elsewhere", "true", entrypoint_num_gpus=99)
        assert self.ends(kube, "elsewhere", lambda: stop_job(HEAD, "elsewhere"))["status"] == "STOPPED"

    def ends(self, kube: KubernetesApi, job: str, end: Callable[[], object]) -> MonitorReport:
        """What is reported of a job that is looked at every three hours, and ended after the first look."""
        kube.execs.clear()
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(monitor_job, HEAD, job, 10_000.0, 90.0)
            assert wait_until(lambda: len(kube.execs) >= 2, 120), "one that looks, one that waits"
            end()
            return run.result()

    def test_the_waiting_program_ends_with_the_watcher_and_reconnects(self, jobs: RayHead, ray_pod: Pod) -> None:
        def shells() -> list[int]:
            mark = f"RAY_API_SERVER_ADDRESS={jobs.address}".encode()
            return [pid for pid in pids() if command_of(pid).startswith(b"sh\0-s\0") and mark in environment_of(pid)]

        def is_watched_again() -> bool:
            watch.follow("steady")
            return bool(shells())

        watch = ExitWatch(Site.of(HEAD))
        watch.follow("steady")
        assert wait_until(shells, 120)
        for pid in shells():
            kill(pid)
        assert wait_until(lambda: not shells(), 120) and wait_until(is_watched_again, 120)
        watch.close()
        assert wait_until(lambda: not shells(), 120)
        assert not watch.ended.is_set(), "nothing was concluded"


class TestCheck:
    def test_one_look_says_what_is_known_of_a_job_and_why(self, jobs: RayHead, kube: KubernetesApi) -> None:
        for job, state, verdict, reason in (
            ("steady", "running", "ok", r"step \d+ of 100000"),
            ("frozen", "unknown", "unknown", r"a single check does not show when it reached step 40 of 200"),
            ("good", "finished", "ok", r"finished at step 3 of 3"),
            ("bad", "failed", "failed", r"failed at step 5 of 10: .*3"),
            ("crashed", "failed", "failed", rf"failed at step 40 of 200: .*{CRASH}"),
            ("waiting", "starting", "unknown", r"^it is waiting to start: 99 GPUs requested, 4 exist$"),
        ):
            kube.execs.clear()
            found = check(job)
            assert (found["state"], found["verdict"]) == (state, verdict), found
            assert re.search(reason, found["reason"]), found
            assert len(kube.execs) <= 2, "one that finds, one that looks"

    def test_lines_without_steps_are_no_progress_and_stall_after_further_looks(self, jobs: RayHead) -> None:
        first = check("frozen", stagnation_threshold=3)  # a busy machine takes longer than one for a check
        assert first["state"] == "unknown" and first["remedies"], first

        def is_stalled() -> bool:
            time.sleep(1)
            return check("frozen", stagnation_threshold=3)["state"] == "stalled"

        assert wait_until(is_stalled, 120)
        assert check("frozen")["state"] == "unknown", "by the limits that hold without a caller's own"

    def test_a_silent_log_stalls_once_it_is_silent_for_longer_than_its_limit(self, jobs: RayHead) -> None:
        assert wait_until(lambda: (look_at_job(HEAD, "silent").log_age or 0.0) > 2.0, 120)
        found = check("silent", stagnation_threshold=1)
        assert (found["state"], found["verdict"], found["step"]) == ("stalled", "failed", 3), found
        assert found["seconds_without_step"] >= 2.0 > (found["limit_seconds"] or 9), found

    def test_a_log_that_comes_over_rest_has_no_age_so_that_only_a_second_look_tells(
        self, jobs: RayHead, ray_pod: Pod
    ) -> None:
        ray_pod.env["RAY_TMPDIR"] = "/nonexistent"
        for job in ("steady", "silent"):
            first = check(job)
            assert (first["state"], first["verdict"]) == ("unknown", "unknown") and first["reason"], first
        assert wait_until(lambda: check("steady")["state"] == "running", 120), "a step that was seen to be made"
        assert check("silent")["state"] == "unknown"


class TestResources:
    def test_the_gpus_of_actors_are_counted_and_their_lines_read(
        self, ray_head: RayHead, ray_pod: Pod, tmp_path: Path
    ) -> None:
        def seen() -> tuple[bool, float | None, float | None, float | None]:
            report = verify_ray_resources(HEAD)
            return report["healthy"], report["gpus_used"], report["gpus_available"], report["cpus_available"]

        assert wait_until(lambda: seen() == (True, 0, 4, 2), 120), seen()
        (tmp_path / "actors.py").write_text(ACTORS)
        start_job(Site.of(HEAD), "actors", {"entrypoint": f"python3 '{tmp_path}/actors.py'"}, None)
        ray_head.says("actors", "all trained", 120)
        assert wait_until(lambda: seen() == (True, 2, 4, 2), 120), seen()
        log = get_job_logs(HEAD, "actors", 1000)
        assert "(Trainer pid=" in log and "[repeated " in log
        assert (get_current_step(HEAD, "actors"), get_throughput(HEAD, "actors")) == (40, 12.5)
        report = get_training_health(HEAD, str(tmp_path), job_id="actors")
        assert report["job"] and (report["job"]["status"], report["job"]["step"]) == ("RUNNING", 40)
        assert (report["ray"]["gpus_used"], report["ray"]["gpus_available"], report["ray"]["error"]) == (2, 4, None)
        assert [each["phase"] for each in report["pods"]] == ["Running"]
        found, evidence = ask(HEAD, find_question(), evidence_question(pids_of_ray_job("actors")))
        [one] = [each for each in found.get().trainings if each.ray_job == "actors"]
        assert len(one.pids) == 3 and one.logs[0].endswith("/job-driver-actors.log"), "the driver and its two workers"
        assert evidence.value and set(one.pids) < set(evidence.value.pids), "and the shell of the entrypoint"
        ray_pod.env["PATH"] = ray_head.bare_path()
        assert seen() == (True, 2, 4, 2), "by ray status"
        assert stop_job(HEAD, "actors") == "STOPPED"
        assert wait_until(lambda: seen()[1] == 0, 120)

    def test_a_worker_that_hangs_is_named_by_the_roll_call(
        self, ray_head: RayHead, ray_pod: Pod, tmp_path: Path
    ) -> None:
        require("py-spy")
        (tmp_path / "workers.py").write_text(HANGING_WORKERS)
        ray_pod.env["PATH"] = f"{ray_pod.env['PATH']}:{os.path.dirname(require('py-spy'))}"
        ray_head.submit("hanging", f"python3 '{tmp_path}/workers.py'")
        ray_head.says("hanging", "all are at work")
        found = explain_training(HEAD, "hanging")
        assert stop_job(HEAD, "hanging") == "STOPPED"
        ranks = [each for each in found["ranks"] if each["command"].startswith("ray::")]
        assert len(ranks) == 3 and all(each["stacks_from"] == "py-spy" for each in ranks), found
        [culprit] = found["culprits"]
        assert culprit["where"] == "workers.py:20 Worker.load_batch" and culprit["host"] == f"k8s://default/{HEAD}"
        assert "2 of 3 ranks wait in workers.py:15 Worker.meet" in found["explanation"], found["explanation"]

    def test_a_job_that_cannot_be_placed_shows_in_the_health_report(self, jobs: RayHead, tmp_path: Path) -> None:
        report = get_training_health(HEAD, str(tmp_path), job_id="waiting")
        assert report["job"] and report["job"]["status"] == "PENDING"
        assert report["job"]["message"] == "99 GPUs requested, 4 exist"
        assert wait_until(lambda: "99" in str(verify_ray_resources(HEAD)["pending_demands"]), 120)

    def test_a_job_that_waits_says_for_what_wherever_it_is_shown(
        self, jobs: RayHead, ray_pod: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def said(*words: str) -> str:
            assert main([words[0], HEAD, *words[1:]]) in (0, 3), capsys.readouterr()
            return capsys.readouterr().out

        jobs.submit("tpu", "true", entrypoint_resources={"tpu": 2}, entrypoint_num_cpus=1)
        assert said("status", "tpu").startswith("tpu PENDING: 2 tpu requested, 0 exist")
        assert said("watch", "tpu", "--once").startswith("PENDING: 2 tpu requested, 0 exist\n")
        assert re.search(
            r"^tpu +PENDING +starting +not started +2 tpu requested, 0 exist$", said("status"), re.MULTILINE
        )
        assert stop_job(HEAD, "tpu") == "STOPPED"
        config = {"entrypoint": "true", "entrypoint_num_gpus": 99}
        run = Supervised("pend", tmp_path / "c", job_config=config, stagnation_threshold=1)
        seen = "pend-attempt-1 PENDING: 99 GPUs requested, 4 exist"
        assert wait_until(lambda: [each.text for each in run.events].count(seen) > 1, 120), run.texts()
        assert stop_job(HEAD, "pend") == "STOPPED"
        assert run.end(120)["reason"].startswith("stopped")


HANGING_WORKERS = """
import pathlib, socket, threading, time

import ray


@ray.remote(num_cpus=0)
class Worker:
    def train(self, here, number):
        (here / f"{number}.started").touch()
        self.load_batch() if number == 1 else self.meet()

    def meet(self):
        one, other = socket.socketpair()
        one.recv(1)

    def load_batch(self):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


ray.init()
here = pathlib.Path(__file__).parent
workers = [Worker.remote() for _ in range(3)]
tasks = [worker.train.remote(here, number) for number, worker in enumerate(workers)]
while len([*here.glob("*.started")]) < 3:
    time.sleep(0.05)
print("all are at work", flush=True)
ray.get(tasks)
"""
AWKWARD = """it's "100 %" \\ é"""  # no $HOME: Ray puts the value there
ENTRYPOINT = """sleep 0.5
printf '%s|' "$WORD" && echo "$RESUME_FROM_CHECKPOINT" {checkpoint} "q\\"q" 'x && y' ; printf '<%s>' """


class TestSubmission:
    @pytest.mark.parametrize("way", ["rest", "python", "command"])
    def test_command_checkpoint_and_variables_arrive_as_they_are(
        self, ray_head: RayHead, ray_pod: Pod, tmp_path: Path, way: str
    ) -> None:
        if way == "python":
            (tmp_path / "bin").mkdir()
            (tmp_path / "bin" / "python3").symlink_to(sys.executable)
        ray_pod.env["PATH"] = {
            "rest": ray_pod.env["PATH"],
            "python": f"{tmp_path}/bin:{ray_head.bare_path()}",
            "command": ray_head.bare_path(),
        }[way]
        config = {"entrypoint": ENTRYPOINT, "runtime_env": {"env_vars": {"WORD": AWKWARD}}, "metadata": {"team": "a"}}
        config["entrypoint_num_gpus"] = 1
        started = time.monotonic()
        job = submit_job_with_resume(HEAD, "/c/it's step 5", config, job_name=f"by-{way}")
        assert time.monotonic() - started < 15 and job == f"by-{way}-attempt-1"
        assert ray_head.ended(job) == "SUCCEEDED"
        assert f"{AWKWARD}|/c/it's step 5 /c/it's step 5 q\"q x && y\n<>" in get_job_logs(HEAD, job)
        [(view, remembered)] = find_jobs_named(Site.of(HEAD), f"by-{way}", prefix="")
        assert remembered and remembered["entrypoint_num_gpus"] == 1
        assert (remembered["entrypoint"], remembered["metadata"]) == (ENTRYPOINT, {"team": "a"})

    def test_the_resume_argument_gets_the_checkpoint(self, ray_head: RayHead, ray_pod: Pod) -> None:
        config = {"entrypoint": "echo --resume old --steps 9", "resume_argument": "--resume"}
        job = submit_job_with_resume(HEAD, "/c/step_5", config, job_name="argument")
        assert ray_head.ended(job) == "SUCCEEDED"
        assert "\n--resume /c/step_5 --steps 9\n" in get_job_logs(HEAD, job)

    def test_rays_own_client_packs_a_folder_without_secrets_in_arguments(
        self, ray_head: RayHead, ray_pod: Pod, kube: KubernetesApi, tmp_path: Path
    ) -> None:
        notes = record_calls(tmp_path / "bin", ray_pod.env["PATH"], "ray", "curl")
        ray_pod.env["PATH"] = f"{tmp_path}/bin:{ray_pod.env['PATH']}"
        (ray_pod.root / "code").mkdir()
        (ray_pod.root / "code" / "part.txt").write_text("from the folder\n")
        environment = {"working_dir": "./code", "env_vars": {"KEY": "hidden-8472"}}
        for name, runtime_env in (("folder", environment), ("plain", {"env_vars": environment["env_vars"]})):
            config = {"entrypoint": "sleep 0.5; cat part.txt; echo got=$KEY", "runtime_env": runtime_env}
            submit_job_with_resume(HEAD, None, config, job_name=name)
        assert [ray_head.ended(f"{name}-attempt-1") for name in ("folder", "plain")] == ["SUCCEEDED"] * 2
        assert "from the folder\ngot=***\n" in get_job_logs(HEAD, "folder-attempt-1")
        assert "/dev/stdin" in notes.read_text() and "curl" in notes.read_text()
        assert "hidden-8472" not in notes.read_text() + str(kube.execs)

    def test_the_same_id_twice_is_one_job(self, ray_head: RayHead, ray_pod: Pod) -> None:
        config = {"entrypoint": "echo one; sleep 1"}
        name, head = "it's twice-attempt-1", Site.of(HEAD)
        assert [start_job(head, name, config, None) for _ in range(2)] == ["started", "exists"]
        ray_pod.env["PATH"] = ray_head.bare_path()
        assert start_job(head, name, config, None) == "exists"
        assert len(ray_head.named("it's twice")) == 1

    def test_an_answer_that_kubernetes_loses_is_one_job(
        self, ray_head: RayHead, ray_pod: Pod, kube: KubernetesApi
    ) -> None:
        kube.exec_empty_ok = 1
        assert start_job(Site.of(HEAD), "empty-attempt-1", {"entrypoint": "echo"}, None) == "exists"
        assert len(ray_head.named("empty")) == 1

    def test_an_answer_that_comes_too_late_is_one_job(self, ray_head: RayHead, ray_pod: Pod) -> None:
        ray_pod.env["PATH"] = ray_head.bare_path()
        transport = LosesAnswers("submit_by_command --submission-id")
        job = submit_job_with_resume(HEAD, None, {"entrypoint": "true"}, job_name="late", transport=transport)
        assert (transport.left, list(ray_head.named("late"))) == (0, [job])

    def test_an_old_hold_goes_when_ray_knows_its_job_no_longer(self, ray_head: RayHead, ray_pod: Pod) -> None:
        ray_head.submit("held", "true")
        ray_head.submit("forgotten", "true")
        for job in ("held", "forgotten"):
            assert ray_head.ended(job) == "SUCCEEDED"
            ask(HEAD, hold_question(job, "a person"))
        holds = ray_head.home / ".training_monitor" / "jobs" / ".held"
        for file in holds.iterdir():
            os.utime(file, (0, 0))
        ray_head.forget("forgotten")
        attempt = count(1)

        def is_removed() -> bool:
            """What could not be queried is asked with the next attempt; many at once would keep Ray busy."""
            job = f"after-attempt-{next(attempt)}"
            start_job(Site.of(HEAD), job, {"entrypoint": "true"}, None, keep_attempts=10)
            ray_head.ended(job)
            return not (holds / hold_key("forgotten")).exists()

        assert wait_until(is_removed, 240)
        assert (holds / hold_key("held")).exists()


class TestRestart:
    def test_a_job_that_crashes_and_hangs_is_finished_from_its_checkpoints(
        self, ray_head: RayHead, ray_pod: Pod, tmp_path: Path
    ) -> None:
        folder = tmp_path / "check points"
        command = training(folder, steps=60, save_every=10, crash_at=25, hang_at=45, step_seconds=0.02)
        census = Census(ray_head, "train")
        census.start()
        result = supervise("train", folder, job_config={"entrypoint": command})
        assert census.end() == 1
        assert (result["success"], result["reason"], result["total_retries"]) == (True, "completed", 2), result
        assert (result["final_step"], result["job_id"]) == (60, "train-attempt-3")
        assert [(each["status"], each["checkpoint"], each["start_step"]) for each in result["attempts"]] == [
            ("FAILED", None, 0),
            ("STALLED", f"{folder}/step_20", 20),
            ("SUCCEEDED", f"{folder}/step_40", 40),
        ]
        assert "ECC error" in result["attempts"][0]["reason"]
        assert "step_25" in result["attempts"][1]["refused_checkpoints"][0]
        assert list(ray_head.named("train").values()) == ["FAILED", "STOPPED", "SUCCEEDED"]

    def test_an_outage_and_a_new_head_pod_cost_no_restart(
        self, ray_head: RayHead, ray_pod: Pod, kube: KubernetesApi, tmp_path: Path
    ) -> None:
        events: list[Event] = []

        def kinds() -> list[str]:
            return [event.kind for event in events]

        with ThreadPoolExecutor(1) as pool:
            command = training(tmp_path / "c", steps=100000, save_every=50, crash_at=0, hang_at=0, step_seconds=0.01)
            command = f"{command} & pid=$!; until [ -e '{tmp_path}/enough' ]; do sleep 0.1; done; kill $pid"
            config = {"entrypoint": command}
            run = pool.submit(supervise, "lasting", tmp_path / "c", job_config=config, on_event=events.append)
            assert wait_until(lambda: "progress" in kinds(), 120), events
            kube.stop()
            assert wait_until(lambda: "unreachable" in kinds(), 120), events
            time.sleep(1)
            kube.start()
            assert wait_until(lambda: kinds()[-1:] == ["progress"] and "reached" in kinds(), 120), events
            kube.remove_pod(HEAD)
            kube.add_pod("train-head-q9w3e", env=ray_head.pod_environment, labels=LABELS)
            kube.add_pod("other-head-q9w3e", env=ray_head.pod_environment, labels={**LABELS, "ray.io/cluster": "b"})
            assert wait_until(lambda: kinds()[-1:] == ["progress"] and "moved" in kinds(), 120), events
            (tmp_path / "enough").touch()
            result = run.result(120)
        assert (result["success"], result["total_retries"]) == (True, 0), result
        assert list(ray_head.named("lasting")) == ["lasting-attempt-1"]

    def test_a_job_without_configuration_uses_that_of_ray(
        self, ray_head: RayHead, ray_pod: Pod, tmp_path: Path
    ) -> None:
        folder = tmp_path / "c"
        folder.mkdir()
        command = 'echo "word=$WORD from=$RESUME_FROM_CHECKPOINT"; '
        command += training(folder, steps=100000, save_every=5, crash_at=12, hang_at=0)
        ray_head.submit("mine", command, runtime_env={"env_vars": {"WORD": "kept"}})
        assert ray_head.ended("mine") == "FAILED"
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(supervise, "mine", folder)
            assert wait_until(lambda: ray_head.named("mine") == {"mine-attempt-1": "RUNNING"}, 120)
            ray_head.says("mine-attempt-1", f"word=kept from={folder}/step_10")
            ray_head.ask_to_stop("mine-attempt-1")
            result = run.result(120)
        assert not result["success"] and result["reason"].startswith("stopped"), result
        time.sleep(1)
        assert ray_head.named("mine") == {"mine-attempt-1": "STOPPED"}
        assert supervise("mine", folder)["reason"].startswith("stopped"), "and not by asking again either"
