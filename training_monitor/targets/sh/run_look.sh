# The files of a folder of runs, and the processes of its machine. Names are always spelled with a path before them, so
# that none is taken for an option.
# uses: parts this_machine
# needs: folder spelling most_names most_files file_bytes folder_bytes threads_of process_bytes thread_bytes
# paths: folder

# The names are printed before they are sorted out, so that none is left out silently. `head` reads all files as one
# process; with a file at both ends it prints a line before each one, and the last line says that nothing was cut.
show_folder() {
  enter_folder
  part now; date +%s
  part root; pwd -P
  set -- *.json */progress.json */control.json */*/progress.json */*/control.json
  [ $# -le "$most_names" ] || finish many
  printf "\n$word name\n%s" "$@"
  for name in '*.json' '*/progress.json' '*/control.json' '*/*/progress.json' '*/*/control.json'; do
    [ -e "$name" ] || print_name other
  done
  if [ $# -gt "$most_files" ]; then
    part some
    set -f; IFS='
'
    # shellcheck disable=SC2046
    set -- $(ls -td -- "$@" | head -n "$most_files")
    unset IFS; set +f
  fi
  for name do
    shift
    if [ -d "$name" ] || [ ! -e "$name" ]; then print_name other
    elif [ "${_tm_under+fenced}" ] && { [ -L "$name" ] || [ -L "${name%/*}" ] || [ -L "${name%%/*}" ]; }; then print_name denied
    elif [ ! -f "$name" ]; then print_name special
    elif [ ! -r "$name" ]; then print_name denied
    else set -- "$@" ".$spelling$name"; fi
  done
  part files
  head -c "$file_bytes" "${spelling}dev/null" "$@" "${spelling}dev/null" | head -c "$folder_bytes"
  return 0
}

enter_folder() {
  if [ ! -d "$folder" ]; then
    [ -e "$folder" ] && finish file
    case $(ls -Ld "$folder" 2>&1) in *': Permission denied') finish closed ;; *) finish missing ;; esac
  fi
  cd "$folder" && [ -r . ] || finish closed
}

print_name() { printf '\n%s %s\n%s' "$word" "$1" "$name"; }

# A name of a process holds at most 15 bytes and perhaps line ends: the lines of `head` cannot be forged by it, and 20
# lines hold it. The last line says that no process was cut off.
look() {
  part began; date +%s
  part facts
  printf 'pid=%s\nhost=%s\nboot=%s\nnamespace=%s\n' $$ "$host" "$boot" "$namespace"
  echo "ticks=$(getconf CLK_TCK || echo 100)"
  page=$(getconf PAGESIZE) || page=$(($(sed -n '/^KernelPageSize/{s/[^0-9]//g;p;q;}' /proc/self/smaps) * 1024))
  echo "page=$page"
  echo "cores=$(getconf _NPROCESSORS_ONLN || nproc || grep -c ^processor /proc/cpuinfo)"
  read -r uptime _ </proc/uptime && echo "uptime=$uptime"
  part memory; cat /proc/meminfo
  part processes; head -n 20 /proc/[0-9]*/stat /dev/null | head -c "$process_bytes"
  for pid in $threads_of; do
    part "threads $pid"; head -n 20 "/proc/$pid/task/"[0-9]*/stat /dev/null | head -c "$thread_bytes"
  done
  show_folder
}
