"""What sending in one piece and sending in parts have in common: the requests, the tries, the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from training_monitor.clock import Clock
from training_monitor.errors import CommandFailed, last_lines
from training_monitor.models import JobStatus
from training_monitor.uploads.curl import REQUEST_SECONDS, Response, is_expired, is_final, request_question
from training_monitor.uploads.detached import MOST_TRIES, DetachedUpload
from training_monitor.uploads.pieces import WHOLE, Piece, Sent, format_pieces, format_send_command, parse_sent
from training_monitor.uploads.presign import Storage


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file on the target; `identity` changes when it is written again."""

    path: str
    size_bytes: int
    identity: str


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One object of a storage, asked from the target by requests that are signed here, each for `expires` seconds."""

    storage: Storage
    job: DetachedUpload
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
        """One request, tried again where that may help; the last answer, whatever it is."""
        for failures in range(1, MOST_TRIES + 1):
            url = self.sign(method, query, whole_bucket=whole_bucket)
            response = self.job.ask(request_question(method, url, body, limit))
            if response.ok or is_final(response.status, response.said) or failures == MOST_TRIES:
                break
            self.job.back_off(failures, response.error)
        return response


def whole(source: SourceFile) -> Piece:
    """All of a file as one piece."""
    return Piece(WHOLE, 0, 0, source.size_bytes)


def send_pieces(
    source: SourceFile,
    pieces: Sequence[Piece],
    sign: Callable[[Piece], str],
    job: DetachedUpload,
    *,
    can_sign: bool = True,
    begun: str = "",
) -> dict[int, Sent]:
    """Send until all pieces were taken, each job as many as it can carry; three failures in a row end it.

    Args:
        sign: a fresh URL for a piece.
        can_sign: whether `sign` makes a new one where the old one has expired.
        begun: the upload in parts that we began for them.

    Raises:
        CommandFailed: a piece was not taken, and why.
    """
    total = max((piece.number for piece in pieces), default=0)
    command = format_send_command(source.path, source.size_bytes, total, begun)
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
        if failures >= MOST_TRIES or (failed and _is_hopeless(failed, can_sign)):
            raise CommandFailed(f"{source.path}: not uploaded: {said}")
        job.back_off(failures, said)
    return taken


def _is_hopeless(failed: Sent, can_sign: bool) -> bool:
    return is_final(failed.status, failed.said) or (not can_sign and is_expired(failed.said))


def difference(held: Response, size_bytes: int, etag: str | None) -> str | None:
    """How what the storage holds differs from what was sent; None when it does not. `etag` None: it tells nothing."""
    if held.status == 404:
        return "the storage does not have it"
    if not held.ok:
        return f"what arrived could not be looked at: {held.error}"
    if held.headers.get("content-length") != str(size_bytes):
        return f"the storage holds {held.headers.get('content-length', '?')} bytes of {size_bytes}"
    found = held.headers.get("etag", "").strip('"')
    return (
        f"the storage holds something else: its ETag is {found[:100]}, not {etag}" if etag and found != etag else None
    )
