# Where the run directories of a target's process jobs are: $base.
base=${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}
case $base in /*) ;; *) base=$PWD/$base ;; esac
