# Whether anything says that there is a Ray: its address is set, or it has a folder for its sessions and runs. `ray stop`
# leaves the folder behind.
# uses: ray_folders

show_signs() {
  [ -z "${RAY_API_SERVER_ADDRESS:-}${RAY_ADDRESS:-}" ] || { echo there; return; }
  list_ray_folders | while IFS= read -r folder; do [ ! -e "$folder/session_latest" ] || echo folder; done | grep -q . &&
    grep -qsxE 'raylet|gcs_server' /proc/[0-9]*/comm && echo there || echo none
}
