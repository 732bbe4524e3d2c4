# What the accounting of Slurm has of jobs that its controller has forgotten.

# Whether the controller says that it does not know a job; of a task that was cancelled before it began, in other words.
is_forgotten() { case $1 in *'Invalid job id'* | 'Job '*' not found'*) ;; *) return 1 ;; esac; } # SAID

# Print a line for each job or task, in the columns that `read_former` of targets/kinds/slurm.py reads. Without an
# accounting there is none; if it does not respond, print why, and fail.
show_former() { # NUMBER
  command -v sacct >/dev/null || return 0
  _rows=$(SLURM_TIME_FORMAT=%s sacct --allocations --parsable2 --noheader --jobs="$1" \
    --format=JobIDRaw,JobID,State,ExitCode,End,WorkDir,JobName </dev/null 2>&1) || {
    case $_rows in *[Dd]isabled* | *'not running a supported'*) return 0 ;; esac
    printf '%s\n' "${_rows:-sacct failed}"
    return 1
  }
  printf '%s\n' "$_rows" | sed -n '/^[0-9][0-9]*|/p' # without warnings
}
