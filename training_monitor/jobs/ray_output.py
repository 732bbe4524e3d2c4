"""Parse what Ray reports about jobs and resources: the dashboard's REST answers and the `ray` command's text. Pure.

Measured with Ray 2.60.0 (tests/recorded/ray/2.60.0). The command prints colours even into a pipe, prefixes its lines
with a date and `cli.py:67 -- `, and prints log text of the job after `Status message:`, where any status word may
occur.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any

from training_monitor.core.errors import ParseError
from training_monitor.core.models import JobStatus, RayJob, RayResources
from training_monitor.core.records import table_in, tables_in
from training_monitor.core.regex import regex
from training_monitor.logs.text import strip_ansi

if TYPE_CHECKING:
    import ast

_Amounts = tuple["float | None", "float | None"]

REST, CLI = "ray rest", "ray cli"

_CLI_PREFIX = regex(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\t?\s?[A-Z]{3,8} [\w.]{1,40}:\d{1,6} -- ")
_EXIT_CODE = regex(r"exit code (-?\d{1,5})")
_VERDICTS = {"succeeded": JobStatus.SUCCEEDED, "failed": JobStatus.FAILED, "was stopped": JobStatus.STOPPED}
_MESSAGE = "Status message: "
_LIST_START = regex(r"(?:^|-- )(?=\[(?:JobDetails\(|\]))", re.MULTILINE)
_LIST_PART = regex(
    r"'(?:[^'\\]|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|<\w{1,40}\.(?P<enum>\w{1,40}): '\w{0,40}'>"
    r"|(?P<open>[\[({])|(?P<close>[\])}])",
    re.DOTALL,
)
_AGENT_STATUS = regex(r"Request failed with status code (\d{3})")
# Ray 2.60's message for a job whose actor was killed while it waited for resources; Ray has no status for that.
_CANCELLED = regex(r"Job supervisor actor died: .{0,2000}\bnever ran - it was cancelled before", re.DOTALL)
_USAGE = regex(r"^ {0,8}(?:Total )?Usage:\s*$")
_DEMANDS = regex(r"^ {0,8}(?:Pending |Total )?Demands:\s*$")
_FAILURES = regex(r"^ {0,8}Recent failures:\s*$")
_NO_NODE = "no node has reported its resources yet: Ray has just started"
_TASKS = regex(r"\{(.{1,2000})\}: \d{1,9}\+? pending tasks/actors(?: \(.{0,80}\))?")
_AMOUNT = regex(r"'([^']{1,200})': ([\d.e+]{1,40})")
_RESOURCE = regex(
    r"^\s+([^\s/]{1,40})/([^\s/]{1,40}) (GPU|CPU)(?: \(([\d.e+]{1,40}) used of ([\d.e+]{1,40}) reserved|\s|$)"
)


# ---------------------------------------------------------------- one job, many jobs, over REST


def parse_ray_job(text: str) -> RayJob:
    """Parse `GET /api/jobs/<id>`.

    Args:
        text: the JSON body; times in it are milliseconds.

    Returns:
        RayJob with times in epoch seconds; an unknown status word is JobStatus.UNKNOWN.

    Raises:
        ParseError: the text is not JSON, or contains no job.
    """
    found = _json(text)
    if not isinstance(found, dict) or not _job_id(found):
        raise ParseError("no job in the reply", source=REST, text=text)
    return _job(found)


def parse_ray_jobs(text: str) -> tuple[RayJob, ...]:
    """Parse `GET /api/jobs/`: every submission; drivers that were not submitted have no id and are left out.

    Raises:
        ParseError: the text is not a JSON list.
    """
    found = _json(text)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ParseError("no list of jobs in the reply", source=REST, text=text)
    return tuple(_job(entry) for entry in found if entry.get("submission_id"))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("not JSON", source=REST, text=text) from error


def _job_id(entry: Mapping[str, Any]) -> str:
    return str(entry.get("submission_id") or entry.get("job_id") or "")


def _job(entry: Mapping[str, Any]) -> RayJob:
    metadata, runtime_env = entry.get("metadata"), entry.get("runtime_env")
    status, message = _cancelled(_status(entry.get("status")), _text(entry.get("message")))
    return RayJob(
        submission_id=_job_id(entry),
        status=status,
        message=message,
        entrypoint=_text(entry.get("entrypoint")),
        runtime_env=dict(runtime_env) if isinstance(runtime_env, dict) else {},
        metadata={str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {},
        exit_code=_whole(entry.get("driver_exit_code")),
        start_time=_seconds(entry.get("start_time")),
    )


def _status(word: Any) -> JobStatus:
    try:
        return JobStatus(str(word))
    except ValueError:
        return JobStatus.UNKNOWN


def _cancelled(status: JobStatus, message: str | None) -> tuple[JobStatus, str | None]:
    """Return STOPPED for a job cancelled before it ran, which Ray reports as FAILED; others unchanged."""
    if status is JobStatus.FAILED and message and _CANCELLED.match(message):
        return JobStatus.STOPPED, "cancelled before it started"
    return status, message


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(milliseconds: Any) -> float | None:
    number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if number and 0 < milliseconds < 1e18 else None


# ---------------------------------------------------------------- the ray job commands


def parse_ray_status_cli(text: str, job_id: str) -> RayJob | None:
    """Parse `ray job status ID`, stdout and stderr together.

    The first verdict on this id counts; everything after `Status message:` is the job's own text and is ignored.

    Returns:
        RayJob with status, message and, for a failed entrypoint, its exit code; None if Ray has no such job.

    Raises:
        ParseError: neither was found, for example without a connection.
    """
    lines = strip_ansi(text).splitlines()
    quoted = re.escape(job_id)
    verdict = re.compile(rf"Job '{quoted}' (succeeded|failed|was stopped)|Status for job '{quoted}': ([A-Z_]+)")
    missing = re.compile(rf"Job {quoted} does not exist\.?$")
    for number, line in enumerate(lines):
        plain = _CLI_PREFIX.sub("", line).strip()
        found = verdict.fullmatch(plain)
        if found:
            status = _VERDICTS[found[1]] if found[1] else _status(found[2])
            status, message = _cancelled(status, _status_message(lines[number + 1 :]))
            code = _EXIT_CODE.search((message or "").partition("\n")[0])
            return RayJob(job_id, status, message, exit_code=int(code[1]) if code and status.is_terminal else None)
        gone = missing.search(plain)
        if gone and (
            gone.start() == 0 or ("status code 404" in plain and plain[gone.start() - 2 : gone.start()] == ": ")
        ):
            return None
        if plain.startswith(_MESSAGE):
            break
    raise ParseError(f"Ray returned no status for job {job_id}", source=CLI, text=text)


def _status_message(lines: list[str]) -> str | None:
    """Return the text after `Status message:` up to the end of the output; for a failed job it has many lines."""
    for number, line in enumerate(lines):
        plain = _CLI_PREFIX.sub("", line)
        if plain.startswith(_MESSAGE):
            return "\n".join([plain.removeprefix(_MESSAGE), *lines[number + 1 :]]).strip()
    return None


def parse_ray_list_cli(text: str) -> tuple[RayJob, ...]:
    """Parse `ray job list`: a Python list of `JobDetails(...)`, with quoted commands and log text.

    Raises:
        ParseError: the text contains no such list.
    """
    import ast

    plain = strip_ansi(text)
    start = _LIST_START.search(plain)
    if not start:
        raise ParseError("no list of jobs in the output", source=CLI, text=text)
    try:
        listed = ast.parse("".join(_as_literals(plain, start.end())), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError("the list of jobs is truncated or malformed", source=CLI, text=text) from error
    if not isinstance(listed, ast.List):
        raise ParseError("no list of jobs in the output", source=CLI, text=text)
    entries = [_keywords(call) for call in listed.elts if isinstance(call, ast.Call)]
    return tuple(_job(entry) for entry in entries if entry.get("submission_id"))


def _as_literals(text: str, start: int) -> Iterator[str]:
    """Yield the list's text with `<JobStatus.FAILED: 'FAILED'>` as strings, up to its closing bracket."""
    depth, copied = 0, start
    for part in _LIST_PART.finditer(text, start):
        depth += bool(part["open"]) - bool(part["close"])
        if part["enum"]:
            yield text[copied : part.start()] + repr(part["enum"])
            copied = part.end()
        if depth == 0:
            yield text[copied : part.end()]
            return
    yield text[copied:]


