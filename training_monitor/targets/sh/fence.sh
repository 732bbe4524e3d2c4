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

# A file with another name somewhere (a hard link) may be anything. Where other file systems are mounted, as in a
# container, the same path names another file.
_tm_may_read() {
  case $_tm_real in *"$_tm_line"*) return 1 ;; /*) ;; *) return 1 ;; esac
  if [ "$_tm_id" ]; then
    [ -d "$_tm_open" ] || [ "$(stat -L -c %h "$_tm_open")" -le 1 ] || return 1
    [ "$(stat -c %d:%i -- "$_tm_real")" = "$_tm_id" ] || { _tm_is_held; return; }
  fi
  [ "$_tm_real" != / ] && case $_tm_line$_tm_found$_tm_line in *"$_tm_line$_tm_real$_tm_line"*) return 0 ;; esac
  _tm_is_of_job || _tm_is_below || _tm_is_configured
}

_tm_is_of_job() {
  case $_tm_real in */session_*/logs/job-driver-*.log) return 0 ;; esac
  _tm_folder=$(cd -P -- "${TRAINING_MONITOR_JOBS_DIR:-$HOME/.training_monitor/jobs}" && pwd -P) || return
  case $_tm_real in "$_tm_folder"/*/log) ;; *) return 1 ;; esac
  case ${_tm_real#"$_tm_folder"/} in */*/*) return 1 ;; esac
}

# Below a folder that whoever started the server gave, or a checkpoint folder, which a training names: that opens no
# hidden file, no system folder and no home.
_tm_is_below() {
  set -f; IFS=$_tm_line
  # shellcheck disable=SC2086
  { set -- $_tm_under; _tm_count=$#; set -- "$@" $_tm_found; }
  unset IFS; set +f
  for _tm_each; do
    _tm_count=$((_tm_count - 1))
    case $_tm_each in [~]) _tm_each=$HOME ;; [~]/*) _tm_each=$HOME/${_tm_each#??} ;; esac
    if [ $_tm_count -lt 0 ]; then case $_tm_each in /proc/*) continue ;; */) ;; *) continue ;; esac; fi
    _tm_folder=$(cd -P -- "$_tm_each" && pwd -P) || continue
    case $_tm_real/ in "${_tm_folder%/}"/*) ;; *) continue ;; esac
    [ $_tm_count -lt 0 ] || return 0
    _tm_home=$(cd -P -- "$HOME" && pwd -P)
    case $_tm_home/ in "${_tm_folder%/}"/*) continue ;; esac
    case $_tm_folder/ in /etc/* | /proc/* | /sys/* | /dev/* | /boot/* | /run/* | /usr/* | /var/ | /home/ | */.ssh/*) continue ;; esac
    case ${_tm_real#"$_tm_folder"} in */.*) ;; *) return 0 ;; esac
  done
  return 1
}

# Whether it matches a pattern of the settings of whoever started the server.
_tm_is_configured() {
  set -f; IFS=$_tm_line
  # shellcheck disable=SC2086
  set -- $_tm_patterns
  unset IFS; set +f
  _tm_home=$(cd -P -- "$HOME" && pwd -P)
  for _tm_each; do
    case $_tm_each in [~]/*) _tm_each=$_tm_home/${_tm_each#??} ;; /*) ;; *) _tm_each=$PWD/$_tm_each ;; esac
    # shellcheck disable=SC2254
    case $_tm_real in $_tm_each) return 0 ;; esac
  done
  return 1
}

# Whether a training that was found in a container has exactly this file, or has this deleted file open for writing.
_tm_is_held() {
  set -f; IFS=$_tm_line
  # shellcheck disable=SC2086
  set -- $_tm_found
  unset IFS; set +f
  for _tm_each; do
    _tm_each=${_tm_each%/}
    case $_tm_each in
    /proc/[0-9]*/fd/[0-9]*) case $(stat -c %A "$_tm_each") in l?w*) ;; *) continue ;; esac ;;
    /proc/[0-9]*/root/*) ! _tm_has_link "${_tm_each#/proc/*/root}" "${_tm_each%%/root/*}/root" || continue ;;
    *) continue ;;
    esac
    [ "$(stat -L -c %d:%i "$_tm_each")" != "$_tm_id" ] || return 0
  done
  return 1
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
