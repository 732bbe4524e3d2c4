# What leads the session of a process job, as long as it runs: it writes down which process it is, runs the command, and
# writes down how that ended.
# uses: process

_dir=$1

# TERM and INT have a handler and are not ignored: what is started then gets the default. A job that was stopped before
# its pid was written down could not be signalled: it runs nothing.
run_command() {
  read_boot; read_stat $$
  printf '%s %s %s\n' "$$" "$_start" "$_boot" >"$_dir/pid.new" && mv "$_dir/pid.new" "$_dir/pid" || exit 74
  trap '_hit=1' TERM INT
  _child='' _code=143
  [ -e "$_dir/stopped" ] || { sh "$_dir/command" & _child=$! _code=127; }
  while [ "$_child" ]; do
    _hit=''; wait $_child; _now=$?
    [ "$_now" = 127 ] || _code=$_now
    [ "$_hit" ] || break
  done
  printf '%s %s\n' "$_code" "$(date +%s)" 1<>"$_dir/exit_code.new" && mv "$_dir/exit_code.new" "$_dir/exit_code" &&
    rm -f "$_dir/stopped.new"
}
