"""What runs on the target for an upload to the Hugging Face hub: a sh script, and a Python program for the listing.

The token is found there, lives in the environment of the job and never leaves the machine: `hf` and `huggingface_hub`
read it from HF_TOKEN. In the run directory (0700) stand the commands, the model card and the listing, no token.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

from training_monitor.targets.asking import quote_path

# `_variable NAME` prints a variable of this shell, of the training process, of /etc/environment or of process 1 (where
# a container's variables are: an ssh login does not have them).
_SCRIPT = r"""
pid=PID token_name=TOKEN_NAME path=PATH_ON_TARGET
result=${TRAINING_MONITOR_JOB}result
case $path in /*) ;; *) path=$PWD/$path ;; esac
export TM_PATH="$path"
_end() { printf '%s\n' "$1" >>"$result"; exit 1; }
_of_process() { { tr '\0' '\n' <"/proc/$1/environ"; } 2>/dev/null | sed -n "s/^$2=//p" | head -n 1; }
_of_file() { sed -n "s/^ *\(export  *\)\{0,1\}$1=//p" /etc/environment 2>/dev/null | tail -n 1 | tr -d "\"'"; }
_variable() {
  eval "_value=\${$1-}"
  [ "$_value" ] || [ -z "$pid" ] || _value=$(_of_process "$pid" "$1")
  [ "$_value" ] || _value=$(_of_file "$1")
  [ "$_value" ] || _value=$(_of_process 1 "$1")
  printf '%s\n' "$_value"
}
for name in HF_HOME HF_TOKEN_PATH HF_ENDPOINT; do
  value=$(_variable $name); [ -z "$value" ] || export "$name=$value"
done
HF_TOKEN=$(_variable "$token_name")
for file in "${HF_TOKEN_PATH-}" "${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/token"; do
  [ "$HF_TOKEN" ] || [ ! -f "$file" ] || HF_TOKEN=$(tr -d '[:space:]' <"$file")
done
[ "$HF_TOKEN" ] || _end no-token
export HF_TOKEN
unset HF_HUB_OFFLINE TRANSFORMERS_OFFLINE

[ -z "$pid" ] || PATH=$PATH:$(_of_process "$pid" PATH)
PATH=$PATH:$HOME/.local/bin:/opt/conda/bin:/venv/main/bin
hf=$(command -v hf || command -v huggingface-cli) || _end no-tool
python=$(sed -n "1s/^#! *\([^ ]*python[^ ]*\).*/\1/p; 2s/^'''exec' *\"\{0,1\}\([^\"]*\)\"\{0,1\} .*/\1/p" \
  "$(readlink -f "$hf")" | head -n 1)
[ -x "$python" ] || python=$(command -v python3 || command -v python) || _end no-python
program=${TRAINING_MONITOR_JOB}hub.py
printf '%s' PROGRAM >"$program" || _end disk-full

_upload() { "$hf" upload OPTIONS -- REPO "$@" </dev/null || _end "upload-failed $?"; }
if [ -d "$path" ]; then cd "$path" || _end denied; _upload . FOLDER_INSIDE
else
  ln -sf "$path" "${TRAINING_MONITOR_JOB}file" && _upload "${TRAINING_MONITOR_JOB}file" FILE_INSIDE
fi
cd "$TRAINING_MONITOR_JOB" || _end denied
if [ HAS_CARD = yes ]; then
  printf '%s' CARD >card.md || _end disk-full
  name=$("$python" "$program" card PLAN) || _end unlisted
  [ -z "$name" ] || _upload "${TRAINING_MONITOR_JOB}card.md" "$name"
fi
"$python" "$program" list PLAN >>"$result" || _end unlisted
echo listed >>"$result"
"""

# `card` prints the name under which the card is uploaded: README.md; INCOMPLETE.md beside a README.md that is not it.
# `list` prints one line for each file that should have arrived: what is here, and what the hub has.
# A sha256 tells of an LFS file, the hash of a git blob of any other.
_PROGRAM = r"""
import hashlib, json, os, sys
from pathlib import Path
from huggingface_hub import HfApi

plan = json.loads(sys.argv[2])


def is_ignored(parts):
    return ".git" in parts or parts[:2] == (".cache", "huggingface")


def files():
    root = Path(os.environ["TM_PATH"])
    if root.is_file():
        yield plan["inside"], root
    for file in sorted(root.glob("**/*")) if root.is_dir() else ():
        parts = file.relative_to(root).parts
        if file.is_file() and not is_ignored(parts):
            yield "/".join(filter(None, [plan["inside"], *parts])), file


def digest(file, kind):
    size = file.stat().st_size
    total = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % size)
    with open(file, "rb") as stream:
        while block := stream.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def held():
    listed = HfApi().list_repo_tree(plan["repo"], recursive=True, revision=plan["revision"])
    return {entry.path: entry for entry in listed if hasattr(entry, "blob_id")}


def card_name(there):
    card = Path("card.md")
    for name in ("README.md", "INCOMPLETE.md"):
        if name not in there or there[name].blob_id == digest(card, "blob") or name == "INCOMPLETE.md":
            return name


def describe(name, file, there):
    kind = "sha256" if there is not None and there.lfs else "blob"
    found = {"path": name, "size": file.stat().st_size, "hash": digest(file, kind)}
    if there is not None:
        found["held"] = {"size": there.size, "hash": there.lfs["sha256"] if there.lfs else there.blob_id}
    return found


there = held()
if sys.argv[1] == "card":
    name = card_name(there)
    Path("card-name").write_text(name)
    print(name)
else:
    expected = list(files())
    if Path("card-name").exists():
        expected.append((Path("card-name").read_text(), Path("card.md")))
    for name, file in expected:
        print(json.dumps(describe(name, file, there.get(name))))
"""


def format_hub_command(
    path: str,
    repo_id: str,
    inside: str,
    card: str | None,
    *,
    revision: str | None,
    private: bool,
    token_env: str,
    pid: int | None,
) -> str:
    """The command of the job: find token and tool, upload, add the card, list what arrived.

    Args:
        inside: path in the repository: of the file, or of the folder ('' is its root).
        card: the text of a model card to add.
        pid: a process whose environment may hold the token and the PATH.
    """
    options = (["--private"] if private else []) + (["--revision", revision] if revision else [])
    plan = {"repo": repo_id, "inside": inside, "revision": revision}
    parts: Mapping[str, str] = {
        "PID": str(pid or ""),
        "TOKEN_NAME": token_env,
        "PATH_ON_TARGET": quote_path(path),
        "PROGRAM": shlex.quote(_PROGRAM),
        "OPTIONS": shlex.join(options),
        "REPO": shlex.quote(repo_id),
        "FOLDER_INSIDE": shlex.quote(inside or "."),
        "FILE_INSIDE": shlex.quote(inside),
        "HAS_CARD": "yes" if card is not None else "no",
        "CARD": shlex.quote(card or ""),
        "PLAN": shlex.quote(json.dumps(plan)),
    }
    return re.sub(rf"\b(?:{'|'.join(parts)})\b", lambda found: parts[found.group()], _SCRIPT)
