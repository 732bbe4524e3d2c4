# Where the run directories of a target's process jobs are: $_base. A link in it to anything else is no job.
_base=${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}
case $_base in /*) ;; *) _base=$PWD/$_base ;; esac

# Print why others could put jobs into the folder, if they could.
show_openness() {
  # shellcheck disable=SC2046
  set -- $(stat -L -c '%u %A' "$_base" 2>/dev/null)
  case $1 in '' | 0 | "$(show_user)") ;; *) echo "it belongs to another user (uid $1)"; return ;; esac
  case $2 in ????????w*) echo "others can write to it" ;; esac
}

show_user() { stat -L -c %u /proc/self; }

is_link_to_no_job() { [ -L "$1" ] && [ -x "$1" ] && [ ! -e "$1/command" ]; } # PATH
