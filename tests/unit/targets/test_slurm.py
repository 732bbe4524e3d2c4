"""Jobs of Slurm: what the tests of a real one do not show. It has no accounting: sacct is a program of the tests."""

from __future__ import annotations

import fcntl
import math
import os
import stat
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeTransport
from tests.integration.commands import run_command
from training_monitor.core.errors import (
    CommandTimedOut,
    JobNotFound,
    SettingsError,
    TargetEnded,
    TargetUnreachable,
    ToolNotFound,
)
from training_monitor.core.models import JobStatus, Question
from training_monitor.core.results import CommandResult
from training_monitor.jobs.slurm_jobs import look_question, stop_question
from training_monitor.logs.sources import source_named
from training_monitor.look.looks import Look, observation_of, view_of_ended
from training_monitor.targets.asking import Site
from training_monitor.targets.kinds.slurm import (
    STEP_SECONDS,
    STEPS,
    SlurmTarget,
    SlurmTransport,
    read_job,
    refused,
    settled,
    standing_of,
)
from training_monitor.targets.pods import is_stuck
from training_monitor.targets.target import parse_target
from training_monitor.verdict.failure import classify_failure
from training_monitor.verdict.judge import judge

# slurm-wlm 22.05.8
JOB = (
    "JobId={id} ArrayJobId=1 ArrayTaskId=0 JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=429 "
    "Nice=0 Account=(null) QOS=(null) JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=2 "
    "BatchFlag=1 Reboot=0 ExitCode={code} RunTime=00:00:02 TimeLimit=UNLIMITED TimeMin=N/A SubmitTime=1795846000 "
    "EligibleTime=1795846000 AccrueTime=1795846000 StartTime=1795846001 EndTime=Unknown Deadline=N/A "
    "Partition=p AllocNode:Sid=host:1 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1 NumNodes=2 "
    "NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,node=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* "
    "CoreSpec=* MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 "
    "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/my jobs/train.sh WorkDir=/my jobs "
    "StdErr=/my jobs/err 1.log StdIn=/dev/null StdOut=/my jobs/out 1.log Power= "
)


