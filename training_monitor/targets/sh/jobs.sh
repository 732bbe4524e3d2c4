# All process jobs of a target.
# uses: process jobs_folder
# needs: most_odd

# Print their names, newest first, after a line `? WHY: NAME` for each of the first entries that are no jobs of ours.
list() {
  [ -e "$_base" ] || return 0
  [ -d "$_base" ] || { echo "$_base is not a folder"; return 1; }
  cd -- "$_base" 2>&1 && [ -r . ] || { echo "$_base cannot be read"; return 1; }
  entries=$(list_entries)
  names=$(printf '%s\n' "$entries" | grep -v '^? ')
  printf '%s\n' "$entries" | grep '^? '
  set -f
  # shellcheck disable=SC2086
  [ -z "$names" ] || ls -1td -- $names 2>/dev/null || printf '%s\n' "$names" # too many, or one has just gone
  return 0
}

list_entries() {
  odd=0 open=$(show_openness)
  [ -z "$open" ] || [ "$(show_user)" = 0 ] || { odd=1; echo "? $open, and could make up jobs: chmod go-w $_base"; }
  for each in *; do
    case $each in
      [!A-Za-z0-9]* | *[!A-Za-z0-9._-]*) [ ! -e "$each" ] && [ ! -L "$each" ] || tell "not a job name" ;;
      *)
        if [ ! -d "$each" ]; then tell "not a folder"
        elif is_link_to_no_job "$each"; then tell "a link that leads to no job"
        else echo "$each"; fi ;;
    esac
  done
  [ $odd -le "$most_odd" ] || echo "? and $((odd - most_odd)) more"
}

tell() { # WHY
  odd=$((odd + 1))
  [ $odd -gt "$most_odd" ] || { printf '? %s: %s' "$1" "$each" | tr '\n' '?'; echo; }
}

# Print the job whose own process this is, or the shell that runs its command; others may be programs beside a training.
show_job_of() { # PID
  each=$(tr '\000' '\n' <"/proc/$1/environ" | sed -n 's|^TRAINING_MONITOR_JOB=\(.*\)/$|\1|p')
  [ "${each%/*}" = "$_base" ] && read -r own _ <"$each/pid" && read_stat "$1" || return 0
  case $own in "$1" | "$_parent") echo "process:${each##*/}" ;; esac
}
