# Signals to processes that are still the same ones, and what came of them. A process is five words: PID START HOST BOOT
# NAMESPACE, of which all but the first may be empty; `processes` holds those of many, quoted for sh; `own` is the PID of
# whoever asks, if that is one of them. In `named` there are, for each of them, the numbers from 0 on of the `files` by
# which it is known, with commas between: each is a list of paths, quoted twice. Without `named`, whoever asks vouches
# for all.
# uses: parts process owners this_machine
# needs: processes own number signal named files

# Say in $is whether this very process is there: alive, or why not.
look_at() { # PID START HOST BOOT NAMESPACE
  _comm=
  if [ "$3" != "$host" ]; then is=host
  elif [ -z "$2" ] && read_stat "$1"; then is=unsure
  elif [ "$4" != "$boot" ]; then is=boot
  elif [ "$5" != "$namespace" ]; then is=namespace
  elif ! read_stat "$1"; then
    is=hidden
    case $(kill -0 "$1" 2>&1) in *'o such process'*) is=gone ;; esac
  elif [ "$_start" != "$2" ]; then is=other
  else case $_state in [ZX]) is=zombie ;; *) is=alive ;; esac; fi
}

# Send the signal to each, and look up to a second what came of it.
signal_all() {
  find_owners
  eval "set -- $processes"
  sent='' at=0
  while [ $# -gt 0 ]; do
    numbers=${named%% *} named=${named#* }
    send "$1" "$2" "$3" "$4" "$5"
    shift 5
    at=$((at + 1))
  done
  wait_for_effects
  for one in $sent; do
    at=${one%%:*} one=${one#*:} is=ended
    if read_stat "${one%:*}" && [ "$_start" = "${one#*:}" ]; then
      case $_state in [ZX]) ;; *) is="left $_state" ;; esac
    fi
    eval "_comm=\$comm_$at"
    tell "$is"
  done
  part end
}

# Set owner_N for each of the files to the user whose word it is.
find_owners() {
  eval "set -- $files"
  count=0
  for each; do
    eval "owner_$count=\$(show_owner $each)"
    count=$((count + 1))
  done
}

# Whether one of the files by which a process is known belongs to its user, or to root.
is_named_by_its_user() { # PID
  [ "$numbers" ] || return 0
  owners=''
  for each in $(echo "$numbers" | tr , ' '); do eval "owners=\"$owners \$owner_$each\""; done
  may_name "$1" $owners
}

send() { # PID START HOST BOOT NAMESPACE
  [ "$1" -gt 1 ] || { tell never; return; }
  [ "$1" != "$own" ] || { tell own; return; }
  look_at "$@"
  [ $is = alive ] || { tell $is; return; }
  is_named_by_its_user "$1" || { tell owner; return; }
  eval "comm_$at=\$_comm" # a process that has ended has no name
  if said=$(kill "-$number" "$1" 2>&1); then sent="$sent $at:$1:$2"; return; fi
  look_at "$@"
  case $is:$said in alive:*ermit*) is=denied ;; alive:*) is=failed ;; esac
  tell $is
}

tell() { part "$at"; echo "$1"; printf %s "$_comm"; }

wait_for_effects() {
  n=0 open=1
  while [ "$open" ] && [ $n -lt 10 ]; do
    open=
    for one in $sent; do one=${one#*:}; has_effect "${one%:*}" "${one#*:}" || open=1; done
    [ -z "$open" ] || sleep 0.1 || { sleep 1; n=10; }
    n=$((n + 1))
  done
}

has_effect() { # PID START
  read_stat "$1" || return 0
  [ "$_start" = "$2" ] || return 0
  case $signal$_state in *[ZX] | STOPT) return 0 ;; CONTT) return 1 ;; CONT*) return 0 ;; esac
  return 1
}
