# Starts a process job. What runs as the leader of its session is $_program, see job_program.sh.
# uses: job
# needs: _starter _command _exports _program _folder _shared

# The same $_starter, asked again, has started it too.
start() {
  umask 077
  cd -- "$_folder" 2>/dev/null || { echo "error=the working directory $_folder does not exist"; return; }
  mkdir -p "$_base" || { echo "error=cannot create $_base on the target"; return; }
  _open=$([ -z "$_shared" ] || show_openness)
  [ -z "$_open" ] || { echo "open=$_open: $_base"; return; }
  [ -d "$_dir" ] || [ -z "$(list_members)" ] || [ -d "$_dir" ] || {
    echo "error=processes of this job are running, but $_dir is missing"; return
  }
  if mkdir "$_dir" 2>/dev/null; then
    fill || { rm -rf "$_dir"; echo "error=cannot write to $_dir (disk full?)"; return; }
    launch </dev/null >/dev/null 2>&1 &
  else
    [ -d "$_dir" ] || { echo "error=cannot create $_dir on the target (disk full, or no permission)"; return; }
    _found=''; read -r _found 2>/dev/null <"$_dir/starter"
    [ "$_found" = "$_starter" ] || { echo state=exists; return; }
  fi
  _looks=0
  until [ -s "$_dir/pid" ] || [ $_looks -ge 100 ]; do sleep 0.05; _looks=$((_looks + 1)); done
  [ -s "$_dir/pid" ] && echo state=started || echo "error=the job's process did not appear within 5 s"
}

# What is written at the end needs its space now.
fill() {
  echo "$_starter" >"$_dir/starter" && printf '%s\n' "$_command" >"$_dir/command" &&
    printf '%200s\n' '' >"$_dir/exit_code.new" && printf '%200s\n' '' >"$_dir/stopped.new"
}

# Variables of the user's may have any name: none of ours is read behind them.
launch() {
  unset LC_ALL TM_ASK TRAINING_MONITOR_READ_UNDER _tm_under _tm_found _tm_patterns; export TRAINING_MONITOR_JOB="$_dir/"
  set -- "$_program" "$_dir"
  eval "$_exports"
  exec $(command -v setsid) sh -c "$1" training-job "$2" </dev/null >>"$2/log" 2>&1
}
