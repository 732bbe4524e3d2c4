# The process behind a pid, a pid file, or a log: whether it runs, and its end. What is known of it from an earlier look
# is in the variables that begin with `was_`, which are empty at the first one.
# uses: process process_tree log_writers stopping owners
# needs: pid file owned written was_pid was_start was_boot
# paths: file

# Set $family to the pids of a process and of all that belongs to it, without those that have ended.
find_family() { # PID...
  all=$(read_kinship) family=''
  find_tree "$@"
  for each in $tree; do ! runs "$each" || family="$family$each "; done
}

is_known() { is_same "$was_pid" "$was_start" "$was_boot"; }

# Print how many seconds ago a process began; nothing where a container shows its own uptime.
show_age() { # START
  read -r up _ </proc/uptime; hz=$(getconf CLK_TCK 2>/dev/null || echo 100)
  age=$((${up%.*} - $1 / hz)); [ $age -lt 0 ] || echo $age
}

show_running() { # PID START
  read_boot
  echo state=running; echo "pid=$1"; echo "start=$2"; echo "boot=$_boot"; echo "age=$(show_age "$2")"
  echo "command=$(head -c 120 "/proc/$1/cmdline" | tr '\0\n' '  ')"
  find_family "$1"; echo "pids=$family"
}

show_reason() { echo "state=$1"; echo "reason=$2"; } # STATE REASON

# Where not even process 1 is visible (hidepid, or no /proc), only a process that was seen before is known to be gone, or
# one that the asker's own file names.
show_gone() { # PID
  if [ "$was_pid" ] || [ -e /proc/1 ] || { [ -e /proc/self ] && [ "$file" ] && [ -O "$file" ]; }; then
    show_reason gone "no process $1"
    return
  fi
  show_reason hidden "process $1 is not visible"
}

# A file that is not there says nothing of a process that was seen before: many trainings remove theirs when they end. A
# process that began after its pid file was written is another one; $written seconds is how exactly that is known.
by_pid_file() {
  if [ -e "$file" ] && [ ! -r "$file" ]; then echo state=denied; return; fi
  pid=''; [ -f "$file" ] && read -r pid _ <"$file" 2>/dev/null
  case $pid in '' | *[!0-9]* | 0 | 1) pid='' ;; esac # 1 is never a training
  if [ -z "$pid" ]; then
    [ -e "$file" ] && reason="no pid of a training in it" || reason="no such file"
    [ "$was_pid" ] || { show_reason unknown "$reason"; return; }
    pid=$was_pid
  fi
  runs "$pid" || { show_gone "$pid"; return; }
  start=$_start
  if [ "$pid" = "$was_pid" ] && is_known; then show_running "$pid" "$start"; return; fi
  since=$(stat -L -c %Y "$file" 2>/dev/null) age=$(show_age "$start")
  if [ "$since" ] && [ "$age" ] && [ $(($(date +%s) - age)) -gt $((since + written)) ]; then
    show_reason gone "pid $pid is another process, begun after the file was written"; return
  fi
  show_running "$pid" "$start"
}

# A pid that a person typed is whichever process has it at the first look, and only that one later on.
by_pid() {
  pid=${was_pid:-$pid}
  runs "$pid" || { show_gone "$pid"; return; }
  start=$_start
  [ -z "$was_pid" ] || is_known || { show_reason gone "pid $pid is another process now"; return; }
  show_running "$pid" "$start"
}

# Of those that have the log open for writing, the one who began first stands for all.
by_log() {
  if [ "$was_pid" ] && is_known; then show_running "$was_pid" "$was_start"; return; fi
  log=$(readlink -f "$log") && [ -f "$log" ] || { show_reason unknown "no such log"; return; }
  pid='' links=$(ls -ln /proc/[0-9]*/fd 2>/dev/null)
  id=$(stat -c %d:%i "$log") || { show_reason unknown "stat does not tell which file $log is"; return; }
  for each in $(list_holders "$log" "$id"); do
    runs "$each" || continue
    if [ -z "$pid" ] || [ "$_start" -lt "$start" ]; then pid=$each start=$_start; fi
  done
  if [ "$pid" ]; then show_running "$pid" "$start"
  elif [ "$was_pid" ]; then show_reason gone "process $was_pid is gone and nobody writes the log"
  else show_reason unknown "no process has the log open: give its pid file"; fi
}

stop() {
  is_known || { echo state=missing; return; }
  [ ! -e "$owned" ] || may_name "$was_pid" "$(show_owner "$owned")" || { echo state=unowned; return; }
  find_family "$was_pid"; roots=$family above=$$
  while [ "$above" -gt 1 ] && read_stat "$above"; do
    for each in $roots; do [ "$each" != "$above" ] || { echo state=own; return; }; done
    above=$_parent
  done
  known=' '
  for each in $roots; do read_stat "$each" && known="$known$each:$_start "; done
  end_processes list_remaining
}

# What belongs to $roots, also what has come since; a pid of which another start is known is another process by now, and
# what descends from that is another's too.
list_remaining() {
  same=''
  for each in $roots; do
    ! read_stat "$each" || case $known in *" $each:$_start "*) ;; *" $each:"*) continue ;; esac
    same="$same $each"
  done
  # shellcheck disable=SC2086
  find_family $same
  for each in $family; do
    read_stat "$each"
    case $known in *" $each:$_start "*) ;; *" $each:"*) continue ;; esac
    echo "$each"
  done
}
