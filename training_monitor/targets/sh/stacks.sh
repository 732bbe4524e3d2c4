# The Python stacks of the processes of a training, each by the first way that works: the TrainingMonitor in the script,
# py-spy, sys.remote_exec of Python 3.14. No way stops a process. $sent is the folder of a py-spy that was sent there.
# uses: ranks_beside parts process uptime same_commands packed
# needs: most most_bytes answer_bytes seconds nonce sent remote dump

# Print a part with the stacks of a process, unless there is no room left in the reply.
tell() { # PID WAY TEXT
  told=$(printf '%s\n' "$3" | pack)
  answer_bytes=$((answer_bytes - ${#told} - 100))
  if [ $answer_bytes -lt 0 ]; then part "stack $1 late"; else part "stack $1 $2 $encoding"; printf '%s\n' "$told"; fi
}

owner_of() { # PATH: prints the uid of what a link leads to
  # shellcheck disable=SC2046
  set -- $(ls -dLn "$1" 2>/dev/null)
  echo "$3"
}

# Whether nobody but us and root decides what this program does.
is_safe() { # PROGRAM
  [ -x "$1" ] || return 1
  case $(owner_of "$1") in 0 | "$me") ;; *) return 1 ;; esac
}

# Whether nobody but us and root can put something else into this folder, or in place of a folder above it. $folder is set
# to it without links.
is_kept() { # FOLDER
  folder=$(cd -P "$1" 2>/dev/null && pwd -P) || return 1
  above=$folder
  while :; do
    # shellcheck disable=SC2046
    set -- $(ls -dn "${above:-/}" 2>/dev/null)
    case $3 in 0 | "$me") ;; *) return 1 ;; esac
    case $1 in d????????[tT]*) ;; d????w* | d???????w*) return 1 ;; esac
    [ "$above" ] || return 0
    above=${above%/*}
  done
}

# Set $program to one that may be executed, of the folder of a program that a process of the training runs. Its user may
# decide what that is, unless it is us.
find_beside() { # PID PATH NAME
  program=''
  case $2 in /*) ;; *) return ;; esac
  folder=${2%/*}
  read_ids "$1"
  [ "$its" = "$me" ] || is_kept "$folder" || return
  is_safe "$folder/$3" && program=$folder/$3
}

# Set $pythons to those of the training that run Python, at most $most; children that run the command line of their parent,
# which are its data workers, come last.
find_pythons() {
  set --; for each in $tree; do set -- "$@" "/proc/$each/exe"; done
  pythons='' workers='' count=0
  [ $# -gt 0 ] || return 0
  found=" $(ls -ldn "$@" 2>/dev/null | sed -n 's|^l.* /proc/\([0-9]*\)/exe -> .*/python[^/]*$|\1|p' | tr '\n' ' ')"
  set --; for each in $tree; do case $found in *" $each "*) ;; *) set -- "$@" "/proc/$each/maps" ;; esac; done
  [ $# -eq 0 ] || for each in $(grep -lsE '/libpython[23]' "$@"); do
    each=${each#/proc/}; found="$found${each%%/*} "
  done
  sum_commands $tree
  for line in $(show_kin); do
    each=${line%%:*}
    case $found in *" $each "*) ;; *) continue ;; esac
    if runs_command_of "$each" "${line#*:}"; then workers="$workers $each"; else pythons="$pythons $each"; fi
  done
  set -- $pythons $workers; pythons=''
  for each; do [ $count -lt "$most" ] && pythons="$pythons $each" count=$((count + 1)); done
}

show_kin() { # prints PID:PARENT
  (set -f; IFS='
'; for line in $all; do
    each=${line%% *} line=${line#* * }
    case $tree in *" $each "*) echo "$each:${line%% *}" ;; esac
  done)
}

# Set $its to the uid of a process, $inner to its number in its own container, and $space to that container's pid namespace.
read_ids() { # PID
  its='' inner=$1
  space=$(ls -ldn "/proc/$1/ns/pid" 2>/dev/null | sed 's/.*\[\([0-9]*\)\]$/\1/')
  while read -r key line; do
    case $key in Uid:) set -- $line; its=$2 ;; NSpid:) inner=${line##*[!0-9]} ;; esac
  done 2>/dev/null <"/proc/$1/status"
}

# Run a command in the folder in which the process answers; it must be that of its user, and be entered without a link
# that could be changed between the check and the use.
in_answers() { # PID COMMAND...
  cd -P "/proc/$1/root/tmp/training_monitor-stacks-$its-$space" 2>/dev/null || return 1
  # shellcheck disable=SC2046
  set -- "$its" $(ls -dn .) "$@"
  case $2:$4 in drwx------*:"$1") ;; *) return 1 ;; esac
  while [ $# -gt 0 ] && [ "$1" != . ]; do shift; done
  shift 2
  "$@"
}

