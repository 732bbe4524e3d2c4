"""Send pieces of a file (or all of it) to presigned URLs with curl on the target, and read what the storage answered.

A presigned URL is a secret: it reaches the target on the stdin of `sh -s`, and is in no argv and in no file. The job
that sends gets the URLs in its environment (TM_PIECES), which only the same user can read, and removes them from the
environment of the programs that it starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import NamedTuple

from training_monitor.core.clock import Clock
from training_monitor.core.errors import CommandFailed, last_lines
from training_monitor.core.models import JobStatus, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.targets.asking import quote_path
from training_monitor.targets.scripts import format_call
from training_monitor.uploads.detached import MOST_TRIES, DetachedTries
from training_monitor.uploads.presign import Storage

REQUEST_SECONDS = 60.0
MIB = 1024 * 1024
WHOLE = 0
MOST_URL_BYTES = 80_000  # a script and one variable hold that much, with some reserve
_LINE = regex(
    r"^piece (\d{1,5}) md5=([0-9a-f]{32}|) http=(\d{3}|) curl=(\d{1,3}|) kms=(yes|) etag=(\S{0,300}) said=(.{0,700})$",
    re.MULTILINE,
)
NO_CURL = "curl is not installed on the target, and wget cannot upload reliably: apt-get install curl"


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of a storage; status 0: there was none, and `said` is curl's error."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    said: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request succeeded; some answers begin with 200 and report an error in the body."""
        return 200 <= self.status < 300 and "<Error>" not in self.body

    @property
    def error(self) -> str:
        return explain(self.status, self.said)


def request_question(method: str, url: str, body: str = "", limit: float = REQUEST_SECONDS) -> Question[Response]:
    """Make one request from the target. The answer raises CommandFailed if curl is missing."""
    script = format_call("curl", "request", url=url, method=method, body=body, seconds=f"{limit - 5:g}")
    return Question("storage", script, parse_response, limit)


def parse_response(reply: Reply) -> Response:
    """Parse headers, body and status of one request; of several header blocks (100 Continue) the last counts."""
    if reply.output.strip() == "no-curl":
        raise CommandFailed(NO_CURL)
    text, _, end = reply.output.rpartition("\nhttp=")
    status, code = re.match(r"\d{3}", end), re.search(r"^curl=(\d+)$", end, re.MULTILINE)
    head, body = "", text
    while (found := re.match(r"HTTP/[\d.]+ \d{3}.*(?:\n.+)*(?:\n\n|\n?\Z)", body)) is not None:
        head, body = found.group(), body[found.end() :]
    pairs = (line.partition(":") for line in head.splitlines()[1:])
    headers = {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}
    if status is None or code is None or code[1] != "0":
        said = re.search(r"^curl: (.{1,300})", reply.output, re.MULTILINE)
        return Response(0, headers, body, said[1] if said else "no answer")
    return Response(int(status.group()), headers, body, _reason(body))


def read_tag(text: str, name: str) -> str | None:
    """Return the text of the first XML element of this name; only the usual character references are expanded."""
    found = re.search(rf"<{name}>([^<]{{0,4096}})</{name}>", text)
    return unescape(found[1]).strip() if found else None


def explain(status: int, said: str) -> str:
    """Describe a storage's refusal in one line."""
    hint = ""
    if status == 403 and not is_expired(said):
        hint = " (check the keys, the region, the endpoint and this machine's clock)"
    return (f"HTTP {status} {said}".strip() if status else said) + hint


def is_expired(said: str) -> bool:
    """Return whether the answer says that the URL has expired: then a new one is signed."""
    return "expired" in said.lower()


def is_final(status: int, said: str) -> bool:
    """Return whether a retry would not help: refusals, except 408, 429 and what a new signature fixes."""
    return 400 <= status < 500 and status not in (408, 429) and not is_expired(said) and "RequestTimeout" not in said


def _reason(body: str) -> str:
    return ": ".join(text[:200] for name in ("Code", "Message") if (text := read_tag(body, name)))


# ---------------------------------------------------------------- one object


class SourceFile(NamedTuple):
    """A file on the target; `identity` changes when it is written again."""

    path: str
    size_bytes: int
    identity: str


class ObjectStore(NamedTuple):
    """One object of a storage, and the file that is sent to it.

    Requests are signed here, each for `expires` seconds, and made by the target.
    """

    source: SourceFile
    storage: Storage
    job: DetachedTries
    clock: Clock
    expires: int

    def sign(self, method: str, query: Mapping[str, str] | None = None, *, whole_bucket: bool = False) -> str:
        return self.storage.sign(method, query, expires=self.expires, now=self.clock.time(), whole_bucket=whole_bucket)

    def request(
        self,
        method: str,
        query: Mapping[str, str] | None = None,
        body: str = "",
        *,
        whole_bucket: bool = False,
        limit: float = REQUEST_SECONDS,
    ) -> Response:
        """Make one request, with retries where they may help; return the last answer, whatever it is."""
        for failures in range(1, MOST_TRIES + 1):
            url = self.sign(method, query, whole_bucket=whole_bucket)
            response = self.job.site.ask_one(request_question(method, url, body, limit))
            if response.ok or is_final(response.status, response.said) or failures == MOST_TRIES:
                break
            self.job.back_off(failures, response.error)
        return response


