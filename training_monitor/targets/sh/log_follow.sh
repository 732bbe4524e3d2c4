# A log from an offset on, as it grows, in frames as logs/following.py describes them.
# uses: file_part
# needs: file inode offset known nonce most_bytes

# Look four times a second, say every ten seconds that it is there, and end after an hour, so that one whose connection
# nobody closed does not stay for ever. `4` is the file as it was opened: what is renamed is read on for as long as it
# grows, until its successor has been written for a second, or for a minute where there is none.
follow() {
  exec 2>/dev/null
  open_log || { printf '%s moved\n' "$nonce"; return; }
  n=0 gone=0 late=0
  while [ $n -lt 14400 ]; do
    [ $((n % 40)) -ne 0 ] || printf '%s alive\n' "$nonce"
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

open_log() {
  for open in "$file" "$file.1"; do [ "$(stat -L -c %i "$open")" != "$inode" ] || break; done
  [ -f "$open" ] && exec 4<"$open" || return 1
  [ ! -e /proc/self/fd/4 ] || open=/proc/self/fd/4
}

print_frame() {
  printf '%s %s %s\n' "$nonce" "$offset" "$count"
  print_part "$open" "$offset" "$count"
  printf '\n%s end\n' "$nonce"
  offset=$((offset + count))
  [ $offset -le "$known" ] || known=$offset
}
