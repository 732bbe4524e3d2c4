"""Ask about Ray jobs inside the head pod: the dashboard's REST API first (0.02 s), else the `ray` command (1 s).

Drivers and workers are found among a machine's processes without asking Ray, which may have forgotten them. Measured
with Ray 2.60: the submission id is in the environment of the entrypoint and of what it starts. A prestarted worker has
`ffffffff` as its job there; only its stdout, a file named after its pid, begins with the job's number
(`:job_id:02000000`). A driver has that number in the name of its own log, which it keeps open.

The address is RAY_API_SERVER_ADDRESS, RAY_ADDRESS if it is http, else http://127.0.0.1:8265; with RAY_AUTH_MODE=token
the token is sent on curl's stdin, never in argv. Sources: Ray 2.60 `dashboard_sdk.py`, `/api/jobs/` and the recorded
outputs under tests/recorded/ray.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from training_monitor.core.errors import (
    CommandFailed,
    ParseError,
    RestError,
    SettingsError,
    TargetUnreachable,
    last_lines,
)
from training_monitor.core.masking import redact
from training_monitor.core.models import Answer, JobStatus, Question, RayJob, RayResources, Reply
from training_monitor.core.regex import regex
from training_monitor.core.units import seconds_since
from training_monitor.core.values import NotSeen
from training_monitor.jobs.claims import Guard, unguarded
from training_monitor.jobs.process_jobs import LOG_BYTES, STOP_GRACE_SECONDS, hundredths, not_ended, processes_left
from training_monitor.jobs.ray_output import (
    Submission,
    parse_cluster_status,
    parse_ray_job,
    parse_ray_jobs,
    parse_ray_list_cli,
    parse_ray_resources,
    parse_ray_status_cli,
    parse_ray_submission,
)
from training_monitor.targets.asking import Site, read_text
from training_monitor.targets.replies import parse_fields
from training_monitor.targets.scripts import format_call

ANSWER_SECONDS = 8
AGENT_SECONDS = 20  # the dashboard itself waits 10 s for its agent before it reports that there is none
RESOURCES = ("entrypoint_num_cpus", "entrypoint_num_gpus", "entrypoint_memory", "entrypoint_resources")
_LOCAL_FOLDER = regex(r"^(?![a-z0-9]+://)")
_NO_RAY = regex(
    r"ray: (command )?not found|Failed to connect to Ray|ConnectionError|Connection refused"
    r"|Could not find any running Ray instance|not a running Ray cluster",
    re.IGNORECASE,
)
_NO_SIGN = "no sign of Ray"
_KILLED = regex(r"\nray exit (?:1[3-9]\d|129)\s*$")  # by a signal
MAX_LOG_REPLY = 1_000_000
OWN_ID = "raysubmit_"  # how the ids begin that Ray makes up
LISTED = "Ray jobs"  # what of a target was not seen, where these could not be listed


def _ask_rest(method: str, path: str, *command: str, seconds: int = ANSWER_SECONDS) -> str:
    """Return a script that asks REST or, after `seconds` without answer, prints `cli` and the output of `command`."""
    return format_call("ray", "ask_rest", method, path, "", *command, _seconds=seconds)


def job_path(job_id: str) -> str:
    from urllib.parse import quote

    return f"/api/jobs/{quote(job_id, safe='')}"


def _http(reply: Reply) -> tuple[int | None, str]:
    """Return the HTTP status and body; status None for output of the `ray` command. Raises RestError for a 5xx."""
    status, body = _answer(reply)
    if status is not None and status >= 500:
        raise RestError(f"the Ray dashboard returned HTTP {status}: {body.strip()[-300:]}", status=status)
    return status, body


def _answer(reply: Reply) -> tuple[int | None, str]:
    """Do the same, but accept every status except those that refuse access."""
    body, _, last = reply.output.rstrip("\n").rpartition("\n")
    if ended := re.fullmatch(r"ray exit (\d+)", last):
        said = body.removeprefix("cli\n")
        if ended[1] != "0":
            _check_cli(said)
        return None, said
    if not re.fullmatch(r"http \d+", last):
        raise ParseError("no HTTP status in the reply", source="ray rest", text=reply.output)
    status = int(last[5:])
    if status in (401, 403):
        raise RestError(
            f"the Ray dashboard refused access (HTTP {status})",
            status=status,
            hint="set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH in the head pod",
        )
    return status, body


def _check_cli(text: str) -> None:
    """Raise TargetUnreachable if the failed `ray` command says that it reached no Ray, or was not asked."""
    hint = "check that this is the head pod and that Ray is running there, or set RAY_API_SERVER_ADDRESS in it"
    found = _NO_RAY.search(text)
    if found or text.strip() == _NO_SIGN:
        why = f"the ray command reports {found.group()!r}" if found else "no sign that Ray is running"
        has_no_ray = found is None or found.group().endswith("not found")
        hint += "; a job that is not Ray's is called process:NAME" if has_no_ray else ""
        error = TargetUnreachable(f"Ray does not respond: no dashboard, and {why}", hint=hint)
        error.has_no_ray = has_no_ray
        raise error


def job_question(job_id: str) -> Question[RayJob | None]:
    """Ask for one Ray job; None if Ray has no such job."""

    def parse(reply: Reply) -> RayJob | None:
        status, body = _http(reply)
        if status == 404:
            return None
        if status is not None:
            return parse_ray_job(body)
        return parse_ray_status_cli(body, job_id)

    script = _ask_rest("GET", job_path(job_id), "ray", "job", "status", job_id)
    return Question("job", script, parse, limit=20.0)


def jobs_question() -> Question[tuple[RayJob, ...]]:
    """Ask for all submissions that Ray remembers, newest last."""

    def parse(reply: Reply) -> tuple[RayJob, ...]:
        status, body = _http(reply)
        jobs = parse_ray_jobs(body) if status is not None else parse_ray_list_cli(body)
        return tuple(sorted(jobs, key=lambda job: job.start_time or 0.0))

    return Question("jobs", _ask_rest("GET", "/api/jobs/", "list_by_command"), parse, limit=20.0)


def signs_question() -> Question[bool]:
    """Ask whether anything on a target indicates Ray; if not, a missing answer means that there are no Ray jobs."""
    script = format_call("ray_signs", "show_signs")
    return Question("signs of Ray", script, lambda reply: reply.output.strip() != "none")


def why_not_listed(jobs: Answer[tuple[RayJob, ...]], signs: Answer[bool], named: str = "") -> NotSeen | None:
    """Return why the Ray jobs of a target are unknown; None if they are known, or there is no Ray.

    If the `named` job has an id of Ray's, there was a Ray: it may be down, or be starting again, which leaves no sign.
    """
    has_none = signs.value is False and not named.startswith(OWN_ID)
    if jobs.failure is None or (isinstance(jobs.failure, TargetUnreachable) and has_none):
        return None
    return NotSeen(LISTED, jobs.failure.what)


def log_name(job_id: str) -> str:
    """Return the name of a job driver's log in the log folder of a Ray session."""
    return f"job-driver-{job_id}.log".replace("/", "_")


