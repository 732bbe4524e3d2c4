# The processes of a training, with the ranks that run beside those in $roots and have no parent in common with them.
# uses: roots

# Print in one line where a rank meets the others, which no other training in its network has: the address of the first
# rank (PyTorch), or the job (PMIx, for mpirun and srun). Print nothing for what is no rank.
show_meeting() { # PID
  told=$(head -c 6000000 "/proc/$1/environ" | tr '\000' '\n' | grep -aE \
    '^(MASTER_ADDR|MASTER_PORT|PMIX_NAMESPACE|(LOCAL_|PMI_|OMPI_COMM_WORLD_)?RANK|SLURM_PROCID)=[0-9A-Za-z.:@_-]{1,200}$')
  case $told in *RANK=* | *SLURM_PROCID=*) ;; *) return;; esac
  case $told in *MASTER_PORT=* | *PMIX_NAMESPACE=*) ;; *) return;; esac
  net=$(ls -ld "/proc/$1/ns/net")
  printf '%s\n' "$told" | grep -E '^(MASTER|PMIX)' | sort | tr '\n' ' '; echo "${net##* }"
} 2>/dev/null

# Do as `find_training`, and set $searched to 1 if ranks beside the named ones were looked for.
find_ranks() {
  split_roots
  searched=0 count=0
  for each in $named; do
    count=$((count + 1))
    [ $count -le 8 ] || break
    meeting=$(show_meeting "$each")
    [ "$meeting" ] || continue
    searched=1
    for file in $(grep -lsF -e "${meeting%% *}" /proc/[0-9]*/environ); do
      pid=${file#/proc/}; pid=${pid%/environ}
      [ "$(show_meeting "$pid")" != "$meeting" ] || others="$others $pid"
    done
    break
  done
  all=$(read_stats /proc/[0-9]*/stat)
  find_tree $named $others
}
