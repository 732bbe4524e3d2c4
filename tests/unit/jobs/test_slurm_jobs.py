from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.fakes import read_arguments, read_call
from training_monitor.core.errors import CommandFailed, ParseError, SettingsError, TargetUnreachable
from training_monitor.core.models import JobStatus, JobView, Reply
from training_monitor.jobs.attempts import AVOID_VARIABLE
from training_monitor.jobs.kinds import kind_of, name_in, prefix_of, prefix_of_config
from training_monitor.jobs.slurm_jobs import (
    config_of,
    config_question,
    jobs_question,
    look_question,
    start_question,
    states_question,
    stop_question,
)
from training_monitor.targets.kinds.local import LocalTarget

# of Slurm 22.05.8, with SLURM_TIME_FORMAT=%s
LINE = (
    "JobId=12 JobName=llama UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) "
    "QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:01 TimeLimit=00:05:00 TimeMin=N/A SubmitTime=1795845697 EligibleTime=1795845697 "
    "AccrueTime=1795845697 StartTime=1795845698 EndTime=1795845998 Deadline=N/A SuspendTime=None SecsPreSuspend=0 "
    "LastSchedEval=1795845698 Scheduler=Main Partition=p AllocNode:Sid=localhost:32217 ReqNodeList=(null) "
    "ExcNodeList=n2 NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* "
    "TRES=cpu=1,mem=100M,node=1,billing=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 "
    "MinMemoryNode=100M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 "
    "Licenses=(null) Network=(null) Command=/home/me/j.sh --foo a x WorkDir=/home/my runs Comment=it's my comment  "
    "StdErr=/home/my runs/out-12.log StdIn=/dev/null StdOut=/home/my runs/out-12.log Power= "
)
NOW = 1795845750
AFTER = "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-28T06:01:39 DUE TO JOB REQUEUE ***\n"


def reply(*lines: str, log: str | None = None) -> Reply:
    end = "" if log is None else f"log_size={len(log)}\nlog_time={NOW - 4}\nlog\n{log}"
    return Reply("\n".join(("number=12", *lines, f"now={NOW}", end)), 0, 0.0)


def look(*changes: tuple[str, str], log: str = "step 7/100\n", more: tuple[str, ...] = ()) -> JobView:
    line = LINE
    for old, new in changes:
        assert old in line
        line = line.replace(old, new)
    view = look_question("slurm:12").parse(reply(f"job={line}", "nodes=n1 ", *more, log=log))
    assert view is not None
    return view


def test_ids_have_the_prefix_of_their_kind() -> None:
    assert [prefix_of(each) for each in ("slurm:12", "process:a", "raysubmit_1")] == ["slurm:", "process:", ""]
    assert name_in("slurm:12_3") == "12_3" and kind_of("raysubmit_1") is None
    given: list[Any] = [{"command": "x"}, {"job": "slurm:12"}, {"entrypoint": "x"}, None]
    assert [prefix_of_config(each) for each in given] == ["process:", "slurm:", "", ""]


def test_a_job_is_submitted_again_with_its_options_by_its_comment() -> None:
    config = config_of(LINE)
    assert config["job"] == "slurm:12" and config["folder"] == "/home/my runs" and config["arguments"] == "--foo a x"
    options = "--job-name=llama --partition=p --time=00:05:00 --nodes=1 --ntasks=1 --mem=100M --exclude=n2 --requeue"
    assert config["options"] == [*options.split(), "--output=/home/my runs/out-%j.log"]
    line = LINE.replace("it's my comment", "training_monitor:12-attempt-3")
    assert config_of(line)["job"] == "slurm:12-attempt-3"
    assert look(("it's my comment", "training_monitor:12-attempt-3")).job_id == "slurm:12-attempt-3"
    assert look(("it's my comment", "training_monitor:../x")).job_id == "slurm:12"


