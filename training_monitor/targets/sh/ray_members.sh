# The processes of a Ray job on this machine.
# uses: ray_workers ray_submission
# needs: job

# Print the number that Ray gave to a driver's job.
show_number() { # PID
  ls -ln "/proc/$1/fd" 2>/dev/null | sed -n 's|.*/python-core-driver-\([0-9a-f]\{8\}\)[0-9a-f]*_[0-9]*\.log$|\1|p'
}

# Print the pids of the driver, and of its workers, which may have been started long before the job, with a `+`.
list_members() {
  numbers=' '
  for file in $(grep -lsF -e "\"job_submission_id\": \"$job\"" -e "\"job_submission_id\":\"$job\"" /proc/[0-9]*/environ)
  do
    pid=${file#/proc/}
    pid=${pid%/environ}
    read_submission "$pid"; [ "$submission" = "$job" ] || continue
    echo "$pid"
    for number in $(show_number "$pid"); do numbers="$numbers$number "; done
  done
  [ "$numbers" = ' ' ] || list_ray_workers | while read -r pid number; do
    case $numbers in *" $number "*) echo "+$pid" ;; esac
  done
}
