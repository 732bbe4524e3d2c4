"""Upload a model from a target to the Hugging Face hub, with the `hf` command and the token that are there.

    where            what is there
    here             nothing: no token
    on the target    the token in the environment of the job and of `hf`, in no argv and no file of ours

On the target, the token is taken from the first of these that has one: the environment of its shell, of the training
process, /etc/environment, the environment of process 1 (that of a container's start), the token file of `hf auth
login`. The same holds for HF_HOME, HF_ENDPOINT and HF_TOKEN_PATH; `hf` is also searched on the training's PATH.

A model whose training ended early gets a README that says so.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import CommandFailed, SettingsError, last_lines
from training_monitor.core.fields import PublicValue
from training_monitor.core.models import JobStatus
from training_monitor.core.outcomes import UploadedFile, UploadReport
from training_monitor.core.regex import regex
from training_monitor.targets.asking import Site, quote_path
from training_monitor.targets.scripts import format_call, read_file
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.uploads.detached import MOST_TRIES, DetachedTries, source_question

INCOMPLETE_TAG = "incomplete"
_PLAIN = regex(r"[A-Za-z](?:[A-Za-z0-9_./:-]*[A-Za-z0-9_])?")
_NOT_TEXT_IN_YAML = frozenset("true false yes no on off null y n".split())
_CONTROL = regex(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_REPO = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MOST_NAMED = 3
_FINAL = {
    "no-token": "no token on the target: set HF_TOKEN there, or log in with `hf auth login`",
    "no-tool": "neither hf nor huggingface-cli is installed on the target: pip install -U huggingface_hub",
    "no-python": "hf was found without a Python next to it on the target: pip install -U huggingface_hub",
    "denied": "no permission to enter the folder",
    "disk-full": "the run directory cannot be written (disk full?)",
}
_PROBLEMS = {"missing": "no such file or folder", "denied": "no permission to read it"}
_UNLISTED = "the uploaded files could not be listed"
_COLOUR = regex(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = regex(r"^(?:[\w.]*(?:Error|Exception)|Error): ?", re.MULTILINE)
_CHATTER = regex(r"^(?:Hint: |For more information check|\[?notice)")
# A retry would not help: the token, its rights, the name, the options.
_REFUSED = regex(
    r"\b40[134] (?:Client Error|Unauthorized|Forbidden|Not Found)\b|^[Uu]sage: |No such option",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, repr=False)
class IncompleteInfo(PublicValue):
    """Why a training was terminated, and how many steps it had completed. None means unknown.

    `model_name` is the heading (default: the name of the repository). `tags` and `base_model` are added to the front
    matter, together with the tag `incomplete`.
    """

    model_name: str | None = None
    target_steps: int | None = None
    completed_steps: int | None = None
    reason: str = "ETA not converging"
    tags: tuple[str, ...] = ()
    base_model: str | None = None


def format_incomplete_card(info: IncompleteInfo, *, model_name: str = "Model") -> str:
    """Return the README.md of an unfinished model: front matter with its tags, a warning, its progress and the reason.

    Args:
        model_name: the heading, if `info` has no name.

    Returns:
        Markdown. Names and tags may contain any characters: each stays on one line, and is quoted if YAML would misread
        it.
    """
    target, done = info.target_steps, info.completed_steps
    percent = f"{100 * done / target:.1f}" if done is not None and target else "?"
    lines = ["---", "tags:", *(f"  - {_yaml(tag)}" for tag in _tags(info.tags))]
    if info.base_model:
        lines.append(f"base_model: {_yaml(info.base_model)}")
    lines += [
        "---",
        "",
        f"# {_one_line(info.model_name or '') or _one_line(model_name)}",
        "",
        "⚠️ **This model was terminated early due to training stall.**",
        "",
        f"- Target steps: {'?' if target is None else target}",
        f"- Completed steps: {'?' if done is None else done} ({percent}%)",
        f"- Reason: {_one_line(info.reason) or '?'}",
        "",
        "The model may still be usable but was not fully trained.",
        "",
    ]
    return "\n".join(lines)


def _tags(given: Sequence[str]) -> list[str]:
    """Return each tag once, with `incomplete` among them."""
    return list(dict.fromkeys([text for tag in given if (text := _CONTROL.sub(" ", tag).strip())] + [INCOMPLETE_TAG]))


def _yaml(text: str) -> str:
    """Return the text as a YAML scalar that is read back as this text."""
    line = _CONTROL.sub(" ", text).strip()
    if _PLAIN.fullmatch(line) and line.lower() not in _NOT_TEXT_IN_YAML:
        return line
    return json.dumps(line, ensure_ascii=False)


def _one_line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip().replace("<", "&lt;")


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
    """Upload a folder or a file from a target to a model repository on the Hub, and verify that it arrived.

    The upload runs on the target as a process job that is named after the folder and the repository. It continues if
    this process ends or the connection is lost. If the same call is repeated, even after a crash, it waits for this
    upload and does not repeat what has been verified.

    Args:
        path: a folder or file on the target; `~/` is the home folder there.
        repo_id: OWNER/NAME. The repository is created if it does not exist, as private or public according to
            `private`.
        token_env: the environment variable that contains the token. It is read on the target, in the environment of the
            training `pid`, or from `env`, which is passed to the upload and is not written to any file.
        path_in_repo: the destination of the file or of the folder's content; default: the file's name, or the root.
        revision: a branch. It is created if it does not exist.
        incomplete: for a model that is not fully trained: upload a README.md (or an INCOMPLETE.md, if there is a
            README.md) that states this.
        timeout: maximum seconds to wait; the upload itself continues. on_progress: called with a line of text when
            there is progress to report.

    Returns:
        An UploadReport. `verified` is true if the Hub lists every file with the same size and hash as on the target
        (`etag`: SHA-256 for LFS, otherwise the git blob hash). Otherwise, `error` is the reason, with what to install
        or to set.

    Raises:
        SettingsError: an argument is invalid.
        CommandTimedOut: the upload is still running after `timeout`, or the target did not respond; call again.
        CommandError: the target could not be queried, so the result is unknown.
    """
    _check(repo_id, token_env, path_in_repo, revision)
    shown = f"hf://{repo_id}{f'@{revision}' if revision else ''}{f'/{path_in_repo}' if path_in_repo else ''}"
    site = Site.of(target, namespace, transport, clock)
    source: Any = site.ask_one(source_question("look_at_model", path, _PROBLEMS, "state"))
    if isinstance(source, str):
        return UploadReport(shown, False, error=f"{path}: {source}")
    inside = path_in_repo or (posixpath.basename(path) if source["state"] == "file" else "")
    card = format_incomplete_card(incomplete, model_name=repo_id.rpartition("/")[2]) if incomplete else ""
    options = (["--private"] if private else []) + (["--revision", revision] if revision else [])
    command = format_call(  # finds token and tool, uploads, adds the card if there is one, lists what arrived
        "hub",
        "upload",
        _path=quote_path(path),
        _arguments=shlex.join([*options, "--", repo_id]),
        _inside=inside,
        _card=card,
        _plan=json.dumps({"repo": repo_id, "inside": inside, "revision": revision}),
        _token_name=token_env,
        _pid=pid or "",
        _program=read_file("hub.py"),
    )
    identity = ("hub", path, repo_id, inside, revision or "", card, source["identity"])
    job = DetachedTries(site, "upload", identity, timeout=timeout, on_progress=on_progress)
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
            raise SettingsError(key, value, "a non-empty relative path without '..'")


def _upload(job: DetachedTries, command: str, env: Mapping[str, str]) -> HubListing:
    """Upload until the hub lists what is on the target; give up after three failures, or a final one."""
    earlier = job.settle()
    if earlier is not None and earlier.status is JobStatus.SUCCEEDED:
        listing = parse_listing(job.results(newest_only=True), earlier.log_tail)
        if listing.error is None:
            return listing
    for failures in range(1, MOST_TRIES + 1):
        log = job.run(command, env).log_tail
        listing = parse_listing(job.results(newest_only=True), log)
        if listing.error is None or listing.final or failures == MOST_TRIES:
            break
        job.back_off(failures, listing.error)
    return listing


# ---------------------------------------------------------------- the results of a try


class HubListing(NamedTuple):
    """The result of one try: `files` are listed by the hub as they are on the target; `error` is about the others.

    `final`: a retry would not help.
    """

    files: tuple[UploadedFile, ...] = ()
    error: str | None = None
    final: bool = False


def parse_listing(text: str, log: str = "") -> HubListing:
    """Parse the result of one try; `log` is the end of its output, which tells why it failed."""
    lines = text.split("\n")
    state = next((line for line in reversed(lines) if line and not line.startswith("{")), "")
    if state in _FINAL:
        return HubListing(error=_FINAL[state], final=True)
    if state != "listed":
        said = _explain(log)
        error = f"{_UNLISTED}: {said}" if state == "unlisted" else f"it was not uploaded: {said}"
        return HubListing(error=error, final=_REFUSED.search(_COLOUR.sub("", log)) is not None)
    rows = [row for line in lines if line.startswith("{") and (row := _row(line)) is not None]
    if not rows:
        return HubListing(error="no file to upload", final=True)
    wrong = [str(row["path"]) for row in rows if not _arrived(row)]
    files = tuple(UploadedFile(row["path"], row["size"], row["hash"]) for row in rows if _arrived(row))
    return HubListing(files, _describe(wrong, len(rows)) if wrong else None)


def _row(line: str) -> Mapping[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {"path": line[:100]}  # a broken line means that a file did not arrive
    if not isinstance(row, dict) or not isinstance(row.get("path"), str):
        return None
    return {**row, "path": row["path"].encode("utf-8", "replace").decode()}


def _arrived(row: Mapping[str, Any]) -> bool:
    held = row.get("held")
    here = {"size": row.get("size"), "hash": row.get("hash")}
    return isinstance(here["size"], int) and isinstance(here["hash"], str) and held == here


def _describe(wrong: list[str], total: int) -> str:
    named = ", ".join(name[:100] for name in wrong[:MOST_NAMED]) + (", ..." if len(wrong) > MOST_NAMED else "")
    return f"{len(wrong)} of {total} files are missing from the hub or differ there: {named}"


def _explain(log: str) -> str:
    """Return hf's error in one line: the text after its last `Error:`, without advice."""
    text = _COLOUR.sub("", log)[-16000:]
    said = _ERROR.split(text)[-1]
    plain = "\n".join([line for line in said.splitlines() if line.strip() and not _CHATTER.match(line)][:5])
    return last_lines(plain, 5) or "it printed nothing"
