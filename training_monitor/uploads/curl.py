"""Single requests to a storage, made by the target with curl, and what it answered.

A presigned URL is a secret: it reaches the target on the stdin of `sh -s` and curl on its stdin (`--config -`), stands
in no argv and in no file, and is cut out of whatever curl says.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape

from training_monitor.errors import CommandFailed
from training_monitor.models import Question, Reply

REQUEST_SECONDS = 60.0
NO_CURL = "curl is not installed on the target, and wget cannot upload reliably: apt-get install curl"
# `_curl OPTIONS` makes the request of $url: headers, body, then a line with the status. The user's .curlrc is not read.
# Nothing is moved for 5 minutes: it gives up.
CURL = r"""
_curl() {
  printf 'url = "%s"\n' "$url" | curl -q --config - --globoff --path-as-is --silent --show-error --include \
    --connect-timeout 30 --speed-limit 1 --speed-time 300 --write-out '\nhttp=%{http_code}\n' "$@"
}
_hide() { tr -d '\000\r' | sed 's|https*://[^ <>"]*|(URL)|g'; }
"""
_REQUEST = r"""
command -v curl >/dev/null || { echo no-curl; exit 0; }
url=URL
{ printf '%s' BODY | { _curl OPTIONS 2>&1; echo "curl=$?"; } 3<&0; } | head -c 1000000 | _hide
"""
_OPTIONS = {"HEAD": "--head", "POST": "--request POST --header 'Content-Type:' --data-binary @/dev/fd/3"}


@dataclass(frozen=True, slots=True)
class Response:
    """What a storage answered; status 0: it did not, and `said` is what curl says about it."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    said: str = ""

    @property
    def ok(self) -> bool:
        """Some answers say 200 first and then what went wrong."""
        return 200 <= self.status < 300 and "<Error>" not in self.body

    @property
    def error(self) -> str:
        return explain(self.status, self.said)


def request_question(method: str, url: str, body: str = "", limit: float = REQUEST_SECONDS) -> Question[Response]:
    """Make one request from the target. The answer raises CommandFailed where there is no curl."""
    options = _OPTIONS.get(method, f"--request {method}")
    parts = {"URL": shlex.quote(url), "BODY": shlex.quote(body), "OPTIONS": f"{options} --max-time {limit - 5:g}"}
    script = re.sub(r"\b(?:URL|BODY|OPTIONS)\b", lambda found: parts[found.group()], _REQUEST)
    return Question("storage", CURL + script, parse_response, limit)


def parse_response(reply: Reply) -> Response:
    """Read headers, body and status of one request; of several header blocks (100 Continue) the last counts."""
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
    """The text of the first XML element of this name; nothing is expanded but the usual character references."""
    found = re.search(rf"<{name}>([^<]{{0,4096}})</{name}>", text)
    return unescape(found[1]).strip() if found else None


def explain(status: int, said: str) -> str:
    """A storage's refusal in one line."""
    hint = ""
    if status == 403 and not is_expired(said):
        hint = " (look at the keys, the region, the endpoint and this machine's clock)"
    return (f"HTTP {status} {said}".strip() if status else said) + hint


def is_expired(said: str) -> bool:
    """Whether it says that the URL's time is over: a new one is signed."""
    return "expired" in said.lower()


def is_final(status: int, said: str) -> bool:
    """Whether asking again is no use: refusals, except 408, 429 and what a new signature heals."""
    return 400 <= status < 500 and status not in (408, 429) and not is_expired(said) and "RequestTimeout" not in said


def _reason(body: str) -> str:
    return ": ".join(text[:200] for name in ("Code", "Message") if (text := read_tag(body, name)))
