"""Send one file from a target to object storage (S3, Cloudflare R2, anything that takes a presigned PUT), with curl.

The target gets no credentials: every request is a presigned URL, made here.

    where            what is there
    here             the credentials, in memory
    on the wire      presigned URLs, on the stdin of `sh -s`
    on the target    presigned URLs in the environment of the job that sends and on curl's stdin, neither in an argv nor
                     in a file; in the run directory (0700) the command and, of each piece, its MD5, ETag and status

A large file is sent in parts. The storage remembers which arrived, so an interrupted upload is resumed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape, unescape
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import CommandFailed, SettingsError
from training_monitor.core.outcomes import UploadedFile, UploadReport
from training_monitor.core.regex import regex
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.uploads.detached import DetachedTries, source_question
from training_monitor.uploads.pieces import (
    MIB,
    NO_CURL,
    WHOLE,
    ObjectStore,
    Piece,
    Sent,
    SourceFile,
    difference,
    parse_begun,
    parse_sent,
    read_tag,
    send_pieces,
    split,
    whole,
)
from training_monitor.uploads.presign import DEFAULT_EXPIRES, Storage

GIB = 1024 * MIB
MIN_PART_BYTES, MAX_PART_BYTES = 5 * MIB, 5 * GIB
USUAL_PART_BYTES = 64 * MIB
MOST_PARTS = 1000  # the storage accepts 10000, but lists this many in one answer and completes them in one request
COMPLETE_SECONDS = 600.0
_URL = regex(r"https?://[^\s\"'\\<>\x00-\x20\x7f-\uffff]{1,8000}")
_PROBLEMS = {
    "no-curl": NO_CURL,
    "missing": "the file does not exist",
    "other": "it is not a regular file (pack a folder first)",
    "denied": "no permission to read it",
}

Parts = Mapping[int, tuple[str, int]]


def upload_to_presigned_url(
    target: str | Target,
    path: str,
    destination: str | Storage,
    namespace: str = "default",
    *,
    multipart_above: int = 5 * GIB,
    part_bytes: int | None = None,
    expires: int = DEFAULT_EXPIRES,
    timeout: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> UploadReport:
    """Upload a file from a target to object storage, and verify that it arrived.

    The upload runs on the target as a process job that is named after the file and the destination. It continues if
    this process ends or the connection is lost. If the same call is repeated, even after a crash, it waits for this
    upload and does not send again what has arrived. If a multipart upload is given up, it is aborted. If the call is
    never repeated, an interrupted multipart upload stays in the storage until a lifecycle rule of the bucket
    (AbortIncompleteMultipartUpload) removes it.

    Args:
        path: a file on the target; `~/` is the home folder there.
        destination: a `Storage` with credentials (given here or in the environment), or a presigned PUT URL. A
            presigned URL cannot be signed again, and only its ETag shows what arrived.
        multipart_above: files with more bytes than this are sent in parts, each of which is verified. This requires a
            Storage.
        part_bytes: size of a part, in whole MiB, 5 MiB to 5 GiB; default: 64 MiB, or more if necessary to need at most
            1000 parts. The target holds one part in memory.
        expires: seconds for which each URL is valid; an expired URL is signed again.
        timeout: maximum seconds to wait; the upload itself continues.
        on_progress: called with a line of text when there is progress to report.

    Returns:
        An UploadReport. `verified` is true if the stored object has the size and MD5 of the file. Under SSE-KMS, only
        the size is compared, because the ETags are not MD5s. Otherwise, `error` is the reason: curl or the file is
        missing, the storage refused the upload, or different content arrived.

    Raises:
        SettingsError: an argument is invalid, or there are no credentials.
        CommandTimedOut: the upload is still running after `timeout`, or the target did not respond; call again.
        CommandError: the target could not be queried, so the result is unknown.
    """
    _check(destination, part_bytes)
    shown = destination.address if isinstance(destination, Storage) else destination.partition("?")[0]
    site = Site.of(target, namespace, transport, clock)
    found: Any = site.ask_one(source_question("look_at_file", path, _PROBLEMS, "size"))
    if isinstance(found, str):
        return UploadReport(shown, False, error=f"{path}: {found}")
    source = SourceFile(path, int(found["size"]), found["identity"])
    identity = ("presigned", path, shown, source.identity)
    job = DetachedTries(site, "upload", identity, timeout=timeout, on_progress=on_progress)
    try:
        if isinstance(destination, str):
            return _upload_to_url(source, destination, shown, job, multipart_above)
        store = ObjectStore(source, destination, job, clock, expires)
        if source.size_bytes > multipart_above:
            return upload_in_parts(store, part_bytes)
        return _upload_whole(store)
    except CommandFailed as error:
        return UploadReport(shown, False, attempts=job.attempts, error=str(error))


def _check(destination: str | Storage, part_bytes: int | None) -> None:
    if isinstance(destination, str) and not _URL.fullmatch(destination):
        raise SettingsError("url", "(not shown)", "a presigned http(s) URL")
    if part_bytes is not None and (part_bytes % MIB or not MIN_PART_BYTES <= part_bytes <= MAX_PART_BYTES):
        raise SettingsError("part_bytes", part_bytes, "a whole number of MiB, from 5 MiB to 5 GiB")


def _upload_to_url(source: SourceFile, url: str, shown: str, job: DetachedTries, limit: int) -> UploadReport:
    """Send all of the file to one URL; only its ETag tells what arrived."""
    if source.size_bytes > limit:
        raise CommandFailed(
            f"{source.path}: {source.size_bytes} bytes are too many for a single upload URL",
            hint="pass a Storage instead of a URL",
        )
    sent = _sent_before(job) or send_pieces(source, [whole(source)], lambda _: url, job, can_sign=False)[WHOLE]
    error = None if sent.comparable else "the upload was accepted, but its ETag is not an MD5, so it cannot be verified"
    file = UploadedFile(source.path, source.size_bytes, sent.etag)
    return UploadReport(shown, sent.comparable, (file,), job.attempts, error)


def _upload_whole(store: ObjectStore) -> UploadReport:
    """Send all of the file in one request, unless an earlier call has done that; then verify the stored object."""
    source, sent = store.source, _sent_before(store.job)
    if sent is None or _difference(store, sent):
        sent = send_pieces(source, [whole(source)], lambda _: store.sign("PUT"), store.job)[WHOLE]
        if problem := _difference(store, sent):
            raise CommandFailed(problem)
    file = UploadedFile(source.path, source.size_bytes, sent.etag)
    return UploadReport(store.storage.address, True, (file,), store.job.attempts)


def _sent_before(job: DetachedTries) -> Sent | None:
    """Wait for what an earlier call has started, and return what it has sent."""
    job.settle()
    sent = parse_sent(job.results()).get(WHOLE)
    return sent if sent and sent.ok else None


def _difference(store: ObjectStore, sent: Sent) -> str | None:
    """Return what is wrong with what arrived; without permission to look at it, the ETag of the PUT has to tell."""
    held = store.request("HEAD")
    if held.status == 403 and sent.comparable:
        return None
    return difference(held, store.source.size_bytes, sent.md5 if sent.comparable else None)


# ---------------------------------------------------------------- in parts


def upload_in_parts(store: ObjectStore, part_bytes: int | None) -> UploadReport:
    """Send a file in parts, verify each, and complete the multipart upload; abort it at the storage when giving up.

    An upload of this object that another caller began is resumed, but never aborted.

    Raises:
        CommandFailed: it was given up, and why.
    """
    source = store.source
    pieces = split(source.size_bytes, part_size(source.size_bytes, part_bytes))
    store.job.settle()
    results = store.job.results()
    sent = {number: each for number, each in parse_sent(results).items() if each.ok}
    if any(piece.number not in sent for piece in pieces) or _difference_of_pieces(store, pieces, sent):
        begun = parse_begun(results)
        upload_id = _find(store, begun)
        if upload_id is None:
            upload_id = _create(store)
            begun.append(upload_id)
        try:
            sent = _send_missing(store, pieces, upload_id, sent, is_ours=upload_id in begun)
            _complete(store, pieces, upload_id, sent)
        except CommandFailed:
            if upload_id in begun:
                store.request("DELETE", {"uploadId": upload_id})
            raise
    file = UploadedFile(source.path, source.size_bytes, _expected_etag(pieces, sent))
    return UploadReport(store.storage.address, True, (file,), store.job.attempts)


def part_size(size_bytes: int, chosen: int | None = None) -> int:
    """Return the bytes per part, whole MiB: the chosen size, else 64 MiB, or more to stay within 1000 parts."""
    least = -(-size_bytes // (MOST_PARTS * MIB)) * MIB
    return max(chosen or USUAL_PART_BYTES, least)


def parse_upload_id(text: str, key: str) -> str | None:
    """Return the newest upload of exactly this object from a storage's list of unfinished ones."""
    uploads = re.findall(r"<Upload>.{0,20000}?</Upload>", text, re.DOTALL)
    mine = [read_tag(upload, "UploadId") for upload in uploads if read_tag(upload, "Key") == key]
    return mine[-1] if mine else None


