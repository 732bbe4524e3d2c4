# Processes that could be trainings, and what there is to know of them.
# uses: process_tree process_facts same_commands filters likely ray_workers tmux_panes kept_output
# needs: most named

list_pids() { (set -f; for file in $1; do file=${file#/proc/}; echo "${file%%/*}"; done); }

# Set $rough to those of $all that could be a training by their command line or have $named in it, or have loaded a GPU's
# driver, which are also in $on_gpu, and to those that write a log for another program.
find_likely() {
  rough=" $(list_pids "$(list_likely; [ -z "$named" ] || grep -lsF -e "$named" /proc/[0-9]*/cmdline)" | tr '\n' ' ')"
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
  sum_commands $rough
  chosen='' count=0 unlisted=0
  set -f; IFS='
'
  for line in $all; do
    each=${line%% *}
    case $rough in *" $each "*) ;; *) continue;; esac
    parent=${line#* * }; parent=${parent%% *}
    if runs_command_of "$each" "$parent"; then continue; fi
    if [ $count -lt "$most" ]; then chosen="$chosen $each" count=$((count + 1)); else unlisted=$((unlisted + 1)); fi
  done
  set +f; unset IFS
}

# A pipe that has a name looks like a file among the links. Print `DEVICE:INODE PATH` of each input and output that is a
# pipe: two containers may have another one at the same path, or the same one at two. Each tmpfs counts inodes from 1.
list_pipes() {
  set --
  for each in 1 $chosen; do
    for number in 0 1 2; do [ ! -p "/proc/$each/fd/$number" ] || set -- "$@" "/proc/$each/fd/$number"; done
  done
  [ $# -eq 0 ] || stat -L -c "%d:%i %n" "$@" 2>/dev/null
}

find_trainings() {
  show_facts
  all=$(read_stats /proc/[0-9]*/stat)
  part table; show_processes all
  find_likely
  part driver; for each in $on_gpu; do echo "$each"; done
  choose
  part unlisted; echo $unlisted
  part command; show_commands
  part links
  paths=$(list_paths cwd; list_paths ns/mnt; list_paths ns/net)
  ls -ldn $paths "${spelling}proc/self/ns/mnt"
  part environment
  show_variables
  part workers; list_ray_workers
  part containers
  # shellcheck disable=SC2046
  grep -soE '(docker|libpod)[-/][0-9a-f]{64}' $(list_paths cgroup) /dev/null
  part files
  other_sockets=' ([03-9]|[0-9][0-9]+) -> socket:' # the output may go to the journal
  paths="${spelling}proc/1/fd $(list_paths fd)" # a container's log is what its process 1 prints
  # shellcheck disable=SC2010
  files=$(ls -ln $paths "${spelling}proc/self/ns" |
    grep -Ev ' -> (anon_inode:|/memfd:|/dev/(null|zero|shm/|urandom))| [0-9]+ -> /.*\.so(\.[0-9]+)*$|'"$other_sockets")
  printf '%s\n' "$files"
  part pipes; list_pipes
  part kept; grep '^btime' /proc/stat; printf '%s\n' "$files" | list_wandb; list_tables
  part panes
  terminals=$(printf '%s\n' "$files" | sed -n 's:^l.* [12] -> \(/dev/pts/[0-9][0-9]*\)$:\1:p' | sort -u)
  [ -z "$terminals" ] || list_panes $terminals
  part end
}
