"""Samples on this machine and over ssh, a registration by a real request or a real command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place, wait_until
from tests.loopback.messaging import (
    Asked,
    Fault,
    Services,
    break_off,
    close_at_once,
    drip,
    hang,
    rate_limit,
    refuse,
)
from training_monitor.core.clock import SystemClock
from training_monitor.rent.publish import HookReport, make_samples, register_model
from training_monitor.vast.training_request import Hook

ROOT = Path(__file__).parents[2]
HOSTILE = ['"; rm -rf /', "{__class__}", "späce ☃\nand a line", "$(touch pwned)`touch pwned`", "-rf", "'"]
TOKEN, SHORT = "sk-very-secret-0123456789", "s3cr"
ENVIRON = {"SERVICE_KEY": TOKEN, "SHORT_KEY": SHORT}
HEADERS = (("Authorization", "Bearer env:SERVICE_KEY"), ("X-Team", "env:SHORT_KEY"))
ABOUT: dict[str, Any] = {
    "name": "portrait",
    "trigger": "ohwx",
    "job_id": "job-7",
    "step": 4000,
    "model": "/models/portrait.safetensors",
    "model_name": "portrait.safetensors",
    "model_url": "https://example.com/portrait",
}


class QuickClock(SystemClock):
    """The real time, in which nobody waits long; it remembers how long one wanted to wait."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(min(seconds, 0.05))


