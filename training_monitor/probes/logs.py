"""What is new in a log file of a target: the bytes behind a cursor, in one round trip, at a cost that does not grow
with the file.

A line ends with a newline or a carriage return, so that a progress bar redrawn on one endless line is seen; an
unfinished last line is held back until it ends or is HELD_BYTES long. All counting is done on the target, in bytes:
bytes that are no utf-8 arrive as U+FFFD, NUL bytes not at all, and neither moves an offset.

A file emptied and filled past the cursor between two reads is recognised by the checksum of the bytes in front of the
cursor. What cannot be recognised: a file rewritten with the same bytes up to there.
"""

from __future__ import annotations

import re
import shlex

from training_monitor.errors import AccessDenied, CommandFailed, SettingsError
from training_monitor.models import LogCursor, NewLog, Progress, Question, Reply
from training_monitor.parse.epoch_count import EpochCount
from training_monitor.parse.log_frames import HELD_BYTES, MOST_BYTES, LineCutter
from training_monitor.parse.process_job import parse_fields
from training_monitor.parse.training_log import parse_progress, read_samples
from training_monitor.targets.asking import MAX_ANSWER_BYTES, ask, quote_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

FIRST_BYTES = 64 * 1024
LIMIT_BYTES = 1024 * 1024
_MOST_BYTES = MAX_ANSWER_BYTES - 64 * 1024  # an answer also has a head

_PART = r"""
_part() { dd bs=16384 skip=$(($2 / 16384)) <"$1" 2>/dev/null | tail -c +$(($2 % 16384 + 1)) | head -c "$3"; }
"""
# The files are opened once and read through /proc/self/fd, so that all steps see the same file whatever is renamed.
# `_part FILE FROM COUNT` prints a range; dd seeks, while the `tail -c +N` of busybox reads all that is before N.
# `_ends` makes a newline of each carriage return. `_cut FILE FROM COUNT`: how many bytes of a range belong to a line
# that begins before it. `_held FILE FROM COUNT`: how many belong to a last line without an end.
_SCRIPT = r"""
file=FILE inode=INODE offset=OFFSET check=CHECK limit=LIMIT
_say() { echo "state=$1"; exit 0; }
PART
_ends() { tr '\r' '\n'; }
_cut() {
  [ "$2" -gt 0 ] || { echo 0; return; }
  _n=$(_part "$1" $(($2 - 1)) $(($3 + 1)) | _ends | head -n 1 | wc -c); _n=$((_n - 1))
  if [ $_n -lt "$3" ]; then echo $_n; else echo 0; fi
}
_held() {
  _n=$({ _part "$1" "$2" "$3"; printf x; } | _ends | tail -n 1 | wc -c); _n=$((_n - 1))
  if [ $_n -lt HELD ] && [ $_n -lt $limit ]; then echo $_n; else echo 0; fi
}
_check() {
  _n=$(($2 < 256 ? $2 : 256))
  _sum=$(_part "$1" $(($2 - _n)) $_n | { md5sum || cksum; }); echo "${_sum%% *}"
}
_same() { [ -z "$check" ] || [ "$(_check "$1" "$offset")" = "$check" ]; }
_is_old() {
  [ "$2" -ge "$offset" ] && _same "$1" || return 1
  [ "$3" = "$inode" ] || { [ $reset = truncated ] && [ "$check" ] && [ "$offset" -gt 0 ]; }
}
[ -e "$file" ] || case $(ls -Ld "$file" 2>&1) in *': Permission denied') _say denied;; *) _say missing;; esac
[ -f "$file" ] || _say other
[ -r "$file" ] || _say denied
exec 4<"$file"
new=/proc/self/fd/4; [ -e $new ] || new=$file
set -- $(stat -L -c '%s %i %Y' "$new"); size=$1 now=$2 written=$3
[ "$now" ] || { echo "stat does not tell the size of $file"; exit 1; }

from=0 reset= old= before=0 cut=0
if [ "$inode" ]; then
  if [ "$now" != "$inode" ]; then reset=rotated
  elif [ "$size" -lt "$offset" ] || ! _same "$new"; then reset=truncated
  else from=$offset; fi
fi
if [ "$reset" ] && [ -f "$file.1" ] && [ -r "$file.1" ]; then
  exec 5<"$file.1"
  old=/proc/self/fd/5; [ -e $old ] || old=$file.1
  set -- $(stat -L -c '%s %i' "$old")
  if [ "$2" ] && _is_old "$old" "$1" "$2"; then
    before=$(($1 - offset)) old_size=$1
    if [ $reset = rotated ] && [ "$size" -eq 0 ]; then  # nobody writes the new one yet: stay with the old one
      new=$old size=$1 now=$2 from=$offset before=0 reset=
    fi
  fi
fi

skip=$((before + size - from - limit)); [ $skip -gt 0 ] || skip=0
if [ $skip -lt $before ]; then
  start=$((offset + skip)) count=$((before - skip))
  [ $skip -eq 0 ] || cut=$(_cut "$old" $start $count)
  start=$((start + cut)) count=$((count - cut))
else
  count=0 from=$((from + skip - before))
  [ $skip -eq 0 ] || cut=$(_cut "$new" $from $((size - from)))
  from=$((from + cut))
fi
held=0; [ "$size" -eq $from ] || held=$(_held "$new" $from $((size - from)))
end=$((size - held))
[ "$end$reset" = "$offset" ] && [ "$check" ] || check=$(_check "$new" $end)
echo state=read; echo "inode=$now"; echo "offset=$end"; echo "check=$check"
echo "reset=$reset"; echo "skipped=$((skip + cut))"; echo "held=$held"
[ -z "$written" ] || echo "age=$(($(date +%s) - written))"
echo "path=$(readlink -f "$file")"; echo log
{
  if [ $count -gt 0 ]; then
    _part "$old" $start $count
    [ "$(_part "$old" $((old_size - 1)) 1 | _ends | wc -l)" -eq 1 ] || echo
  fi
  _part "$new" $from $((size - from))
} | tr -d '\000'
"""


