# One process job; jobs/process_jobs.py says what is in its run directory, $_dir. All variables begin with `_`, so that
# none that the user exports is another one in the job.
# uses: process processes jobs_folder
# needs: _name _bytes

_dir=$_base/$_name

# Whether the job's own process runs.
is_alive() {
  read -r _pid _began _booted <"$_dir/pid" || return 1
  is_same "$_pid" "$_began" "$_booted"
} 2>/dev/null

# Print the pids of all that belongs to the job: by environment, session, process group, or because they write its log (a
# process may have a session of its own and overwrite its environment with a title).
list_members() {
  _pid='' _began='' _booted=''
  { read -r _pid _began _booted <"$_dir/pid"; read_boot; } 2>/dev/null
  [ "$_booted" = "$_boot" ] || _pid=''
  [ "$_pid" ] && read_stat "$_pid" && [ "$_start" != "$_began" ] && _pid=''
  {
    for _file in $(grep -lsF "TRAINING_MONITOR_JOB=$_dir/" /proc/[0-9]*/environ); do
      _file=${_file#/proc/}; echo "${_file%/environ}"
    done
    # shellcheck disable=SC2010
    _log=$(readlink -f "$_dir/log") && ls -l /proc/[0-9]*/fd/1 /proc/[0-9]*/fd/2 2>/dev/null | grep -F -- "-> $_log" |
      sed -n 's|.* /proc/\([0-9]*\)/fd/[12] -> .*|\1|p'
    [ "$_pid" ] && read_stats /proc/[0-9]*/stat | while read -r _each _state _ _group _session _; do
      [ "$_state" != Z ] && { [ "$_group" = "$_pid" ] || [ "$_session" = "$_pid" ]; } && echo "$_each"
    done
  } | sort -un
}

# Remove what an ended job has not put in place.
tidy() { rm -f "$_dir/pid.new" "$_dir/exit_code.new" "$_dir/stopped.new"; }

# Print its state, and the last $_bytes of its log.
look() {
  [ -d "$_dir" ] || { [ "$(list_members)" ] && echo state=hidden || echo state=missing; return; }
  if is_alive || { [ -s "$_dir/pid" ] && [ ! -s "$_dir/exit_code" ] && is_alive; }; then echo state=running
  else
    _code=''
    read -r _code _ended 2>/dev/null <"$_dir/exit_code"
    if [ "$_code" ]; then echo state=exited; echo "exit_code=$_code"; echo "ended=$_ended"
    elif [ -s "$_dir/pid" ]; then echo state=gone
    else echo state=starting; fi
    echo "members=$(list_members | grep -c .)"
  fi
  read -r _by 2>/dev/null <"$_dir/stopped" && printf 'stopped_by=%s\n' "$_by"
  echo "now=$(date +%s)"
  echo "started=$(stat -c %Y "$_dir/command" 2>/dev/null || stat -c %Y "$_dir" 2>/dev/null)"
  stat -c 'log_size=%s
log_time=%Y' "$_dir/log" 2>/dev/null
  echo log
  tail -c "$_bytes" "$_dir/log" 2>/dev/null
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
