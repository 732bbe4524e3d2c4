# Short samples from all over a log.
# needs: file most_samples sample_bytes
# paths: file

# A short log has none: all of it is in what else is read of it.
show() {
  [ -f "$file" ] && [ -r "$file" ] || return 0
  size=$(stat -L -c %s "$file") n=0
  [ "${size:-0}" -gt $((most_samples * sample_bytes)) ] || return 0
  while [ $n -lt "$most_samples" ]; do
    dd bs="$sample_bytes" skip=$((size / sample_bytes * n / most_samples)) count=1 <"$file" 2>/dev/null
    printf '\036'
    n=$((n + 1))
  done
  tail -c "$sample_bytes" "$file"
}