def log_expression(job_id: str) -> str:
    """Return the log of a job's driver, if it is in this pod, as a shell expression."""
    return f'"$({format_call("ray_driver_log", "find_log", _log=log_name(job_id))})"'


def log_question(job_id: str, log_bytes: int = LOG_BYTES) -> Question[tuple[int | None, float | None, str]]:
    """Ask for (size, seconds since the last write, end of the log) of a job's driver; size and age None over REST."""
    script = format_call(
        "ray_log",
        "show_log",
        _seconds=ANSWER_SECONDS,
        _job=job_id,
        _path=job_path(job_id),
        _most_bytes=log_bytes,
        _most_reply=MAX_LOG_REPLY,
        _log=log_name(job_id),
    )

    def parse(reply: Reply) -> tuple[int | None, float | None, str]:
        head, _, text = reply.output.partition("\n")
        if found := re.fullmatch(r"file (\d+|-) (\d+|-) (\d+)", head):
            size, written, now = (None if part == "-" else int(part) for part in found.groups())
            return size, seconds_since(written, now), redact(text)
        status, body = _http(reply)
        if status is None and not reply.output.rstrip().endswith("\nray exit 0"):
            if _KILLED.search(reply.output):
                what = f"ray job logs was killed: {body.strip()[-300:]}"
                raise TargetUnreachable(what, hint="check that the ray command works in the head pod")
            raise CommandFailed(f"ray job logs failed: {body.strip()[-300:]}")
        text = body if status is None else "" if status == 404 else _log_text(body)
        return None, None, redact(text)[-log_bytes:]

    return Question("log", script, parse, limit=20.0)


