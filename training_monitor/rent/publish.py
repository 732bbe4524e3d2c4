"""Publish a trained model: make test images on its machine, and register it with a service.

Both are a `Hook`: a command, or a POST. It is unknown whether an unanswered request was received, or how far a killed
caller had come, so a hook runs at least once: a command must be idempotent, and all tries of one job's POST carry the
same Idempotency-Key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import CommandError, CommandFailed, RestError, SettingsError, last_lines
from training_monitor.core.masking import MASK, secrets_of
from training_monitor.core.models import JobStatus, JobView
from training_monitor.core.regex import regex
from training_monitor.core.rest import request
from training_monitor.core.shown import shown
from training_monitor.targets.asking import Site, quote_path
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import Target
from training_monitor.targets.transport import LocalTransport, Transport
from training_monitor.uploads.detached import BACK_OFF_SECONDS, DetachedTries, ran_too_long
from training_monitor.vast.training_request import Hook, resolve_env

LONGEST_WAIT = 120.0  # between two tries, while the rented machine costs money
_MAY_PASS = (408, 409, 425)  # temporary statuses besides those of RestError
_KNOWN = ("name", "trigger", "job_id", "step", "model", "model_name", "model_url")
_PLACEHOLDER = regex(rf"\{{({'|'.join(_KNOWN)})\}}")
_LOOKED_AT = 20_000  # characters at the end of an output that are shown
_LEAST_MASKED = 4  # characters; masking shorter ones would garble the text
_Tried = tuple[str, str | None, float | None]  # the output, why it failed, and how long to wait if a retry may help


@dataclass(frozen=True, slots=True)
class HookReport:
    """The result of a hook: how many tries it took, why it failed, and the last lines of its output or reply."""

    ok: bool
    attempts: int
    error: str | None = None
    said: str = field(default="", repr=False)


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
    """Make samples with a model on the target, in `folder`/samples.

    The command runs there as a process job with a name derived from its inputs. It outlives this process and the
    connection; a repeated call, also after a crash, waits for the running one. The tries of all calls count together:
    after a success or the last try nothing is run again.

    Args:
        hook: its command gets $MODEL, $SAMPLES, $NAME, $TRIGGER, $JOB_ID, $STEP, $MODEL_NAME and $MODEL_URL, empty if
            unknown, and starts in `folder`. It is kept in a file there: no secrets. A try that exceeds its timeout is
            stopped and verified to be gone. A hook with a url is sent like `register_model`.
        folder: the job's folder on the target.
        model: the path of the model there.
        about: name, trigger, job_id, step, model_name and model_url.
        env: more variables for the command, kept in no file; those with a secret's name are masked.
        on_progress: called with a line of plain text when there is something new.

    Returns:
        HookReport; also with an `error` where a person stopped the command, which ends the tries.

    Raises:
        SettingsError: an invalid path or variable.
        CommandError: the target could not be asked: the result is unknown, call again.
    """
    about = {**about, "model": model}
    if hook.command is None:
        return _post(hook, about, f"{about['job_id']}-samples", clock, on_progress=on_progress)
    variables = {**(env or {}), **_variables(about)}
    script = format_call("samples", "_enter", _folder=quote_path(folder), _model=quote_path(model))
    identity = (hook.command, folder, model, variables["JOB_ID"], variables["STEP"])
    secrets = secrets_of(env or {})

    def tell(line: str) -> None:
        if on_progress:
            on_progress(_mask(line, secrets))

    site = Site.of(target, transport=transport, clock=clock)
    tries = DetachedTries(site, "samples", identity, limit=hook.timeout, on_progress=tell)
    try:
        view = _run_tries(hook, tries, script + hook.command, variables)
    except CommandFailed as failure:
        return HookReport(False, tries.newest, _mask(str(failure), secrets))
    problem = _problem(view, hook)
    return HookReport(problem is None, tries.newest, problem, _mask(view.log_tail, secrets))


def _run_tries(hook: Hook, tries: DetachedTries, script: str, env: Mapping[str, str]) -> JobView:
    """Return the first successful try, or the last one; no processes of a failed try are left running."""
    view = tries.settle()
    while view is None or view.status is not JobStatus.SUCCEEDED:
        if view is not None:
            if view.survivors:
                tries.stop()
            has_failed = view.status is JobStatus.FAILED or ran_too_long(view)  # and was not stopped by a person
            if not has_failed or tries.newest >= hook.attempts:
                break
            tries.back_off(min(tries.newest, 5), _problem(view, hook))
        view = tries.run(script, env)
    return view


def _problem(view: JobView, hook: Hook) -> str | None:
    if view.status is JobStatus.SUCCEEDED:
        return None
    if ran_too_long(view):
        return f"it was still running after {hook.timeout:g} s and was stopped"
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
    """Register a model with a service: by a POST, or by a command on this machine.

    A POST carries `Idempotency-Key: JOB_ID-register`. It is retried, with exponential backoff or as Retry-After says,
    without an answer and on 408, 409, 425, 429 and 5xx; any other error status is final. A command is retried whenever
    its exit code is not 0; it gets the variables of `make_samples` except SAMPLES, and all of `about` as JSON on
    stdin.

    Args:
        hook: the command or POST.
        about: name, trigger, step, model (a path on this machine), model_name, model_url; None: unknown.
        job_id: the job's id, which is added to `about`.
        on_progress: called with a line of why it is retried, and when.
        environ: completes the headers.

    Returns:
        HookReport, without the headers and the query of the url. attempts is 0 where nothing was tried: a header needs
        a variable that is not set, or the body needs an unknown value.
    """
    about = {**about, "job_id": job_id}
    if hook.command is None:
        return _post(hook, about, f"{job_id}-register", clock, environ, on_progress=on_progress)
    return _run_here(hook, about, transport or LocalTransport(), clock, on_progress)


def _run_here(
    hook: Hook, about: Mapping[str, Any], runner: Transport, clock: Clock, on_progress: Callable[[str], None] | None
) -> HookReport:
    """Run the hook's command on this machine. `env` sets the variables: none is a secret, so they may be in argv."""
    assert hook.command is not None
    settings = [f"{name}={value}" for name, value in _variables(about).items()]
    argv, told = ["env", *settings, "sh", "-c", "--", hook.command], json.dumps(about, default=str) + "\n"

    def once(attempt: int) -> _Tried:
        try:
            result = runner.run(argv, timeout=hook.timeout, input=told)
        except CommandError as error:
            return "", error.what, _wait(attempt)
        said, failed = f"{result.stdout}\n{result.stderr}", result.exit_code != 0
        return said, f"exit code {result.exit_code}" if failed else None, _wait(attempt)

    return _try(once, hook.attempts, [], clock, on_progress)


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
    url = hook.url
    try:
        headers = resolve_env(dict(hook.headers), environ)
        body = dict(about) if hook.body is None else fill_in(hook.body, about)
    except SettingsError as error:
        return HookReport(False, 0, str(error))
    secrets = _secrets(url, headers)
    sent = json.dumps(body, default=str).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": quote(key, safe=""), **headers}

    def once(attempt: int) -> _Tried:
        try:
            return request("POST", url, headers=headers, body=sent, timeout=hook.timeout).body, None, None
        except RestError as error:
            wait = _wait(attempt) if error.retry_after is None else error.retry_after
            return "", str(error), wait if error.temporary or error.status in _MAY_PASS else None

    return _try(once, hook.attempts, secrets, clock, on_progress)


