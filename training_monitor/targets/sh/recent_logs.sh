# Logs written within the last day, the copies that W&B keeps of outputs and the files of our own progress among them:
# where something runs that could be a training, in the home folder, and where rented machines keep their work.
# uses: likely
# needs: most

newline='
'

# Set $folders to those of them that are there, a line for each.
find_folders() {
  folders='' links=$(list_likely | sed 's|cmdline$|cwd|')
  found=$(ls -ldn $links | sed -n 's/.* -> //p' | sort -u)
  set -f; IFS=$newline
  set -- $found
  set +f; unset IFS
  for folder in "$@" "$HOME" /workspace; do
    case $folder in '' | / | /proc* | /sys* | /dev* | /run*) continue;; esac
    [ ! -d "$folder/." ] || folders=$folders$newline$folder/.
  done
}

list_logs() { # FOLDER...
  find "$@" -maxdepth 3 \( -name '.?*' -o -name node_modules -o -name site-packages -o -name 'wandb' -o -name 'jupyter*' \
    -o -name '*conda*' -o -name 'debug*.log' -o -name 'python-core-*' \) -prune -o -type f -size +0 -mtime -1 \
    \( -name '*.log' -o -name '*.out' -o -name 'log*.txt' -o -name progress.json \) \
    -exec stat -c 'file %Y %s %n' {} + | while IFS= read -r line; do
    path=/${line#*/}
    case $path in
    */progress.json) ! grep -qE '^\{"format": [0-9]+, "status": ' "$path" || printf '%sprogress:%s\n' "${line%%/*}" "$path" ;;
    *) printf '%s\n' "$line" ;;
    esac
  done
  for folder in "$@"; do
    set -- "$folder"/wandb/*run-*/files/output.log
    [ ! -f "$1" ] || find "$@" -size +0 -mtime -1 -exec stat -c 'file %Y %s %n' {} +
  done
}

show() {
  find_folders
  set -f; IFS=$newline
  set -- $folders
  set +f; unset IFS
  [ $# -eq 0 ] || list_logs "$@" 2>/dev/null | sort -k 2,2nr | head -n "$most"
  echo "now $(date +%s)"
}
