"""Render a notice as text, in the markup of each channel and within its limit, with the command to type next. Pure.

Texts come from logs and from other people: they are rendered as they are shown elsewhere, and characters that a channel
interprets are escaped. A text is cut before it is escaped, between characters as people see them, so no markup breaks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

from training_monitor.core.regex import regex
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.values import Notice, WatchedJob

_OF_MACHINES = (
    "instance_destroyed", "instance_gone", "instance_kept", "instance_swept", "instance_not_destroyed",
    "orphan_instance", "fleet_lost", "fleet_price", "fleet_destroyed", "fleet_gone", "fleet_stopped",
)  # fmt: skip
_OF_CREDIT = ("credit_low", "fleet_credit", "fleet_budget")
_OF_REACHING = ("unreachable", "state_unwritable", "fleet_unreachable", "fleet_state_unwritable")
_TITLE_UNITS = 200
_LOG_HEAD = "Last lines of the log:\n"
# A web address, or one character with the marks and skin tone that belong to it.
_PIECE = regex(r"https?://[\w./?=&%#~+:-]+|.[\u0300-\u036f\u20e3\ufe0f\U0001f3fb-\U0001f3ff]{0,5}", re.DOTALL)


def command_line(*words: str) -> str:
    """Return a shell line that calls our program with these words, quoted.

    It ends before the first word that is not shown as it is or looks like an option.
    """
    fit = [shown(word) == word and not word.startswith("-") for word in words]
    kept = words[: fit.index(False)] if False in fit else words
    return shlex.join(("training-monitor", *kept))


def next_command(kind: str, target: str | None, what: str | None = None) -> str:
    """Return the command to type after a notice of this kind; `what` is the training, as `check` takes it."""
    if kind in _OF_MACHINES:
        return command_line("rent", "instances")
    if kind in _OF_CREDIT:
        return command_line("rent", "credits")
    if kind in _OF_REACHING or target is None:
        return command_line("doctor", *([target] if target else []))
    if kind == "taken_over":
        return command_line("status", target)
    return command_line("check", target, *([what] if what else []))


def word_for(job: WatchedJob) -> str:
    """Return the word by which `check` finds this training."""
    return job.job_id or job.log_file or next(iter(job.log_paths), None) or str(job.pid)


class Markup(NamedTuple):
    """The markup of a channel. `limit` is in UTF-16 units, as messengers count.

    `bold` surrounds the title, `code` a command and `block` the lines of a log; in the last two, `escape_code` replaces
    `escape`.
    """

    limit: int
    escape: Callable[[str], str] = str
    bold: tuple[str, str] = ("", "")
    code: tuple[str, str] = ("", "")
    escape_code: Callable[[str], str] = str
    block: tuple[str, str] = ("", "")


def escape_html(piece: str) -> str:
    """Escape what HTML, and what was made after it, interprets."""
    import html

    return html.escape(piece, quote=False)


PLAIN = Markup(20_000)


def render(notice: Notice, markup: Markup) -> str:
    """Render the whole notice: its title, subject, fields, text, and the command to type next."""
    title = _escape_within(" ".join(shown(notice.title).split()), _TITLE_UNITS, markup.escape)
    if title and (not markup.bold[0] or markup.bold[0] not in title):  # Slack has no escape for its own mark
        title = f"{markup.bold[0]}{title}{markup.bold[1]}"
    body = render_body(notice, markup, markup.limit - _units(f"{title}\n\n" if title else ""))
    return "\n\n".join(part for part in (title, body) if part)


def render_body(notice: Notice, markup: Markup, limit: int | None = None) -> str:
    """Render subject and fields, one on each line, the text, as much of the log as fits, and the uncut command."""
    about = [(label, value) for label, value in (("Training", notice.training), ("Target", notice.target)) if value]
    lines = "\n".join(f"{shown(label)}: {' '.join(shown(value).split())}" for label, value in (*about, *notice.fields))
    text = "\n\n".join(part for part in (lines, shown_lines(notice.text)) if part).strip()
    left = markup.limit if limit is None else limit
    command = _render_command(notice, markup, left // 2)
    left -= _units(f"{command}\n\n" if command else "")
    said = _escape_within(text, left, markup.escape)
    log = _render_log(notice.log, markup, left - _units(f"{said}\n\n"))
    return "\n\n".join(part for part in (said, log, command) if part)


def _render_log(log: str, markup: Markup, limit: int) -> str:
    """Render the last lines of a log, as many as fit, in a block; "" without any."""
    begin, end = markup.block
    escape = markup.escape_code if begin else markup.escape
    text = shown_lines(log).replace("``", "`\u200b`") if "`" in begin else shown_lines(log)  # a block ends at three
    left, kept = limit - _units(f"{_LOG_HEAD}{begin}{end}"), list[str]()
    for line in reversed(text.splitlines()):
        piece = _escape_within(line, left, escape)
        if left <= 1 or (kept and piece.endswith("…") and not line.endswith("…")):
            break
        kept.append(piece)
        left -= _units(piece) + 1
    lines = "\n".join(reversed(kept))
    return f"{_LOG_HEAD}{begin}{lines}{end}" if kept else ""


def _render_command(notice: Notice, markup: Markup, limit: int) -> str:
    """Render the command to type next, and where, ready to be copied; "" if there is none or it is too long."""
    if not notice.command or shown(notice.command) != notice.command:  # another one must not be typed in its place
        return ""
    begin, end = markup.code
    is_code = bool(begin) and (end.strip("\n") not in notice.command)
    command = f"{begin}{markup.escape_code(notice.command)}{end}" if is_code else markup.escape(notice.command)
    line = f"Next{f', on {markup.escape(shown(notice.host))}' if notice.host else ''}: {command}"
    return line if _units(line) <= limit else ""


def one_line(notice: Notice, units: int = 120) -> str:
    """Return the title, or without one the beginning of the text, as one plain line for a subject or a list."""
    text = notice.title if notice.title.strip() else notice.text
    return _escape_within(" ".join(shown(text).split()), units, str)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _escape_within(text: str, limit: int, escape: Callable[[str], str]) -> str:
    """Return as many whole pieces as fit, escaped, with `…` in place of the rest."""
    kept: list[str] = []
    used = 0
    for found in _PIECE.finditer(text):
        piece = escape(found[0])
        if used + _units(piece) > limit:
            if kept and used == limit:
                kept.pop()
            return "".join(kept) + "…"
        kept.append(piece)
        used += _units(piece)
    return "".join(kept)
