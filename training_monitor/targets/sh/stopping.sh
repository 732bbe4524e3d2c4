# Ends processes: TERM, KILL after $_grace hundredths of a second, and another look.
# uses: process uptime
# needs: _grace

# What a function lists is listed again after each signal, since it may have started others. What is still there
# afterwards is printed with its state, and in $_left. A suspended process handles SIGTERM only once it is continued.
end_processes() { # FUNCTION
  _left=$("$1") _wait=$_grace
  for _signal in TERM KILL; do
    read_uptime
    _end=$((_up + _wait)) _wait=500; send_signal $_left
    while [ "$_left" ] && read_uptime && [ "$_up" -lt $_end ]; do
      sleep 0.1; _running=''
      for _each in $_left; do runs "$_each" && _running="$_running $_each"; done
      [ "$_running" ] || { _running=$("$1"); [ -z "$_running" ] || send_signal $_running; }
      _left=$_running
    done
    _left=$("$1")
  done
  echo state=stopped
  for _each in $_left; do read_stat "$_each" && echo "left=$_each $_state"; done
}

send_signal() { kill -$_signal "$@" 2>/dev/null; kill -CONT "$@" 2>/dev/null; } # PID...
