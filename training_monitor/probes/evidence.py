"""What the processes of a training do, seen from /proc: the evidence that tells a checkpoint save from a hang.

GPUs are as idle in a save or a compilation as in a deadlock; CPU time, bytes written, compilers and waits for a disk
tell them apart. `parse/evidence.py` says what each number means and what it cannot tell.
"""

from __future__ import annotations

import re

from training_monitor.models import Question, Reply
from training_monitor.parse.evidence import Evidence, parse_evidence, parse_file_age
from training_monitor.probes.process_jobs import members_script
from training_monitor.probes.process_table import FILTERS, PROCESS_TABLE
from training_monitor.targets.asking import quote_path

SAMPLE_SECONDS = 0.5  # for which a first look watches the processes: it has no earlier one to compare with

# Few programs write their log to anything but stdout and stderr, whose two links are quick to look at; all the open
# files of all processes are not. `_holders NAME` prints the pids of the lines of `_links` that lead there for writing.
# Of a name with a line end, `ls` prints its first line in the same line; that of busybox has `?` for odd signs.
_OF_LOG = r"""
_newline='
'
_holders() {
  _name=$1
  set -f; IFS='
'
  for _line in $_links; do
    case $_line in /proc/*/fd:) _pid=${_line%/fd:}; _pid=${_pid#/proc/}; continue;; l?w*' -> '*) ;; *) continue;; esac
    _there=${_line#* -> }
    case $_name in "$_there" | $_there | "$_there$_newline"*) ;; *) continue;; esac
    case $_line in *' /proc/'*/fd/*' -> '*) _pid=${_line#* /proc/}; _pid=${_pid%%/*};; esac
    echo "$_pid"
  done
  set +f; unset IFS
}
_log=$(readlink -f LOG) && [ -f "$_log" ] || exit 0
_links=$(ls -ln /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 2>/dev/null)
_found=$(_holders "$_log")
[ "$_found" ] || _found=$(_links=$(ls -ln /proc/[0-9]*/fd 2>/dev/null); _holders "$_log")
for _pid in $_found; do
  echo "$_pid"; _name=
  read -r _name <"/proc/$_pid/comm"
  case $_name in FILTERS) ;; *) continue;; esac
  _pipe=$(readlink "/proc/$_pid/fd/0")
  case $_pipe in pipe:*) _holders "$_pipe";; esac
done 2>/dev/null | sort -un
"""

_OF_PID_FILE = r"""
_pid=; [ -f FILE ] && read -r _pid _ <FILE; echo "$_pid"
"""


def pids_of(*pids: int) -> str:
    """A script that prints these pids."""
    return f"echo {' '.join(str(int(pid)) for pid in pids)}"


def pids_of_pid_file(path: str) -> str:
    """A script that prints the pid in a file. Raises SettingsError."""
    return _OF_PID_FILE.replace("FILE", quote_path(path))


def pids_of_process_job(job_id: str) -> str:
    """A script that prints the pids of all that belongs to a `process:NAME` job. Raises SettingsError."""
    return members_script(job_id)


def pids_of_log(expression: str) -> str:
    """A script that prints who writes a log (a shell expression), and who writes to it through `tee` and the like."""
    return _OF_LOG.replace("FILTERS", FILTERS).replace("LOG)", f"{expression})", 1)


