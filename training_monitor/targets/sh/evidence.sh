# What the processes of a training do.
# uses: roots
# needs: seconds

# A process in a cgroup of its login (a session's scope) leaves it without a trace when it ends; that of its user stays.
show_memory_kills() { # PID
  v1='' v2=''
  while IFS=: read -r number which path; do
    case $number:$which: in 0::) v2=$path;; *:memory:* | *:memory,*:* | *,memory:* | *,memory,*) v1=$path;; esac
  done <"/proc/$1/cgroup" || return 1
  v2=${v2%%/session-*}; v2=${v2%%/user@*}; root=/sys/fs/cgroup
  for file in ${v1:+"$root/memory$v1/memory.oom_control" "$root/memory/memory.oom_control"} \
    "$root$v2/memory.events" "$root/unified$v2/memory.events" "$root/memory.events"
  do
    [ -r "$file" ] || continue
    while read -r key count; do [ "$key" != oom_kill ] || { echo "oom=$count"; return; }; done <"$file"
  done
}

# The same of the first process of the training that is there, or else of whoever asks.
show_kills() {
  for each in $roots self; do show_memory_kills "${each#+}" && break; done
  return 0
}

show_tree() {
  show_processes "$tree"
  set --; for each in $tree; do set -- "$@" "/proc/$each/io" "/proc/$each/status" "/proc/$each/cmdline"; done
  [ $# -eq 0 ] || grep -asoE '^(wchar|write_bytes): [0-9]+|^VmRSS:[^0-9]*[0-9]+|compile_worker' "$@"
}

# Print how long all threads of the tree waited for a processor, in nanoseconds; nothing where that cannot be read.
show_delay() {
  set --; for each in $tree; do set -- "$@" "/proc/$each/task/"*/schedstat; done
  [ $# -eq 0 ] || cat "$@" 2>/dev/null | {
    sum='' total=0
    while read -r ran waited _; do total=$((total + waited)); [ "$ran" = 0 ] || sum=$total; done
    [ -z "$sum" ] || echo "delay=$sum"
  }
}

show_uptime() { read -r up _ </proc/uptime; echo "$1=$up"; }

# Where $seconds is not 0, look again after as long.
look() {
  read -r boot </proc/sys/kernel/random/boot_id; echo "boot=$boot"
  echo "hz=$(getconf CLK_TCK || echo 100)"
  { read -r _; read -r _ t1 t2 t3 t4 t5 t6 t7 t8 _; } </proc/stat
  echo "awake=$((t1 + t2 + t3 + t4 + t5 + t6 + t7 + t8))"
  show_uptime up
  echo "clock=$(date +%s)"
  find_training
  echo "roots=$named"
  [ -z "$all" ] || echo table=read
  show_tree
  show_delay
  first=${tree# }
  show_memory_kills "${first%% *}" || show_memory_kills self
  if [ "$seconds" != 0 ] && [ "$first" ]; then
    sleep "$seconds"
    set --; for each in $tree; do set -- "$@" "/proc/$each/stat"; done
    show_uptime again
    all=$(read_stats "$@")
    show_tree
    show_delay
  fi
  echo end
}
