# Ends a script that streams when its input ends, which stays open as long as whoever reads the stream is there.

hold() {
  { watch_input <&9 9<&- >/dev/null 2>&1 & } 9<&0
  _watcher=$!
  trap 'kill -9 $_watcher 2>/dev/null; wait $_watcher 2>/dev/null' EXIT
}

# All of its process group: it has one of its own wherever a connection begins one. Where the script has ended, its
# number may be another's.
watch_input() {
  while read -r _line; do :; done
  read -r _ _ _ _parent _group _ </proc/self/stat
  [ "$_parent" != $$ ] || if [ "$_group" = $$ ]; then kill 0; else kill $$; fi
}
