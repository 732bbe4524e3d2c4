# A log from an offset on, as it grows, as logs/following.py describes it.
# uses: file_part
# needs: file inode offset known nonce most_bytes spelling
# paths: file

# Let GNU `tail` wait for what is written, unless $spelling is empty; where there is none, look four times a second.
# End after an hour, so that a script whose connection nobody closed does not stay for ever.
follow() {
  open_log 2>/dev/null || { printf '%s moved\n' "$nonce"; return; }
  if [ "$spelling" ] && [ "$there" = "$file" ]; then wait_by_tail; fi
  look_again 2>/dev/null
}

# Open the file as `4`: what is renamed is read on.
open_log() {
  for there in "$file" "$file.1"; do [ "$(stat -L -c %i "$there")" != "$inode" ] || break; done
  [ -f "$there" ] && exec 4<"$there" || return 1
  open=/proc/self/fd/4
  [ -e /proc/self/fd/4 ] || open=$there
}

# What the programs themselves say, for instance of a truncated or renamed file, begins with their name; it is spelled
# like nothing in any log.
wait_by_tail() {
  programs=$(command -v tail) && programs=${programs%/*}$spelling
  for program in tail timeout; do
    case $("$programs$program" --version 2>/dev/null) in *'GNU coreutils'*) ;; *) return;; esac
  done
  [ "$(stat -L -c %s "$open")" -ge "$known" ] || { printf '%s moved\n' "$nonce"; exit; }
  printf '%s tail %s %s\n' "$nonce" "$offset" "$programs"
  exec "$programs"timeout 3600 "$programs"tail -s 0.25 --follow=name -c +$((offset + 1)) "$file" </dev/null 4<&- 2>&1
}

# A renamed file is read on for as long as it grows, until its successor has been written for a second, or for a minute
# where there is none.
look_again() {
  n=0 gone=0 late=0
  while [ $n -lt 14400 ]; do
    # shellcheck disable=SC2046
    set -- $(stat -L -c '%s %i' "$open" "$file")
    [ "$2" = "$inode" ] && [ "$1" -ge "$known" ] || break
    count=$(($1 - offset))
    [ $count -le "$most_bytes" ] || count=$most_bytes
    [ $count -le 0 ] || print_frame
    if [ "$4" != "$inode" ]; then
      gone=$((gone + 1))
      [ "${3:-0}" -eq 0 ] || late=$((late + 1))
      [ $count -gt 0 ] || { [ $gone -lt 240 ] && [ $late -lt 4 ]; } || break
    fi
    n=$((n + 1))
    [ $count -eq "$most_bytes" ] || sleep 0.25
  done
  [ $n -eq 14400 ] || printf '%s moved\n' "$nonce"
}

print_frame() {
  printf '%s %s %s\n' "$nonce" "$offset" "$count"
  print_part "$open" "$offset" "$count"
  printf '\n%s end\n' "$nonce"
  offset=$((offset + count))
  [ $offset -le "$known" ] || known=$offset
}
