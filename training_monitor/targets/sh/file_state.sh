# Whether a file can be read.
# needs: file
# paths: file

# Print why it cannot, as a line `state=…`, and fail.
is_readable() {
  if [ ! -e "$file" ]; then
    case $(ls -Ld "$file" 2>&1) in *': Permission denied') echo state=denied ;; *) echo state=missing ;; esac
  elif [ ! -f "$file" ]; then echo state=other
  elif [ ! -r "$file" ]; then echo state=denied
  else return 0
  fi
  return 1
}