def _keywords(call: ast.Call) -> dict[str, Any]:
    import ast

    values = {}
    for keyword in call.keywords:
        try:
            values[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError):
            continue  # driver_info=DriverInfo(...): not needed
    return values


def parse_ray_submit(text: str) -> str | None:
    """Return the submission id in `ray job submit`'s output; None if unconfirmed. Its exit code confirms nothing."""
    return _between(strip_ansi(text), "Job '", "' submitted successfully")


def is_already_exists(text: str) -> bool:
    """Whether Ray refused a submission because its id is taken: the job exists already."""
    return _between(strip_ansi(text), "Job with submission_id ", " already exists") is not None


class Submission(Enum):
    """The result of submitting a job."""

    TAKEN = "taken"
    EXISTS = "exists"  # the id is taken: the job exists already
    REFUSED = "refused"  # a retry would be refused too
    UNAVAILABLE = "unavailable"  # Ray accepts no job at the moment: the result is unknown


def parse_ray_submission(status: int | None, text: str) -> Submission:
    """Parse the answer to `POST /api/jobs/`, or the output of `ray job submit` (status None).

    The dashboard answers 500 both if its agent refused the job, whose own status is then quoted, and if there is no
    agent: for some seconds after Ray's start, and after the agent died.
    """
    if is_already_exists(text):
        return Submission.EXISTS
    if status == 200 or (status is None and parse_ray_submit(text)):
        return Submission.TAKEN
    quoted = _AGENT_STATUS.findall(text)
    said = int(quoted[-1]) if quoted else status
    return Submission.UNAVAILABLE if said is not None and said >= 500 else Submission.REFUSED


