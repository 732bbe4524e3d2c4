"""The process behind a pid, a pid file, or a log file alone: whether it runs, and how it is ended with its children.

A pid is a process only together with its start time and the boot it belongs to: a pid that was given to another
process, after the file was written or since the last look, is not the one that is watched.

To it belong its descendants, and its session or process group where it leads them. What left both and whose parent is
gone cannot be told from others, and is left alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from training_monitor.errors import AccessDenied, CommandFailed, SettingsError
from training_monitor.models import Question, Reply
from training_monitor.parse.process_job import parse_fields
from training_monitor.probes.process_jobs import READ_STAT, STOP_MEMBERS
from training_monitor.targets.asking import quote_path

WRITTEN_SECONDS = 60  # a process that began so long after its pid file was written is another one


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid, its start in clock ticks since boot, and the boot's id; JSON-ready by `dataclasses.asdict`."""

    pid: int
    start: int
    boot: str


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One look: `running` is None when it cannot be told. `age` is seconds since it began, `pids` its processes.

    `command` is the beginning of its command line; `reason` says why it does not run, or why nobody knows.
    """

    running: bool | None
    identity: ProcessIdentity | None = None
    age: float | None = None
    pids: tuple[int, ...] = ()
    command: str | None = None
    reason: str | None = None


# `_age START` is how long ago a process began; nothing where a container shows its own uptime.
# `_family PIDS` prints the descendants of PIDS, and what is in the sessions and groups that one of PIDS leads.
_LIBRARY = (
    READ_STAT
    + r"""
read -r boot </proc/sys/kernel/random/boot_id
_same() { _of "$1" && [ "$_start" = "$2" ] && [ "$boot" = "$3" ] && [ "$_state" != Z ]; }
_age() {
  read -r _up _ </proc/uptime; _hz=$(getconf CLK_TCK 2>/dev/null || echo 100)
  _age=$((${_up%.*} - $1 / _hz)); [ $_age -lt 0 ] || echo $_age
}
_family() {
  _fields='s/^\([0-9]*\) .*) \([A-Z]\) \([0-9]*\) \([0-9]*\) \([0-9]*\) .*/\1 \2 \3 \4 \5/p'
  _all=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "$_fields")
  _in=" $* " _grown=1
  while [ "$_grown" ]; do
    _grown=
    while read -r _p _s _parent _group _session; do
      [ "$_s" != Z ] || continue
      case $_in in *" $_p "*) continue;; *" $_parent "* | *" $_group "* | *" $_session "*) ;; *) continue;; esac
      _in="$_in$_p " _grown=1
    done <<_END
$_all
_END
  done
  for _p in $_in; do echo "$_p"; done
}
"""
)

# What is known of it comes in as `was_pid was_start was_boot`, empty at the first look.
_FIND = r"""
_tell() {
  echo state=running; echo "pid=$1"; echo "start=$2"; echo "boot=$boot"; echo "age=$(_age "$2")"
  echo "command=$(head -c 120 "/proc/$1/cmdline" | tr '\0\n' '  ')"
  echo "pids=$(_family "$1" | tr '\n' ' ')"; exit 0
}
set -- WAS
was_pid=$1 was_start=$2 was_boot=$3
"""

# A file that is not there says nothing of a process that was seen before: many trainings remove theirs when they end.
_BY_PID_FILE = r"""
file=FILE
if [ -e "$file" ] && [ ! -r "$file" ]; then echo state=denied; exit 0; fi
pid=; [ -f "$file" ] && read -r pid _ <"$file" 2>/dev/null
case $pid in ''|*[!0-9]*|0|1) pid=;; esac # 1 is never a training
if [ -z "$pid" ]; then
  [ -e "$file" ] && reason="no pid of a training in it" || reason="no such file"
  [ "$was_pid" ] || { echo state=unknown; echo "reason=$reason"; exit 0; }
  pid=$was_pid
fi
_of "$pid" && [ "$_state" != Z ] || { echo state=gone; echo "reason=no process $pid"; exit 0; }
start=$_start
if [ "$pid" = "$was_pid" ]; then
  _same "$pid" "$was_start" "$was_boot" && _tell "$pid" "$start"
fi
written=$(stat -L -c %Y "$file" 2>/dev/null) age=$(_age "$start")
if [ "$written" ] && [ "$age" ] && [ $(($(date +%s) - age)) -gt $((written + WRITTEN)) ]; then
  echo state=gone; echo "reason=pid $pid is another process, begun after the file was written"; exit 0
