# The log of a Ray job's driver: the file, where it is one of this machine, else what Ray says.
# uses: ray ray_driver_log
# needs: _job _path _most_bytes _most_reply

show_log() {
  _file=$(find_log)
  if [ -f "$_file" ]; then
    # shellcheck disable=SC2046
    set -- $(stat -c '%s %Y' "$_file" 2>/dev/null)
    echo "file ${1:--} ${2:--} $(date +%s)"
    tail -c "$_most_bytes" "$_file"
  else
    ask_rest GET "$_path/logs" '' ray job logs "$_job"
  fi | tail -c "$_most_reply"
}
