# The processes of a training. $roots are the pids of its processes, or of those that all others descend from; one with
# `+` in front of it belongs to the training and never stands for it.
# uses: process_tree
# needs: roots

# Set $named to those that can stand for it, and $others to the others.
split_roots() {
  named='' others=''
  for each in $roots; do
    case ${each#+} in 0 | *[!0-9]*) continue;; esac
    case $each in +*) others="$others ${each#+}";; *) named="${named:+$named }$each";; esac
  done
}

# Set $all to the lines of all processes, and $tree to the pids of the training.
find_training() {
  split_roots
  all=$(read_stats /proc/[0-9]*/stat)
  find_tree $named $others
}

# The same; where $roots is empty, of all processes.
find_training_or_all() {
  [ -z "$roots" ] || { find_training; return; }
  all=$(read_stats /proc/[0-9]*/stat)
  tree=" $(printf '%s\n' "$all" | sed 's/ .*//' | tr '\n' ' ')"
}
