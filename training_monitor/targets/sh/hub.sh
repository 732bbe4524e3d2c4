# An upload to the Hugging Face hub, as the command of a process job. The token is found here, lives in the environment
# of this job and never leaves the machine: `hf` and `huggingface_hub` read it from HF_TOKEN. In the run directory (0700)
# stand the commands, the model card and the listing, no token.
# uses: proxies
# needs: _pid _token_name _path _program _arguments _inside _card _plan

upload() {
  _result=${TRAINING_MONITOR_JOB}result
  case $_path in /*) ;; *) _path=$PWD/$_path ;; esac
  export TM_PATH="$_path"
  hide_http_from_proxies
  find_token
  find_tools
  if [ -d "$_path" ]; then cd "$_path" || end denied; hf_upload . "${_inside:-.}"
  else ln -sf "$_path" "${TRAINING_MONITOR_JOB}file" && hf_upload "${TRAINING_MONITOR_JOB}file" "$_inside"; fi
  cd "$TRAINING_MONITOR_JOB" || end denied
  if [ "$_card" ]; then
    printf '%s' "$_card" >card.md || end disk-full
    _name=$("$_python" hub.py card "$_plan") || end unlisted
    [ -z "$_name" ] || hf_upload "${TRAINING_MONITOR_JOB}card.md" "$_name"
  fi
  "$_python" hub.py list "$_plan" >>"$_result" || end unlisted
  echo listed >>"$_result"
}

end() { printf '%s\n' "$1" >>"$_result"; exit 1; }

find_token() {
  for _name in HF_HOME HF_TOKEN_PATH HF_ENDPOINT; do
    _value=$(find_variable $_name); [ -z "$_value" ] || export "$_name=$_value"
  done
  HF_TOKEN=$(find_variable "$_token_name")
  for _file in "${HF_TOKEN_PATH-}" "${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/token"; do
    [ "$HF_TOKEN" ] || [ ! -f "$_file" ] || HF_TOKEN=$(tr -d '[:space:]' <"$_file")
  done
  [ "$HF_TOKEN" ] || end no-token
  export HF_TOKEN
  unset HF_HUB_OFFLINE TRANSFORMERS_OFFLINE
}

# Print a variable of this shell, of the training process, of /etc/environment or of process 1 (where a container's
# variables are: an ssh login does not have them).
find_variable() { # NAME
  eval "_value=\${$1-}"
  [ "$_value" ] || [ -z "$_pid" ] || _value=$(of_process "$_pid" "$1")
  [ "$_value" ] || _value=$(of_file "$1")
  [ "$_value" ] || _value=$(of_process 1 "$1")
  printf '%s\n' "$_value"
}
of_process() { { tr '\0' '\n' <"/proc/$1/environ"; } 2>/dev/null | sed -n "s/^$2=//p" | head -n 1; }
of_file() { sed -n "s/^ *\(export  *\)\{0,1\}$1=//p" /etc/environment 2>/dev/null | tail -n 1 | tr -d "\"'"; }

find_tools() {
  [ -z "$_pid" ] || PATH=$PATH:$(of_process "$_pid" PATH)
  PATH=$PATH:$HOME/.local/bin:/opt/conda/bin:/venv/main/bin
  _hf=$(command -v hf || command -v huggingface-cli) || end no-tool
  _python=$(sed -n "1s/^#! *\([^ ]*python[^ ]*\).*/\1/p; 2s/^'''exec' *\"\{0,1\}\([^\"]*\)\"\{0,1\} .*/\1/p" \
    "$(readlink -f "$_hf")" | head -n 1)
  [ -x "$_python" ] || _python=$(command -v python3 || command -v python) || end no-python
  printf '%s' "$_program" >"${TRAINING_MONITOR_JOB}hub.py" || end disk-full
}

hf_upload() { # FILE_OR_FOLDER NAME
  eval "set -- $_arguments \"\$@\""
  "$_hf" upload "$@" </dev/null || end "upload-failed $?"
}
