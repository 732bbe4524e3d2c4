# What systemd's journal has of a unit, or of one start of it.
# needs: unit position lines most oldest_first
# found: unit

# Whether there are journals that may not be read: those of the system, or of other users.
is_partly_hidden() {
  for folder in /run/log/journal/* /var/log/journal/*; do
    if [ -d "$folder" ] && ! ls "$folder" >/dev/null; then return 0; fi
    for journal in "$folder"/*.journal; do
      if [ -e "$journal" ] && [ ! -r "$journal" ]; then return 0; fi
    done
  done
  return 1
}

# With a position, the entry there comes first. Of too much comes the newest part, or with $oldest_first the oldest.
show_entries() {
  command -v journalctl >/dev/null || { echo state=missing; return; }
  if is_partly_hidden; then echo state=denied; else echo state=read; fi
  printf 'now=%s\nlog\n' "$(date +%s)"
  case ${#unit}:$unit in
  32:*[!0-9a-f]*) set -- --unit="$unit" --user-unit="$unit" ;;
  32:*) set -- "_SYSTEMD_INVOCATION_ID=$unit" ;;
  *) set -- --unit="$unit" --user-unit="$unit" ;;
  esac
  if [ "$position" ]; then set -- --cursor="$position" "$@"; else set -- --lines="$lines" "$@"; fi
  LC_ALL=C journalctl --no-pager --quiet --all --output=json \
    --output-fields=MESSAGE,_LINE_BREAK,_SYSTEMD_UNIT,_SYSTEMD_USER_UNIT "$@" </dev/null |
    if [ "$position" ] && [ "$oldest_first" = 1 ]; then head -c "$most"
    else
      if [ "$position" ]; then IFS= read -r first && printf '%s\n' "$first"; fi
      tail -c "$most"
    fi
}
