"""One file from a target to object storage (S3, Cloudflare R2, whatever takes a presigned PUT), with curl.

The target gets no credentials: every request is a presigned URL, made here.

    where            what is there
    here             the credentials, in memory
    on the wire      presigned URLs, on the stdin of `sh -s`
    on the target    presigned URLs in the environment of the job that sends and on curl's stdin, neither in an argv nor
                     in a file; in the run directory (0700) the command and, of each piece, its MD5, ETag and status
"""

from __future__ import annotations

import re
from collections.abc import Callable

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandFailed, SettingsError
from training_monitor.models import Question, Reply
from training_monitor.parse.process_job import parse_fields
from training_monitor.targets.asking import quote_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.uploads.curl import NO_CURL
from training_monitor.uploads.detached import DetachedUpload, Way
from training_monitor.uploads.multipart import MAX_PART_BYTES, MIN_PART_BYTES, upload_in_parts
from training_monitor.uploads.pieces import MIB, WHOLE, Sent, parse_sent
from training_monitor.uploads.presign import DEFAULT_EXPIRES, Storage
from training_monitor.uploads.sending import ObjectStore, SourceFile, difference, send_pieces, whole
from training_monitor.watching import UploadedFile, UploadReport

GIB = 1024**3
_URL = re.compile(r"https?://[^\s\"'\\<>\x00-\x20\x7f-\uffff]{1,8000}")
_LOOK = r"""
file=FILE
command -v curl >/dev/null || { echo state=no-curl; exit 0; }
[ -e "$file" ] || { echo state=missing; exit 0; }
[ -f "$file" ] || { echo state=other; exit 0; }
[ -r "$file" ] || { echo state=denied; exit 0; }
echo state=file; stat -L -c 'size=%s' "$file"; stat -L -c 'identity=%s %Y %y %i' "$file"
"""
_PROBLEMS = {
    "no-curl": NO_CURL,
    "missing": "there is no such file",
    "other": "it is no regular file (pack a folder first)",
    "denied": "no permission to read it",
}


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
    """Send a file from a target to object storage, and look at what arrived.

    It runs there as a process job named after file and destination: it goes on when this process or the connection
    ends, and the same call again, also after a crash, waits for what runs and sends nothing that has arrived. An upload
    in parts that is given up is aborted; one that nobody calls for again stays at the storage until a lifecycle rule of
    the bucket (AbortIncompleteMultipartUpload) ends it.

    Args:
        path: a file on the target; `~/` is its home folder.
        destination: where it goes: a `Storage` with credentials (here or in the environment), or the presigned URL of
            a PUT. With a URL nothing can be signed again, and only the ETag tells what arrived.
        multipart_above: larger files, in bytes, are sent in parts, each verified; needs a Storage.
        part_bytes: size of a part, whole MiB, 5 MiB to 5 GiB; default: 64 MiB, more where it would be over 1000 parts.
            A part is held in memory there.
        expires: seconds for which each URL is good; one that expired is signed again.
        timeout: seconds to wait at most; the upload itself goes on.
        on_progress: called with a line of plain text when there is something new.

    Returns:
        UploadReport. `verified`: size and MD5 of what the storage holds are those of the file (under SSE-KMS the size:
        ETags are no MD5 then). Otherwise `error` says why: no curl, no such file, a refusal, something else arrived.

    Raises:
        SettingsError: wrong arguments, or no credentials.
        CommandTimedOut: `timeout` passed and it runs on, or the target was silent: call again.
        CommandError: the target could not be asked: nothing is known.
    """
    _check(destination, part_bytes)
    shown = destination.address if isinstance(destination, Storage) else destination.partition("?")[0]
    way = Way(target, namespace, transport, clock)
    source = way.ask(_look_question(path))
    if isinstance(source, str):
        return UploadReport(shown, False, error=f"{path}: {source}")
    identity = ("presigned", path, shown, source.identity)
    job = DetachedUpload(way, identity, timeout=timeout, on_progress=on_progress)
    try:
        if isinstance(destination, str):
            return _upload_to_url(source, destination, shown, job, multipart_above)
        store = ObjectStore(destination, job, clock, expires)
        if source.size_bytes > multipart_above:
            return upload_in_parts(source, store, part_bytes)
        return _upload_whole(source, store)
    except CommandFailed as error:
        return UploadReport(shown, False, attempts=job.attempts, error=str(error))


def _check(destination: str | Storage, part_bytes: int | None) -> None:
    if isinstance(destination, str) and not _URL.fullmatch(destination):
        raise SettingsError("url", "(not shown)", "a presigned http(s) URL")
    if part_bytes is not None and (part_bytes % MIB or not MIN_PART_BYTES <= part_bytes <= MAX_PART_BYTES):
        raise SettingsError("part_bytes", part_bytes, "whole MiB, 5 MiB to 5 GiB")


def _look_question(path: str) -> Question[SourceFile | str]:
    """The file; a text says why it cannot be sent."""

    def parse(reply: Reply) -> SourceFile | str:
        fields, _ = parse_fields(reply.output)
        state = fields.get("state", "")
        if state != "file":
            return _PROBLEMS.get(state) or "the target does not say what it is"
        if not fields.get("size", "").isdigit():
            return "stat on the target does not tell its size"
        return SourceFile(path, int(fields["size"]), fields.get("identity", ""))

    return Question("file", _LOOK.replace("FILE", quote_path(path), 1), parse)


def _upload_to_url(source: SourceFile, url: str, shown: str, job: DetachedUpload, limit: int) -> UploadReport:
    """All of the file to one URL; only its ETag tells what arrived."""
    if source.size_bytes > limit:
        raise CommandFailed(f"{source.path}: {source.size_bytes} bytes are too many for one URL", hint="use a Storage")
    job.settle()
    sent = parse_sent(job.results()).get(WHOLE)
    if sent is None or not sent.ok:
        sent = send_pieces(source, [whole(source)], lambda _: url, job, can_sign=False)[WHOLE]
    error = None if sent.comparable else "it was taken, but the ETag is no MD5: nothing tells what arrived"
    file = UploadedFile(source.path, source.size_bytes, sent.etag)
    return UploadReport(shown, sent.comparable, (file,), job.attempts, error)


def _upload_whole(source: SourceFile, store: ObjectStore) -> UploadReport:
    """All of the file in one request, unless an earlier call has done that; then what the storage says it holds."""
    store.job.settle()
    sent = parse_sent(store.job.results()).get(WHOLE)
    if sent is None or not sent.ok or _difference(source, store, sent):
        sent = send_pieces(source, [whole(source)], lambda _: store.sign("PUT"), store.job)[WHOLE]
        if problem := _difference(source, store, sent):
            raise CommandFailed(problem)
    file = UploadedFile(source.path, source.size_bytes, sent.etag)
    return UploadReport(store.storage.address, True, (file,), store.job.attempts)


def _difference(source: SourceFile, store: ObjectStore, sent: Sent) -> str | None:
    """What is wrong with what arrived; where nobody may look at it, the ETag of the PUT has to tell."""
    held = store.request("HEAD")
    if held.status == 403 and sent.comparable:
        return None
    return difference(held, source.size_bytes, sent.md5 if sent.comparable else None)
