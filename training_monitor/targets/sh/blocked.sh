# Processes whose main thread waits in the kernel for a disk (state D) without once waking up for a second, and the file
# systems of a network that they may wait for. Nothing here looks at a file of theirs, only at the names.
# $roots are the pids of a training, or nothing for all processes.
# uses: process roots
# needs: most most_paths

list_waiting() {
  find_training_or_all
  printf '%s\n' "$all" | sed -n 's/^\([0-9]*\) D .*/\1/p' | while read -r pid; do
    case $tree in *" $pid "*) echo "$pid" ;; esac
  done | head -n "$most"
}

# How often a process was on and off a processor.
count_switches() { # PID
  sed -n 's/^[a-z]*voluntary_ctxt_switches:[^0-9]*//p' "/proc/$1/status" 2>/dev/null | tr '\n' ' '
}

show_mounts() { # PID
  grep -aE ' - (nfs4?|cifs|smb3|ceph|lustre|gpfs|beegfs|glusterfs|9p|virtiofs|wekafs|afs|ocfs2|gfs2|fuse|fuseblk|fuse\.[^ ]+) ' \
    "/proc/$1/mountinfo" | head -n 50 | cut -c 1-1000 | sed 's/^/mount /'
}

show_paths() { # PID
  ls -ln "/proc/$1/cwd" "/proc/$1/fd" 2>/dev/null | sed -n 's|^l.* -> \(/.*\)|path \1|p' | grep -v '^path /dev/' |
    head -n "$most_paths" | cut -c 1-1000
}

show_blocked() {
  set --
  for pid in $(list_waiting); do set -- "$@" "$pid $(count_switches "$pid")"; done
  [ $# -eq 0 ] || sleep 1
  for each; do
    pid=${each%% *}
    read_stat "$pid" && [ "$_state" = D ] && [ "$pid $(count_switches "$pid")" = "$each" ] || continue
    channel=$(cat "/proc/$pid/wchan" 2>/dev/null)
    printf 'blocked %s %s %s\n' "$pid" "${channel:-0}" "$(printf %s "$_comm" | tr '\n' ' ')"
    show_mounts "$pid"
    show_paths "$pid"
  done
  echo end
}
