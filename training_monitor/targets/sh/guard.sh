# Runs beside each process of ours that starts programs, and ends these when that process is gone, however it ended: it
# holds the other end of this one's input, where it writes what it starts and what has ended.

guard() {
  _left=' '
  while read -r _what _pid; do
    case $_what in
    started) _left="$_left$_pid " ;;
    *) _left="${_left%% "$_pid" *} ${_left#* "$_pid" }" ;;
    esac
    [ "$_what" != killed ] || end_sessions "$_pid"
  done
  [ "$_left" = ' ' ] || end_sessions "$_left"
}

# Each program is the first of a session; in it may be more groups than one, for instance that of `timeout`.
end_sessions() { # PID...
  for _pid in $1; do kill -9 "-$_pid"; done
  for _stat in /proc/[0-9]*/stat; do
    read -r _line <"$_stat" || continue
    # shellcheck disable=SC2086
    set -- " $1 " ${_line##*) }
    case $1 in *" $5 "*) _pid=${_stat#/proc/}; kill -9 "${_pid%/stat}" ;; esac
  done
} 2>/dev/null
