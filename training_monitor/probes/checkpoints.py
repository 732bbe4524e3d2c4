"""Checkpoints of a directory on a target, judged complete or not without loading them, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence

from training_monitor.errors import CheckpointNotFound
from training_monitor.models import Checkpoint, Question, Reply
from training_monitor.parse.checkpoint_files import group_checkpoints
from training_monitor.parse.checkpoint_listing import parse_listing
from training_monitor.targets.asking import ask, quote_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

MAX_FILES = 20000
MAX_LOOKED_INTO = 100

# safetensors: 8 bytes of header length (little endian), a JSON header, and data up to the largest data_offsets end:
# 8 + length + end must be the file's size. torch files are zip archives whose end record comes last, or pickles of
# protocol 2 to 5 (128 N; 40 is an old text pickle); also gzip (31 139) and HDF5 (137 72) are written under these names,
# and anything at all under .bin and .tar. kohya (ss_steps) and ai-toolkit (training_info) put the step in the header.
# Looked into are the files with the highest numbers in their names, and the newest ones (old ones may have been copied
# lately); others are judged by name and size.
_SCRIPT = r"""
cd -- DIR 2>/dev/null || {
  if [ -d DIR ]; then echo "state=no permission to enter it"; elif [ -e DIR ]; then echo "state=not a directory"
  else echo state=missing; fi
  exit 0
}
echo state=there; echo "now $(date +%s)"; echo "disk $(stat -f -c %T .)"
_newline='
'
_find() { find . -maxdepth 5 ! -path "*$_newline*" "$@"; }
_all=$(_find -type f -exec stat -c 'file %s %Y %b %n' {} + | head -n MAX_FILES); printf '%s\n' "$_all"
_has() { case $_all in *$1*) return 0;; esac; return 1; }
_lines() { printf '%s\n' "$_all" | grep "^file [1-9][0-9]* .*$1\$"; }
_paths() { sed 's|^file [0-9]* [0-9]* [0-9]* ||'; }
_numbered() { _paths | { sort -rV || cat; } | head -n "$1"; }
_bad() { printf 'bad %s %s\n' "$1" "$f"; }
_safetensors() {
  set -- "$1" $(head -c 8 "$1" | od -An -v -tu1)
  [ $# -eq 9 ] || { _bad "shorter_than_its_header"; return; }
  [ "$6$7$8$9" = 0000 ] && [ "$5" -lt 8 ] || { _bad "no_safetensors_header"; return; }
  _n=$(($2 + ($3 << 8) + ($4 << 16) + ($5 << 24)))
  _size=$(wc -c <"$1")
  [ $_n -ge 2 ] && [ $_n -lt 100000001 ] && [ $((8 + _n)) -le $_size ] ||
    { _bad "header_of_${_n}_bytes_in_a_file_of_$_size"; return; }
  [ "$(head -c 9 "$1" | tail -c 1)" = "{" ] || { _bad "no_safetensors_header"; return; }
  _said=$(head -c $((8 + _n)) "$1" | tail -c +9 | tr -d ' \n\t' |
    grep -o '"data_offsets":\[[0-9]*,[0-9]*\]\|"ss_steps":"[0-9]*"\|"training_info":"{[^}]*}' |
    sed -n 's/^"data.*,\([0-9]*\)]/1 \1/p; s/^"[st].*step[s\\]*":"*\([0-9]\{1,12\}\).*/0 \1/p' | sort -k 1,1n -k 2,2n)
  _end=0; _step=${_said%%"$_newline"*}
  case $_said in *'1 '*) _end=${_said##*1 };; esac
  case $_step in '0 '*) printf 'step %s\t%s\n' "$1" "${_step#0 }";; esac
  _want=$((8 + _n + _end))
  [ $_want -le $_size ] || { _bad "truncated:_${_size}_of_${_want}_bytes"; return; }
  [ $_want -eq $_size ] || _bad "$((_size - _want))_bytes_too_long"
}
_torch() {
  set -- "$1" $(head -c 2 "$1" | od -An -v -tu1)
  case "$2 $3" in
  '80 75')
    tail -c 65557 "$1" | LC_ALL=C grep -q "$(printf 'PK\005\006')" || _bad "truncated:_no_zip_end_record" ;;
  '128 '[2-5] | '31 139' | '137 72' | '40 '*) ;;
  '0 0') _bad "only_zeros_at_its_start" ;;
  *) case $1 in *.bin | *.tar) ;; *) _bad "neither_a_zip_archive_nor_a_pickle" ;; esac ;;
  esac
}
_weights() { _lines '\.\(safetensors\|pt\|pth\|ckpt\|bin\|tar\|zip\|npz\)'; }
{
  _weights | _numbered MAX_LOOKED
  _weights | sort -k 3,3nr | head -n MAX_LOOKED | _paths
} | sort -u | while IFS= read -r f; do
  case $f in *.safetensors) _safetensors "$f";; *) _torch "$f";; esac
done
_has .index.json && _lines '\.index\.json' | _numbered 50 | while IFS= read -r f; do
  grep -o '"[^"]*\.\(safetensors\|bin\)"' "$f" | sort -u | tr -d '"' |
  while IFS= read -r _line; do printf 'shard %s\t%s\n' "$f" "$_line"; done
  printf 'total %s\t%s\n' "$f" "$(tr -d ' \n' <"$f" | grep -o '"total_size":[0-9]*' | head -n 1 | tr -dc 0-9)"
done
_has /train_state.json && _lines /train_state.json | _numbered 100 | while IFS= read -r f; do
  printf 'step %s\t%s\n' "$f" "$(head -c 4096 "$f" | tr -d ' \n' | grep -o '"current_step":[0-9]*' | tr -dc 0-9)"
done
_has /la && _lines '/\(latest\|last_checkpoint\|latest_checkpointed_iteration.txt\)' | grep '^file [0-9]\{1,3\} ' |
_numbered 200 | while IFS= read -r f; do
  _line=; IFS= read -r _line <"$f"; printf 'tracker %s\t%s\n' "$f" "$_line"
done
_has -rank && _find -type l -name 'latest-rank*' | head -n 20 | while IFS= read -r f; do
  [ -e "$f" ] || printf 'link %s\n' "$(ls -ld "$f" | tr '\n' ' ')"
done
:
"""


def checkpoints_question(directory: str, quiet_seconds: float = 0.0) -> Question[list[Checkpoint] | None]:
    """The checkpoints below a directory, lowest step first; None when the directory does not exist."""
    script = _SCRIPT.replace("MAX_FILES", str(MAX_FILES)).replace("MAX_LOOKED", str(MAX_LOOKED_INTO))
    script = script.replace("DIR", quote_path(directory))

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

    The step is the one in the header of a safetensors file, else the number in the name, and the epoch where a
    framework counts only these. A final file without a number (`NAME.safetensors` beside
    `NAME_000000250.safetensors`, whatever NAME ends in) is the newest at its step. Files that are overwritten in
    place or have no number (`last.ckpt`, `ckpt.pt`, `model_final.pth`) are listed only where nothing else is: their
    step is the one in a safetensors header, or else 0 because it is unknown. A checkpoint that a tracker file names
    and that is missing is listed as not complete.

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
