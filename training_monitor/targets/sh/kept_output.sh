# Files in which trackers keep the output or the figures of the trainings in $chosen.
# needs: spelling chosen

# Print `TIME PATH` of the copies that W&B keeps of the output, read with the list of open files on stdin: each run has a
# log of its own open beside it.
list_wandb() {
  sed -n 's:.* -> \(/.*/wandb/[a-z-]*run-[^/]*\)/logs/debug\.log$:\1/files/output.log:p' | sort -u |
    while IFS= read -r path; do stat -L -c '%Y %n' "$path" 2>/dev/null; done
}

# Print `TIME /proc/PID/cwd/...` of the newest table of Lightning's CSVLogger below each working folder.
list_tables() {
  for each in $chosen; do
    set -- "${spelling}proc/$each/cwd"/lightning_logs/version_*/metrics.csv \
      "${spelling}proc/$each/cwd"/*logs*/*/version_*/metrics.csv
    while [ $# -gt 0 ] && [ ! -f "$1" ]; do shift; done
    # shellcheck disable=SC2012
    [ $# -eq 0 ] || ls -t "$@" 2>/dev/null | head -n 1 | while IFS= read -r path; do stat -L -c '%Y %n' "$path"; done
  done
}
