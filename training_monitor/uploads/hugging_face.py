"""A model from a target to the Hugging Face hub, with the `hf` command and the token that are there.

where            what is there
here             nothing: no token
on the target    the token in the environment of the job and of `hf`, in no argv and no file of ours

The token is taken there from the first that has one: the variable of the target's shell, of the training process, of
/etc/environment, of process 1 (what a container was started with), the token file of `hf auth login`. HF_HOME,
HF_ENDPOINT and HF_TOKEN_PATH likewise; `hf` is also looked for on the training's PATH.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandFailed, SettingsError
from training_monitor.models import JobStatus, JobView, Question, Reply
from training_monitor.parse.process_job import parse_fields
from training_monitor.targets.asking import quote_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.uploads.detached import MOST_TRIES, DetachedUpload, Way
from training_monitor.uploads.hub_listing import HubListing, parse_listing
from training_monitor.uploads.hub_script import format_hub_command
from training_monitor.uploads.model_card import IncompleteInfo, format_incomplete_card
from training_monitor.watching import UploadReport

_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# What is uploaded, so that the same call after a crash finds its job: all sizes, times and names of a folder.
_LOOK = r"""
path=PATH_ON_TARGET
[ -e "$path" ] || { echo state=missing; exit 0; }
[ -r "$path" ] || { echo state=denied; exit 0; }
if [ -d "$path" ]; then echo state=folder; cd "$path" || exit 1; set -- -L . -type f
else echo state=file; set -- -L "$path" -maxdepth 0; fi
echo "identity=$(find "$@" ! -path './.git/*' ! -path './.cache/*' -exec stat -L -c '%s %y %n' {} + | sort | cksum)"
"""


@dataclass(frozen=True, slots=True)
class _Source:
    is_file: bool
    identity: str


def upload_to_hugging_face(
    target: str | Target,
    path: str,
    repo_id: str,
    namespace: str = "default",
    *,
    token_env: str = "HF_TOKEN",
    pid: int | None = None,
    env: Mapping[str, str] | None = None,
    private: bool = True,
    path_in_repo: str | None = None,
    revision: str | None = None,
    incomplete: IncompleteInfo | None = None,
    timeout: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> UploadReport:
    """Upload a folder or a file from a target to a model repository on the hub, and compare what arrived.

    It runs there as a process job named after folder and repository: it goes on when this process or the connection
    ends, and the same call again, also after a crash, waits for what runs and believes what has been verified.

    Args:
        path: a folder or file on the target; `~/` is its home folder.
        repo_id: OWNER/NAME; created when it is not there, then `private` or public.
        token_env: the variable with the token: there, in the environment of the training `pid`, or in `env`, which the
            upload gets and which is kept in no file.
        path_in_repo: where the file or the folder's content goes; default: the file's name, the root.
        revision: a branch; created when it is not there.
        incomplete: the model was not fully trained: upload a README.md (or INCOMPLETE.md beside one) that says so.
        timeout: seconds to wait at most; the upload itself goes on. on_progress: called with a line when there is news.

    Returns:
        UploadReport. `verified`: the hub lists every file with the size and hash (`etag`; sha256 for LFS, else of the
        git blob) of the one here. Otherwise `error` says why, and what to install or to set.

    Raises:
        SettingsError: wrong arguments.
        CommandTimedOut: `timeout` passed and it runs on, or the target was silent: call again.
        CommandError: the target could not be asked: nothing is known.
    """
    _check(repo_id, token_env, path_in_repo, revision)
    way = Way(target, namespace, transport, clock)
    shown = f"hf://{repo_id}{f'@{revision}' if revision else ''}{f'/{path_in_repo}' if path_in_repo else ''}"
    source = way.ask(_look_question(path))
    if isinstance(source, str):
        return UploadReport(shown, False, error=f"{path}: {source}")
    inside = path_in_repo or (posixpath.basename(path) if source.is_file else "")
    card = format_incomplete_card(incomplete, model_name=repo_id.rpartition("/")[2]) if incomplete else None
    command = format_hub_command(
        path, repo_id, inside, card, revision=revision, private=private, token_env=token_env, pid=pid
    )
    identity = ("hub", path, repo_id, inside, revision or "", card or "", source.identity)
    job = DetachedUpload(way, identity, timeout=timeout, on_progress=on_progress)
    try:
        listing = _upload(job, command, env or {})
    except CommandFailed as error:
        return UploadReport(shown, False, attempts=job.attempts, error=str(error))
    return UploadReport(shown, listing.error is None, listing.files, job.attempts, listing.error)


def _check(repo_id: str, token_env: str, path_in_repo: str | None, revision: str | None) -> None:
    if not _REPO.fullmatch(repo_id):
        raise SettingsError("repo_id", repo_id, "OWNER/NAME")
    if not _VARIABLE.fullmatch(token_env):
        raise SettingsError("token_env", "(not shown)", "the name of a variable, not its value")
    for key, value in (("path_in_repo", path_in_repo), ("revision", revision)):
        if value is not None and (not value or "\0" in value or value.startswith("/") or ".." in value.split("/")):
            raise SettingsError(key, value, "a text that is not empty, a relative path without '..'")


def _look_question(path: str) -> Question[_Source | str]:
    """The file or folder; a text says why it cannot be uploaded."""

    def parse(reply: Reply) -> _Source | str:
        fields, _ = parse_fields(reply.output)
        problems = {"missing": "there is no such file or folder", "denied": "no permission to read it"}
        state = fields.get("state", "")
        if state not in ("file", "folder") or not fields.get("identity"):
            return problems.get(state, "the target does not say what it is")
        return _Source(state == "file", fields["identity"])

    return Question("model", _LOOK.replace("PATH_ON_TARGET", quote_path(path), 1), parse, 60.0)


def _upload(job: DetachedUpload, command: str, env: Mapping[str, str]) -> HubListing:
    """Upload until what the hub lists is what is here; three failures, or one that will not get better, end it."""
    earlier = job.settle()
    if earlier is not None and earlier.status is JobStatus.SUCCEEDED:
        listing = _read(job, earlier)
        if listing.error is None:
            return listing
    for failures in range(1, MOST_TRIES + 1):
        listing = _read(job, job.run(command, env))
        if listing.error is None or listing.final or failures == MOST_TRIES:
            break
        job.back_off(failures, listing.error)
    return listing


def _read(job: DetachedUpload, view: JobView) -> HubListing:
    return parse_listing(job.results(newest_only=True), view.log_tail)
