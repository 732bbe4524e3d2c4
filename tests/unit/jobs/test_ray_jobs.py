"""What the answers of Ray's dashboard, and of the `ray` command where there is none, mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes import read_arguments
from tests.unit.fake_reply import cli, rest
from training_monitor.core.errors import (
    CommandFailed,
    ParseError,
    RestError,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import Answer, JobStatus, RayJob, Reply
from training_monitor.jobs.jobs import read_look
from training_monitor.jobs.ray_jobs import (
    job_question,
    jobs_question,
    log_question,
    resources_question,
    submit_question,
    why_not_listed,
)
from training_monitor.look.looks import failure_of

RECORDED = Path(__file__).parents[2] / "recorded" / "ray" / "2.60.0"
EVERY = [job_question("ok1"), jobs_question(), log_question("ok1"), resources_question()]


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_a_refused_token_or_a_dashboard_that_fails_is_an_error_with_its_words() -> None:
    for question in EVERY:
        for code in [401, 403]:
            with pytest.raises(RestError, match="RAY_AUTH_TOKEN") as caught:
                question.parse(rest("Unauthorized", code))
            assert caught.value.status == code
        with pytest.raises(RestError, match="HTTP 500: Traceback: no redis"):
            question.parse(rest("Traceback: no redis", 500))


def test_where_neither_dashboard_nor_ray_is_there_nothing_is_known() -> None:
    for question in EVERY:
        for said in [
            "no sign of Ray",
            "sh: 1: ray: not found",
            "bash: ray: command not found",
            "ConnectionError: Failed to connect to Ray at address: http://127.0.0.1:8265.",
            "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to",
        ]:
            with pytest.raises(TargetUnreachable, match="Ray does not respond"):
                question.parse(cli(said, 1))


def test_a_job_with_an_id_of_ray_is_unknown_while_nothing_of_ray_is_there() -> None:
    down, none = Answer("jobs", None, TargetUnreachable("Ray does not respond")), Answer("signs", False)
    for named, is_known in [("", True), ("portrait", True), ("portrait-attempt-2", True), ("raysubmit_x", False)]:
        assert (why_not_listed(down, none, named) is None) is is_known
    assert why_not_listed(Answer("jobs", ()), none, "raysubmit_x") is None


def test_a_reply_that_was_cut_is_an_error_and_never_an_empty_answer() -> None:
    for question in EVERY:
        for reply in [Reply("", 0, 0.1), Reply("cli\n", 0, 0.1), Reply("http 2000x", 0, 0.1)]:
            with pytest.raises(TrainingMonitorError):
                question.parse(reply)


def test_a_job_over_rest_is_read_and_told_from_one_that_is_not_there() -> None:
    job = job_question("ok1").parse(rest(recorded("cli_rest_ok1.json")))
    assert job and (job.submission_id, job.status, job.exit_code) == ("ok1", JobStatus.SUCCEEDED, 0)
    assert job.start_time == pytest.approx(1795236720.52)
    failed = job_question("bad1").parse(rest(recorded("cli_rest_bad1.json")))
    assert failed and failed.status is JobStatus.FAILED and failed.exit_code == 3
    assert job_question("nope").parse(rest("Job nope does not exist", 404)) is None


def test_a_job_of_the_ray_command_has_its_status_or_is_not_there() -> None:
    for file, job_id, status in [
        ("cli_status_ok1.out", "ok1", JobStatus.SUCCEEDED),
        ("cli_status_bad1.out", "bad1", JobStatus.FAILED),
        ("cli_status_pend1.out", "pend1", JobStatus.PENDING),
    ]:
        job = job_question(job_id).parse(cli(recorded(file)))
        assert job and job.status is status
    assert job_question("nope").parse(cli(recorded("cli_status_nope.err"), 1)) is None
    said = recorded("cli_status_bad1.out") + "ConnectionError: Connection refused\n"
    job = job_question("bad1").parse(cli(said))
    assert job and job.status is JobStatus.FAILED


def test_all_jobs_come_newest_last_and_nonsense_is_an_error() -> None:
    for reply in (rest(recorded("rest_jobs.json")), cli(recorded("cli_list.out"))):
        jobs = jobs_question().parse(reply)
        times = [job.start_time or 0 for job in jobs]
        assert len(jobs) > 1 and times == sorted(times)
    assert jobs_question().parse(rest("[]")) == ()
    for reply in (rest("{}"), rest("<html>"), cli("no list here")):
        with pytest.raises(ParseError):
            jobs_question().parse(reply)


def test_a_log_file_has_the_size_and_age_that_are_known_and_its_text() -> None:
    text = "step 5\n\nhttp 404\nray exit 1\n"
    assert log_question("ok1").parse(Reply(f"file 5000 990 1000\n{text}", 0, 0.1)) == (5000, 10.0, text)
    assert log_question("ok1").parse(Reply("file - - 1000\nx", 0, 0.1)) == (None, None, "x")
    assert log_question("ok1").parse(Reply("file 0 1000 1000\n", 0, 0.1)) == (0, 0.0, "")


def test_a_log_over_rest_or_of_the_command_is_its_text_up_to_a_limit() -> None:
    size, age, text = log_question("fail1").parse(rest(recorded("rest_job_logs.json").strip()))
    assert (size, age) == (None, None) and "step:5 - actor/loss:0.6000" in text and "\\n" not in text
    _, _, text = log_question("x", 100).parse(rest(json.dumps({"logs": "y" * 5000 + "end"})))
    assert len(text) == 100 and text.endswith("end")
    _, _, text = log_question("ok1").parse(cli(recorded("cli_logs_ok.out")))
    assert "step: 5/5 loss: 0.1" in text
    for cut in [1, 5, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24]:
        log = '12 "quoted" \\ ü\nstep 1\ttab\nstep 2\nthe "end" é\n'
        body = json.dumps({"logs": log})
        _, _, text = log_question("x").parse(rest(body[cut:]))
        assert text and log.endswith(text) and text.endswith('step 2\nthe "end" é\n')


def test_a_log_that_is_not_there_yet_is_empty_and_one_not_read_an_error() -> None:
    assert log_question("x").parse(rest("Job x does not exist", 404)) == (None, None, "")
    assert log_question("x").parse(rest('{"logs": ""}')) == (None, None, "")
    for reply in (rest("<html>"), cli(recorded("cli_logs_nope.err"), 1)):
        with pytest.raises(TrainingMonitorError):
            log_question("x").parse(reply)


def submit(reply: Reply) -> str:
    return submit_question("train-attempt-1", "python train.py", {}, {}, {}).parse(reply)


def test_a_job_is_submitted_once() -> None:
    assert submit(rest('{"job_id": "train-attempt-1", "submission_id": "train-attempt-1"}')) == "submitted"
    assert submit(cli(recorded("cli_submit_ok.out"))) == "submitted"
    body = recorded("rest_submit_duplicate.txt").partition("\n\n")[2]
    assert submit(rest(body, 500)) == "exists"
    assert submit(cli(recorded("cli_submit_dup.err"), 1)) == "exists"


def test_a_head_that_takes_no_job_yet_has_refused_none() -> None:
    body = recorded("rest_submit_no_agent.txt").partition("\n\n")[2]
    for reply in (rest(body, 500), cli(recorded("cli_submit_no_agent.err"), 1)):
        with pytest.raises(RestError, match="No available agent .* Try: retry") as caught:
            submit(reply)
        assert (caught.value.status, caught.value.temporary) == (500, True)


def test_a_refusal_by_ray_is_an_error_with_its_words() -> None:
    agent = "RuntimeError: Request failed with status code 400: ValueError: the label selector is wrong\n."
    for reply in (rest(agent, 500), cli(f"Request failed with status code 500: {agent}", 1)):
        with pytest.raises(CommandFailed, match="label selector is wrong"):
            submit(reply)
    for reply in (rest("runtime_env is wrong", 400), cli("Error: No such option '--x'.", 2)):
        with pytest.raises(CommandFailed, match="Ray did not accept the job: .*(wrong|No such option)"):
            submit(reply)
    for job_id in ("a/b", "../x"):
        with pytest.raises(SettingsError):
            submit_question(job_id, "x", {}, {}, {})


def test_a_job_that_was_cancelled_before_it_ran_is_stopped() -> None:
    for reply in (rest(recorded("rest_job_cancelled.json")), cli(recorded("cli_status_cancelled.out"))):
        job = job_question("it's pend").parse(reply)
        assert job and (job.status, job.message) == (JobStatus.STOPPED, "cancelled before it started")
    died = job_question("runs").parse(rest(recorded("rest_job_actor_killed.json")))
    assert died and died.status is JobStatus.FAILED, "that one ran"


def test_an_error_of_ray_is_told_by_its_first_and_last_line_without_the_log() -> None:
    for told, message in [
        (None, None),
        ("was stopped", "was stopped"),
        ("setup failed: x\nTraceback:\n  f()\n\nRuntimeError: no nolib\n", "setup failed: x | RuntimeError: no nolib"),
        (
            "setup failed:\n401 for https://bob:hunter22@pypi.org/simple",
            "setup failed: | 401 for https://bob:***@pypi.org/simple",
        ),
        ("failed with exit code 3, last available logs (truncated):\nstep 4\nstep 5", "failed with exit code 3"),
    ]:
        job = RayJob("j", JobStatus.FAILED, told)
        seen = read_look("j", [Answer("job", job), Answer("log", None), Answer("waiting", None)])
        assert seen and seen.message == message
    for left, action in ((0, "restart"), (4, "stop")):
        tried = f"WARNING: Retrying (Retry(total={left}, connect=None)) after connection broken by 'x': /simple/lib/"
        job = RayJob("j", JobStatus.FAILED, f"setup failed\n{tried}\nERROR: No matching distribution found for lib==7")
        seen = read_look("j", [Answer("job", job), Answer("log", None), Answer("waiting", None)])
        assert seen and failure_of(seen).action == action and ("broken" in failure_of(seen).evidence) is (left == 0)


def test_what_the_entrypoint_asks_for_reaches_the_dashboard_and_the_ray_command() -> None:
    script = submit_question("x", "python t.py", {}, {}, {"entrypoint_num_gpus": 2}).script
    _, _, body, *command = read_arguments(script)
    assert json.loads(body)["entrypoint_num_gpus"] == 2
    assert command[command.index("--entrypoint-num-gpus") + 1] == "2"
