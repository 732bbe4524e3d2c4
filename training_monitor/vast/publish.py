"""What a user does with a trained model: test images on its machine, and telling a service that the model is there.

Both are a `Hook`: a command, or a POST. Nobody knows whether a request without an answer was heard, or how far a caller
had come that was killed, so a hook is done at least once: a command has to bear a second run, and each POST carries an
Idempotency-Key that is the same for all tries of one job.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandError, CommandFailed, RestError, SettingsError, last_lines, redact
from training_monitor.models import JobStatus, JobView
from training_monitor.renting import Hook, resolve_env
from training_monitor.rest import request
from training_monitor.targets.asking import quote_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.uploads.detached import BACK_OFF_SECONDS, DetachedTries, Way, ran_too_long

LONGEST_WAIT = 120.0  # between two tries: meanwhile a rented machine costs money
_MAY_PASS = (408, 409, 425)  # what RestError does not take for temporary
_VARIABLES = {
    "NAME": "name",
    "TRIGGER": "trigger",
    "JOB_ID": "job_id",
    "STEP": "step",
    "MODEL": "model",
    "MODEL_NAME": "model_name",
    "MODEL_URL": "model_url",
}
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(_VARIABLES.values())})\}}")
_LOOKED_AT = 20_000  # characters at the end of an output
_LEAST_MASKED = 4  # characters; hiding shorter ones would hide half of the text

# In the job's folder, with both paths made absolute; then the user's line as it is.
_SAMPLES = r"""
MODEL=MODEL_PATH
case $MODEL in /*) ;; *) MODEL=$PWD/${MODEL#./} ;; esac
cd -- FOLDER_PATH && mkdir -p samples || { echo "the folder for the samples cannot be made"; exit 73; }
SAMPLES=$PWD/samples; export MODEL SAMPLES
"""


@dataclass(frozen=True, slots=True)
class HookReport:
    """What became of a hook: after how many tries, why it failed, and the last lines that it or the service said."""

    ok: bool
    attempts: int
    error: str | None = None
    said: str = ""


def make_samples(
    hook: Hook,
    target: str | Target,
    *,
    folder: str,
    model: str,
    about: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    on_progress: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> HookReport:
    """Have samples made with a model on the target, in `folder`/samples.

    The command runs there as a process job named after what it does: it goes on when this process or the connection
    ends, and the same call again, also after a crash, waits for what runs. The tries of all calls count together: after
    the last one, or after one that did it, nothing is run again.

    Args:
        hook: its command finds $MODEL, $SAMPLES, $NAME, $TRIGGER, $JOB_ID, $STEP, $MODEL_NAME and $MODEL_URL, empty
            where that is not known, and starts in `folder`. It is kept in a file there: no secrets. A try that runs
            longer than its time is stopped and seen gone. A hook with a url is sent like `register_model`.
        folder: the job's folder on the target.
        model: the path of the model there.
        about: name, trigger, job_id, step, model_name and model_url.
        env: more variables for the command, kept in no file; not shown in what is reported.
        on_progress: called with a line of plain text when there is something new.

    Returns:
        HookReport; `error` also where a person stopped it, which ends the tries.

    Raises:
        SettingsError: a path or variable that cannot be.
        CommandError: the target could not be asked: nothing is known, call again.
    """
    about = {**about, "model": model}
    if hook.command is None:
        return _post(hook, about, f"{about['job_id']}-samples", clock, on_progress=on_progress)
    variables = {**(env or {}), **_variables(about)}
    # The folder first: the first of each mark is then ours, whatever the paths are called.
    script = _SAMPLES.replace("FOLDER_PATH", quote_path(folder), 1).replace("MODEL_PATH", quote_path(model), 1)
    identity = (hook.command, folder, model, variables["JOB_ID"], variables["STEP"])
    secrets = [value for value in (env or {}).values() if len(value) >= 2 * _LEAST_MASKED]

    def tell(line: str) -> None:
        if on_progress:
            on_progress(_mask(line, secrets))

    way = Way(target, "default", transport, clock)
    tries = DetachedTries(way, "samples", identity, limit=hook.timeout, on_progress=tell)
    try:
        view = _run_tries(hook, tries, script + hook.command, variables)
    except CommandFailed as failure:
        return HookReport(False, tries.newest, _mask(str(failure), secrets))
    problem = _problem(view, hook)
    return HookReport(problem is None, tries.newest, problem, _mask(view.log_tail, secrets))


def _run_tries(hook: Hook, tries: DetachedTries, script: str, env: Mapping[str, str]) -> JobView:
    """The try that did it, or the last one; of one that failed nothing runs on."""
    view = tries.settle()
    while view is None or view.status is not JobStatus.SUCCEEDED:
        if view is not None and view.survivors:
            tries.stop()
        if view is not None and not (_may_try_again(view) and tries.newest < hook.attempts):
            break
        if view is not None:
            tries.back_off(min(tries.newest, 5), _problem(view, hook))
        view = tries.run(script, env)
    return view


def _may_try_again(view: JobView) -> bool:
    """Whether it failed, and not because a person stopped it."""
    return view.status is JobStatus.FAILED or ran_too_long(view)


def _problem(view: JobView, hook: Hook) -> str | None:
    if view.status is JobStatus.SUCCEEDED:
        return None
    if ran_too_long(view):
        return f"it still ran after {hook.timeout:g} s and was stopped"
    return f"it was {view.message}" if view.status is JobStatus.STOPPED else view.message or str(view.status)


def register_model(
    hook: Hook,
    about: Mapping[str, Any],
    *,
    job_id: str,
    on_progress: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] = os.environ,
) -> HookReport:
    """Tell a service that a model is there: by a POST, or by a command on this machine.

    A POST carries `Idempotency-Key: JOB_ID-register`. It is tried again, with a longer wait each time or as long as
    Retry-After says, when no answer comes and on 408, 409, 425, 429 and 5xx; another refusal ends the tries. A command
    is tried again whenever its exit status is not 0; it finds the variables of `make_samples` but SAMPLES, and all of
    `about` as JSON on its stdin.

    Args:
        hook: what is done.
        about: name, trigger, step, model (a path on this machine), model_name, model_url; None is not known.
        job_id: of the job, which is in `about` too.
        on_progress: is told in a line why it is tried again, and when.
        environ: completes the headers.

    Returns:
        HookReport. Neither the headers nor the query of the address are in it. attempts is 0 where nothing was tried:
        a header needs a variable that is not set, or the body needs what is not known.
    """
    about = {**about, "job_id": job_id}
    if hook.command is None:
        return _post(hook, about, f"{job_id}-register", clock, environ, on_progress=on_progress)
    return _run_here(hook, about, transport or LocalTransport(), clock, on_progress)


def _run_here(
    hook: Hook, about: Mapping[str, Any], runner: Transport, clock: Clock, on_progress: Callable[[str], None] | None
) -> HookReport:
    """`env` sets the variables: none of them is a secret, and so they may be in argv."""
    assert hook.command is not None
    settings = [f"{name}={value}" for name, value in _variables(about).items()]
    argv, told = ["env", *settings, "sh", "-c", "--", hook.command], json.dumps(about, default=str) + "\n"
    said, error = "", ""
    for attempt in range(1, hook.attempts + 1):
        try:
            result = runner.run(argv, timeout=hook.timeout, input=told)
            said = f"{result.stdout}\n{result.stderr}"
            if result.exit_code == 0:
                return HookReport(True, attempt, None, _mask(said, []))
            error = f"exit status {result.exit_code}"
        except CommandError as failure:
            said, error = "", failure.what
        if attempt < hook.attempts:
            _back_off(_wait(attempt), error, clock, on_progress)
    return HookReport(False, hook.attempts, error, _mask(said, []))


def _back_off(wait: float, why: str, clock: Clock, on_progress: Callable[[str], None] | None) -> None:
    """Tell why a try failed, which may show no secret, and wait before the next one."""
    if on_progress:
        on_progress(f"trying again in {wait:g} s: {_mask(why, [])}")
    clock.sleep(wait)


def _post(
    hook: Hook,
    about: Mapping[str, Any],
    key: str,
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
    *,
    on_progress: Callable[[str], None] | None = None,
) -> HookReport:
    assert hook.url is not None
    try:
        headers = resolve_env(dict(hook.headers), environ)
        body = dict(about) if hook.body is None else fill_in(hook.body, about)
    except SettingsError as error:
        return HookReport(False, 0, str(error))
    secrets = _secrets(hook.url, headers)
    sent = json.dumps(body, default=str).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": quote(key, safe=""), **headers}
    for attempt in range(1, hook.attempts + 1):
        try:
            answer = request("POST", hook.url, headers=headers, body=sent, timeout=hook.timeout)
            return HookReport(True, attempt, None, _mask(answer.body, secrets))
        except RestError as error:
            failure, wait = error, _wait(attempt) if error.retry_after is None else error.retry_after
        may_pass = failure.temporary or failure.status in _MAY_PASS
        if not may_pass or attempt == hook.attempts or wait > LONGEST_WAIT:
            break
        _back_off(wait, _mask(str(failure), secrets), clock, on_progress)
    return HookReport(False, attempt, _mask(str(failure), secrets))


def _wait(attempt: int) -> float:
    return min(BACK_OFF_SECONDS * 2.0 ** min(attempt - 1, 10), LONGEST_WAIT)


# ---------------------------------------------------------------- values


def fill_in(body: Any, about: Mapping[str, Any]) -> Any:
    """A copy of a JSON value with the placeholders of its texts filled in; all others, such as {seed}, stay.

    What is filled in is not looked at again, so a value may hold braces.

    Raises:
        SettingsError: a placeholder stands for what is not known.
    """

    def value(found: re.Match[str]) -> str:
        if about.get(found[1]) is None:
            raise SettingsError("body", found[0], "a placeholder of something that is known (was the model uploaded?)")
        return str(about[found[1]])

    if isinstance(body, str):
        return _PLACEHOLDER.sub(value, body)
    if isinstance(body, Mapping):
        return {key: fill_in(item, about) for key, item in body.items()}
    if isinstance(body, (list, tuple)):
        return [fill_in(item, about) for item in body]
    return body


def _variables(about: Mapping[str, Any]) -> dict[str, str]:
    """What a command gets to know; "" is not known. Raises SettingsError for what no variable can hold."""
    found = {name: "" if about.get(key) is None else str(about[key]) for name, key in _VARIABLES.items()}
    for name, value in found.items():
        if "\0" in value:
            raise SettingsError(_VARIABLES[name], value, "a text without NUL")
    return found


# ---------------------------------------------------------------- what may be shown


def _secrets(url: str, headers: Mapping[str, str]) -> list[str]:
    """The words of the headers and of the address's query that an answer may repeat."""
    words = [word for value in headers.values() for word in value.split() if word != "Bearer"]
    query = urlsplit(url).query
    parts = [query, *re.split(r"[&=]", query)]
    return [*words, *parts, *map(unquote, parts)]


def _mask(text: str, secrets: list[str]) -> str:
    """The last lines of a text without secrets and without what could steer a terminal."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST_MASKED:
            text = text.replace(secret, "***")
    if len(text) > _LOOKED_AT:
        text = text[-_LOOKED_AT:].partition("\n")[2]  # without what may be the end of a secret
    shown = last_lines(redact(text))
    return "".join(letter if letter.isprintable() else "?" for letter in shown)
