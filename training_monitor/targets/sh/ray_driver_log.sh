# The log file of a Ray job's driver.
# needs: _log

# Where it is none of this machine, print where it would be.
find_log() {
  for _folder in "${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray" "${RAY_TMPDIR:-/tmp/ray}" /tmp/ray; do
    _file=$_folder/session_latest/logs/$_log
    [ -f "$_file" ] && break
  done
  echo "$_file"
}