def test_each_option_comes_from_what_slurm_says() -> None:
    for old, new, option in [
        ("StdOut=/home/my runs/out-12.log", "StdOut=/home/run12/log", "--open-mode=append"),
        ("StdErr=/home/my runs/out-12.log", "StdErr=/home/100%/12/err", "--error=/home/100%%/%j/err"),
        ("JobId=12 ", "JobId=12 ArrayJobId=9 ArrayTaskId=4 ", "--array=4"),
        ("Power= ", "Power= TresPerNode=gres:gpu:a100:8 ", "--gres=gpu:a100:8"),
        ("Power= ", "TresPerJob=gres/gpu=16 ", "--gpus=16"),
        ("Power= ", "TresPerJob=gres/gpu:a100:2,gres/gpu:v100:1 ", "--gpus=a100:2,v100:1"),
        ("Power= ", "TresPerTask=cpu=6,gres/gpu:h100=2 ", "--gpus-per-task=h100:2"),
        ("Power= ", "CpusPerTres=gpu:8 MemPerTres=gpu:24576 ", "--cpus-per-gpu=8"),
        ("Power= ", "CpusPerTres=gres/gpu:8 MemPerTres=gres/gpu:24576 ", "--mem-per-gpu=24576"),
        ("NtasksPerN:B:S:C=0:", "NtasksPerN:B:S:C=8:", "--ntasks-per-node=8"),
        ("CPUs/Task=1", "CPUs/Task=6", "--cpus-per-task=6"),
        ("OverSubscribe=OK", "OverSubscribe=NO", "--exclusive"),
        ("Requeue=1", "Requeue=0", "--no-requeue"),
        ("Account=(null)", "Account=lab", "--account=lab"),
    ]:
        assert old in LINE
        assert option in config_of(LINE.replace(old, new))["options"]
    of_cpus = config_of(LINE.replace("Power= ", "TresPerTask=cpu=1 "))["options"]  # as Slurm 24.11 says --cpus-per-task
    assert of_cpus == config_of(LINE)["options"]
    by_gpu = LINE.replace("Power= ", "TresPerNode=gres/gpu:4 CpusPerTres=gres/gpu:6 MemPerTres=gres/gpu:24576 ")
    options = config_of(by_gpu.replace("CPUs/Task=1", "CPUs/Task=6"))["options"]
    assert not any(each.startswith(("--mem=", "--cpus-per-task=")) for each in options)  # sbatch takes one of them
    line = LINE.replace("JobId=12 ", "JobId=12 ArrayJobId=9 ArrayTaskId=4 ").replace("out-12.log", "out-9_4.log")
    config = config_of(line)
    assert config["job"] == "slurm:9_4" and "--output=/home/my runs/out-%A_%a.log" in config["options"]


def test_the_line_of_its_submission_is_no_argument_of_its_script() -> None:
    config = config_of(LINE.replace(" WorkDir=", " SubmitLine=sbatch --hold j.sh --foo a x WorkDir="))  # Slurm 25.05
    assert (config["arguments"], config["folder"]) == ("--foo a x", "/home/my runs")


def test_what_is_not_one_job_of_sbatch_is_refused() -> None:
    for old, new in (("BatchFlag=1", "BatchFlag=0"), ("JobId=12 ", "JobId=12 HetJobId=11 HetJobOffset=1 ")):
        with pytest.raises(SettingsError, match="sbatch"):
            config_of(LINE.replace(old, new))
    with pytest.raises(SettingsError, match="slurm:12_0"):
        look(more=("count=2",))
    with pytest.raises(SettingsError, match="the target slurm://12$"):
        look(("JobId=12 ", "JobId=12 HetJobId=12 HetJobOffset=0 "), more=("count=2",))
    for name in ("", "a b", "../x", "-x", "a/b"):
        with pytest.raises(SettingsError):
            look_question(f"slurm:{name}")


def test_a_start_excludes_nodes_and_passes_the_checkpoint() -> None:
    env = {"RESUME_FROM_CHECKPOINT": "/c/it's 5", AVOID_VARIABLE: "n3,n2,--wrap"}
    arguments = "--resume '/c/it'\\''s 5'"
    question = start_question(LocalTarget("local"), "slurm:12-attempt-2", arguments, env, config_of(LINE))
    call, words = read_call(question.script), read_arguments(question.script)
    assert call and call.given["_from"] == "12" and "--exclude=n2,n3" in words and "--exclude=n2" not in words
    assert words[words.index("$_jobs/12/script") + 1 :] == ["--resume", "/c/it's 5"]
    exports = shlex.split(call.given["_exports"].replace("\\n", "\n"))
    assert exports[:2] == ["export", "RESUME_FROM_CHECKPOINT=/c/it's 5"]
    assert question.parse(Reply("state=started\n", 0, 0.0)) == "started"
    with pytest.raises(CommandFailed, match="Invalid node name"):
        question.parse(Reply("error=sbatch: error: Invalid node name specified\n", 0, 0.0))
    with pytest.raises(TargetUnreachable):
        question.parse(Reply("refused=Unable to contact slurm controller\n", 0, 0.0))


