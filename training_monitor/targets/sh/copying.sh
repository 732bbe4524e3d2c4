# Copying a folder: which files it has (rent/file_lists.py reads them), archives of them, and what a copying left.
# `names` are one a line, each with `./` before it.
# needs: folder names is_made partial most_files command

set -f
IFS='
'

# Print the files of these names in $folder, which is made first where $is_made, and may be a file itself. Names with a
# newline would forge lines; they are counted apart. What find complains of comes in a line of its own, for a folder that
# cannot be read is not an empty one.
list() {
  exec 2>/dev/null
  [ -z "$is_made" ] || said=$(umask 077; mkdir -p "$folder" 2>&1) || fail "it cannot be made: $said"
  [ -e "$folder" ] || [ -L "$folder" ] || fail missing
  state=folder
  set -- $names
  [ -f "$folder" ] && { set -- "./${folder##*/}"; folder=${folder%/*}/; state="file"; }
  said=$(cd "$folder" 2>&1) || fail "it cannot be entered: $said"
  cd "$folder" || fail "it cannot be entered"
  command -v find >/dev/null && stat -c %Y . >/dev/null || fail "there is no find, or no stat that knows -c"
  printf 'state=%s\nroot=%s\n' "$state" "$(pwd -P)"
  for tool in rsync tar; do command -v $tool >/dev/null && printf 'tool %s\n' $tool; done
  refused=$(find "$@" -name '.?*' -prune -o -name "*$IFS*" -prune -print | head -n 2 | tr '\n' '?')
  [ -z "$refused" ] || printf 'refused %s\n' "$refused"
  exec 3>&1
  said=$({ find_files "$@" 2>&4 | head -n "$most_files" >&3; } 4>&1 | grep -v 'No such file' | head -c 1000 | tr '\n' ' ')
  [ -z "$said" ] || printf 'said %s\n' "$said"
  return 0
}

fail() { printf 'state=%s' "$1" | tr '\n' ' '; exit 0; }

find_files() {
  find "$@" \( -name '.?*' ! -name "$partial" -o -name "*$IFS*" \) -prune \
    -o -type f -exec stat -c 'file %s %Y %n' {} + \
    -o ! -type d -exec printf 'other %s\n' {} +
}

# Remove what was cut of files in these folders below $folder.
clear_partial() {
  cd "$folder" || return
  for below in $names; do
    below=$below/$partial
    [ ! -d "$below" ] || [ -L "$below" ] || rm -rf "$below"
  done 2>&1
}

# Print an archive of these names in $folder, and behind its end what tar said.
pack() {
  LC_ALL=C; export LC_ALL
  cd "$folder" || return
  set_plain
  exec 3>&1
  said=$(tar $plain -cf - $names 2>&1 >&3 3>&- </dev/null)
  printf '%s' "$said" | tail -c 1000
}

# Run $command with an archive of "$@" in $folder as its input; the first failure of both is the status.
feed() {
  set_plain
  packed=$({ { tar $plain -C "$folder" -chf - "$@" 3>&-; echo $? >&3; } | eval "$command" >&2 3>&-; } 3>&1)
  unpacked=$?
  [ "$unpacked" = 0 ] || return "$unpacked"
  return "${packed:-1}"
}

# GNU tar reads \n in a name as a newline, unless told not to; others know no such option.
set_plain() { case $(tar --version 2>/dev/null </dev/null) in *GNU*) plain=--no-unquote ;; *) plain= ;; esac; }