def _between(text: str, before: str, after: str) -> str | None:
    """Return the name (at most 300 characters, one line) between two texts, the second of which occurs once."""
    end = text.find(after)
    start = text.rfind(before, max(0, end - 300 - len(before)), end) if end >= 0 else -1
    name = text[start + len(before) : end] if start >= 0 else ""
    return name if name and "\n" not in name else None


# ---------------------------------------------------------------- resources


def parse_ray_resources(text: str) -> RayResources:
    """Parse the first usage block and the demands of `ray status`; the per-node blocks (`-v`) after it are ignored.

    Returns:
        RayResources: `*_available` is the cluster's total, `*_used` the part in use or reserved by a placement group;
        None for an amount that cannot be, such as the -1.0 in use of Ray's own counting. A resource missing from a
        complete block is 0.0: the cluster has none.

    Raises:
        ParseError: the text has no usage block, or an empty one (no node has joined yet).
    """
    lines = strip_ansi(text).splitlines()
    usage = _block(lines, _USAGE)
    if not usage:
        is_empty = any(_USAGE.match(line) for line in lines)
        raise ParseError(_NO_NODE if is_empty else "no usage block", source="ray status", text="" if is_empty else text)
    amounts: dict[str, _Amounts] = {}
    for line in usage:
        found = _RESOURCE.match(line)
        if found:
            used = found[1]
            with suppress(ValueError):  # Ray counts as used only what is used of a placement group
                used = str(round(float(used) + float(found[5]) - float(found[4]), 4)) if found[5] else used
            amounts.setdefault(found[3], _amounts((used, found[2])))
    demands = [line.strip() for line in _block(lines, _DEMANDS) if not line.strip().startswith("(")]
    of_tasks = (task for line in demands if (task := _TASKS.fullmatch(line)))
    failed = tuple(line.strip() for line in _block(lines, _FAILURES) if not line.strip().startswith("("))
    parsed = _resources(amounts, demands, [dict(_AMOUNT.findall(task[1])) for task in of_tasks])
    return replace(parsed, failed_nodes=failed)


def _block(lines: list[str], title: re.Pattern[str]) -> list[str]:
    """Return the indented lines below the first line that matches the title."""
    start = next((number + 1 for number, line in enumerate(lines) if title.match(line)), len(lines))
    end = next((number for number in range(start, len(lines)) if not lines[number].startswith(" ")), len(lines))
    return lines[start:end]


