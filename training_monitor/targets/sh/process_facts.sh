# What is to be known of the processes in $chosen, in parts that begin with a line of the random $word. Paths begin with
# $spelling, a random way to spell the root, so that no name can hold the lines that `head` and `ls` print before each of
# them.
# uses: parts
# needs: spelling ranks command_bytes environment_bytes chosen

list_paths() { for each in $chosen; do echo "${spelling}proc/$each/$1"; done; }

show_facts() {
  read -r boot </proc/sys/kernel/random/boot_id
  read -r up _ </proc/uptime
  part facts; printf 'boot=%s\nself=%s\nup=%s\nhz=%s\n' "$boot" $$ "$up" "$(getconf CLK_TCK || echo 100)"
}

show_commands() {
  paths=$(list_paths cmdline)
  head -c "$command_bytes" $paths /dev/null | tr '\000' '\037'
}

# Of an environment, only these variables leave the target.
show_variables() {
  paths=$(list_paths environ)
  head -c "$environment_bytes" $paths /dev/null | tr '\000' '\n' | sed -n \
    -e "\\|^==> ${spelling}proc/|p" \
    -e '/^\('"$ranks"'\)=[0-9]\{1,9\}$/p' \
    -e 's/^RAY_JOB_CONFIG_JSON_ENV_VAR=.*"job_submission_id": *"\([^"]*\)".*/submission=\1/p' \
    -e '/^RAY_JOB_ID=[0-9a-f]\{8\}$/p' -e '/^TRAINING_MONITOR_JOB=/p' \
    -e '/^JOURNAL_STREAM=[0-9:]\{3,40\}$/p' -e '/^INVOCATION_ID=[0-9a-f]\{32\}$/p' \
    -e '/^\(MASTER_ADDR\|MASTER_PORT\|PMIX_NAMESPACE\|SLURM_JOB_ID\|SLURM_STEP_ID\|SLURMD_NODENAME\)=[0-9A-Za-z.:@_-]\{1,200\}$/p'
}