def _try(
    once: Callable[[int], _Tried],
    attempts: int,
    secrets: list[str],
    clock: Clock,
    on_progress: Callable[[str], None] | None,
) -> HookReport:
    """Try until it works, a retry would not help or would have to wait too long, or all attempts are used up."""
    for attempt in range(1, attempts + 1):
        said, error, wait = once(attempt)
        if error is None or wait is None or wait > LONGEST_WAIT or attempt == attempts:
            break
        if on_progress:
            on_progress(f"trying again in {wait:g} s: {_mask(error, secrets)}")
        clock.sleep(wait)
    return HookReport(error is None, attempt, None if error is None else _mask(error, secrets), _mask(said, secrets))


def _wait(attempt: int) -> float:
    return min(BACK_OFF_SECONDS * 2.0 ** min(attempt - 1, 10), LONGEST_WAIT)


# ---------------------------------------------------------------- values


def fill_in(body: Any, about: Mapping[str, Any]) -> Any:
    """Return a copy of a JSON value with the placeholders in its texts filled in; others, such as {seed}, stay.

    Inserted values are not expanded again, so they may contain braces.

    Raises:
        SettingsError: the value for a placeholder is unknown.
    """

    def value(found: re.Match[str]) -> str:
        if about.get(found[1]) is None:
            raise SettingsError("body", found[0], "a placeholder whose value is known (was the model uploaded?)")
        return str(about[found[1]])

    if isinstance(body, str):
        return _PLACEHOLDER.sub(value, body)
    if isinstance(body, Mapping):
        return {key: fill_in(item, about) for key, item in body.items()}
    if isinstance(body, (list, tuple)):
        return [fill_in(item, about) for item in body]
    return body


def _variables(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables for a command; "" is unknown. Raises SettingsError for a value with a NUL."""
    found = {key: "" if about.get(key) is None else str(about[key]) for key in _KNOWN}
    for key, value in found.items():
        if "\0" in value:
            raise SettingsError(key, value, "text without NUL bytes")
    return {key.upper(): value for key, value in found.items()}


# ---------------------------------------------------------------- masking


def _secrets(url: str, headers: Mapping[str, str]) -> list[str]:
    """Return the parts of the headers and of the url's query that a reply might repeat."""
    words = [word for value in headers.values() for word in value.split() if word != "Bearer"]
    query = urlsplit(url).query
    parts = [query, *re.split(r"[&=]", query)]
    return [*words, *parts, *map(unquote, parts)]


def _mask(text: str, secrets: list[str]) -> str:
    """Return what is shown of the last lines of a text, with secrets masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST_MASKED:
            text = text.replace(secret, MASK)
    if len(text) > _LOOKED_AT:
        text = text[-_LOOKED_AT:].partition("\n")[2]  # a cut first line may hold the end of a secret
    return shown(last_lines(text))
