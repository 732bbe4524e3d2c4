# Which file is the log of a watched job.
# needs: inode stays since pid

# Print the newest of some files, or the one that the reader has come to know by its $inode: that one stays the log for as
# long as it was written to in the last $stays seconds, also while others are written beside it. What was written to last
# before the time $since is of an earlier attempt.
#
# The files come in groups that end with an empty word: what matches a pattern, behind the pattern itself, since a file
# that is called like a pattern is meant before what it matches. Of what a pattern matches, the tries of uploads and of
# generated samples (uploads/detached.py) are not trainings.
show_newest() { # FILE...
  newest='' group=begins hash='[0-9a-f][0-9a-f][0-9a-f][0-9a-f]'; hash=$hash$hash$hash$hash
  for file do
    shift
    case $group in
    begins) [ -f "$file" ] && group=ends || group=goes-on ;;
    ends) [ "$file" ] || group=begins; continue ;;
    goes-on)
      [ "$file" ] || group=begins
      # shellcheck disable=SC2254
      case $file in */upload-$hash-[0-9]*/log | */samples-$hash-[0-9]*/log) continue ;; esac
      ;;
    esac
    [ -f "$file" ] || continue
    set -- "$@" "$file"
    # shellcheck disable=SC3013
    if [ -z "$newest" ] || [ "$file" -nt "$newest" ]; then newest=$file; fi
  done
  if [ "$inode" ] && [ "$newest" ] && [ "$(stat -L -c %i "$newest")" != "$inode" ]; then
    known=$(stat -L -c '%i %Y' "$@" | grep -n "^$inode " | head -n 1)
    if [ "$known" ] && [ $(($(date +%s) - ${known##* })) -lt "$stays" ]; then
      shift $((${known%%:*} - 1)); newest=$1
    fi
  fi
  [ -z "$since" ] || [ "$(stat -L -c %Y "$newest" 2>/dev/null || echo 0)" -ge "$since" ] || newest=''
  printf %s "$newest"
}

# Print where the output of process $pid goes, if that is a file.
show_output() {
  for number in 1 2; do
    file=$(readlink "/proc/$pid/fd/$number")
    [ ! -f "$file" ] || { echo "$file"; break; }
  done
}
