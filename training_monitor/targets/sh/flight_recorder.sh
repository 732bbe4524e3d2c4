# PyTorch's flight recorder dumps that are there, the newest first, at most a day old: those whose names begin as the
# environment of a rank says, or else as PyTorch's versions have it. $roots are the pids of a training, or nothing for all
# processes. Of those that are not sent (too large, too many, unreadable), as many are named as may be sent.
# uses: process roots packed
# needs: spelling ranks most_files file_bytes answer_bytes environment_bytes

newline='
'

# The environments of ranks, a path before each: `head` prints nothing else that begins like it.
list_environments() {
  find_training_or_all
  paths=$(grep -lsa "\($ranks\)=[0-9]" /proc/[0-9]*/environ | while read -r file; do
    pid=${file#/proc/}
    case $tree in *" ${pid%/*} "*) echo "$spelling${file#/}" ;; esac
  done)
  [ -z "$paths" ] || (set -f; IFS=$newline; head -c "$environment_bytes" $paths /dev/null) | tr '\000' '\n' | sed -n \
    -e "\\|^==> ${spelling}proc/|p" \
    -e '/^LOCAL_RANK=/p; /^TORCH_FR_DUMP_TEMP_FILE=/p; /^TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/p' \
    -e '/^XDG_CACHE_HOME=/p; /^HOME=/p'
  echo "==> ${spelling}proc//end <=="
}

# Print what begins the names of a process's dumps, and their files where the process before had others.
show_process() {
  pid=$1 prefix=$named
  [ "$prefix" ] || prefix=$named_before
  if [ "$prefix" ]; then set -- "$prefix"
  else set -- "${cache:-${home:-/tmp}/.cache}/torch/comm_lib_trace_rank_" \
    "${home:-/tmp}/.cache/torch/nccl_trace_rank_" /tmp/nccl_trace_rank_
  fi
  read_stat "$pid" || return 0
  for prefix do echo "process $((booted + _start / hz)) $local $prefix"; done
  # shellcheck disable=SC3013
  if [ "$*" = "$last" ] && [ "/proc/$pid/root/." -ef "/proc/$last_pid/root/." ] &&
    [ "/proc/$pid/cwd/." -ef "/proc/$last_pid/cwd/." ]; then return 0; fi
  last=$* last_pid=$pid
  for prefix do
    case $prefix in /*) prefix=/proc/$pid/root$prefix ;; *) prefix=/proc/$pid/cwd/${prefix#./} ;; esac
    for file in "$prefix"[0-9]*; do
      case $file in *"$newline"*) continue ;; esac
      [ ! -f "$file" ] || stat -L -c 'file %Y %s %d:%i %n' "$file"
    done
  done
}

show_processes_and_files() {
  last='' pid=''
  list_environments | while IFS= read -r line; do
    value=${line#*=}
    case $line in
    "==> ${spelling}proc/"*)
      [ -z "$pid" ] || show_process "$pid"
      pid=${line#*proc/}; pid=${pid%%/*}; named='' named_before='' cache='' home='' local=0 ;;
    LOCAL_RANK=*) local=1 ;;
    TORCH_FR_*) named=$value ;;
    TORCH_NCCL_*) named_before=$value ;;
    XDG_*) cache=$value ;;
    HOME=*) home=$value ;;
    esac
  done
}

show_dumps() {
  hz=$(getconf CLK_TCK || echo 100) booted=0 now=$(date +%s)
  while read -r key value _; do [ "$key" != btime ] || booted=$value; done </proc/stat
  all=$(show_processes_and_files)
  printf '%s\n' "$all" | grep '^process ' | sort -u
  find_encoding
  count=0 seen='' most_unsent=$most_files
  printf '%s\n' "$all" | sed -n 's/^file //p' | sort -k 1,1nr | while read -r written size inode file; do
    case $seen in *" $inode "*) continue ;; esac
    seen="$seen $inode "
    [ "$written" -ge $((now - 86400)) ] || break
    if [ -r "$file" ] && [ "$size" -le "$file_bytes" ] && [ "$most_files" -gt 0 ]; then
      data=$(head -c "$file_bytes" "$file" | pack)
      count=$((count + ${#data} + ${#file} + 50))
      if [ $count -le "$answer_bytes" ]; then
        most_files=$((most_files - 1))
        printf 'dump %s %s %s %s\n%s\n' "$written" "$size" $encoding "$file" "$data"
        continue
      fi
      most_files=0
    fi
    [ "$most_unsent" -gt 0 ] || break
    most_unsent=$((most_unsent - 1))
    printf 'dump %s %s unsent %s\n' "$written" "$size" "$file"
  done
  echo end
}
