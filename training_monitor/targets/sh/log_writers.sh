# Who writes a log.
# uses: filters
# needs: log

newline='
'

# Print the pids of the lines of `ls -ln` in $links that lead to a file for writing. Of a name with a line end, `ls`
# prints its first line in the same line; that of busybox has `?` for odd signs.
list_holders() { # FILE
  name=$1
  set -f; IFS=$newline
  for line in $links; do
    case $line in /proc/*/fd:) each=${line%/fd:}; each=${each#/proc/}; continue;; l?w*' -> '*) ;; *) continue;; esac
    there=${line#* -> }
    # shellcheck disable=SC2254
    case $name in "$there" | $there | "$there$newline"*) ;; *) continue;; esac
    case $line in *' /proc/'*/fd/*' -> '*) each=${line#* /proc/}; each=${each%%/*};; esac
    echo "$each"
  done
  set +f; unset IFS
}

# Few programs write their log to anything but stdout and stderr, whose two links are quick to look at; all the open
# files of all processes are not. Who writes to it through `tee` and the like is among them.
list_writers() {
  log=$(readlink -f "$log") && [ -f "$log" ] || return 0
  links=$(ls -ln /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 2>/dev/null)
  found=$(list_holders "$log")
  [ "$found" ] || found=$(links=$(ls -ln /proc/[0-9]*/fd 2>/dev/null); list_holders "$log")
  for writer in $found; do
    echo "$writer"; program=''
    read -r program <"/proc/$writer/comm"
    is_filter "$program" || continue
    pipe=$(readlink "/proc/$writer/fd/0")
    case $pipe in pipe:*) list_holders "$pipe";; esac
  done 2>/dev/null | sort -un
}
