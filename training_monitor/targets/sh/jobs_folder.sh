# Where the run directories of a target's process jobs are: $_base.
_base=${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}
case $_base in /*) ;; *) _base=$PWD/$_base ;; esac