def line(**changes: str) -> str:
    return JOB.format(**{"id": "3", "name": "arr", "state": "RUNNING", "reason": "None", "code": "0:0", **changes})


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Put stand-ins for programs of Slurm on PATH."""
    for name, body in bodies.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


def shows(*jobs: str) -> str:
    return "cat <<'END'\n" + "\n".join(jobs) + "\nEND"


def test_a_job_is_read_whatever_its_name_holds() -> None:
    found = read_job(line(name="a b | $(id) JobState=FAILED"), ("n1", "n2", "--evil"))
    assert found is not None
    assert (found.number, found.task, found.name) == ("3", "1_0", "a b | $(id) JobState=FAILED")
    assert (found.state, found.nodes, found.batch_node, found.restarts) == ("RUNNING", ("n1", "n2"), "n1", 2)
    assert found.outputs == ("/my jobs/out 1.log", "/my jobs/err 1.log") and found.starts_at == 1795846001
    job = line(name="llm")
    for text in [
        job.replace("ArrayTaskId=0", "ArrayTaskId=0 ArrayTaskThrottle=4"),
        job.replace("ArrayJobId=1 ArrayTaskId=0", "HetJobId=3 HetJobOffset=0").replace("llm", "llm HetJobIdSet=3-4"),
    ]:
        found = read_job(text)
        assert found and (found.number, found.name, found.phase) == ("3", "llm", "Running")


def test_a_group_of_a_windows_domain_has_a_name_of_two_words() -> None:
    for group in ("domain users(1997400513)", "dev (eu)(513)"):
        found = read_job(line().replace("GroupId=root(0)", f"GroupId={group}"))
        assert found and (found.user, found.state) == ("0", "RUNNING")


def test_a_name_cannot_say_whose_job_it_is() -> None:
    found = read_job(line(name="a UserId=me(1000) GroupId=me(1000) "))
    assert found and (found.user, found.state) == ("", "RUNNING")


def test_each_state_and_reason_stands_for_what_it_is() -> None:
    for state, code, phase, exit_code, category in [
        ("COMPLETED", "0:0", "Succeeded", 0, None),
        ("FAILED", "1:0", "Failed", 1, None),
        ("OUT_OF_MEMORY", "0:125", "Failed", None, "host_oom"),
        ("PREEMPTED", "0:15", "Failed", 143, "preemption"),
        ("NODE_FAIL", "1:0", "Failed", 1, "node_lost"),
        ("CANCELLED", "0:15", "Stopped", 143, None),
        ("COMPLETING", "0:0", "Running", None, None),
        ("SOMETHING_NEW", "0:0", "Unknown", None, None),
        ("REVOKED", "0:0", "Unknown", None, None),  # another cluster of the federation runs it
        ("POWER_UP_NODE", "0:0", "Pending", None, None),
        ("BOOT_FAIL", "0:0", "Failed", None, "node_lost"),
        ("FAILED", "0:53", "Failed", None, "missing_file"),
    ]:
        found = read_job(line(state=state, code=code))
        assert found is not None
        stands = standing_of(found)
        assert (stands.phase, stands.exit_code, stands.category) == (phase, exit_code, category)
    found = read_job(line(state="FAILED", reason="JobLaunchFailure", code="1:0"))
    gone = read_job(line(state="NODE_FAIL"))
    assert found and gone
    assert standing_of(found).reason == "FAILED (JobLaunchFailure)" and standing_of(gone).exit_code is None
    assert standing_of(found).category == "node_lost"  # nothing of the job itself has run
    cancelled = read_job(line(state="CANCELLED", reason="DependencyNeverSatisfied"))
    assert cancelled and standing_of(cancelled).reason == "CANCELLED (DependencyNeverSatisfied)"


def test_a_job_that_is_held_is_released() -> None:
    for state, reason, is_held in [
        ("PENDING", "JobHeldUser", True),
        ("PENDING", "JobHoldMaxRequeue", True),
        ("SPECIAL_EXIT", "None", True),
        ("PENDING", "Resources", False),
        ("PENDING", "QOSUsageThreshold", False),
        ("PENDING", "ReqNodeNotAvail,_UnavailableNodes:sheldon[01-04]", False),
    ]:
        found = read_job(line(state=state, reason=reason))
        assert found and standing_of(found).resume == ("scontrol release 1_0" if is_held else None)
        assert found and ("expected to start" in (standing_of(found).message or "")) is not is_held


def test_a_job_that_is_stopped_by_a_signal_goes_on_by_a_signal() -> None:
    for state, command in ("STOPPED", "scancel --full --signal=CONT 1_0"), ("SUSPENDED", "scontrol resume 1_0"):
        found = read_job(line(state=state))
        assert found and standing_of(found).resume == command


def test_a_planned_start_that_has_passed_is_not_expected() -> None:
    found = read_job(line(state="PENDING", reason="Resources"))
    assert found and found.starts_at == 1795846001
    for now, is_expected in (1795846000.0, True), (1795846100.0, False), (None, True):
        assert ("expected to start" in (standing_of(settled(found, now)).message or "")) is is_expected
    runs = read_job(line())
    assert runs and settled(runs, 1795846100.0).starts_at == 1795846001


@pytest.mark.parametrize(
    ("first", "second", "meant"),
    [
        *((state, "FAILED", "3") for state in ("PENDING", "SUSPENDED", "STOPPED", "SPECIAL_EXIT", "SIGNALING")),
        ("RUNNING", "PENDING", "3"),  # one that waits for the end of the first
        ("SOMETHING_NEW", "FAILED", "3"),
        ("PENDING", "REVOKED", "3"),
        ("PENDING", "SUSPENDED", "4"),
        ("REVOKED", "LAUNCH_FAILED", "4"),
        ("COMPLETED", "DEADLINE", "4"),
    ],
)
def test_of_jobs_with_one_name_the_newest_that_runs_or_else_has_not_ended_is_meant(
    first: str, second: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"3": first, "4": second}
    jobs = {each: line(id=each, state=states[each]).replace("ArrayJobId=1 ArrayTaskId=0 ", "") for each in states}
    body = f'[ "$2" = hostnames ] && exit\ncase $3 in 3) {shows(jobs["3"])}\n;; 4) {shows(jobs["4"])}\n;; esac'
    squeue = f"case \"$*\" in *%T*) {shows(f'3 {first}', f'4 {second}')}\n;; *) printf '3\\n4\\n' ;; esac"
    programs(tmp_path, monkeypatch, squeue=squeue, scontrol=body)
    found: Any = SlurmTarget("arr").resolve(None)
    assert (found.job.number, found.job.state) == (meant, states[meant])
    view = Site(parse_target("local")).ask_one(look_question("slurm:arr"))
    assert view and view.pod and view.pod.name == meant


_ENDS, _REFUSES = "echo 'Job 3 not found' >&2; exit 1", "echo 'Unable to contact slurm controller' >&2; exit 1"


@pytest.mark.parametrize(
    ("answers", "cancelled"),
    [
        (("echo RUNNING", "echo SIGNALING", "echo RUNNING", "echo"), ["--full --signal=TERM 3"]),
        (("echo RUNNING", _ENDS), ["--full --signal=TERM 3"]),
        (("echo RUNNING", _REFUSES), ["--full --signal=TERM 3", "3"]),
        (("echo RUNNING", "echo RUNNING"), ["--full --signal=TERM 3", "3"]),
        (("echo CONFIGURING", "echo"), ["3"]),
        ((_ENDS, _ENDS), []),
    ],
)
def test_a_job_is_cancelled_unless_it_ends_in_time(
    answers: Sequence[str], cancelled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = "".join(f"{number}) {each} ;;\n" for number, each in enumerate(answers[:-1], 1))
    squeue = f"echo >>$0.calls\ncase $(wc -l <$0.calls) in\n{cases}*) {answers[-1]} ;;\nesac"
    sleep, scancel = '[ "$1" = 0.5 ] || exec /bin/sleep "$@"', 'echo "$*" >>$0.calls'
    scontrol = shows(line().replace("ArrayJobId=1 ArrayTaskId=0 ", ""))
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(tmp_path / "jobs"))
    (tmp_path / "scancel.calls").touch()
    programs(tmp_path, monkeypatch, squeue=squeue, scontrol=scontrol, scancel=scancel, sleep=sleep)
    assert Site(parse_target("local")).ask_one(stop_question("slurm:3", "anna", 2.0)) == []
    assert (tmp_path / "scancel.calls").read_text().splitlines() == cancelled


def test_a_task_that_was_cancelled_before_it_began_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = "echo 'Job 7_2 not found'; exit 1"  # slurm-wlm 22.05, which still knows other tasks
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=unknown, sacct="echo disabled >&2; exit 1")
    with pytest.raises(JobNotFound):
        SlurmTarget("7_2").resolve(None)
    assert Site(parse_target("local")).ask_one(look_question("slurm:7_2")) is None
    record = f"9|7_2|CANCELLED by 0|0:0|1795846000|{tmp_path}|arr"
    programs(tmp_path, monkeypatch, sacct=shows(record))
    found: Any = SlurmTarget("7_2").resolve(None)
    assert (found.job.task, found.job.phase) == ("7_2", "Stopped")


def test_a_job_that_waits_in_vain_says_so() -> None:
    for reason, is_vain in [
        ("DependencyNeverSatisfied", True),
        ("QOSMaxWallDurationPerJobLimit", True),
        ("AssocMaxGRESPerJob", True),
        ("QOSMinCpuNotSatisfied", True),
        ("MaxMemPerLimit", True),
        ("AssocMaxJobsLimit", False),
        ("Dependency", False),
        ("PartitionNodeLimit", False),  # also where nodes are down
    ]:
        found = read_job(line(state="PENDING", reason=reason))
        assert found and ("scancel 1_0" in (standing_of(found).message or "")) is is_vain
        assert is_stuck(standing_of(found)) is is_vain
        view = view_of_ended(standing_of(found))
        verdict = judge([observation_of(Look(view), view.progress, "", 0.0, first=True)], now=0.0)
        assert verdict.reason.startswith("it cannot start: " if is_vain else "it is waiting to start: ")


def test_what_waits_cannot_be_stopped_and_is_cancelled_by_its_own_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for state, command in ("PENDING", "scancel 1_0"), ("SPECIAL_EXIT", "scancel 1_0"), ("SUSPENDED", "scontrol resume"):
        job = line(state=state).replace("NodeList=n[1-2]", "NodeList=(null)")
        programs(tmp_path, monkeypatch, squeue="echo 3", scontrol=shows(job))
        done = run_command("stop", "slurm://1_0")
        assert done.returncode == 1 and command in done.stderr, done


def test_a_job_that_cannot_be_read_is_unknown_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = "JobId=4 JobName=two"
    body = f'[ "$2" = hostnames ] && exit\n[ "$3" = 4 ] && {{ {shows(cut, "lines UserId=root(0)")}\nexit; }}\n'
    programs(tmp_path, monkeypatch, squeue=shows("3", "4"), scontrol=body + shows(line()))
    jobs: Any = SlurmTarget("").list_targets(None)
    assert [(each.job.number, each.job.state) for each in jobs] == [("3", "RUNNING"), ("4", "UNKNOWN")]
    assert [each.job.is_own for each in jobs] == [os.getuid() == 0, False]


def test_the_output_of_an_earlier_attempt_is_not_that_of_a_job_that_was_requeued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, begun = tmp_path / "out.log", 1795846001
    log.write_text("step 7 loss 2.5\nslurmstepd: error: *** JOB 3 ON n1 CANCELLED AT now DUE TO PREEMPTION ***\n")
    job = line().replace("/my jobs/out 1.log", str(log)).replace("/my jobs/err 1.log", str(log))
    programs(tmp_path, monkeypatch, squeue="echo 3", scontrol=f'[ "$2" = hostnames ] && exit\n{shows(job)}')
    site = Site(SlurmTarget("3"))
    for written, has_output in [(begun - 900, False), (begun - 5, True), (begun + 60, True)]:
        os.utime(log, (written, written))
        found = site.ask_one(source_named("output:", "log").read(None, 65536))
        assert (found.missing, bool(found.text)) == (not has_output, has_output)
    target: Any = site.resolve().target
    former = target.job._replace(state="FAILED")
    assert SlurmTarget("3", job=former, known_at=math.inf).output_files(None)[2] == ""


def test_an_interactive_job_is_one_whose_output_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in (line().partition(" StdErr=")[0], line()):  # without files, and with files that are not here
        programs(tmp_path, monkeypatch, squeue="echo 3", scontrol=f'[ "$2" = hostnames ] && exit\n{shows(job)}')
        site = Site(SlurmTarget("3"))
        assert site.ask_one(source_named("output:", "log").read(None, 65536)).missing
        done = run_command("logs", "slurm://3")
        assert done.returncode == 3 and "its log does not exist" in done.stderr


FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def test_a_job_that_the_controller_has_forgotten_is_asked_of_the_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = f"7|7|CANCELLED by 1000|0:15|1795846000|{tmp_path}|a|b"  # sacct --parsable2 of slurm-wlm 22.05
    warning = "echo 'sacct: error: ignoring a duplicate NodeName' >&2\n"
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=FORGOTTEN, sacct=warning + shows(record))
    found: Any = SlurmTarget("7").resolve(None)
    assert (found.job.state, found.job.name, found.job.ended_at) == ("CANCELLED", "a|b", 1795846000)
    assert found.output_files(None) == (found.machine, (f"{tmp_path}/slurm-7.out",), "")
    [answer] = Site(found).ask(Question("any", "echo hi", lambda reply: reply))
    assert isinstance(answer.failure, TargetEnded) and "CANCELLED (exit code 143" in answer.failure.what


def test_without_accounting_or_with_only_its_word_a_forgotten_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=FORGOTTEN, sacct="echo disabled >&2; exit 1")
    with pytest.raises(JobNotFound):
        SlurmTarget("3").resolve(None)
    known: Any = SlurmTarget("3", job=read_job(line())).resolve(None)
    assert known.job.state == "FORGOTTEN" and known.output_files(None)[1][0] == "/my jobs/out 1.log"
    [answer] = Site(known).ask(Question("any", "echo hi", lambda reply: reply))
    assert isinstance(answer.failure, TargetEnded)
    record = f"7|7|RUNNING|0:0|Unknown|{tmp_path}|a"
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=FORGOTTEN, sacct=shows(record))
    found: Any = SlurmTarget("7").resolve(None)
    assert (found.job.state, found.job.phase) == ("FORGOTTEN", "Ended")


def test_an_accounting_that_does_not_respond_is_not_one_that_has_no_such_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "sacct: error: Problem talking to the database: Connection refused"
    programs(
        tmp_path, monkeypatch, squeue="exit 1", scontrol=FORGOTTEN, sacct=f"echo '{said}' >&2; echo >>$0.calls; exit 1"
    )
    for target in SlurmTarget("3"), SlurmTarget("3", job=read_job(line())):
        with pytest.raises(TargetUnreachable, match="talking to the database"):
            target.resolve(None)
    assert (tmp_path / "sacct.calls").read_text() == "\n" * 2  # each waits for the database
    folder = tmp_path / "jobs" / ".slurm" / "a-attempt-1"
    folder.mkdir(parents=True)
    (folder / "number").write_text("3\n")
    (folder / "job").write_text(line())
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(tmp_path / "jobs"))
    view = Site(parse_target("local")).ask_one(look_question("slurm:a-attempt-1"))
    assert view and view.status is JobStatus.UNKNOWN and "talking to the database" in (view.message or "")


def test_a_job_that_has_been_ending_for_long_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = line(state="COMPLETING").replace(" EndTime=", " EndTime=1600000000 Old=")
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=shows(job))
    stands = SlurmTarget("3").read_standing(None)
    assert stands and stands.phase == "Ended"
    for reason, code, category, phase in [
        ("TimeLimit", "0:15", "time_limit", "Failed"),
        ("NodeDown", "0:0", "node_lost", "Failed"),
        ("NonZeroExitCode", "3:0", None, "Failed"),
        ("NonZeroExitCode", "0:11", None, "Failed"),
        ("NonZeroExitCode", "139:0", None, "Failed"),
        ("NonZeroExitCode", "255:0", None, "Failed"),
        ("NonZeroExitCode", "143:0", None, "Ended"),
        ("None", "0:15", None, "Ended"),  # cancelled, or not
    ]:
        ended = line(state="COMPLETING", reason=reason, code=code).replace(" EndTime=", " EndTime=1600000000 Old=")
        programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=shows(ended))
        stands = SlurmTarget("3").read_standing(None)
        assert stands and (stands.category, stands.phase) == (category, phase)
    programs(tmp_path, monkeypatch, scontrol=shows(job))
    programs(tmp_path, monkeypatch, date="echo 1600000060")  # another clock than ours
    stands = SlurmTarget("3").read_standing(None)
    assert stands and stands.phase == "Running"


def test_the_first_part_of_a_heterogeneous_job_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [line(id=each).replace("ArrayJobId=1 ArrayTaskId=0", "HetJobId=3 HetJobOffset=0") for each in ("3", "4")]
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=shows(*parts))
    found: Any = SlurmTarget("3").resolve(None)
    assert found.job.number == "3"


def test_a_heterogeneous_job_fails_with_one_of_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first, phase in {"COMPLETED": "Failed", "CANCELLED": "Failed", "RUNNING": "Running"}.items():
        parts = [line(id="3", state=first), line(id="4", state="NODE_FAIL")]
        parts = [each.replace("ArrayJobId=1 ArrayTaskId=0", "HetJobId=3 HetJobOffset=0") for each in parts]
        programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=shows(*parts))
        found: Any = SlurmTarget("3").resolve(None)
        assert found.job.number == "3" and found.job.phase == phase
        if phase == "Failed":
            pod = standing_of(found.job)
            assert (pod.category, pod.reason) == ("node_lost", "NODE_FAIL") and "job 4" in str(pod.message)
    killed = replace(pod, category=None, reason="FAILED", exit_code=137)
    assert "job 4" in classify_failure("", exit_code=137, pod=killed).evidence


def test_an_array_asks_for_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [line(), line(id="4").replace("ArrayTaskId=0", "ArrayTaskId=1")]
    programs(tmp_path, monkeypatch, squeue="exit 1", scontrol=f'[ "$2" = hostnames ] || {shows(*tasks)}')
    with pytest.raises(SettingsError, match="one task of the array: 1_0, 1_1"):
        SlurmTarget("1").resolve(None)


def test_its_words_are_read_back_and_others_are_none() -> None:
    for text in ("slurm://", "slurm://12", "slurm://12_3", "slurm://me@login/llama-7b", "slurm://12?node=n2"):
        assert str(parse_target(text)) == text
    for text in ("slurm://-x", "slurm://a b", "slurm://12?node=-x", "slurm://12?node=", "slurm://$(id)", "slurm://1;2"):
        with pytest.raises(SettingsError):
            parse_target(text)


def test_a_question_ends_after_its_time_and_waits_for_the_one_before_it(tmp_path: Path) -> None:
    asked: list[tuple[float, Sequence[str]]] = []
    at_once, most = [0], [0]

    class Slow:
        def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
            time.sleep(0.1)
            at_once[0] -= 1
            asked.append((timeout, argv))
            return CommandResult(tuple(argv), 0, "", "", 0.1)

    transport = SlurmTransport(Slow(), "3", "n1", str(tmp_path / "lock"))  # type: ignore[arg-type]
    threads = [threading.Thread(target=lambda: transport.run(["sh", "-s"], timeout=60)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1] and {timeout for timeout, _ in asked} == {STEP_SECONDS}
    assert {"--overlap", "--time=1", "--jobid=3", "--nodelist=n1"} <= {*asked[0][1]}
    with pytest.raises(TargetUnreachable):
        transport.stream(["sh"])


def test_a_node_that_others_ask_for_too_long_is_unknown(tmp_path: Path) -> None:
    transport = SlurmTransport(FakeTransport(lambda script: ("", 0)), "3", "n1", str(tmp_path / "lock"))
    with open(tmp_path / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(CommandTimedOut):
            transport.run(["sh"], timeout=0.1)


def test_nodes_are_asked_by_ssh_where_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    target = SlurmTarget("3", known_at=time.monotonic(), job=read_job(line(), ("n1", "n2")))
    monkeypatch.setenv(STEPS, "ssh")
    words: Any = target.connect(None)
    assert words.words(["sh", "-s"])[-2:] == ["n1", "sh -s"]
    assert target.own_processes == {"SLURM_JOB_ID": "3", "SLURMD_NODENAME": "n1"}
    monkeypatch.setenv(STEPS, "no")
    with pytest.raises(TargetUnreachable, match="are disabled"):
        target.connect(None)
    assert not target.find_siblings(None)
    assert SlurmTarget("3").own_processes == {"SLURM_JOB_ID": "3"}


def test_commands_that_are_missing_or_not_configured_are_explained_in_our_words() -> None:
    with pytest.raises(ToolNotFound):
        SlurmTarget("3").resolve(FakeTransport(lambda script: ("missing\n", 0)))
    said = "fetch_config: DNS SRV lookup failed\nscontrol: error: _establish_config_source: failed to fetch config"
    error = refused(f"scontrol: error: {said}")
    assert error.what == "Slurm does not respond: its commands found no configuration" and "login node" in str(error)
    assert "Unable to contact" in refused("squeue: error: Unable to contact slurm controller").what
    assert "does not respond" not in refused("job 7 is COMPLETING").what