# Frames as parse/log_frames.py describes them. It looks four times a second, says every ten seconds that it is there,
# and ends after an hour, so that one whose connection nobody closed does not stay for ever. `4` is the file as it was
# opened: what is renamed is read on for as long as it grows, until its successor has been written for a second, or for
# a minute where there is none.
_FOLLOW = r"""
exec 2>/dev/null
file=FILE inode=INODE offset=BEGIN known=KNOWN
PART
for open in "$file" "$file.1"; do [ "$(stat -L -c %i "$open")" != $inode ] || break; done
[ -f "$open" ] && exec 4<"$open" || { printf 'NONCE moved\n'; exit; }
[ ! -e /proc/self/fd/4 ] || open=/proc/self/fd/4
n=0 gone=0 late=0
while [ $n -lt 14400 ]; do
  [ $((n % 40)) -ne 0 ] || printf 'NONCE alive\n'
  set -- $(stat -L -c '%s %i' "$open" "$file")
  [ "$2" = $inode ] && [ "$1" -ge $known ] || break
  count=$(($1 - offset)); [ $count -le MOST ] || count=MOST
  if [ $count -gt 0 ]; then
    printf 'NONCE %s %s\n' $offset $count; _part "$open" $offset $count; printf '\nNONCE end\n'
    offset=$((offset + count)); [ $offset -le $known ] || known=$offset
  fi
  if [ "$4" != $inode ]; then
    gone=$((gone + 1)); [ "${3:-0}" -eq 0 ] || late=$((late + 1))
    [ $count -gt 0 ] || { [ $gone -lt 240 ] && [ $late -lt 4 ]; } || break
  fi
  n=$((n + 1)); [ $count -eq MOST ] || sleep 0.25
done
[ $n -eq 14400 ] || printf 'NONCE moved\n'
"""


def follow_script(expression: str, cursor: LogCursor, nonce: str) -> str:
    """A script that prints a log from a cursor on in frames, as it grows."""
    parts = {
        "FILE": expression,
        "INODE": str(cursor.inode),
        "BEGIN": str(LineCutter.begin(cursor)),
        "KNOWN": str(cursor.offset),
        "NONCE": nonce,
        "MOST": str(MOST_BYTES),
        "PART": _PART,
    }
    return re.sub("|".join(parts), lambda found: parts[found.group()], _FOLLOW)


_SAMPLES = r"""
file=FILE
[ -f "$file" ] && [ -r "$file" ] || exit 0
size=$(stat -L -c %s "$file") n=0
[ "${size:-0}" -gt FEWEST ] || exit 0
while [ $n -lt COUNT ]; do
  dd bs=SIZE skip=$((size / SIZE * n / COUNT)) count=1 <"$file" 2>/dev/null; printf '\036'; n=$((n + 1))
done
tail -c SIZE "$file"
"""
_SAMPLE_BYTES, _MOST_SAMPLES = 1024, 8


def epochs_question(expression: str) -> Question[EpochCount]:
    """How a log, named by a shell expression, counts steps and epochs, by short samples from all over it.

    The end of a long log does not reach back to where its epochs begin.
    """
    sizes = {"COUNT": _MOST_SAMPLES, "FEWEST": _MOST_SAMPLES * _SAMPLE_BYTES, "SIZE": _SAMPLE_BYTES}
    parts = {**{name: str(size) for name, size in sizes.items()}, "FILE": expression}
    script = re.sub(r"\b(?:COUNT|FEWEST|SIZE|FILE)\b", lambda found: parts[found.group()], _SAMPLES)

    def parse(reply: Reply) -> EpochCount:
        first, *others = reply.output.split("\036")
        whole = [re.split("[\r\n]", each)[1:] for each in others]
        lines = [re.split("[\r\n]", first), *whole]
        return read_samples(["\n".join(each if each is lines[-1] else each[:-1]) for each in lines])

    return Question("epochs", script, parse, limit=10.0)


