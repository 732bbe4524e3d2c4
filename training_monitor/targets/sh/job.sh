# One process job; jobs/process_jobs.py says what is in its run directory, $_dir. All variables begin with `_`, so that
# none that the user exports is another one in the job.
# uses: process jobs_folder
# needs: _name _bytes

_dir=$_base/$_name
_newline='
'

# Whether the job's own process runs.
is_alive() {
  [ -f "$_dir/pid" ] && read -r _pid _began _booted <"$_dir/pid" || return 1
  is_same "$_pid" "$_began" "$_booted"
} 2>/dev/null

# Set $_leaders to ` PID:NAME ` of the jobs whose own process still has its number, also as a zombie, and $_lost to those
# of jobs whose process is gone: the number of its session may be another one's by now.
find_leaders() { # NAME...
  _leaders=' ' _lost=' '
  read_boot
  for _each; do
    _pid=''; [ ! -f "$_base/$_each/pid" ] || read -r _pid _began _booted <"$_base/$_each/pid"
    case $_pid in '' | *[!0-9]*) continue ;; esac
    [ "$_booted" = "$_boot" ] || continue
    if ! read_stat "$_pid"; then _lost="$_lost$_pid:$_each "
    elif [ "$_start" = "$_began" ]; then _leaders="$_leaders$_pid:$_each "; fi
  done
} 2>/dev/null

