"""One round trip, many questions.

All scripts travel in one `sh -s` on stdin (never in argv). On the target they run side by side, each with
its own time limit, at which all its processes are ended, wherever they went; each one's output is gathered
in memory (a full disk does not matter) and printed between marks that carry a random nonce, so no output can
forge a frame. Only sh, head, cat and sleep are needed (dash, bash and busybox are tested).

A reply without its closing mark is unknown, whatever the exit status, and is asked again: kubectl exec
can exit 0 and lose the output. Whatever a script does must therefore bear being done twice.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training_monitor.errors import CommandError, CommandFailed, CommandTimedOut, SettingsError, TrainingMonitorError
from training_monitor.models import Answer, Question, Reply
from training_monitor.targets.connect import connect
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport, explain_failure

MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_SCRIPT_BYTES = 131_000  # Linux takes 128 KiB in one variable of a new process
CONNECT_SECONDS = 20.0
ASK_ATTEMPTS = 3

# The shell functions below: `_ask NUMBER LIMIT SCRIPT` prints one frame; the script's processes carry its limit in
# their environment, and so does the `head` that gathers their output. `_end` kills what carries a mark: at a limit
# what still runs, and 1 s later the gathering of what not even SIGKILL ends. `_nap` sleeps and, when it is ended
# itself, leaves no sleep behind as an orphan (a container's process 1 may never reap it).
_PRELUDE = r"""
LC_ALL=C; export LC_ALL
_now() { read -r _t _rest </proc/uptime || _t=$(date +%s); } 2>/dev/null
_nap() {
  _e=; trap '_e=1; kill -9 $_z' TERM; sleep "$1" & _z=$!; [ "$_e" ] && kill -9 $_z
  wait $_z; [ "$_e" ] && { wait $_z; exit; }
}
_end() {
  _mark=$1=NONCE:$2: _found=
  if command -v grep; then _found=$(grep -lsF "$_mark" /proc/[0-9]*/environ)
  else for _f in /proc/[0-9]*/environ; do case $(cat "$_f") in *"$_mark"*) _found="$_found $_f";; esac; done; fi
  for _f in $_found; do _f=${_f#/proc/}; kill -9 "${_f%/environ}"; done
}
_ask() {
  _now; _begin=$_t
  _body=$(
    exec 3>&1
    {
      TM_ASK=NONCE:$2: TM_SCRIPT=$3 sh -c '_q=$TM_SCRIPT; unset TM_SCRIPT; eval "$_q"' </dev/null
      printf '\n%s exit %s\n' NONCE $?
    } 2>/dev/null 3>&- | TM_READ=NONCE:$2: head -c MAX >&3 3>&- &
    wait $!
  ) 2>/dev/null
  _now; printf '\n%s ask %s %s %s\n%s\n' NONCE "$1" "$_begin" "$_t" "$_body"
}
"""


def ask(
    target: str | Target,
    *questions: Question[Any],
    timeout: float | None = None,
    namespace: str = "default",
    transport: Transport | None = None,
) -> list[Answer[Any]]:
    """Ask all `questions` of a target in one round trip.

    Args:
        timeout: seconds for the whole round trip; default: the longest question's limit and 20 s to connect.

    Returns:
        One Answer per question, in their order; a question that failed or ran out of time is unknown.

    Raises:
        CommandError: the target as a whole did not answer (see errors.py for the kinds).
    """
    where = parse_target(target, namespace=namespace)
    reach = connect(where, transport)
    limit = timeout or max((question.limit for question in questions), default=0.0) + CONNECT_SECONDS
    for attempt in range(ASK_ATTEMPTS):
        nonce = secrets.token_hex(12)
        result = reach.run(["sh", "-s"], timeout=limit, input=format_script(questions, nonce))
        frames = read_frames(result.stdout, nonce)
        if frames is not None:
            return [_answer(question, frames.get(number)) for number, question in enumerate(questions)]
        said = (
            replace(result, stdout="") if nonce in result.stdout else result
        )  # pieces of our own frames explain nothing
        failure = explain_failure(said, str(where))
        if result.exit_code != 0 or attempt == ASK_ATTEMPTS - 1:
            raise failure
    raise AssertionError("unreachable")


def format_script(questions: Sequence[Question[Any]], nonce: str) -> str:
    """The program for `sh -s`: nested pipelines, so that every frame has a pipe and all run at once."""
    body = "cat"
    for number, question in reversed(list(enumerate(questions))):
        call = f"_ask {number} {question.limit:g} {shlex.quote(question.script)}"
        body = f"{call} | {{ {body}; cat <&3; }} 3<&0"
    prelude = _PRELUDE.replace("NONCE", nonce).replace("MAX", str(MAX_ANSWER_BYTES))
    return f"""{prelude}
{_format_watch(questions)}
{{ _watch & _w=$!
{body if questions else ":"}
{{ kill $_w; wait $_w; }} 2>/dev/null
printf '\\n%s close\\n' {nonce}
}} </dev/null
"""


def _format_watch(questions: Sequence[Question[Any]]) -> str:
    """`_watch`: one process that ends, at each limit, what still runs, and a second later what gathers it."""
    limits = {question.limit for question in questions}
    ends = sorted([(limit, "TM_ASK", limit) for limit in limits] + [(limit + 1, "TM_READ", limit) for limit in limits])
    lines, now = [], 0.0
    for at, mark, limit in ends:
        lines.append(f"_nap {at - now:g}; _end {mark} {limit:g}" if at > now else f"_end {mark} {limit:g}")
        now = at
    return "\n".join(["_watch() {", ":", *lines, "} >/dev/null 2>&1"])


def read_frames(text: str, nonce: str) -> dict[int, Reply | None] | None:
    """The replies by question number; None when the closing mark is missing. A reply None had no end."""
    replies: dict[int, Reply | None] = {}
    parts = re.split(rf"^{nonce} ", text, flags=re.MULTILINE)[1:]
    if not parts or parts[-1].strip() != "close":
        return None
    for part, following in zip(parts, parts[1:]):
        if not part.startswith("ask "):
            continue
        head, _, body = part.partition("\n")
        _, number, begin, end = head.split(" ")
        exit_code = int(following.split()[1]) if following.startswith("exit ") else None
        duration = max(0.0, float(end) - float(begin))
        replies[int(number)] = None if exit_code is None else Reply(body.removesuffix("\n"), exit_code, duration)
    return replies


def _answer(question: Question[Any], reply: Reply | None) -> Answer[Any]:
    told = (reply.exit_code, reply.duration) if reply else (None, None)
    try:
        return Answer(question.name, _read(question, reply), None, *told)
    except TrainingMonitorError as error:
        if isinstance(error, CommandError):
            error.answered = True
        return Answer(question.name, None, error, *told)


def _read(question: Question[Any], reply: Reply | None) -> Any:
    """What the reply says. Raises what its parser raises; CommandTimedOut, CommandFailed where it is none."""
    name, limit = question.name, question.limit
    if reply is None:
        raise CommandTimedOut(f"{name}: no end within {limit:g} s, or more than {MAX_ANSWER_BYTES} bytes")
    if reply.exit_code == 137 and reply.duration >= limit * 0.95:
        raise CommandTimedOut(f"{name}: still running after {limit:g} s, ended")
    if reply.exit_code == 126 and (size := len(question.script.encode())) > MAX_SCRIPT_BYTES:
        raise CommandFailed(f"{name}: a script of {size} bytes is too long for the target")
    return question.parse(reply)


def read_text(reply: Reply) -> str:
    """A parser for scripts whose output is the answer. Raises CommandFailed when they failed."""
    if reply.exit_code != 0:
        raise CommandFailed(f"exit status {reply.exit_code}: {reply.output.strip()[-300:] or 'it said nothing'}")
    return reply.output


def quote_path(path: str) -> str:
    """A path on the target as one word of a script, never an option; `~/` is the home folder there.

    Raises SettingsError.
    """
    if not path or "\0" in path:
        raise SettingsError("path", path, "the path of a file or folder")
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path if path.startswith("/") else f"./{path}")