def _log_text(body: str) -> str:
    """Return the text in `{"logs": "..."}`, even if its beginning was cut off."""
    try:
        return str(json.loads(body).get("logs") or "")
    except ValueError:
        pass
    try:
        return str(json.loads('{"logs": "' + body.partition("\\n")[2]).get("logs") or "")
    except ValueError:
        raise ParseError("the job's log is not readable", source="ray rest", text=body[-200:]) from None


def submit_question(
    submission_id: str,
    entrypoint: str,
    runtime_env: Mapping[str, Any],
    metadata: Mapping[str, str],
    resources: Mapping[str, Any],
) -> Question[str]:
    """Submit under our own id; the answer is `submitted` or `exists` (the same id: nothing was started).

    `resources` are those of the entrypoint itself, see RESOURCES.
    """
    if "/" in submission_id:  # Ray would keep the job PENDING forever, because it cannot open the log file
        raise SettingsError("job_id", submission_id, "a name without '/'")
    spec = {
        "entrypoint": entrypoint,
        "submission_id": submission_id,
        "runtime_env": dict(runtime_env),
        "metadata": dict(metadata),
        **resources,
    }
    options = ["--submission-id", submission_id, "--metadata-json", json.dumps(dict(metadata))]
    options += ["--runtime-env", "/dev/stdin"]
    for name, value in resources.items():
        options += [f"--{name.replace('_', '-')}", value if isinstance(value, str) else json.dumps(value)]
    command = ["submit_by_command", *options, "--", "sh", "-c", entrypoint]

    def parse(reply: Reply) -> str:
        status, body = _answer(reply)
        outcome = parse_ray_submission(status, body)
        if outcome is Submission.REFUSED:
            raise CommandFailed(f"Ray did not accept the job: {body.strip()[-400:]}")
        if outcome is Submission.UNAVAILABLE:
            raise RestError(
                f"Ray does not accept jobs at the moment: {last_lines(body, 1)}",
                status=status or 500,
                hint="retry in a few seconds: Ray's agent is starting or does not respond (see dashboard_agent.log)",
            )
        return "exists" if outcome is Submission.EXISTS else "submitted"

    folders = [
        value
        for value in (runtime_env.get("working_dir"), *runtime_env.get("py_modules", ()))
        if isinstance(value, str) and _LOCAL_FOLDER.match(value)
    ]
    # only Ray's own client packs and uploads folders of the head pod
    ask = ["ask_command"] if folders else ["ask_rest", "POST", "/api/jobs/", json.dumps(spec)]
    environment = json.dumps(dict(runtime_env))
    script = format_call("ray", *ask, *command, _seconds=AGENT_SECONDS, _environment=environment)
    return Question("submit", script, parse, limit=90.0)


def stop_question(job_id: str) -> Question[list[str]]:
    """Ask Ray to stop a job (TERM, then KILL after 3 s); Ray does not report what is left, so look at the job."""

    def parse(reply: Reply) -> list[str]:
        _http(reply)
        return []

    command = ["ray", "job", "stop", "--no-wait", job_id]
    script = _ask_rest("POST", job_path(job_id) + "/stop", *command, seconds=AGENT_SECONDS)
    return Question("stop", script, parse, limit=60.0)


def cancel_question(job_id: str) -> Question[str]:
    """Kill the actor that would start a job that still waits for resources; Ray then ends the job.

    On a plain stop of such a job, Ray waits until it has the resources, then starts the entrypoint and ends it.
    """
    script = format_call("ray_cancel", "kill_actor", _actor=actor_of(job_id))
    return Question("cancel", script, read_text, limit=60.0)


def cancel_command(job_id: str) -> str:
    """Return the command that a person types in the head pod for the same effect."""
    name = shlex.quote(actor_of(job_id))
    return f"ray kill-actor --force --namespace SUPERVISOR_ACTOR_RAY_NAMESPACE --name {name}"


def actor_of(job_id: str) -> str:
    """Return the name of the actor that starts a job."""
    return f"_ray_internal_job_actor_{job_id}"


def resources_question() -> Question[RayResources]:
    """Ask for the used and available GPUs and CPUs of the cluster, and the pending demands."""
    script = _ask_rest("GET", "/api/cluster_status", "show_cluster")
    return Question("resources", script, parse_resources, limit=20.0)


