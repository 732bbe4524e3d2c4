"""What former attempts left on a target: which of it is no longer needed, and its removal.

Of a training, the run directories of the newest former attempts are kept. One is removed only when it was made by us,
its job has ended, nobody holds it, and nothing is in it but what we wrote. It is renamed first, so that no look finds
half of it; one that is kept loses what it had not put in place. Also removed are tries of uploads that ended long ago,
holds of process jobs whose run directory has been gone for as long, and the temporary files of writers that were
killed. Old holds of Ray jobs are named, since only Ray knows which are gone. What Ray remembers of its jobs is Ray's.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from training_monitor.errors import ParseError
from training_monitor.models import Question, Reply
from training_monitor.policy.resume import attempt_number, training_name
from training_monitor.probes.holds import hold_key
from training_monitor.probes.process_jobs import PREFIX, script_of

OLD_SECONDS = 30 * 86400
TEMPORARY_SECONDS = 3600  # after which a writer that has not put its file in place was killed
MOST_REMOVED = 50  # in one go: the rest follows with the next attempt

# Names are patterns of ours, so that no quoting can fail; links are never followed: `rm` and `mv` take them for files.
_REMOVE = r"""
umask 077
now=$(date +%s) count=0
_is_older() { [ -f "$1" ] && [ ! -L "$1" ] && [ $((now - $(stat -c %Y "$1" || echo "$now"))) -gt "$2" ]; } 2>/dev/null
_is_ours() {
  [ -d "$1" ] && [ ! -L "$1" ] && [ -f "$1/starter" ] && [ -f "$1/command" ] || return 1
  for _f in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$_f" ]; then [ "${_f##*/}" = file ] || return 1; continue; fi
    [ -e "$_f" ] || continue
    case ${_f##*/} in starter | command | pid | log | exit_code | stopped | result | hub.py | card.md) ;;
      pid.new | exit_code.new | stopped.new) ;;
      *) return 1 ;;
    esac
    [ -f "$_f" ] || return 1
  done
}
_has_ended() {  # of a machine that started anew, or of another one with the same home, only the exit status tells
  dir=$1 boot= _boot=-; _alive && return 1
  [ -s "$dir/exit_code" ] || [ "$boot" = "$_boot" ] || _is_older "$dir/log" OLD || return 1
  [ -z "$(_members)" ]
}
_is_untidy() { [ -e "$1/pid.new" ] || [ -e "$1/exit_code.new" ] || [ -e "$1/stopped.new" ]; }
_has_hold() {
  [ -d "$base/.held" ] || return 1
  _key=$(printf %s "process:$1" | sha256sum 2>/dev/null) || return 0
  [ -e "$base/.held/$(printf %.32s "$_key")" ]
}
_remove() {
  mkdir -p "$base/.former" && [ ! -L "$base/.former" ] || return
  mv "$base/$1" "$base/.former/$1" && rm -rf "$base/.former/$1" && echo "removed=$1"
  count=$((count+1))
}
[ -d "$base" ] || { echo state=done; exit 0; }
[ -L "$base/.former" ] || rm -rf "$base"/.former/*
for d in "$base"/NAME-attempt-*; do
  [ -d "$d" ] && [ ! -L "$d" ] || continue
  n=${d#"$base"/NAME-attempt-}
  case $n in '' | 0* | *[!0-9]* | ??????????*) ;; *) [ "$n" -ge NUMBER ] || echo "$n" ;; esac
done | sort -rn | {
  place=0
  while read -r n && [ $count -lt MOST ]; do
    each=NAME-attempt-$n place=$((place+1))
    [ $place -gt KEEP ] || _is_untidy "$base/$each" || continue
    _has_ended "$base/$each" || continue
    if [ $place -le KEEP ] || _has_hold "$each"; then _tidy
    elif _is_ours "$base/$each"; then _remove "$each"
    else _tidy; echo "left=$each"; fi
  done
}
for d in "$base"/upload-*-* "$base"/samples-*-*; do
  each=${d##*/} n=${d##*-}; hash=${each%-*}; hash=${hash#*-}
  case $n in '' | *[!0-9]*) continue ;; esac
  case $hash in *[!0-9a-f]*) continue ;; ????????????????) ;; *) continue ;; esac
  [ $count -lt MOST ] && _is_older "$d/exit_code" OLD && _is_ours "$d" && _has_ended "$d" && _remove "$each"
done
for f in "$base"/.held/*; do
  _is_older "$f" OLD || continue
  job=$(sed -n 2p "$f")
  case $job in
    process:*/* | process: | '') ;;
    process:*) [ -e "$base/${job#process:}" ] || rm -f "$f" ;;
    *) printf 'held=%s %s\n' "${f##*/}" "$job" ;;
  esac
done
for f in "$base"/.held/*.new "$base"/.claims/*/new.* "$base"/.claims/*/look.*; do
  _is_older "$f" SHORT && rm -f "$f"
done
echo state=done
"""


@dataclass(frozen=True, slots=True)
class Removed:
    """Names of run directories: which were removed, and which are left because something else is in them.

    `held`: Ray jobs that somebody wanted no further attempt of, long ago.
    """

    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


def remove_question(job_id: str, keep: int) -> Question[Removed]:
    """Remove what nobody needs beside the attempt `job_id`: of those before it, the newest `keep` stay.

    Other jobs than NAME-attempt-N of a process job have no run directories of former attempts.
    """
    number = attempt_number(job_id) if job_id.startswith(PREFIX) else 0
    name = training_name(job_id) if number else "none"
    parts = {
        "NAME": shlex.quote(name),
        "NUMBER": str(number),
        "KEEP": str(keep),
        "MOST": str(MOST_REMOVED),
        "OLD": str(OLD_SECONDS),
        "SHORT": str(TEMPORARY_SECONDS),
    }
    body = re.sub(rf"\b(?:{'|'.join(parts)})\b", lambda part: parts[part.group()], _REMOVE)

    def parse(reply: Reply) -> Removed:
        lines = reply.output.splitlines()
        if "state=done" not in lines:
            raise ParseError("the removal did not come to its end", source="former attempts", text=reply.output)
        removed, left, held = (
            tuple(line.removeprefix(key) for line in lines if line.startswith(key))
            for key in ("removed=", "left=", "held=")
        )
        holds = (each.partition(" ") for each in held)
        return Removed(removed, left, tuple(job for key, _, job in holds if key == hold_key(job)))

    return Question("former", script_of(f"{PREFIX}{name}", body), parse, limit=60.0)
