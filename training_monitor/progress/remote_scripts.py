"""The sh scripts by which runs on a target are read and changed; `parse/remote_look.py` reads what they print.

They need a POSIX sh with cat, head, ls, mv, rm, sed and dd, as busybox has them. Names travel quoted, and are always
spelled with a path before them, so that none is taken for an option.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence

from training_monitor.policy.run_values import Identity
from training_monitor.policy.signal_outcomes import CONTINUE, STOP
from training_monitor.progress.files import RunFiles, paths_of_run
from training_monitor.progress.temporary_files import temporary_of_script
from training_monitor.targets.asking import quote_path

FILE_BYTES = 256 * 1024  # of one progress or control file
_FOLDER_BYTES, _PROCESS_BYTES = 2048 * 1024, 1536 * 1024  # of all of them, and of all processes: one answer holds both
_MOST_FILES, _MOST_NAMES = 1000, 20_000
_MOST_EXPANDED, _THREAD_BYTES = 100, 192 * 1024  # processes whose threads are read, and of all these
BLOCK = 4096

_PART = r"""
_part() { printf '\nWORD %s\n' "$1"; }
"""
# The names are printed before they are sorted out, so that none is left out silently. `head` reads all files as one
# process; with a file at both ends it prints a line before each one, and the last line says that nothing was cut.
_FOLDER = r"""
_say() { _part "$1"; exit 0; }
dir=DIR
if [ ! -d "$dir" ]; then
  [ -e "$dir" ] && _say file
  case $(ls -Ld "$dir" 2>&1) in *': Permission denied') _say closed;; *) _say missing;; esac
fi
cd "$dir" && [ -r . ] || _say closed
_part now; date +%s
_part root; pwd -P
set -- *.json */progress.json */control.json
[ $# -le MOST_NAMES ] || _say many
printf '\nWORD name\n%s' "$@"
for _name in '*.json' '*/progress.json' '*/control.json'; do
  [ -e "$_name" ] || printf '\nWORD other\n%s' "$_name"
done
if [ $# -gt MOST_FILES ]; then
  _part some
  set -f; IFS='
'; set -- $(ls -td -- "$@" | head -n MOST_FILES); unset IFS; set +f
fi
for _name do
  shift
  if [ -d "$_name" ] || [ ! -e "$_name" ]; then printf '\nWORD other\n%s' "$_name"
  elif [ ! -f "$_name" ]; then printf '\nWORD special\n%s' "$_name"
  elif [ ! -r "$_name" ]; then printf '\nWORD denied\n%s' "$_name"
  else set -- "$@" ".SPELLING$_name"; fi
done
_part files
head -c FILE_BYTES "SPELLINGdev/null" "$@" "SPELLINGdev/null" | head -c FOLDER_BYTES
:
"""
# A name holds at most 15 bytes and perhaps line ends: the lines of `head` cannot be forged by it, and 20 lines hold it.
# The last line says that no process was cut off.
_MACHINE = r"""
_part began; date +%s
_part facts
printf 'pid=%s\nhost=%s\nboot=%s\nnamespace=%s\n' $$ "$host" "$boot" "$namespace"
echo "ticks=$(getconf CLK_TCK || echo 100)"
page=$(getconf PAGESIZE) || page=$(($(sed -n '/^KernelPageSize/{s/[^0-9]//g;p;q;}' /proc/self/smaps) * 1024))
echo "page=$page"
echo "cores=$(getconf _NPROCESSORS_ONLN || nproc || grep -c ^processor /proc/cpuinfo)"
read -r _uptime _ </proc/uptime && echo "uptime=$_uptime"
_part memory; cat /proc/meminfo
_part processes; head -n 20 /proc/[0-9]*/stat /dev/null | head -c PROCESS_BYTES
for _pid in PIDS; do
  _part "threads $_pid"; head -n 20 "/proc/$_pid/task/"[0-9]*/stat /dev/null | head -c THREAD_BYTES
done
"""
_HERE = r"""
host=$(uname -n)
read -r boot </proc/sys/kernel/random/boot_id
namespace=$(ls -l /proc/self/ns/pid); namespace=${namespace##*-> }
"""
# `_look PID START HOST BOOT NAMESPACE` says in `_is` whether this very process is there: alive, or why not.
_PROCESS = (
    _HERE
    + r"""
_stat() {
  _line=$(cat "/proc/$1/stat") || return 1
  _name=${_line#*\(}; _name=${_name%\)*}
  set -- ${_line##*\)}; _state=$1; _start=${20}
}
_look() {
  _name=
  if [ "$3" != "$host" ]; then _is=host
  elif [ -z "$2" ] && _stat "$1"; then _is=unsure
  elif [ "$4" != "$boot" ]; then _is=boot
  elif [ "$5" != "$namespace" ]; then _is=namespace
  elif ! _stat "$1"; then
    _is=hidden
    case $(kill -0 "$1" 2>&1) in *'o such process'*) _is=gone;; esac
  elif [ "$_start" != "$2" ]; then _is=other
  else case $_state in [ZX]) _is=zombie;; *) _is=alive;; esac; fi
}
"""
)
_SIGNALS = r"""
_tell() { _part "$1"; echo "$2"; printf %s "$_name"; }
sent=
_hit() {
  _number=$1; shift
  [ "$1" -gt 1 ] || { _tell $_number never; return; }
  [ "$1" != $$ ] || { _tell $_number own; return; }
  _look "$@"
  [ $_is = alive ] || { _tell $_number $_is; return; }
  if _said=$(kill -NUMBER "$1" 2>&1); then sent="$sent $_number:$1:$2"; return; fi
  _look "$@"
  case $_is:$_said in alive:*ermit*) _is=denied;; alive:*) _is=failed;; esac
  _tell $_number $_is
}
_is_done() {
  _stat "$1" || return 0
  [ "$_start" = "$2" ] || return 0
  case SIGNAL$_state in *[ZX] | STOPT) return 0;; CONTT) return 1;; CONT*) return 0;; esac
  return 1
}
HITS
n=0 open=1
while [ "$open" ] && [ $n -lt 10 ]; do
  open=
  for _one in $sent; do _one=${_one#*:}; _is_done "${_one%:*}" "${_one#*:}" || open=1; done
  [ -z "$open" ] || sleep 0.1 || { sleep 1; n=10; }
  n=$((n + 1))
done
for _one in $sent; do
  _number=${_one%%:*}; _one=${_one#*:}; _name=
  if _stat "${_one%:*}" && [ "$_start" = "${_one#*:}" ]; then
    case $_state in [ZX]) _tell $_number ended;; *) _tell $_number "left $_state";; esac
  else _tell $_number ended; fi
