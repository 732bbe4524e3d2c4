"""The processes of a target in one pass over /proc: two programs start, however many processes there are.

`parse/process_table.py` reads the lines.
"""

from __future__ import annotations

# What reads a pipe and writes a log, as a pattern of the shell: the training is at the other end of its pipe.
FILTERS = "tee|cat|ts|sed|grep|awk|gawk|mawk|rotatelogs|multilog|svlogd|cronolog|unbuffer"

# `_table FILES` prints `PID STATE PARENT GROUP SESSION ... (NAME` for each stat file. A name holds at most 15 bytes, of
# any kind: a line that does not end in numbers goes on in the next one, and the name ends at the last parenthesis.
# Threads of the kernel (children of process 2 outside of all sessions) are left out.
# `_tree PIDS` sets `_in` to PIDS and what belongs to them, out of the lines in `_all`: their descendants, and what is
# in the sessions and groups that one of them leads. `_show WHICH` prints the lines in `_all` whose pids are in WHICH,
# or all for `all`, as `proc PID STATE PARENT GROUP SESSION UTIME STIME CUTIME CSTIME START NAME`.
PROCESS_TABLE = r"""
_fields='
:join
/[)] .* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]* [0-9][0-9]*$/!{
$d
N
b join
}
s/\n/ /g
s/^\([0-9]*\) (\(.*\)) \(.*\)/\1 \3 (\2/
/^[0-9]* . 2 0 0 /d
p
'
_table() { cat "$@" 2>/dev/null | sed -n "$_fields"; }
_tree() {
  _in=" $* " _grown=1
  set -f; IFS='
'
  while [ "$_grown" ]; do
    _grown=
    for _line in $_all; do
      _p=${_line%% *} _line=${_line#* * }
      _up=${_line%% *} _line=${_line#* }; _group=${_line%% *} _line=${_line#* }; _session=${_line%% *}
      case $_in in *" $_p "*) continue;; *" $_up "* | *" $_group "* | *" $_session "*) ;; *) continue;; esac
      _in="$_in$_p " _grown=1
    done
  done
  set +f; unset IFS
}
_show() {
  _which=$1
  set -f; IFS='
'
  for _line in $_all; do
    case $_which in all | *" ${_line%% *} "*) ;; *) continue;; esac
    IFS=' '; set -- ${_line%% \(*}
    printf 'proc %s %s %s %s %s %s %s %s %s %s %s\n' \
      "$1" "$2" "$3" "$4" "$5" "${13}" "${14}" "${15}" "${16}" "${21}" "${_line#* \(}"
  done
  set +f; unset IFS
}
"""
