"""Ray's drivers and workers among the processes of a machine, without asking Ray, which may have forgotten them.

Measured with Ray 2.60: the submission id is in the environment of the entrypoint and what it starts. A worker that was
started in advance has `ffffffff` for its job there; only its stdout, a file named after its pid, begins with the job's
number (`:job_id:02000000`), and a driver has that number in the name of its own log, which it keeps open.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from training_monitor.errors import CommandFailed
from training_monitor.models import Question, Reply
from training_monitor.parse.process_job import parse_fields
from training_monitor.probes.claims import Guard, unguarded
from training_monitor.probes.process_jobs import LOG_BYTES, READ_STAT, STOP_GRACE_SECONDS, STOP_MEMBERS
from training_monitor.probes.ray_jobs import ANSWER_SECONDS, REST, job_path
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

# `_ray_workers` prints `PID NUMBER` for each worker that has a job; `_ray_number PID` the number of a driver's job.
RAY_PROCESSES = r"""
_ray_workers() {
  _newline='
'
  _files=$(ls -ln /proc/[0-9]*/fd/1 2>/dev/null |
    sed -n 's|.* -> \(/.*/worker-[0-9a-f]*-[0-9a-f]*-[0-9]*\.out\)$|\1|p')
  [ "$_files" ] || return 0
  (set -f; IFS=$_newline; head -c 4096 $_files /dev/null) |
    sed -n -e 's|^==> /.*-\([0-9]*\)\.out <==$|\1|p' -e 's|^:job_id:\([0-9a-f]\{8\}\)$|:\1|p' |
    while read -r _word; do case $_word in :*) echo "$_pid ${_word#:}";; *) _pid=$_word;; esac; done
}
_ray_number() {
  ls -ln "/proc/$1/fd" 2>/dev/null | sed -n 's|.*/python-core-driver-\([0-9a-f]\{8\}\)[0-9a-f]*_[0-9]*\.log$|\1|p'
}
"""

_OF_JOB = r"""
_id=ID
_files=$(grep -lsF -e "\"job_submission_id\": \"$_id\"" -e "\"job_submission_id\":\"$_id\"" /proc/[0-9]*/environ)
_numbers=' '
for _file in $_files; do
  _file=${_file#/proc/}; _pid=${_file%/environ}; echo "$_pid"
  for _number in $(_ray_number "$_pid"); do _numbers="$_numbers$_number "; done
done
[ "$_numbers" = ' ' ] || _ray_workers | while read -r _pid _number; do
  case $_numbers in *" $_number "*) echo "+$_pid";; esac
done
"""


def pids_of_ray_job(job_id: str) -> str:
    """A script that prints the pids of a Ray job's driver, and of its workers on the same machine with a `+`.

    Workers may have been started long before the job.
    """
    return RAY_PROCESSES + _OF_JOB.replace("ID\n", shlex.quote(job_id) + "\n", 1)


# `_find` sets $_pid and $_began of the job's entrypoint: of what carries its id, what started first. `_over` returns 0
# where Ray calls the job ended, 1 where not, 2 without an answer; any other `"status"` in it only delays the end.
_WAIT = r"""
_find() {
  _pid=
  for _file in $(grep -lsF -e "\"job_submission_id\": \"$_id\"" /proc/[0-9]*/environ); do
    _file=${_file#/proc/}; _file=${_file%/environ}
    _of "$_file" && [ "$_state" != Z ] || continue
    [ "$_pid" ] && [ "$_start" -ge "$_began" ] || { _pid=$_file; _began=$_start; }
  done
}
_over() {
  _out=$(_rest GET "$_path" '' '') || return 2
  case ${_out##*http } in 404) return 0;; 200) ;; *) return 2;; esac
  case $_out in *'"status": "PENDING"'*|*'"status": "RUNNING"'*) return 1;; esac
}
n=0 _silent=0; _find
while :; do
  if [ "$_pid" ] && _of "$_pid" && [ "$_start" = "$_began" ] && [ "$_state" != Z ]; then _silent=0
  else
    _over
    case $? in
      0) break;;
      1) _silent=0;;
      *) _silent=$((_silent+1)); [ "$_pid" ] && [ $_silent -ge 3 ] && break;;
    esac
    [ $((n % 10)) -ne 9 ] || _find
  fi
  sleep 1; n=$((n+1))
  [ $((n % 10)) -ne 0 ] || echo waiting || exit
  [ $n -lt 3600 ] || exit