done
_part end
"""
_GO = r"""
_say() { _part "$1"; printf %s "$2"; exit 0; }
VALUES
cd "$root" && [ "$(pwd -P)" = "$root" ] || _say moved
"""
# Other editors are kept out by the lock that `top` takes on that machine too, where there is a flock. A file that holds
# already what is to be written was written by this script, whose answer was lost.
_EDIT = r"""
cd "./$below" || _say gone
[ -f "$file" ] || [ ! -e "$file" ] || _say other
if command -v flock >/dev/null && [ -r . ] && exec 9<.; then
  n=0; until flock -n 9; do n=$((n + 1)); [ $n -lt 20 ] || _say busy; sleep 0.1; done
fi
now=$(head -c FILE_BYTES "$file")
[ "$now" != "$new" ] || _say written
[ "$now" = "$old" ] || [ "$any" ] || _say changed "$now"
{
  find . ! -name . -prune -type f -user "$(id -u)" -name '.training-monitor-edit-*.tmp' -mmin +60 -exec rm -f {} +
} 2>/dev/null
set -C
_said=$({ printf '%s\n' "$new" >"$temporary"; } 2>&1) && chmod go-w "$temporary" && mv -f "$temporary" "$file" || {
  rm -f "$temporary"; _say failed "$_said"
}
[ "$(cat "$file")" = "$new" ] || _say changed "$(head -c FILE_BYTES "$file")"
_say written
"""
_DELETE = r"""
PROCESS
case $_is$running in
alive*) _say alive;;
unsureyes) _say unsure;;
hostyes | bootyes | namespaceyes | hiddenyes | nobodyyes)
  [ "$(find -L "$progress" ! -mmin -1)" = "$progress" ] || [ ! -e "$progress" ] || _say heard;;
esac
if [ "$folder" ]; then
  [ ! -L "$folder" ] || _say link
  [ -d "$folder" ] || [ ! -e "$folder" ] || _say file
