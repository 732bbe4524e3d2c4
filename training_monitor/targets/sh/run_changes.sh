# Changes to the files of a run, by paths relative to the folder of runs: $root, absolute and without links.
# uses: parts run_signals
# needs: root control_folder control old new is_any temporary file_bytes progress run_folder paths process is_running

enter_root() { cd "$root" && [ "$(pwd -P)" = "$root" ] || finish moved; }

# Replace the file $control in $control_folder, where it holds $old ($is_any: whatever it holds), by $new, and read it
# again. Other editors are kept out by the lock that `top` takes on that machine too, where flock is installed and can
# lock folders. A file that already holds $new was written by this script, whose answer was lost.
edit() {
  enter_root
  cd "./$control_folder" || finish gone
  [ -f "$control" ] || [ ! -e "$control" ] || finish other
  if command -v flock >/dev/null && [ -r . ] && exec 9<.; then
    n=0; while flock -n 9; [ $? = 1 ]; do n=$((n + 1)); [ $n -lt 20 ] || finish busy; sleep 0.1; done
  fi
  now=$(head -c "$file_bytes" "$control" 2>/dev/null) || [ ! -e "$control" ] || finish failed 'it cannot be read'
  [ "$now" != "$new" ] || finish written
  [ "$now" = "$old" ] || [ "$is_any" ] || finish changed "$now"
  {
    find . ! -name . -prune -type f -user "$(id -u)" -name '.training-monitor-edit-*.tmp' -mmin +60 -exec rm -f {} +
  } 2>/dev/null
  set -C
  said=$({ printf '%s\n' "$new" >"$temporary"; } 2>&1) && chmod go-w "$temporary" && mv -f "$temporary" "$control" || {
    rm -f "$temporary"
    finish failed "$said"
  }
  [ "$(cat "$control")" = "$new" ] || finish changed "$(head -c "$file_bytes" "$control")"
  finish written
}

# Count the files that `delete` would remove, and the KiB that they take on the disk. The last line of `du` is its total.
measure() {
  enter_root
  eval "set -- $paths"
  for path do
    shift
    if [ -e "$path" ] || [ -L "$path" ]; then set -- "$@" "$path"; fi
  done
  [ $# -gt 0 ] || finish measured "0 0"
  sizes=$(du -skc "$@" 2>&1) || finish failed "$sizes"
  # shellcheck disable=SC2016
  count=$(find "$@" ! -type d -exec sh -c 'printf "%$#s" ""' sh {} + | wc -c)
  size=$(printf '%s\n' "$sizes" | tail -n 1)
  finish measured "$((count)) ${size%%[!0-9]*}"
}

# Remove the run's own folder, or its $paths, unless it is or may be alive, and look whether they are gone. Where its
# process cannot be seen from here, a run that says it is RUNNING counts as alive when its file was written within the
# last minute, or nobody can tell. The progress file is the last path: until it is removed, the run is listed.
delete() {
  enter_root
  eval "set -- $process"
  if [ $# = 0 ]; then is=nobody; else look_at "$@"; fi
  case $is$is_running in
  alive*) finish alive ;;
  unsureyes) finish unsure ;;
  hostyes | bootyes | namespaceyes | hiddenyes | nobodyyes)
    [ "$(find -L "$progress" ! -mmin -1)" = "$progress" ] || [ ! -e "$progress" ] || finish heard ;;
  esac
  eval "set -- $paths"
  if [ "$run_folder" ]; then
    [ ! -L "$run_folder" ] || finish link
    [ -d "$run_folder" ] || [ ! -e "$run_folder" ] || finish file
    said=$(rm -rf "$run_folder" 2>&1)
  else
    said=$(for path do rm -f "$path" || exit; done 2>&1)
  fi || finish failed "$said"
  for path do [ ! -e "$path" ] && [ ! -L "$path" ] || finish left "$path"; done
  finish deleted
}
