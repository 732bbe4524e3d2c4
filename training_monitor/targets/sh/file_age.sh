# When the newest file of $folder was written.
# needs: folder most_files most_folders
# paths: folder

# The folders with the newest entries are looked into first, level by level, and few of each: a save makes new files, or
# writes those again that are in one of few folders. What is written all the time beside checkpoints says nothing.
find_newest() (
  cd -- "$folder" 2>/dev/null || exit 0
  set -- .; newest=0 level=0
  while [ $# -gt 0 ] && [ $level -lt 4 ]; do
    level=$((level + 1))
    all=$(find "$@" -mindepth 1 -maxdepth 1 ! -name '*tfevents*' ! -name '*.log' ! -name '*.out' ! -name '*.jsonl' \
      ! -name wandb ! -name mlruns -exec stat -c '%f %Y %n' {} + | sort -k 2,2nr | head -n "$most_files")
    file=''
    set -f; IFS='
'; set --
    for line in $all; do
      case $line in
      8*) [ "$file" ] || file=${line#* } ;;
      4*) line=${line#* }; [ $# -ge "$most_folders" ] || set -- "$@" "${line#* }" ;;
      esac
      [ -z "$file" ] || [ $# -lt "$most_folders" ] || break
    done
    set +f; unset IFS
    file=${file%% *}; [ "${file:-0}" -le $newest ] || newest=$file
  done
  echo "file $newest"
)

show() {
  find_newest
  echo "now $(date +%s)"
}
