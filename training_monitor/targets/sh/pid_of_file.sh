# The pid in a pid file.
# needs: file
# paths: file

show() {
  pid=''
  [ -f "$file" ] && read -r pid _ <"$file"
  echo "$pid"
}