def test_a_running_job_is_looked_at_and_one_that_waits_has_printed_nothing_yet() -> None:
    view = look()
    assert (view.status, view.progress.step, view.log_age, view.age) == (JobStatus.RUNNING, 7, 4.0, NOW - 1795845698)
    assert view.pod and view.pod.node == "n1" and view.pod.name == "12"
    waits = ("JobState=RUNNING Reason=None", "JobState=PENDING Reason=Resources"), ("Restarts=0", "Restarts=1")
    assert "expected" not in str(look(*waits).message)  # that time has passed
    view = look(*waits, (" StartTime=1795845698", f" StartTime={NOW + 60}"))
    assert view.status is JobStatus.PENDING and view.progress.step is None and view.started_at is None
    assert not view.is_stuck and look((waits[0][0], "JobState=PENDING Reason=DependencyNeverSatisfied")).is_stuck
    assert "Resources" in (view.message or "") and "expected to start" in (view.message or "")


def test_each_state_is_a_status_unless_a_supervisor_stopped_the_job() -> None:
    for state, status, category, said in [
        ("COMPLETED", JobStatus.SUCCEEDED, None, "COMPLETED"),
        ("TIMEOUT", JobStatus.FAILED, "time_limit", "TIMEOUT"),
        ("PREEMPTED", JobStatus.FAILED, "preemption", "PREEMPTED"),
        ("OUT_OF_MEMORY", JobStatus.FAILED, "host_oom", "OUT_OF_MEMORY"),
        ("CANCELLED", JobStatus.STOPPED, None, "scancel"),
        ("SUSPENDED", JobStatus.RUNNING, None, "SUSPENDED"),
        ("COMPLETING", JobStatus.RUNNING, None, ""),
        ("SOMETHING_NEW", JobStatus.UNKNOWN, None, "SOMETHING_NEW"),
        ("REVOKED", JobStatus.UNKNOWN, None, "another cluster"),
    ]:
        view = look(("JobState=RUNNING", f"JobState={state}"))
        assert view.status is status and view.pod and view.pod.category == category and said in (view.message or "")
        assert (view.resume == "scontrol resume 12") == (state == "SUSPENDED")
    for state in ("CANCELLED", "FAILED", "COMPLETED"):
        view = look(("JobState=RUNNING", f"JobState={state}"), more=("stopped_by=supervisor",))
        assert view.status is JobStatus.STOPPED and view.stopped_by == "supervisor"
    assert look(more=("stopped_by=supervisor",)).status is JobStatus.RUNNING
    finished = look(("JobState=RUNNING", "JobState=COMPLETED"), more=("stopped_by=supervisor",), log="step 100/100\n")
    assert finished.status is JobStatus.SUCCEEDED


def test_a_job_whose_node_is_not_cleaned_up_has_ended() -> None:
    ended = ("EndTime=1795845998", f"EndTime={NOW - 900}")
    for code, status, phase in [
        ("0:11", JobStatus.FAILED, "Failed"),
        ("0:0", JobStatus.UNKNOWN, "Ended"),
        ("0:15", JobStatus.UNKNOWN, "Ended"),
    ]:
        view = look(("JobState=RUNNING", "JobState=COMPLETING"), ("ExitCode=0:0", f"ExitCode={code}"), ended)
        assert view.pod and (view.status, view.pod.phase) == (status, phase)


def test_two_runs_in_one_log_are_told_apart() -> None:
    assert look(log=f"step 90/100\n{AFTER}step 3/100\n").progress.step == 3
    assert look(log=f"step 90/100\n{AFTER}").progress.step is None
    assert look(("StartTime=1795845698", f"StartTime={NOW - 1}"), log="step 90/100\n").progress.step is None
    ended = look(("JobState=RUNNING", "JobState=FAILED"), log=f"step 90/100\n{AFTER}")
    assert ended.progress.step == 90 and "REQUEUE" in ended.log_tail