def parse_resources(reply: Reply) -> RayResources:
    """Parse what the dashboard or `ray status` said about the cluster."""
    status, body = _http(reply)
    return parse_cluster_status(body) if status == 200 else parse_ray_resources(body)


def is_active(job: RayJob) -> bool:
    return job.status in (JobStatus.PENDING, JobStatus.RUNNING)


# ---------------------------------------------------------------- processes


def pids_of_ray_job(job_id: str) -> str:
    """Return a script that prints the pids of a Ray job's driver, and of its workers on the same machine with a `+`."""
    return format_call("ray_members", "list_members", job=job_id)


def wait_script(job_id: str) -> str:
    """Return a script that prints `ended` when a Ray job is over, `waiting` every 10 s, and exits after an hour."""
    return format_call("ray_wait", "wait_for_end", _job=job_id, _path=job_path(job_id), _seconds=ANSWER_SECONDS)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was found of jobs that Ray does not know.

    `ended` counts the processes that were ended; `left` are those that cannot be ended, as `PID STATE`; `attempts` is
    the highest N of NAME-attempt-N with a log (0: none); `log_tail` is the end of the last job's log.
    """

    ended: int
    left: tuple[str, ...]
    attempts: int
    log_tail: str = field(repr=False)


class Driver(NamedTuple):
    """The oldest process of a Ray job, the shell of its entrypoint; `process` is its identity `PID START BOOT`."""

    job_id: str
    pid: int
    process: str


def _forgotten_script(function: str, job_name: str, job_id: str | None, grace: float = 0.0) -> str:
    return format_call(
        "ray_forgotten",
        function,
        _job_name=job_name,
        _job=job_id or job_name,
        _log=log_name(job_id or job_name),
        _grace=hundredths(grace),
        _bytes=LOG_BYTES,
    )


def drivers_question(job_name: str, job_id: str | None) -> Question[tuple[Driver, ...]]:
    """Ask for the drivers of the jobs NAME, NAME-attempt-N and `job_id` on a machine, whether Ray knows them or not."""

    def parse(reply: Reply) -> tuple[Driver, ...]:
        if not (found := re.fullmatch(r"boot=([\w-]{1,64})\n((?:\d{1,10} \d{1,19} .*\n)*)end\s*", reply.output)):
            raise ParseError("no list of drivers in the reply", source="ray drivers", text=reply.output)
        oldest: dict[str, tuple[int, int]] = {}
        for line in found[2].splitlines():
            pid, start, job = line.split(" ", 2)
            oldest[job] = min(oldest.get(job, (int(start), int(pid))), (int(start), int(pid)))
        return tuple(Driver(job, pid, f"{pid} {start} {found[1]}") for job, (start, pid) in oldest.items())

    return Question("drivers", _forgotten_script("show_forgotten", job_name, job_id), parse)


def end_forgotten_question(job_name: str, job_id: str | None, grace: float) -> Question[Forgotten]:
    """Send TERM to what runs of the jobs NAME, NAME-attempt-N and `job_id`, KILL after `grace` seconds, and look again.

    Only for jobs that Ray does not know as running.
    """
    script = _forgotten_script("end_forgotten", job_name, job_id, grace)

    def parse(reply: Reply) -> Forgotten:
        fields, text = parse_fields(reply.output)
        if "state" not in fields or not fields.get("found", "").isdigit():
            raise CommandFailed(f"could not search for jobs that Ray no longer lists: {reply.output.strip()[:300]}")
        left = tuple(processes_left(reply))
        attempts = fields.get("attempts", "")
        count = int(attempts) if attempts.isdigit() else 0
        return Forgotten(int(fields["found"]) - len(left), left, count, redact(text))

    return Question("forgotten", script, parse, limit=grace + 40)


def end_forgotten(site: Site, job_name: str, job_id: str | None, *, guard: Guard = unguarded) -> Forgotten:
    """End the processes of the Ray jobs NAME-attempt-N and `job_id` after Ray has forgotten them, and verify it.

    Raises:
        CommandFailed: a process cannot be ended. CommandError: the target could not be asked.
        LeaseLost: `guard` forbids it.
    """
    found: Forgotten = site.ask_one(guard(end_forgotten_question(job_name, job_id, STOP_GRACE_SECONDS)))
    if found.left:
        raise not_ended(f"Ray no longer lists {job_name}, and SIGKILL did not terminate", found.left, site)
    return found
