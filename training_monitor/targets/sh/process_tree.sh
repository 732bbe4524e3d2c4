# What belongs to a process, out of the lines of `read_stats` in $all.
# uses: processes
# needs: all

# Set $tree to these pids, all that descends from them, and all that is in a session or group which one of them leads.
find_tree() { # PID...
  tree=" $* " grown=1
  set -f; IFS='
'
  while [ "$grown" ]; do
    grown=''
    for line in $all; do
      each=${line%% *} line=${line#* * }
      parent=${line%% *} line=${line#* }; group=${line%% *} line=${line#* }; session=${line%% *}
      case $tree in *" $each "*) continue;; *" $parent "* | *" $group "* | *" $session "*) ;; *) continue;; esac
      tree="$tree$each " grown=1
    done
  done
  set +f; unset IFS
}

# Print `proc PID STATE PARENT GROUP SESSION UTIME STIME CUTIME CSTIME START NAME` for each of these pids, or for `all`.
show_processes() { # PIDS
  which=$1
  set -f; IFS='
'
  for line in $all; do
    case $which in all | *" ${line%% *} "*) ;; *) continue;; esac
    IFS=' '; set -- ${line%% \(*}
    printf 'proc %s %s %s %s %s %s %s %s %s %s %s\n' \
      "$1" "$2" "$3" "$4" "$5" "${13}" "${14}" "${15}" "${16}" "${21}" "${line#* \(}"
  done
  set +f; unset IFS
}
