# Finds or ends what runs on of the jobs NAME, NAME-attempt-N and $_job after Ray has forgotten them.
# uses: stopping ray_submission ray_folders
# needs: _job_name _job _log _bytes

# This script is in the environment of the shell that runs it, so what is looked for must not stand in it as it is.
_key='"job_submission_id":'
_marks=$(
  for _each in "$_job_name-attempt-" "$_job_name\"" "$_job\""; do
    printf '%s"%s\n%s "%s\n' "$_key" "$_each" "$_key" "$_each"
  done
)

list_forgotten() {
  for _file in $(grep -lsF -e "$_marks" /proc/[0-9]*/environ); do
    _file=${_file#/proc/}
    _file=${_file%/environ}
    read_submission "$_file"
    case $submission in
      "$_job_name" | "$_job") ;;
      "$_job_name-attempt-"*) case ${submission#"$_job_name-attempt-"} in '' | *[!0-9]*) continue ;; esac ;;
      *) continue ;;
    esac
    runs "$_file" && echo "$_file"
  done
}

# Print PID, start and job of each process.
show_forgotten() {
  read_boot; echo "boot=$_boot"
  for _each in $(list_forgotten); do
    read_submission "$_each"
    read_stat "$_each" && echo "$_each $_start $submission"
  done
  echo end
}

# Print how many there were, what is left of them, the highest N that has a log, and the end of the last job's log. Ray
# gives its session a new folder at each start, and keeps the old ones.
end_forgotten() {
  echo "found=$(list_forgotten | grep -c .)"
  end_processes list_forgotten
  _newest='' _attempts=0
  IFS='
'
  for _logs in $(list_ray_folders | sed 's:$:/session_*/logs:'); do
    _file=$_logs/$_log
    # shellcheck disable=SC3013
    if [ -f "$_file" ] && { [ -z "$_newest" ] || [ "$_file" -nt "$_newest" ]; }; then _newest=$_file; fi
    for _file in "$_logs/job-driver-$_job_name-attempt-"*.log; do
      _file=${_file##*-attempt-}
      _file=${_file%.log}
      case $_file in *[!0-9]* | ??????????*) ;; *) [ "$_file" -gt $_attempts ] && _attempts=$_file ;; esac
    done
  done
  echo "attempts=$_attempts"
  echo log
  [ -z "$_newest" ] || tail -c "$_bytes" "$_newest"
}
