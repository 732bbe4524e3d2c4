"""Checkpoints of a directory on a target, judged complete or not without loading them, in one round trip."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from training_monitor.errors import CheckpointNotFound
from training_monitor.models import Checkpoint, Question, Reply
from training_monitor.parse.checkpoint_files import group_checkpoints, parse_listing
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

MAX_FILES = 20000
MAX_LOOKED_INTO = 100

# safetensors: 8 bytes of header length (little endian), a JSON header, and data up to the largest data_offsets end:
# 8 + length + end must be the file's size. torch files are zip archives whose end record comes last, or pickles of
# protocol 2 to 5 (128 N; 40 is an old text pickle); also gzip (31 139) and HDF5 (137 72) are written under these names,
# and anything at all under .bin.
_SCRIPT = r"""
cd -- DIR 2>/dev/null || {
  if [ -d DIR ]; then echo "state=no permission to enter it"; elif [ -e DIR ]; then echo "state=not a directory"
  else echo state=missing; fi
  exit 0
}
echo state=there; echo "now $(date +%s)"
_newline='
'
_find() { find . -maxdepth 5 ! -name "*$_newline*" -type f "$@"; }
_all=$(_find -exec stat -c 'file %s %Y %n' {} + | head -n MAX_FILES); printf '%s\n' "$_all"
_has() { case $_all in *$1*) return 0;; esac; return 1; }
_safetensors() {
  set -- "$1" $(head -c 8 "$1" | od -An -v -tu1)
  [ $# -eq 9 ] || { echo "bad shorter_than_its_header $1"; return; }
  [ "$6$7$8$9" = 0000 ] && [ "$5" -lt 8 ] || { echo "bad no_safetensors_header $1"; return; }
  _n=$(($2 + ($3 << 8) + ($4 << 16) + ($5 << 24)))
  _size=$(wc -c <"$1")
  [ $_n -ge 2 ] && [ $((8 + _n)) -le $_size ] || { echo "bad header_of_${_n}_bytes_in_a_file_of_$_size $1"; return; }
  [ "$(head -c 9 "$1" | tail -c 1)" = "{" ] || { echo "bad no_safetensors_header $1"; return; }
  _end=$(head -c $((8 + _n)) "$1" | tail -c +9 | tr -d ' \n\t' | grep -o '"data_offsets":\[[0-9]*,[0-9]*\]' |
    sed 's/.*,//; s/]//' | sort -n | tail -n 1)
  _want=$((8 + _n + ${_end:-0}))
  [ $_want -le $_size ] || { echo "bad truncated:_${_size}_of_${_want}_bytes $1"; return; }
  [ $_want -eq $_size ] || echo "bad $((_size - _want))_bytes_too_long $1"
}
_torch() {
  set -- "$1" $(head -c 2 "$1" | od -An -v -tu1)
  case "$2 $3" in
  '80 75')
    tail -c 65557 "$1" | LC_ALL=C grep -q "$(printf 'PK\005\006')" || echo "bad truncated:_no_zip_end_record $1" ;;
  '128 '[2-5] | '31 139' | '137 72' | '40 '*) ;;
  '0 0') echo "bad only_zeros_at_its_start $1" ;;
  *) case $1 in *.bin) ;; *) echo "bad neither_a_zip_archive_nor_a_pickle $1" ;; esac ;;
  esac
}
_weights() {
  _find -size +0 '(' -name '*.safetensors' -o -name '*.pt' -o -name '*.pth' -o -name '*.ckpt' -o -name '*.bin' ')' "$@"
}
_has .safetensors || _has .pt || _has .ckpt || _has .bin && _weights \
  -exec ls -td {} + | head -n MAX_LOOKED | while IFS= read -r f; do
  case $f in *.safetensors) _safetensors "$f";; *) _torch "$f";; esac
done
_has .index.json && _find -name '*.index.json' | head -n 50 | while IFS= read -r f; do
  grep -o '"[^"]*\.\(safetensors\|bin\)"' "$f" | sort -u | tr -d '"' | sed "s|^|shard $f	|"
done
_has /latest && _find '(' -name latest -o -name latest_checkpointed_iteration.txt ')' | head -n 20 |
while IFS= read -r f; do
  printf 'tracker %s\t%s\n' "$f" "$(head -c 200 "$f" | head -n 1)"
done
:
"""


def checkpoints_question(directory: str, quiet_seconds: float = 0.0) -> Question[list[Checkpoint] | None]:
    """The checkpoints below a directory, lowest step first; None when the directory does not exist."""
    quoted = shlex.quote(directory if directory.startswith(("/", "./")) else f"./{directory}")
    if directory.startswith("~/"):
        quoted = '"$HOME"/' + shlex.quote(directory[2:])
    script = _SCRIPT.replace("MAX_FILES", str(MAX_FILES)).replace("MAX_LOOKED", str(MAX_LOOKED_INTO))
    script = script.replace("DIR", quoted)

    def parse(reply: Reply) -> list[Checkpoint] | None:
        listing = parse_listing(reply.output, directory)
        return None if listing is None else group_checkpoints(listing, directory, quiet_seconds=quiet_seconds)

    return Question("checkpoints", script, parse, limit=30.0)


def list_checkpoints(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    quiet_seconds: float = 0.0,
    transport: Transport | None = None,
) -> list[Checkpoint]:
    """All checkpoints of a directory, lowest step first; `complete` and `problem` say which can be used.

    Args:
        head_pod: the target that has the directory; default: this machine.
        quiet_seconds: call a checkpoint incomplete that was written to within this time (0: do not).

    Returns:
        Checkpoints; an empty list when there are none or the directory does not exist.

    Raises:
        CommandError: the target could not be asked.
    """
    question = checkpoints_question(checkpoint_dir, quiet_seconds)
    [answer] = ask(head_pod or "local", question, namespace=namespace, transport=transport)
    return answer.get() or []


def find_latest_checkpoint(
    checkpoint_dir: str,
    head_pod: str | Target | None = None,
    namespace: str = "default",
    *,
    transport: Transport | None = None,
) -> str | None:
    """The path of the complete checkpoint with the highest step; None when there is no checkpoint at all.

    Raises:
        CheckpointNotFound: there are checkpoints, and every one is damaged: starting from zero must be a decision.
        CommandError: the target could not be asked.
    """
    found = list_checkpoints(checkpoint_dir, head_pod, namespace, transport=transport)
    usable = newest_complete(found)
    if usable is None and found:
        reasons = "; ".join(f"step {each.step}: {each.problem}" for each in found[-3:])
        raise CheckpointNotFound(
            f"{checkpoint_dir}: none of {len(found)} checkpoints is complete ({reasons})",
            hint="restore one, or start fresh on purpose",
        )
    return usable.path if usable else None


def newest_complete(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The complete checkpoint with the highest step."""
    return next((each for each in reversed(checkpoints) if each.complete), None)
