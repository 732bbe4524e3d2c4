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

# Set $_leaders to ` PID NAME` of the jobs whose session and process group may have members, and $_logs to `NAME LOG`, a
# line each, of those that have a log; $_groups and $_links are what grep looks for then.
find_signs() { # NAME...
  _leaders='' _groups='' _logs='' _links='' _real=$(cd -P -- "$_base" && pwd -P)
  read_boot
  for _each; do
    _run=$_base/$_each _pid='' _log=''
    [ ! -f "$_run/pid" ] || read -r _pid _began _booted <"$_run/pid"
    case $_pid in *[!0-9]*) _pid='' ;; esac
    [ -z "$_pid" ] || [ "$_booted" != "$_boot" ] || { read_stat "$_pid" && [ "$_start" != "$_began" ]; } ||
      _leaders="$_leaders $_pid $_each" _groups="$_groups|$_pid"
    if [ -L "$_run" ] || [ -L "$_run/log" ]; then _log=$(readlink -f "$_run/log")
    elif [ -d "$_run" ]; then _log=$_real/$_each/log; fi
    [ -z "$_log" ] || _logs="$_logs$_each $_log$_newline" _links="$_links$_newline-> $_log"
  done
} 2>/dev/null

# Print `PID NAME` of all that belongs to these jobs: by environment, session, process group, or because they write its
# log (a process may have a session of its own and overwrite its environment with a title). Each sign takes one pass
# over /proc, however many jobs there are.
find_members() { # NAME...
  [ $# -gt 0 ] || return 0
  find_signs "$@"
  grep -aoHsF "$(for _each; do echo "TRAINING_MONITOR_JOB=$_base/$_each/"; done)" /proc/[0-9]*/environ |
    while read -r _line; do
      _each=${_line#/proc/} _line=${_line%/}; echo "${_each%%/*} ${_line##*/}"
    done
  # shellcheck disable=SC2010
  [ -z "$_logs" ] || ls -ln /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 | grep -Fe "${_links#"$_newline"}" |
    while read -r _line; do
      _each=${_line#*/proc/} _to=${_line#* -> }
      printf %s "$_logs" | while read -r _name _log; do
        case $_to in "$_log"*) echo "${_each%%/*} $_name" ;; esac
      done
    done
  [ -z "$_leaders" ] || grep -aHsE "[)] [^Z] [0-9]+ ([0-9]+ )?(${_groups#|}) [^)]*\$" /proc/[0-9]*/stat |
    while read -r _line; do
      _each=${_line#/proc/}; _each=${_each%%/*}
      # shellcheck disable=SC2086
      set -- ${_line##*) }; _group=$3 _session=$4
      # shellcheck disable=SC2086
      set -- $_leaders
      while [ $# -gt 0 ]; do
        [ "$_group" != "$1" ] && [ "$_session" != "$1" ] || echo "$_each $2"
        shift 2
      done
    done
} 2>/dev/null

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
  [ ! -f "$_dir/log" ] || tail -c "$_bytes" "$_dir/log" 2>/dev/null
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