done
echo ended
"""


def wait_script(job_id: str) -> str:
    """A script that prints `ended` when a Ray job is over, and `waiting` every 10 s; it leaves after an hour.

    It looks each second: at the entrypoint's process where that runs on this machine, which costs next to nothing, else
    (on another node, or not started yet) at what the dashboard says.
    """
    about = f"_id={shlex.quote(job_id)} _path={shlex.quote(job_path(job_id))} _seconds={ANSWER_SECONDS}"
    return f"{READ_STAT}{REST}{about}{_WAIT}"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was found of jobs that Ray does not know: how many processes were ended, which cannot be ended as
    `PID STATE`, the highest N of NAME-attempt-N that has a log (0: none), and the end of the last job's log."""

    ended: int
    left: tuple[str, ...]
    attempts: int
    log_tail: str


# Ray gives its session a new folder at each start, and keeps the old ones. A script is in the environment of the shell
# that runs it, so what is looked for must not stand in it as it is.
_END_FORGOTTEN = (
    READ_STAT
    + r"""
_key='"job_submission_id":'
_name=NAME _id=ID
_marks=$(
  for _each in "$_name-attempt-" "$_name\"" "$_id\""; do
    printf '%s"%s\n%s "%s\n' "$_key" "$_each" "$_key" "$_each"
  done
)
_members() {
  for _file in $(grep -lsF -e "$_marks" /proc/[0-9]*/environ); do
    _file=${_file#/proc/}; _file=${_file%/environ}
    _of "$_file" && [ "$_state" != Z ] && echo "$_file"
  done
}
echo "found=$(_members | grep -c .)"
"""
    + STOP_MEMBERS
    + r"""
_newest= _attempts=0
for _logs in "${RAY_TMPDIR:-${TMPDIR:-/tmp}}"/ray/session_*/logs "${RAY_TMPDIR:-/tmp/ray}"/session_*/logs; do
  _file=$_logs/LOG
  if [ -f "$_file" ] && { [ -z "$_newest" ] || [ "$_file" -nt "$_newest" ]; }; then _newest=$_file; fi
  for _file in "$_logs/job-driver-$_name-attempt-"*.log; do
    _file=${_file##*-attempt-}; _file=${_file%.log}
    case $_file in *[!0-9]* | ??????????*) ;; *) [ "$_file" -gt $_attempts ] && _attempts=$_file ;; esac
  done
done
echo "attempts=$_attempts"
echo log
[ -z "$_newest" ] || tail -c BYTES "$_newest"
"""
)


def end_forgotten_question(job_name: str, job_id: str | None, grace: float) -> Question[Forgotten]:
    """TERM to what runs of the jobs NAME, NAME-attempt-N and `job_id`, KILL after `grace` seconds, and look again.

    To be asked only when Ray knows none of them as running.
    """
    log = f"job-driver-{job_id or job_name}.log".replace("/", "_")
    parts = {
        "NAME": shlex.quote(job_name),
        "ID": shlex.quote(job_id or job_name),
        "GRACE": str(max(1, round(grace * 100))),
        "LOG": shlex.quote(log),
        "BYTES": str(LOG_BYTES),
    }
    script = re.sub(rf"\b(?:{'|'.join(parts)})\b", lambda found: parts[found.group()], _END_FORGOTTEN)

    def parse(reply: Reply) -> Forgotten:
        fields, text = parse_fields(reply.output)
        if "state" not in fields or not fields.get("found", "").isdigit():
            raise CommandFailed(f"what Ray forgot could not be looked for: {reply.output.strip()[:300]}")
        left = tuple(re.findall(r"^left=(\d+ \w)$", reply.output.partition("\nlog\n")[0], re.MULTILINE))
        attempts = fields.get("attempts", "")
        return Forgotten(int(fields["found"]) - len(left), left, int(attempts) if attempts.isdigit() else 0, text)

    return Question("forgotten", script, parse, limit=grace + 40)


def end_forgotten(
    target: str | Target,
    job_name: str,
    job_id: str | None,
    namespace: str = "default",
    *,
    guard: Guard = unguarded,
    transport: Transport | None = None,
) -> Forgotten:
    """End what runs on of the Ray jobs NAME-attempt-N and of `job_id` after Ray has forgotten them, and see it gone.

    Raises:
        CommandFailed: something of them cannot be ended. CommandError: it could not be asked.
        LeaseLost: `guard` says that it may not be done.
    """
    question = guard(end_forgotten_question(job_name, job_id, STOP_GRACE_SECONDS))
    [answer] = ask(target, question, namespace=namespace, transport=transport)
    found = answer.get()
    assert isinstance(found, Forgotten)
    if found.left:
        left = ", ".join(f"pid {each}" for each in found.left)
        raise CommandFailed(
            f"Ray has forgotten {job_name}, and not even SIGKILL ended {left}",
            target=str(target),
            hint="state D waits for a disk or driver: look at dmesg there",
        )
    return found