def test_the_node_that_failed_is_named_if_it_is_known() -> None:
    line = LINE.replace("JobState=RUNNING", "JobState=NODE_FAIL")
    for lost, node in (("n2 ", "n2"), ("", None), ("n1 n2 ", None)):
        view = look_question("slurm:12").parse(reply(f"job={line}", "nodes=n1 n2 ", f"lost={lost}", log=""))
        assert view and view.pod and (view.pod.node, view.pod.category) == (node, "node_lost")


def test_a_forgotten_job_is_judged_by_the_accounting_or_its_log() -> None:
    for former, log, status in [
        ("12|12|CANCELLED by 1000|0:15|1795845999|n1|/home|llama", "step 7/100\n", JobStatus.STOPPED),
        ("12|12|COMPLETED|0:0|1795845999|/home|llama", "", JobStatus.SUCCEEDED),
        ("12|12|TIMEOUT|0:0|1795845999|n1|/home|llama", "", JobStatus.FAILED),
        ("12|12|REVOKED|0:0|1795845999|n1|/home|llama", "step 7/100\n", JobStatus.UNKNOWN),
        ("", "step 100/100\n", JobStatus.SUCCEEDED),
        ("", "step 7/100\n", JobStatus.FAILED),
        ("", f"step 7/100\n{AFTER.replace(' DUE TO JOB REQUEUE', '')}", JobStatus.STOPPED),
        ("", f"step 7/100\n{AFTER}", JobStatus.FAILED),
    ]:
        view = look_question("slurm:12").parse(reply("state=forgotten", f"former={former}", log=log))
        assert view and view.status is status


def test_a_forgotten_job_has_not_failed_because_the_accounting_does_not_respond() -> None:
    forgotten = ("state=forgotten", "unasked=sacct: error: Problem talking to the database")
    for log, status in [
        ("step 7/100\n", JobStatus.UNKNOWN),
        ("step 100/100\n", JobStatus.SUCCEEDED),
        (f"step 7/100\n{AFTER.replace(' DUE TO JOB REQUEUE', '')}", JobStatus.STOPPED),
    ]:
        view = look_question("slurm:12").parse(reply(*forgotten, log=log))
        assert view and view.status is status
        assert status is not JobStatus.UNKNOWN or (view.message and "talking to the database" in view.message)
    view = look_question("slurm:12").parse(reply(*forgotten, "stopped_by=anna", log="step 7/100\n"))
    assert view and (view.status, view.stopped_by) == (JobStatus.STOPPED, "anna")


def test_no_answer_is_unknown_and_never_an_end() -> None:
    refused = Reply("refused=Unable to contact slurm controller (connect failure)\n", 0, 0.0)
    for question in (look_question("slurm:12"), jobs_question(), config_question("slurm:12")):
        with pytest.raises(TargetUnreachable, match="Unable to contact"):
            question.parse(refused)  # type: ignore[union-attr]
    with pytest.raises(TargetUnreachable):
        stop_question("slurm:12", "supervisor", 10.0).parse(refused)
    with pytest.raises(ParseError):
        look_question("slurm:12").parse(Reply(f"number=12\njob={LINE}\n", 0, 0.0))
    with pytest.raises(ParseError):
        jobs_question().parse(Reply("12\n", 0, 0.0))
    assert look_question("slurm:12").parse(Reply("state=missing\n", 0, 0.0)) is None


def test_many_jobs_are_asked_in_one_pass() -> None:
    question = states_question(["slurm:12", "slurm:a-attempt-2"])
    block = f"name=12\nnumber=12\njob={LINE}\nnodes=n1\nnow={NOW}\nname=a-attempt-2\nstate=missing\n"
    first, second = question.parse(Reply(f"{block}end\n", 0, 0.0))
    assert first and first.status is JobStatus.RUNNING and not first.log_known and second is None
    with pytest.raises(ParseError):
        question.parse(Reply(block, 0, 0.0))
    assert jobs_question().parse(Reply("12\n12-attempt-2\nodd name\n|end\n", 0, 0.0)) == ["12", "12-attempt-2"]
