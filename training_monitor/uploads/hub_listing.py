"""What an upload to the hub wrote down: how far it came, and of each file what is here and what the hub has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_monitor.errors import last_lines, redact
from training_monitor.watching import UploadedFile

MOST_NAMED = 3
_FINAL = {
    "no-token": "no token on the target: set HF_TOKEN there, or log in with `hf auth login`",
    "no-tool": "neither hf nor huggingface-cli is installed on the target: pip install -U huggingface_hub",
    "no-python": "there is no Python beside hf on the target: pip install -U huggingface_hub",
    "denied": "no permission to enter the folder",
    "disk-full": "the run directory cannot be written (disk full?)",
}
_UNLISTED = "what arrived could not be listed"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception)|Error): ?", re.MULTILINE)
_CHATTER = re.compile(r"^(?:Hint: |For more information check|\[?notice)")
# Asking again is no use: the token, its rights, the name, the options.
_REFUSED = re.compile(
    r"\b40[134] (?:Client Error|Unauthorized|Forbidden|Not Found)\b|^[Uu]sage: |No such option",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class HubListing:
    """`files` are those that the hub lists as they are here; `error` says what is wrong with the others.

    `final`: trying again is no use.
    """

    files: tuple[UploadedFile, ...] = ()
    error: str | None = None
    final: bool = False


def parse_listing(text: str, log: str = "") -> HubListing:
    """Read the result of one try; `log` is the end of what it printed, which tells why it failed."""
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
        return HubListing(error="there is no file to upload", final=True)
    wrong = [str(row["path"]) for row in rows if not _arrived(row)]
    files = tuple(UploadedFile(row["path"], row["size"], row["hash"]) for row in rows if _arrived(row))
    return HubListing(files, _describe(wrong, len(rows)) if wrong else None)


def _row(line: str) -> Mapping[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {"path": line[:100]}  # a line that is broken tells of a file that did not arrive
    if not isinstance(row, dict) or not isinstance(row.get("path"), str):
        return None
    return {**row, "path": row["path"].encode("utf-8", "replace").decode()}


def _arrived(row: Mapping[str, Any]) -> bool:
    held = row.get("held")
    here = {"size": row.get("size"), "hash": row.get("hash")}
    return isinstance(here["size"], int) and isinstance(here["hash"], str) and held == here


def _describe(wrong: list[str], total: int) -> str:
    named = ", ".join(name[:100] for name in wrong[:MOST_NAMED]) + (", ..." if len(wrong) > MOST_NAMED else "")
    return f"{len(wrong)} of {total} files are missing at the hub or differ there: {named}"


def _explain(log: str) -> str:
    """What hf says went wrong, in one line: what follows its last `Error:`, without advice."""
    text = _COLOUR.sub("", log)[-16000:]
    said = _ERROR.split(text)[-1]
    plain = "\n".join([line for line in said.splitlines() if line.strip() and not _CHATTER.match(line)][:5])
    return redact(last_lines(plain, 5)) or "it said nothing"
