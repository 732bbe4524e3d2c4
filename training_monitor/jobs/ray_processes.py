"""Find Ray's drivers and workers among a machine's processes, without asking Ray, which may have forgotten them.

Measured with Ray 2.60: the submission id is in the environment of the entrypoint and of what it starts. A prestarted
worker has `ffffffff` as its job there; only its stdout, a file named after its pid, begins with the job's number
(`:job_id:02000000`). A driver has that number in the name of its own log, which it keeps open.
"""

from __future__ import annotations

import re

from training_monitor.core.errors import CommandFailed
from training_monitor.core.frozen import dataclass
from training_monitor.core.models import Question, Reply
from training_monitor.jobs.claims import Guard, unguarded
from training_monitor.jobs.process_jobs import LOG_BYTES, STOP_GRACE_SECONDS, hundredths
from training_monitor.jobs.ray_jobs import ANSWER_SECONDS, job_path, log_name
from training_monitor.targets.asking import Site
from training_monitor.targets.replies import parse_fields
from training_monitor.targets.scripts import format_call


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
    log_tail: str


def end_forgotten_question(job_name: str, job_id: str | None, grace: float) -> Question[Forgotten]:
    """Send TERM to what runs of the jobs NAME, NAME-attempt-N and `job_id`, KILL after `grace` seconds, and look again.

    Only for jobs that Ray does not know as running.
    """
    script = format_call(
        "ray_forgotten",
        "end_forgotten",
        _job_name=job_name,
        _job=job_id or job_name,
        _log=log_name(job_id or job_name),
        _grace=hundredths(grace),
        _bytes=LOG_BYTES,
    )

    def parse(reply: Reply) -> Forgotten:
        fields, text = parse_fields(reply.output)
        if "state" not in fields or not fields.get("found", "").isdigit():
            raise CommandFailed(f"what Ray forgot could not be looked for: {reply.output.strip()[:300]}")
        left = tuple(re.findall(r"^left=(\d+ \w)$", reply.output.partition("\nlog\n")[0], re.MULTILINE))
        attempts = fields.get("attempts", "")
        return Forgotten(int(fields["found"]) - len(left), left, int(attempts) if attempts.isdigit() else 0, text)

    return Question("forgotten", script, parse, limit=grace + 40)


def end_forgotten(site: Site, job_name: str, job_id: str | None, *, guard: Guard = unguarded) -> Forgotten:
    """End the processes of the Ray jobs NAME-attempt-N and `job_id` after Ray has forgotten them, and verify it.

    Raises:
        CommandFailed: a process cannot be ended. CommandError: the target could not be asked.
        LeaseLost: `guard` forbids it.
    """
    found: Forgotten = site.ask_one(guard(end_forgotten_question(job_name, job_id, STOP_GRACE_SECONDS)))
    if found.left:
        left = ", ".join(f"pid {each}" for each in found.left)
        raise CommandFailed(
            f"Ray has forgotten {job_name}, and not even SIGKILL ended {left}",
            target=str(site),
            hint="state D waits for a disk or driver: look at dmesg there",
        )
    return found