def parse_parts(text: str) -> dict[int, tuple[str, int]]:
    """Parse the ETag and size in bytes of each part that the storage holds, by its number."""
    parts = {}
    for part in re.findall(r"<Part>.{0,20000}?</Part>", text, re.DOTALL):
        number, size = read_tag(part, "PartNumber"), read_tag(part, "Size")
        if re.fullmatch(r"\d{1,5}", number or "") and re.fullmatch(r"\d{1,15}", size or ""):
            etag = unescape(read_tag(part, "ETag") or "").strip('"')
            parts[int(number or 0)] = (etag, int(size or 0))
    return parts


def _find(store: ObjectStore, begun: Sequence[str]) -> str | None:
    """Return an unfinished upload of this object; if listing them is not permitted, one that we began."""
    key = store.storage.key
    listed = store.request("GET", {"uploads": "", "prefix": key}, whole_bucket=True)
    if listed.ok:
        return parse_upload_id(listed.body, key)
    return next((each for each in reversed(begun) if store.request("GET", {"uploadId": each}).ok), None)


def _create(store: ObjectStore) -> str:
    created = store.request("POST", {"uploads": ""})
    upload_id = read_tag(created.body, "UploadId") if created.ok else None
    if not upload_id:
        raise CommandFailed(f"the multipart upload was not started: {created.error or 'no upload id in the response'}")
    return upload_id


