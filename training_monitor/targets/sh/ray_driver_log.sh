# The log file of a Ray job's driver.
# uses: ray_folders
# needs: _log

# Where it is none of this machine, print where it would be.
find_log() {
  IFS='
'
  for _folder in $(list_ray_folders); do
    _file=$_folder/session_latest/logs/$_log
    [ -f "$_file" ] && break
  done
  echo "$_file"
}