def log_question(path: str, cursor: LogCursor | None = None, limit_bytes: int = LIMIT_BYTES) -> Question[NewLog]:
    """What a log file has behind `cursor`; without one, its last `limit_bytes`. Raises SettingsError."""
    return log_question_of(quote_path(path), path, cursor, limit_bytes)


def log_question_of(
    expression: str, path: str, cursor: LogCursor | None = None, limit_bytes: int = LIMIT_BYTES
) -> Question[NewLog]:
    """The same for a file that a shell expression names; `path` is how people know it."""
    if not 0 < limit_bytes <= _MOST_BYTES:
        raise SettingsError("limit_bytes", limit_bytes, f"1 to {_MOST_BYTES}")
    head, _, body = _SCRIPT.partition("\n_say")
    parts = {"INODE": "", "OFFSET": "0", "CHECK": "", "LIMIT": str(limit_bytes), "FILE": expression}
    if cursor:
        parts.update(INODE=str(cursor.inode), OFFSET=str(cursor.offset), CHECK=shlex.quote(cursor.check))
    for name, text in parts.items():
        head = head.replace(f"={name}", f"={text}", 1)
    script = f"{head}\n_say{body.replace('HELD', str(HELD_BYTES)).replace('PART', _PART)}"
    return Question("log", script, lambda reply: _parse_new_log(reply, path, cursor), limit=30.0)


def _parse_new_log(reply: Reply, path: str, cursor: LogCursor | None) -> NewLog:
    fields, text = parse_fields(reply.output)
    state = fields.get("state")
    if state == "missing":
        return NewLog("", cursor, missing=True)
    if state == "denied":
        raise AccessDenied(f"{path}: no permission to read it", hint="another user, or the file's permissions")
    if state == "other":
        raise CommandFailed(f"{path} is not a regular file")
    if state != "read":
        raise CommandFailed(f"{path} could not be read: {reply.output.strip()[-300:] or 'it said nothing'}")
    end = max(text.rfind("\n"), text.rfind("\r")) + 1 if int(fields["held"]) else len(text)
    age = fields.get("age", "")
    return NewLog(
        text[:end],
        LogCursor(int(fields["offset"]), int(fields["inode"]), fields["check"]),
        fields["reset"] or None,
        text[end:],
        int(fields["skipped"]),
        age=max(0.0, float(age)) if re.fullmatch(r"-?\d{1,12}", age) else None,
        path=fields.get("path") or None,
    )


def read_new_log(
    target: str | Target,
    path: str,
    cursor: LogCursor | None = None,
    namespace: str = "default",
    *,
    limit_bytes: int = LIMIT_BYTES,
    transport: Transport | None = None,
) -> NewLog:
    """Read what was written to a log file since the last read, in one round trip.

    Args:
        path: the file on the target; `~/` is its home folder.
        cursor: `NewLog.cursor` of the last read; None reads the last 64 KiB, from the first whole line on.
        limit_bytes: of more than this, the newest are read, and `skipped_bytes` says how many were not.

    Returns:
        NewLog; each line once over successive reads. After a truncation or rotation the file is read from its start,
        and before it the rest of the old one, if `PATH.1` is that. A missing file is no error.

    Raises:
        AccessDenied: the file may not be read.
        SettingsError: an empty path, or a limit that is none.
        CommandError: the target could not be asked, or the path is no regular file.
    """
    limit = limit_bytes if cursor else min(limit_bytes, FIRST_BYTES)
    return _ask_log(target, log_question(path, cursor, limit), namespace, transport)


def get_log_progress(
    target: str | Target,
    path: str,
    namespace: str = "default",
    *,
    tail_bytes: int = FIRST_BYTES,
    transport: Transport | None = None,
) -> Progress:
    """The newest progress in the last `tail_bytes` of a log file, in one round trip; the file's size does not matter.

    Returns:
        Progress, also out of an unfinished last line; nothing but None when the file is missing or says nothing.

    Raises:
        AccessDenied, SettingsError, CommandError: as of read_new_log.
    """
    new = _ask_log(target, log_question(path, None, tail_bytes), namespace, transport)
    return parse_progress(new.text + new.partial)


def _ask_log(target: str | Target, question: Question[NewLog], namespace: str, transport: Transport | None) -> NewLog:
    [answer] = ask(target, question, namespace=namespace, transport=transport)
    new = answer.get()
    assert isinstance(new, NewLog)
    return new
