# The processes of a training, with the ranks that run beside those in $roots and have no parent in common with them.
# uses: roots
# needs: spelling

# Print `PID ADDRESS PORT JOB` for each of these that is a rank: where it meets the others, which no other training in its
# network does. That is the address of the first rank (PyTorch), or the job (PMIx, for mpirun and srun).
show_meetings() { # PID...
  paths=''
  for each; do paths="$paths ${spelling}proc/$each/environ"; done
  value='[0-9A-Za-z.:@_-]{1,200}'
  {
    head -c 6000000 $paths /dev/null | tr '\000' '\n' | grep -aE \
      "^==> ${spelling}proc/.*/environ <==|^(MASTER_(ADDR|PORT)|PMIX_NAMESPACE|[A-Z_]*RANK|SLURM_PROCID)=$value\$"
    echo '==> <=='
  } | {
    pid='' address='' port='' job='' is_rank=''
    while read -r line; do
      case $line in
      '==> '*)
        [ -z "$is_rank" ] || [ -z "$port$job" ] || echo "$pid ${address:-.} ${port:-.} ${job:-.}"
        pid=${line%/environ*}; pid=${pid##*/} address='' port='' job='' is_rank='' ;;
      MASTER_ADDR=*) address=$line ;;
      MASTER_PORT=*) port=$line ;;
      PMIX_NAMESPACE=*) job=$line ;;
      *) is_rank=1 ;;
      esac
    done
  }
} 2>/dev/null

# Print those of these that are in the network namespace of the first.
in_one_network() { # PID...
  paths=''
  for each; do paths="$paths /proc/$each/ns/net"; done
  ls -ldn $paths | {
    network=''
    while read -r line; do
      : "${network:=${line##* }}"
      pid=${line#*/proc/}
      [ "${line##* }" != "$network" ] || echo "${pid%%/*}"
    done
  }
} 2>/dev/null

# Print the ranks that meet where this one does, and are not in $tree.
show_ranks_beside() { # PID ADDRESS PORT JOB
  own=$1 meeting="$2 $3 $4"
  found=$(show_all_meetings | while read -r each place; do [ "$place" != "$meeting" ] || echo "$each"; done)
  [ -z "$found" ] || in_one_network "$own" $found
}

# No command line may hold the paths of all processes of a large host.
show_all_meetings() {
  set --
  for each in $(printf '%s\n' "$all" | sed 's/ .*//'); do
    case $tree in *" $each "*) ;; *) set -- "$@" "$each";; esac
    [ $# -lt 1000 ] || { show_meetings "$@"; set --; }
  done
  show_meetings "$@"
}

# Do as `find_training`, and set $searched to 1 if ranks beside the named ones were looked for.
find_ranks() {
  find_training
  searched=0
  set -- $named
  meeting=$(show_meetings "${1:-}" "${2:-}" "${3:-}" "${4:-}" | head -n 1)
  [ "$meeting" ] || return 0
  searched=1
  beside=$(show_ranks_beside $meeting)
  [ "$beside" ] || return 0
  others="$others $(printf '%s\n' "$beside" | tr '\n' ' ')"
  find_tree $named $others
}