fi
_tell "$pid" "$start"
"""

# A pid that a person typed is whichever process has it at the first look, and only that one later on.
_BY_PID = r"""
pid=${was_pid:-PID}
_of "$pid" && [ "$_state" != Z ] || { echo state=gone; echo "reason=no process $pid"; exit 0; }
start=$_start
[ -z "$was_pid" ] || _same "$pid" "$was_start" "$was_boot" || {
  echo state=gone; echo "reason=pid $pid is another process now"; exit 0
}
_tell "$pid" "$start"
"""

# Who has the log open for writing; the one who began first stands for all.
_BY_LOG = r"""
[ "$was_pid" ] && _same "$was_pid" "$was_start" "$was_boot" && _tell "$was_pid" "$was_start"
log=$(readlink -f LOG) && [ -f "$log" ] || { echo state=unknown; echo "reason=no such log"; exit 0; }
first=
for p in $(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -F -e '/fd:' -e "-> $log" | {
  now=
  while read -r line; do
    case $line in
    /proc/*/fd:) now=${line#/proc/}; now=${now%/fd:} ;;
    l?w*"-> $log") [ "$now" ] && echo "$now"; now= ;;
    esac
  done
}); do
  _of "$p" && [ "$_state" != Z ] || continue
  if [ -z "$first" ] || [ "$_start" -lt "$first_start" ]; then first=$p first_start=$_start; fi
done
[ -z "$first" ] || _tell "$first" "$first_start"
[ "$was_pid" ] && { echo state=gone; echo "reason=process $was_pid is gone and nobody writes the log"; exit 0; }
echo state=unknown; echo "reason=no process has the log open: give its pid file"
"""

_STOP = r"""
set -- WAS
was_pid=$1 was_start=$2 was_boot=$3
_same "$was_pid" "$was_start" "$was_boot" || { echo state=missing; exit 0; }
_roots=$(_family "$was_pid")
_above=$$
while [ "$_above" -gt 1 ] && read -r _line 2>/dev/null <"/proc/$_above/stat"; do
  for _p in $_roots; do [ "$_p" != "$_above" ] || { echo state=own; exit 0; }; done
  set -- ${_line##*) }; _above=$2
done
_known=" "
for _p in $_roots; do _of "$_p" && _known="$_known$_p:$_start "; done
_members() {
  for _p in $(_family $_roots); do
    _of "$_p" && [ "$_state" != Z ] || continue
    case $_known in *" $_p:$_start "*) ;; *" $_p:"*) continue;; esac
    echo "$_p"
  done
}
"""


def process_question(
    pid_file: str | None, log: str | None, known: ProcessIdentity | None = None, pid: int | None = None
) -> Question[ProcessView]:
    """Whether the process behind a pid or pid file runs, or else the one that writes a log (a shell expression)."""
    body = _FIND.replace("WAS", _words(known))
    if pid is not None:
        body += _BY_PID.replace(":-PID}", f":-{pid}}}", 1)
    elif pid_file is not None:
        parts = {"FILE": quote_path(pid_file), "WRITTEN": str(WRITTEN_SECONDS)}
        body += re.sub(r"\b(?:FILE|WRITTEN)\b", lambda found: parts[found.group()], _BY_PID_FILE)
    else:
        body += _BY_LOG.replace("LOG)", f"{log or shlex.quote('')})", 1)

    def parse(reply: Reply) -> ProcessView:
        return _parse_process(parse_fields(reply.output)[0], pid_file, known, reply.output)

    return Question("process", _LIBRARY + body, parse, limit=15.0)


def _words(known: ProcessIdentity | None) -> str:
    return f"{known.pid} {known.start} {shlex.quote(known.boot)}" if known else ""


def _parse_process(
    fields: Mapping[str, str], pid_file: str | None, known: ProcessIdentity | None, text: str
) -> ProcessView:
    state, reason = fields.get("state"), fields.get("reason")
    if state == "denied":
        raise AccessDenied(f"{pid_file}: no permission to read it", hint="another user, or the file's permissions")
    if state == "running":
        pids = tuple(int(word) for word in fields.get("pids", "").split() if word.isdigit())
        identity = ProcessIdentity(int(fields["pid"]), int(fields["start"]), fields["boot"])
        age, command = fields.get("age", ""), fields.get("command", "").strip() or None
        return ProcessView(True, identity, float(age) if age.isdigit() else None, pids, command)
    if state == "gone":
        return ProcessView(False, known, reason=reason)
    if state == "unknown":
        where = f"{pid_file}: " if pid_file else ""
        return ProcessView(None, known, reason=f"{where}{reason}")
    raise CommandFailed(f"the process could not be looked at: {text.strip()[-300:] or 'it said nothing'}")


def stop_process_question(identity: ProcessIdentity, grace: float) -> Question[list[str]]:
    """TERM to a process and all that belongs to it, KILL after `grace` seconds, and look again.

    The answer lists what not even SIGKILL ended, as `PID STATE`; a process that is another one by now is not touched.
    """

    def parse(reply: Reply) -> list[str]:
        fields, _ = parse_fields(reply.output)
        if fields.get("state") == "own":
            raise SettingsError("pid_file", identity.pid, "a training: this command runs under that process itself")
        if "state" not in fields:
            raise CommandFailed(f"the process could not be stopped: {reply.output.strip()[:300]}")
        return re.findall(r"^left=(\d+ \w)$", reply.output, re.MULTILINE)

    hundredths = str(max(1, round(grace * 100)))
    script = _LIBRARY + _STOP.replace("WAS", _words(identity)) + STOP_MEMBERS.replace("GRACE", hundredths)
    return Question("stop", script, parse, limit=grace + 30)
