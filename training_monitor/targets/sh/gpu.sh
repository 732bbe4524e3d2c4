# GPUs and the processes on them, as nvidia-smi prints them, and which of those exist here: it prints pids of the host.
# needs: fields minimal_fields folders

PATH=$PATH:$folders

query_gpus() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>&1; }

# An old driver that does not know one of the fields is asked for fewer.
show() {
  command -v nvidia-smi >/dev/null || return 127
  gpus=$(query_gpus "$fields"); code=$?
  case $gpus in *'not a valid field'*) gpus=$(query_gpus "$minimal_fields"); code=$? ;; esac
  [ $code -le 128 ] || [ $code -gt 192 ] || { echo "$gpus"; return $code; } # it was killed: there may be more GPUs
  apps=$(nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid,used_memory --format=csv,noheader,nounits 2>/dev/null)
  printf '%s\n-- processes --\n%s\n-- here --\n' "$gpus" "$apps"
  echo "$apps" | while IFS=, read -r pid _; do [ ! -e "/proc/$pid/stat" ] || echo "$pid"; done
  return 0
}

# Everything that nvidia-smi knows, of which the faults are a part.
show_details() {
  command -v nvidia-smi >/dev/null || return 127
  nvidia-smi -q 2>&1 | head -c 200000
}
