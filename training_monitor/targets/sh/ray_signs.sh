# Whether anything says that there is a Ray: its address is set, or it has a folder for its sessions and runs. `ray stop`
# leaves the folder behind.

show_signs() {
  [ -z "${RAY_API_SERVER_ADDRESS:-}${RAY_ADDRESS:-}" ] || { echo there; return; }
  for folder in "${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray" "${RAY_TMPDIR:-/tmp/ray}" /tmp/ray; do
    [ -e "$folder/session_latest" ] || continue
    if grep -qsxE 'raylet|gcs_server' /proc/[0-9]*/comm; then echo there; return; fi
  done
  echo none
}
