# Holds: a person's word that a job is not to be started again, a file for each job.
# uses: jobs_folder
# needs: key keys by job

hold() {
  umask 077
  file=$_base/.held/$key
  { mkdir -p "$_base/.held" && printf '%s\n' "$by" "$job" >"$file.new" && mv "$file.new" "$file"; } 2>&1
}

unhold() {
  for key in $keys; do rm -f "$_base/.held/$key" 2>&1 || return; done
}

show() {
  [ ! -e "$_base/.held/$key" ] || head -n 1 "$_base/.held/$key"
}
