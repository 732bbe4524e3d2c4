"""Ray jobs, asked inside the head pod: the dashboard's REST first (0.02 s), the `ray` command where it fails (1 s).

The address is RAY_API_SERVER_ADDRESS, RAY_ADDRESS when it is http, else http://127.0.0.1:8265; with
RAY_AUTH_MODE=token the token travels on stdin of curl, never in argv. Sources: Ray 2.60 `dashboard_sdk.py`,
`/api/jobs/` and the recorded outputs under tests/recorded/ray.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from training_monitor.errors import CommandFailed, ParseError, RestError, SettingsError, TargetUnreachable, last_lines
from training_monitor.models import Answer, JobStatus, Question, RayJob, RayResources, Reply
from training_monitor.parse.ray_output import (
    Submission,
    parse_cluster_status,
    parse_ray_job,
    parse_ray_jobs,
    parse_ray_list_cli,
    parse_ray_resources,
    parse_ray_status_cli,
    parse_ray_submission,
)
from training_monitor.targets.asking import read_text
from training_monitor.watching import NotSeen

LOG_BYTES = 65536
ANSWER_SECONDS = 8
AGENT_SECONDS = 20  # the dashboard itself waits 10 s for its agent, and then says that there is none
RESOURCES = ("entrypoint_num_cpus", "entrypoint_num_gpus", "entrypoint_memory", "entrypoint_resources")
_LOCAL_FOLDER = re.compile(r"^(?![a-z0-9]+://)")

# `_rest METHOD PATH [CURL_BODY] [BODY]` prints the body and a last line `http CODE`; fails when nobody answered.
REST = r"""
_address=${RAY_API_SERVER_ADDRESS:-}
if [ -z "$_address" ]; then
  case ${RAY_ADDRESS:-} in http://*|https://*) _address=$RAY_ADDRESS;; *) _address=http://127.0.0.1:8265;; esac
fi
_address=${_address%/}
_token=
case ${RAY_AUTH_MODE:-token} in [Tt][Oo][Kk][Ee][Nn])
  _token=${RAY_AUTH_TOKEN:-$(cat "${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}" 2>/dev/null)};;
esac
_rest() {
  if command -v curl >/dev/null 2>&1; then
    {
      [ "$_token" ] && printf 'header = "Authorization: Bearer %s"\n' "$_token"
      [ "$3" ] && printf 'header = "Content-Type: application/json"\ndata-binary = "%s"\n' "$3"
    } | curl -sS -m $_seconds --noproxy '*' -X "$1" -K - -w '\nhttp %{http_code}\n' "$_address$2" 2>&1
  else
    TM_TOKEN=$_token TM_BODY=$4 python3 -c "$_python" "$1" "$_address$2" $_seconds 2>&1
  fi
}
_python='
import os, sys, urllib.error, urllib.request as r
body, token = os.environ["TM_BODY"].encode() or None, os.environ["TM_TOKEN"]
headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
try:
    with r.build_opener(r.ProxyHandler({})).open(
            r.Request(sys.argv[2], body, headers, method=sys.argv[1]), timeout=float(sys.argv[3])) as reply:
        text, code = reply.read().decode(), reply.status
except urllib.error.HTTPError as error:
    text, code = error.read().decode(), error.code
