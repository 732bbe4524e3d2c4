# One process, from /proc. It is the same one as long as its pid, its start in clock ticks since the boot, and the boot
# are.

# Set its name, which may hold anything, and fields of its stat line, which are counted from the last parenthesis.
read_stat() { # PID
  _line='' _comm='' _state='' _start=''
  while IFS= read -r _next; do _line="$_line$_next
"; done 2>/dev/null <"/proc/$1/stat"
  [ "$_line" ] || return 1
  _comm=${_line#*\(}; _comm=${_comm%)*}
  set -- ${_line##*) }
  _state=$1 _parent=$2 _start=${20}
  case $_state${18} in Z[01]) ;; Z*) _state=S ;; esac # its main thread has ended, and others go on
}

read_boot() { _boot=''; read -r _boot 2>/dev/null </proc/sys/kernel/random/boot_id; }

# Whether a process runs: a zombie has ended.
runs() { read_stat "$1" && [ "$_state" != Z ]; } # PID

# Whether this very process runs.
is_same() { # PID START BOOT
  read_boot
  [ "$3" = "$_boot" ] && runs "$1" && [ "$_start" = "$2" ]
}