def _list(store: ObjectStore, upload_id: str) -> Parts:
    listed = store.request("GET", {"uploadId": upload_id})
    if not listed.ok:
        raise CommandFailed(f"the uploaded parts could not be listed: {listed.error}")
    return parse_parts(listed.body)


def _send_missing(
    store: ObjectStore, pieces: Sequence[Piece], upload_id: str, sent: Mapping[int, Sent], *, is_ours: bool
) -> dict[int, Sent]:
    """Send every part that the storage does not hold as it is on the target."""
    held = _list(store, upload_id)
    kept = {piece.number: sent[piece.number] for piece in pieces if _is_held(piece, sent, held)}
    missing = [piece for piece in pieces if piece.number not in kept]
    store.job.tell(f"{len(kept)} of {len(pieces)} parts have arrived")

    def sign(piece: Piece) -> str:
        return store.sign("PUT", {"uploadId": upload_id, "partNumber": str(piece.number)})

    return {**kept, **send_pieces(store.source, missing, sign, store.job, begun=upload_id if is_ours else "")}


def _is_held(piece: Piece, sent: Mapping[int, Sent], held: Parts) -> bool:
    here = sent.get(piece.number)
    return here is not None and held.get(piece.number) == (here.etag, piece.size_bytes)


def _complete(store: ObjectStore, pieces: Sequence[Piece], upload_id: str, sent: Mapping[int, Sent]) -> None:
    """Complete the upload once all parts have arrived as sent; the object itself proves that it worked."""
    held = _list(store, upload_id)
    if wrong := [piece.number for piece in pieces if not _is_held(piece, sent, held)]:
        raise CommandFailed(f"part {wrong[0]} was damaged in transfer")
    parts = "".join(
        f"<Part><PartNumber>{piece.number}</PartNumber><ETag>{escape(held[piece.number][0])}</ETag></Part>"
        for piece in pieces
    )
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>"
    done = store.request("POST", {"uploadId": upload_id}, body, limit=COMPLETE_SECONDS)
    if problem := _difference_of_pieces(store, pieces, sent):
        raise CommandFailed(problem if done.ok else f"the multipart upload was not completed: {done.error}")


def _difference_of_pieces(store: ObjectStore, pieces: Sequence[Piece], sent: Mapping[int, Sent]) -> str | None:
    return difference(store.request("HEAD"), store.source.size_bytes, _expected_etag(pieces, sent))


def _expected_etag(pieces: Sequence[Piece], sent: Mapping[int, Sent]) -> str | None:
    """Return the ETag of the whole object: the MD5 of the parts' MD5s; None if the storage's ETags are not MD5s."""
    sums = [sent[piece.number].md5 for piece in pieces if sent[piece.number].comparable]
    if len(sums) < len(pieces):
        return None
    return f"{hashlib.md5(bytes.fromhex(''.join(each or '' for each in sums))).hexdigest()}-{len(pieces)}"
