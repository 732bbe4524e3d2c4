"""Pieces of a file (or all of it) sent to presigned URLs by one process job, and the reader of what it wrote down.

The URLs reach the job in its environment (TM_PIECES), which only the same user can read; it takes them out of the
environment of what it starts. They are in none of its files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training_monitor.targets.asking import quote_path
from training_monitor.uploads.curl import CURL, explain

MIB = 1024 * 1024
WHOLE = 0
MOST_URL_BYTES = 80_000  # what a script and one variable may hold, and some room

# `read -r number skip count url`: part `number` is `count` MiB from MiB `skip` on; number 0 is the whole file.
# The data reach curl as fd 3, since its stdin carries the URL. It holds a part in memory, so that the length is known.
_SEND = r"""
pieces=$TM_PIECES; unset TM_PIECES
file=FILE
_part() { dd if="$file" bs=1048576 skip="$skip" count="$count" 2>/dev/null; }
_sum() { if command -v md5sum >/dev/null; then _s=$(md5sum); echo "${_s%% *}"; else cat >/dev/null; fi; }
_put() {
  if [ "$number" = 0 ]; then _curl --upload-file "$file"
  else _part | { _curl --request PUT --header 'Content-Type:' --data-binary @/dev/fd/3; } 3<&0; fi 2>&1
  echo "curl=$?"
}
_of() { printf '%s\n' "$answer" | sed -n "$1" | tail -n 1 | tr -cd '[:print:]' | head -c 300; }
_send() {
  if [ "$number" = 0 ]; then sum=$(_sum <"$file"); else sum=$(_part | _sum); fi
  answer=$(_put | head -c 20000 | _hide)
  http=$(_of 's/^http=//p'); code=$(_of 's/^curl=//p')
  etag=$(_of 's/^[Ee][Tt][Aa][Gg]: *//p' | tr -d '" ')
  other=$(_of '/^[Xx]-[Aa]mz-[Ss]erver-[Ss]ide-[Ee]ncryption: *aws:kms/p; /encryption-customer-algorithm:/p')
  said=$(_of 's/^curl: //p')
  [ "$said" ] || said="$(_of 's/.*<Code>\([^<]*\)<.*/\1/p') $(_of 's/.*<Message>\([^<]*\)<.*/\1/p')"
  result="piece $number md5=$sum http=$http curl=$code kms=${other:+yes} etag=$etag said=$said"
  printf '%s\n' "$result" >>"$TRAINING_MONITOR_JOB/result"
  case $code.$http in
    0.2??) echo "sent $number of TOTAL" ;;
    *) printf '%s\n' "not sent $number of TOTAL: $said"; return 1 ;;
  esac
}
[ "$(stat -L -c %s "$file")" = SIZE ] || { echo "$file is not there as it was: another size"; exit 3; }
BEGUN
printf '%s\n' "$pieces" | while read -r number skip count url; do _send || exit 1; done
"""
_LINE = re.compile(
    r"^piece (\d{1,5}) md5=([0-9a-f]{32}|) http=(\d{3}|) curl=(\d{1,3}|) kms=(yes|) etag=(\S{0,300}) said=(.{0,700})$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a file, or the whole of it (number 0): `count` MiB from MiB `skip` on."""

    number: int
    skip: int
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a piece; `md5` is the target's own, of what it read."""

    number: int
    md5: str | None
    status: int
    etag: str | None
    other_etag: bool
    said: str

    @property
    def comparable(self) -> bool:
        """Whether the storage's ETag is the MD5 of what arrived: not under SSE-KMS or SSE-C."""
        return (
            self.md5 is not None and not self.other_etag and re.fullmatch("[0-9a-f]{32}", self.etag or "") is not None
        )

    @property
    def ok(self) -> bool:
        """The storage took it, and it is what was read where that can be told."""
        return 200 <= self.status < 300 and (not self.comparable or self.md5 == self.etag)

    @property
    def error(self) -> str:
        if 200 <= self.status < 300:
            return f"the storage holds something else: its ETag is {self.etag}, the MD5 of what was sent {self.md5}"
        return explain(self.status, self.said)


def format_send_command(path: str, size_bytes: int, total: int, begun: str = "") -> str:
    """The command of the job; it sends what TM_PIECES lists and ends at the first piece that fails.

    `begun` is the id of the upload in parts that we began for it, which it writes down.
    """
    note = f"printf 'begun %s\\n' {shlex.quote(begun)} >>\"$TRAINING_MONITOR_JOB/result\"" if begun else ":"
    parts = {"FILE": quote_path(path), "SIZE": str(size_bytes), "TOTAL": str(total), "BEGUN": note}
    return CURL + re.sub(r"\b(?:FILE|SIZE|TOTAL|BEGUN)\b", lambda found: parts[found.group()], _SEND)


def format_pieces(pieces: Iterable[tuple[Piece, str]]) -> dict[str, str]:
    """The environment of the job: as many pieces with their URLs as fit."""
    lines: list[str] = []
    left = MOST_URL_BYTES
    for piece, url in pieces:
        line = f"{piece.number} {piece.skip} {piece.count} {url}"
        left -= len(line) + 1
        if left < 0 and lines:
            break
        lines.append(line)
    return {"TM_PIECES": "\n".join(lines)}


def parse_sent(text: str) -> Mapping[int, Sent]:
    """What became of each piece, by its number; of several tries the last."""
    return {
        int(number): Sent(
            int(number), md5 or None, int(status or 0) if code == "0" else 0, etag or None, bool(kms), said.strip()
        )
        for number, md5, status, code, kms, etag, said in _LINE.findall(text)
    }


def parse_begun(text: str) -> list[str]:
    """The ids of the uploads in parts that we began, each once, oldest first."""
    return list(dict.fromkeys(re.findall(r"^begun (\S{1,2000})$", text, re.MULTILINE)))


def split(size_bytes: int, part_bytes: int) -> list[Piece]:
    """The parts of a file, each a whole number of MiB but the last."""
    count = part_bytes // MIB
    starts = range(0, size_bytes, part_bytes)
    return [Piece(n, (n - 1) * count, count, min(part_bytes, size_bytes - at)) for n, at in enumerate(starts, 1)]