# A process in a cgroup of its login (a session's scope) leaves it without a trace when it ends; that of its user stays.
_EVIDENCE = (
    PROCESS_TABLE
    + r"""
_roots() {
ROOTS
}
_oom() {
  _v1= _v2=
  while IFS=: read -r _id _which _path; do
    case $_id:$_which: in 0::) _v2=$_path;; *:memory:* | *:memory,*:* | *,memory:* | *,memory,*) _v1=$_path;; esac
  done <"/proc/$1/cgroup" || return 1
  _v2=${_v2%%/session-*}; _v2=${_v2%%/user@*}; _base=/sys/fs/cgroup
  for _file in ${_v1:+"$_base/memory$_v1/memory.oom_control" "$_base/memory/memory.oom_control"} \
    "$_base$_v2/memory.events" "$_base/unified$_v2/memory.events" "$_base/memory.events"
  do
    [ -r "$_file" ] || continue
    while read -r _key _count; do [ "$_key" != oom_kill ] || { echo "oom=$_count"; return; }; done <"$_file"
  done
}
_look() {
  _show "$_in"
  set --; for _pid in $_in; do set -- "$@" "/proc/$_pid/io" "/proc/$_pid/cmdline"; done
  [ $# -eq 0 ] || grep -asoE '^(wchar|write_bytes): [0-9]+|compile_worker' "$@"
}
_uptime() { read -r _now _ </proc/uptime; echo "$1=$_now"; }
read -r _boot </proc/sys/kernel/random/boot_id; echo "boot=$_boot"
echo "hz=$(getconf CLK_TCK || echo 100)"
{ read -r _; read -r _cpu _a _b _c _d _e _f _g _h _; } </proc/stat
echo "awake=$((_a + _b + _c + _d + _e + _f + _g + _h))"
set --; _more=
for _pid in $(_roots); do
  case ${_pid#+} in 0 | *[!0-9]*) continue;; esac
  case $_pid in +*) _more="$_more ${_pid#+}";; *) set -- "$@" "$_pid";; esac
done
echo "roots=$*"
_uptime up
_all=$(_table /proc/[0-9]*/stat)
[ -z "$_all" ] || echo table=read
_tree "$@" $_more
_look
_first=${_in# }
_oom "${_first%% *}" || _oom self
if [ SECONDS != 0 ] && [ "$_first" ]; then
  sleep SECONDS
  set --; for _pid in $_in; do set -- "$@" "/proc/$_pid/stat"; done
  _uptime again
  _all=$(_table "$@")
  _look
fi
echo end
"""
)


def evidence_question(roots: str, sample_seconds: float = 0.0) -> Question[Evidence]:
    """What the processes of a training do.

    Args:
        roots: a script that prints the pids of its processes, or of those that all others descend from: one of the
            functions `pids_of…`. A pid with `+` in front of it belongs to the training and never stands for it.
        sample_seconds: how long to look for `cpu_cores` and `write_rate`; 0 leaves them unknown.
    """
    parts = {"ROOTS": roots, "SECONDS": f"{max(0.0, sample_seconds):g}"}
    script = re.sub(r"\b(?:ROOTS|SECONDS)\b", lambda found: parts[found.group()], _EVIDENCE)

    def parse(reply: Reply) -> Evidence:
        return parse_evidence(reply.output)

    return Question("evidence", script, parse, limit=10.0 + sample_seconds)


# The folders with the newest entries are looked into first, level by level, and few of each: a save makes new files, or
# writes those again that are in one of few folders. What is written all the time beside checkpoints says nothing.
_FILE_AGE = r"""
_newest() (
  cd -- "$1" 2>/dev/null || exit 0
  set -- .; _newest=0 _level=0
  while [ $# -gt 0 ] && [ $_level -lt 4 ]; do
    _level=$((_level + 1))
    _all=$(find "$@" -mindepth 1 -maxdepth 1 ! -name '*tfevents*' ! -name '*.log' ! -name '*.out' ! -name '*.jsonl' \
      ! -name wandb ! -name mlruns -exec stat -c '%f %Y %n' {} + | sort -k 2,2nr | head -n MOST_FILES)
    _file=
    set -f; IFS='
'; set --
    for _line in $_all; do
      case $_line in
      8*) [ "$_file" ] || _file=${_line#* } ;;
      4*) _line=${_line#* }; [ $# -ge MOST_FOLDERS ] || set -- "$@" "${_line#* }" ;;
      esac
      [ -z "$_file" ] || [ $# -lt MOST_FOLDERS ] || break
    done
    set +f; unset IFS
    _file=${_file%% *}; [ "${_file:-0}" -le $_newest ] || _newest=$_file
  done
  echo "file $_newest"
)
for _folder do _newest "$_folder"; done
echo "now $(date +%s)"
"""
_MOST_FILES, _MOST_FOLDERS = 5000, 6


def file_age_question(*folders: str) -> Question[float | None]:
    """Seconds since the newest file of the folders (shell expressions) was written; None when they hold none.

    It is a question of its own, beside the evidence, because a file system that hangs must not hide the processes that
    hang with it.
    """
    script = _FILE_AGE.replace("MOST_FILES", str(_MOST_FILES)).replace("MOST_FOLDERS", str(_MOST_FOLDERS))

    def parse(reply: Reply) -> float | None:
        return parse_file_age(reply.output)

    return Question("file age", f"set -- {' '.join(folders)}\n{script}", parse, limit=5.0)
