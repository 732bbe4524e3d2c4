"""Holds: a person's word that a job is not to be started again, kept on the target beside the run directories.

A job that ended can no longer be stopped, and Ray does not tell who stopped one: the hold is what a supervisor,
wherever it runs, finds before it starts the next attempt.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable

from training_monitor.models import Question, Reply
from training_monitor.targets.asking import ask, read_text
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

_FOLDER = '"${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}"/.held'


def hold_question(job_id: str, by: str) -> Question[str]:
    """Write down that `by` wants no further attempt of this job."""
    file, words = f"{_FOLDER}/{hold_key(job_id)}", f"{shlex.quote(by)} {shlex.quote(job_id)}"
    script = f"umask 077; mkdir -p {_FOLDER} && printf '%s\\n' {words} >{file}.new && mv {file}.new {file}"
    return Question("hold", f"{{ {script}; }} 2>&1", read_text)


def unhold_question(job_ids: Iterable[str]) -> Question[str]:
    """Forget the holds of jobs that are gone."""
    files = " ".join(f"{_FOLDER}/{hold_key(each)}" for each in job_ids)
    return Question("unhold", f"rm -f {files} 2>&1", read_text)


def held_by(target: str | Target, job_id: str, *, transport: Transport | None = None) -> str | None:
    """Who wants no further attempt after this job; None when nobody said so. Raises CommandError."""
    file = f"{_FOLDER}/{hold_key(job_id)}"

    def parse(reply: Reply) -> str | None:
        return read_text(reply).strip() or None

    [answer] = ask(target, Question("held", f"[ ! -e {file} ] || head -n 1 {file}", parse), transport=transport)
    return answer.get()


def hold_key(job_id: str) -> str:
    """The name of the file that holds a job."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:32]