print(text, "http %d" % code, sep="\n")
'
"""


def _ask_rest(method: str, path: str, fallback: str, body: str = "", seconds: int = ANSWER_SECONDS) -> str:
    """A script: REST, or when nobody answers there in `seconds`, the line `cli` and what `fallback` prints."""
    escaped = body.replace("\\", "\\\\").replace('"', '\\"')
    call = f"_rest {method} {shlex.quote(path)} {shlex.quote(escaped)} {shlex.quote(body)}"
    script = f"if _out=$({call}); then printf '%s\\n' \"$_out\"; else {_ask_cli(fallback)}; fi\n"
    return f"{REST}_seconds={seconds}\n{script}"


def _ask_cli(command: str) -> str:
    return f"echo cli; {{ {command}; }} 2>&1; printf '\\nray exit %s\\n' $?"


def job_path(job_id: str) -> str:
    return f"/api/jobs/{quote(job_id, safe='')}"


def _http(reply: Reply) -> tuple[int | None, str]:
    """The HTTP status and body; status None when the text came from the `ray` command. Raises RestError for a 5xx."""
    status, body = _answer(reply)
    if status is not None and status >= 500:
        raise RestError(f"the Ray dashboard answered HTTP {status}: {body.strip()[-300:]}", status=status)
    return status, body


def _answer(reply: Reply) -> tuple[int | None, str]:
    """The same with any status but those that refuse access."""
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
            hint="set RAY_AUTH_TOKEN in the head pod, or RAY_AUTH_TOKEN_PATH",
        )
    return status, body


_NO_RAY = re.compile(
    r"ray: (command )?not found|Failed to connect to Ray|ConnectionError|Connection refused"
    r"|Could not find any running Ray instance|not a running Ray cluster",
    re.IGNORECASE,
)


def _check_cli(text: str) -> None:
    """Raise TargetUnreachable when the failed `ray` command says that it reached no Ray."""
    if found := _NO_RAY.search(text):
        raise TargetUnreachable(
            f"Ray does not answer: no dashboard, and the ray command says {found.group()!r}",
            hint="is this the head pod, and is Ray running there? Set RAY_API_SERVER_ADDRESS in it",
        )


def job_question(job_id: str) -> Question[RayJob | None]:
    """One Ray job; None when Ray says there is no such job."""

    def parse(reply: Reply) -> RayJob | None:
        status, body = _http(reply)
        if status == 404:
            return None
        if status is not None:
            return parse_ray_job(body)
        return parse_ray_status_cli(body, job_id)

    script = _ask_rest("GET", job_path(job_id), f"ray job status {shlex.quote(job_id)}")
    return Question("job", script, parse, limit=20.0)


def jobs_question() -> Question[tuple[RayJob, ...]]:
    """All submissions Ray remembers, newest last."""

    def parse(reply: Reply) -> tuple[RayJob, ...]:
        status, body = _http(reply)
        jobs = parse_ray_jobs(body) if status is not None else parse_ray_list_cli(body)
        return tuple(sorted(jobs, key=lambda job: job.start_time or 0.0))

    return Question("jobs", _ask_rest("GET", "/api/jobs/", "ray job list"), parse, limit=20.0)


# Its address is set, or it has a folder for its sessions and runs: `ray stop` leaves the folder behind.
_SIGNS = r"""
[ -z "${RAY_API_SERVER_ADDRESS:-}${RAY_ADDRESS:-}" ] || { echo there; exit; }
for _folder in "${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray" "${RAY_TMPDIR:-/tmp/ray}" /tmp/ray; do
  [ -e "$_folder/session_latest" ] || continue
  if grep -qsxE 'raylet|gcs_server' /proc/[0-9]*/comm; then echo there; exit; fi
done
echo none
"""


def signs_question() -> Question[bool]:
    """Whether anything on a target says that there is a Ray: where not, its silence means that it has no jobs."""
    return Question("signs of Ray", _SIGNS, lambda reply: reply.output.strip() != "none")


def why_not_listed(jobs: Answer[tuple[RayJob, ...]], signs: Answer[bool]) -> NotSeen | None:
    """Why the Ray jobs of a target are not known; None where they are, or where nothing is there to answer."""
    if jobs.failure is None or (isinstance(jobs.failure, TargetUnreachable) and signs.value is False):
        return None
    return NotSeen("Ray jobs", jobs.failure.what)


def log_expression(job_id: str) -> str:
    """The log file of a job's driver, where it is one of this pod, as a shell expression."""
    name = shlex.quote(f"job-driver-{job_id}.log".replace("/", "_"))
    folders = '"${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray" "${RAY_TMPDIR:-/tmp/ray}" /tmp/ray'
    return f'"$(for t in {folders}; do f=$t/session_latest/logs/{name}; [ -f "$f" ] && break; done; echo "$f")"'


def log_question(job_id: str, log_bytes: int = LOG_BYTES) -> Question[tuple[int | None, float | None, str]]:
    """(size, seconds since the last write, end of the log) of a job's driver; size and age None over REST."""
    script = f"""
f={log_expression(job_id)}
if [ -f "$f" ]; then
  set -- $(stat -c '%s %Y' "$f" 2>/dev/null); echo "file ${{1:--}} ${{2:--}} $(date +%s)"; tail -c {log_bytes} "$f"
else
  {_ask_rest("GET", job_path(job_id) + "/logs", f"ray job logs {shlex.quote(job_id)}")}
fi | tail -c {MAX_LOG_REPLY}
"""

    def parse(reply: Reply) -> tuple[int | None, float | None, str]:
        head, _, text = reply.output.partition("\n")
        if found := re.fullmatch(r"file (\d+|-) (\d+|-) (\d+)", head):
            size, written, now = (None if part == "-" else int(part) for part in found.groups())
            age = max(0.0, float(now - written)) if now is not None and written is not None else None
            return size, age, text
        status, body = _http(reply)
        if status is None and not reply.output.rstrip().endswith("\nray exit 0"):
            raise CommandFailed(f"ray job logs failed: {body.strip()[-300:]}")
        return None, None, (body if status is None else "" if status == 404 else _log_text(body))[-log_bytes:]

    return Question("log", script, parse, limit=20.0)


