# What the accounting of Slurm has of jobs that its controller has forgotten.

# Print a line for each job or task, in the columns that `read_former` of targets/kinds/slurm.py reads.
show_former() { # NUMBER
  SLURM_TIME_FORMAT=%s sacct --allocations --parsable2 --noheader --jobs="$1" \
    --format=JobIDRaw,JobID,State,ExitCode,End,WorkDir,JobName </dev/null
}
