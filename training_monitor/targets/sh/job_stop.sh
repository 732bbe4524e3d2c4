# Stops a process job.
# uses: job stopping
# needs: _by

stop() {
  [ -d "$_dir" ] || { echo state=missing; return; }
  [ -e "$_dir/exit_code" ] || [ -e "$_dir/stopped" ] || { [ -s "$_dir/pid" ] && ! is_alive; } || {
    printf '%s\n' "$_by" 1<>"$_dir/stopped.new" && mv "$_dir/stopped.new" "$_dir/stopped"
  }
  end_processes list_members
  [ "$_left" ] || [ ! -s "$_dir/pid" ] || is_alive || tidy
}
