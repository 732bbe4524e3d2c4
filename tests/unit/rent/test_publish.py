"""Hooks: what is filled in, what a command gets to see, when it is tried again, and what is never shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes import Behaviour, FakeClock, FakeJobs, FakeTransport, read_call
from training_monitor.core import masking
from training_monitor.core.errors import CommandTimedOut, SettingsError, TargetUnreachable
from training_monitor.core.masking import redact
from training_monitor.core.results import CommandResult
from training_monitor.rent.publish import HookReport, fill_in, make_samples, register_model
from training_monitor.vast.training_request import Hook

ABOUT = {
    "name": "portrait",
    "trigger": "ohwx",
    "job_id": "job-7",
    "step": 4000,
    "model": "/models/portrait.safetensors",
    "model_name": "portrait.safetensors",
    "model_url": "https://example.com/portrait",
}
HOSTILE = ['"; rm -rf / #', "{__class__}", "{trigger}", "$(touch x)", "späce ☃", "-rf", "a\nb", "%s", "'"]


def test_the_placeholders_of_a_body_are_filled_in_however_deep_they_are() -> None:
    body = {"file": "{name}-{step}.safetensors", "tags": ["{trigger}", {"url": "{model_url}"}], "size": 3, "no": None}
    tags = ["ohwx", {"url": "https://example.com/portrait"}]
    assert fill_in(body, ABOUT) == {"file": "portrait-4000.safetensors", "tags": tags, "size": 3, "no": None}
    with pytest.raises(SettingsError, match=r"\{model_url\}"):  # what is not known is not filled in as nothing
        fill_in({"link": "{model_url}"}, {**ABOUT, "model_url": None})


@pytest.mark.parametrize(
    "text", ["{seed}", "{}", "{0}", "{name!r}", "{name.__class__}", "{{", "}{", "{ name }", "%(name)s"]
)
def test_what_is_no_placeholder_stays_as_it_is(text: str) -> None:
    assert fill_in(text, ABOUT) == text


# ---------------------------------------------------------------- a command here


def register(
    results: list[int | Exception], hook: Hook | None = None, about: dict[str, Any] | None = None, said: str = ""
) -> tuple[HookReport, list[tuple[tuple[str, ...], str | None]], FakeClock]:
    """The report, what was run, and the clock; `results` are exit codes, one a try."""
    runs: list[tuple[tuple[str, ...], str | None]] = []

    def act(words: tuple[str, ...], text: str | None) -> CommandResult:
        runs.append((words, text))
        result = results[len(runs) - 1]
        if isinstance(result, Exception):
            raise result
        return CommandResult(words, result, said, "", 0.1)

    transport, clock = FakeTransport(lambda script: ("", 1)), FakeClock()
    transport.register(["env"], act)
    hook = hook or Hook(command="publish")
    return register_model(hook, about or ABOUT, job_id="job-7", transport=transport, clock=clock), runs, clock


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_is_filled_in_as_it_is_and_a_command_gets_it_as_one_word_and_as_json(name: str) -> None:
    assert fill_in("<{name}|{trigger}>", {**ABOUT, "name": name}) == f"<{name}|ohwx>"
    report, [(words, text)], _ = register([0], about={**ABOUT, "name": name})
    assert report == HookReport(True, 1)
    assert words[-4:] == ("sh", "-c", "--", "publish") and f"NAME={name}" in words
    assert json.loads(text or "") == {**ABOUT, "name": name}


def test_what_is_not_known_is_an_empty_variable_and_null() -> None:
    about = {**ABOUT, "model_url": None, "step": None, "job_id": "another"}
    _, [(words, text)], _ = register([0], about=about)
    assert {"MODEL_URL=", "STEP=", "JOB_ID=job-7"} <= set(words)  # the job is the one that is named
    assert json.loads(text or "")["model_url"] is None


def test_a_command_that_fails_is_retried_with_waits_up_to_two_minutes() -> None:
    report, runs, clock = register([1, 127, 0])
    assert (report.ok, report.attempts, len(runs), clock.slept) == (True, 3, 3, [5.0, 10.0])
    _, _, clock = register([1] * 40, Hook(command="x", attempts=40))
    assert max(clock.slept) == 120.0 and len(clock.slept) == 39


def test_after_the_last_try_the_report_says_what_the_command_said() -> None:
    report, runs, clock = register([1, 2], Hook(command="x", attempts=2), said="no such\x1b[31m volume\n")
    assert report == HookReport(False, 2, "exit code 2", "no such volume")
    assert len(clock.slept) == 1


def test_a_command_that_does_not_end_is_a_try_that_failed() -> None:
    report, _, _ = register([CommandTimedOut("env did not respond within 600 s"), 0])
    assert report.ok and report.attempts == 2
    report, _, _ = register([CommandTimedOut("env did not respond within 600 s")], Hook(command="x", attempts=1))
    assert report == HookReport(False, 1, "env did not respond within 600 s")


def test_a_token_is_not_shown_and_a_long_output_cut_to_its_last_whole_lines() -> None:
    report, _, _ = register([1], Hook(command="x", attempts=1), said="Authorization: Bearer abcdefgh1234")
    assert "abcdefgh1234" not in report.said
    assert register([0], said="x" * 5_000_000)[0].said == ""
    report, _, _ = register([0], said="".join(f"line {each} {'x' * 1000}\n" for each in range(5000)))
    assert len(report.said) < 1300 and "line 4999" in report.said


def test_a_value_that_no_variable_can_hold_is_refused() -> None:
    with pytest.raises(SettingsError, match="trigger"):
        register([0], about={**ABOUT, "trigger": "a\0b"})


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"headers": (("Authorization", "Bearer env:COMFY_KEY"),)}, "COMFY_KEY"),
        ({"body": {"link": "{model_url}"}}, "{model_url}"),
    ],
)
def test_a_request_with_an_unset_variable_or_an_unknown_address_is_not_sent(more: Any, missing: str) -> None:
    hook, about = Hook(url="http://127.0.0.1:9/x", **more), {**ABOUT, "model_url": None}
    report = register_model(hook, about, job_id="job-7", clock=FakeClock(), environ={"COMFY_KEY": ""})
    assert (report.ok, report.attempts) == (False, 0) and missing in str(report.error)


# ---------------------------------------------------------------- samples, on a target


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def sample(machine: FakeJobs, hook: Hook | None = None, **more: Any) -> HookReport:
    given: dict[str, Any] = {"folder": "/workspace/job-7", "model": "/workspace/job-7/out.safetensors", "about": ABOUT}
    given |= {"transport": FakeTransport(machine.answer), "clock": machine.clock, **more}
    return make_samples(hook or Hook(command="python sample.py"), "local", **given)


WELL, BADLY = Behaviour(total=30, save_every=None), Behaviour(crash_after=4, save_every=None)
HANGS = Behaviour(hang_after=5, save_every=None)


def test_a_command_that_fails_twice_and_then_works_is_run_three_times(clock: FakeClock) -> None:
    machine, told = FakeJobs(clock, [BADLY, BADLY, WELL]), list[str]()
    report = sample(machine, on_progress=told.append)
    assert (report.ok, report.attempts, report.error) == (True, 3, None) and any("step" in line for line in told)
    [first, _, third] = machine.starts
    assert first.name.startswith("samples-") and first.name.endswith("-1") and third.name.endswith("-3")
    assert first.command.endswith("\npython sample.py")


def test_a_command_that_failed_too_often_is_not_run_again(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [Behaviour(crash_after=4, exit_code=9, save_every=None)])
    first = sample(machine, Hook(command="x", attempts=2))
    assert (first.ok, first.attempts, first.error) == (False, 2, "exit code 9")
    assert sample(machine, Hook(command="x", attempts=2)) == first
    assert len(machine.starts) == 2


def test_a_command_that_worked_is_not_run_again_but_another_command_model_or_step(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [WELL])
    assert sample(machine) == sample(machine)
    assert len(machine.starts) == 1
    sample(machine, Hook(command="another"))
    sample(machine, model="/other")
    sample(machine, about={**ABOUT, "step": 5000})
    assert len({job.name for job in machine.starts}) == 4


def test_what_runs_longer_than_its_time_is_stopped_and_tried_again(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [HANGS, WELL])
    report = sample(machine, Hook(command="x", timeout=60))
    assert (report.ok, report.attempts) == (True, 2)
    hung = machine.starts[0]
    assert hung.stopped_by == "time_limit" and 60 <= (hung.stopped_at or 0) - hung.started <= 64


def test_the_time_of_a_try_counts_from_its_start_also_for_a_later_caller(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [HANGS])

    def die() -> None:
        raise KeyboardInterrupt

    clock.at(40, die)
    with pytest.raises(KeyboardInterrupt):
        sample(machine, Hook(command="x", timeout=60, attempts=1))
    report = sample(machine, Hook(command="x", timeout=60, attempts=1))
    assert (report.ok, report.attempts) == (False, 1) and "60 s" in str(report.error)
    [hung] = machine.starts
    assert (hung.stopped_at or 0) - hung.started <= 64


def test_what_sigkill_cannot_end_is_reported(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [Behaviour(hang_after=5, unkillable=9, save_every=None)])
    report = sample(machine, Hook(command="x", timeout=60))
    assert not report.ok and "4242" in str(report.error)
    assert len(machine.starts) == 1


def test_what_a_person_stopped_is_not_started_again(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [HANGS])
    clock.at(10, machine.stop_by_person)
    report = sample(machine)
    assert not report.ok and "stopped by a person" in str(report.error)
    assert sample(machine).error == "it was stopped by a person"
    assert len(machine.starts) == 1


def test_a_silent_target_is_no_failed_try_and_unknown_if_it_stays_silent(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [WELL])
    machine.unreachable(6, 20)
    report = sample(machine)
    assert (report.ok, report.attempts, len(machine.starts)) == (True, 1, 1)
    machine.unreachable(clock.elapsed, 10_000)
    with pytest.raises(TargetUnreachable):
        sample(machine, model="/other")


def test_a_lost_answer_starts_nothing_twice_and_leftovers_are_ended(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [WELL], lose_start_answers=1)
    assert sample(machine).ok and len(machine.starts) == 1
    machine = FakeJobs(clock, [Behaviour(crash_after=4, survivors=2, save_every=None), WELL])
    assert sample(machine).ok  # the fake refuses to start beside anything


def test_the_values_of_the_environment_are_not_shown(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [Behaviour(crash_after=3, last_words="login with s3cr3t-t0ken failed", save_every=None)])
    report = sample(machine, Hook(command="x", attempts=1), env={"HF_TOKEN": "s3cr3t-t0ken"})
    assert machine.starts[0].env["HF_TOKEN"] == "s3cr3t-t0ken"
    assert "s3cr3t" not in report.said and "login with *** failed" in report.said


def test_samples_leave_job_ids_paths_and_names_of_models_readable(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masking._Known, "values", ())
    about = {**ABOUT, "job_id": "llama-7b-4f2a", "model_name": "me/llama-3.1-8b"}
    env = {"BASE_MODEL": "flux.1-dev-2024", "DATA": "/data/run-01", "DB": "pg://me:p4ssw0rd@h/d"}
    env["HF_TOKEN"] = "s3cr3t-t0ken"
    sample(FakeJobs(clock, [WELL]), about=about, env=env)
    told = "llama-7b-4f2a COMPLETED /workspace/job-7/out.safetensors me/llama-3.1-8b flux.1-dev-2024 /data/run-01"
    assert redact(told) == told
    assert redact("it used s3cr3t-t0ken") == "it used ***"


@pytest.mark.parametrize("name", [each for each in HOSTILE if "\n" not in each])  # the fake reads the script by lines
def test_hostile_names_reach_the_command_as_they_are(name: str, clock: FakeClock) -> None:
    machine = FakeJobs(clock, [WELL])
    assert sample(machine, about={**ABOUT, "name": name, "trigger": name}, env={"NAME": "not this"}).ok
    assert machine.starts[0].env["NAME"] == machine.starts[0].env["TRIGGER"] == name


def test_paths_that_are_called_like_a_mark_of_the_script_stay_paths(clock: FakeClock) -> None:
    machine = FakeJobs(clock, [WELL])
    sample(machine, folder="/_model", model="/$_folder")
    call = read_call(machine.starts[0].command)
    assert call and (call.given["_folder"], call.given["_model"]) == ("/_model", "/$_folder")
    for key in ("folder", "model"):
        with pytest.raises(SettingsError):
            sample(machine, **{key: ""})
