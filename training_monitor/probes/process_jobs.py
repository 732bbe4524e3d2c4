"""Process jobs: a plain command, started detached on a target, with a run directory of its own.

    $TRAINING_MONITOR_JOBS_DIR (default ~/.training_monitor/jobs)/NAME/
        starter      which question started it: the same one, asked again, has started it too
        command      what runs, as a sh script
        pid          process id, its start time in clock ticks, boot id: together its identity
        log          stdout and stderr
        exit_code    exit status and when, written at the end (into space set aside: the disk may be full by then)
        stopped      who stopped it, when somebody did
        *.new        what is not yet whole, and the space set aside for it: removed when the job has ended

The directory is made with mkdir, which can succeed once: starting a name twice adopts the first. All
processes of a job carry TRAINING_MONITOR_JOB in their environment, so that also those that left the
session are found when it is stopped.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence

from training_monitor.errors import AccessDenied, CommandFailed, JobExists, SettingsError
from training_monitor.models import JobView, Question, Reply
from training_monitor.parse.process_job import parse_fields, parse_process_job
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

PREFIX = "process:"
LOG_BYTES = 65536
STOP_GRACE_SECONDS = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# `_of PID` sets $_state and $_start from /proc/PID/stat (fields 3 and 22; the name in field 2 may hold anything,
# so the text is cut at its last parenthesis). `_alive` is true while the job's own process runs.
# `_members` prints the pids of all that belongs to the job: by environment, session, process group, or because they
# write its log (a process may have a session of its own and overwrite its environment with a title).
# `_tidy` removes what an ended job has not put in place.
READ_STAT = r"""
_of() {
  _state=; _start=
  read -r _line 2>/dev/null <"/proc/$1/stat" || return 1
  set -- ${_line##*) }
  _state=$1; _start=${20}
}
"""
JOBS_BASE = r"""
base=${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}
case $base in /*) ;; *) base=$PWD/$base ;; esac
"""
_LIBRARY = (
    READ_STAT
    + JOBS_BASE
    + r"""
dir=$base/JOB
_alive() {
  read -r pid start boot <"$dir/pid" || return 1
  read -r _boot </proc/sys/kernel/random/boot_id
  [ "$boot" = "$_boot" ] && _of "$pid" && [ "$_start" = "$start" ] && [ "$_state" != Z ]
} 2>/dev/null
_members() {
  pid=; start=; boot=; _boot=
  { read -r pid start boot <"$dir/pid"; read -r _boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
  [ "$boot" = "$_boot" ] || pid=
  [ "$pid" ] && _of "$pid" && [ "$_start" != "$start" ] && pid=
  {
    for f in $(grep -lsF "TRAINING_MONITOR_JOB=$dir/" /proc/[0-9]*/environ); do
      f=${f#/proc/}; echo "${f%/environ}"
    done
    _log=$(readlink -f "$dir/log") && ls -l /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 2>/dev/null | grep -F -- "-> $_log" |
      sed -n 's|.* /proc/\([0-9]*\)/fd/[12] -> .*|\1|p'
    [ "$pid" ] && cat /proc/[0-9]*/stat 2>/dev/null | while read -r _line; do
      set -- "${_line%% *}" ${_line##*) }
      [ "$2" != Z ] && { [ "$4" = "$pid" ] || [ "$5" = "$pid" ]; } && echo "$1"
    done
  } | sort -un
}
_tidy() { rm -f "$dir/pid.new" "$dir/exit_code.new" "$dir/stopped.new"; }
"""
)

# Runs as the leader of a session of its own. A handler, not ignoring, for TERM: children then get the default.
_WRAPPER = r"""
dir=$1
read -r line </proc/$$/stat; set -- ${line##*) }
read -r boot </proc/sys/kernel/random/boot_id
printf '%s %s %s\n' "$$" "${20}" "$boot" >"$dir/pid.new" && mv "$dir/pid.new" "$dir/pid" || exit 74
trap 'hit=1' TERM INT
sh "$dir/command" &
child=$!; code=127
while :; do
  hit=; wait $child; now=$?
  [ "$now" = 127 ] || code=$now
  [ "$hit" ] || break
done
[ "$now" = 127 ] && [ "$code" = 127 ] && code=$now
printf '%s %s\n' "$code" "$(date +%s)" 1<>"$dir/exit_code.new" && mv "$dir/exit_code.new" "$dir/exit_code" &&
  rm -f "$dir/stopped.new"
"""

_START = r"""
umask 077
cd -- WORKING_DIR 2>/dev/null || { echo "error=there is no working directory" WORKING_DIR; exit 0; }
mkdir -p "$base" || { echo "error=cannot make $base on the target"; exit 0; }
[ -d "$dir" ] || [ -z "$(_members)" ] || [ -d "$dir" ] || {
  echo "error=processes of it run, although $dir is not there"; exit 0
}
if mkdir "$dir" 2>/dev/null; then
  echo STARTER >"$dir/starter" && printf '%s\n' COMMAND >"$dir/command" &&
    printf '%200s\n' '' >"$dir/exit_code.new" && printf '%200s\n' '' >"$dir/stopped.new" || {
    rm -rf "$dir"; echo "error=cannot write to $dir (disk full?)"; exit 0
  }
  (
    unset LC_ALL TM_ASK; export TRAINING_MONITOR_JOB="$dir/"
    EXPORTS
    exec $(command -v setsid) sh -c WRAPPER training-job "$dir" </dev/null >>"$dir/log" 2>&1
  ) </dev/null >/dev/null 2>&1 &
else
  [ -d "$dir" ] || { echo "error=cannot make $dir on the target (disk full, or no permission)"; exit 0; }
  starter=; read -r starter 2>/dev/null <"$dir/starter"
  [ "$starter" = STARTER ] || { echo state=exists; exit 0; }
fi
n=0
until [ -s "$dir/pid" ] || [ $n -ge 100 ]; do sleep 0.05; n=$((n+1)); done
[ -s "$dir/pid" ] && echo state=started || echo "error=the job's process did not appear within 5 s"
"""

_LOOK = r"""
[ -d "$dir" ] || { [ "$(_members)" ] && echo state=hidden || echo state=missing; exit 0; }
if _alive || { [ -s "$dir/pid" ] && [ ! -s "$dir/exit_code" ] && _alive; }; then echo state=running
else
  read -r code ended 2>/dev/null <"$dir/exit_code"
  if [ "$code" ]; then echo state=exited; echo "exit_code=$code"; echo "ended=$ended"
  elif [ -s "$dir/pid" ]; then echo state=gone
  else echo state=starting; fi
  echo "members=$(_members | grep -c .)"
fi
read -r by 2>/dev/null <"$dir/stopped" && printf 'stopped_by=%s\n' "$by"
echo "now=$(date +%s)"
echo "started=$(stat -c %Y "$dir/command" 2>/dev/null || stat -c %Y "$dir" 2>/dev/null)"
set -- $(stat -c '%s %Y' "$dir/log" 2>/dev/null)
echo "log_size=$1"; echo "log_time=$2"
echo log
tail -c BYTES "$dir/log" 2>/dev/null
"""

_STOP = r"""
[ -d "$dir" ] || { echo state=missing; exit 0; }
[ -e "$dir/exit_code" ] || [ -e "$dir/stopped" ] || { [ -s "$dir/pid" ] && ! _alive; } || {
  printf '%s\n' BY 1<>"$dir/stopped.new" && mv "$dir/stopped.new" "$dir/stopped"
}
"""

# Ends what `_members` prints: TERM, KILL after a while, and says what is left.
STOP_MEMBERS = r"""
_up() { read -r _t _ </proc/uptime; echo "${_t%.*}${_t#*.}"; }
left=$(_members); wait=GRACE
for signal in TERM KILL; do
  end=$(($(_up) + wait)) wait=500; kill -$signal $left 2>/dev/null
  while [ "$left" ] && [ "$(_up)" -lt $end ]; do
    sleep 0.1; alive=
    for p in $left; do _of "$p" && [ "$_state" != Z ] && alive="$alive $p"; done
    [ "$alive" ] || { alive=$(_members); [ -z "$alive" ] || kill -$signal $alive 2>/dev/null; }
    left=$alive
  done
  left=$(_members)
done
echo state=stopped
for p in $left; do _of "$p" && echo "left=$p $_state"; done
"""

_TIDY_STOPPED = r"""
[ "$left" ] || [ ! -s "$dir/pid" ] || _alive || _tidy
"""

_WAIT = r"""
n=0
while _alive; do
  sleep 0.25; n=$((n+1))
  [ $((n % 40)) -ne 0 ] || echo waiting || exit
  [ $n -lt 14400 ] || exit
done
echo ended
"""


_JOBS = r"""
base=${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}
[ -e "$base" ] || exit 0
[ -d "$base" ] || { echo "$base is not a folder"; exit 1; }
ls -1t "$base" 2>&1
"""


def process_name(job_id: str) -> str:
    """The run directory's name of a `process:NAME` job. Raises SettingsError."""
    name = job_id.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise SettingsError("job", job_id, "process:NAME with letters, digits, '.', '_' and '-' in NAME")
    return name


def log_expression(job_id: str) -> str:
    """The log file of a process job as a shell expression."""
    return f'"${{TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}}"/{process_name(job_id)}/log'


def script_of(job_id: str, body: str, **parts: str) -> str:
    """A script with the functions above for a process job, whose run directory is $dir."""
    if parts:
        body = re.sub("|".join(parts), lambda found: parts[found.group()], body)
    return _LIBRARY.replace("JOB\n", shlex.quote(process_name(job_id)) + "\n", 1) + body


def look_question(job_id: str) -> Question[JobView | None]:
    """Status, exit status and the end of the log of a process job; None when there is no such job."""

    def parse(reply: Reply) -> JobView | None:
        return parse_process_job(reply.output, job_id)

    return Question("job", script_of(job_id, _LOOK, BYTES=str(LOG_BYTES)), parse)


def start_question(job_id: str, command: str, env: Mapping[str, str], working_dir: str | None) -> Question[str]:
    """Start the job unless its name is taken; the answer is `started`, also when asked again, or `exists`."""
    if bad := [name for name in env if not _VARIABLE.fullmatch(name)]:
        raise SettingsError("env", bad[0], "a variable name")
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())
    parts = {
        "COMMAND": shlex.quote(command),
        "WRAPPER": shlex.quote(_WRAPPER),
        "WORKING_DIR": shlex.quote(os.path.join(".", working_dir or "")),  # neither `cd -` nor CDPATH
        "EXPORTS": exports or ":",
        "STARTER": secrets.token_hex(8),
    }

    def parse(reply: Reply) -> str:
        fields, _ = parse_fields(reply.output)
        if "state" not in fields:
            raise CommandFailed(fields.get("error") or f"the job could not be started: {reply.output.strip()[:300]}")
        return fields["state"]

    return Question("start", script_of(job_id, _START, **parts), parse, limit=30.0)


