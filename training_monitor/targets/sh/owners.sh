# Who may say which process is meant: its own user, or root.

# Print whose word a file is: the user to whom all of these belong, 0 where only root's do; nothing where several users
# had a hand in them, or where all can write to the last one. A link counts as well as what it leads to: whoever made it
# chose the file.
show_owner() { # PATH...
  users=$(stat -c %u -- "$@" && stat -L -c %u -- "$@") && modes=$(stat -L -c %A -- "$@") || return
  case ${modes##*[!a-zA-Z-]} in ????????w*) return ;; esac
  owner=0
  for user in $users; do
    case $user in 0 | "$owner") ;; *) [ "$owner" = 0 ] || return; owner=$user ;; esac
  done
  echo "$owner"
} 2>/dev/null

# Whether one of these users is root or that of a process.
may_name() { # PID OWNER...
  user=unknown
  while read -r key uid _; do [ "$key" != Uid: ] || { user=$uid; break; }; done 2>/dev/null <"/proc/$1/status"
  shift
  for owner; do case $owner in 0 | "$user") return 0 ;; esac; done
  return 1
}
