# Receives a program on stdin, into a folder of its own. One that was left by a look that was killed is removed after an
# hour.
receive() {
  umask 077
  find /tmp -maxdepth 1 -name 'training-monitor-??????' -user "$(id -u)" -mmin +60 -exec rm -rf {} + 2>/dev/null
  folder=$(mktemp -d /tmp/training-monitor-XXXXXX) && cat >"$folder/py-spy" && chmod 700 "$folder/py-spy" || exit 1
  echo "$folder"
}