def stop_question(job_id: str, by: str, grace: float) -> Question[list[str]]:
    """TERM to all of the job, KILL after `grace` seconds, look again: the answer lists what is still there."""

    def parse(reply: Reply) -> list[str]:
        fields, _ = parse_fields(reply.output)
        if "state" not in fields:
            raise CommandFailed(f"the job could not be stopped: {reply.output.strip()[:300]}")
        return re.findall(r"^left=(\d+ \w)$", reply.output, re.MULTILINE)

    parts = {"BY": shlex.quote(by), "GRACE": str(max(1, round(grace * 100)))}
    return Question("stop", script_of(job_id, _STOP + STOP_MEMBERS + _TIDY_STOPPED, **parts), parse, limit=grace + 30)


def wait_script(job_id: str) -> str:
    """A script that prints `ended` when the job's process is gone, `waiting` every 10 s, and leaves after an hour."""
    return script_of(job_id, _WAIT)


def members_script(job_id: str) -> str:
    """A script that prints the pids of all that belongs to the job."""
    return script_of(job_id, "_members")


def jobs_question() -> Question[list[str]]:
    """The names of all process jobs of a target, newest first; none where no job was ever started."""

    def parse(reply: Reply) -> list[str]:
        if reply.exit_code != 0:
            raise AccessDenied(f"process jobs cannot be listed: {reply.output.strip()[-300:]}")
        return reply.output.split()

    return Question("jobs", _JOBS, parse)


def start_process_job(
    target: str | Target,
    command: str | Sequence[str],
    name: str,
    env: Mapping[str, str] | None = None,
    working_dir: str | None = None,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> str:
    """Start a command detached on a target; it goes on when this process or the connection ends.

    Args:
        command: a shell command line, or a list of words (quoted here).
        name: letters, digits, `.`, `_`, `-`; one name starts once.
        env: added to the target's environment; kept in no file and in no argv.
        working_dir: a folder on the target; default: where a shell starts there (this folder for `local`).

    Returns:
        The job id, `process:NAME`.

    Raises:
        JobExists: the name is taken.
        CommandError: it could not be asked, or not be started.
    """
    job_id = PREFIX + process_name(name)
    line = command if isinstance(command, str) else shlex.join(command)
    [answer] = ask(
        target, start_question(job_id, line, env or {}, working_dir), namespace=namespace, transport=transport
    )
    if answer.get() == "exists":
        raise JobExists(f"{target}: there is already a job {job_id}", hint="another name, or stop and use it as it is")
    return job_id
