"""The script that lists the checkpoints of a folder on a target, newest first, and looks into their files.

Of a folder of at most MOST_FILES files it prints them all; of a larger one it says `cut`, and prints the files of as
many of the newest checkpoints as fit, whole or not at all. What a line says is in parse/checkpoint_listing.py.
"""

from __future__ import annotations

from training_monitor.parse.checkpoint_names import LOOKED_INTO, TRACKERS, WEIGHTS, format_ranking
from training_monitor.targets.asking import quote_path

MOST_FILES = 20_000  # that one look prints, and that a checkpoint may have
MOST_BYTES = 2_000_000  # of their lines
MOST_WEIGHTS = 2500  # files of one checkpoint that are looked into
MOST_UNNUMBERED = 50  # files without a number that are looked into, the newest by time
_ANY_STEP = 10**12

# safetensors: 8 bytes of header length (little endian), a JSON header, and data up to the largest data_offsets end:
# 8 + length + end must be the file's size. torch files are zip archives whose end record comes last, or pickles of
# protocol 2 to 5 (128 N; 40 is an old text pickle); also gzip (31 139) and HDF5 (137 72) are written under these names,
# and anything at all under .bin and .tar. kohya (ss_steps) and ai-toolkit (training_info) put the step in the header.
# Looked into is step by step from the highest number in a name down, until ENOUGH files were; besides, files whose
# header may say another step than their name: those without a number, and the newest ones by time. A folder whose name
# is nothing but a number may be a date above the checkpoints: it is one itself where no other is below it.
_SCRIPT = r"""
cd -- DIR 2>/dev/null || {
  if [ -d DIR ]; then echo "state=no permission to enter it"; elif [ -e DIR ]; then echo "state=not a directory"
  else echo state=missing; fi
  exit 0
}
[ -r . ] || { echo "state=no permission to list it"; exit 0; }
echo state=there; echo "now $(date +%s)"; echo "disk $(stat -f -c %T .)"
_newline='
'
export _newline
_blanks=$IFS; set -f
_each() { tr '\n' '\0' | xargs -0 -r "$@"; }
_say() { printf '%s\n' "$@"; }
_bad() { printf 'bad %s %s\n' "$1" "$f"; }
_safetensors() {
  set -- "$1" $(od -An -v -tu1 -N 9 "$1")
  [ $# -gt 8 ] || { _bad "shorter_than_its_header"; return; }
  [ "$6$7$8$9" = 0000 ] && [ "$5" -lt 8 ] || { _bad "no_safetensors_header"; return; }
  _n=$(($2 + ($3 << 8) + ($4 << 16) + ($5 << 24))); _end=0; _saved=
  [ $_n -ge 2 ] && [ $_n -lt 100000001 ] && [ $((8 + _n)) -le $_size ] ||
    { _bad "header_of_${_n}_bytes_in_a_file_of_$_size"; return; }
  [ "${10}" = 123 ] || { _bad "no_safetensors_header"; return; }
  for _said in $(head -c $((8 + _n)) "$1" | tr -d ' \n\t\000' |
    grep -ao '"data_offsets":\[[0-9]*,[0-9]*\]\|"ss_steps":"[0-9]*"\|"training_info":"{[^}]*}'); do
    case $_said in
    '"data'*) _said=${_said##*,}; _said=${_said%]}; [ "$_said" -le $_end ] || _end=$_said ;;
    *) _saved=$_saved$_said$_newline ;;
    esac
  done
  [ ! "$_saved" ] || printf 'step %s\t%s\n' "$1" "$(_say "$_saved" |
    sed -n 's/^.*step[s\\]*":"*\([0-9]\{1,12\}\).*/\1/p' | sort -n | head -n 1)"
  _want=$((8 + _n + _end))
  [ $_want -le $_size ] || { _bad "truncated:_${_size}_of_${_want}_bytes"; return; }
  [ $_want -eq $_size ] || _bad "$((_size - _want))_bytes_too_long"
}
_torch() {
  set -- "$1" $(od -An -v -tu1 -N 2 "$1")
  case "$2 $3" in
  '80 75')
    tail -c 65557 "$1" | grep -q "$(printf 'PK\005\006')" || _bad "truncated:_no_zip_end_record" ;;
  '128 '[2-5] | '31 139' | '137 72' | '40 '*) ;;
  '0 0') _bad "only_zeros_at_its_start" ;;
  *) case $1 in *.bin | *.tar) ;; *) _bad "neither_a_zip_archive_nor_a_pickle" ;; esac ;;
  esac
}
_index() {
  grep -o '"[^"]*\.\(safetensors\|bin\)"' "$f" | sort -u | tr -d '"' |
  while IFS= read -r _line; do printf 'shard %s\t%s\n' "$f" "$_line"; done
  printf 'total %s\t%s\n' "$f" "$(tr -d ' \n' <"$f" | grep -o '"total_size":[0-9]*' | head -n 1 | tr -dc 0-9)"
}
_tracker() {
  _line=$(head -c 1000 "$f" | head -n 1)
  [ ${#_line} -ge 999 ] || printf 'tracker %s\t%s\n' "$f" "$_line"
}
_look_into() {
  IFS=$_newline
  for _line in $_some; do
    IFS=$_blanks; _size=${_line#file }; _size=${_size%% *}; f=./${_line#* ./}
    case $f in
    *.index.json) _index ;;
    */train_state.json)
      printf 'step %s\t%s\n' "$f" "$(head -c 4096 "$f" | tr -d ' \n' | grep -o '"current_step":[0-9]*' | tr -dc 0-9)" ;;
    TRACKER_CASES) _tracker ;;
    *) [ "$_size" = 0 ] || case $f in
      *.safetensors) _safetensors "$f" ;;
      WEIGHT_CASES) _torch "$f" ;;
      esac ;;
    esac
  done
}
_count() {
  _lines=0; _heavy=0; IFS=$_newline
  for _line in $_some; do
    _lines=$((_lines + 1))
    case $_line in 'file 0 '*) ;; WEIGHT_CASES) _heavy=$((_heavy + 1)) ;; esac
  done
  IFS=$_blanks
}
# STEP/./PATH of everything that may be a checkpoint: at first all that is not below a folder with a number in its name,
# then what is below those of these folders that are no checkpoints.
_rank() {
  _open=.
  while [ "$_open" ]; do
    _found=$(_say "$_open" | _each sh -c '
      find "$@" -mindepth 1 ! -path "*$_newline*" \( \
        -type d -name "*[0-9]*" -prune -exec printf "d %s\n" {} + -o -type f -exec printf "f %s\n" {} + \)' sh |
      grep -v '^f .*/[0-9]\{1,12\}/\|^f .*-[0-9]\{5\}-of-[0-9]\{5\}[.]' |
      grep '^d \|[.]\(ENDINGS\)\([.]tmp\|[.]part\|[.]incomplete\)*$\|_steps[.]pkl$\|-unfinished$\|/\(TRACKERS\)$' |
      sed -nE 'RANKING')
    _say "$_found" | grep -v '^open/'
    _open=$(_say "$_found" | sed -n 's|^open/||p')
  done
}
# List the files of one step where the listing is cut, and look into them; fails where the look ends before it. One
# more than is looked into is listed: it is the measure for the one above it.
_step() {
  [ $_looked -lt ENOUGH ] || [ $_cut ] || return 1
  if [ $# -eq 1 ] && [ -f "$1" ]; then _some=$(stat -c 'file %s %Y %b %n' "$1")
  else
    _some=$(find "$@" -type f ! -path "*$_newline*" -exec stat -c 'file %s %Y %b %n' {} + | head -c $((MOST_BYTES + 1)))
  fi
  _count
  [ $# -lt 4000 ] && [ $_lines -le MOST_FILES ] && [ ${#_some} -le MOST_BYTES ] && [ $_heavy -le MOST_WEIGHTS ] || {
    printf 'over %s\n' "$@"
    return 0
  }
  if [ $_cut ]; then
    [ $_lines -le $_left ] && [ ${#_some} -le $_room ] || return 1
    _left=$((_left - _lines)); _room=$((_room - ${#_some}))
    _say "$_some"; printf 'listed %s\n' "$@"
    [ $_looked -lt ENOUGH ] || return 1
  fi
  _look_into
  printf 'looked %s\n' "$@"
  _looked=$((_looked + 1 + _heavy))
}
_steps() {
  _at=; _rest=; set --
  while IFS=/ read -r _number _path; do
    [ "$_number" -le UP_TO ] || continue
    case ${_path##*/} in *[!0-9]*) ;; *) case $_named in *"/$_path/"*) continue;; esac ;; esac
    if [ "$_number" != "$_at" ] && [ $# -gt 0 ]; then
      _step "$@" || { _rest=$({ _say "$_at" "$_number"; cut -d / -f 1; } | uniq | grep -c .); break; }
      set --
    fi
    _at=$_number; [ $# -ge 4000 ] || set -- "$@" "$_path"
  done
  [ $# -eq 0 ] || [ "$_rest" ] || _step "$@" || _rest=1
  [ ! "$_rest" ] || echo "rest $_rest $_at"
}
_newest() { grep . | _each stat -c '%Y %n' | sort -k 1,1nr | head -n "$1" | sed 's/^[0-9]* //'; }
_start() { _looked=0; _left=MOST_FILES; _room=MOST_BYTES; }

_cut=; _some=$(find . -type f ! -path "*$_newline*" | head -n $((MOST_FILES + 1)) |
  _each stat -c 'file %s %Y %b %n' | head -c $((MOST_BYTES + 1)))
_count; [ $_lines -le MOST_FILES ] && [ ${#_some} -le MOST_BYTES ] || _cut=1
if [ $_cut ]; then echo cut; else _say "$_some"; fi
_all=$(_rank)
_named=$(_say "$_all" | grep '^[0-9]' | grep -v '/[0-9]*$')
_plain=$(_say "$_all" | sed -n 's|^-/||p'); _lines=$(_say "$_plain" | grep -c .)
[ $_lines -le MOST_UNNUMBERED ] || echo "unnumbered $((_lines - MOST_UNNUMBERED))"
[ UP_TO -lt ANY_STEP ] || {
  _say "$_plain" | _newest MOST_UNNUMBERED
  _say "$_named" | sed -n 's|^[0-9]*/\(.*[.]safetensors\)$|\1|p' | _newest 10
} | while IFS= read -r f; do _start; _step "$f"; done
_start
_say "$_all" | grep '^[0-9]' | sort -t / -k 1,1nr -k 2 | _steps
_say "$_all" | sed -n 's|^tracker/||p' | while IFS= read -r f; do _tracker; done
find . -type d ! -name lost+found ! -path "*$_newline*" -exec sh -c '
  for _folder; do [ -r "$_folder" ] && [ -x "$_folder" ] || printf "shut %s\n" "$_folder"; done' sh {} +
find . -type l -name 'latest-rank*' ! -path "*$_newline*" | while IFS= read -r f; do
  [ -e "$f" ] || printf 'link %s\n' "$(ls -ld "$f" | tr '\n' ' ')"
done
:
"""


def format_listing_script(directory: str, enough: int, up_to: int | None = None) -> str:
    """The script for one look.

    Args:
        directory: on the target.
        enough: how many files are looked into; the checkpoint at which there are that many is the last one.
        up_to: the highest step that is looked at (default: any).
    """
    values = {
        "MOST_FILES": MOST_FILES,
        "MOST_BYTES": MOST_BYTES,
        "MOST_WEIGHTS": MOST_WEIGHTS,
        "MOST_UNNUMBERED": MOST_UNNUMBERED,
        "ENOUGH": enough,
        "ANY_STEP": _ANY_STEP,
        "UP_TO": _ANY_STEP if up_to is None else up_to,
        "WEIGHT_CASES": " | ".join(f"*{name}" for name in LOOKED_INTO),
        "TRACKER_CASES": " | ".join(f"*/{name}" for name in TRACKERS),
        "TRACKERS": r"\|".join(name.replace(".", "[.]") for name in TRACKERS),
        "ENDINGS": r"\|".join(name.removeprefix(".") for name in WEIGHTS),
        "RANKING": format_ranking(),
        "DIR": quote_path(directory),
    }
    script = _SCRIPT
    for name, value in values.items():
        script = script.replace(name, str(value))
    return script