def difference(held: Response, size_bytes: int, etag: str | None) -> str | None:
    """Return how the stored object differs from the sent one; None if it does not. `etag` None: not compared."""
    if held.status == 404:
        return "the storage does not have the object"
    if not held.ok:
        return f"the uploaded object could not be checked: {held.error}"
    if held.headers.get("content-length") != str(size_bytes):
        return f"the storage has {held.headers.get('content-length', '?')} of {size_bytes} bytes"
    found = held.headers.get("etag", "").strip('"')
    return (
        f"the storage holds a different object: its ETag is {found[:100]}, not {etag}"
        if etag and found != etag
        else None
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a file, or all of it (number 0): `count` MiB starting at MiB `skip`."""

    number: int
    skip: int
    count: int
    size_bytes: int


class Sent(NamedTuple):
    """The result of sending a piece; `md5` was computed by the target, of the bytes it read."""

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
        """Whether the storage accepted the piece, and holds what was read, as far as that can be told."""
        return 200 <= self.status < 300 and (not self.comparable or self.md5 == self.etag)

    @property
    def error(self) -> str:
        if 200 <= self.status < 300:
            return f"the storage holds a different object: its ETag is {self.etag}, the MD5 of the sent data {self.md5}"
        return explain(self.status, self.said)


def send_pieces(
    source: SourceFile,
    pieces: Sequence[Piece],
    sign: Callable[[Piece], str],
    job: DetachedTries,
    *,
    can_sign: bool = True,
    begun: str = "",
) -> dict[int, Sent]:
    """Send until all pieces are accepted, in jobs of as many pieces as fit; give up after three failures in a row.

    Args:
        sign: returns a fresh URL for a piece.
        can_sign: whether `sign` can replace a URL that has expired.
        begun: the id of the multipart upload that we began for them, which the job records.

    Raises:
        CommandFailed: a piece was not accepted, and why.
    """
    total = max((piece.number for piece in pieces), default=0)
    file, size = quote_path(source.path), source.size_bytes  # ends at the first piece that fails
    command = format_call("upload_pieces", "send_all", file=file, size=size, total=total, begun=begun)
    taken: dict[int, Sent] = {}
    failures = 0
    while pending := [piece for piece in pieces if piece.number not in taken]:
        view = job.run(command, format_pieces((piece, sign(piece)) for piece in pending))
        sent = parse_sent(job.results(newest_only=True))
        new = {piece.number: sent[piece.number] for piece in pending if piece.number in sent and sent[piece.number].ok}
        taken |= new
        failed = next((each for each in sent.values() if not each.ok), None)
        if failed is None and new and view.status is JobStatus.SUCCEEDED:
            continue
        failures = 1 if new else failures + 1
        said = failed.error if failed else view.message or last_lines(view.log_tail, 1)
        hopeless = failed and (is_final(failed.status, failed.said) or (not can_sign and is_expired(failed.said)))
        if failures >= MOST_TRIES or hopeless:
            raise CommandFailed(f"{source.path}: not uploaded: {said}")
        job.back_off(failures, said)
    return taken


def format_pieces(pieces: Iterable[tuple[Piece, str]]) -> dict[str, str]:
    """Return the environment of the job: as many pieces with their URLs as fit."""
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
    """Parse the result for each piece, by its number; of several tries the last one counts."""
    return {
        int(number): Sent(
            int(number), md5 or None, int(status or 0) if code == "0" else 0, etag or None, bool(kms), said.strip()
        )
        for number, md5, status, code, kms, etag, said in _LINE.findall(text)
    }


def parse_begun(text: str) -> list[str]:
    """Parse the ids of the multipart uploads that we began, each once, oldest first."""
    return list(dict.fromkeys(re.findall(r"^begun (\S{1,2000})$", text, re.MULTILINE)))


def whole(source: SourceFile) -> Piece:
    """Return all of a file as one piece."""
    return Piece(WHOLE, 0, 0, source.size_bytes)


def split(size_bytes: int, part_bytes: int) -> list[Piece]:
    """Return the parts of a file, each a whole number of MiB except the last."""
    count = part_bytes // MIB
    starts = range(0, size_bytes, part_bytes)
    return [Piece(n, (n - 1) * count, count, min(part_bytes, size_bytes - at)) for n, at in enumerate(starts, 1)]
