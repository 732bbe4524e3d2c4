# What each process of a training is and does, in two looks that are $seconds apart.
# uses: ranks_beside process_facts
# needs: seconds kernel_bytes

# shellcheck disable=SC2046
show_status() { grep -asHE '^(Threads|VmRSS|voluntary_ctxt_switches):' $(list_paths status) /dev/null; }

# shellcheck disable=SC2046
show_bytes() { grep -asHE '^([rw]char|(read|write)_bytes): ' $(list_paths io) /dev/null; }

# Print `wait PID CHANNEL|CALL` for each: the kernel function in which its main thread sleeps, and its system call with the
# arguments; then the files that these calls are about, and the kernel's stack of that thread, which only root may read.
show_waiting() {
  part waiting
  files=''
  for each in $chosen; do
    channel='' call=''
    read -r channel <"/proc/$each/wchan"
    read -r call <"/proc/$each/syscall"
    echo "wait $each $channel|$call"
    call=${call#* }; call=${call%% *}
    case $call in 0x[0-9a-f] | 0x[0-9a-f][0-9a-f] | 0x[0-9a-f][0-9a-f][0-9a-f]) ;; *) continue;; esac
    files="$files ${spelling}proc/$each/fd/$((call))"
  done
  part descriptors; [ -z "$files" ] || ls -ldn $files
  part kernel
  # shellcheck disable=SC2046
  grep -asHE '^\[<' $(list_paths stack) /dev/null | head -c "$kernel_bytes"
} 2>/dev/null

# Print whether the machine has a GPU or the like for this container: NVIDIA, WSL, AMD, Habana, AWS, TPU, Intel.
show_gpu() {
  for each in /dev/nvidia* /dev/dxg /dev/kfd /dev/accel* /dev/neuron* /dev/vfio /dev/dri/render*; do
    [ ! -e "$each" ] || { echo has_gpu=1; return; }
  done
  echo has_gpu=0
}

call_roll() {
  show_facts
  show_gpu
  echo "machine=$(uname -m)"; echo "host=$(uname -n)"
  read -r scope </proc/sys/kernel/yama/ptrace_scope; echo "ptrace_scope=$scope"
  sed -n 's/^CapEff:[^0-9a-f]*/capabilities=/p' /proc/self/status
  find_ranks
  printf 'named=%s\nsearched=%s\n' "$named" $searched
  chosen=$tree
  part table; show_processes "$tree"
  part status; show_status
  part bytes; show_bytes
  part command; show_commands
  part environment; show_variables
  part links
  # shellcheck disable=SC2046
  ls -ldn $(list_paths ns/net) "${spelling}proc/self/ns/net"
  show_waiting
  sleep "$seconds"
  part again
  read -r up _ </proc/uptime; echo "up=$up"
  # shellcheck disable=SC2046
  all=$(read_stats /dev/null $(list_paths stat))
  show_processes all
  show_bytes
  show_status
  part end
}
