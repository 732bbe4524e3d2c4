# What former attempts left: which of it is no longer needed, and its removal. $_name is the training, whose attempts are
# $_name-attempt-N. No link is ever followed: `rm` and `mv` take them for files.
# uses: job
# needs: number keep most old short

umask 077
now=$(date +%s) count=0

is_older() { # FILE SECONDS
  [ -f "$1" ] && [ ! -L "$1" ] && [ $((now - $(stat -c %Y "$1" || echo "$now"))) -gt "$2" ]
} 2>/dev/null

# Whether a run directory was made by us, and nothing is in it but what we wrote.
is_ours() { # RUN-DIRECTORY
  [ -d "$1" ] && [ ! -L "$1" ] && [ -f "$1/starter" ] && [ -f "$1/command" ] || return 1
  for _file in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$_file" ]; then [ "${_file##*/}" = file ] || return 1; continue; fi
    [ -e "$_file" ] || continue
    case ${_file##*/} in starter | command | pid | log | exit_code | stopped | result | hub.py | card.md) ;;
      pid.new | exit_code.new | stopped.new) ;;
      *) return 1 ;;
    esac
    [ -f "$_file" ] || return 1
  done
}

# Of a machine that started anew, or of another one with the same home, only the exit code tells.
has_ended() { # RUN-DIRECTORY
  _dir=$1 _booted='' _boot=-; is_alive && return 1
  [ -s "$_dir/exit_code" ] || [ "$_booted" = "$_boot" ] || is_older "$_dir/log" "$old" || return 1
  case $members in *" ${_dir##*/} "*) return 1 ;; esac
}

is_untidy() { [ -e "$1/pid.new" ] || [ -e "$1/exit_code.new" ] || [ -e "$1/stopped.new" ]; }

has_hold() { # NAME
  [ -d "$_base/.held" ] || return 1
  key=$(printf %s "process:$1" | sha256sum 2>/dev/null) || return 0
  [ -e "$_base/.held/$(printf %.32s "$key")" ]
}

# It is renamed first, so that no look finds half of it.
remove() { # NAME
  mkdir -p "$_base/.former" && [ ! -L "$_base/.former" ] || return
  mv "$_base/$1" "$_base/.former/$1" && rm -rf "$_base/.former/$1" && echo "removed=$1"
  count=$((count + 1))
}

# Print `SURPLUS NAME` of those before attempt $number, the newest first: the newest $keep stay (SURPLUS is 0), of which
# only those are printed that have not put everything in place.
list_attempts() {
  for dir in "$_base/$_name"-attempt-*; do
    [ -d "$dir" ] && [ ! -L "$dir" ] || continue
    n=${dir#"$_base/$_name"-attempt-}
    case $n in '' | 0* | *[!0-9]* | ??????????*) ;; *) [ "$n" -ge "$number" ] || echo "$n" ;; esac
  done | sort -rn | {
    place=0
    while read -r n; do
      each=$_name-attempt-$n place=$((place + 1))
      if [ $place -gt "$keep" ]; then echo "1 $each"
      elif is_untidy "$_base/$each"; then echo "0 $each"; fi
    done
  }
}

remove_attempts() { # SURPLUS NAME...
  while [ $# -gt 0 ] && [ $count -lt "$most" ]; do
    surplus=$1 each=$2; shift 2
    has_ended "$_base/$each" || continue
    if [ "$surplus" = 0 ] || has_hold "$each"; then tidy
    elif is_ours "$_base/$each"; then remove "$each"
    else tidy; echo "left=$each"; fi
  done
}

list_tries() {
  for dir in "$_base"/upload-*-* "$_base"/samples-*-*; do
    each=${dir##*/} n=${dir##*-}; hash=${each%-*}; hash=${hash#*-}
    case $n in '' | *[!0-9]*) continue ;; esac
    case $hash in *[!0-9a-f]*) continue ;; ????????????????) ;; *) continue ;; esac
    is_older "$dir/exit_code" "$old" && is_ours "$dir" && echo "$each"
  done
}

remove_tries() { # NAME...
  for each; do [ $count -ge "$most" ] || ! has_ended "$_base/$each" || remove "$each"; done
}

# Only Ray knows which of its jobs are gone: the old holds of these are printed.
remove_holds() {
  for file in "$_base"/.held/*; do
    is_older "$file" "$old" || continue
    job=$(sed -n 2p "$file")
    case $job in
      process:*/* | process: | '') ;;
      process:*) [ -e "$_base/${job#process:}" ] || rm -f "$file" ;;
      *) printf 'held=%s %s\n' "${file##*/}" "$job" ;;
    esac
  done
}

# A writer that has not put its file in place for so long was killed.
remove_temporary_files() {
  for file in "$_base"/.held/*.new "$_base"/.claims/*/new.* "$_base"/.claims/*/look.*; do
    is_older "$file" "$short" && rm -f "$file"
  done
}

remove_all() {
  [ -d "$_base" ] || { echo state=done; return; }
  [ -L "$_base/.former" ] || rm -rf "$_base"/.former/*
  attempts=$(list_attempts) tries=$(list_tries)
  # shellcheck disable=SC2046,SC2086
  members=" $(find_members $(echo "$attempts" | sed 's/^. //') $tries | sed 's/.* //' | tr '\n' ' ')"
  # shellcheck disable=SC2086
  { remove_attempts $attempts; count=0; remove_tries $tries; }
  remove_holds
  remove_temporary_files
  echo state=done
}
