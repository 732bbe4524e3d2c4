# Whether a path may be read where somebody else chose it, see core/read_fence.py. A file is opened first; what is judged
# is what was opened, and only that is read, through its descriptor: nothing can be put in its place in between.
# needs: _tm_under _tm_found _tm_patterns

_tm_line='
'

# Let a variable name what may be read: the open file or folder, or something that is missing or no file. Else end with
# status 93, or 94 where the target's user may not read it.
fence() { # VARIABLE DESCRIPTOR
  eval "_tm_given=\$$1"
  [ "$_tm_given" ] || return 0
  eval "exec $2<&-"
  _tm_open=/proc/self/fd/$2 _tm_id=''
  if [ -r "$_tm_given" ] && { [ -f "$_tm_given" ] || [ -d "$_tm_given" ]; }; then
    eval "exec $2<\"\$_tm_given\""
    _tm_id=$(stat -L -c %d:%i "$_tm_open") || exit 93
    _tm_real=$(readlink -n "$_tm_open"; echo .)
  else
    _tm_real=$(readlink -nf -- "$_tm_given"; echo .)
  fi
  _tm_real=${_tm_real%.}
  _tm_may_read || exit 93
  if [ "$_tm_id" ] || [ ! -e "$_tm_given" ]; then eval "$1=\$_tm_open"
  elif [ -f "$_tm_given" ] || [ -d "$_tm_given" ]; then exit 94
  else eval "$1=/dev/null"; fi
} 2>/dev/null

# Let a variable name only what a training was found to print to.
fence_found() { # VARIABLE
  eval "_tm_given=\$$1"
  case $_tm_line$_tm_found$_tm_line in *"$_tm_line${_tm_given:-/}$_tm_line"*) ;; *) exit 93 ;; esac
}

# A file with another name somewhere (a hard link) may be anything. Where other file systems are mounted, as in a
# container, the same path names another file.
_tm_may_read() {
  case $_tm_real in *"$_tm_line"*) return 1 ;; /*) ;; *) return 1 ;; esac
  if [ "$_tm_id" ]; then
    [ -d "$_tm_open" ] || [ "$(stat -L -c %h "$_tm_open")" -le 1 ] || return 1
    [ "$(stat -c %d:%i -- "$_tm_real")" = "$_tm_id" ] || { _tm_any _tm_is_held "$_tm_found"; return; }
  fi
  [ "$_tm_real" != / ] && case $_tm_line$_tm_found$_tm_line in *"$_tm_line$_tm_real$_tm_line"*) return 0 ;; esac
  _tm_is_of_job || _tm_any _tm_is_below "$_tm_under" || _tm_any _tm_is_checkpoint "$_tm_found" ||
    _tm_any _tm_is_configured "$_tm_patterns"
}

_tm_is_of_job() {
  case $_tm_real in */session_*/logs/job-driver-*.log) return 0 ;; esac
  _tm_folder=$(cd -P -- "${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}" && pwd -P) || return
  case $_tm_real in "$_tm_folder"/*/log) ;; *) return 1 ;; esac
  case ${_tm_real#"$_tm_folder"/} in */*/*) return 1 ;; esac
}

# Whether a test is true of one of some lines, which it finds in $_tm_each.
_tm_any() { # TEST LINES
  _tm_test=$1
  set -f; IFS=$_tm_line
  # shellcheck disable=SC2086
  set -- $2
  unset IFS; set +f
  for _tm_each; do
    ! "$_tm_test" || return 0
  done
  return 1
}

# Whether it is below this folder, of those that whoever started the server gave.
_tm_is_below() {
  case $_tm_each in [~]) _tm_each=$HOME ;; [~]/*) _tm_each=$HOME/${_tm_each#??} ;; esac
  _tm_folder=$(cd -P -- "$_tm_each" && pwd -P) || return
  case $_tm_real/ in "${_tm_folder%/}"/*) ;; *) return 1 ;; esac
}

# Whether it is in this checkpoint folder, which a training names: that opens no hidden file, no system folder and no
# home.
_tm_is_checkpoint() {
  case $_tm_each in /proc/*) return 1 ;; */) ;; *) return 1 ;; esac
  _tm_is_below || return
  _tm_home=$(cd -P -- "$HOME" && pwd -P)
  case $_tm_home/ in "${_tm_folder%/}"/*) return 1 ;; esac
  case $_tm_folder/ in /etc/* | /proc/* | /sys/* | /dev/* | /boot/* | /run/* | /usr/* | /var/ | /home/ | */.ssh/*) return 1 ;; esac
  case ${_tm_real#"$_tm_folder"} in */.*) return 1 ;; esac
}

# Whether it matches this pattern of the settings of whoever started the server.
_tm_is_configured() {
  case $_tm_each in
  [~]/*) _tm_each=$(cd -P -- "$HOME" && pwd -P)/${_tm_each#??} ;;
  /*) ;;
  *) _tm_each=$PWD/$_tm_each ;;
  esac
  # shellcheck disable=SC2254
  case $_tm_real in $_tm_each) ;; *) return 1 ;; esac
}

# Whether a training in a container, which was found, has exactly this file, or has this deleted file open for writing.
_tm_is_held() {
  _tm_each=${_tm_each%/}
  case $_tm_each in
  /proc/[0-9]*/fd/[0-9]*) case $(stat -c %A "$_tm_each") in l?w*) ;; *) return 1 ;; esac ;;
  /proc/[0-9]*/root/*) ! _tm_has_link "${_tm_each#/proc/*/root}" "${_tm_each%%/root/*}/root" || return 1 ;;
  *) return 1 ;;
  esac
  [ "$(stat -L -c %d:%i "$_tm_each")" = "$_tm_id" ]
}

_tm_has_link() { # PATH ROOT
  _tm_rest=$1 _tm_at=$2
  while [ "$_tm_rest" ]; do
    _tm_rest=${_tm_rest#/} _tm_part=${_tm_rest%%/*}
    _tm_at=$_tm_at/$_tm_part
    [ ! -L "$_tm_at" ] || return 0
    case $_tm_rest in */*) _tm_rest=${_tm_rest#"$_tm_part"} ;; *) _tm_rest='' ;; esac
  done
  return 1
}