# A folder is a request: a file could become a link to something else before it is written.
request() { # PID
  read_stat "$1" && [ -f "$inner.$_start.here" ] && mkdir "$inner.ask.$nonce"
} 2>/dev/null

# Print an answer. It is moved to where nobody else can put another file in its place, and looked at there. It is removed
# before it is read: where we are root, its user could not remove what is left by us when we are killed.
fetch() {
  here=$(pwd -P) look=$inner.look.$nonce
  [ -f "$inner.said.$nonce" ] && mkdir -m 700 "$look" && cd -P "$look" && [ "$(pwd -P)" = "$here/$look" ] || return 1
  if [ "$(owner_of .)" = "$me" ] && mv "../$inner.said.$nonce" said; then
    if [ -f said ] && [ ! -L said ] && [ "$(owner_of said)" = "$its" ]; then
      { rm -f said; head -c "$most_bytes"; } <said
    else mv said "../$inner.said.$nonce"
    fi
  fi
  cd .. && rmdir "$look"
  withdraw
} 2>/dev/null

withdraw() { rmdir "$inner.ask.$nonce"; } 2>/dev/null # unless the process has done so

# Set $until to so many hundredths of a second from now, at most to the end.
allow() { read_uptime; until=$((_up + $1)); [ $until -lt $end ] || until=$end; }

has_time() { read_uptime; [ "$_up" -lt $until ]; }

# Print the stacks that the scripts themselves write, and set $left to the other processes.
ask_scripts() {
  asked='' left=''
  for each in $pythons; do
    read_ids "$each"
    if (in_answers "$each" request "$each"); then asked="$asked $each"; else left="$left $each"; fi
  done
  allow 400
  while [ "$asked" ] && has_time; do
    sleep 0.1; waiting=''
    for each in $asked; do
      read_ids "$each"; said=$(in_answers "$each" fetch)
      if [ "$said" ]; then tell "$each" in-script "$said"; else waiting="$waiting $each"; fi
    done
    asked=$waiting
  done
  for each in $asked; do read_ids "$each"; (in_answers "$each" withdraw); done
  left="$left $asked"
}

# Set $spy to a py-spy: the one that was sent, that of this path, or the one beside a Python of the training.
find_spy() {
  spy=''
  for each in ${sent:+"$sent/py-spy"} "$(command -v py-spy)"; do [ "$spy" ] || { is_safe "$each" && spy=$each; }; done
  for each in $pythons; do
    [ "$spy" ] && return
    find_beside "$each" "$(head -c 4096 "/proc/$each/cmdline" | tr '\000\n' '\n ' | head -n 1)" py-spy; spy=$program
  done
}

# What fails is run once more for what it says, unless it was killed.
ask_spy() { # PID
  said=$($limited "$spy" dump --nonblocking --json --pid "$1" 2>/dev/null | head -c "$most_bytes")
  case $said in '['*) ;; *)
    ! has_time || said=$($limited "$spy" dump --nonblocking --json --pid "$1" 2>&1 | head -c 2000) ;;
  esac
  tell "$1" py-spy "$said"
}

# From 3.14 on, Python runs a script that another process names, as soon as its main thread runs Python; and it can read
# the stacks of one that waits.
ask_remote() { # PID
  exe=$(ls -ldn "/proc/$1/exe" 2>/dev/null); exe=${exe#* -> }
  case ${exe##*/} in python3.1[4-9]* | python3.[2-9][0-9]*) ;; *) return 1 ;; esac
  find_beside "$1" "$exe" "${exe##*/}"
  [ "$program" ] || return 1
  read_stat "$1"; way=remote_debugging
  [ "$_state" != R ] || way=remote_exec
  said=$($limited "$program" -I -S -c "$remote" "$1" $way "$dump" 2>&1 | head -c "$most_bytes")
  tell "$1" $way "$said"
}

# Ask the processes of one of four lanes.
ask_lane() { # LANE
  at=0 answer_bytes=$((answer_bytes / 4))
  for each in $left; do
    at=$((at + 1))
    [ $((at % 4)) -eq "$1" ] || continue
    allow 400; has_time || { part "stack $each late"; continue; }
    if [ "$spy" ]; then ask_spy "$each"; else ask_remote "$each" || part "stack $each none"; fi
  done
}

# Nested pipelines, so that all lanes run at once and the parts come one after the other.
ask_lanes() { # LANE
  [ "$1" -lt 4 ] || return 0
  ask_lane "$1" | {
    ask_lanes $(($1 + 1))
    cat <&3
  } 3<&0
}

show_stacks() {
  read_uptime; end=$((_up + seconds * 100))
  me=$(id -u)
  limited=''; if command -v timeout >/dev/null; then limited='timeout -s KILL 5'; fi
  find_ranks
  find_pythons
  find_encoding
  part pythons; echo "$pythons"
  ask_scripts
  find_spy
  ask_lanes 0
  [ -z "$sent" ] || { rm -f "$sent/py-spy"; rmdir "$sent"; }
  part end
}
