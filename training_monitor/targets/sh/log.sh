# What a log file has behind a cursor. It is opened once and read through /proc/self/fd, so that all steps see the same
# file whatever is renamed.
# uses: file_state file_part
# needs: file inode offset check limit most_held oldest_first
# paths: file

as_lines() { tr '\r' '\n'; }

# How many bytes of a range belong to a line that begins before it.
count_cut() { # FILE FROM COUNT
  [ "$2" -gt 0 ] || { echo 0; return; }
  n=$(print_part "$1" $(($2 - 1)) $(($3 + 1)) | as_lines | head -n 1 | wc -c)
  n=$((n - 1))
  if [ $n -lt "$3" ]; then echo $n; else echo 0; fi
}

# How many bytes of a range belong to a last line without an end.
count_held() { # FILE FROM COUNT
  case $(print_part "$1" $(($2 + $3 - 1)) 1 | tail -c 1; echo x) in "
"*) echo 0; return ;; esac
  n=$({ print_part "$1" "$2" "$3"; printf x; } | as_lines | tail -n 1 | wc -c)
  n=$((n - 1))
  if [ $n -lt "$most_held" ] && [ $n -lt "$limit" ]; then echo $n; else echo 0; fi
}

# The checksum of the bytes in front of an offset.
sum_before() { # FILE OFFSET
  n=$(($2 < 256 ? $2 : 256))
  sum=$(print_part "$1" $(($2 - n)) $n | { md5sum || cksum; })
  echo "${sum%% *}"
}

is_same() { [ -z "$check" ] || [ "$(sum_before "$1" "$offset")" = "$check" ]; }

# Whether a file is the one that the cursor is of.
is_old() { # FILE SIZE INODE
  [ "$2" -ge "$offset" ] && is_same "$1" || return 1
  [ "$3" = "$inode" ] || { [ $reset = truncated ] && [ "$check" ] && [ "$offset" -gt 0 ]; }
}

read_new() {
  is_readable || return 0
  exec 4<"$file"
  new=/proc/self/fd/4
  [ -e $new ] || new=$file
  # shellcheck disable=SC2046
  set -- $(stat -L -c '%s %i %Y %Z .' "$new" /proc/self/status) # the times of the latter are those of this moment
  size=$1 now=$2 written=$3 changed=''
  case ${4-}${9-} in *[!0-9]*) ;; *) [ -z "${9-}" ] || changed=$(($9 - $4)) ;; esac
  [ "$5" ] && { [ "${10-}" ] || [ ! -e /proc/self/status ]; } || { echo "stat does not tell the size of $file"; return 1; }

  from=0 reset='' old='' before=0 cut=0
  if [ "$inode" ]; then
    if [ "$now" != "$inode" ]; then reset=rotated
    elif [ "$size" -lt "$offset" ] || ! is_same "$new"; then reset=truncated
    else from=$offset
    fi
  fi
  [ -z "$reset" ] || find_rest_of_old
  left=0
  if [ "$oldest_first" -eq 1 ] && [ -z "$reset" ] && [ $((size - from)) -gt "$limit" ]; then
    left=$((size - from - limit))
    size=$((from + limit))
  fi
  choose_range
  held=0
  [ "$size" -eq "$from" ] || held=$(count_held "$new" "$from" $((size - from)))
  [ "$held" -ge 0 ] && [ "$held" -le $((size - from)) ] || {
    echo "tail, which reads $file, does not work there"; return 1
  }
  end=$((size - held))
  [ "$end$reset" = "$offset" ] && [ "$check" ] || check=$(sum_before "$new" $end)
  print_new
}

# $before: how much of the old file, which is now $file.1, was not read yet.
find_rest_of_old() {
  [ -f "$file.1" ] && [ -r "$file.1" ] || return 0
  exec 5<"$file.1"
  old=/proc/self/fd/5
  [ -e $old ] || old=$file.1
  # shellcheck disable=SC2046
  set -- $(stat -L -c '%s %i' "$old")
  [ "$2" ] && is_old "$old" "$1" "$2" || return 0
  before=$(($1 - offset)) old_size=$1
  if [ $reset = rotated ] && [ "$size" -eq 0 ]; then # nobody writes the new one yet: stay with the old one
    new=$old size=$1 now=$2 from=$offset before=0 reset=''
  fi
}

# What is printed, at most $limit: $count bytes of the old file from $start on, and the new one from $from on.
choose_range() {
  skip=$((before + size - from - limit)) count=0
  [ $skip -gt 0 ] || skip=0
  if [ $skip -lt $before ]; then
    start=$((offset + skip)) count=$((before - skip))
    [ $skip -eq 0 ] || cut=$(count_cut "$old" $start $count)
    start=$((start + cut)) count=$((count - cut))
  else
    from=$((from + skip - before))
    [ $skip -eq 0 ] || cut=$(count_cut "$new" $from $((size - from)))
    from=$((from + cut))
  fi
}

print_new() {
  echo state=read
  echo "inode=$now"
  echo "offset=$end"
  echo "check=$check"
  echo "reset=$reset"
  echo "skipped=$((skip + cut))"
  echo "left=$left"
  echo "held=$held"
  [ -z "$written" ] || echo "age=$(($(date +%s) - written))"
  [ -z "$changed" ] || echo "changed=$changed"
  echo "path=$(readlink -f "$file")"
  echo log
  {
    if [ $count -gt 0 ]; then
      print_part "$old" $start $count
      [ "$(print_part "$old" $((old_size - 1)) 1 | as_lines | wc -l)" -eq 1 ] || echo
    fi
    print_part "$new" $from $((size - from))
  } | tr -d '\000'
}
