# Free space of disks, and how full the memory of a machine is.
# needs: file
# paths: file

# The paths that are there, a line each, and the rows of df in their order.
show_disks() { # PATH...
  for path; do
    shift
    [ -e "$path" ] && set -- "$@" "$path"
  done
  printf '%s\n' "$@" --
  df -Pk "$@" 2>/dev/null
  return 0
}

# How much memory a container may have, and has; /proc/meminfo is that of its machine.
show_memory_limit() (
  if cd /sys/fs/cgroup && [ -e memory.max ]; then set -- memory.max memory.current ''
  elif cd memory; then set -- memory.limit_in_bytes memory.usage_in_bytes total_
  fi
  printf 'limit %s used %s cached %s\n' "$(cat "$1")" "$(cat "$2")" "$(sed -n "s/^$3\(in\)\{0,1\}active_file //p" memory.stat | tr '\n' ' ')"
) 2>/dev/null

# The memory, the disk under the log $file (without it that under `/`), and its path.
show_log_host() {
  [ -e "$file" ] || file=
  cat /proc/meminfo 2>/dev/null
  show_memory_limit
  [ "$file" ] && echo "written $(stat -L -c %Y "$file" 2>/dev/null) now $(date +%s)"
  echo --
  df -Pk "${file:-/}" 2>/dev/null
  echo --
  case $file in /proc/self/fd/*) readlink -f "$file" ;; *) printf '%s' "$file" ;; esac
}

# The free space and the free inodes of the file system of a path, if it is there.
show_space() { # PATH
  [ -e "$1" ] || { echo absent; return; }
  df -Pk "$1"
  echo --
  df -Pi "$1"
  return 0
}