def parse_cluster_status(text: str) -> RayResources:
    """Parse `GET /api/cluster_status`: `data.clusterStatus.loadMetricsReport`, usage as [used, total] per resource.

    Raises:
        ParseError: the text is not JSON or has no load report (some Ray versions): ask `ray status` instead. Or the
            report has no resources: Ray has just started, and not even the head has reported its own.
    """
    reply = _json(text)
    status = table_in(table_in(reply, "data"), "clusterStatus") if isinstance(reply, dict) else {}
    report = table_in(status, "loadMetricsReport")
    usage = report.get("usage")
    if not isinstance(usage, dict):
        raise ParseError("no load metrics in the reply", source=REST, text=text)
    if not usage:
        raise ParseError(_NO_NODE, source=REST)
    amounts = {name: _amounts(usage[name]) for name in ("GPU", "CPU") if name in usage}
    demands = [
        *_demands(report.get("resourceDemand"), "tasks/actors"),
        *_demands(report.get("pgDemand"), "placement groups"),
    ]
    waiting = (each[0] for each in _pairs(report.get("resourceDemand")) if isinstance(each[0], dict))
    failed = tuple(_failed_nodes(table_in(status, "autoscalerReport")))
    found = _resources(amounts, demands, [*waiting])
    return replace(found, totals=_totals(report.get("nodeTypes")), failed_nodes=failed)


def _failed_nodes(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nodes that failed in the words of `ray status`: `worker: NodeTerminated (ip: 10.0.0.3)`."""
    for address, kind in _pairs(report.get("failedNodes")):
        yield f"{kind}: NodeTerminated (ip: {address})"
    kinds = table_in(table_in(report, "nodeAvailabilitySummary"), "nodeAvailabilities")
    for each in tables_in([*kinds.values()]):
        if why := table_in(each, "unavailableNodeInformation"):
            said = ": ".join(str(why[key]) for key in ("category", "description") if why.get(key))
            yield f"{each.get('nodeType')}: {said}"


def _totals(nodes: Any) -> dict[str, float] | None:
    """Return how much of each resource all nodes have, by `[[{"GPU": 4.0}, 2]]`; None if that is not said.

    The names in `usage` are not those that users give.
    """
    totals: dict[str, float] = {}
    for node, count in _pairs(nodes):
        for name, value in node.items() if isinstance(node, dict) else ():
            totals[str(name)] = totals.get(str(name), 0.0) + (read_amount(value) or 0.0) * (read_amount(count) or 0.0)
    return totals or None


def _pairs(entries: Any) -> list[list[Any]]:
    found = entries if isinstance(entries, list) else []
    return [each for each in found if isinstance(each, list) and len(each) == 2]


def _demands(entries: Any, what: str) -> Iterator[str]:
    """Format `[[{"GPU": 1.0}, 2]]` in the words of `ray status`: `{'GPU': 1.0}: 2+ pending tasks/actors`."""
    for entry in entries if isinstance(entries, list) else ():
        bundle, count = entry if isinstance(entry, list) and len(entry) == 2 else (entry, 1)
        if isinstance(bundle, dict) and isinstance(bundle.get("bundles"), list):
            groups = [group for group in bundle["bundles"] if isinstance(group, list) and len(group) == 2]
            parts = [f"{group[0]} * {group[1]}" for group in groups]
            bundle = f"{', '.join(parts) or bundle['bundles']} ({bundle.get('strategy', 'PACK')})"
        yield f"{bundle}: {count}+ pending {what}"


def _resources(amounts: Mapping[str, _Amounts], demands: list[str], waiting: list[Mapping[str, Any]]) -> RayResources:
    gpus, cpus = amounts.get("GPU", (0.0, 0.0)), amounts.get("CPU", (0.0, 0.0))
    return RayResources(
        gpus_used=gpus[0],
        gpus_available=gpus[1],
        cpus_used=cpus[0],
        cpus_available=cpus[1],
        pending_demands=tuple(demands),
        demands=tuple(waiting),
    )


def _amounts(values: Any) -> _Amounts:
    """Return used and total of one resource; None for what is no amount."""
    used, total = values if isinstance(values, (list, tuple)) and len(values) == 2 else (None, None)
    return read_amount(used), read_amount(total)


def read_amount(value: Any) -> float | None:
    """Return an amount of a resource; None for what is no amount."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < inf else None