# Print `PID NAME` of all that is these jobs' own, and nothing else is ever signalled as theirs: what carries their mark
# as a variable of its environment (process 1 never counts), what is in the session of their own process, what descends
# from either, and what has exactly their log open for writing as its stdout or stderr. The session of a process that is
# gone is theirs while something in it carries the mark. Each sign takes one pass over /proc, however many jobs there are.
find_members() { # NAME...
  [ $# -gt 0 ] || return 0
  find_leaders "$@"
  _owned=' ' _marks=$(for _each; do echo "TRAINING_MONITOR_JOB=$_base/$_each/"; done)
  for _file in $(list_marked); do
    _each=${_file#/proc/} _each=${_each%/environ} _mark=$1
    [ $# = 1 ] || { _mark=$(read_mark "$_file"); _mark=${_mark%%"/$_newline"*}; _mark=${_mark%/}; _mark=${_mark##*/}; }
    [ "$_each" = 1 ] || _owned="$_owned$_each:$_mark "
  done
  find_kin
  for _each in $_owned; do echo "${_each%%:*} ${_each#*:}"; done
  list_log_writers "$@"
} 2>/dev/null

# Print the environments with one of $_marks as a whole variable. Not every grep of busybox knows -z.
list_marked() {
  if printf x | grep -zq x; then grep -lzsxFe "$_marks" /proc/[0-9]*/environ
  else for _file in /proc/[0-9]*/environ; do [ -z "$(read_mark "$_file")" ] || echo "$_file"; done; fi
}

read_mark() { tr '\000\n' '\n\037' <"$1" | grep -xFe "$_marks"; } # ENVIRONMENT

# Add to $_owned what is in the sessions of the jobs, and what descends from it. The shell looks at few of the lines.
# A zombie with threads left has not ended.
find_kin() {
  [ "$_owned$_leaders" != '  ' ] || return
  _all=$(grep -aosHE '[)] ([^ZXx] [0-9]+ [0-9]+ [0-9]+|Z( [-0-9]+){16} ([2-9]|[1-9][0-9]+)) [^)]*$' /proc/[0-9]*/stat)
  [ "$_lost" = ' ' ] || for _line in $(list_kin - "$_lost"); do
    _at=${_line##*:}; _from=${_lost#*" $_at:"}; _from=${_from%% *}
    case $_owned in *" ${_line%%:*}:$_from "*) _leaders="$_leaders$_at:$_from " ;; esac
  done
  _new=$_owned
  while [ "$_new" ]; do
    _lines=$(list_kin "$_new" "$_leaders") _new=''
    for _line in $_lines; do
      _pid=${_line%%:*} _at=${_line#*:} _from=$_owned; _at=${_at%:*}
      case $_owned in *" $_pid:"*) continue ;; *" $_at:"*) ;; *)
        _from=$_leaders _at=${_line##*:}; case $_from in *" $_at:"*) ;; *) _at=$_pid ;; esac ;;
      esac
      _from=${_from#*" $_at:"}; _from=${_from%% *}
      _owned="$_owned$_pid:$_from " _new="$_new $_pid:$_from"
    done
  done
}

# Print `PID:PARENT:SESSION` of the children of these processes, of what is in these sessions, and of their leaders; both
# are lists of `NUMBER:NAME`.
list_kin() { # PARENTS SESSIONS
  _parents=$(join_numbers "$1") _sessions=$(join_numbers "$2")
  printf '%s\n' "$_all" |
    grep -E "^/proc/($_sessions)/|^[^)]*[)] . (($_parents) [0-9]+ [0-9]+|[0-9]+ [0-9]+ ($_sessions)) " |
    while read -r _line; do
      _pid=${_line#/proc/} _line=${_line#*) ? }; _parent=${_line%% *} _line=${_line#* }; _line=${_line#* }
      echo "${_pid%%/*}:$_parent:${_line%% *}"
    done
}

join_numbers() { _each=$(for _each in $1; do printf '|%s' "${_each%%:*}"; done); echo "${_each#|}"; } # LIST

# Print `PID NAME` of what writes the log of a job as its stdout or stderr. The file itself counts, by device and inode,
# and never a link in its place nor what that leads to.
list_log_writers() { # NAME...
  for _each; do shift; set -- "$@" "$_base/$_each/log"; done
  _logs=$_newline$(stat -c '%d:%i %n' "$@")
  set -- /dev/null # as many programs whatever is found
  # shellcheck disable=SC2010
  for _file in $(ls -ln /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 | grep '^l.w.* -> .*/log$' | while read -r _line; do
    _line=${_line%% -> *}; echo "/proc/${_line##* /proc/}"
  done); do set -- "$@" "$_file"; done
  stat -L -c '%d:%i %n' "$@" | while read -r _id _file; do
    case $_logs in *"$_newline$_id "*) ;; *) continue ;; esac
    _name=${_logs#*"$_newline$_id "}; _name=${_name%%"/log$_newline"*}; _name=${_name%/log}; _file=${_file#/proc/}
    echo "${_file%%/*} ${_name##*/}"
  done
}

# Print the pids of all that belongs to the job.
list_members() { find_members "$_name" | while read -r _each _; do echo "$_each"; done | sort -un; }

# Remove what an ended job has not put in place.
tidy() { rm -f "$_dir/pid.new" "$_dir/exit_code.new" "$_dir/stopped.new"; }

# Set $_is to what is seen of the job before anyone asks for its members; a job that is missing may have some.
see_state() {
  _code=''
  if [ ! -d "$_dir" ] || is_link_to_no_job "$_dir"; then _is=missing
  elif [ ! -x "$_dir" ]; then _is=closed
  elif is_alive || { [ -s "$_dir/pid" ] && [ ! -s "$_dir/exit_code" ] && is_alive; }; then _is=running
  elif [ -f "$_dir/exit_code" ] && read -r _code _end 2>/dev/null <"$_dir/exit_code"; [ "$_code" ]; then _is=exited
  elif [ -s "$_dir/pid" ]; then _is=gone
  else _is=starting; fi
}

show_state() {
  echo "state=$_is"
  [ $_is != exited ] || { echo "exit_code=$_code"; echo "ended=$_end"; }
  [ -f "$_dir/stopped" ] && read -r _by 2>/dev/null <"$_dir/stopped" && printf 'stopped_by=%s\n' "$_by"
}

# Print its state, and the last $_bytes of its log.
look() {
  see_state
  _count=''
  [ $_is = running ] || _count=$(list_members | grep -c .)
  [ $_is != missing ] || [ "$_count" = 0 ] || _is=hidden
  show_state
  [ -d "$_dir" ] || return 0
  [ -z "$_count" ] || echo "members=$_count"
  echo "now=$(date +%s)"
  echo "started=$(stat -c %Y "$_dir/command" 2>/dev/null || stat -c %Y "$_dir" 2>/dev/null)"
  stat -L -c 'log_size=%s
log_time=%Y' "$_dir/log" 2>/dev/null
  echo log
  [ ! -f "$_dir/log" ] || [ -L "$_dir/log" ] || tail -c "$_bytes" "$_dir/log" 2>/dev/null
}

# Print the states of many jobs, each after a line `job=NAME`; then a line `member=NAME` for each process of those that
# do not run, and when files were written.
look_at_all() { # NAME...
  _quiet=''
  for _name; do
    _dir=$_base/$_name
    see_state
    [ $_is = running ] || _quiet="$_quiet $_name"
    echo "job=$_name"
    show_state
  done
  # shellcheck disable=SC2086
  find_members $_quiet | sort -u | while read -r _ _name; do echo "member=$_name"; done
  echo "now=$(date +%s)"
  cd -- "$_base" 2>/dev/null || { echo end; return; }
  for _name; do shift; set -- "$@" "$_name/command" "$_name/log" "$_name"; done
  stat -c 'file=%n %Y %s' "$@" 2>/dev/null
  echo end
}

# Print `ended` when its process is gone, and `waiting` every 10 s; leave after an hour.
wait_for_end() {
  _looks=0
  while is_alive; do
    sleep 0.25; _looks=$((_looks + 1))
    [ $((_looks % 40)) -ne 0 ] || echo waiting || return
    [ $_looks -lt 14400 ] || return
  done
  echo ended
}