@pytest.fixture(params=["local", "over_ssh"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def service() -> Iterator[Services]:
    with Services() as services:
        yield services


# ---------------------------------------------------------------- samples


def sample(place: Place, command: str, **more: Any) -> HookReport:
    hook = Hook(command=command, timeout=more.pop("timeout", 60.0), attempts=more.pop("attempts", 3))
    folder = place.folder / "my job"
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {"folder": str(folder), "model": str(folder / "m.safetensors"), "about": ABOUT}
    return make_samples(hook, place.address, **{**given, "clock": QuickClock(), **more})


def samples(place: Place) -> dict[str, str]:
    return {file.name: file.read_text() for file in (place.folder / "my job" / "samples").iterdir()}


def test_a_command_makes_samples_in_the_folder_of_the_job(place: Place) -> None:
    variables = '"$MODEL" "$TRIGGER" "$NAME" "$JOB_ID" "$STEP" "$MODEL_NAME" "$OWN"'
    line = f'printf "%s|" {variables} >"$SAMPLES/all"; pwd; echo 1 of 1'
    report = sample(place, line, env={"OWN": "value of its own"})
    folder = place.folder / "my job"
    assert report == HookReport(True, 1, None, f"{folder} | 1 of 1")
    values = f"{folder}/m.safetensors|ohwx|portrait|job-7|4000|portrait.safetensors|value of its own|"
    assert samples(place) == {"all": values}


def test_paths_that_are_not_absolute_are_made_so(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(local.folder)
    (local.folder / "-x").mkdir()
    report = sample(local, 'echo "$MODEL" "$SAMPLES"', folder="-x", model="-m/n")
    assert report.said == f"{local.folder}/-m/n {local.folder}/-x/samples"


def test_a_folder_that_is_not_there_is_said(local: Place) -> None:
    report = sample(local, "touch never", folder=str(local.folder / "nowhere"), attempts=1)
    assert (report.ok, report.error) == (False, "exit code 73") and "cannot be made" in report.said


def test_a_command_that_hangs_is_stopped_with_all_its_processes(place: Place) -> None:
    report = sample(place, "setsid sleep 987 & trap '' TERM; sleep 987; sleep 987", timeout=1, attempts=1)
    assert report == HookReport(False, 1, "it was still running after 1 s and was stopped", report.said)
    assert not [line for line in place.surroundings.processes().values() if "987" in line]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_words_and_nothing_else(local: Place, name: str) -> None:
    about = {**ABOUT, "name": name, "trigger": name, "model_url": None}
    assert sample(local, 'printf "%s|" "$NAME" "$TRIGGER" "$MODEL_URL" >"$SAMPLES/x"', about=about).ok
    assert samples(local) == {"x": f"{name}|{name}||"}
    assert not list(local.folder.rglob("pwned"))


def test_a_line_that_ends_in_a_comment_or_a_here_document_is_kept_as_it_is(local: Place) -> None:
    assert sample(local, "cat >\"$SAMPLES/x\" <<'END'\n$NAME `no` # no\nEND").ok
    assert sample(local, "echo ok # and nothing more").said == "ok"
    assert samples(local) == {"x": "$NAME `no` # no\n"}


def test_a_caller_that_is_killed_and_calls_again_waits_for_the_same_run(place: Place) -> None:
    line = 'echo begun >>begun; until [ -e go ]; do sleep 0.05; done; touch "$SAMPLES/x"'
    folder = place.folder / "my job"
    code = (
        "import sys; from tests.integration.test_publish import *; from tests.integration.conftest import Place\n"
        f"sample(Place({place.address!r}, Path({str(place.folder)!r}), None, None, None, None), {line!r})"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, cwd=ROOT) as caller:
        assert wait_until(lambda: (folder / "begun").exists())
        caller.send_signal(signal.SIGKILL)
    (folder / "go").touch()
    report = sample(place, line)
    assert (report.ok, report.attempts) == (True, 1)
    assert (folder / "begun").read_text() == "begun\n"


def test_the_environment_is_in_no_file_and_no_report(local: Place) -> None:
    report = sample(local, 'echo "got $HF_TOKEN"; exit 1', env={"HF_TOKEN": "my own s3cret"}, attempts=1)
    assert report.said == "got ***"
    written = b"".join(file.read_bytes() for file in local.jobs.rglob("*") if file.is_file() and file.name != "log")
    assert b"s3cret" not in written and b'echo "got' in written


def test_variables_of_the_users_reach_the_command_as_they_are(local: Place) -> None:
    names = ("folder", "model", "path", "base", "dir", "name", "n", "starter", "child")
    report = sample(local, f"echo {' '.join(f'${name}' for name in names)}", env=dict.fromkeys(names, "mine"))
    assert report.said == " ".join("mine" for name in names)


def test_a_hook_with_an_address_is_sent_instead(local: Place, service: Services) -> None:
    report = make_samples(Hook(url=service.webhook), "local", folder="/f", model="/m", about=ABOUT, clock=QuickClock())
    assert report.ok
    [asked] = service.asked
    assert asked.headers["idempotency-key"] == "job-7-samples"
    assert asked.json == {**ABOUT, "model": "/m"}


# ---------------------------------------------------------------- registration by a request


def register(service: Services, *faults: Fault, **more: Any) -> tuple[HookReport, QuickClock]:
    service.faults = list(faults)
    about, clock = more.pop("about", ABOUT), QuickClock()
    hook = Hook(**{"url": service.webhook, "headers": HEADERS, "timeout": 5.0, **more})
    return register_model(hook, about, job_id="job-7", clock=clock, environ=ENVIRON), clock


def test_a_model_is_registered_by_one_request(service: Services) -> None:
    report, clock = register(service, body={"file": "{model_name}", "from": "{model_url}", "seed": "{seed}"})
    assert report == HookReport(True, 1, None, '{"received": true}') and clock.slept == []
    [asked] = service.asked
    assert asked.json == {"file": "portrait.safetensors", "from": "https://example.com/portrait", "seed": "{seed}"}
    headers = {name: asked.headers[name] for name in ("authorization", "x-team", "idempotency-key", "content-type")}
    assert headers == {
        "authorization": f"Bearer {TOKEN}",
        "x-team": SHORT,
        "idempotency-key": "job-7-register",
        "content-type": "application/json",
    }


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_asked_again_with_the_same_key(service: Services, status: int) -> None:
    report, clock = register(service, refuse(status), refuse(status))
    assert (report.ok, report.attempts, clock.slept) == (True, 3, [5.0, 10.0])
    assert {asked.headers["idempotency-key"] for asked in service.asked} == {"job-7-register"}


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 422])
def test_what_will_not_pass_is_not_asked_again(service: Services, status: int) -> None:
    report, clock = register(service, refuse(status, "no such volume"))
    assert (report.ok, report.attempts, clock.slept, len(service.asked)) == (False, 1, [], 1)
    assert str(status) in str(report.error) and "no such volume" in str(report.error)


@pytest.mark.parametrize("fault", [close_at_once, break_off, hang, drip])
def test_a_request_without_an_answer_is_repeated(service: Services, fault: Fault) -> None:
    report, _ = register(service, fault, timeout=0.5)
    assert (report.ok, report.attempts, len(service.asked)) == (True, 2, 2)


def test_it_waits_as_long_as_the_service_says(service: Services) -> None:
    report, clock = register(service, rate_limit(37))
    assert (report.ok, clock.slept) == (True, [37.0])


def test_a_machine_is_not_kept_for_a_service_that_wants_an_hour(service: Services) -> None:
    report, clock = register(service, rate_limit(3600))
    assert (report.ok, report.attempts, clock.slept) == (False, 1, []) and "429" in str(report.error)


def test_what_the_service_repeats_of_a_secret_is_not_shown(service: Services) -> None:
    def echo(handler: Any, asked: Asked) -> None:
        handler._reply(400, f"{asked.headers['authorization']} {asked.headers['x-team']} {asked.path}", {})

    report, _ = register(service, echo, url=f"{service.webhook}?sig=q%21q1&x=1")
    shown = f"{report.error} {report.said}"
    assert "returned HTTP 400" in shown
    for secret in (TOKEN, SHORT, "q%21q1", "q!q1"):
        assert secret not in shown
    report, _ = register(service, lambda handler, asked: handler._reply(200, f"hello {TOKEN} {SHORT}\x1b[31m", {}))
    assert report.said == "hello *** ***"


def test_a_key_with_a_line_break_cannot_add_a_header(service: Services) -> None:
    hook = Hook(url=service.webhook, headers=(("X-Key", "env:BAD"),))
    report = register_model(hook, ABOUT, job_id="job-7", clock=QuickClock(), environ={"BAD": "a\r\nX-Admin: 1"})
    assert not report.ok and service.asked == []


# ---------------------------------------------------------------- registration by a command


def test_a_command_here_gets_variables_and_json(local: Place) -> None:
    out = local.folder / "out"
    line = f'printf "%s|" "$NAME" "$MODEL" "$MODEL_NAME" "$MODEL_URL" "$STEP" >"{out}"; cat'
    report = register_model(Hook(command=line), {**ABOUT, "name": HOSTILE[0]}, job_id="job-7", clock=QuickClock())
    assert report.ok and '"trigger": "ohwx"' in report.said
    values = f"{HOSTILE[0]}|{ABOUT['model']}|portrait.safetensors|https://example.com/portrait|4000|"
    assert out.read_text() == values


def test_a_command_here_that_hangs_is_ended(local: Place) -> None:
    hook = Hook(command="echo begun; sleep 986", timeout=0.5, attempts=2)
    report = register_model(hook, ABOUT, job_id="job-7", clock=QuickClock())
    assert (report.ok, report.attempts) == (False, 2) and "0.5 s" in str(report.error)
    assert not [line for line in local.surroundings.processes().values() if "986" in line]
