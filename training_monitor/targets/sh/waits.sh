# What the processes of a training wait for beside the ranks: a file lock and who holds it, a pipe and who has its other
# end, a debugger that holds them; and zombies, with their parents. $roots are the pids of the training.
# uses: blocked
# needs: most

list_in_state() { # LETTER
  printf '%s\n' "$all" | sed -n "s/^\([0-9]*\) $1 .*/\1/p" | while read -r pid; do
    case $tree in *" $pid "*) echo "$pid" ;; esac
  done | head -n "$most"
}

show_name() { if read_stat "$1"; then printf %s "$_comm" | tr '\n' ' '; fi; } # PID

# Print `PID HOLDER KIND DEVICE:INODE` for each process of the training that waits for a file lock.
list_lock_waits() {
  holder=0
  while read -r _ one two _ four five six _; do
    case $one in
    '->') case $tree in *" $five "*) echo "$five $holder $two $six" ;; esac ;;
    *) holder=$four ;;
    esac
  done </proc/locks
} 2>/dev/null

# The path of the file with this inode that a process has open; only its name is looked at.
show_path_of() { # PID INODE
  file=$(grep -lsE "^ino:[^0-9]*$2\$" "/proc/$1/fdinfo/"* | head -n 1)
  [ -z "$file" ] || ls -ldn "/proc/$1/fd/${file##*/}" | sed 's/^.* -> //' | tr '\n' ' ' | cut -c 1-500
} 2>/dev/null

# Print `PID SWITCHES reads|writes DESCRIPTOR` for each process in the system call read or write, of x86_64 or arm64, on
# a pipe.
list_pipe_waits() {
  for pid in $tree; do
    call='' channel=''
    read -r call <"/proc/$pid/syscall"
    read -r channel <"/proc/$pid/wchan"
    number=${call%% *} call=${call#* }; call=${call%% *}
    case $number:$channel in [01]: | 6[34]: | [01]:0 | 6[34]:0 | [01]:*pipe* | 6[34]:*pipe*) ;; *) continue ;; esac
    case $call in 0x[0-9a-f] | 0x[0-9a-f][0-9a-f] | 0x[0-9a-f][0-9a-f][0-9a-f]) ;; *) continue ;; esac
    case $number in 0 | 63) does=reads ;; *) does=writes ;; esac
    echo "$pid $(count_switches "$pid")$does $((call))"
  done | head -n "$most"
} 2>/dev/null

# Print the pipe, and all that have it open for the opposite.
show_pipe() { # PID reads|writes DESCRIPTOR
  [ -p "/proc/$1/fd/$3" ] || return 0
  link=$(ls -ldn "/proc/$1/fd/$3")
  path=${link#* -> }
  case $2 in reads) other='?w' ;; *) other='r?' ;; esac
  printf 'pipe %s %s %s\n' "$1" "$2" "$(printf %s "$path" | tr '\n' ' ' | cut -c 1-500)"
  # shellcheck disable=SC2010
  ls -ln /proc/[0-9]*/fd | grep -aF -e /proc/ -e " -> $path" | {
    pid='' last=''
    while read -r line; do
      case $line in
      /proc/*/fd:) pid=${line#/proc/}; pid=${pid%/fd:} ;;
      l$other*" -> $path") [ "$pid" = "$last" ] || { printf 'end %s ' "$pid"; show_name "$pid"; echo; }; last=$pid ;;
      esac
    done
  } | head -n "$most"
} 2>/dev/null

# Print the lines of one list that are in another one.
in_both() { # LIST LIST
  printf '%s\n' "$1" | while read -r line; do
    case "
$2
" in *"
$line
"*) echo "$line" ;; esac
  done
}

show_waits() {
  find_training
  for pid in $(list_in_state Z); do
    line=$(printf '%s\n' "$all" | grep -a "^$pid "); line=${line%% (*}
    parent=${line#* * }; parent=${parent%% *}
    printf 'zombie %s %s %s ' "$pid" "${line##* }" "$parent"; show_name "$parent"; echo
  done
  for pid in $(list_in_state t); do
    tracer=$(sed -n 's/^TracerPid:[^0-9]*//p' "/proc/$pid/status" 2>/dev/null)
    printf 'traced %s %s ' "$pid" "${tracer:-0}"; show_name "${tracer:-0}"; echo
  done
  locks=$(list_lock_waits) pipes=$(list_pipe_waits)
  [ -z "$locks$pipes" ] || sleep 1
  in_both "$(list_lock_waits | head -n "$most")" "$locks" | while read -r pid holder kind file; do
    [ "$pid" ] || continue
    printf 'lock %s %s %s\nend %s ' "$pid" "$kind" "$(show_path_of "$pid" "${file##*:}")" "$holder"; show_name "$holder"; echo
  done
  in_both "$(list_pipe_waits)" "$pipes" | while read -r pid rest; do
    call=${rest% *}
    [ -z "$pid" ] || show_pipe "$pid" "${call##* }" "${rest##* }"
  done
  echo end
}
