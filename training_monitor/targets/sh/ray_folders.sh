# The folders that Ray may keep on this machine, one in a line: its own variable names the one above it, as TMPDIR does.

list_ray_folders() { printf '%s\n' "${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray" "${RAY_TMPDIR:-/tmp/ray}" /tmp/ray; }