fi
if [ "$folder" ]; then _said=$(rm -rf "$folder" 2>&1); else _said=$(rm -f "$@" 2>&1); fi || _say failed "$_said"
for _path do [ ! -e "$_path" ] && [ ! -L "$_path" ] || _say left "$_path"; done
_say deleted
"""
# The file is opened once, so that its size and its bytes are of the same file.
_OUTPUT = r"""
_say() { echo "state=$1"; exit 0; }
file=FILE
[ -e "$file" ] || case $(ls -Ld "$file" 2>&1) in *': Permission denied') _say denied;; *) _say missing;; esac
[ -f "$file" ] || _say other
[ -r "$file" ] || _say denied
exec 4<"$file"
open=/proc/self/fd/4; [ -e $open ] || open=$file
size=$(stat -L -c %s "$open" || wc -c <"$file"); size=$((size))
start=START; [ $start -ge 0 ] || start=$((size + start)); [ $start -ge 0 ] || start=0
[ $start -le $size ] || start=$size
skip=$((start / BLOCK)) count=$(((start % BLOCK + LENGTH + BLOCK - 1) / BLOCK))
coding=od; [ "$(printf x | base64)" = eA== ] && coding=base64
echo state=read; echo "size=$size"; echo "start=$start"; echo "begin=$((skip * BLOCK))"; echo coding=$coding; echo log
dd bs=BLOCK skip=$skip count=$count <"$open" | if [ $coding = base64 ]; then base64; else od -An -v -tx1; fi
"""


def _fill(script: str, parts: Mapping[str, str]) -> str:
    """Put the parts where their names stand; a part is not looked at again."""
    names = "|".join(sorted(parts, key=len, reverse=True))
    return re.sub(names, lambda found: parts[found.group()], script)


def spell_path() -> str:
    """What stands between a dot and a name, in one of 2**48 ways, without leading anywhere else."""
    return "/./" + "".join("./" if bit == "1" else "/" for bit in f"{secrets.randbits(48):048b}")


def folder_script(folder: str, word: str, spelling: str) -> str:
    """Lists a folder of runs and prints its files. Raises SettingsError."""
    return _fill(_PART + _FOLDER, _folder_parts(folder, word, spelling))


def look_script(folder: str, threads_of: Iterable[int], word: str, spelling: str) -> str:
    """Prints all processes and the threads of some, and then what `folder_script` does. Raises SettingsError."""
    pids = sorted(threads_of)[:_MOST_EXPANDED]
    parts = {
        "PIDS": " ".join(str(int(pid)) for pid in pids),
        "PROCESS_BYTES": str(_PROCESS_BYTES),
        "THREAD_BYTES": str(_THREAD_BYTES // max(1, len(pids))),
    }
    return _fill(_PART + _HERE + _MACHINE + _FOLDER, parts | _folder_parts(folder, word, spelling))


def _folder_parts(folder: str, word: str, spelling: str) -> dict[str, str]:
    return {
        "WORD": word,
        "DIR": quote_path(folder),
        "SPELLING": spelling,
        "MOST_NAMES": str(_MOST_NAMES),
        "MOST_FILES": str(_MOST_FILES),
        "FILE_BYTES": str(FILE_BYTES + 1),
        "FOLDER_BYTES": str(_FOLDER_BYTES),
    }


def signal_script(processes: Sequence[Identity], number: int, word: str) -> str:
    """Signals each process that is still the same one, and looks up to a second what came of it."""
    hits = "\n".join(f"_hit {at} {_identity_words(process)}" for at, process in enumerate(processes))
    known = {STOP: "STOP", CONTINUE: "CONT"}.get(number, "OTHER")
    parts = {"WORD": word, "HITS": hits, "NUMBER": str(int(number)), "SIGNAL": known}
    return _fill(_PART + _PROCESS + _SIGNALS, parts)


def edit_script(root: str, control: str, *, old: str | None, new: str, word: str) -> str:
    """Replaces a control file, when it holds `old` (None: whatever it holds), by `new`, and reads it again.

    `control` is its path relative to `root`.
    """
    folder, _, file = control.rpartition("/")
    values = {
        "root": root,
        "below": folder,
        "file": f"./{file}",
        "new": new.rstrip("\n"),
        "old": (old or "").rstrip("\n"),
        "any": "" if old is not None else "yes",
        "temporary": f"./{temporary_of_script()}",
    }
    parts = {"WORD": word, "VALUES": _assign(values), "FILE_BYTES": str(FILE_BYTES)}
    return _fill(_PART + _GO + _EDIT, parts)


def delete_script(root: str, files: RunFiles, process: Identity | None, *, is_running: bool, word: str) -> str:
    """Removes a run's own folder or its files, unless it is or may be alive, and looks whether they are gone.

    Where its process cannot be seen from there, a run that says it is RUNNING counts as alive when its file was written
    within the last minute, or nobody can tell. All paths are relative to `root`.
    """
    values = {
        "root": root,
        "progress": f"./{files.progress_path}",
        "folder": f"./{files.folder}" if files.folder is not None else "",
        "running": "yes" if is_running else "",
    }
    words = " ".join(shlex.quote(f"./{path}") for path in paths_of_run(files))
    look = f"_look {_identity_words(process)}" if process else "_is=nobody"
    parts = {"WORD": word, "PROCESS": look, "VALUES": _assign(values) + f"set -- {words}"}
    return _fill(_PART + _PROCESS + _GO + _DELETE, parts)


def output_script(path: str, start: int, length: int) -> str:
    """Prints the blocks of a file that hold `length` bytes from `start` on, counted from its end when negative."""
    numbers = {"START": str(int(start)), "LENGTH": str(int(length)), "BLOCK": str(BLOCK)}
    return _fill(_OUTPUT, {"FILE": shlex.quote(path), **numbers})


def _assign(values: dict[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _identity_words(process: Identity) -> str:
    known = (process.start_ticks, process.hostname, process.boot_id, process.pid_namespace)
    words = ("" if value is None else str(value) for value in (process.pid, *known))
    return " ".join(shlex.quote(word) for word in words)
