"""Call the vastai CLI. Its exit code means nothing: an answer is well-formed JSON that is not a refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from training_monitor.core.advice import find_advice
from training_monitor.core.errors import AccessDenied, CommandError, TargetUnreachable, last_lines
from training_monitor.core.masking import redact
from training_monitor.core.regex import regex
from training_monitor.core.results import CommandResult
from training_monitor.core.shown import shown
from training_monitor.targets.kinds.vast import VAST_TIMEOUT
from training_monitor.targets.transport import LocalTransport, Transport, explain_failure, without_frames

OTHER_KEY_NEXT = "Trying again with your normal API Key"  # printed once before the JSON when a 2FA session ended
_REFUSAL = regex(r"""^\{"error": true, "status_code": (\d{3}), "msg": "?(.*?)"?\}\s*$""", re.MULTILINE)
_DENIED = regex(
    r"^.*(?:\"status_code\": |failed with error |HTTPError: )40[13]\b.*$|^.*session (?:has )?expired.*$",
    re.IGNORECASE | re.MULTILINE,
)


def ask_vastai(*words: str, transport: Transport | None = None) -> Any:
    """Return what `vastai WORDS --raw` answers. Raises CommandError unless it is JSON and not a refusal."""
    return read_answer(run_vastai(["vastai", *words, "--raw"], transport or LocalTransport()))


def run_vastai(argv: Sequence[str], runner: Transport) -> CommandResult:
    """Run a read-only command; run it again if the end of a session spoiled its output."""
    result = runner.run(argv, timeout=VAST_TIMEOUT)
    return runner.run(argv, timeout=VAST_TIMEOUT) if OTHER_KEY_NEXT in result.stdout else result


def read_answer(result: CommandResult) -> Any:
    """Return the JSON that a command printed. Raises CommandError if there is none, or it is a refusal."""
    try:
        answer = json.loads(result.stdout)
    except (ValueError, RecursionError):
        raise explain(result) from None
    if result.exit_code or (isinstance(answer, dict) and answer.get("success", True) is not True):
        raise explain(result)
    return answer


def explain(result: CommandResult) -> CommandError:
    """Return the error behind an invalid answer."""
    said = _REFUSAL.search(result.stderr)
    if denial := find_denial(result):
        return denial
    if said is None or result.exit_code:
        return explain_failure(result, "vast.ai")
    what = f"it returned HTTP {said[1]}: {last_lines(said[2]) or 'no message'}"
    advised = find_advice(said[0], "vastai")
    hint = advised.hint if advised else None
    return TargetUnreachable(what, target="vast.ai", argv=result.argv, result=result, hint=hint)


def find_denial(result: CommandResult) -> AccessDenied | None:
    """Return the error for an answer that the key is not good enough, in the words of any version; None for others."""
    found = _DENIED.search(f"{result.stderr}\n{result.stdout}")
    if not found:
        return None
    advised = find_advice(found[0], "vastai")
    hint = advised.hint if advised else None
    return AccessDenied(last_lines(found[0]), target="vast.ai", argv=result.argv, result=result, hint=hint)


def last_words(result: CommandResult) -> str:
    """Return the last output of a command that acts, on one line."""
    return last_lines(f"{result.stdout}\n{without_frames(result.stderr)}", 2)


def clean_line(text: str, most: int = 300) -> str:
    """Return what is shown of a text on one line of at most so many characters."""
    return shown(" ".join(redact(text).split()))[:most]
