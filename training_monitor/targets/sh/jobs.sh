# All process jobs of a target.
# uses: jobs_folder

# Print their names, newest first.
list() {
  [ -e "$_base" ] || return 0
  [ -d "$_base" ] || { echo "$_base is not a folder"; return 1; }
  ls -1t "$_base" 2>&1
}
