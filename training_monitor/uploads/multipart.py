"""A large file in parts. The storage remembers which arrived, so an upload that was cut off goes on where it was."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape, unescape

from training_monitor.errors import CommandFailed
from training_monitor.uploads.curl import read_tag
from training_monitor.uploads.pieces import MIB, Piece, Sent, parse_begun, parse_sent, split
from training_monitor.uploads.presign import presign_multipart
from training_monitor.uploads.sending import ObjectStore, SourceFile, difference, send_pieces
from training_monitor.watching import UploadedFile, UploadReport

MIN_PART_BYTES = 5 * MIB
MAX_PART_BYTES = 5 * 1024 * MIB
USUAL_PART_BYTES = 64 * MIB
MOST_PARTS = 1000  # the storage would take 10000; this many are listed by one answer and completed by one request
COMPLETE_SECONDS = 600.0

Parts = Mapping[int, tuple[str, int]]


def upload_in_parts(source: SourceFile, store: ObjectStore, part_bytes: int | None) -> UploadReport:
    """Send a file in parts, each verified, and put them together; given up, the upload is aborted at the storage.

    One of this object that somebody else began is gone on with, but never aborted.

    Raises:
        CommandFailed: it was given up, and why.
    """
    pieces = split(source.size_bytes, part_size(source.size_bytes, part_bytes))
    store.job.settle()
    results = store.job.results()
    sent = {number: each for number, each in parse_sent(results).items() if each.ok}
    if any(piece.number not in sent for piece in pieces) or _difference(source, store, pieces, sent):
        begun = parse_begun(results)
        upload_id = _find(store, begun)
        if upload_id is None:
            upload_id = _create(store)
            begun.append(upload_id)
        try:
            sent = _send_missing(source, store, pieces, upload_id, sent, is_ours=upload_id in begun)
            _complete(source, store, pieces, upload_id, sent)
        except CommandFailed:
            if upload_id in begun:
                store.request("DELETE", {"uploadId": upload_id})
            raise
    file = UploadedFile(source.path, source.size_bytes, _expected_etag(pieces, sent))
    return UploadReport(store.storage.address, True, (file,), store.job.attempts)


def part_size(size_bytes: int, chosen: int | None = None) -> int:
    """Bytes per part, whole MiB: what was chosen, else 64 MiB, and more where it would be over 1000 parts."""
    least = -(-size_bytes // (MOST_PARTS * MIB)) * MIB
    return max(chosen or USUAL_PART_BYTES, least)


def parse_upload_id(text: str, key: str) -> str | None:
    """The newest upload of exactly this object in a storage's list of unfinished ones."""
    uploads = re.findall(r"<Upload>.{0,20000}?</Upload>", text, re.DOTALL)
    mine = [read_tag(upload, "UploadId") for upload in uploads if read_tag(upload, "Key") == key]
    return mine[-1] if mine else None


def parse_parts(text: str) -> dict[int, tuple[str, int]]:
    """ETag and size in bytes of each part that the storage holds, by its number."""
    parts = {}
    for part in re.findall(r"<Part>.{0,20000}?</Part>", text, re.DOTALL):
        number, size = read_tag(part, "PartNumber"), read_tag(part, "Size")
        if re.fullmatch(r"\d{1,5}", number or "") and re.fullmatch(r"\d{1,15}", size or ""):
            etag = unescape(read_tag(part, "ETag") or "").strip('"')
            parts[int(number or 0)] = (etag, int(size or 0))
    return parts


def _find(store: ObjectStore, begun: Sequence[str]) -> str | None:
    """An upload of this object that was begun and not finished; for whoever may not list them, one of our own."""
    key = store.storage.key
    listed = store.request("GET", {"uploads": "", "prefix": key}, whole_bucket=True)
    if listed.ok:
        return parse_upload_id(listed.body, key)
    return next((each for each in reversed(begun) if store.request("GET", {"uploadId": each}).ok), None)


def _create(store: ObjectStore) -> str:
    created = store.request("POST", {"uploads": ""})
    upload_id = read_tag(created.body, "UploadId") if created.ok else None
    if not upload_id:
        raise CommandFailed(f"the upload in parts was not begun: {created.error or 'no upload id in the answer'}")
    return upload_id


def _list(store: ObjectStore, upload_id: str) -> Parts:
    listed = store.request("GET", {"uploadId": upload_id})
    if not listed.ok:
        raise CommandFailed(f"the parts that arrived could not be listed: {listed.error}")
    return parse_parts(listed.body)


def _send_missing(
    source: SourceFile,
    store: ObjectStore,
    pieces: Sequence[Piece],
    upload_id: str,
    sent: Mapping[int, Sent],
    *,
    is_ours: bool,
) -> dict[int, Sent]:
    """Send every part that the storage does not hold as it was read here."""
    held = _list(store, upload_id)
    kept = {piece.number: sent[piece.number] for piece in pieces if _is_held(piece, sent, held)}
    missing = [piece for piece in pieces if piece.number not in kept]
    store.job.tell(f"{len(kept)} of {len(pieces)} parts have arrived")

    def sign(piece: Piece) -> str:
        now = store.clock.time()
        return presign_multipart(store.storage, upload_id, piece.number, expires=store.expires, now=now)

    return {**kept, **send_pieces(source, missing, sign, store.job, begun=upload_id if is_ours else "")}


def _is_held(piece: Piece, sent: Mapping[int, Sent], held: Parts) -> bool:
    here = sent.get(piece.number)
    return here is not None and held.get(piece.number) == (here.etag, piece.size_bytes)


def _complete(
    source: SourceFile, store: ObjectStore, pieces: Sequence[Piece], upload_id: str, sent: Mapping[int, Sent]
) -> None:
    """Put the parts together when all are there as they were sent; the object itself tells whether that worked."""
    held = _list(store, upload_id)
    if wrong := [piece.number for piece in pieces if not _is_held(piece, sent, held)]:
        raise CommandFailed(f"part {wrong[0]} did not arrive as it was sent")
    parts = "".join(
        f"<Part><PartNumber>{piece.number}</PartNumber><ETag>{escape(held[piece.number][0])}</ETag></Part>"
        for piece in pieces
    )
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>"
    done = store.request("POST", {"uploadId": upload_id}, body, limit=COMPLETE_SECONDS)
    if problem := _difference(source, store, pieces, sent):
        raise CommandFailed(problem if done.ok else f"the parts were not put together: {done.error}")


def _difference(
    source: SourceFile, store: ObjectStore, pieces: Sequence[Piece], sent: Mapping[int, Sent]
) -> str | None:
    return difference(store.request("HEAD"), source.size_bytes, _expected_etag(pieces, sent))


def _expected_etag(pieces: Sequence[Piece], sent: Mapping[int, Sent]) -> str | None:
    """The ETag of the whole object: the MD5 of the parts' MD5s; None where the storage's are none."""
    sums = [sent[piece.number].md5 for piece in pieces if sent[piece.number].comparable]
    if len(sums) < len(pieces):
        return None
    return f"{hashlib.md5(bytes.fromhex(''.join(each or '' for each in sums))).hexdigest()}-{len(pieces)}"