MAX_LOG_REPLY = 1_000_000


def _log_text(body: str) -> str:
    """The text in `{"logs": "..."}`, also when its beginning was cut off."""
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

    `resources` are what the entrypoint itself asks for, see RESOURCES.
    """
    if "/" in submission_id:  # Ray would keep the job as PENDING for ever: it cannot open the log file
        raise SettingsError("job_id", submission_id, "a name without '/'")
    spec = {
        "entrypoint": entrypoint,
        "submission_id": submission_id,
        "runtime_env": dict(runtime_env),
        "metadata": dict(metadata),
        **resources,
    }
    options = " ".join(
        f"--{name.replace('_', '-')} {shlex.quote(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in resources.items()
    )
    command = (
        f"printf '%s' {shlex.quote(json.dumps(dict(runtime_env)))} | "
        f"ray job submit --no-wait --submission-id {shlex.quote(submission_id)} "
        f"--metadata-json {shlex.quote(json.dumps(dict(metadata)))} "
        f"--runtime-env /dev/stdin {options} -- sh -c {shlex.quote(entrypoint)}"
    )

    def parse(reply: Reply) -> str:
        status, body = _answer(reply)
        outcome = parse_ray_submission(status, body)
        if outcome is Submission.REFUSED:
            raise CommandFailed(f"Ray did not accept the job: {body.strip()[-400:]}")
        if outcome is Submission.UNAVAILABLE:
            raise RestError(
                f"Ray takes no job at the moment: {last_lines(body, 1)}",
                status=status or 500,
                hint="again in some seconds: its agent starts, or does not answer (dashboard_agent.log)",
            )
        return "exists" if outcome is Submission.EXISTS else "submitted"

    folders = [
        value
        for value in (runtime_env.get("working_dir"), *runtime_env.get("py_modules", ()))
        if isinstance(value, str) and _LOCAL_FOLDER.match(value)
    ]
    script = _ask_rest("POST", "/api/jobs/", command, json.dumps(spec), AGENT_SECONDS)
    if folders:  # only Ray's own client packs and uploads folders of the head pod
        return Question("submit", _ask_cli(command), parse, limit=90.0)
    return Question("submit", script, parse, limit=90.0)


def stop_question(job_id: str) -> Question[list[str]]:
    """Ask Ray to stop a job (it sends TERM, then KILL after 3 s); nothing is known to be left, so look at it."""

    def parse(reply: Reply) -> list[str]:
        _http(reply)
        return []

    command = f"ray job stop --no-wait {shlex.quote(job_id)}"
    script = _ask_rest("POST", job_path(job_id) + "/stop", command, seconds=AGENT_SECONDS)
    return Question("stop", script, parse, limit=60.0)


# Where `ray` is older than its command kill-actor, its Python does the same.
_CANCEL = r"""
case ${RAY_ADDRESS:-} in http*) unset RAY_ADDRESS;; esac
ray kill-actor --force --no-restart --namespace SUPERVISOR_ACTOR_RAY_NAMESPACE --name ACTOR 2>&1 || python3 -c '
import sys, ray
ray.init("auto", log_to_driver=False)
ray.kill(ray.get_actor(sys.argv[1], namespace="SUPERVISOR_ACTOR_RAY_NAMESPACE"))
' ACTOR 2>&1
"""


def cancel_question(job_id: str) -> Question[str]:
    """End the actor that would start a job which still waits for resources; Ray then ends the job.

    Ray keeps a stop of such a job until it has the resources, then starts the entrypoint and ends it.
    """
    actor = shlex.quote(_actor_of(job_id))
    return Question("cancel", _CANCEL.replace("ACTOR ", f"{actor} "), read_text, limit=60.0)


def cancel_command(job_id: str) -> str:
    """What a person types in the head pod to the same end."""
    name = shlex.quote(_actor_of(job_id))
    return f"ray kill-actor --force --namespace SUPERVISOR_ACTOR_RAY_NAMESPACE --name {name}"


def _actor_of(job_id: str) -> str:
    return f"_ray_internal_job_actor_{job_id}"


def resources_question() -> Question[RayResources]:
    """Used and available GPUs and CPUs of the cluster, and what waits for them."""
    fallback = "case ${RAY_ADDRESS:-} in http*) unset RAY_ADDRESS;; esac; ray status"

    def parse(reply: Reply) -> RayResources:
        status, body = _http(reply)
        return parse_cluster_status(body) if status == 200 else parse_ray_resources(body)

    return Question("resources", _ask_rest("GET", "/api/cluster_status", fallback), parse, limit=20.0)


def is_active(job: RayJob) -> bool:
    return job.status in (JobStatus.PENDING, JobStatus.RUNNING)
