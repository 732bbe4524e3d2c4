# Processes that could be trainings, and what there is to know of them. Paths begin with $spelling, a random way to spell
# the root, so that no name can hold the lines that `head` and `ls` print before each of them.
# uses: process_tree filters likely ray_workers
# needs: word spelling ranks most command_bytes environment_bytes

begin_part() { printf '\n%s %s\n' "$word" "$1"; }

list_pids() { (set -f; for file in $1; do file=${file#/proc/}; echo "${file%%/*}"; done); }

list_paths() { for each in $chosen; do echo "${spelling}proc/$each/$1"; done; }

# Set $rough to those of $all that could be a training by their command line or have loaded a GPU's driver, which are also
# in $on_gpu, and to those that write a log for another program.
find_likely() {
  rough=" $(list_pids "$(list_likely)" | tr '\n' ' ')"
  set --
  set -f; IFS='
'
  for line in $all; do
    each=${line%% *}
    case $rough in *" $each "*) continue;; esac
    if is_filter "${line#* \(}"; then rough="$rough$each "; else set -- "$@" "/proc/$each/maps"; fi
  done
  set +f; unset IFS
  on_gpu=$([ $# -eq 0 ] || list_pids "$(grep -lsE 'libcuda\.so|libamdhip64|libhsa-runtime|libtpu' "$@")")
  for each in $on_gpu; do rough="$rough$each "; done
}

# Set $chosen to $most of these, and $unlisted to the number of the others. A child with the command line of its parent is
# a data worker or the like: there may be hundreds, and they open what their parent has opened.
choose() {
  set --
  for each in $rough; do set -- "$@" "/proc/$each/cmdline"; done
  for line in $(
    [ $# -eq 0 ] || cksum "$@" | sed -n 's|^\([0-9]*\) \([0-9]*\) /proc/\([0-9]*\)/.*|\3=\1.\2|p'
  ); do
    eval "sum${line%%=*}=${line#*=}"
  done
  chosen='' count=0 unlisted=0 its=''
  set -f; IFS='
'
  for line in $all; do
    each=${line%% *}
    case $rough in *" $each "*) ;; *) continue;; esac
    parent=${line#* * }; parent=${parent%% *}
    eval "own=\$sum$each its=\$sum$parent"
    [ "$own" != "$its" ] || [ -z "$own" ] || continue
    if [ $count -lt "$most" ]; then chosen="$chosen $each" count=$((count + 1)); else unlisted=$((unlisted + 1)); fi
  done
  set +f; unset IFS
}

# Of an environment, only these variables leave the target.
show_variables() {
  paths=$(list_paths environ)
  head -c "$environment_bytes" $paths /dev/null | tr '\000' '\n' | sed -n \
    -e "\\|^==> ${spelling}proc/|p" \
    -e '/^\('"$ranks"'\)=[0-9]\{1,9\}$/p' \
    -e 's/^RAY_JOB_CONFIG_JSON_ENV_VAR=.*"job_submission_id": *"\([^"]*\)".*/submission=\1/p' \
    -e '/^RAY_JOB_ID=[0-9a-f]\{8\}$/p' -e '/^TRAINING_MONITOR_JOB=/p'
}

find_trainings() {
  read -r boot </proc/sys/kernel/random/boot_id
  read -r up _ </proc/uptime
  begin_part facts; printf 'boot=%s\nself=%s\nup=%s\nhz=%s\n' "$boot" $$ "$up" "$(getconf CLK_TCK || echo 100)"
  all=$(read_stats /proc/[0-9]*/stat)
  begin_part table; show_processes all
  find_likely
  begin_part driver; for each in $on_gpu; do echo "$each"; done
  choose
  begin_part unlisted; echo $unlisted
  begin_part command
  paths=$(list_paths cmdline)
  head -c "$command_bytes" $paths /dev/null | tr '\000' '\037'
  begin_part links
  paths=$(list_paths cwd; list_paths ns/mnt)
  ls -ldn $paths "${spelling}proc/self/ns/mnt"
  begin_part environment
  show_variables
  begin_part workers; list_ray_workers
  begin_part files
  paths=$(list_paths fd)
  # shellcheck disable=SC2010
  ls -ln $paths "${spelling}proc/self/ns" |
    grep -Ev ' -> (socket:|anon_inode:|/memfd:|/dev/(null|zero|shm/|urandom))| [0-9]+ -> /.*\.so(\.[0-9]+)*$'
  begin_part end
}
