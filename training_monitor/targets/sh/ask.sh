# Many questions in one round trip, see asking.py. They run in the environment of whoever asks, so that every variable
# here begins with `_`.
# needs: _nonce _most _ends

LC_ALL=C
export LC_ALL

_now() { read -r _t _rest </proc/uptime || _t=$(date +%s); } 2>/dev/null

# Sleep, and when ended, leave no sleep behind as an orphan (a container's process 1 may never reap it).
_nap() {
  sleep "$1" &
  _z=$!
  [ "$_e" ] && kill -9 $_z
  wait $_z
  [ "$_e" ] && { wait $_z; exit; }
}

# Kill what carries a mark in its environment: at a limit what still runs, and 1 s later the gathering of what not even
# SIGKILL ends.
_end() { # MARK
  _mark=$1 _found=''
  if command -v grep; then _found=$(grep -lsF "$_mark" /proc/[0-9]*/environ)
  else
    for _f in /proc/[0-9]*/environ; do case $(cat "$_f") in *"$_mark"*) _found="$_found $_f" ;; esac; done
  fi
  for _f in $_found; do
    _f=${_f#/proc/}
    kill -9 "${_f%/environ}"
  done
}

# One process for all: SECONDS VARIABLE LIMIT... in $_ends says after how long which ones are ended.
_watch() {
  _e='' _z=''
  trap '_e=1; kill -9 $_z' TERM
  set -- $_ends
  while [ $# -gt 0 ]; do
    [ "$1" = 0 ] || _nap "$1"
    _end "$2=$_nonce:$3:"
    shift 3
  done
} >/dev/null 2>&1

# End all when the input does, which stays open as long as whoever asks is there.
_hold() {
  while read -r _line; do :; done
  _end_all &
} >/dev/null 2>&1

# End all, until two looks, half a second apart, find nothing: something may just have begun.
_end_all() {
  _looks=0 _none=0
  while [ $_none -lt 2 ] && [ $_looks -lt 20 ]; do
    [ $_looks -lt 2 ] || _end "TM_READ=$_nonce:"
    _end "TM_ASK=$_nonce:"
    _looks=$((_looks + 1)) _none=$((_none + 1))
    [ -z "$_found" ] || _none=0
    sleep 0.5
  done
} >/dev/null 2>&1

# Print one frame to 4, as soon as the one before it is printed, which closes our input. The processes of the script
# carry its limit, and so does the `head` that gathers their output.
_ask() { # NUMBER LIMIT SCRIPT
  _now
  _begin=$_t
  _body=$(
    exec 3>&1 4>&-
    {
      TM_ASK=$_nonce:$2: TM_SCRIPT=$3 sh -c '_q=$TM_SCRIPT; unset TM_SCRIPT; eval "$_q"' </dev/null
      printf '\n%s exit %s\n' "$_nonce" $?
    } 2>/dev/null 3>&- | TM_READ=$_nonce:$2: head -c "$_most" >&3 3>&- &
    wait $!
  ) 2>/dev/null
  _now
  read -r _turn
  printf '\n%s ask %s %s %s\n%s\n' "$_nonce" "$1" "$_begin" "$_t" "$_body" >&4
}

ask_all() { # LIMIT SCRIPT...
  [ -z "${_held:-}" ] || _hold <&9 9<&- &
  _h=$!
  exec 9<&-
  _watch &
  _w=$!
  # One pipeline, so that all run at once and print in turn; scripts stay where they are, as $2, $4, ...
  _count=0 _asked=''
  while [ $((_count * 2)) -lt $# ]; do
    _asked="$_asked${_asked:+ | }_ask $_count \"\${$((_count * 2 + 1))}\" \"\${$((_count * 2 + 2))}\""
    _count=$((_count + 1))
  done
  { eval "$_asked"; } 4>&1
  { kill $_w; kill -9 $_h; wait $_w $_h; } 2>/dev/null
  printf '\n%s close\n' "$_nonce"
} 9<&0 </dev/null
