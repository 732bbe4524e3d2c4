# Which network NCCL uses: the counters of EFA, read twice, a second apart, where there is a device, and NCCL's lines in
# the newest of Ray's worker and driver logs and of the files to which those print who were told to have NCCL speak.
# uses: ray_folders
# needs: most_logs most_bytes

count_bytes() {
  cat /sys/class/infiniband/*/ports/*/hw_counters/[rt]x_bytes 2>/dev/null | {
    total=0
    while read -r count; do total=$((total + count)); done
    echo "$total"
  }
}

# Set $ports, and the bytes that they moved so far in $before and, a second later, in $after.
look_twice() {
  set -- /sys/class/infiniband/*/ports/*/hw_counters/tx_bytes
  ports=0 before=0 after=0
  [ -e "$1" ] || return 0
  ports=$# before=$(count_bytes)
  sleep 1
  after=$(count_bytes)
}

show_counters() { look_twice; echo "efa $ports $before $after"; }

# Print the logs, one in a line; some may not exist. This script is in the environment of the shell that runs it, so its
# pattern must not match itself.
list_logs() {
  list_ray_folders | while IFS= read -r folder; do
    set -- "$folder"/session_latest/logs
    [ ! -d "$1" ] || printf '%s\n' "$1"/worker*.out "$1"/worker*.err "$1"/job-driver-*.log
  done
  for process in $(grep -ls 'NCCL_DEBUG[=]' /proc/[0-9]*/environ); do
    readlink "${process%environ}fd/1"; readlink "${process%environ}fd/2"
  done 2>/dev/null
}

# NCCL speaks when a communicator starts: the first MiB and the last 256 KiB of each log are read, so that the cost does
# not grow with them. Of what it said there the end is taken, since its newest words count.
show() {
  look_twice
  printf 'efa %s %s' "$ports" $((after - before))
  set --
  IFS='
' listed=$IFS
  for file in $(list_logs); do
    case $listed in *"$IFS$file$IFS"*) continue ;; esac
    listed="$listed$file$IFS"
    [ -f "$file" ] && [ -s "$file" ] && set -- "$@" "$file"
  done
  unset IFS
  echo " $(($# > most_logs ? $# - most_logs : 0))"
  [ $# -eq 0 ] || ls -tr "$@" | tail -n "$most_logs" | while IFS= read -r file; do
    { head -c 1048576 "$file"; echo; tail -c 262144 "$file"; } |
      LC_ALL=C grep -aE 'NET/|Using network|Using internal Network' | cut -c 1-300 | tail -c "$most_bytes"
  done
  return 0
}
