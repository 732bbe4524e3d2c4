# What is to be uploaded: of which kind it is, and an identity that changes when it is written again.
# uses: file_state
# needs: path most_files
# paths: path

look_at_file() {
  command -v curl >/dev/null || { echo state=no-curl; return; }
  file=$path
  is_readable || return 0
  echo state=file; stat -L -c 'size=%s' "$file"; stat -L -c 'identity=%s %Y %y %i' "$file"
}

# The identity of a folder is that of all sizes, times and names in it.
look_at_model() {
  [ -e "$path" ] || { echo state=missing; return; }
  [ -r "$path" ] || { echo state=denied; return; }
  if [ -d "$path" ]; then echo state=folder; cd "$path" || return 1; set -- -L . -type f
  else echo state=file; set -- -L "$path" -maxdepth 0; fi
  echo "identity=$(find "$@" ! -path './.git/*' ! -path './.cache/*' -exec stat -L -c '%s %y %n' {} + | sort | cksum)"
}

# Print the files below a folder, at most one more than $most_files. Links to files are followed, as curl does.
list_files() {
  [ -f "$path" ] && { echo file; return; }
  cd -- "$path" 2>/dev/null || return 0
  odd=$(find . -path '*
*') || { echo denied; return; }
  [ -z "$odd" ] || { echo newline; return; }
  echo folder; find . \( -type f -o -type l -exec test -f {} \; \) -print | head -n $((most_files + 1)) | sort
}
