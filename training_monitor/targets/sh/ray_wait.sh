# Waits for the end of a Ray job: at the entrypoint's process where that runs on this machine, which costs next to
# nothing, else (on another node, or not started yet) at what the dashboard says.
# uses: process ray ray_submission
# needs: _job _path

# Print `ended` when it is over, and `waiting` every 10 s; leave after an hour.
wait_for_end() {
  _looks=0 _silent=0
  find_entrypoint
  while :; do
    if [ "$_pid" ] && runs "$_pid" && [ "$_start" = "$_began" ]; then _silent=0
    else
      is_over
      case $? in
      0) break ;;
      1) _silent=0 ;;
      *) _silent=$((_silent + 1)); [ "$_pid" ] && [ $_silent -ge 3 ] && break ;;
      esac
      [ $((_looks % 10)) -ne 9 ] || find_entrypoint
    fi
    sleep 1
    _looks=$((_looks + 1))
    [ $((_looks % 10)) -ne 0 ] || echo waiting || return
    [ $_looks -lt 3600 ] || return
  done
  echo ended
}

# $_pid and its start $_began: of what carries the job's id, what started first.
find_entrypoint() {
  _pid=''
  for _file in $(grep -lsF -e "\"job_submission_id\": \"$_job\"" /proc/[0-9]*/environ); do
    _file=${_file#/proc/}
    _file=${_file%/environ}
    read_submission "$_file"; [ "$submission" = "$_job" ] && runs "$_file" || continue
    [ "$_pid" ] && [ "$_start" -ge "$_began" ] || { _pid=$_file; _began=$_start; }
  done
}

# 0 where Ray calls the job ended, 1 where not, 2 without an answer; any other `"status"` in it only delays the end.
is_over() {
  _said=$(call_rest GET "$_path") || return 2
  case ${_said##*http } in 404) return 0 ;; 200) ;; *) return 2 ;; esac
  case $_said in *'"status": "PENDING"'* | *'"status": "RUNNING"'*) return 1 ;; esac
}
