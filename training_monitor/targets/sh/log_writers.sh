# Who writes a log.
# uses: filters
# needs: log
# paths: log

newline='
'

# Print the pids of the lines of `ls -ln` in $links that lead to a pipe, or to exactly this file, for writing. Of a name
# with a line end, `ls` prints its first line in the same line; that of busybox has `?` for odd signs.
list_holders() { # PIPE, or FILE DEVICE:INODE
  name=$1
  set -f; IFS=$newline
  for line in $links; do
    case $line in /proc/*/fd:) each=${line%/fd:}; each=${each#/proc/}; continue;; l?w*' -> '*) ;; *) continue;; esac
    there=${line#* -> }
    # shellcheck disable=SC2254
    case $name in "$there" | $there | "$there$newline"*) ;; *) continue;; esac
    line=${line%% -> *}; line=${line##* }
    case $line in /proc/*) each=${line#/proc/}; each=${each%%/*};; *) line=/proc/$each/fd/$line;; esac
    [ -z "$2" ] || [ "$(stat -L -c %d:%i "$line" 2>/dev/null)" = "$2" ] || continue
    echo "$each"
  done
  set +f; unset IFS
}

# Few programs write their log to anything but stdout and stderr, whose two links are quick to look at; all the open
# files of all processes are not. Who writes to it through `tee` and the like is among them.
# shellcheck disable=SC2046,SC2086
list_writers() {
  log=$(readlink -f "$log") && [ -f "$log" ] || return 0
  file=$(stat -c %d:%i "$log")
  links=$(ls -ln /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 2>/dev/null)
  found=$(list_holders "$log" "$file")
  [ "$found" ] || found=$(links=$(ls -ln /proc/[0-9]*/fd 2>/dev/null); list_holders "$log" "$file")
  set -- $found; pipes=''
  while [ $# -gt 0 ] && [ ${#pipes} -lt 999 ]; do
    writer=$1 program=''; shift
    echo "$writer"
    read -r program <"/proc/$writer/comm"
    is_filter "$program" || continue
    pipe=$(readlink "/proc/$writer/fd/0"); pipes=$pipes$pipe
    case $pipe in pipe:*) set -- "$@" $(list_holders "$pipe" '');; esac
  done 2>/dev/null | sort -un
}
