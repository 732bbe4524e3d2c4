"""Upload one checkpoint, a file or a folder, to the hub, a bucket, or a presigned URL."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import CommandFailed, SettingsError
from training_monitor.core.models import Question, Reply
from training_monitor.core.outcomes import UploadReport
from training_monitor.core.regex import regex
from training_monitor.targets.asking import ask, quote_path
from training_monitor.targets.scripts import format_call
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.uploads.hugging_face import IncompleteInfo, upload_to_hugging_face
from training_monitor.uploads.presign import Storage
from training_monitor.uploads.presigned import upload_to_presigned_url

EXPECTED = "hf:OWNER/NAME[@BRANCH], s3://BUCKET/PREFIX, or the presigned https:// URL of a PUT"
MOST_FILES = 1000
_HUB = regex(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_BUCKET = regex(r"s3://(?P<bucket>[^/\s]+)/(?P<prefix>[^\x00-\x1f]*)")
_NOT_LISTED = {
    "newline": "a file name with a line break: rename that file, or pack the folder into an archive",
    "denied": "a folder that cannot be read: change its permissions, or run this as its user",
}
OnProgress = Callable[[str], None]


def check_destination(destination: str) -> None:
    """Raise SettingsError if this is not a place to upload to, or there are no credentials for it here."""
    if bucket := _BUCKET.fullmatch(destination):
        Storage(bucket["bucket"], "key").sign("HEAD")
    elif not (_HUB.fullmatch(destination) or destination.startswith(("https://", "http://"))):
        raise SettingsError("destination", destination.partition("?")[0], EXPECTED)


def upload_checkpoint(
    target: str | Target,
    path: str,
    destination: str,
    *,
    incomplete: IncompleteInfo | None = None,
    pid: int | None = None,
    env: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> UploadReport:
    """Upload a checkpoint from a target and verify that it arrived. Another call resumes the same upload.

    Args:
        path: a file or a folder on the target.
        destination: hf:OWNER/NAME[@BRANCH], s3://BUCKET/PREFIX (set AWS_ENDPOINT_URL for storage other than Amazon's),
            or a presigned PUT URL, for a single file.
        incomplete: for a model that is not fully trained, information that is added to the README on Hugging Face.
        pid: the training's process, whose environment may contain the Hugging Face token.
        env: environment variables for an upload to Hugging Face, such as HF_TOKEN. These variables are never written to
            a file.

    Raises:
        SettingsError: the destination is invalid, or there are no credentials for it.
        CommandError: the result of the upload is unknown.
    """
    check_destination(destination)
    ways: Any = {"on_progress": on_progress, "transport": transport, "clock": clock}
    if found := _HUB.fullmatch(destination):
        return upload_to_hugging_face(
            target, path, found["repo"], revision=found["revision"], incomplete=incomplete, pid=pid, env=env, **ways
        )
    [answer] = ask(target, _files_question(path), transport=transport)
    files = answer.get() or []
    if destination.startswith(("https://", "http://")):
        if files != [""]:
            error = f"{path} is not a file, but a presigned URL accepts only a file"
            return UploadReport(destination.partition("?")[0], False, error=error)
        return upload_to_presigned_url(target, path, destination, **ways)
    bucket = _BUCKET.fullmatch(destination)
    assert bucket
    return _upload_files(target, path, files, Storage(bucket["bucket"], "key"), bucket["prefix"], ways)


def _upload_files(
    target: str | Target, path: str, files: list[str], storage: Storage, prefix: str, ways: dict[str, Any]
) -> UploadReport:
    """Upload each file in turn, up to the first that does not arrive."""
    base = posixpath.join(prefix, posixpath.basename(path.rstrip("/")))
    shown, reports = replace(storage, key=base).address, list[UploadReport]()
    if not files:
        return UploadReport(shown, False, error=f"{path}: there is nothing to upload")
    for name in files:
        file = f"{path.rstrip('/')}/{name}" if name else path
        report = upload_to_presigned_url(target, file, replace(storage, key=f"{base}/{name}" if name else base), **ways)
        reports.append(report)
        if not report.verified:
            break
    return UploadReport(
        shown,
        reports[-1].verified,
        tuple(file for report in reports for file in report.files),
        max(report.attempts for report in reports),
        reports[-1].error,
    )


def _files_question(path: str) -> Question[list[str]]:
    """Ask for the files below a folder, by their relative paths; [""] if the path is a file itself."""
    script = format_call("upload_sources", "list_files", path=quote_path(path), most_files=MOST_FILES)

    def parse(reply: Reply) -> list[str]:
        kind, *names = reply.output.split("\n")
        if kind == "file":
            return [""]
        if kind in _NOT_LISTED:
            raise CommandFailed(f"{path} contains {_NOT_LISTED[kind]}")
        found = [name.removeprefix("./") for name in names if name]
        if len(found) > MOST_FILES:
            raise CommandFailed(f"{path} has more than {MOST_FILES} files: pack them into an archive first")
        return found

    return Question("files", script, parse, limit=30.0)
